"""Read labels whose targets may be missing or known in part, in every supported form."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
from numpy.typing import NDArray

from rnc.data.errors import DataError, first_few
from rnc.data.inputs import Skipped
from rnc.data.labels import ColumnRoles, LabelColumns, read_group, read_labels, read_values
from rnc.data.names import names_of_rows
from rnc.data.partial_tests import check_tested_groups, tested_in_part
from rnc.data.row_weights import read_weights
from rnc.data.splits import CALIBRATION, PARTIAL, PARTIAL_TEST, check_split, split_word
from rnc.data.target_ends import (
    Ends,
    ends_of_cells,
    ends_of_columns,
    ends_of_numbers,
    ends_of_times,
)

Unlabelled = Literal["use", "drop"]
"""Whether rows without a target are used or dropped."""
ReadEnds = Callable[[pd.Series, str], Ends]
ReadLabels = Callable[..., tuple[LabelColumns, NDArray[np.bool_]]]


def label_reader(
    roles: ColumnRoles,
    partial_labels: bool,
    unlabelled: Unlabelled | None,
    drop_missing: bool,
    decimal: str | None = None,
) -> ReadLabels:
    """The function that reads the labels: `read_labels` if all targets must be exact.

    Otherwise it is `read_partial_labels`, which also uses rows without a target unless they are to
    be dropped. The options are those of `rnc.data.read_table`.
    """
    if unlabelled not in (None, "use", "drop"):
        raise DataError(
            "unlabelled must be 'use' or 'drop', the choice for rows without a target; got "
            f"{unlabelled!r}."
        )
    if unlabelled == "use" and drop_missing:
        raise DataError(
            "--unlabelled use (unlabelled='use') trains on rows without a target, and "
            "--drop-missing (drop_missing=True) leaves them out. Choose one of them."
        )
    forms = {
        "--partial-labels": partial_labels,
        "--upper-column (upper=)": roles.upper,
        "--event-column (event=)": roles.event,
    }
    if len(given := [name for name, value in forms.items() if value]) > 1:
        raise DataError(
            f"{' and '.join(given)} are different ways to give the lower and upper ends of "
            "targets. Use only one of them."
        )
    drop = drop_missing or unlabelled == "drop"
    if given or unlabelled == "use":
        cells = partial(ends_of_cells, decimal=decimal) if partial_labels else ends_of_numbers
        return partial(read_partial_labels, read_ends=cells, drop_missing=drop)
    return partial(read_labels, drop_missing=drop)


def read_partial_labels(
    frame: pd.DataFrame,
    roles: ColumnRoles,
    place: str,
    *,
    read_ends: ReadEnds = ends_of_cells,
    names: Sequence[str] | None = None,
    drop_missing: bool = False,
    fitted: bool = False,
    **options: Any,
) -> tuple[LabelColumns, NDArray[np.bool_]]:
    """The labels as `read_labels` gives them, and those of rows whose targets are not exact.

    These rows are training rows, in the split "partial". A row whose group is in another split is
    left out. A split column may put intervals and censored targets into test: they are in the split
    "test-part". Any other word than train raises. For a fitted model, all targets must be exact;
    with `drop_missing`, other rows are left out.

    Args:
        frame: columns of all rows.
        roles: the columns of targets, split, group and so on.
        place: the name of the data in messages.
        read_ends: reads a column of targets that has no column of upper ends or events.
        names: names of the rows.
        drop_missing: leave out rows that lack a target.
        fitted: whether the rows are for a fitted model.
        options: the other options of `read_labels`.
    """
    ends = _ends(frame, roles, place, read_ends)
    exact = (ends[..., 0] == ends[..., 1]).all(axis=1)
    _check_some(ends, exact, roles, place)
    dropped = np.asarray(~exact if fitted else is_missing(ends).any(axis=1))
    if fitted and dropped.any() and not drop_missing:
        raise _not_exact(frame, ends, dropped, roles, place)
    dropped &= drop_missing
    tested = tested_in_part(frame, roles.split, ends)
    _check_training(frame[~exact & ~dropped & ~tested], roles, place)
    values = {name: ends[exact, i, 0] for i, name in enumerate(roles.targets)}
    ids = np.asarray(frame.index if names is None else names)
    own, chosen = [str(name) for name in ids[exact]], frame[exact].assign(**values)
    known, _ = read_labels(chosen, roles, place, names=own, fitted=fitted, **options)
    elsewhere = _elsewhere(frame, roles, exact, known, place) & ~dropped & ~tested
    what = "not exact" if fitted else "missing"
    skipped = [Skipped(str(row), f"its target is {what}") for row in frame.index[dropped]]
    reason = f"its target is not exact, and others of its {roles.group} are not in training"
    skipped += [Skipped(str(row), reason) for row in frame.index[elsewhere]]
    usable = ~dropped & ~elsewhere
    if fitted:
        return replace(known, skipped=(*known.skipped, *skipped)), usable
    kept = frame[usable]
    split = np.full(len(kept), PARTIAL, dtype="<U11")
    split[exact[usable]] = known.split
    split[tested[usable]] = PARTIAL_TEST
    group = read_group(kept, roles.group, place)
    learned = np.isin(split, ("train", "val", CALIBRATION, PARTIAL))
    check_tested_groups(group, tested[usable], learned, place)
    return LabelColumns(
        y=np.where(ends[..., 0] == ends[..., 1], ends[..., 0], np.nan)[usable],
        target_names=roles.targets,
        split=split,
        names=names_of_rows(ids[usable]),
        subgroup={name: read_values(kept[name], place) for name in roles.subgroup},
        skipped=(*known.skipped, *skipped),
        group=group,
        weight=None if roles.weight is None else read_weights(kept, roles.weight, place),
        ends=ends[usable],
    ), usable


def _ends(
    frame: pd.DataFrame, roles: ColumnRoles, place: str, read_ends: ReadEnds
) -> NDArray[np.float64]:
    """The lower and the upper end of each target: (n, t, 2)."""
    found = []
    for i, name in enumerate(roles.targets):
        if roles.upper:
            ends = ends_of_columns(frame[name], frame[roles.upper[i]], place)
        elif roles.event:
            ends = ends_of_times(frame[name], frame[roles.event[i]], place)
        else:
            ends = read_ends(frame[name], place)
        found.append(np.stack(ends, axis=1))
    return np.stack(found, axis=1)


def _check_some(
    ends: NDArray[np.float64], exact: NDArray[np.bool_], roles: ColumnRoles, place: str
) -> None:
    """Raise if no row has exact targets, which heads and scores need."""
    if exact.any():
        return
    targets = first_few(roles.targets)
    if is_missing(ends).all():
        raise DataError(
            f"{place}: {targets} is missing in all {len(ends)} rows. Label some of them, or choose "
            "another target."
        )
    raise DataError(
        f"{place}: no row has an exact value of {targets}. Heads and scores need some: label a few "
        "rows."
    )


def _not_exact(
    frame: pd.DataFrame,
    ends: NDArray[np.float64],
    rows: NDArray[np.bool_],
    roles: ColumnRoles,
    place: str,
) -> DataError:
    row = int(rows.argmax())
    column = int((ends[row, :, 0] != ends[row, :, 1]).argmax())
    low, high = ends[row, column]
    known = _words(low, high)
    return DataError(
        f"{place} row {frame.index[row]}: {roles.targets[column]} is {known} ({rows.sum()} of "
        f"{len(frame)} rows are not exact). Scores need exact targets: leave the others out with "
        "--drop-missing (drop_missing=True)."
    )


def _words(low: float, high: float) -> str:
    """Words for a target with these ends, such as "at least 90"."""
    if np.isinf(low) and np.isinf(high):
        return "missing"
    if np.isinf(low) or np.isinf(high):
        return f"at most {high:g}" if np.isinf(low) else f"at least {low:g}"
    return f"between {low:g} and {high:g}"


def is_missing(ends: NDArray[np.float64]) -> NDArray[np.bool_]:
    """A mask of the targets about which nothing is known: (n, t, 2) -> (n, t)."""
    return np.isinf(ends[..., 0]) & np.isinf(ends[..., 1])


def _check_training(rest: pd.DataFrame, roles: ColumnRoles, place: str) -> None:
    """Raise if the split column puts one of these rows without exact targets outside train.

    Test rows with an interval or a censored target are not among these rows. Raises, too, if a cell
    of the split column is neither empty nor a word for a split.
    """
    if roles.split is None:
        return
    given = rest[roles.split]
    words = given.map(split_word)
    empty = given.isna() | (given.astype(str).str.strip() == "")
    check_split(given[~empty].tolist(), rest.index[~empty], place, column=roles.split, needed=())
    elsewhere = words.notna() & (words != "train")
    if elsewhere.any():
        raise DataError(
            f"{place} row {rest.index[int(elsewhere.to_numpy().argmax())]}: {roles.split} is "
            f"{rest[roles.split][elsewhere].iloc[0]!r}, but its target is not exact "
            f"({elsewhere.sum()} such rows). Validation and calibration need exact targets, and a "
            "test row needs at least one known end. Mark these rows as train, or leave them out."
        )


def _elsewhere(
    frame: pd.DataFrame,
    roles: ColumnRoles,
    exact: NDArray[np.bool_],
    known: LabelColumns,
    place: str,
) -> NDArray[np.bool_]:
    """A mask of the rows without exact targets whose group is in another split than train."""
    group = read_group(frame, roles.group, place)
    if group is None:
        return np.zeros(len(frame), bool)
    found: NDArray[np.bool_] = np.isin(group, group[exact][known.split != "train"]) & ~exact
    return found
