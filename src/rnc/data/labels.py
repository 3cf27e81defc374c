"""Read the labels of rows: targets, split, group, name, weight and subgroups."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
from numpy.typing import NDArray

from rnc.data.columns import as_text, nested
from rnc.data.errors import DataError, first_few
from rnc.data.folds import fold_split
from rnc.data.inputs import Skipped
from rnc.data.names import NumberedRows, names_of_rows
from rnc.data.row_weights import WEIGHT, check_weights, read_weights
from rnc.data.sources import column
from rnc.data.splits import (
    FRACTIONS,
    SPLITS,
    check_groups,
    check_split,
    make_split,
    split_word,
    take_calibration,
)
from rnc.data.target_ends import exact_numbers


@dataclass(frozen=True)
class ColumnRoles:
    """Which columns are targets, split, group, subgroups and weights."""

    targets: tuple[str, ...]
    split: str | None = None
    group: str | None = None
    subgroup: tuple[str, ...] = ()
    weight: str | None = None
    upper: tuple[str, ...] = ()
    """Columns of the upper ends, one per target. The target columns then have the lower ends."""
    event: tuple[str, ...] = ()
    """Columns of events, one per target, which is a time: 1 if the event happened then, 0 if it
    had not happened by then."""

    def reserved(self) -> list[str]:
        """Columns that cannot be features: all but subgroups."""
        others = (self.split, self.group, self.weight, *self.upper, *self.event)
        return [*self.targets, *(name for name in others if name is not None)]


@dataclass(frozen=True)
class LabelColumns:
    """The fields of a Table that do not depend on its inputs."""

    y: NDArray[np.float64]
    target_names: tuple[str, ...]
    split: NDArray[np.str_]
    names: NDArray[np.str_] | NumberedRows
    subgroup: dict[str, NDArray[Any]]
    skipped: tuple[Skipped, ...]
    group: NDArray[Any] | None = None
    weight: NDArray[np.float64] | None = None
    ends: NDArray[np.float64] | None = None

    def without(self, rows: Iterable[int], skipped: tuple[Skipped, ...]) -> "LabelColumns":
        """The labels of all other rows; `skipped` is added to the skipped rows."""
        kept = np.ones(len(self.y), bool)
        kept[list(rows)] = False
        return replace(
            self,
            y=self.y[kept],
            split=self.split[kept],
            names=self.names[kept],
            subgroup={name: values[kept] for name, values in self.subgroup.items()},
            skipped=self.skipped + skipped,
            group=None if self.group is None else self.group[kept],
            weight=None if self.weight is None else self.weight[kept],
            ends=None if self.ends is None else self.ends[kept],
        )


def several(names: str | Sequence[str]) -> tuple[str, ...]:
    """Names of columns as a tuple; a text is a single name."""
    return (names,) if isinstance(names, str) else tuple(names)


def find_columns(
    frame: pd.DataFrame, asked: ColumnRoles, place: str, *, arrays: bool
) -> ColumnRoles:
    """The role of each column. Raises for missing columns and conflicting roles.

    In an array file, arrays called "split", "group" and "weight" have these roles by default. In a
    table, a column "split" has it by default if it holds words such as train.
    """
    targets, split, group, weight = asked.targets, asked.split, asked.group, asked.weight
    if not targets:
        raise DataError(
            f"{place}: which column is to be predicted? Name it with --target (target=); its "
            f"columns: {first_few(frame.columns, 30)}."
        )
    if len(set(targets)) < len(targets):
        raise DataError(
            f"{place}: the targets must be different columns; got {first_few(targets)}."
        )
    if split is None and "split" in frame.columns:
        split = "split" if arrays or any(map(split_word, frame["split"])) else None
    elif split == "none" and "none" not in frame.columns:
        split = None
    if group is None and arrays and "group" in frame.columns:
        group = "group"
    if weight is None and arrays and WEIGHT in frame.columns:
        other_use = WEIGHT in (*targets, split, group, *asked.subgroup)
        weight = None if other_use else WEIGHT
    roles = replace(asked, split=split, group=group, weight=weight)
    for name in (*roles.reserved(), *roles.subgroup):
        column(frame, name, place)
    check_ends(roles, place)
    for other, what in ((split, "split"), (group, "group"), (weight, "weight")):
        if other in targets:
            raise DataError(f"{place}: {other!r} cannot be a target and the {what} column, too.")
    if weight is not None and weight in (split, group):
        raise DataError(f"{place}: {weight!r} cannot be the weight and the split or group column.")
    return roles


def check_ends(roles: ColumnRoles, place: str) -> None:
    """Raise unless columns of upper ends or events are one per target and have no other role."""
    for names, flag in ((roles.upper, "--upper-column"), (roles.event, "--event-column")):
        if not names:
            continue
        taken = [*roles.targets, roles.split, roles.group, roles.weight, *roles.subgroup]
        if len(names) != len(roles.targets):
            raise DataError(
                f"{place}: {flag} names one column for each target; got {first_few(names)} for "
                f"{first_few(roles.targets)}."
            )
        if twice := [name for i, name in enumerate(names) if name in (*taken, *names[:i])]:
            raise DataError(
                f"{place}: {flag} {twice[0]} has another use already: as a target, a split, a "
                "group, a weight or a subgroup. Name a column of its own."
            )


def read_targets(
    frame: pd.DataFrame, names: Sequence[str], place: str, *, drop_missing: bool = False
) -> NDArray[np.float64]:
    """Targets (n, t), finite. Missing ones raise; with `drop_missing` they are NaN."""
    y = np.stack([exact_numbers(frame[name], place) for name in names], axis=1)
    missing = np.isnan(y)
    is_empty = bool(missing.any(axis=1).all())
    advice = (
        "Fill them in, leave these rows out with --drop-missing (drop_missing=True), or train the "
        "encoder on them with --unlabelled use (unlabelled='use')."
    )
    if is_empty:
        advice = "No usable rows remain; fill it in or choose another target."
    for name, gaps in zip(names, missing.T, strict=True):
        if gaps.any() and (not drop_missing or is_empty):
            raise DataError(
                f"{place}: {name} is missing in {gaps.sum()} of {len(y)} rows (rows "
                f"{first_few(frame.index[gaps])}). {advice}"
            )
    return y


def read_labels(
    frame: pd.DataFrame,
    roles: ColumnRoles,
    place: str,
    *,
    names: Sequence[str] | None = None,
    skipped: Sequence[Skipped] = (),
    drop_missing: bool = False,
    fractions: Sequence[float] | None = None,
    split_seed: int = 0,
    fold: str | None = None,
    calibration_share: float = 0.0,
    fitted: bool = False,
) -> tuple[LabelColumns, NDArray[np.bool_]]:
    """The labels of the rows that have all targets, checked and split, and a mask of these rows.

    The index of the frame holds row numbers for messages, and names of rows if `names` is None.
    `skipped` are rows that were left out before. With `fitted`, the rows are for a fitted model:
    they need not suit training, and all are "test" unless a split column says otherwise. The other
    arguments are those of `read_table`.
    """
    y = read_targets(frame, roles.targets, place, drop_missing=drop_missing)
    missing = np.isnan(y)
    usable: NDArray[np.bool_] = ~missing.any(axis=1)  # type: ignore[assignment]
    dropped = [
        Skipped(str(row), f"{first_few(np.array(roles.targets)[gaps])} is missing")
        for row, gaps in zip(frame.index[~usable], missing[~usable], strict=True)
    ]
    ids = names_of_rows(np.asarray(frame.index if names is None else names)[usable])
    if dropped:  # else indexing would copy all rows
        frame, y = frame[usable], y[usable]
    group = read_group(frame, roles.group, place)
    if roles.split is not None:
        if not fitted and (fractions is not None or split_seed != 0 or fold is not None):
            raise DataError(
                f"{place}: fractions, split_seed and folds are for a random split, but the column "
                f"{roles.split!r} already gives the split. Leave them out, or ignore the column "
                "with --split-column none (split_column='none')."
            )
        words, needed = frame[roles.split].tolist(), () if fitted else SPLITS
        split = check_split(words, frame.index, place, column=roles.split, needed=needed)
        if group is not None and not fitted:
            check_groups(split, group, frame.index, place, column=str(roles.group))
    elif fitted:
        split = np.full(len(y), "test")
    else:
        try:
            split = _drawn_split(y, ids, group, fractions, fold, split_seed)
        except DataError as error:
            raise DataError(f"{place}: {error}") from error
    if not fitted:
        try:
            split = take_calibration(
                split, y, ids, share=calibration_share, group=group, seed=split_seed
            )
        except DataError as error:
            raise DataError(f"{place}: {error}") from error
        _check_spread(y[split == "train"], roles.targets, place)
    subgroup = {name: read_values(frame[name], place) for name in roles.subgroup}
    weight = None
    if roles.weight is not None:
        weight = read_weights(frame, roles.weight, place)
        check_weights(weight, split, roles.weight, place)
    left_out = (*skipped, *dropped)
    return LabelColumns(y, roles.targets, split, ids, subgroup, left_out, group, weight), usable


def _drawn_split(
    y: NDArray[np.float64],
    names: NDArray[np.str_] | NumberedRows,
    group: NDArray[Any] | None,
    fractions: Sequence[float] | None,
    fold: str | None,
    seed: int,
) -> NDArray[np.str_]:
    """A split that is drawn: by shares, or for one fold of a cross-validation."""
    if fold is None:
        shares = FRACTIONS if fractions is None else fractions
        return make_split(y, names, group=group, fractions=shares, seed=seed)
    if fractions is not None:
        raise DataError(
            f"fold {fold} and fractions {tuple(fractions)} both set the shares of the splits. Use "
            "one of them."
        )
    return fold_split(fold, y, names, group=group, seed=seed)


def _check_spread(y: NDArray[np.float64], names: Sequence[str], place: str) -> None:
    for name, values in zip(names, y.T, strict=True):
        if values.min() == values.max():
            raise DataError(
                f"{place}: {name} is {values[0]:g} in all {len(values)} train rows; regression "
                "needs at least two different values. Choose another target or split."
            )


def read_group(frame: pd.DataFrame, name: str | None, place: str) -> NDArray[Any] | None:
    """The group of each row; None without a group column. Raises for gaps."""
    if name is None:
        return None
    gaps = frame[name].isna().to_numpy()
    if gaps.any():
        raise DataError(
            f"{place}: {name} is missing in {gaps.sum()} of {len(frame)} rows (rows "
            f"{first_few(frame.index[gaps])}), so it is unknown which rows belong together. Fill "
            "it in, with a value of its own for a row that stands alone."
        )
    return read_values(frame[name], place)


def read_values(values: pd.Series, place: str) -> NDArray[Any]:
    """Numbers without gaps as they are; any other column as text, with "missing" for gaps."""
    if (cells := nested(values)) in ("lists", "objects"):
        raise DataError(
            f"{place}: column {values.name!r} holds {cells}; a group or subgroup needs one value "
            "in each row."
        )
    if values.dtype.kind in "biuf" and not values.isna().any():
        return np.asarray(values.to_numpy())
    return np.asarray(as_text(values).astype(object).fillna("missing"), dtype=str)
