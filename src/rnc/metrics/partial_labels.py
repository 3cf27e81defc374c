"""Scores where labels are known in part: each lies between a lower and an upper end.

Ends are (n,) or (n, t). Equal ends are an exact label, an infinite end is open, and a missing label
has both ends open or NaN. A survival time is exact if its event was seen, and at least the time of
censoring if not.
"""

import math

import numpy as np
from numpy.typing import NDArray

from rnc.metrics.arrays import Columns, Values, as_columns, row_weights

Counts = NDArray[np.int64] | NDArray[np.float64]


def label_ends(lower: Values, upper: Values) -> tuple[Columns, Columns]:
    """Ends as checked float64 columns, missing ones infinite: (n,) or (n, t) -> (n, t) each."""
    ends = []
    for values, name, outside in ((lower, "lower", -math.inf), (upper, "upper", math.inf)):
        columns = np.asarray(values, dtype=np.float64)
        columns = columns[:, None] if columns.ndim == 1 else columns
        ends.append(np.where(np.isnan(columns), outside, columns))
        if columns.ndim != 2 or 0 in columns.shape or columns.shape != ends[0].shape:
            raise ValueError(
                "lower and upper must have one shape, (n,) or (n, t), with at least one value; got "
                f"{columns.shape} for {name} and {ends[0].shape} for lower."
            )
    low, high = ends
    wrong = (low > high) | (low == math.inf) | (high == -math.inf)
    if wrong.any():
        row, column = np.argwhere(wrong)[0]
        raise ValueError(
            f"A label needs lower <= upper; got {low[row, column]:g} and {high[row, column]:g} in "
            f"row {row}. An open end is -inf below or inf above, a missing label NaN."
        )
    return low, high


def hit_share(
    prediction: Values, lower: Values, upper: Values, *, weights: Values | None = None
) -> float:
    """Share of the labels known in part whose interval, ends included, holds the prediction.

    Exact and missing labels are left out; nan if there are no others. Read it together with the
    errors: a prediction far above 90 is within "at least 90".

    >>> lower, upper = np.array([20.0, 20.0, 90.0, 34.0]), np.array([29.0, 29.0, math.inf, 34.0])
    >>> hit_share(np.array([25.0, 31.0, 95.0, 50.0]), lower, upper)
    0.6666666666666666
    """
    guess, low, high = _checked(prediction, lower, upper)
    is_part = (low < high) & (np.isfinite(low) | np.isfinite(high))
    mass = np.broadcast_to(_mass(weights, len(guess))[:, None], guess.shape)[is_part]
    hits = ((low <= guess) & (guess <= high))[is_part]
    return float((mass * hits).sum() / mass.sum()) if mass.any() else math.nan


def concordance_index(
    prediction: Values, lower: Values, upper: Values, *, weights: Values | None = None
) -> float:
    """Share of the pairs whose order is known that predictions put in that order, from 0 to 1.

    For survival times that is Harrell's C (Harrell et al. 1982, "Evaluating the yield of medical
    tests"), of predicted times: give minus a risk. Sample i is known to be before j if
    upper_i <= lower_j, unless both are exact and equal. So an event and a censoring at the same
    time are a pair in which the event comes first; two events at the same time are no pair. Equal
    predictions count one half; nan if no order is known. Pairs of all targets are pooled. A pair
    has the
    product of its samples' weights. It takes O(n log n) time, 3 seconds for a million samples.

    >>> times, seen = np.array([2.0, 4.0, 5.0, 7.0]), np.array([True, False, True, False])
    >>> concordance_index(np.array([1.0, 4.0, 3.0, 3.0]), times, np.where(seen, times, math.inf))
    0.875
    """
    guess, low, high = _checked(prediction, lower, upper)
    mass = _mass(weights, len(guess))
    parts = [_count_pairs(*columns, mass) for columns in zip(guess.T, low.T, high.T, strict=True)]
    right, pairs = map(sum, zip(*parts, strict=True))
    return float(right / pairs) if pairs > 0 else math.nan


def _checked(prediction: Values, lower: Values, upper: Values) -> tuple[Columns, Columns, Columns]:
    guess, (low, high) = as_columns(prediction, "prediction"), label_ends(lower, upper)
    if guess.shape != low.shape:
        raise ValueError(
            "prediction, lower and upper must have the same shape (n, t); got "
            f"{guess.shape} and {low.shape}."
        )
    return guess, low, high


def _mass(weights: Values | None, n: int) -> Counts:
    """Weights of samples. Without weights they are integers, so that counts of pairs are exact."""
    return np.ones(n, np.int64) if weights is None else row_weights(weights, n)[:, 0]


def _count_pairs(
    guess: Columns, lower: Columns, upper: Columns, mass: Counts
) -> tuple[float, float]:
    """How many pairs are in the right order, ties as one half, and all pairs: from (n,) each."""
    exact = lower == upper
    order = np.lexsort((exact, upper))  # among equal upper ends, exact labels come last
    before = np.searchsorted(upper[order], lower, side="right")  # how many are before each
    _, place, counts = np.unique(lower[exact], return_inverse=True, return_counts=True)
    before[exact] -= counts[place]
    ranks = np.unique(guess, return_inverse=True)[1]
    smaller, equal = _sums_before(ranks[order], mass[order], before, ranks)
    every = np.concatenate([[0], np.cumsum(mass[order])])[before]
    return float((mass * (2 * smaller + equal)).sum()) / 2, float((mass * every).sum())


def _sums_before(
    ranks: NDArray[np.int64], mass: Counts, before: NDArray[np.int64], asked: NDArray[np.int64]
) -> tuple[Counts, Counts]:
    """Among the first `before` ranks, the mass of those below `asked`, and of those equal to it.

    Ranks are partitioned by one binary digit after the other, the highest first, with zeros moved
    to the front (a wavelet matrix: Claude et al. 2015). Ranks that agree with an entry of `asked`
    in all digits so far stay together, from `start` to `stop`.
    """
    smaller = np.zeros_like(mass)
    start, stop = np.zeros_like(before), before
    for digit in reversed(range(int(ranks.max()).bit_length())):
        is_zero = (ranks >> digit & 1) == 0
        zeros = np.concatenate([[0], np.cumsum(is_zero)])
        sums = np.concatenate([[0], np.cumsum(mass * is_zero)])
        is_one = (asked >> digit & 1) == 1
        smaller += np.where(is_one, sums[stop] - sums[start], 0)
        start, stop = (
            np.where(is_one, zeros[-1] + place - zeros[place], zeros[place])
            for place in (start, stop)
        )
        order = np.concatenate([np.flatnonzero(is_zero), np.flatnonzero(~is_zero)])
        ranks, mass = ranks[order], mass[order]
    sums = np.concatenate([[0], np.cumsum(mass)])
    return smaller, sums[stop] - sums[start]
