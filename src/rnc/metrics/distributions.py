"""Scores of predicted distributions: pinball loss and CRPS; lower is better for both.

The continuous ranked probability score (Matheson and Winkler 1976) of a distribution F and a target
y is the integral of (F(x) - [x >= y])^2 over x. It is in the units of the target. For a prediction
without spread it is the absolute error, so its mean can be compared with the MAE. Both scores are
proper: their expectation is least for the true distribution.

Targets are (n,), one target at a time. Every function returns a number per sample. Take the mean,
or `rnc.metrics.intervals.weighted_mean` with weights of the samples.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rnc.loss import pairwise
from rnc.metrics import Columns, Values, as_columns

_NUMBERS = 2**24  # in memory at a time


def pinball(prediction: Values, target: Values, level: float) -> Columns:
    """Pinball loss of a predicted quantile: (n,).

    >>> pinball(np.array([0.0, 9.0]), np.array([5.0, 5.0]), 0.75).tolist()
    [3.75, 1.0]
    """
    if not 0 < level < 1:
        raise ValueError(f"level must be above 0 and below 1, as 0.9; got {level!r}.")
    guess, truth = _one_column(prediction, "prediction"), _one_column(target, "target")
    _check_rows(guess, truth, "prediction")
    gaps = truth - guess
    return np.where(gaps >= 0, level * gaps, (level - 1) * gaps)


def crps_gaussian(mean: Values, scale: Values, target: Values) -> Columns:
    """CRPS of N(mean, scale^2), in closed form (Gneiting et al. 2005): (n,).

    >>> crps_gaussian(np.array([0.0, 3.0]), np.array([1.0, 0.0]), np.array([0.0, 5.0])).round(4)
    array([0.2337, 2.    ])
    """
    from scipy import special  # type: ignore[import-untyped]  # slow, and help texts need none

    centre, truth = _one_column(mean, "mean"), _one_column(target, "target")
    spread = _one_column(scale, "scale")
    _check_rows(centre, truth, "mean")
    _check_rows(spread, truth, "scale")
    if (spread < 0).any():
        raise ValueError(f"scale must not be negative; the least is {spread.min():g}.")
    gaps = np.abs(truth - centre)
    with np.errstate(over="ignore"):  # a tiny scale: infinitely many deviations off
        z = np.divide(gaps, spread, out=np.full_like(gaps, math.inf), where=spread > 0)
        density = np.exp(-np.square(z) / 2) / math.sqrt(2 * math.pi)
    # erf(z / sqrt 2) is 2 Phi(z) - 1. Where the scale is 0, the gap alone is left.
    off = gaps * special.erf(z / math.sqrt(2))
    return np.asarray(off + spread * (2 * density - 1 / math.sqrt(math.pi)))


def crps_points(
    points: Values, target: Values, *, masses: Values | None = None, period: float | None = None
) -> Columns:
    """CRPS of a distribution on points, as an ensemble or the classes of a binned head: (n,).

    Args:
        points: (n, b), or (b,) if they are the same for all samples; in any order.
        target: (n,).
        masses: (n, b) or (b,), not negative; they count by their share. Default: equal.
        period: the length of the circle that points and targets are on; distances then go the
            shorter way round (Grimit et al. 2006).

    >>> crps_points(np.array([[1.0, 3.0]]), np.array([2.0]))
    array([0.5])
    """
    truth = _one_column(target, "target")
    places = _per_sample(points, len(truth), "points")
    mass = np.ones_like(places) if masses is None else _per_sample(masses, len(truth), "masses")
    if mass.shape != places.shape:
        raise ValueError(
            f"masses and points must have the same shape (n, b); got {mass.shape} and "
            f"{places.shape}."
        )
    mass = _shares(mass)
    if period is None:
        off = (mass * np.abs(places - truth[:, None])).sum(axis=1)
        return np.asarray(off - _mean_gap(places, mass) / 2)
    circle = pairwise.circular(period).period
    off = (mass * _round_gap(places - truth[:, None], circle)).sum(axis=1)
    return np.asarray(off - _mean_round_gap(places, mass, circle) / 2)


def crps_quantiles(quantiles: Values, levels: Values, target: Values) -> Columns:
    """CRPS of the distribution that has these quantiles: (n,).

    Each quantile has the mass of the levels that are nearer to its own than to any other, from 0 to
    1. For the levels (i - 1/2) / q, this is twice the mean of the pinball losses.

    Args:
        quantiles: (n, q); those that cross are put in order.
        levels: (q,) increasing, above 0 and below 1.
        target: (n,).

    >>> crps_quantiles(np.array([[1.0, 3.0]]), np.array([0.25, 0.75]), np.array([2.0]))
    array([0.5])
    """
    steps = _one_column(levels, "levels")
    if steps[0] <= 0 or steps[-1] >= 1 or (np.diff(steps) <= 0).any():
        raise ValueError(
            f"levels must increase, above 0 and below 1, as 0.1, 0.5, 0.9; got {steps.tolist()}."
        )
    places = as_columns(quantiles, "quantiles")
    if places.shape[1] != len(steps):
        raise ValueError(
            f"quantiles must be (n, {len(steps)}), one column for each level; got {places.shape}."
        )
    ends = np.concatenate([[0.0], (steps[:-1] + steps[1:]) / 2, [1.0]])
    return crps_points(np.sort(places, axis=1), target, masses=np.diff(ends))


def crps_bins(edges: Values, masses: Values, target: Values) -> Columns:
    """CRPS of a histogram, whose density is even within a bin: (n,).

    Args:
        edges: (b + 1,) increasing.
        masses: (n, b), not negative; they count by their share.
        target: (n,), also outside of the bins.

    >>> crps_bins(np.array([0.0, 1.0]), np.array([[1.0]]), np.array([0.5])).round(4)
    array([0.0833])
    """
    truth, ends = _one_column(target, "target"), _one_column(edges, "edges")
    mass = _shares(_per_sample(masses, len(truth), "masses"))
    if len(ends) != mass.shape[1] + 1 or (np.diff(ends) <= 0).any():
        raise ValueError(
            f"edges must increase, one more than the {mass.shape[1]} masses; got {len(ends)} from "
            f"{ends[0]:g} to {ends[-1]:g}."
        )
    reached = np.cumsum(mass, axis=1)
    left = np.concatenate([np.zeros((len(truth), 1)), reached[:, :-1]], axis=1)
    # Where in each bin the target is: below it F counts, above it 1 - F does.
    share = ((truth[:, None] - ends[:-1]) / np.diff(ends)).clip(0, 1)
    middle = left + share * mass
    below = share * _square_mean(left, middle)
    above = (1 - share) * _square_mean(1 - middle, 1 - reached)
    outside = np.maximum(np.maximum(ends[0] - truth, truth - ends[-1]), 0.0)
    return np.asarray(((below + above) * np.diff(ends)).sum(axis=1) + outside)


# ----------------------------------------------------------------------------------- private


def _square_mean(start: Columns, end: Columns) -> Columns:
    """Mean square of a line from start to end."""
    return (np.square(start) + start * end + np.square(end)) / 3


def _mean_gap(places: Columns, mass: Columns) -> Columns:
    """E |X - X'| of two independent draws: (n, b), (n, b) -> (n,)."""
    order = np.argsort(places, axis=1)
    reached = np.cumsum(np.take_along_axis(mass, order, axis=1), axis=1)[:, :-1]
    gaps = np.diff(np.take_along_axis(places, order, axis=1), axis=1)
    return np.asarray(2 * (reached * (1 - reached) * gaps).sum(axis=1))


def _mean_round_gap(places: Columns, mass: Columns, period: float) -> Columns:
    """`_mean_gap` on a circle, computed from all pairs."""
    n, b = places.shape
    found, count = np.empty(n), max(1, _NUMBERS // (b * b))
    for start in range(0, n, count):
        x, m = places[start : start + count], mass[start : start + count]
        gaps = _round_gap(x[:, :, None] - x[:, None, :], period)
        found[start : start + count] = np.einsum("ni,nij,nj->n", m, gaps, m)
    return found


def _round_gap(gaps: NDArray[Any], period: float) -> NDArray[Any]:
    """Lengths of the gaps, the shorter way round the circle."""
    turned = np.abs(gaps) % period
    return np.asarray(np.minimum(turned, period - turned))


def _shares(mass: Columns) -> Columns:
    total = mass.sum(axis=1, keepdims=True)
    if (mass < 0).any() or not (total > 0).all():
        row = int(((mass < 0).any(axis=1) | (total[:, 0] <= 0)).argmax())
        raise ValueError(
            f"masses must not be negative, nor all 0 for a sample; row {row} has {mass[row]}."
        )
    return np.asarray(mass / total)


def _per_sample(values: Values, rows: int, name: str) -> Columns:
    """Values (n, b) as they are, or values (b,) repeated for all samples."""
    columns = as_columns(values, name)
    if values.ndim == 1:
        return np.broadcast_to(columns[:, 0], (rows, len(columns)))
    if len(columns) != rows:
        raise ValueError(
            f"{name} must be ({rows}, b), a row per target, or (b,); got {values.shape}."
        )
    return columns


def _one_column(values: Values, name: str) -> Columns:
    columns = as_columns(values, name)
    if columns.shape[1] != 1:
        raise ValueError(
            f"{name} must be of one target, (n,) or (n, 1); got {columns.shape}. Score one target "
            "at a time."
        )
    return columns[:, 0]


def _check_rows(values: Columns, target: Columns, name: str) -> None:
    if values.shape != target.shape:
        raise ValueError(
            f"{name} and target must have the same n; got {values.shape} and {target.shape}."
        )
