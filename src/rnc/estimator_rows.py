"""Which rows of an estimator's data train, validate and calibrate, and their weights."""

import dataclasses
from functools import partial
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
from numpy.typing import ArrayLike, NDArray
from sklearn import utils  # type: ignore[import-untyped]

from rnc.data.splits import CALIBRATION, PARTIAL, make_split
from rnc.data.table import Table
from rnc.intervals.reference import Reference


def checked_targets(
    estimator: Any, y: ArrayLike, upper: ArrayLike | None
) -> tuple[NDArray[np.float64], NDArray[np.float64] | None]:
    """The targets, or their lower and upper ends, after scikit-learn's checks."""
    if y is None:
        raise ValueError("RnCRegressor requires y to be passed, but the target y is None.")
    check = partial(utils.check_array, dtype=np.float64, ensure_2d=False, estimator=estimator)
    finite: Any = True if estimator.unlabelled is None else "allow-nan"
    finite = finite if upper is None else False  # the table checks ends
    try:
        targets = check(_without_na(y), ensure_all_finite=finite, input_name="y")
    except ValueError as error:
        if "contains NaN" not in str(error):
            raise
        raise ValueError(
            f"{error} unlabelled='use' trains the encoder on rows without a target."
        ) from None
    if upper is None:
        return targets, None
    highest = check(_without_na(upper), ensure_all_finite=False, input_name="upper")
    if highest.shape != targets.shape:
        raise ValueError(
            f"upper must have the shape of y; got {highest.shape} and {targets.shape}."
        )
    return targets, highest


def _without_na(values: Any) -> Any:
    """The values, with NaN in place of pandas' NA, which scikit-learn does not accept."""
    if not pd.api.types.is_object_dtype(values):
        return values
    return np.where(pd.isna(values), np.nan, np.asarray(values))


def checked_weights(sample_weight: ArrayLike | None, n: int) -> NDArray[np.float64] | None:
    """One weight per row, or None for equal weights. The table checks their values later."""
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
    known: NDArray[np.bool_],
) -> tuple[float, float, float]:
    """Shares of training, validation and test rows. Too few rows get no validation share.

    Only rows with exact targets, `known` (n,), count.
    """
    if not 0 <= share < 1:
        raise ValueError(f"validation_fraction must be a share in 0 <= f < 1; got {share!r}.")
    if not known.all():
        y = y[known]
        group, weights = (None if some is None else some[known] for some in (group, weights))
    if len(y) * share < 1 or (group is not None and len(pd.unique(group)) < 2):
        return (1.0, 0.0, 0.0)
    fractions = (1 - share, share, 0.0)
    columns = y.reshape(len(y), -1)
    trains = make_split(columns, group=group, fractions=fractions, seed=seed) == "train"
    varies = (np.ptp(columns[trains], axis=0) > 0).all()
    counts = weights is None or (weights[trains].any() and weights[~trains].any())
    return fractions if varies and counts else (1.0, 0.0, 0.0)


def names_of(y: Any) -> tuple[str, ...]:
    """The names of the targets if y has names, else ()."""
    if isinstance(y, pd.DataFrame):
        return tuple(str(name) for name in y.columns)
    return (str(y.name),) if isinstance(y, pd.Series) and y.name is not None else ()


def has_targets(y: NDArray[np.float64], upper: NDArray[np.float64] | None) -> NDArray[np.bool_]:
    """Which rows have exact targets: (n,) or (n, t) -> (n,)."""
    is_known = np.isfinite(y) if upper is None else np.asarray(y == upper)
    return np.asarray(is_known.reshape(len(y), -1).all(axis=1))


def by_rows_of_x(reference: Reference | None, table: Table) -> Reference | None:
    """The reference, with the row numbers of its samples in X, of which rows may be left out."""
    if reference is None or not table.skipped:
        return reference
    return dataclasses.replace(reference, rows=np.array([int(name) for name in reference.names]))


def validated_by_training_rows(table: Table) -> Table:
    """The table with each training row twice: once in train, once in val."""
    train, calibration = table.rows("train"), table.rows(CALIBRATION)
    twice = np.concatenate([train, train, calibration])
    counts = (len(train), len(train), len(calibration))
    split = np.repeat(["train", "val", CALIBRATION], counts)
    if (table.split == PARTIAL).any():  # every row stays where it is
        twice = np.concatenate([np.arange(len(table)), train])
        split = np.concatenate([table.split, np.repeat("val", len(train))])
    return dataclasses.replace(
        table,
        x=table.x[twice],
        y=table.y[twice],
        names=table.names[twice],
        group=None if table.group is None else table.group[twice],
        weight=None if table.weight is None else table.weight[twice],
        ends=None if table.ends is None else table.ends[twice],
        split=split,
        raw=None,
    )
