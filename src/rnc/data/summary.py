"""Describe a table in words: how columns are used, which labels are known, which columns leak."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rnc.data.dates import words_of_format
from rnc.data.features import names_of

if TYPE_CHECKING:
    from rnc.data.table import Table

_MOST_LISTED = 12
_TYPES = {"number": "numbers", "category": "categories", "date": "dates", "boolean": "yes/no"}
_SAME = 1 - 1e-6  # above this correlation, a float32 input counts as equal to a target
_FEWEST_ROWS = 5


def column_lines(
    preprocessing: dict[str, Any], gap_cells: Mapping[str, Sequence[str]] | None = None
) -> list[str]:
    """Lines about the columns: those of each type, those with gaps, and those not used.

    `gap_cells` has texts that were read as gaps, by column, as a Table has them.

    >>> fitted = {"name": "city", "type": "category", "categories": ["Oslo", "Rome"], "gaps": True}
    >>> column_lines({"columns": [fitted], "left_out": {"id": "counts the rows"}})
    ['categories: city (2)', 'with gaps: city', 'left out: id counts the rows']
    """
    columns = preprocessing.get("columns", [])
    used = [column for column in columns if names_of(column)]
    lines = [
        _line(title, [_shown(column) for column in used if column["type"] == kind])
        for kind, title in _TYPES.items()
    ]
    lines.append(_line("with gaps", [column["name"] for column in columns if column["gaps"]]))
    for column in columns:
        if words := column.get("gap_words"):
            shown = list((gap_cells or {}).get(column["name"], map(repr, words)))
            lines.append(_line(f"read as gaps in {column['name']}", shown))
    constant = [column["name"] for column in columns if not names_of(column)]
    lines.append(_line("never vary", constant))
    left_out = preprocessing.get("left_out", {})
    lines.append(_line("left out", [f"{name} {why}" for name, why in left_out.items()], "; "))
    return [line for line in lines if line]


def label_lines(ends: NDArray[np.float64], names: Sequence[str]) -> list[str]:
    """A line per target: how many rows are exact, intervals, censored or missing in ends (n, t, 2).

    >>> ends = np.array([[[3, 3]], [[2, 5]], [[90, np.inf]], [[-np.inf, np.inf]]])
    >>> label_lines(ends, ["age"])
    ['age: 1 exact, 1 in an interval, 1 at least or at most, 1 missing']
    """
    lines = []
    for name, (low, high) in zip(names, np.moveaxis(ends, 0, -1), strict=True):
        is_open = np.isinf(low).astype(int) + np.isinf(high)
        counts = {
            "exact": (low == high).sum(),
            "in an interval": ((is_open == 0) & (low < high)).sum(),
            "at least or at most": (is_open == 1).sum(),
            "missing": (is_open == 2).sum(),
        }
        shown = ", ".join(f"{count} {what}" for what, count in counts.items() if count)
        lines.append(f"{name}: {shown}")
    return lines


def leaks(table: "Table") -> list[tuple[str, str]]:
    """Number columns that equal a target up to factor and offset in train rows, with the target.

    Such a column gives the target away, and it is rarely known for new samples.
    """
    rows, found = table.rows("train"), []
    inputs = [
        (name, column)
        for column in table.preprocessing.get("columns", [])
        for name in names_of(column)
    ]
    if table.kind != "table" or len(rows) < _FEWEST_ROWS or len(inputs) != table.x.shape[1]:
        return []
    y = _standardised(table.y[rows])
    for i, (name, column) in enumerate(inputs):
        if column["type"] == "number" and name == column["name"]:
            x = _standardised(table.x[rows, i].astype(np.float64))
            same = np.abs(x @ y) > _SAME * len(rows)
            found += [(name, table.target_names[j]) for j in np.flatnonzero(same)]
    return found


def _standardised(values: Any) -> Any:
    centred = values - values.mean(axis=0)
    deviation = centred.std(axis=0)
    return centred / np.where(deviation > 0, deviation, np.inf)


def _shown(column: dict[str, Any]) -> str:
    if column["type"] == "category":
        return f"{column['name']} ({len(column['categories'])})"
    if column["type"] == "date":
        parts = ", ".join(["days", *column["parts"]])
        return f"{column['name']} ({words_of_format(column['format'])}: {parts})"
    return str(column["name"])


def _line(title: str, words: list[str], between: str = ", ") -> str:
    """A line with the first words and the number of further ones; "" if there are none."""
    more = f"{between}and {len(words) - _MOST_LISTED} more" if len(words) > _MOST_LISTED else ""
    return f"{title}: {between.join(words[:_MOST_LISTED])}{more}" if words else ""
