"""Turn a column of dates into numbers: the time since the first one, and positions in cycles.

    season    position in the year: the day of the year, from 0, of 365.25
    weekday   position in the week: the day, from 0 for Monday, of 7
    hour      position in the day: its seconds, of 86,400

A position in a cycle becomes the sine and cosine of an angle, so that December is near January.
An offset from UTC is dropped: times are local.
"""

import datetime
import re
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
from numpy.typing import NDArray

ISO = "ISO 8601"

MOST_ODD = 0.05
"""The share of cells that may be something else in a column of numbers or dates."""

Times = NDArray[np.datetime64]
"""Microseconds, NaT for a gap."""

_ISO = r"\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2}(?:\.\d+)?)?)?"
_TIME = r":\d{2}(?:\.\d+)?"  # the end of a time of day
_OFFSET = r"\s?(?:Z|UTC|[+-]\d{2}:?\d{2})$"
_DAYS = (  # with patterns, since strptime alone would take 1.2.0034 or 3/4/5 for a date
    ("%Y/%m/%d", r"\d{4}/\d{1,2}/\d{1,2}"),
    ("%d.%m.%Y", r"\d{1,2}\.\d{1,2}\.[12]\d{3}"),
    ("%m/%d/%Y", r"\d{1,2}/\d{1,2}/[12]\d{3}"),
    ("%d/%m/%Y", r"\d{1,2}/\d{1,2}/[12]\d{3}"),
    ("%d-%m-%Y", r"\d{1,2}-\d{1,2}-[12]\d{3}"),
    ("%m-%d-%Y", r"\d{1,2}-\d{1,2}-[12]\d{3}"),
    ("%d.%m.%y", r"\d{2}\.\d{2}\.\d{2}"),
    ("%m/%d/%y", r"\d{1,2}/\d{1,2}/\d{2}"),
    ("%d/%m/%y", r"\d{1,2}/\d{1,2}/\d{2}"),
    ("%d %b %Y", r"\d{1,2} [A-Za-z]{3} \d{4}"),
    ("%d %B %Y", r"\d{1,2} [A-Za-z]+ \d{4}"),
    ("%d-%b-%Y", r"\d{1,2}-[A-Za-z]{3}-\d{4}"),
    ("%d-%b-%y", r"\d{1,2}-[A-Za-z]{3}-\d{2}"),
    ("%b %d, %Y", r"[A-Za-z]{3} \d{1,2}, \d{4}"),
    ("%B %d, %Y", r"[A-Za-z]+ \d{1,2}, \d{4}"),
)
_CLOCKS = (
    ("", ""),
    (" %H:%M", r" \d{1,2}:\d{2}"),
    (" %H:%M:%S", r" \d{1,2}:\d{2}:\d{2}"),
    (" %H:%M:%S.%f", r" \d{1,2}:\d{2}:\d{2}\.\d+"),
    (" %I:%M %p", r" \d{1,2}:\d{2} ?[AaPp][Mm]"),
    (" %I:%M:%S %p", r" \d{1,2}:\d{2}:\d{2} ?[AaPp][Mm]"),
)
_PATTERNS: dict[str, str] = {
    ISO: _ISO,
    "%Y-%m": r"(?:19|20)\d{2}-(?:0[1-9]|1[0-2])",
    **{day + clock: first + second for day, first in _DAYS for clock, second in _CLOCKS},
    "%H:%M": r"[0-2]\d:[0-5]\d",
    "%H:%M:%S": r"[0-2]\d:[0-5]\d:[0-5]\d",
}
_LOOKED_AT = 100
_DAY = np.timedelta64(1, "D") / np.timedelta64(1, "us")  # in microseconds


def date_format(values: pd.Series) -> str | None:
    """The format in which nearly all values are dates or times; None if there is none.

    In 3/4/2024 the month comes first, unless another row rules that out.

    >>> date_format(pd.Series(["31.12.2024", None, "1.2.2023"])), date_format(pd.Series(["1.2.3"]))
    ('%d.%m.%Y', None)
    """
    if _has_dates(values):
        return ISO
    if values.dtype.kind in "biufc":
        return None
    known = values.dropna()
    first, best, most = _written(known.head(_LOOKED_AT)).tolist(), None, 0.0
    for name, pattern in _PATTERNS.items():  # by re, which is far faster than pandas here
        if most < 1 and sum(map(bool, map(re.compile(pattern).fullmatch, first))) > len(first) / 2:
            _, odd = read_dates(known, name)
            best, most = max((name, 1 - odd.mean()), (best, most), key=lambda found: found[1])
    return best if most >= 1 - MOST_ODD else None


def read_dates(values: pd.Series, name: str) -> tuple[Times, NDArray[np.bool_]]:
    """The column as times in a format of `date_format`, and which rows hold something else."""
    times = np.full(len(values), np.datetime64("NaT", "us"))
    known = values.notna().to_numpy()
    if _has_dates(values):
        times[known] = _as_times(values[known])
    elif known.any():
        texts = _written(values)
        fits = texts.str.fullmatch(_PATTERNS[name]).to_numpy(dtype=bool)
        times[np.flatnonzero(known)[fits]] = _parsed(texts[fits], name)
    return times, np.isnat(times) & known


def parts_of(times: Times) -> list[str]:
    """The cycles in which these times have more than one position."""
    days = times.astype("datetime64[D]")
    in_month = days - times.astype("datetime64[M]").astype("datetime64[D]")
    places = {part: np.unique(_places(times, part)) for part in CYCLES}
    if len(np.unique(in_month)) == 1:  # the first of every month falls on any weekday
        del places["weekday"]
    return [part for part, seen in places.items() if len(seen) > 1]


def elapsed_days(times: Times, first: str) -> NDArray[np.float64]:
    """Days since the first date, with fractions; NaN for a gap."""
    since = times - np.datetime64(first, "us")
    days: NDArray[np.float64] = since / np.timedelta64(1, "us") / _DAY
    return days


def cycle(times: Times, part: str) -> list[NDArray[np.float64]]:
    """Sine and cosine of the position in a cycle; both 0 for a gap."""
    angles = 2 * np.pi * _places(times, part) / CYCLES[part]
    return [np.where(np.isnat(times), 0.0, wave(angles)) for wave in (np.sin, np.cos)]


CYCLES = {"season": 365.25, "weekday": 7.0, "hour": 86400.0}
"""The length of each cycle: in days, for the hour in seconds."""


def _places(times: Times, part: str) -> NDArray[np.float64]:
    days = times.astype("datetime64[D]")
    if part == "season":
        since: Any = days - times.astype("datetime64[Y]").astype("datetime64[D]")
        place = since / np.timedelta64(1, "D")
    elif part == "weekday":
        place = (days - np.datetime64("1970-01-05", "D")) / np.timedelta64(1, "D") % 7
    else:
        place = (times - days.astype("datetime64[us]")) / np.timedelta64(1, "s")
    return np.asarray(place, np.float64)


def _has_dates(values: pd.Series) -> bool:
    """Whether a column holds dates by its dtype, or as date objects of Python."""
    if pd.api.types.is_datetime64_any_dtype(values.dtype):
        return True
    known = values.dropna()
    return (
        len(known) > 0
        and values.dtype.kind == "O"
        and all(isinstance(value, datetime.date) for value in known)
    )


def _as_times(values: pd.Series) -> Times:
    if values.dtype.kind == "O":
        plain = [np.datetime64(_without_zone(value), "us") for value in values]
        return np.array(plain, "datetime64[us]")
    if getattr(values.dtype, "tz", None) is not None:
        values = values.dt.tz_localize(None)
    return np.asarray(values.to_numpy(dtype="datetime64[us]"))


def _without_zone(value: Any) -> datetime.date:
    is_time = isinstance(value, datetime.datetime)
    plain: datetime.date = value.replace(tzinfo=None) if is_time else value
    return plain


def _written(values: pd.Series) -> pd.Series:
    """The known values as text, without surrounding blanks and without offsets from UTC."""
    known = values.dropna().astype(object).map(str).astype("str").str.strip()
    if not known.str.contains(rf"{_TIME}{_OFFSET}").any():  # replacing takes long
        return known
    return known.str.replace(rf"({_TIME}){_OFFSET}", r"\1", regex=True)


def _parsed(texts: pd.Series, name: str) -> Times:
    """Texts that match a format's pattern, as times; NaT for impossible dates such as 31.2.2024."""
    style = "ISO8601" if name == ISO else name
    times = pd.to_datetime(texts, format=style, errors="coerce")
    return np.asarray(times.to_numpy(dtype="datetime64[us]"))


def words_of_format(name: str) -> str:
    """A date format in words.

    >>> words_of_format("%d.%m.%Y %H:%M"), words_of_format("%m/%d/%Y")
    ('day.month.year hour:minute', 'month/day/year')
    """
    words = {"Y": "year", "y": "year", "m": "month", "b": "month", "B": "month", "d": "day"}
    words |= {"H": "hour", "I": "hour", "M": "minute", "S": "second", "f": "fraction", "p": "AM/PM"}
    return re.sub(r"%(\w)", lambda match: words[match[1]], name)
