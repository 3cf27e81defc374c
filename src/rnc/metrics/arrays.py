"""Checked arrays from the arguments of the metrics, and weighted means of rows."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Values = Tensor | NDArray[Any]
"""What the metrics take: (n,) or (n, t)."""
Columns = NDArray[np.float64]
"""What the metrics compute with: (n, t)."""


def as_columns(values: Values, name: str) -> Columns:
    """Values as finite float64 columns on the CPU: (n,) or (n, t) -> (n, t)."""
    if isinstance(values, Tensor):
        values = values.detach().double().cpu().numpy()
    columns = np.asarray(values, dtype=np.float64)
    columns = columns[:, None] if columns.ndim == 1 else columns
    _check_rows(columns, name, "(n,) or (n, t)")
    return columns


def float_rows(features: Values) -> NDArray[Any]:
    """Features as a finite array (n, d): float64 stays float64, any other dtype becomes float32."""
    if isinstance(features, Tensor):
        features = features.detach().cpu()
        features = (features if features.dtype == torch.float64 else features.float()).numpy()
    rows = np.asarray(features)
    rows = rows if rows.dtype == np.float64 else rows.astype(np.float32)
    _check_rows(rows, "features", "(n, d)")
    return rows


def _check_rows(rows: NDArray[Any], name: str, shape: str) -> None:
    if rows.ndim != 2 or 0 in rows.shape:
        raise ValueError(f"{name} must be {shape} with at least one value; got {rows.shape}.")
    bad = ~np.isfinite(rows).all(axis=1)
    if bad.any():
        raise ValueError(
            f"{name} must be finite; got NaN or infinite values in {bad.sum()} of {len(bad)} "
            f"samples (the first in row {bad.argmax()}). Drop them or look at what made them."
        )


def weighted_mean(values: NDArray[Any], weights: Values | None) -> float:
    """Mean of values (n,) or (n, t), weighted by row with weights (n,), or the plain mean.

    >>> weighted_mean(np.array([2.0, 4.0]), np.array([3.0, 1.0]))
    2.5
    """
    if weights is None:
        return float(values.mean())
    mass, columns = row_weights(weights, len(values)), values.reshape(len(values), -1)
    return float((mass * columns).sum() / (mass.sum() * columns.shape[1]))


def row_weights(weights: Values, rows: int) -> Columns:
    """Weights as a column (n, 1) whose largest is 1."""
    mass = as_columns(weights, "weights")
    if mass.shape != (rows, 1) or (mass < 0).any() or not mass.any():
        raise ValueError(
            f"weights must be {rows} numbers, one per row, not negative and not all 0; got "
            f"{mass.shape} from {mass.min():g} to {mass.max():g}."
        )
    return np.asarray(mass / mass.max())
