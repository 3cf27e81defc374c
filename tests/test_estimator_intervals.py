"""Intervals of the estimator: shapes, coverage, calibration rows and refusals."""

import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

import rnc
from rnc import RnCRegressor
from rnc.data.splits import CALIBRATION
from rnc.data.table import table_from_arrays
from rnc.intervals import quantile_margin


def columns(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    x = random.normal(size=(n, 3))
    return x, 5 + 2 * x[:, 0] + 0.5 * random.normal(size=n)


@pytest.fixture(scope="module")
def fitted() -> RnCRegressor:
    return RnCRegressor(epochs=1, calibration_share=0.5).fit(*columns(400))


def test_intervals_have_the_shape_of_predictions_and_their_coverage(fitted: RnCRegressor) -> None:
    x, y = columns(500, seed=1)
    lower, upper = fitted.predict_interval(x, confidence=0.8)
    assert lower.shape == upper.shape == y.shape == fitted.predict(x).shape
    # 0.8 of 500, with the chance of 180 calibration rows and of the rows themselves.
    assert ((lower <= y) & (y <= upper)).mean() == pytest.approx(0.8, abs=0.1)
    wider = fitted.predict_interval(x, confidence=0.95)
    assert (wider.lower <= lower).all()
    assert (upper <= wider.upper).all()
    assert fitted.model_.calibration is not None
    assert not fitted.model_.calibration.is_reused


def test_a_saved_or_pickled_model_has_the_same_intervals(
    fitted: RnCRegressor, tmp_path: Path
) -> None:
    x = columns(5, seed=2)[0]
    fitted.model_.save(tmp_path)
    again = rnc.load(tmp_path)
    for kind in ("plain", "normalised", "bins"):
        expected = fitted.predict_interval(x, kind=kind)
        np.testing.assert_array_equal(
            np.squeeze(again.predict_interval(x, kind=kind), axis=2), expected
        )
        copied = pickle.loads(pickle.dumps(fitted))
        np.testing.assert_array_equal(copied.predict_interval(x, kind=kind), expected)


def test_two_targets_have_intervals_each_and_jointly() -> None:
    x, y = columns(120)
    model = RnCRegressor(epochs=1, validation_fraction=0.4).fit(x, np.stack([y, -3 * y], axis=1))
    each, joint = (model.predict_interval(x, joint=joint) for joint in (False, True))
    assert each.lower.shape == joint.upper.shape == (120, 2)
    assert ((joint.upper - joint.lower) >= (each.upper - each.lower) - 1e-9).all()
    assert model.model_.calibration.is_reused


def test_calibration_rows_neither_train_nor_validate() -> None:
    x, y = columns(30)
    table = table_from_arrays(x, y, fractions=(0.9, 0.1, 0.0), calibration_share=0.4)
    own = RnCRegressor(epochs=1, calibration_share=0.4, random_state=0).fit(x, y)
    kept = table.y[table.rows(CALIBRATION)]
    np.testing.assert_array_equal(own.model_.calibration.targets, kept)
    changed = y.copy()
    changed[table.rows(CALIBRATION)] += 1e-3  # too little to reorder rows for the split
    other = RnCRegressor(epochs=1, calibration_share=0.4, random_state=0).fit(x, changed)
    np.testing.assert_array_equal(own.predict(x), other.predict(x))


def test_too_few_rows_are_told_when_intervals_are_asked_for() -> None:
    x, y = columns(8)
    model = RnCRegressor(epochs=1).fit(x, y)
    with pytest.raises(ValueError, match="kept no rows to calibrate them on"):
        model.predict_interval(x)
    few = RnCRegressor(epochs=1, calibration_share=0.25, validation_fraction=0).fit(x, y)
    assert len(few.model_.calibration) == 2
    with pytest.raises(ValueError, match="needs at least 9 calibration rows; there are 2"):
        few.predict_interval(x)
    with pytest.raises(ValueError, match=r"from 0 to below 1, as 0\.2; got 20"):
        RnCRegressor(epochs=1, calibration_share=20).fit(x, y)


@pytest.mark.parametrize("head", ["quantile", "dex"])
def test_a_head_with_a_distribution_has_its_quantiles_moved(head: str) -> None:
    x, y = columns(140)
    bins = {"step": 2.0} if head == "dex" else {}
    model = RnCRegressor(epochs=1, head=head, calibration_share=0.5, **bins).fit(x, y)
    lower, upper = model.predict_interval(x, kind="quantiles")
    rows = model.model_.calibration
    assert rows.known_kinds == ("plain", "normalised", "bins", "quantiles")

    def ends(outputs: np.ndarray) -> np.ndarray:
        return model.model_.head.quantiles(torch.from_numpy(outputs), (0.05, 0.95)).numpy()

    known = ends(rows.outputs)
    margin = quantile_margin(known[..., 0], known[..., 1], rows.targets, 0.9)
    own = model.model_.steady().answer_prepared(model.model_.prepare(x).x)
    moved = ends(own.outputs)[:, 0]
    np.testing.assert_allclose(lower, moved[:, 0] - margin)
    np.testing.assert_allclose(upper, moved[:, 1] + margin)
    assert ((lower <= y) & (y <= upper)).mean() == pytest.approx(0.9, abs=0.09)
