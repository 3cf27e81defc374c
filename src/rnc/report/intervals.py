"""95 % intervals over test samples, for the cards and bars of a report.

They say how far a score hangs on which samples happened to be tested, and nothing about another
seed of the training.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rnc.analyses import intervals

Array = NDArray[np.float64]

RESAMPLES = 1000
_TAIL = 2.5  # percent outside, on each side
_AT_ONCE = 2_000_000  # numbers in memory


class Interval(NamedTuple):
    """From where to where."""

    low: float
    high: float

    def moved(self, by: float) -> "Interval":
        """The same width elsewhere."""
        return Interval(self.low + by, self.high + by)


def mean_interval(values: Array) -> Interval | None:
    """Interval of the mean of values (n,); None for less than two values.

    >>> mean_interval(np.array([2.0, 2.0, 2.0]))
    Interval(low=2.0, high=2.0)
    """
    found = intervals.mean_interval(values, resamples=RESAMPLES)
    return None if found.low is None or found.high is None else Interval(found.low, found.high)


def r2_interval(true: Array, predicted: Array, seed: int = 0) -> Interval | None:
    """Interval of the usual R2 of (n, t): the middle 95 % of resamples; None if not defined."""
    if len(true) < 2 or not np.ptp(true, axis=0).any():
        return None
    centred = true - true.mean(axis=0)  # nearer to zero: differences of squares stay exact
    parts = [np.square(predicted - true).sum(axis=1), np.square(centred).sum(axis=1)]
    means = _means(np.column_stack([*parts, centred]), seed)
    spread = means[:, 1] - np.square(means[:, 2:]).sum(axis=1)
    usable = spread > 0
    if not usable.any():
        return None
    values = 1 - means[usable, 0] / spread[usable]
    return Interval(*(float(end) for end in np.percentile(values, [_TAIL, 100 - _TAIL])))


def _means(columns: Array, seed: int) -> Array:
    """Means of the columns (n, k) in every resample: (1000, k)."""
    n, rng = len(columns), np.random.default_rng(seed)
    block = max(1, _AT_ONCE // columns.size)
    counts = [min(block, RESAMPLES - done) for done in range(0, RESAMPLES, block)]
    return np.concatenate([columns[rng.integers(n, size=(b, n))].mean(axis=1) for b in counts])
