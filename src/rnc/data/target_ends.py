"""Read targets that are known in part, as people write them: `>90`, `<5`, `20-29`, or nothing.

    34                          exact
    >90  >=90  90+              at least 90
    <5  <=5                     at most 5
    20-29  20..29  20 to 29     from 20 to 29; brackets around two numbers, too: [20, 29)
    (an empty cell)             missing

Open and closed ends are treated alike: an order that depends on the difference is not certain
anyway. Instead, two columns may hold both ends (`ends_of_columns`), or a time and whether the event
was seen then (`ends_of_times`). If it was not seen, its time is at least that.
"""

import re
from typing import NamedTuple

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
from numpy.typing import NDArray

from rnc.data.columns import DECIMAL_COMMA, as_booleans, as_numbers, finite_numbers
from rnc.data.errors import DataError
from rnc.data.numerals import with_points

_NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_FORMS = (
    (re.compile(rf"(?:> ?=?|≥|at least|over|above)\s*({_NUMBER})"), (0, None)),
    (re.compile(rf"({_NUMBER})\s*\+"), (0, None)),
    (re.compile(rf"(?:< ?=?|≤|at most|under|below|up to)\s*({_NUMBER})"), (None, 0)),
    (re.compile(rf"({_NUMBER})\s*(?:[-\u2010-\u2015]|\.\.|to)\s*({_NUMBER})"), (0, 1)),
    (re.compile(rf"[\[(]\s*({_NUMBER})\s*[,;]\s*({_NUMBER})\s*[\])]"), (0, 1)),
)
"""Patterns of cells, with the positions of the lower and the upper end among their numbers."""
SYNTAX = "a number, >90, <5, 20-29 or an empty cell"


class Ends(NamedTuple):
    """Lower and upper ends of a target, (n,) each: infinite if open, equal if exact."""

    lower: NDArray[np.float64]
    upper: NDArray[np.float64]


def ends_of_cells(values: pd.Series, place: str, decimal: str | None = None) -> Ends:
    """The ends of a target in one column of numbers or texts with this decimal sign."""
    if decimal == ",":
        values = values.map(lambda cell: with_points(cell) if isinstance(cell, str) else cell)
    numbers, is_text = as_numbers(values)
    lower, upper = (np.where(np.isnan(numbers), outside, numbers) for outside in (-np.inf, np.inf))
    for row in np.flatnonzero(is_text):
        cell = str(values.iloc[row])
        found = (-np.inf, np.inf) if not cell.strip() else read_cell(cell)
        if found is None:
            more = ""
            if decimal is None and re.search(DECIMAL_COMMA, cell):
                more = " If its comma is the decimal sign, add --decimal , (decimal=',')."
            raise DataError(
                f"{place} row {values.index[row]}: {values.name} is {cell!r}, which is not "
                f"understood. A target is {SYNTAX}.{more}"
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
    """The lower and the upper end that a text stands for; None if it is not understood.

    >>> read_cell(">90"), read_cell("20 - 29"), read_cell("-5--2"), read_cell("ten")
    ((90.0, inf), (20.0, 29.0), (-5.0, -2.0), None)
    """
    words = " ".join(text.lower().replace("\u2212", "-").split())
    for form, (low, high) in _FORMS:
        if match := form.fullmatch(words):
            numbers = [float(number) for number in match.groups()]
            return (
                -np.inf if low is None else numbers[low],
                np.inf if high is None else numbers[high],
            )
    return None


def ends_of_columns(lower: pd.Series, upper: pd.Series, place: str) -> Ends:
    """The ends of a target in two columns; an empty or an infinite cell is an open end."""
    ends = Ends(_end(lower, -np.inf, place), _end(upper, np.inf, place))
    return _checked(ends, lower, place)


def _end(values: pd.Series, open_end: float, place: str) -> NDArray[np.float64]:
    """A column of ends, `open_end` for empty cells. Text and the opposite infinity raise."""
    is_open = as_numbers(values)[0] == open_end
    numbers = finite_numbers(values[~is_open], place)
    found = np.full(len(values), open_end)
    found[~is_open] = np.where(np.isnan(numbers), open_end, numbers)
    return found


def ends_of_times(times: pd.Series, events: pd.Series, place: str) -> Ends:
    """The ends of times until an event: equal if it was seen (1, yes), else open above (0, no)."""
    time = finite_numbers(times, place)
    seen, odd = as_booleans(events)
    bad = odd | (np.isnan(seen) & ~np.isnan(time))
    if bad.any():
        row = int(bad.argmax())
        value = events.iloc[row]
        shown = repr(value) if isinstance(value, str) else str(value)
        shown = shown if odd[row] else "empty"
        raise DataError(
            f"{place} row {events.index[row]}: {events.name} is {shown}; it says "
            "whether the event was seen: 1 or 0, yes or no."
        )
    gaps = np.isnan(time)
    lower = np.where(gaps, -np.inf, time)
    return Ends(lower, np.where(gaps | (seen == 0), np.inf, time))


def exact_numbers(values: pd.Series, place: str) -> NDArray[np.float64]:
    """Targets that are finite or NaN. The error for texts such as >90 names the flag for them."""
    try:
        return finite_numbers(values, place)
    except DataError as error:
        if not any(read_cell(value) for value in values if isinstance(value, str)):
            raise
        raise DataError(
            f"{error} Targets such as >90, <5 and 20-29 are read with --partial-labels "
            "(partial_labels=True)."
        ) from None


def ends_of_numbers(values: pd.Series, place: str) -> Ends:
    """The ends of a target whose values are numbers or missing."""
    numbers = exact_numbers(values, place)
    gaps = np.isnan(numbers)
    return Ends(np.where(gaps, -np.inf, numbers), np.where(gaps, np.inf, numbers))


def _checked(ends: Ends, values: pd.Series, place: str) -> Ends:
    wrong = ends.lower > ends.upper
    if wrong.any():
        row = int(wrong.argmax())
        raise DataError(
            f"{place} row {values.index[row]}: {values.name} goes from {ends.lower[row]:g} to "
            f"{ends.upper[row]:g}; its lower end is above its upper end."
        )
    return ends
