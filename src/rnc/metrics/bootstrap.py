"""95 % intervals by the bootstrap: how much a score depends on which samples were tested.

`mean_interval` and `r2_interval` say nothing about how much the score varies between training
seeds. They also treat samples as independent. Several samples of one person are not, which makes
the interval too narrow. `repeated_interval` handles both.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rnc.metrics import Columns

RESAMPLES = 1000
_CHUNK = 2**21  # draws in memory at a time


class Interval(NamedTuple):
    """The two ends of an interval."""

    low: float
    high: float


def mean_interval(
    values: Columns,
    *,
    level: float = 0.95,
    resamples: int = RESAMPLES,
    seed: int = 0,
    weights: Columns | None = None,
) -> Interval | None:
    """Interval of the mean of values (n,); None for fewer than two values.

    With weights (n,), it is the interval of sum w v / sum w, and samples are drawn together with
    their weights. The tails are then those of the effective number of samples, (sum w)^2 / sum w^2,
    which is low if few samples have most of the weight. Samples of weight 0 are left out; None if
    fewer than two remain.

    The tails are those of Student's t, not of the normal distribution: plain percentiles are too
    narrow for small n. Of 1,000 intervals at level 0.95, 88 % held the mean of normal errors with
    5 samples and 95 % with 10 or more; of exponential errors, 90 % with 20 and 94 % with 200.

    >>> mean_interval(np.array([2.0, 2.0, 2.0]))
    Interval(low=2.0, high=2.0)
    """
    if values.ndim != 1 or not 0 < level < 1 or resamples < 1:
        raise ValueError(
            "mean_interval needs values (n,), a level between 0 and 1 and resamples >= 1; got "
            f"{values.shape}, {level} and {resamples}."
        )
    if weights is not None:
        return _weighted_interval(values, weights, level, resamples, seed)
    if len(values) < 2:
        return None
    return _ends(_resampled_means([values], resamples, seed)[0], len(values), level)


def _weighted_interval(
    values: Columns, weights: Columns, level: float, resamples: int, seed: int
) -> Interval | None:
    """Interval of sum w v / sum w."""
    if weights.shape != values.shape or not (weights >= 0).all():
        raise ValueError(
            f"mean_interval needs weights {values.shape}, one per value, from 0 on; got "
            f"{weights.shape}."
        )
    counts = weights > 0
    values, weights = values[counts], weights[counts]
    if len(values) < 2:
        return None
    weights = weights / weights.max()
    above, below = _resampled_means([weights * values, weights], resamples, seed)
    samples = float(weights.sum() ** 2 / np.square(weights).sum())
    return _ends(above / below, max(samples, 1 + 1e-6), level)


def repeated_interval(
    values: Columns,
    reference: Columns | None = None,
    *,
    groups: NDArray[Any] | None = None,
    level: float = 0.95,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Interval | None:
    """Interval of the mean of values (k, n) of n samples in k trainings.

    With a reference (k, n), the interval is that of mean(values) / mean(reference) - 1. A resample
    draws samples and trainings, the same for values and reference. Resampling few trainings gives
    too little spread: for 2, 3 and 5 it is 0.71, 0.82 and 0.89 of the true one. The tails are those
    of `mean_interval`. None for fewer than two samples or groups, or if the reference is all 0.

    Args:
        values: for example the errors of a method with k seeds.
        reference: for example the errors of a baseline on the same samples, with the same seeds.
        groups: (n,) which samples belong together; whole groups are drawn. By default, each
            sample stands alone.
        level: the probability that the interval holds the true mean.
        resamples: number of resamples.
        seed: of the resamples.

    >>> values = np.array([[1.0, 2.0, 3.0]])
    >>> repeated_interval(values, 2 * values)
    Interval(low=-0.5, high=-0.5)
    """
    below = np.ones_like(values) if reference is None else reference
    _check_repeated(values, below, groups, level, resamples)
    k, n = values.shape
    codes = np.arange(n) if groups is None else np.unique(groups, return_inverse=True)[1]
    g = int(codes.max()) + 1 if n else 0
    if g < 2 or k < 1:
        return None
    sums = [np.array([np.bincount(codes, row) for row in rows]) for rows in (values, below)]
    means = _resampled_repeats(sums, resamples, seed)
    defined = means[1] > 0
    if not defined.any():
        return None
    low, high = _ends(means[0][defined] / means[1][defined], g, level)
    return Interval(low, high) if reference is None else Interval(low - 1, high - 1)


def r2_interval(
    prediction: Columns, target: Columns, *, seed: int = 0, weights: Columns | None = None
) -> Interval | None:
    """Interval of the usual R2 of predictions (n, t); None where R2 is not defined.

    It is the middle 95 % of 1,000 resamples. Weights (n,) are those of the samples.
    """
    if weights is not None:
        counts = weights > 0
        prediction, target, weights = prediction[counts], target[counts], weights[counts]
    if len(target) < 2 or not np.ptp(target, axis=0).any():
        return None
    centred = target - target.mean(axis=0)  # near zero, differences of squares stay exact
    sums = [np.square(prediction - target).sum(axis=1), np.square(centred).sum(axis=1)]
    columns = [*sums, *centred.T]
    if weights is None:
        errors, squares, *shifts = _resampled_means(columns, RESAMPLES, seed)
    else:
        weights = weights / weights.max()
        weighed = [weights, *(weights * column for column in columns)]
        mass, *means = _resampled_means(weighed, RESAMPLES, seed)
        errors, squares, *shifts = (mean / mass for mean in means)
    spread = squares - np.square(shifts).sum(axis=0)
    defined = spread > 0
    if not defined.any():
        return None
    values = 1 - errors[defined] / spread[defined]
    return Interval(*np.percentile(values, [2.5, 97.5]).tolist())


def _check_repeated(
    values: Columns, others: Columns, groups: NDArray[Any] | None, level: float, resamples: int
) -> None:
    if values.ndim != 2 or not 0 < level < 1 or resamples < 1:
        raise ValueError(
            "repeated_interval needs values (k, n), a level between 0 and 1 and resamples >= 1; "
            f"got {values.shape}, {level} and {resamples}."
        )
    if others.shape != values.shape:
        raise ValueError(
            f"repeated_interval needs a reference of the shape of the values, {values.shape}; got "
            f"{others.shape}."
        )
    if groups is not None and groups.shape != values.shape[1:]:
        raise ValueError(
            f"repeated_interval needs groups {values.shape[1:]}, one per sample; got "
            f"{groups.shape}."
        )


def _ends(resampled: Columns, n: float, level: float) -> Interval:
    """The interval of a resampled statistic of n samples, with the tails of Student's t."""
    from scipy import stats  # type: ignore[import-untyped]  # slow, and help texts need none

    widened = stats.t.ppf((1 + level) / 2, n - 1) * math.sqrt(n / (n - 1))
    tail = stats.norm.sf(widened)
    return Interval(*np.quantile(resampled, [tail, 1 - tail]).tolist())


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


def _resampled_repeats(columns: list[Columns], resamples: int, seed: int) -> list[Columns]:
    """Means of columns (k, g) over the same resamples of both: (resamples,) for each column."""
    k, g = columns[0].shape
    places, trainings = np.random.default_rng(seed), np.random.default_rng([seed, 1])
    block = max(1, _CHUNK // g)
    means = [np.empty(resamples) for _ in columns]
    for start in range(0, resamples, block):
        stop = min(start + block, resamples)
        drawn = places.integers(g, size=(stop - start, g))
        times = trainings.multinomial(k, np.full(k, 1 / k), size=stop - start) / k
        for column, of_column in zip(columns, means, strict=True):
            mixed = np.take_along_axis(times @ column, drawn, axis=1)
            of_column[start:stop] = mixed.mean(axis=1)
    return means
