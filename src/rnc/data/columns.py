"""Find the type of a column of a table: number, date, boolean, category, or unusable.

`look_at` decides by all rows, so that the type does not depend on the split. Statistics of the
values come from the train rows only, in `rnc.data.features`.
"""

import math
import re
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
from numpy.typing import NDArray

from rnc.data.dates import MOST_ODD, date_format, read_dates
from rnc.data.errors import DataError

MOST_CATEGORIES = 100

YES = ("yes", "y", "true", "t", "on", "1", "1.0")
NO = ("no", "n", "false", "f", "off", "0", "0.0")

DECIMAL_COMMA = r"[-+\d.]*,\d+"
"""What a number with a decimal comma looks like at first sight."""

_FAMILIES = (  # of words for yes and no, in small letters
    ({"yes", "y"}, {"no", "n"}),
    ({"true", "t"}, {"false", "f"}),
    ({"on"}, {"off"}),
)
_MOST_WORDS = 20
_MOST_PLACEHOLDERS = 3
_MOST_CODES = 20
_FEWEST_ROWS = 10  # with fewer rows, all-different values do not show that a column is an id
_FEWEST_TEXTS = 20
_NEARLY_ALL = 0.9
_ID_NAME = re.compile(
    r"(?:.*[_\W])?(?:id|uuid|guid)|index|idx|row|rownames|key|nr|no|unnamed: \d+|"
)
_TIME_NAME = re.compile(
    r"t|(?:.*[_\W])?(?:time|day|hour|minute|second|week|month|year|step|frame)s?"
)
_CAMEL_ID = re.compile(r".*[a-z](?:Id|ID)")


class ColumnKind(NamedTuple):
    """The result of `look_at`."""

    type: str | None
    """number, date, boolean or category; None if the column is unusable."""
    reason: str = ""
    """Why it is unusable."""
    words: tuple[str, ...] = ()
    """Texts among numbers or dates, which count as gaps."""
    format: str | None = None
    """The format of dates."""


def look_at(values: pd.Series) -> ColumnKind:
    """The kind of a column, by its dtype and all its values."""
    if isinstance(values.dtype, pd.CategoricalDtype):
        return ColumnKind("category")
    if values.dtype.kind in "mc":
        what = "durations" if values.dtype.kind == "m" else "complex numbers"
        return ColumnKind(None, f"holds {what}; turn them into plain numbers")
    known = values.dropna()
    if known.empty or values.dtype.kind in "iuf":
        return ColumnKind("number")
    if values.dtype.kind == "b" or all(isinstance(value, bool | np.bool_) for value in known):
        return ColumnKind("boolean")
    if (cells := nested(known)) is not None:
        return ColumnKind(None, f"holds {cells}, not one value per row")
    return _look_at_text(values)


def _look_at_text(values: pd.Series) -> ColumnKind:
    if says_yes_or_no(values):
        return ColumnKind("boolean")
    numbers, is_text = as_numbers(values)
    if not is_text.any():
        return ColumnKind("number")
    if (form := date_format(values)) is not None:
        _, odd = read_dates(values, form)
        return ColumnKind("date", words=_words(values[odd]), format=form)
    words, share = _words(values[is_text]), is_text.sum() / values.notna().sum()
    few = share <= MOST_ODD and len(words) <= _MOST_WORDS
    if few or (share <= 0.5 and _stand_for_gaps(words, numbers)):
        return ColumnKind("number", words=words)
    return ColumnKind("category")


def _stand_for_gaps(words: tuple[str, ...], numbers: NDArray[np.float64]) -> bool:
    """Whether a few texts such as "unknown" are gaps in a column of numbers.

    If there are few different numbers, they may be codes of categories, and the texts, too.
    """
    plain = len(words) <= _MOST_PLACEHOLDERS and not any(re.search(r"\d", word) for word in words)
    return plain and len(np.unique(numbers[~np.isnan(numbers)])) > _MOST_CODES


def says_yes_or_no(values: pd.Series) -> bool:
    """Whether all values are words for yes or no, and both occur."""
    unique = values.dropna().unique()
    seen = set(_small(unique)) if len(unique) <= _MOST_WORDS else set()
    return any(
        seen <= yes | no and seen & yes and seen & no
        for yes, no in _FAMILIES  # without 1 and 0: those are numbers
    )


def as_booleans(column: pd.Series) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """The column as 1 for yes, 0 for no, NaN for gaps; and which rows hold something else."""
    words = {word: 1.0 for word in YES} | {word: 0.0 for word in NO}
    known = column.notna().to_numpy()
    numbers = np.full(len(column), np.nan)
    numbers[known] = [words.get(word, np.nan) for word in _small(column[known])]
    return numbers, np.isnan(numbers) & known


def as_numbers(column: pd.Series) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """The column as float64 with NaN for gaps, and which rows hold something else than a number."""
    if isinstance(column.dtype, pd.CategoricalDtype):
        column = column.astype(object)
    dates = pd.api.types.is_datetime64_any_dtype(column.dtype)
    if dates or column.dtype.kind in "mc" or nested(column) is not None:
        return np.full(len(column), np.nan), column.notna().to_numpy()
    # errors="coerce" reads True as 1 in an object column, too.
    try:
        read = pd.to_numeric(column, errors="coerce")
    except OverflowError:  # an int beyond float64, which "coerce" does not cover
        read = pd.to_numeric(column.map(_as_float), errors="coerce")
    numbers = read.to_numpy(dtype=np.float64, na_value=np.nan)
    return numbers, np.isnan(numbers) & column.notna().to_numpy()


def _as_float(value: Any) -> Any:
    """An int as a float, infinite if it is too large; any other value unchanged."""
    if not isinstance(value, int):
        return value
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def as_text(column: pd.Series) -> pd.Series:
    """Every value as text; gaps stay gaps."""
    return column.astype(object).map(str, na_action="ignore")


def names_rows(values: pd.Series) -> str | None:
    """Why a column only identifies the row, as an id or a counter does; None if it may say more.

    >>> names_rows(pd.Series(range(1, 41), name="n")), names_rows(pd.Series(range(40)) * 2)
    ('counts the rows', None)
    """
    known = values.dropna()
    if len(known) < max(_FEWEST_ROWS, len(values)) or not known.is_unique:
        return None
    if isinstance(values.dtype, pd.CategoricalDtype) or values.dtype.kind == "M":
        return None
    numbers, is_text = as_numbers(values)
    if is_text.any() and date_format(values) is not None:
        return None
    whole = not is_text.any() and bool((numbers == np.round(numbers)).all())
    name = str(values.name).strip()
    if whole and numbers.min() in (0, 1) and np.ptp(numbers) == len(numbers) - 1:
        return None if _TIME_NAME.fullmatch(name.lower()) else "counts the rows"
    named = bool(_ID_NAME.fullmatch(name.lower()) or _CAMEL_ID.fullmatch(name))
    if named and (whole or is_text.all()):
        return "names the rows: all values differ"
    return None


def too_many_texts(values: pd.Series, train: pd.Series, *, strict: bool) -> str | None:
    """Why a column of text cannot be a category: it has too many values. None if it can be one.

    Unless `strict`, a text that differs in nearly every row is refused even if there are few rows.
    """
    known = as_text(values).dropna()
    if as_text(train).nunique() <= MOST_CATEGORIES:
        nearly_all = known.nunique() > _NEARLY_ALL * len(known)
        if strict or not nearly_all or len(known) < _FEWEST_TEXTS:
            return None
    reason = f"is text with {known.nunique()} different values in {len(known)} rows"
    _, is_text = as_numbers(values)
    row, value = values.index[int(is_text.argmax())], str(values.iloc[int(is_text.argmax())])
    if is_text.sum() < values.notna().sum() / 2:
        reason = f"holds numbers and text: row {row} is {value[:40]!r}"
    elif known.head(100).str.fullmatch(r"\W{0,2}[\d.,' ]*\d\s?\D{0,4}").mean() > _NEARLY_ALL:
        reason += f"; if {value!r} in row {row} is a number, write plain numbers"
        reason += " or try --decimal ," if re.fullmatch(DECIMAL_COMMA, value) else ""
    return reason


def nested(values: pd.Series) -> str | None:
    """What cells hold instead of single values, such as "lists"; None if all are single values."""
    kinds = {list: "lists", tuple: "lists", set: "lists", np.ndarray: "lists", dict: "objects"}
    kinds |= {bytes: "bytes", complex: "complex numbers", np.complex128: "complex numbers"}
    cells = values if values.dtype == object else ()
    return next((kinds[type(value)] for value in cells if type(value) in kinds), None)


def _words(values: pd.Series) -> tuple[str, ...]:
    return tuple(sorted(set(as_text(values))))


def _small(values: Iterable[Any]) -> list[str]:
    return [str(value).strip().lower() for value in values]


def finite_numbers(values: pd.Series, place: str) -> NDArray[np.float64]:
    """A column as finite numbers, with NaN for gaps. Raises for other cells and names the row."""
    numbers, is_text = as_numbers(values)
    for bad, expected in ((is_text, "a number"), (np.isinf(numbers), "a finite number")):
        if bad.any():
            first = int(bad.argmax())
            value = values.iloc[first]
            shown = repr(value) if isinstance(value, str) else str(value)
            more = f" {bad.sum() - 1} more rows are like it." if bad.sum() > 1 else ""
            if isinstance(value, str) and re.fullmatch(DECIMAL_COMMA, value.strip()):
                more += " If its comma is the decimal sign, add --decimal , (decimal=',')."
            raise DataError(
                f"{place} row {values.index[first]}: {values.name} is {shown}, expected "
                f"{expected}.{more}"
            )
    return numbers
