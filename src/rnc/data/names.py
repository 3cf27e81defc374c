"""Names of columns: each may be there once, whatever the format of the data.

Readers such as pandas call the second of two columns y y.1, and a copy of the target would become
an input.
"""

import unicodedata
from collections.abc import Iterable
from typing import Any

from rnc.data.errors import DataError


def check_names(names: Iterable[Any], place: str) -> None:
    """Raise if two columns have one name, but for blanks around it; empty names do not count.

    >>> check_names(["x", "y", "y "], "t.csv")
    Traceback (most recent call last):
    rnc.data.errors.DataError: t.csv has column 'y' more than once. Rename one of them.
    """
    seen: set[str] = set()
    for name in names:
        plain = unicodedata.normalize("NFC", str(name)).strip()
        if plain and plain in seen:
            raise DataError(f"{place} has column {plain!r} more than once. Rename one of them.")
        seen.add(plain)
