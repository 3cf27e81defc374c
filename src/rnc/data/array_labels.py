"""Turn label arrays into a frame of named columns, from which labels are read."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
from numpy.typing import NDArray

from rnc.data.archive import target_arrays
from rnc.data.errors import DataError
from rnc.data.labels import ColumnRoles
from rnc.data.opened import columns_frame


def label_frame(
    y: Any,
    n: int,
    place: str,
    *,
    target_names: Sequence[str] | None = None,
    upper: Any = None,
    event: Any = None,
    subgroup: Mapping[str, NDArray[Any]] | None = None,
    **further: Sequence[Any] | NDArray[Any] | None,
) -> tuple[pd.DataFrame, ColumnRoles]:
    """A frame of n rows with all labels, and the role of each column.

    `further` holds split, group and weight; None means not given. The other arguments are those of
    `rnc.data.table_from_arrays`.
    """
    if isinstance(y, pd.DataFrame) and target_names is None:
        target_names = [str(name) for name in y.columns]
    columns = target_arrays(np.asarray(y), target_names, place)
    given = {name: values for name, values in further.items() if values is not None}
    if twice := sorted(set(columns) & {*given, *(subgroup or ())}):
        raise DataError(
            f"{place}: {', '.join(twice)} is both a target and a split, group, weight or subgroup. "
            "Give the target another name (target_names)."
        )
    uppers, events = (
        _of_targets(values, what, columns, place)
        for values, what in ((upper, "upper"), (event, "event"))
    )
    roles = ColumnRoles(
        tuple(columns),
        *("split" if "split" in given else None, "group" if "group" in given else None),
        subgroup=tuple(subgroup or ()),
        weight="weight" if "weight" in given else None,
        upper=tuple(uppers),
        event=tuple(events),
    )
    arrays = {**(subgroup or {}), **columns, **given, **uppers, **events}
    return columns_frame(arrays, n, place), roles


def _of_targets(
    values: Any, what: str, columns: Mapping[str, NDArray[Any]], place: str
) -> dict[str, NDArray[Any]]:
    """The columns of `upper` or `event`, one per target, under names of their own."""
    if values is None:
        return {}
    array = np.asarray(values)
    array = array[:, None] if array.ndim == 1 else array
    if array.ndim != 2 or array.shape[1] != len(columns):
        raise DataError(
            f"{place}: {what} must have the shape of y, (n,) or (n, t) with t = {len(columns)}; "
            f"got {np.asarray(values).shape}."
        )
    return {f"{name} ({what})": array[:, i] for i, name in enumerate(columns)}
