"""Conformal intervals: their margins, coverage, refusals, and the neighbours in feature space."""

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from rnc.intervals import Conformal, Neighbours, conformal_margin, least_rows, quantile_margin

Array = NDArray[np.float64]


def rows_with_noise(seed: int, rows: int) -> tuple[Array, Array, Array]:
    """Predictions, targets, and the deviation of their noise, which grows from left to right."""
    random = np.random.default_rng(seed)
    predictions = random.uniform(0, 10, (rows, 1))
    noise = 0.2 + predictions[:, 0] / 5
    return predictions, predictions + noise[:, None] * random.normal(size=(rows, 1)), noise


@pytest.mark.parametrize("confidence", [0.5, 0.8, 0.9, 0.95, 0.99])
@pytest.mark.parametrize("rows", [1, 9, 19, 20, 99, 100, 250])
def test_a_margin_is_the_smallest_that_covers(confidence: float, rows: int) -> None:
    scores = np.random.default_rng(rows).permutation(np.arange(1.0, rows + 1))
    margin = conformal_margin(scores, confidence)
    if rows < least_rows(confidence):
        assert margin == math.inf
        return
    # A new score takes any of m + 1 places alike: covered are those up to the margin.
    assert margin / (rows + 1) >= confidence - 1e-12
    assert (margin - 1) / (rows + 1) < confidence - 1e-12


def test_coverage_is_within_what_chance_allows() -> None:
    for options in ({}, {"bins": 5}, {"normalised": True}):
        covered = []
        for seed in range(60):
            known, truth, noise = rows_with_noise(seed, 200)
            new, future, new_noise = rows_with_noise(1000 + seed, 100)
            hard = options.get("normalised", False)
            conformal = Conformal(
                known, truth, difficulty=noise if hard else None, bins=options.get("bins", 1)
            )
            found = conformal.intervals(new, 0.9, difficulty=new_noise if hard else None)
            covered.append(((found.lower <= future) & (future <= found.upper)).sum())
        low, high = stats.betabinom(100 * 60, 0.9 * 201 * 60, 0.1 * 201 * 60).ppf([1e-4, 1 - 1e-4])
        assert low <= sum(covered) <= high + 60 * 100 * 5 / 201  # bins cover a little more


def test_difficulty_makes_easy_rows_narrow_and_hard_ones_wide() -> None:
    known, truth, noise = rows_with_noise(0, 2000)
    plain = Conformal(known, truth).intervals(np.array([[0.0], [10.0]]), 0.9)
    hard = Conformal(known, truth, difficulty=noise)
    found = hard.intervals(np.array([[0.0], [10.0]]), 0.9, difficulty=np.array([0.2, 2.2]))
    widths = (found.upper - found.lower)[:, 0]
    assert widths[1] / widths[0] == pytest.approx(11)
    assert widths[0] < (plain.upper - plain.lower)[0, 0] < widths[1]
    exact = 2 * stats.norm.ppf(0.95) * np.array([0.2, 2.2])
    np.testing.assert_allclose(widths, exact, rtol=0.1)


def test_joint_intervals_hold_for_all_targets_at_once() -> None:
    random = np.random.default_rng(0)
    known, new = random.normal(size=(4000, 3)), random.normal(size=(4000, 3))
    scale = np.array([1.0, 10.0, 100.0])
    for joint, expected in ((False, 0.9**3), (True, 0.9)):
        conformal = Conformal(0 * known, known * scale, joint=2 * scale if joint else None)
        found = conformal.intervals(0 * new, 0.9)
        inside = ((found.lower <= new * scale) & (new * scale <= found.upper)).all(axis=1)
        assert inside.mean() == pytest.approx(expected, abs=0.03)


def test_arcs_go_across_the_end_of_the_circle() -> None:
    known = np.full((19, 1), 23.5)
    truth = (known + np.linspace(-1, 1, 19)[:, None]) % 24
    found = Conformal(known, truth, period=24.0).intervals(np.array([[23.5], [12.0]]), 0.9)
    np.testing.assert_allclose(found.lower[:, 0], [22.5, 11.0])
    np.testing.assert_allclose(found.upper[:, 0], [0.5, 13.0])
    wild = Conformal(known, np.linspace(0, 24, 19)[:, None], period=24.0)
    found = wild.intervals(np.array([[3.0]]), 0.94)
    assert (found.lower.item(), found.upper.item()) == (0.0, 24.0) or found.upper < found.lower


def test_quantiles_are_moved_by_what_calibration_lacks() -> None:
    truth = np.arange(1.0, 20.0)[:, None]
    margin = quantile_margin(0 * truth, 0 * truth + 10, truth, 0.9)
    np.testing.assert_allclose(margin, [8.0])  # 18 of 20 places: up to 18
    assert quantile_margin(0 * truth - 50, 0 * truth + 50, truth, 0.9)[0] < 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"confidence": 1.0}, r"confidence must be above 0 and below 1, as 0\.9; got 1\.0"),
        ({"confidence": 0.99}, "needs at least 99 calibration rows; there are 60"),
        ({"bins": 4}, "bins must be from 1 to 3, .* 20 of the 60 calibration rows; got 4"),
        ({"bins": 3, "confidence": 0.97}, "needs at least 33 calibration rows in each of 3 bins"),
        ({"difficulty": np.zeros(60)}, "difficulty must be 60 positive finite numbers"),
        ({"difficulty": np.ones(60)}, "or for neither; got it only for calibration rows"),
        ({"joint": np.ones(1), "bins": 2}, "joint needs positive units and bins=1"),
        ({"targets": np.full((60, 1), np.nan)}, "needs finite targets"),
        ({"targets": np.zeros((59, 1))}, r"one shape, \(m, t\); got \(60, 1\) and \(59, 1\)"),
    ],
)
def test_what_cannot_be_is_refused(change: dict[str, object], message: str) -> None:
    predictions, targets, _ = rows_with_noise(0, 60)
    confidence = change.pop("confidence", 0.9)
    with pytest.raises(ValueError, match=message):
        Conformal(**{"predictions": predictions, "targets": targets, **change}).intervals(
            np.zeros((2, 1)), confidence
        )


def test_neighbours_are_the_nearest_and_never_oneself() -> None:
    random = np.random.default_rng(0)
    features, targets = random.normal(size=(80, 4)), random.normal(size=(80, 2))
    known = Neighbours(features, targets, k=5)
    new = random.normal(size=(7, 4))
    gaps = np.sqrt(((new[:, None] - features) ** 2).sum(axis=2))
    distances, rows = known.nearest(new)
    np.testing.assert_allclose(distances, np.sort(gaps, axis=1)[:, :5])
    assert (rows == np.argsort(gaps, axis=1)[:, :5]).all()
    own = np.sqrt(((features[:, None] - features) ** 2).sum(axis=2))
    np.fill_diagonal(own, np.inf)
    np.testing.assert_allclose(known.reach.numpy(), np.sort(own, axis=1)[:, :5].mean(axis=1))


def test_far_or_disagreeing_neighbours_are_difficult() -> None:
    places = np.concatenate([np.linspace(0, 1, 50), np.linspace(5, 10, 50)])
    targets = np.concatenate([np.zeros(50), np.tile([0.0, 10.0], 25)])[:, None]
    known = Neighbours(places[:, None], targets, k=6)
    easy, hard, nowhere = known.difficulty(np.array([[0.5], [7.5], [100.0]]))
    assert 0 < easy < hard < nowhere
    assert known.is_out_of_range(np.array([[0.5], [7.5], [100.0]])).tolist() == [False, False, True]
    assert len(known.difficulty(np.zeros((0, 1)))) == 0


def test_samples_that_are_all_alike_have_a_finite_difficulty() -> None:
    known = Neighbours(np.ones((4, 3)), np.ones((4, 1)))
    assert np.isfinite(known.difficulty(np.ones((2, 3)))).all()
    assert (known.difficulty(np.ones((2, 3))) > 0).all()
