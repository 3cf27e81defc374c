"""Which rows of the data of an estimator train, validate and calibrate, and what they count."""

import dataclasses
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
from numpy.typing import ArrayLike, NDArray

from rnc.data.splits import CALIBRATION, make_split
from rnc.data.table import Table


def checked_weights(sample_weight: ArrayLike | None, n: int) -> NDArray[np.float64] | None:
    """One weight per row, or None for equal ones; the table checks their values."""
    if sample_weight is None:
        return None
    weights = np.asarray(sample_weight, dtype=np.float64)
    weights = np.full(n, weights) if weights.ndim == 0 else weights
    if weights.shape != (n,):
        raise ValueError(
            f"sample_weight must have one weight per row, ({n},); got shape {weights.shape}."
        )
    return weights


def fractions_of(
    share: float,
    y: NDArray[np.float64],
    group: NDArray[Any] | None,
    weights: NDArray[np.float64] | None,
    seed: int,
) -> tuple[float, float, float]:
    """Shares of training, validation and test rows; without validation rows where too few."""
    if not 0 <= share < 1:
        raise ValueError(f"validation_fraction must be a share in 0 <= f < 1; got {share!r}.")
    if len(y) * share < 1 or (group is not None and len(pd.unique(group)) < 2):
        return (1.0, 0.0, 0.0)
    fractions = (1 - share, share, 0.0)
    columns = y.reshape(len(y), -1)
    trains = make_split(columns, group=group, fractions=fractions, seed=seed) == "train"
    varies = (np.ptp(columns[trains], axis=0) > 0).all()
    counts = weights is None or (weights[trains].any() and weights[~trains].any())
    return fractions if varies and counts else (1.0, 0.0, 0.0)


def names_of(y: Any) -> tuple[str, ...]:
    """The names of the targets, where y has some."""
    if isinstance(y, pd.DataFrame):
        return tuple(str(name) for name in y.columns)
    return (str(y.name),) if isinstance(y, pd.Series) and y.name is not None else ()


def validated_by_training_rows(table: Table) -> Table:
    """The same with all its training rows twice: once to train on, once to validate."""
    train, calibration = table.rows("train"), table.rows(CALIBRATION)
    twice = np.concatenate([train, train, calibration])
    counts = (len(train), len(train), len(calibration))
    split = np.repeat(["train", "val", CALIBRATION], counts)
    return dataclasses.replace(
        table,
        x=table.x[twice],
        y=table.y[twice],
        names=table.names[twice],
        group=None if table.group is None else table.group[twice],
        weight=None if table.weight is None else table.weight[twice],
        split=split,
        raw=None,
    )
