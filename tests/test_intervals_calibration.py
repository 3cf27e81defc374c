"""Calibration rows: kinds of intervals, the choice among them, the file, and refusals."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rnc.files import CALIBRATION_FILE, DamagedFileError
from rnc.intervals import CalibrationRows, Conformal, Spread, quantile_margin
from rnc.intervals.choice import with_kinds

NOISE = {"even": lambda p: 1.0, "by prediction": lambda p: 0.1 + p**2, "hidden": lambda p: 1.0}


def rows_of(m: int, kind: str = "even", t: int = 1, seed: int = 0, **fields: object):
    """Calibration rows whose noise is even, grows with the prediction, or with a difficulty."""
    random = np.random.default_rng(seed)
    predictions = random.uniform(0, 3, (m, t))
    difficulty = random.uniform(0.1, 3, m) if kind == "hidden" else np.ones(m)
    noise = NOISE[kind](predictions) * difficulty[:, None] * random.normal(size=(m, t))
    rows = CalibrationRows(predictions, predictions + noise, np.ones(t), is_reused=False)
    return replace(rows, difficulty=difficulty, **fields)


@pytest.mark.parametrize(
    ("kind", "chosen"), [("even", "plain"), ("by prediction", "bins"), ("hidden", "normalised")]
)
def test_the_kind_is_chosen_that_is_narrow_for_these_errors(kind: str, chosen: str) -> None:
    found = with_kinds(rows_of(400, kind, t=2))
    assert found.kinds == (chosen, chosen)
    assert found.joint_kind == (chosen if chosen != "bins" else "plain")
    assert with_kinds(rows_of(400, kind, t=2)).kinds == found.kinds  # nothing is drawn anew


def test_with_few_rows_nothing_is_chosen() -> None:
    assert with_kinds(rows_of(8, "hidden")).kinds == ("plain",)
    assert with_kinds(rows_of(40, "by prediction")).kinds == ("plain",)


def test_perfect_predictions_have_intervals_of_width_0() -> None:
    rows = rows_of(60)
    exact = with_kinds(replace(rows, targets=rows.predictions))
    found = exact.intervals(np.array([[7.0]]), 0.9)
    assert exact.kinds == ("plain",)
    assert (found.lower.item(), found.upper.item()) == (7.0, 7.0)


@pytest.mark.parametrize("joint", [False, True])
def test_intervals_are_those_of_the_definition(joint: bool) -> None:
    rows, new = rows_of(100, "hidden", t=2), np.array([[1.0, 2.0], [3.0, 4.0]])
    hard = np.array([0.5, 2.0])
    found = rows.intervals(new, 0.9, Spread(hard), kind="normalised", joint=joint)
    units = rows.units if joint else None
    definition = Conformal(rows.predictions, rows.targets, rows.difficulty, joint=units)
    np.testing.assert_allclose(found, definition.intervals(new, 0.9, hard))
    kinds = replace(rows, kinds=("bins", "plain"), joint_kind="plain")
    mixed = kinds.intervals(new, 0.9, joint=joint)
    if not joint:
        by_bins = Conformal(rows.predictions, rows.targets, bins=4).intervals(new, 0.9)
        np.testing.assert_allclose(mixed.lower[:, 0], by_bins.lower[:, 0])
    plain = Conformal(rows.predictions, rows.targets, joint=units).intervals(new, 0.9)
    np.testing.assert_allclose(mixed.upper[:, 1], plain.upper[:, 1])


def test_quantiles_are_moved_by_their_margin_and_never_cross() -> None:
    rows = rows_of(100, outputs=np.zeros((100, 2), np.float32))
    known = Spread(lower=rows.predictions - 9, upper=rows.predictions + 9)
    margin = quantile_margin(known.lower, known.upper, rows.targets, 0.9)
    assert margin < 0
    new = Spread(lower=np.array([[0.0], [4.0]]), upper=np.array([[20.0], [4.5]]))
    found = rows.intervals(np.zeros((2, 1)), 0.9, new, known, kind="quantiles")
    np.testing.assert_allclose(found.lower[:, 0], [-margin[0], 4.25])
    np.testing.assert_allclose(found.upper[:, 0], [20 + margin[0], 4.25])
    assert with_kinds(rows, known).kinds == ("quantiles",)  # as wide as plain ones: they stay
    wild = 20 * np.random.default_rng(1).uniform(size=(100, 1))
    known = Spread(lower=rows.predictions - wild, upper=rows.predictions + wild)
    assert with_kinds(rows, known).kinds == ("plain",)


def test_a_sample_without_finite_features_has_no_interval() -> None:
    new = Spread(np.array([np.nan, 1.0]))
    found = rows_of(100).intervals(np.ones((2, 1)), 0.9, new, kind="normalised")
    assert np.isnan(found.lower[0, 0])
    assert np.isfinite(found.lower[1, 0])


def test_bins_give_way_to_plain_where_they_are_too_few_for_a_confidence() -> None:
    rows = replace(rows_of(100, "by prediction"), kinds=("bins",))
    assert rows.kinds_for("auto", 0.9) == ("bins",)
    assert rows.kinds_for("auto", 0.97) == ("plain",)


@pytest.mark.parametrize(
    ("m", "kind", "confidence", "message"),
    [
        (30, "auto", 0.99, "needs at least 99 calibration rows; there are 30. Keep more rows"),
        (30, "bins", 0.9, "bins need at least 50 calibration rows; there are 30"),
        (30, "quantiles", 0.9, "need a head that predicts a distribution"),
        (30, "normalized", 0.9, "auto or one of plain, normalised, bins, quantiles; got 'normal"),
        (30, "auto", 90, r"above 0 and below 1, as 0\.9; got 90\. For 90%, give 0\.9\."),
        (30, "auto", 0.0, r"below 1, as 0\.9; got 0\.0\.$"),
    ],
)
def test_what_cannot_be_is_refused(m: int, kind: str, confidence: float, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        rows_of(m).intervals(np.zeros((1, 1)), confidence, kind=kind)


def test_joint_intervals_have_no_bins() -> None:
    with pytest.raises(ValueError, match="Joint intervals are plain or normalised; got 'bins'"):
        rows_of(100).intervals(np.zeros((1, 1)), 0.9, kind="bins", joint=True)


def test_the_file_gives_back_what_was_written(tmp_path: Path) -> None:
    rows = with_kinds(rows_of(60, "hidden", t=2, period=24.0))
    rows.write(tmp_path)
    again = CalibrationRows.read(tmp_path, targets=2)
    for name, value in vars(rows).items():
        np.testing.assert_array_equal(getattr(again, name), value)
    with pytest.raises(ValueError, match=r"predictions and targets \(m, 1\); got \(60, 2\)"):
        CalibrationRows.read(tmp_path, targets=1)
    path = tmp_path / CALIBRATION_FILE
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(DamagedFileError, match="changed since it was written"):
        CalibrationRows.read(tmp_path, targets=2)
