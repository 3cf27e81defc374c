"""Intervals of a run: its folder, evaluation, `rnc predict`, ONNX, and what older runs say."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from typer.testing import CliRunner

import rnc
from evaluation_cases import FAST, data_of, houses
from rnc.cli import app
from rnc.files import CALIBRATION_FILE
from rnc.model.intervals import calibrate
from rnc.run.evaluate import evaluate_run
from rnc.run.export import _metadata
from rnc.run.folder import RunFolder
from rnc.run.other import evaluate_other
from rnc.run.predict import interval_notes
from rnc.run.reference import reference_of
from rnc.run.write import write_evaluation
from rnc.training.recipes import build_regressor


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with houses and a run that was not trained, but calibrated."""
    folder = tmp_path_factory.mktemp("intervals")
    source = houses(folder / "houses.csv", n=400)
    data = data_of(source, calibration_share=0.4)
    table = data.read(224)
    model = build_regressor(table, FAST)
    model.reference = reference_of(model, table)
    model.calibration = calibrate(model, table)
    model.save(folder / "run", {"fit": FAST.to_json(), "data": data.to_json()})
    write_evaluation(evaluate_run(model, table, FAST), folder / "run")
    RunFolder(folder / "run").write_train_targets(table.y[table.rows("train")])
    return folder


def told(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, [str(word) for word in words])
    return result.exit_code, " ".join(result.output.split())


def test_predictions_have_the_intervals_of_the_test_rows(home: Path) -> None:
    run = RunFolder(home / "run")
    frame = pd.read_csv(home / "houses.csv").iloc[run.predictions.names.astype(int) - 2]
    found = run.model.predict_interval(frame, 0.9)
    assert run.predictions.intervals is not None
    np.testing.assert_allclose(run.predictions.intervals, found, rtol=1e-5)
    assert run.scores["columns"]["price_lower"] == "lower"
    assert not run.predictions.extras


def test_scores_say_how_many_targets_are_held(home: Path) -> None:
    run = RunFolder(home / "run")
    entry, (lower, upper) = run.scores["intervals"], run.predictions.intervals
    inside = int(((lower <= run.truth) & (run.truth <= upper)).sum())
    band = stats.binomtest(inside, len(lower)).proportion_ci(method="exact")
    found = entry["coverage"]["0.9"]["price"]
    assert found["coverage"] == inside / len(lower)
    assert (found["low"], found["high"]) == pytest.approx((band.low, band.high))
    assert found["width"] == pytest.approx((upper - lower).mean())
    assert found["expected"] < 0.9
    assert (entry["rows"], entry["reused"], "cost" in entry) == (112, False, False)
    assert run.scores["n"] == {"train": 168, "val": 40, "test": 80, "calibration": 112}
    assert "90%, 95% intervals hold" in " ".join(run.answer.details)


def test_the_command_writes_what_python_returns(home: Path, tmp_path: Path) -> None:
    out, plain, data = tmp_path / "a.csv", tmp_path / "b.csv", home / "houses.csv"
    for kind in ("auto", "bins"):
        words = ("--confidence", "0.8", "--intervals", kind, "-o", out, "--overwrite")
        code, text = told("predict", home / "run", data, *words)
        assert code == 0, text
        frame = pd.read_csv(out)
        found = rnc.load(home / "run").predict_interval(data, 0.8, kind=kind)
        np.testing.assert_allclose(frame[["price_lower"]], found.lower)
        np.testing.assert_allclose(frame[["price_upper"]], found.upper)
    assert "80% intervals (bins) by 112 calibration rows." in text
    assert told("predict", home / "run", data, "-o", plain)[0] == 0
    both = pd.read_csv(plain)
    pd.testing.assert_frame_equal(frame.drop(columns=["price_lower", "price_upper"]), both)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--confidence", "90"), "got 90.0. For 90%, give 0.9."),
        (("--confidence", "0.999"), "needs at least 999 calibration rows; there are 112."),
        (("--joint",), "--intervals and --joint are about intervals: add --confidence 0.9."),
        (
            ("--confidence", "0.9", "--intervals", "quantiles"),
            "a head that predicts a distribution",
        ),
    ],
)
def test_the_command_says_what_cannot_be(home: Path, words: tuple, message: str) -> None:
    code, text = told("predict", home / "run", home / "houses.csv", *words, "-o", home / "x.csv")
    assert (code, message in text) == (2, True), text
    assert not (home / "x.csv").exists()


def test_other_data_that_are_not_alike_are_told(home: Path, tmp_path: Path) -> None:
    frame = pd.read_csv(home / "houses.csv")
    same, far = tmp_path / "same.csv", tmp_path / "far.csv"
    frame.to_csv(same, index=False)
    frame.assign(price=frame["price"] * 3).to_csv(far, index=False)
    said = {}
    for data in (same, far):
        folder = evaluate_other(home / "run", data, out=tmp_path / data.stem).folder
        said[data.stem] = " ".join(RunFolder(folder).answer.details)
    assert "do not keep their promise here" not in said["same"]
    assert "the 80%, 90%, 95% intervals do not keep their promise here" in said["far"]
    assert "(shift)" in said["far"]


def test_a_run_without_calibration_says_how_to_get_it(home: Path, tmp_path: Path) -> None:
    model = rnc.load(home / "run")
    model.save(tmp_path)
    assert (tmp_path / CALIBRATION_FILE).exists()  # a loaded model keeps its intervals
    (tmp_path / CALIBRATION_FILE).unlink()
    with pytest.raises(FileNotFoundError, match=r"`rnc resume .*` writes it without training"):
        rnc.load(tmp_path).predict_interval(home / "houses.csv")
    (tmp_path / CALIBRATION_FILE).write_bytes(b"no tensors")
    with pytest.raises(ValueError, match=r"calibration.safetensors is damaged.*rnc resume"):
        rnc.load(tmp_path).predict_interval(home / "houses.csv")
    assert len(rnc.load(tmp_path).predict(home / "houses.csv")) == 400  # needs none of it


def test_onnx_has_the_margins_of_plain_intervals(home: Path) -> None:
    model = rnc.load(home / "run")
    entry = json.loads(json.dumps(_metadata(model)))["intervals"]
    lower, upper = model.predict_interval(home / "houses.csv", 0.9, kind="plain")
    np.testing.assert_allclose((upper - lower) / 2, entry["margins"]["0.9"][0])
    assert list(entry["margins"]) == ["0.8", "0.9", "0.95"]


def test_arcs_and_validation_rows_are_told(home: Path) -> None:
    rows = calibrate(rnc.load(home / "run"), data_of(home / "houses.csv").read(224), period=360.0)
    assert rows is not None
    first, circle = interval_notes(rows, ["plain"], 0.9)
    assert "by 40 validation rows, which also chose epochs and penalties: coverage can be" in first
    assert "where the upper end is below the lower one, the interval goes across 360." in circle
