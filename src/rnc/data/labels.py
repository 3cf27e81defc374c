"""What is known about each row besides its input: targets, split, name, subgroups."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
from numpy.typing import NDArray

from rnc.data.errors import DataError, some
from rnc.data.features import as_numbers
from rnc.data.inputs import Skipped
from rnc.data.sources import column
from rnc.data.splits import FRACTIONS, SPLITS, check_groups, check_split, make_split, split_word


@dataclass(frozen=True)
class Use:
    """Which column is what."""

    targets: tuple[str, ...]
    split: str | None
    group: str | None
    subgroup: tuple[str, ...]

    def taken(self) -> list[str]:
        """Columns that are no inputs: they are what to predict, or say nothing of it."""
        return [*self.targets, *(name for name in (self.split, self.group) if name is not None)]


@dataclass(frozen=True)
class Labels:
    """All fields of a Table that do not depend on its inputs."""

    y: NDArray[np.float64]
    target_names: tuple[str, ...]
    split: NDArray[np.str_]
    names: NDArray[np.str_]
    subgroup: dict[str, NDArray[Any]]
    skipped: tuple[Skipped, ...]

    def without(self, rows: Iterable[int], skipped: tuple[Skipped, ...]) -> "Labels":
        """The labels of the other rows."""
        kept = np.ones(len(self.y), bool)
        kept[list(rows)] = False
        return Labels(
            self.y[kept],
            self.target_names,
            self.split[kept],
            self.names[kept],
            {name: values[kept] for name, values in self.subgroup.items()},
            self.skipped + skipped,
        )


def find_columns(
    frame: pd.DataFrame,
    place: str,
    targets: tuple[str, ...],
    split: str | None,
    group: str | None,
    subgroup: Sequence[str],
    *,
    arrays: bool,
) -> Use:
    """Find the columns that have a use; where the source is arrays, some are known by name."""
    if not targets:
        raise DataError(
            f"{place}: which column is to be predicted? Name it with --target (target=); its "
            f"columns: {some(frame.columns, 30)}."
        )
    if len(set(targets)) < len(targets):
        raise DataError(f"{place}: the targets must be different columns; got {some(targets)}.")
    if split is None and "split" in frame.columns:
        split = "split" if arrays or any(map(split_word, frame["split"])) else None
    elif split == "none" and "none" not in frame.columns:
        split = None
    if group is None and arrays and "group" in frame.columns:
        group = "group"
    for name in (*targets, *(one for one in (split, group) if one is not None), *subgroup):
        column(frame, name, place)
    for other, what in ((split, "split"), (group, "group")):
        if other in targets:
            raise DataError(f"{place}: {other!r} cannot be a target and the {what} column, too.")
    return Use(targets, split, group, tuple(subgroup))


def holds_splits(values: pd.Series) -> bool:
    """Whether a column says train, val or test in every row."""
    return all(split_word(value) for value in values.unique())


def read_targets(
    frame: pd.DataFrame, names: Sequence[str], place: str, drop_missing: bool
) -> tuple[NDArray[np.float64], NDArray[np.bool_], tuple[Skipped, ...]]:
    """Targets (n, t) of the rows that have them, which rows those are, and which are not."""
    y = np.stack([_numbers(frame[name], place) for name in names], axis=1)
    missing = np.isnan(y)
    usable: NDArray[np.bool_] = ~missing.any(axis=1)  # type: ignore[assignment]
    if usable.all():
        return y, usable, ()
    for name, gaps in zip(names, missing.T, strict=True):
        if gaps.any() and (not drop_missing or not usable.any()):
            raise DataError(
                f"{place}: {name} is missing in {gaps.sum()} of {len(y)} rows (rows "
                f"{some(frame.index[gaps])}). "
                + (
                    "Fill them in, or leave these rows out with --drop-missing (drop_missing=True)."
                    if usable.any()
                    else "No usable rows remain; fill it in or choose another target."
                )
            )
    skipped = [
        Skipped(str(row), f"{some(np.array(names)[gaps])} is missing")
        for row, gaps in zip(frame.index[~usable], missing[~usable], strict=True)
    ]
    return y[usable], usable, tuple(skipped)


def _numbers(values: pd.Series, place: str) -> NDArray[np.float64]:
    numbers, text = as_numbers(values)
    for bad, expected in ((text, "a number"), (np.isinf(numbers), "a finite number")):
        if bad.any():
            first = int(bad.argmax())
            value = values.iloc[first]
            shown = repr(value) if isinstance(value, str) else str(value)
            more = f" {bad.sum() - 1} more rows are like it." if bad.sum() > 1 else ""
            raise DataError(
                f"{place} row {values.index[first]}: {values.name} is {shown}, expected "
                f"{expected}.{more}"
            )
    return numbers


def make_labels(
    frame: pd.DataFrame,
    y: NDArray[np.float64],
    use: Use,
    names: Sequence[Any] | NDArray[Any],
    skipped: tuple[Skipped, ...],
    place: str,
    *,
    fractions: Sequence[float] | None,
    seed: int,
    fitted: bool = False,
) -> Labels:
    """Split the rows and check that there is something to learn.

    Args:
        frame: columns of the usable rows.
        y: their targets.
        use: which column is what.
        names: what identifies each row.
        skipped: rows that are left out already.
        place: the file, for messages.
        fractions: shares of a seeded split.
        seed: its seed.
        fitted: the rows are for a fitted model: all are "test" unless a column says otherwise.
    """
    names = np.asarray(names).astype(str)
    group = _group(frame, use.group, place)
    if use.split is not None:
        if not fitted and (fractions is not None or seed != 0):
            raise DataError(
                f"{place}: fractions and seed of a split go with a split that is made; its column "
                f"{use.split!r} holds one. Leave them out, or add --split-column none "
                "(split_column='none')."
            )
        needed = () if fitted else SPLITS
        split = check_split(
            frame[use.split].tolist(), frame.index, place, column=use.split, needed=needed
        )
        if group is not None and not fitted:
            check_groups(split, group, frame.index, place, column=str(use.group))
    elif fitted:
        split = np.full(len(y), "test")
    else:
        split = make_split(
            y,
            names,
            group=group,
            fractions=FRACTIONS if fractions is None else fractions,
            seed=seed,
        )
    if not fitted:
        _check_spread(y[split == "train"], use.targets, place)
    subgroup = {name: _values(frame[name]) for name in use.subgroup}
    return Labels(y, use.targets, split, names, subgroup, skipped)


def _check_spread(y: NDArray[np.float64], names: Sequence[str], place: str) -> None:
    for name, values in zip(names, y.T, strict=True):
        if values.min() == values.max():
            raise DataError(
                f"{place}: {name} is {values[0]:g} in all {len(values)} train rows; regression "
                "needs at least two different values. Choose another target or split."
            )


def _group(frame: pd.DataFrame, name: str | None, place: str) -> NDArray[Any] | None:
    if name is None:
        return None
    gaps = frame[name].isna().to_numpy()
    if gaps.any():
        raise DataError(
            f"{place}: {name} is missing in {gaps.sum()} of {len(frame)} rows (rows "
            f"{some(frame.index[gaps])}), so it is unknown which rows belong together. Fill it in, "
            "with a value of its own for a row that stands alone."
        )
    return _values(frame[name])


def _values(values: pd.Series) -> NDArray[Any]:
    """Numbers as they are, anything else as text."""
    if values.dtype.kind in "biuf" and not values.isna().any():
        return np.asarray(values.to_numpy())
    texts = values.astype(object).map(str, na_action="ignore").fillna("missing")
    return np.asarray(texts, dtype=str)
