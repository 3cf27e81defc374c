"""The line that ends `rnc fit`: the error, the baselines, and whether training was long enough."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingRegressor

from rnc.config import FitConfig
from rnc.data.table import Table
from rnc.metrics import angular_error, circular_error, mae, score_words
from rnc.run import baselines as module
from rnc.run.answer import answer
from rnc.run.baselines import baselines, constant_guess
from rnc.run.enough import kept_scheme, training_length
from rnc.run.fit import fit_run
from rnc.run.folder import RunFolder
from rnc.training.record import Record
from training_cases import columns, images, quick

PRICE = {"model": {"target_names": ["price"]}}


def scores_of(**more: Any) -> dict[str, Any]:
    return {"test": {"mae": 2.31, "r2": 0.9}, "n": {"train": 900, "test": 412}, **more}


def test_the_headline_says_the_error_and_who_is_better() -> None:
    rivals = {"median": {"mae": 8.94}, "boosting": {"mae": 2.1, "seconds": 1.0, "rows": 900}}
    told = answer(scores_of(baselines=rivals), PRICE)
    assert told.headline == (
        "price: off by 2.31 on average (MAE, 412 test rows); guessing the median: 8.94; "
        "gradient boosting (scikit-learn): 2.10, which is better here."
    )
    assert told.details == ()
    rivals["boosting"]["mae"] = 2.4
    assert answer(scores_of(baselines=rivals), PRICE).headline.endswith("(scikit-learn): 2.40.")


def test_an_older_run_without_baselines_still_has_an_answer() -> None:
    told = answer(scores_of(), PRICE)
    assert told.headline == "price: off by 2.31 on average (MAE, 412 test rows)."
    assert answer({}, {}).headline == "There are no scores yet."


def test_details_say_what_else_a_reader_must_know() -> None:
    more = {
        "auto": {"end2end": 3.0, "probe": 2.0},
        "kept": "probe",
        "per_target": {"price": {"mae": 2.0}, "rent": {"mae": 2.6}},
        "baselines": {
            "median": {"mae": 8.9, "per_target": {"price": 8.0, "rent": 9.8}},
            "boosting": {"mae": 2.1, "rows": 500, "per_target": {"price": 2.0, "rent": 2.2}},
        },
        "training": {"updates": 16, "enough": False, "why": "16 updates", "epochs": 120},
    }
    config = {"model": {"target_names": ["price", "rent"]}}
    told = answer(scores_of(**more), config, "runs/x")
    assert told.headline.startswith("price, rent: off by 2.31 on average (MAE over all targets,")
    assert told.details == (
        "Of the schemes, probe was kept. Validation errors: probe 2.00, end2end 3.00.",
        "price: off by 2.00; the median: 8.00; gradient boosting: 2.00.",
        "rent: off by 2.60; the median: 9.80; gradient boosting: 2.20.",
        "Gradient boosting learned from 500 of 900 training rows.",
        "Training was short: 16 updates. Go on with: rnc resume runs/x --epochs 120",
    )


def test_angles_are_told_by_their_own_error() -> None:
    rivals = {"median": {"mae": 9.0, "angular_error": 12.1}}
    scores = {"test": {"mae": 3.0, "angular_error": 4.2}, "baselines": rivals, "n": {"test": 7}}
    told = answer(scores, {"model": {"target_names": ["pitch", "yaw"]}})
    assert told.headline == (
        "pitch, yaw: off by 4.20 degrees on average (mean angle, 7 test rows); guessing the mean "
        "direction: 12.1."
    )


@pytest.mark.parametrize("targets", [1, 2])
def test_baselines_are_those_of_numpy_and_scikit_learn(targets: int) -> None:
    table = columns(targets=targets)
    train, test = table.rows("train"), table.rows("test")
    found = baselines(table, FitConfig())
    medians = np.median(table.y[train], axis=0)
    assert found["median"]["mae"] == pytest.approx(np.abs(table.y[test] - medians).mean())
    errors = []
    for y in table.y.T:
        model = HistGradientBoostingRegressor(loss="absolute_error", random_state=0)
        errors.append(np.abs(model.fit(table.x[train], y[train]).predict(table.x[test]) - y[test]))
    assert found["boosting"]["mae"] == pytest.approx(np.mean(errors))
    assert found["boosting"]["rows"] == len(train)
    if targets > 1:
        expected = dict(zip(table.target_names, (e.mean() for e in errors), strict=True))
        assert found["boosting"]["per_target"] == pytest.approx(expected)


def test_boosting_is_for_tables_and_takes_a_bounded_number_of_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert list(baselines(images(), FitConfig())) == ["median"]
    assert list(baselines(columns(), FitConfig(), boosting=False)) == ["median"]
    monkeypatch.setattr(module, "MOST_CELLS", 4 * 30)
    assert baselines(columns(), FitConfig())["boosting"]["rows"] == 30


def test_the_guess_on_a_circle_beats_every_other_value() -> None:
    config = FitConfig(label_distance="circular", period=24)
    hours = np.random.default_rng(0).normal(23.8, 1.5, size=(99, 1)) % 24
    (guess,) = constant_guess(hours, config)
    errors = [circular_error(np.full((99, 1), h), hours, period=24) for h in np.arange(0, 24, 0.05)]
    assert circular_error(np.full((99, 1), guess), hours, period=24) <= min(errors)
    assert circular_error(np.full((99, 1), np.median(hours)), hours, period=24) > 1.5 * min(errors)


def test_the_guess_of_a_gaze_is_the_mean_direction() -> None:
    config = FitConfig(label_distance="angular")
    gaze = np.array([[10.0, 170.0], [10.0, -170.0]])
    guess = constant_guess(gaze, config)
    assert angular_error(guess[None], np.array([[guess[0], 180.0]])) < 1e-6
    assert angular_error(np.stack([guess, guess]), gaze) < 10


def test_boosting_on_a_circle_learns_across_its_seam() -> None:
    rng = np.random.default_rng(0)
    x = rng.uniform(-3, 3, size=(200, 1)).astype(np.float32)
    split = np.array(["train", "train", "val", "test"] * 50)
    table = Table(x, x.astype(float) % 24, ("hour",), "table", split, np.arange(200).astype(str))
    found = baselines(table, FitConfig(label_distance="circular", period=24))
    assert found["boosting"]["circular_error"] < 0.2 < found["median"]["circular_error"]


# ------------------------------------------------------------------------------------ the length


def epochs_of(stage: str, errors: list[float | None]) -> list[Record]:
    count = len(errors)
    return [Record(stage, i + 1, count, 0.1, 1.0, None, e, 0.1) for i, e in enumerate(errors)]


def test_few_updates_are_a_short_training() -> None:
    config = FitConfig(batch_size=32)
    found = training_length(epochs_of("encoder", [None] * 8), config, 70)
    assert found == {"updates": 16, "enough": False, "why": "16 updates", "epochs": 500}
    assert training_length(epochs_of("encoder", [None] * 300), config, 70)["enough"]


def test_an_error_that_still_falls_is_a_short_training() -> None:
    config = FitConfig(scheme="end2end", batch_size=10)
    falling = training_length(
        epochs_of("end2end", [float(10 - i / 4) for i in range(20)]), config, 500
    )
    assert not falling["enough"]
    assert falling["why"].startswith("the validation error fell by ")
    assert falling["epochs"] == 40
    assert training_length(epochs_of("end2end", [5.0] * 20), config, 500)["enough"]


def test_auto_counts_the_stages_of_the_scheme_it_kept() -> None:
    config = FitConfig(scheme="auto", batch_size=10)
    records = epochs_of("end2end/end2end", [5.0] * 8) + epochs_of("encoder", [4.0] * 10)
    assert training_length(records, config, 1000, "end2end")["updates"] == 800
    assert training_length(records, config, 1000, "probe")["updates"] == 1000
    assert kept_scheme({"end2end": 5.0, "probe": 4.0}) == "probe"


def test_a_run_keeps_what_its_answer_needs(tmp_path: Path) -> None:
    list(fit_run(columns(), quick(scheme="auto"), tmp_path))
    run = RunFolder(tmp_path)
    test = columns().rows("test")
    assert run.scores["kept"] in run.scores["auto"]
    assert run.scores["training"]["enough"] is False
    assert run.scores["baselines"]["boosting"]["mae"] > 0
    told = answer(run.scores, run.config, str(tmp_path))
    assert f"(MAE, {len(test)} test rows); guessing the median: " in told.headline
    assert told.details[-1].startswith("Training was short: ")
    assert mae(run.predictions.predicted, run.truth) == pytest.approx(run.scores["test"]["mae"])


def test_scores_have_words() -> None:
    scores = ("mae", "many_n", "few_mae", "medium_gmean", "r2_test_mean", "kendall")
    assert [score_words(name) for name in scores] == [
        "mean absolute error (MAE)",
        "rows, many-shot",
        "mean absolute error (MAE), few-shot",
        "geometric mean error, medium-shot",
        "R² against the mean of these rows",
        "order of the features (Kendall)",
    ]
