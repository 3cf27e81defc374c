"""Scores of intervals against their definitions written slowly, and scipy."""

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from rnc.intervals import promised_coverage
from rnc.metrics.bootstrap import mean_interval
from rnc.metrics.intervals import (
    codes_in,
    coverage,
    coverage_interval,
    covers,
    distance_outside,
    interval_groups,
    interval_score,
    interval_scores,
    interval_widths,
    mean_width,
    median_width,
)

Array = NDArray[np.float64]
STEPS = 2400  # of a circle of 24 hours, for what is counted slowly


def intervals(seed: int = 0, rows: int = 40) -> tuple[Array, Array, Array]:
    random = np.random.default_rng(seed)
    lower = random.normal(size=(rows, 2))
    return lower, lower + random.exponential(size=(rows, 2)), random.normal(size=(rows, 2))


def arcs(rows: int = 60) -> tuple[Array, Array, Array]:
    """Ends and targets in hours, all on whole steps; some arcs go across midnight."""
    random = np.random.default_rng(1)
    return tuple(random.integers(0, STEPS, (rows, 1)) * 24 / STEPS for _ in range(3))


def steps_of(lower: float, upper: float) -> Array:
    """The places of an arc, walked step by step from its lower end to its upper one."""
    start, stop = round(lower * STEPS / 24), round(upper * STEPS / 24)
    stop = stop if stop >= start else stop + STEPS
    return np.arange(start, stop + 1) % STEPS


def test_scores_of_intervals_are_their_definitions() -> None:
    lower, upper, truth = intervals()
    inside, widths, scores = [], [], []
    for low, high, y in zip(lower.ravel(), upper.ravel(), truth.ravel(), strict=True):
        inside.append(low <= y <= high)
        widths.append(high - low)
        penalty = max(low - y, y - high, 0)
        scores.append(high - low + 2 / 0.2 * penalty)
    found = interval_scores(lower, upper, truth, 0.8)
    assert 0 < np.mean(inside) < 1
    assert found == pytest.approx(
        {
            "coverage": np.mean(inside),
            "mean_width": np.mean(widths),
            "median_width": np.median(widths),
            "interval_score": np.mean(scores),
        }
    )


def test_the_interval_score_is_that_of_both_pinball_losses() -> None:
    lower, upper, truth = intervals()
    low, high = (np.where(q >= truth, 1.0, 0.0) for q in (lower, upper))
    losses = (low - 0.1) * (lower - truth) + (high - 0.9) * (upper - truth)
    wanted = (losses * 2 / 0.2).mean()
    assert interval_score(lower, upper, truth, 0.8) == pytest.approx(wanted)


def test_arcs_hold_what_a_walk_along_them_meets() -> None:
    lower, upper, truth = arcs()
    held = covers(lower, upper, truth, period=24.0)[:, 0]
    widths = interval_widths(lower, upper, period=24.0)[:, 0]
    outside = distance_outside(lower, upper, truth, period=24.0)[:, 0]
    for i in range(len(lower)):
        met, place = steps_of(lower[i, 0], upper[i, 0]), round(truth[i, 0] * STEPS / 24)
        assert held[i] == (place in met)
        assert widths[i] == pytest.approx((len(met) - 1) * 24 / STEPS)
        gaps = np.abs(met - place)
        assert outside[i] == pytest.approx(np.minimum(gaps, STEPS - gaps).min() * 24 / STEPS)
    assert held.any()
    assert not held.all()
    assert (upper < lower).any()


def test_an_arc_as_long_as_the_circle_holds_everything() -> None:
    lower, upper, truth = np.zeros(3), np.full(3, 24.0), np.array([0.0, 13.0, 24.0])
    assert coverage(lower, upper, truth, period=24.0) == 1
    assert mean_width(lower, upper, period=24.0) == 24
    # Ends and targets count round the circle: -1 is 23 o'clock, 25 is one.
    assert covers(np.array([-1.0]), np.array([1.0]), np.array([24.5]), period=24.0).all()
    assert (
        interval_score(np.array([23.0]), np.array([1.0]), np.array([3.0]), 0.5, period=24.0) == 10
    )


def test_weights_count_as_repeated_rows() -> None:
    lower, upper, truth = intervals()
    times = np.random.default_rng(2).integers(0, 4, len(lower))
    repeated = [np.repeat(part, times, axis=0) for part in (lower, upper, truth)]
    for scale in (1.0, 1e-300, 1e300):
        found = interval_scores(lower, upper, truth, 0.8, weights=times * scale)
        assert found == pytest.approx(interval_scores(*repeated, 0.8))


def test_a_weighted_median_lies_between_two_widths_where_half_of_the_weight_ends() -> None:
    upper = np.array([4.0, 1.0, 2.0, 8.0])
    assert median_width(0 * upper, upper, weights=np.ones(4)) == np.median(upper) == 3
    assert median_width(0 * upper, upper, weights=np.array([3, 1, 1, 1])) == 4


@pytest.mark.parametrize(("inside", "n"), [(0, 7), (7, 7), (18, 20), (900, 1000)])
def test_the_interval_of_a_coverage_is_that_of_scipy(inside: int, n: int) -> None:
    exact = stats.binomtest(inside, n).proportion_ci(0.9, method="exact")
    found = coverage_interval(np.arange(n) < inside, level=0.9)
    assert found == pytest.approx((exact.low, exact.high), abs=1e-9)


def test_groups_have_their_own_coverage_and_width() -> None:
    lower, upper, truth = (part[:, 0] for part in intervals(rows=90))
    codes = codes_in(truth, [-0.5, 0.5, 9.0])
    assert codes.tolist() == [-1 if y < -0.5 else int(y >= 0.5) for y in truth]
    covered = covers(lower, upper, truth)[:, 0]
    widths = interval_widths(lower, upper)[:, 0]
    groups = interval_groups(covered, widths, codes, 3)
    for code in (0, 1):
        here = codes == code
        assert groups[code].n == here.sum()
        assert groups[code].coverage == covered[here].mean()
        assert groups[code].width == widths[here].mean()
        assert groups[code].width_ends == mean_interval(widths[here])
        assert groups[code].coverage_ends == coverage_interval(covered[here])
    assert (groups[2].n, groups[2].coverage_ends) == (0, (0.0, 1.0))
    assert np.isnan(groups[2].coverage)


def test_promised_coverage_is_what_random_ranks_have() -> None:
    random, covered = np.random.default_rng(0), []
    for _ in range(4000):
        scores = random.permutation(70)
        covered.append((scores[50:] <= np.sort(scores[:50])[45]).mean())  # 46 of 51: 0.9
    ends = np.quantile(covered, [0.05, 0.95], method="inverted_cdf")
    assert promised_coverage(0.9, 50, 20, level=0.9) == pytest.approx(tuple(ends))
    assert promised_coverage(0.9, 10**5, 10**5) == pytest.approx((0.9, 0.9), abs=4e-3)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: coverage([0.0], np.ones(2), np.ones(2)), r"same shape .* \(1, 1\), \(2, 1\)"),
        (lambda: coverage([2.0, 3], [1.0, 4], [1.0, 1]), "above upper.* row 0: 2 and 1"),
        (lambda: coverage([0.0], [np.nan], [1.0]), "upper must be finite"),
        (lambda: coverage([0.0], [1.0], [1.0], period=-1.0), "period"),
        (lambda: coverage([0.0], [1.0], [1.0], weights=np.zeros(1)), "not all 0"),
        (lambda: mean_width([0.0], [1.0], weights=np.array([-1.0])), "not negative.* from -1"),
        (lambda: mean_width([0.0], [1.0], weights=np.ones(3)), r"1 numbers.* got \(3, 1\)"),
        (lambda: interval_score([0.0], [1.0], [1.0], 1.0), r"below 1, as 0\.9; got 1\.0"),
        (lambda: coverage_interval(np.zeros(0)), "one or more"),
        (lambda: interval_groups(np.ones(2, bool), np.ones(3), np.ones(2), 1), "one shape"),
        (lambda: promised_coverage(0.99, 50, 10), "99 or more calibration rows.* got 50, 10"),
    ],
)
def test_what_cannot_be_is_refused(call: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
