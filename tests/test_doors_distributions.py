"""Medians, quantiles and distributions from the estimator, a loaded model and the command."""

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import rnc
from rnc import Regressor, RnCRegressor
from rnc.cli import app, terminal
from rnc.heads import LEVELS, head_config
from rnc.metrics.distributions import pinball
from rnc.run.predict import predict_run

TARGETS = ["dose", "time"]
LEARNED = (0.1, 0.5, 0.9)
FIT: dict[str, Any] = {"preset": "quick", "epochs": 1, "device": "cpu", "encoder": "mlp"}


def columns(n: int, seed: int = 0) -> pd.DataFrame:
    """Two targets, of which the first scatters more where `a` is large."""
    rng = np.random.default_rng(seed)
    a, b, noise = rng.uniform(size=n), rng.normal(size=n), rng.normal(size=(n, 2))
    dose, time = 10 * a + (0.2 + 2 * a) * noise[:, 0], 100 - 5 * b + noise[:, 1]
    return pd.DataFrame({"a": a, "b": b, "dose": dose, "time": time})


@pytest.fixture(scope="module")
def fitted() -> RnCRegressor:
    frame = columns(600)
    model = RnCRegressor(**FIT, head="quantile", head_options={"levels": LEARNED})
    return model.fit(frame[["a", "b"]], frame[TARGETS])


@pytest.fixture(scope="module")
def run(fitted: RnCRegressor, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    fitted.model_.save(folder)
    return folder


@pytest.fixture(scope="module")
def l1(fitted: RnCRegressor) -> Regressor:
    """A model whose head predicts one number."""
    model = copy.deepcopy(fitted.model_)
    model.replace_head(head_config("l1", model.head.config.d, columns(9)[TARGETS].to_numpy()))
    return model


def command(*words: object) -> Any:
    result = CliRunner().invoke(app, ["predict", *map(str, words)], env={"COLUMNS": "400"})
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def test_the_estimator_gives_every_output_in_its_shape(fitted: RnCRegressor) -> None:
    new = columns(40, seed=1)[["a", "b"]]
    plain = fitted.predict(new)
    np.testing.assert_array_equal(fitted.predict(new, output="mean"), plain)
    np.testing.assert_array_equal(fitted.predict(new, output="median"), plain)
    found = fitted.predict(new, output="quantiles", quantiles=[0.9, 0.5, 0.3])
    assert found.shape == (40, 2, 3)
    np.testing.assert_array_equal(found[..., 1], plain)
    assert (np.diff(found, axis=2) <= 0).all()
    full = fitted.predict(new, output="full")
    assert full["quantiles"].shape == (40, 2, 9)
    assert full["levels"].tolist() == list(LEVELS)
    np.testing.assert_array_equal(full["mean"], plain)
    interval = fitted.predict(new, output="interval", confidence=0.8)
    np.testing.assert_array_equal(interval, fitted.predict_interval(new, confidence=0.8))
    np.testing.assert_array_equal(
        fitted.predict(new, output="interval"), fitted.predict_interval(new, confidence=0.9)
    )


def test_one_target_has_one_dimension_less(fitted: RnCRegressor) -> None:
    one = copy.copy(fitted)
    one._y_dims = 1  # as after fit with y (n,): the first target stands for the only one
    new = columns(7, seed=1)[["a", "b"]]
    both = fitted.predict(new, output="quantiles")
    np.testing.assert_array_equal(one.predict(new, output="quantiles"), both[:, 0])
    full = one.predict(new, output="full", quantiles=[0.1, 0.9])
    assert {name: value.shape for name, value in full.items()} == {
        "mean": (7,),
        "median": (7,),
        "quantiles": (7, 2),
        "levels": (2,),
    }
    interval = one.predict(new, output="interval")
    np.testing.assert_array_equal(interval, one.predict_interval(new))
    assert interval.lower.shape == (7,)


def test_quantiles_have_about_their_level_and_follow_the_scatter(fitted: RnCRegressor) -> None:
    new = columns(2000, seed=2)
    found = fitted.predict(new[["a", "b"]], output="quantiles", quantiles=LEARNED)
    below = (new[TARGETS].to_numpy()[..., None] <= found).mean(axis=0)
    np.testing.assert_allclose(below, [LEARNED, LEARNED], atol=0.1)
    width = found[:, 0, 2] - found[:, 0, 0]
    assert width[new["a"] > 0.8].mean() > 2 * width[new["a"] < 0.2].mean()
    truth, constant = new["dose"].to_numpy(), np.quantile(new["dose"], 0.9)
    lost = [pinball(guess, truth, 0.9).mean() for guess in (found[:, 0, 2], 0 * truth + constant)]
    assert lost[0] < 0.6 * lost[1]


def test_the_command_and_a_loaded_model_give_the_same(
    fitted: RnCRegressor, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    columns(20, seed=3).to_csv("new.csv", index=False)
    result = command(run, "new.csv", "--quantiles", "0.1,0.5,0.975")
    assert result.exit_code == 0, result.output
    written = pd.read_csv("predictions.csv")
    names = [f"{target}_q{level}" for target in TARGETS for level in (0.1, 0.5, 0.975)]
    assert list(written) == ["name", *(f"{t}_given" for t in TARGETS), *TARGETS, *names]
    new = pd.read_csv("new.csv")
    loaded = rnc.load(run).predict(new, output="quantiles", quantiles=[0.1, 0.5, 0.975])
    np.testing.assert_array_equal(written[names].to_numpy(), loaded.reshape(20, 6))
    asked: dict[str, Any] = {"output": "quantiles", "quantiles": (0.1, 0.5, 0.975)}
    np.testing.assert_array_equal(fitted.predict(new[["a", "b"]], **asked), loaded)
    frame = predict_run(run, "new.csv", quantiles=(0.1, 0.5, 0.975)).frame
    np.testing.assert_array_equal(frame[names].to_numpy(), loaded.reshape(20, 6))


@pytest.mark.parametrize(
    ("levels", "message"),
    [
        ("0.1;0.9", "--quantiles needs levels with commas between, as 0.1,0.5,0.9; got '0.1;0.9'."),
        ("0,0.5", "above 0 and below 1, each once, as [0.1, 0.5, 0.9]; got [0.0, 0.5]."),
    ],
)
def test_levels_are_checked_before_data_are_read(
    run: Path, tmp_path: Path, levels: str, message: str
) -> None:
    (tmp_path / "empty.csv").touch()
    result = command(run, tmp_path / "empty.csv", "--quantiles", levels, "-o", "-")
    assert result.exit_code == 2
    assert message in " ".join(result.output.split())


def test_a_head_without_quantiles_says_what_to_do(l1: Regressor, tmp_path: Path) -> None:
    new = columns(5)
    with pytest.raises(ValueError, match=r"'l1' predicts one number.*quantile.*predict_interval"):
        l1.predict("no such file", output="quantiles")
    np.testing.assert_array_equal(l1.predict(new, output="median"), l1.predict(new))
    l1.save(tmp_path / "run")
    new.to_csv(tmp_path / "new.csv")
    result = command(tmp_path / "run", tmp_path / "new.csv", "--quantiles", "0.1", "-o", "-")
    assert result.exit_code == 2
    assert "--head quantile" in result.output


def test_a_target_with_the_name_of_a_quantile_is_not_overwritten(
    fitted: RnCRegressor, tmp_path: Path
) -> None:
    model = copy.deepcopy(fitted.model_)
    object.__setattr__(model.config, "target_names", ("dose", "dose_q0.1"))
    model.save(tmp_path)
    with pytest.raises(ValueError, match=r"column 'dose_q0\.1', which is a target"):
        predict_run(tmp_path, columns(5), quantiles=[0.1])


def test_the_end_of_a_training_shows_how_to_get_them(
    fitted: RnCRegressor, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    for name in ("print_scores", "print_answer"):
        monkeypatch.setattr(terminal, name, lambda folder: None)
    monkeypatch.setattr(terminal, "tell", told.append)
    monkeypatch.setattr("rnc.report.write_report", lambda runs: "report.html")
    terminal.print_finished(run)
    assert told == [f"Predict: rnc predict {run} NEW -o predictions.csv --quantiles 0.1,0.5,0.9"]
