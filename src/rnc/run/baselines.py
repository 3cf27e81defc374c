"""Baselines that a model must beat: a constant guess, and for tables scikit-learn's boosting.

Both learn from the training rows. They are scored on the test rows like the model: by the error
that suits the label distance, and with the weights of the rows, if there are any. In scores.json:

    {"median": {"mae": ...},
     "boosting": {"mae": ..., "seconds": ..., "rows": ...}}   tables only; rows it learned from

The guess is the median of each target. On a circle it is the value with the lowest mean error, and
for gaze the mean direction. "circular_error" or "angular_error" is added if the label distance has
one, and "per_target", the MAE by name, if there are several targets.
"""

import math
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from rnc.config import FitConfig
from rnc.data.table import Table
from rnc.loss.pairwise import circle_of, gaze_direction
from rnc.metrics import Columns, angular_error, circular_error, mae

MOST_BOOSTED_ROWS = 100_000
MOST_CELLS = 20_000_000
"""Most rows times columns that boosting learns from: that takes about a minute."""
_CANDIDATES = 512

Weights = NDArray[np.float64] | None
"""The weight of each row, (n,); None if all rows count equally."""


def baselines(table: Table, config: FitConfig, *, boosting: bool = True) -> dict[str, Any]:
    """The errors of both on the test rows. Boosting is only for data of kind "table"."""
    train, test = table.rows("train"), table.rows("test")
    truth, names, weight = table.y[test], table.target_names, table.weight
    learned, scored = (None if weight is None else weight[rows] for rows in (train, test))
    guess = guess_errors(
        table.y[train], truth, names, config, train_weights=learned, weights=scored
    )
    found = {"median": guess}
    if boosting and table.kind == "table":
        started = time.perf_counter()
        rows = _bounded(train, table.x.shape[1])
        weights = None if weight is None else weight[rows]
        predicted = boosted(table.x[rows], table.y[rows], table.x[test], config, weights)
        seconds = round(time.perf_counter() - started, 2)
        errors = _errors(predicted, truth, names, config, scored)
        found["boosting"] = {**errors, "seconds": seconds, "rows": len(rows)}
    return found


def guess_errors(
    train_targets: Columns,
    truth: Columns,
    names: Sequence[str],
    config: FitConfig,
    *,
    train_weights: Weights = None,
    weights: Weights = None,
) -> dict[str, Any]:
    """The errors of a constant guess, learned from targets (m, t), for true targets (n, t)."""
    guess = np.broadcast_to(constant_guess(train_targets, config, train_weights), truth.shape)
    return _errors(guess, truth, names, config, weights)


def constant_guess(targets: Columns, config: FitConfig, weights: Weights = None) -> Columns:
    """The constant prediction with about the lowest error: (m, t) -> (t,).

    With weights (m,), it is the weighted error that is low.

    >>> constant_guess(np.array([[1.0], [2.0], [9.0]]), FitConfig())
    array([2.])
    >>> hours = np.array([[23.0], [0.0], [1.0], [12.0]])
    >>> constant_guess(hours, FitConfig(label_distance="circular", period=24))
    array([0.])
    """
    if config.label_distance == "angular":
        directions = gaze_direction(torch.from_numpy(targets))
        if weights is not None:
            directions = directions * torch.from_numpy(weights / weights.mean())[:, None]
        x, y, z = directions.mean(dim=0).tolist()
        pitch, yaw = math.atan2(-y, math.hypot(x, z)), math.atan2(-x, -z)
        return np.array([math.degrees(pitch), math.degrees(yaw)])
    period = circle_of(config.distance)
    if period is None:
        if weights is not None:
            return np.array([_weighted_median(column, weights) for column in targets.T])
        return np.asarray(np.median(targets, axis=0), dtype=np.float64)
    return np.array([_circular_median(column, period, weights) for column in targets.T])


def _weighted_median(values: NDArray[np.float64], weights: NDArray[np.float64]) -> float:
    """The value with half of the weight on either side, or the mean of two such values."""
    order = np.argsort(values)
    ranked, mass = values[order], weights[order].cumsum()
    half = mass[-1] / 2
    low, high = (np.searchsorted(mass, half, side) for side in ("left", "right"))
    return float(ranked[[low, min(high, len(ranked) - 1)]].mean())


def boosted(
    x: NDArray[Any], y: Columns, new: NDArray[Any], config: FitConfig, weights: Weights = None
) -> Columns:
    """Predictions of gradient boosting with scikit-learn's defaults: (n, p), (n, t) -> (m, t).

    One model per target, for the absolute error. A target on a circle is learned as sine and
    cosine.
    """
    period = circle_of(config.distance)
    if period is None or config.label_distance == "angular":
        columns = [_boosted(x, column, new, "absolute_error", weights) for column in y.T]
        return np.stack(columns, axis=1)
    columns = []
    for column in y.T:
        turn = 2 * math.pi * column / period
        parts = (f(turn) for f in (np.sin, np.cos))
        sine, cosine = (_boosted(x, part, new, "squared_error", weights) for part in parts)
        columns.append(np.arctan2(sine, cosine) * period / (2 * math.pi) % period)
    return np.stack(columns, axis=1)


def _boosted(
    x: NDArray[Any], y: NDArray[Any], new: NDArray[Any], loss: str, weights: Weights
) -> NDArray[Any]:
    from sklearn.ensemble import HistGradientBoostingRegressor  # type: ignore[import-untyped]
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    model = HistGradientBoostingRegressor(loss=loss, random_state=0)
    with threadpool_limits(1):  # more threads are slower on small tables and on busy machines
        return np.asarray(model.fit(x, y, sample_weight=weights).predict(new), dtype=np.float64)


def _circular_median(values: NDArray[np.float64], period: float, weights: Weights) -> float:
    """The value with the lowest mean error on the circle, of up to 512 of the given values."""
    known = np.unique(values % period)
    known = known[np.linspace(0, len(known) - 1, min(len(known), _CANDIDATES)).astype(int)]
    guesses = [np.full_like(values, one) for one in known]
    errors = [circular_error(one, values, period=period, weights=weights) for one in guesses]
    return float(known[np.argmin(errors)])


def _bounded(rows: NDArray[np.int64], columns: int) -> NDArray[np.int64]:
    """The training rows; if they are too many for boosting, a random part with a fixed seed."""
    most = max(1, min(MOST_BOOSTED_ROWS, MOST_CELLS // columns))
    if len(rows) <= most:
        return rows
    return np.sort(np.random.default_rng(0).permutation(rows)[:most])


def _errors(
    predicted: Columns,
    truth: Columns,
    names: Sequence[str],
    config: FitConfig,
    weights: Weights = None,
) -> dict[str, Any]:
    errors: dict[str, Any] = {"mae": mae(predicted, truth, weights=weights)}
    if config.label_distance == "angular":
        errors["angular_error"] = angular_error(predicted, truth, weights=weights)
    elif (period := circle_of(config.distance)) is not None:
        errors["circular_error"] = circular_error(predicted, truth, period=period, weights=weights)
    if truth.shape[1] > 1:
        columns = {name: (predicted[:, [i]], truth[:, [i]]) for i, name in enumerate(names)}
        errors["per_target"] = {k: mae(*pair, weights=weights) for k, pair in columns.items()}
    return errors
