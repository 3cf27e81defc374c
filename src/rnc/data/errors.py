"""What every message about data has in common: where it is, and what to do."""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from itertools import islice
from typing import Any


class DataError(ValueError):
    """The data cannot be used as they are; the message says where, and what to do about it."""


def some(values: Iterable[Any], limit: int = 10) -> str:
    """The first values, for a message.

    >>> some(range(12), limit=3)
    '0, 1, 2, ...'
    """
    first = [str(value) for value in islice(values, limit + 1)]
    return ", ".join(first[:limit]) + (", ..." if len(first) > limit else "")


def missing_column(place: str, name: str, columns: Sequence[str]) -> DataError:
    """The error for a column that is not there, with the columns that are."""
    close = get_close_matches(name, columns, n=3)
    hint = f" Did you mean {' or '.join(map(repr, close))}?" if close else ""
    return DataError(f"{place} has no column {name!r}; its columns: {some(columns, 30)}.{hint}")
