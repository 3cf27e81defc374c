"""Scores of prediction intervals: how many targets they hold, and how wide they are for it.

Ends and targets are (n,) or (n, t), in the units of the targets, and an interval holds its ends.
With a period, intervals are arcs: one whose upper end is below the lower one crosses the end of the
period, and one as long as the period is the whole circle. Every one of the n * t intervals counts
the same, or by the weight of its row.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rnc.loss import pairwise
from rnc.metrics.arrays import Columns, Values, as_columns, row_weights
from rnc.metrics.arrays import weighted_mean as weighted_mean
from rnc.metrics.bootstrap import Interval, mean_interval


class IntervalGroup(NamedTuple):
    """The intervals of some samples: how many hold their target, and how wide they are."""

    n: int
    coverage: float
    """NaN if there are no samples; so is the width."""
    coverage_ends: Interval
    """95 % interval of the coverage; see `coverage_interval`."""
    width: float
    """The mean width."""
    width_ends: Interval | None
    """95 % interval of the mean width, by the bootstrap; None for fewer than two samples."""


def interval_scores(
    lower: Values,
    upper: Values,
    target: Values,
    confidence: float,
    *,
    period: float | None = None,
    weights: Values | None = None,
) -> dict[str, float]:
    """The standard scores by name: coverage, mean_width, median_width and interval_score.

    Args:
        lower: (n,) or (n, t).
        upper: the same shape.
        target: the same shape.
        confidence: the share of targets that the intervals are to hold.
        period: the length of the circle that targets are on.
        weights: (n,) of the rows, not negative.

    >>> lower, upper = np.array([0.0, 4.0]), np.array([2.0, 8.0])
    >>> interval_scores(lower, upper, np.array([1.0, 9.0]), 0.5)
    {'coverage': 0.5, 'mean_width': 3.0, 'median_width': 3.0, 'interval_score': 5.0}
    """
    return {
        "coverage": coverage(lower, upper, target, period=period, weights=weights),
        "mean_width": mean_width(lower, upper, period=period, weights=weights),
        "median_width": median_width(lower, upper, period=period, weights=weights),
        "interval_score": interval_score(
            lower, upper, target, confidence, period=period, weights=weights
        ),
    }


# ---------------------------------------------------------------------------------- coverage


def coverage(
    lower: Values,
    upper: Values,
    target: Values,
    *,
    period: float | None = None,
    weights: Values | None = None,
) -> float:
    """Share of the targets that are within their intervals.

    >>> coverage(np.array([22.0, 4.0]), np.array([2.0, 8.0]), np.array([1.0, 9.0]), period=24)
    0.5
    """
    return weighted_mean(covers(lower, upper, target, period=period), weights)


def covers(
    lower: Values, upper: Values, target: Values, *, period: float | None = None
) -> NDArray[np.bool_]:
    """Whether each target is within its interval: (n, t)."""
    low, high, truth = _ends_and_target(lower, upper, target, period)
    if period is None:
        return np.asarray((low <= truth) & (truth <= high))
    low, high, is_all = _on_circle(low, high, period)
    truth = truth % period
    above, below = low <= truth, truth <= high
    return np.asarray(is_all | np.where(low <= high, above & below, above | below))


def coverage_interval(covered: NDArray[Any], *, level: float = 0.95) -> Interval:
    """Interval of the coverage, from whether each of n independent samples is covered: (n,).

    It is the exact interval of Clopper and Pearson, so it is never too narrow, for any n.

    >>> low, high = coverage_interval(np.repeat([True, False], [18, 2]))
    >>> round(low, 3), round(high, 3)
    (0.683, 0.988)
    """
    from scipy import stats  # type: ignore[import-untyped]  # slow, and help texts need none

    if covered.ndim != 1 or len(covered) == 0 or not 0 < level < 1:
        raise ValueError(
            "coverage_interval needs samples (n,), one or more, and a level between 0 and 1; got "
            f"{covered.shape} and {level}."
        )
    n, inside, tail = len(covered), int(np.count_nonzero(covered)), (1 - level) / 2
    low = float(stats.beta.ppf(tail, inside, n - inside + 1)) if inside else 0.0
    high = float(stats.beta.ppf(1 - tail, inside + 1, n - inside)) if inside < n else 1.0
    return Interval(low, high)


# ------------------------------------------------------------------------------------- width


def interval_widths(lower: Values, upper: Values, *, period: float | None = None) -> Columns:
    """Width of each interval, or length of each arc: (n, t).

    >>> interval_widths(np.array([22.0, 0.0]), np.array([2.0, 24.0]), period=24).tolist()
    [[4.0], [24.0]]
    """
    low, high, _ = _ends_and_target(lower, upper, upper, period)
    if period is None:
        return high - low
    is_all = high - low >= period
    return np.where(is_all, period, (high - low) % period)


def mean_width(
    lower: Values, upper: Values, *, period: float | None = None, weights: Values | None = None
) -> float:
    """Mean width of the intervals."""
    return weighted_mean(interval_widths(lower, upper, period=period), weights)


def median_width(
    lower: Values, upper: Values, *, period: float | None = None, weights: Values | None = None
) -> float:
    """Median width of the intervals: half of the weight is on narrower ones.

    >>> median_width(np.zeros(3), np.array([1.0, 2.0, 9.0]), weights=np.array([0.1, 0.1, 5.0]))
    9.0
    """
    widths = interval_widths(lower, upper, period=period)
    if weights is None:
        return float(np.median(widths))
    mass = np.broadcast_to(row_weights(weights, len(widths)), widths.shape).ravel()
    order = np.argsort(widths, axis=None)
    reached = np.cumsum(mass[order]) / mass.sum()
    # If half of the weight ends between two widths, take their middle, as a median does.
    places = np.searchsorted(reached, [0.5 - 1e-12, 0.5 + 1e-12]).clip(max=len(reached) - 1)
    return float(widths.ravel()[order][places].mean())


def interval_score(
    lower: Values,
    upper: Values,
    target: Values,
    confidence: float,
    *,
    period: float | None = None,
    weights: Values | None = None,
) -> float:
    """Mean of the interval score (Winkler 1972; Gneiting and Raftery 2007): lower is better.

    It is the width, plus 2 / (1 - confidence) times how far a target is outside. Its expectation
    is least for the quantiles (1 - confidence) / 2 and (1 + confidence) / 2 of the target.

    >>> interval_score(np.array([0.0]), np.array([10.0]), np.array([11.0]), 0.75)
    18.0
    """
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must be above 0 and below 1, as 0.9; got {confidence!r}.")
    widths = interval_widths(lower, upper, period=period)
    outside = distance_outside(lower, upper, target, period=period)
    return weighted_mean(widths + outside * 2 / (1 - confidence), weights)


def distance_outside(
    lower: Values, upper: Values, target: Values, *, period: float | None = None
) -> Columns:
    """How far each target is from its interval, 0 within it: (n, t)."""
    low, high, truth = _ends_and_target(lower, upper, target, period)
    if period is None:
        return np.maximum(np.maximum(low - truth, truth - high), 0.0)
    gaps = [np.abs(truth - end) % period for end in (low, high)]
    nearest = np.minimum(*(np.minimum(gap, period - gap) for gap in gaps))
    return np.where(covers(low, high, truth, period=period), 0.0, nearest)


# ------------------------------------------------------------------------------------ groups


def interval_groups(
    covered: NDArray[np.bool_], widths: Columns, codes: NDArray[np.int64], count: int
) -> list[IntervalGroup]:
    """Coverage and width of each group of samples of one target.

    Args:
        covered: (n,), of `covers`.
        widths: (n,), of `interval_widths`.
        codes: (n,) the group of each sample, from 0; a sample below 0 is in none.
        count: how many groups there are.

    >>> group, empty = interval_groups(np.ones(3, bool), np.ones(3), np.zeros(3, int), 2)
    >>> group.coverage, group.width, group.width_ends, empty.n
    (1.0, 1.0, Interval(low=1.0, high=1.0), 0)
    """
    if not covered.shape == widths.shape == codes.shape or covered.ndim != 1:
        raise ValueError(
            "interval_groups needs covered, widths and codes of one shape, (n,); got "
            f"{covered.shape}, {widths.shape} and {codes.shape}."
        )
    return [_group(covered[codes == code], widths[codes == code]) for code in range(count)]


def codes_in(values: Values, edges: Sequence[float] | Columns) -> NDArray[np.int64]:
    """The bin of each value (n,) between edges (b + 1,): the last one holds its upper edge.

    A value outside of all bins has -1.

    >>> codes_in(np.array([0.0, 1.0, 2.0, 3.0]), [0, 1, 2]).tolist()
    [0, 1, 1, -1]
    """
    numbers, ends = as_columns(values, "values")[:, 0], np.asarray(edges, dtype=np.float64)
    codes = np.searchsorted(ends, numbers, side="right") - 1
    codes = np.where(numbers == ends[-1], len(ends) - 2, codes)
    return np.where((numbers < ends[0]) | (numbers > ends[-1]), -1, codes)


def _group(covered: NDArray[np.bool_], widths: Columns) -> IntervalGroup:
    if len(covered) == 0:
        return IntervalGroup(0, math.nan, Interval(0.0, 1.0), math.nan, None)
    return IntervalGroup(
        len(covered),
        float(covered.mean()),
        coverage_interval(covered),
        float(widths.mean()),
        mean_interval(widths),
    )


# ----------------------------------------------------------------------------------- private


def _ends_and_target(
    lower: Values, upper: Values, target: Values, period: float | None
) -> tuple[Columns, Columns, Columns]:
    low, high = as_columns(lower, "lower"), as_columns(upper, "upper")
    truth = as_columns(target, "target")
    if not low.shape == high.shape == truth.shape:
        raise ValueError(
            "lower, upper and target must have the same shape (n, t); got "
            f"{low.shape}, {high.shape} and {truth.shape}."
        )
    if period is not None:
        pairwise.circular(period)  # raises if the period is not valid
    elif (crossed := low > high).any():
        row = int(crossed.any(axis=1).argmax())
        raise ValueError(
            f"lower must not be above upper, but is in {int(crossed.sum())} intervals (the first "
            f"in row {row}: {low[row].max():g} and {high[row].min():g}). Arcs need their period."
        )
    return low, high, truth


def _on_circle(
    low: Columns, high: Columns, period: float
) -> tuple[Columns, Columns, NDArray[np.bool_]]:
    """Ends from 0 to the period, and which arcs are the whole circle."""
    return low % period, high % period, np.asarray(high - low >= period)
