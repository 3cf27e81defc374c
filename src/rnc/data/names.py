"""Names of columns: each may be there once, whatever the format of the data. Names of rows.

Readers such as pandas call the second of two columns y y.1, and a copy of the target would become
an input.
"""

import unicodedata
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

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


def named_once(pairs: list[tuple[str, Any]], place: str) -> dict[str, Any]:
    """An object of JSON, as its `object_pairs_hook`: of two values of one name it takes none."""
    check_names((name for name, _ in pairs), place)
    return dict(pairs)


class NumberedRows:
    """Names of rows that are their numbers: an array of texts, which takes 8 bytes a row.

    As texts they would take 84. What is indexed is an array of texts, or one text.

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
        """All names."""
        return list(self)


def names_of_rows(names: Any) -> "NDArray[np.str_] | NumberedRows":
    """Names as texts; numbers become them when they are looked at."""
    values = np.asarray(names)
    return NumberedRows(values) if values.dtype.kind in "iu" else values.astype(str)
