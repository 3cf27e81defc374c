"""Targets that are known in part, as people write them: `>90`, `<5`, `20-29`, or nothing.

    34                          exact
    >90  >=90  90+              at least 90
    <5  <=5                     at most 5
    20-29  20..29  20 to 29     from 20 to 29; brackets around two numbers, too: [20, 29)
    (an empty cell)             missing

Ends count as written, open or closed: an order that needs the difference is not certain anyway.
Two columns may hold the ends instead (`ends_of_columns`), or a time and whether it was the event's
(`ends_of_times`): the time of an event that was not seen is at least that.
"""

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
from numpy.typing import NDArray

from rnc.data.columns import as_booleans, as_numbers, finite_numbers
from rnc.data.errors import DataError, first_few
from rnc.data.inputs import Skipped
from rnc.data.labels import ColumnRoles, LabelColumns, read_group, read_labels, read_values
from rnc.data.names import names_of_rows
from rnc.data.row_weights import read_weights
from rnc.data.splits import PARTIAL, split_word

_NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_FORMS = (
    (re.compile(rf"(?:>=?|≥|at least|over|above)\s*({_NUMBER})"), (0, None)),
    (re.compile(rf"({_NUMBER})\s*\+"), (0, None)),
    (re.compile(rf"(?:<=?|≤|at most|under|below|up to)\s*({_NUMBER})"), (None, 0)),
    (re.compile(rf"({_NUMBER})\s*(?:-|\u2013|\u2014|\.\.|to)\s*({_NUMBER})"), (0, 1)),
    (re.compile(rf"[\[(]\s*({_NUMBER})\s*[,;]\s*({_NUMBER})\s*[\])]"), (0, 1)),
)
"""What a cell may look like, and which of its numbers is the lower and the upper end."""
SYNTAX = "a number, >90, <5, 20-29 or an empty cell"


class Ends(NamedTuple):
    """Between what each target lies: (n,) each; infinite where open, equal where exact."""

    lower: NDArray[np.float64]
    upper: NDArray[np.float64]


def ends_of_cells(values: pd.Series, place: str) -> Ends:
    """The ends of targets in one column, of numbers or text."""
    numbers, is_text = as_numbers(values)
    lower, upper = (np.where(np.isnan(numbers), outside, numbers) for outside in (-np.inf, np.inf))
    for row in np.flatnonzero(is_text):
        cell = str(values.iloc[row])
        found = (-np.inf, np.inf) if not cell.strip() else read_cell(cell)
        if found is None:
            raise DataError(
                f"{place} row {values.index[row]}: {values.name} is {cell!r}, which is not "
                f"understood. A target is {SYNTAX}."
            )
        lower[row], upper[row] = found
    infinite = np.isinf(numbers)
    if infinite.any():
        raise DataError(
            f"{place} row {values.index[int(infinite.argmax())]}: {values.name} is infinite. A "
            f"target is {SYNTAX}."
        )
    return _checked(Ends(lower, upper), values, place)


def read_cell(text: str) -> tuple[float, float] | None:
    """Between what a target lies that is written so; None if it is not understood.

    >>> read_cell(">90"), read_cell("20 - 29"), read_cell("-5--2"), read_cell("ten")
    ((90.0, inf), (20.0, 29.0), (-5.0, -2.0), None)
    """
    for form, (low, high) in _FORMS:
        if match := form.fullmatch(text.strip().lower()):
            numbers = [float(number) for number in match.groups()]
            return (
                -np.inf if low is None else numbers[low],
                np.inf if high is None else numbers[high],
            )
    return None


def ends_of_columns(lower: pd.Series, upper: pd.Series, place: str) -> Ends:
    """The ends of targets in two columns; an empty cell is an open end."""
    numbers = [finite_numbers(column, place) for column in (lower, upper)]
    low, high = (
        np.where(np.isnan(column), outside, column)
        for column, outside in zip(numbers, (-np.inf, np.inf), strict=True)
    )
    return _checked(Ends(low, high), lower, place)


def ends_of_times(times: pd.Series, events: pd.Series, place: str) -> Ends:
    """Times until an event, exact where it was seen (1, yes), at least that where not (0, no)."""
    time = finite_numbers(times, place)
    seen, odd = as_booleans(events)
    bad = odd | (np.isnan(seen) & ~np.isnan(time))
    if bad.any():
        row = int(bad.argmax())
        raise DataError(
            f"{place} row {events.index[row]}: {events.name} is {events.iloc[row]!r}; it says "
            "whether the event was seen: 1 or 0, yes or no."
        )
    gaps = np.isnan(time)
    lower = np.where(gaps, -np.inf, time)
    return Ends(lower, np.where(gaps | (seen == 0), np.inf, time))


def _checked(ends: Ends, values: pd.Series, place: str) -> Ends:
    wrong = ends.lower > ends.upper
    if wrong.any():
        row = int(wrong.argmax())
        raise DataError(
            f"{place} row {values.index[row]}: {values.name} goes from {ends.lower[row]:g} to "
            f"{ends.upper[row]:g}; its lower end is above its upper end."
        )
    return ends


# ------------------------------------------------------------------------------- labels of a table


def read_partial_labels(
    frame: pd.DataFrame,
    roles: ColumnRoles,
    place: str,
    *,
    names: Sequence[str] | None = None,
    drop_missing: bool = False,
    **options: Any,
) -> tuple[LabelColumns, NDArray[np.bool_]]:
    """As `read_labels`, with rows whose targets are not exact in a split of their own, "partial".

    They are training rows. A row that a column puts into another split raises, and one whose group
    is in another split is left out.
    """
    ends = np.stack([_stacked(ends_of_cells(frame[name], place)) for name in roles.targets], axis=1)
    exact = (ends[..., 0] == ends[..., 1]).all(axis=1)
    if not exact.any():
        raise DataError(
            f"{place}: no row has an exact value of {first_few(roles.targets)}. Heads and scores "
            "need some: label a few rows."
        )
    dropped = is_missing(ends).any(axis=1) & drop_missing
    _check_training(frame[~exact & ~dropped], roles, place)
    values = {name: ends[exact, i, 0] for i, name in enumerate(roles.targets)}
    ids = np.asarray(frame.index if names is None else names)
    own = [str(name) for name in ids[exact]]
    known, _ = read_labels(frame[exact].assign(**values), roles, place, names=own, **options)
    elsewhere = _elsewhere(frame, roles, exact, known, place) & ~dropped
    skipped = [Skipped(str(row), "its target is missing") for row in frame.index[dropped]]
    reason = f"its target is not exact, and others of its {roles.group} are not in training"
    skipped += [Skipped(str(row), reason) for row in frame.index[elsewhere]]
    usable = ~dropped & ~elsewhere
    kept = frame[usable]
    split = np.full(len(kept), PARTIAL, dtype="<U11")
    split[exact[usable]] = known.split
    return LabelColumns(
        y=np.where(ends[..., 0] == ends[..., 1], ends[..., 0], np.nan)[usable],
        target_names=roles.targets,
        split=split,
        names=names_of_rows(ids[usable]),
        subgroup={name: read_values(kept[name], place) for name in roles.subgroup},
        skipped=(*known.skipped, *skipped),
        group=read_group(kept, roles.group, place),
        weight=None if roles.weight is None else read_weights(kept, roles.weight, place),
        ends=ends[usable],
    ), usable


def is_missing(ends: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which targets nothing is known of: (n, t, 2) -> (n, t)."""
    return np.isinf(ends[..., 0]) & np.isinf(ends[..., 1])


def _stacked(ends: Ends) -> NDArray[np.float64]:
    return np.stack(ends, axis=1)


def _check_training(rest: pd.DataFrame, roles: ColumnRoles, place: str) -> None:
    """Raise if a row without exact targets is to be validated or tested on."""
    if roles.split is None:
        return
    words = rest[roles.split].map(split_word)
    elsewhere = words.notna() & (words != "train")
    if elsewhere.any():
        raise DataError(
            f"{place} row {rest.index[int(elsewhere.to_numpy().argmax())]}: {roles.split} is "
            f"{rest[roles.split][elsewhere].iloc[0]!r}, but its target is not exact "
            f"({elsewhere.sum()} rows are like it). Validation and scores need exact targets: mark "
            "such rows train, or leave them out."
        )


def _elsewhere(
    frame: pd.DataFrame,
    roles: ColumnRoles,
    exact: NDArray[np.bool_],
    known: LabelColumns,
    place: str,
) -> NDArray[np.bool_]:
    """Which rows without exact targets have a group that is not in training."""
    group = read_group(frame, roles.group, place)
    if group is None:
        return np.zeros(len(frame), bool)
    found: NDArray[np.bool_] = np.isin(group, group[exact][known.split != "train"]) & ~exact
    return found
