"""Errors and messages about data: they name the place, the first few cases, and what to do."""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rnc.printable import printable

_MOST_LISTED = 10


class DataError(ValueError):
    """The data cannot be used. The message says where the problem is and what to do."""

    def __init__(self, message: str) -> None:
        super().__init__(printable(message))  # messages quote names and cells of the user's data


class DataWarning(UserWarning):
    """The data can be used, but something may surprise the user. The message has counts."""

    def __init__(self, message: str) -> None:
        super().__init__(printable(message))


def first_few(values: Iterable[Any], limit: int = 10) -> str:
    """The first values, for a message.

    >>> first_few(range(12), limit=3)
    '0, 1, 2, ...'
    """
    first = [str(value) for value in islice(values, limit + 1)]
    return ", ".join(first[:limit]) + (", ..." if len(first) > limit else "")


def did_you_mean(name: str, known: Iterable[str], limit: int = 1) -> str:
    """A sentence that suggests known names similar to a wrong one; "" if there are none.

    >>> did_you_mean("splt", ["split", "seed"])
    " Did you mean 'split'?"
    """
    close = get_close_matches(name, list(known), n=limit)
    return f" Did you mean {' or '.join(map(repr, close))}?" if close else ""


def unusable(place: str, what: str, reasons: Sequence[str], total: int, advice: str) -> DataError:
    """The error for files that cannot be used. It shows the first ten reasons, a line each."""
    lines = [*reasons[:_MOST_LISTED], *(["..."] if len(reasons) > _MOST_LISTED else [])]
    shown = "".join(f"\n  {line}" for line in lines)
    return DataError(f"{place}: {len(reasons)} of {total} {what} cannot be used:{shown}\n{advice}")


def not_finite(predictions: NDArray[np.float64], names: NDArray[np.str_]) -> tuple[str, ...]:
    """A note about samples without a finite prediction; () if there are none.

    >>> not_finite(np.array([[1.0], [np.nan]]), np.array(["a.png", "b.png"]))[0]
    '1 of 2 predictions are not finite: b.png. Look for extreme values there.'
    """
    bad = np.asarray((~np.isfinite(predictions)).any(axis=tuple(range(1, predictions.ndim))))
    return not_finite_note(names[bad].tolist(), len(bad))


def not_finite_note(bad: Sequence[str], n: int) -> tuple[str, ...]:
    """The note of `not_finite`, given the names of the bad samples and the number of all."""
    if not bad:
        return ()
    found = f"{len(bad)} of {n} predictions are not finite: {first_few(bad, 5)}. "
    if len(bad) == n:
        return (found + "The weights may be damaged, or the training diverged.",)
    return (found + "Look for extreme values there.",)
