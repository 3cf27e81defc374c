"""95 % intervals by the bootstrap: how much a score depends on which samples were tested.

They say nothing about another seed of the training. Samples count as independent: several samples
of one person are not, and make an interval too narrow.
"""

import math
from typing import NamedTuple

import numpy as np

from rnc.metrics import Columns

RESAMPLES = 1000
_CHUNK = 2**21  # draws in memory at a time


class Interval(NamedTuple):
    """The two ends of an interval."""

    low: float
    high: float


def mean_interval(
    values: Columns, *, level: float = 0.95, resamples: int = RESAMPLES, seed: int = 0
) -> Interval | None:
    """Interval of the mean of values (n,); None for fewer than two values.

    The tails are those of Student's t, not of the normal distribution: plain percentiles are too
    narrow for small n. Of 1,000 intervals at level 0.95, 88 % held the mean of normal errors with
    5 samples and 95 % with 10 or more; of exponential errors, 90 % with 20 and 94 % with 200.

    >>> mean_interval(np.array([2.0, 2.0, 2.0]))
    Interval(low=2.0, high=2.0)
    """
    from scipy import stats  # type: ignore[import-untyped]  # slow, and help texts need none

    if values.ndim != 1 or not 0 < level < 1 or resamples < 1:
        raise ValueError(
            "mean_interval needs values (n,), a level between 0 and 1 and resamples >= 1; got "
            f"{values.shape}, {level} and {resamples}."
        )
    n = len(values)
    if n < 2:
        return None
    widened = stats.t.ppf((1 + level) / 2, n - 1) * math.sqrt(n / (n - 1))
    tail = stats.norm.sf(widened)
    means = _resampled_means([values], resamples, seed)[0]
    return Interval(*np.quantile(means, [tail, 1 - tail]).tolist())


def r2_interval(prediction: Columns, target: Columns, *, seed: int = 0) -> Interval | None:
    """Interval of the usual R2 of predictions (n, t); None where R2 is not defined.

    It is the middle 95 % of 1,000 resamples.
    """
    if len(target) < 2 or not np.ptp(target, axis=0).any():
        return None
    centred = target - target.mean(axis=0)  # near zero, differences of squares stay exact
    sums = [np.square(prediction - target).sum(axis=1), np.square(centred).sum(axis=1)]
    errors, squares, *shifts = _resampled_means([*sums, *centred.T], RESAMPLES, seed)
    spread = squares - np.square(shifts).sum(axis=0)
    defined = spread > 0
    if not defined.any():
        return None
    values = 1 - errors[defined] / spread[defined]
    return Interval(*np.percentile(values, [2.5, 97.5]).tolist())


def _resampled_means(columns: list[Columns], resamples: int, seed: int) -> list[Columns]:
    """Means of columns (n,) over the same resamples: (resamples,) for each column."""
    n, rng = len(columns[0]), np.random.default_rng(seed)
    block = max(1, _CHUNK // n)
    means = [np.empty(resamples) for _ in columns]
    for start in range(0, resamples, block):
        stop = min(start + block, resamples)
        drawn = rng.integers(n, size=(stop - start, n))
        for column, of_column in zip(columns, means, strict=True):
            of_column[start:stop] = column[drawn].mean(axis=1)
    return means
