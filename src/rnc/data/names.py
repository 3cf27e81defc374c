"""Check that the names of columns are unique, and hold the names of rows.

Readers such as pandas rename the second of two columns y to y.1. A copy of the target would then
become an input.
"""

import unicodedata
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rnc.data.errors import DataError


def check_names(names: Iterable[Any], place: str) -> None:
    """Raise if two columns have the same name after trimming. Empty names may repeat.

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


def named_once(pairs: list[tuple[str, Any]], place: str) -> dict[str, Any]:
    """A JSON object as a dict, for `object_pairs_hook`. Raises if a name occurs twice."""
    check_names((name for name, _ in pairs), place)
    return dict(pairs)


class NumberedRows:
    """Row numbers that serve as names: like an array of texts, but with 8 bytes per row.

    An array of texts would take 84 bytes per row. Indexing gives an array of texts, or one text.

    >>> names = NumberedRows(np.array([2, 3, 7]))
    >>> len(names), names[1:].tolist(), str(names[0]), np.asarray(names).tolist()
    (3, ['3', '7'], '2', ['2', '3', '7'])
    """

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, numbers: NDArray[np.integer[Any]]) -> None:
        self.numbers = numbers
        self.shape, self.dtype = numbers.shape, numbers[:0].astype(str).dtype

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, index: Any) -> Any:
        return self.numbers[index].astype(str)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        texts = self.numbers.astype(str)
        return texts if dtype is None else texts.astype(dtype)

    def __iter__(self) -> Iterator[str]:
        return map(str, self.numbers.tolist())

    def __eq__(self, other: object) -> Any:
        return np.asarray(self) == other

    def tolist(self) -> list[str]:
        """All names as texts."""
        return list(self)


def names_of_rows(names: Any) -> "NDArray[np.str_] | NumberedRows":
    """Names of rows as texts. Whole numbers are converted only when they are read."""
    values = np.asarray(names)
    return NumberedRows(values) if values.dtype.kind in "iu" else values.astype(str)
