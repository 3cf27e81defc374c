"""Read numbers as people write them: decimal commas, thousands separators, signs, units.

`read_decimals` converts columns of such texts if their meaning is clear, or if the user gives the
decimal sign. `check_disguised` raises for other columns of numbers as text: each of their values
would become a category.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd  # type: ignore[import-untyped]

from rnc.data.columns import look_at
from rnc.data.dates import MOST_ODD
from rnc.data.errors import DataError

_EXPONENT = r"(?:[eE][+-]?[0-9]+)?"
_BLANKS = " '\u2019\u00a0\u202f\u2009"  # thousands separators other than comma and point
_PLAIN = r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)" + _EXPONENT
_COMMAS = r"[+-]?[1-9][0-9]{0,2}(?:,[0-9]{3})+(?:\.[0-9]+)?"  # 1,200.5
_SPACED = rf"[+-]?[1-9][0-9]{{0,2}}(?:[{_BLANKS}][0-9]{{3}})+(?:\.[0-9]+)?"  # 1 200.5
_MARKED_WHOLE = rf"[0-9]{{1,3}}(?:[.{_BLANKS}][0-9]{{3}})+(?![0-9])"
_UNSIGNED_COMMA = rf"(?:{_MARKED_WHOLE}|[0-9]+)(?:,[0-9]+)?{_EXPONENT}"
_DECIMAL_COMMA = rf"[+-]?{_UNSIGNED_COMMA}"
_SHOWN_FIRST = 50

# Any number. Separators may stand before groups of three digits; a minus may be a dash or brackets.
_ANY = rf"(?:\d{{1,3}}(?:[.,_{_BLANKS}]\d{{3}})+(?:[.,]\d+)?|\d+(?:[.,]\d*)?|[.,]\d+){_EXPONENT}"
_SIGN = "[+\u2212\u2013-]?"
_MARKED = re.compile(rf"{_SIGN}\s?{_ANY}|\({_ANY}\)")
_CURRENCY = "[$\u20ac\u00a3\u00a5\u20b9\u20bd\u20a9]|EUR|USD|GBP|CHF|JPY|CNY|INR|Rs\\.?|kr\\.?"
_UNIT = (
    "%|\u2030|\u00b0[CFK]?|[^\\W\\d_]{1,6}[23\u00b2\u00b3]?(?:/[^\\W\\d_]{1,4}[23\u00b2\u00b3]?)?"
)
_WITH_UNIT = re.compile(
    rf"{_SIGN}\s?({_CURRENCY}|[<>~\u2264\u2265\u2248]?)\s?{_SIGN}{_ANY}\s?({_CURRENCY}|{_UNIT}|)"
)
_NEARLY_ALL = 0.9
_MOST_SIZES = 10  # up to this many texts with a unit may be categories, such as 0.5 l and 1 l


class Cells(NamedTuple):
    """How to read the cells of a table."""

    text: Sequence[str] = ()
    """Columns to read as text even where all values look like numbers."""
    numbers: Sequence[str] = ()
    """Columns that are known to hold numbers, even if some rows hold texts."""
    decimal: str | None = None
    """The decimal sign, "," or "."; None means that it is inferred."""


BY_LOOK = Cells()
"""The default: nothing is known about the columns, and the decimal sign is inferred."""


# --------------------------------------------------------------------------------------- reading


def read_decimals(frame: pd.DataFrame, cells: Cells, separator: str | None = None) -> pd.DataFrame:
    """The frame, with numbers in place of texts such as "3,14" and "1,200.5".

    `separator` is the field separator of a CSV. It is None for formats with typed cells. Their
    texts are converted only if the user gave the decimal sign.
    """
    if cells.decimal is None and separator is None:
        return frame
    names = [name for name in frame if name not in cells.text and _has_texts(frame[name])]
    read = {str(n): _as_written(frame[n], cells, separator) for n in names}
    return frame.assign(**{name: values for name, values in read.items() if values is not None})


def _has_texts(values: pd.Series) -> bool:
    """Whether a column has texts, which may be numbers. Columns of type category do not count."""
    if values.dtype.kind in "biufcmM" or isinstance(values.dtype, pd.CategoricalDtype):
        return False
    return bool(_is_text(values).any())


def _is_text(values: pd.Series) -> pd.Series:
    if values.dtype != object:
        return values.notna()
    return values.map(lambda value: isinstance(value, str)).astype(bool)


def _has_digits(texts: pd.Series) -> pd.Series:
    return texts.astype("str").str.contains(r"\d").astype(bool)


def _as_written(values: pd.Series, cells: Cells, separator: str | None) -> pd.Series | None:
    """The column as numbers, if its texts are numbers with commas; else None.

    A comma is the decimal sign if the user says so, or if the fields have another separator and
    some number has no other reading, such as 3,14. A comma separates thousands if it separates the
    fields, too, or if the user says that the point is the decimal sign. If the user gave the
    decimal sign, texts without digits may occur between the numbers, and are kept.
    """
    texts = values[_is_text(values).to_numpy()].astype("str").str.strip()
    digits = texts[_has_digits(texts).to_numpy()]
    with_comma = digits[digits.str.contains(",")]

    def all_are(pattern: str) -> bool:
        return all(part.str.fullmatch(pattern).all() for part in (digits[:_SHOWN_FIRST], digits))

    if digits.empty:
        return None
    if cells.decimal == ",":
        if all_are(_DECIMAL_COMMA):
            return _replaced(values, digits, _without_marks, cells)
        return _replaced(values, digits, pd.to_numeric, cells) if all_are(_PLAIN) else None
    if cells.decimal == ".":
        fits = all_are(f"{_COMMAS}|{_SPACED}|{_PLAIN}")
        return _replaced(values, digits, _without_commas, cells) if fits else None
    if with_comma.empty or len(digits) < len(texts):
        return None
    if separator != "," and all_are(_DECIMAL_COMMA):
        either = with_comma.str.fullmatch(_COMMAS).all()  # 1,200: thousands, or three decimals?
        return None if either else _replaced(values, digits, _without_marks, cells)
    if separator == "," and all_are(f"{_COMMAS}|{_PLAIN}"):
        return _replaced(values, digits, _without_commas, cells)
    return None


def _replaced(
    values: pd.Series, digits: pd.Series, read: Callable[[Any], Any], cells: Cells
) -> pd.Series | None:
    """The column with numbers for its texts with digits; None if other texts are too many."""
    cells_now, texts = values.to_numpy(object, copy=True), _is_text(values).to_numpy()
    places = np.flatnonzero(texts)[_has_digits(values[texts]).to_numpy()]
    cells_now[places] = read(digits).to_numpy(object)
    mixed = pd.Series(cells_now, index=values.index, name=values.name)
    if len(places) == texts.sum():
        return mixed.infer_objects()
    is_number = values.name in cells.numbers or look_at(mixed).type == "number"
    return mixed if is_number else None


def _without_marks(texts: pd.Series) -> pd.Series:
    plain = texts.str.replace(f"[.{_BLANKS}]", "", regex=True).str.replace(",", ".")
    return pd.to_numeric(plain)


def _without_commas(texts: pd.Series) -> pd.Series:
    return pd.to_numeric(texts.str.replace(f"[,{_BLANKS}]", "", regex=True))


def with_points(text: str) -> str:
    """A text with points for the decimal commas of its numbers, without thousands separators.

    >>> with_points("1.200,5-1.300"), with_points("[1,5; 2)")
    ('1200.5-1300', '[1.5; 2)')
    """

    def plain(number: re.Match[str]) -> str:
        return re.sub(f"[.{_BLANKS}]", "", number[0]).replace(",", ".")

    return re.sub(_UNSIGNED_COMMA, plain, text)


# -------------------------------------------------------------------------------------- refusing


def check_disguised(frame: pd.DataFrame, place: str) -> tuple[str, ...]:
    """Raise for columns of numbers as text; return notes about columns that may be categories.

    Numbers such as 1,200 raise even if they are few: in a column of smaller numbers they would
    become gaps. Numbers with a unit raise unless they have so few values that they may be sizes.
    """
    notes = []
    for name in frame:
        values = frame[name]
        if not _has_texts(values):
            continue
        found = _disguised(values)
        if found is None:
            continue
        cells, has_marks = found
        shown = f"row {cells.index[0]} is {cells.iloc[0]!r}"
        more = f", and {len(cells) - 1} more are like it" if len(cells) > 1 else ""
        if not has_marks and cells.nunique() <= _MOST_SIZES:
            notes.append(
                f"{name} is {cells.nunique()} categories, such as {cells.iloc[0]!r}. If they are "
                "numbers, write them without their unit."
            )
            continue
        advice = _advice(values) if has_marks else "Write plain numbers, without their unit."
        raise DataError(
            f"{place}: column {name!r} seems to hold numbers, written as text: {shown}{more}. "
            f"{advice} Or leave the column out with --exclude-column (exclude_columns=)."
        )
    return tuple(notes)


def _disguised(values: pd.Series) -> tuple[pd.Series, bool] | None:
    """The cells with numbers in disguise, and True for notation or False for a unit; else None."""
    is_text, known = _is_text(values), int(values.notna().sum())
    texts = values[is_text].astype(object).map(str.strip)
    digits = texts[_has_digits(texts).to_numpy()]
    plain = digits.astype("str").str.fullmatch(_PLAIN).astype(bool)
    odd, numbers = digits[~plain], int(plain.sum()) + known - len(texts)
    if odd.empty or len(digits) + known - len(texts) < known / 2:
        return None
    enough = _NEARLY_ALL * (numbers + len(odd))
    kinds = {text: _MARKED.fullmatch(text) is not None for text in odd.unique()}
    marked = odd[odd.map(kinds)]
    if len(marked) and numbers + len(marked) >= enough:
        return marked, True
    matches = {text: _WITH_UNIT.fullmatch(text) for text in odd.unique()}
    units = odd.map({t: " ".join(match.groups()) for t, match in matches.items() if match}).dropna()
    units = units[units != " "]
    if units.empty:
        return None
    same = odd[units.index[units == units.mode()[0]]]
    if numbers + len(same) >= enough and len(same) > MOST_ODD * known:
        return same, False
    return None


def _advice(values: pd.Series) -> str:
    signs = [s for s in ",." if _as_written(values, Cells(decimal=s), None) is not None]
    words = {",": "a comma", ".": "a point"}
    ways = [
        f"If their decimal sign is {words[s]}, add --decimal {s} (decimal={s!r})." for s in signs
    ]
    return " ".join([*ways, "Write plain numbers, all in one way, such as -1200.5."])
