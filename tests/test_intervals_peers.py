"""Intervals on the same scores as crepes and MAPIE have, to 1e-9."""

import numpy as np
import pytest
from numpy.typing import NDArray

from rnc.intervals import Conformal, conformal_margin

Array = NDArray[np.float64]


def known_and_new(rows: int = 200) -> tuple[Array, Array, Array, Array, Array]:
    """Calibration predictions, targets and difficulty; new predictions and difficulty."""
    random = np.random.default_rng(3)
    known, new = random.uniform(0, 10, (rows, 1)), random.uniform(0, 10, (50, 1))
    hard, new_hard = 0.2 + random.uniform(size=rows), 0.2 + random.uniform(size=50)
    return known, known + hard[:, None] * random.normal(size=(rows, 1)), hard, new, new_hard


def bins_of(values: Array, known: Array, bins: int) -> NDArray[np.int64]:
    """Bins that hold equal numbers of the calibration predictions, as crepes takes them."""
    edges = np.quantile(known, np.arange(1, bins) / bins)
    return np.searchsorted(edges, values, side="right")


@pytest.mark.parametrize("confidence", [0.8, 0.9, 0.95])
@pytest.mark.parametrize("bins", [1, 4])
@pytest.mark.parametrize("normalised", [False, True])
def test_intervals_are_those_of_crepes(confidence: float, bins: int, normalised: bool) -> None:
    crepes = pytest.importorskip("crepes")
    known, truth, hard, new, new_hard = known_and_new()
    ours = Conformal(known, truth, difficulty=hard if normalised else None, bins=bins).intervals(
        new, confidence, difficulty=new_hard if normalised else None
    )
    peer = crepes.ConformalRegressor().fit(
        (truth - known)[:, 0],
        sigmas=hard if normalised else None,
        bins=bins_of(known[:, 0], known[:, 0], bins) if bins > 1 else None,
    )
    theirs = peer.predict_int(
        new[:, 0],
        sigmas=new_hard if normalised else None,
        bins=bins_of(new[:, 0], known[:, 0], bins) if bins > 1 else None,
        confidence=confidence,
    )
    np.testing.assert_allclose(np.hstack([ours.lower, ours.upper]), theirs, rtol=0, atol=1e-9)


class Line:
    """A fitted model for MAPIE, which predicts its input."""

    n_features_in_ = 1

    def fit(self, x: Array, y: Array) -> "Line":
        return self

    def predict(self, x: Array) -> Array:
        return x[:, 0]

    def __sklearn_is_fitted__(self) -> bool:
        return True


@pytest.mark.parametrize("confidence", [0.8, 0.9, 0.95])
def test_intervals_are_those_of_mapie(confidence: float) -> None:
    mapie = pytest.importorskip("mapie.regression")
    known, truth, _, new, _ = known_and_new()
    ours = Conformal(known, truth).intervals(new, confidence)
    peer = mapie.SplitConformalRegressor(Line(), confidence_level=confidence, prefit=True)
    _, theirs = peer.conformalize(known, truth[:, 0]).predict_interval(new)
    np.testing.assert_allclose(
        np.hstack([ours.lower, ours.upper]), theirs[:, :, 0], rtol=0, atol=1e-9
    )


@pytest.mark.parametrize("rows", [9, 19, 39, 99, 199, 999])
def test_a_rank_that_is_a_whole_number_is_not_rounded_away(rows: int) -> None:
    # (m + 1) c is whole in all of these, and not always so in floats.
    scores = np.arange(1.0, rows + 1)
    for percent in (80, 90, 95):
        if (rows + 1) * percent % 100 == 0:
            assert conformal_margin(scores, percent / 100) == (rows + 1) * percent // 100
