"""Turn columns of a table into numbers for a network: standardise, one-hot, fill gaps.

All statistics come from the train rows. They are kept as a dict that JSON can hold:

    {"columns": [
        {"name": "sqft", "type": "number", "mean": 812.0, "scale": 310.5, "median": 790.0,
         "gaps": true},
        {"name": "city", "type": "category", "categories": ["Oslo", "Rome"], "gaps": false},
        {"name": "garden", "type": "boolean", "mean": 0.3, "gaps": false},
        {"name": "sold", "type": "date", "format": "%d.%m.%Y", "first": "2021-03-01T00:00:00",
         "mean": 410.2, "scale": 233.0, "median": 402.0, "parts": ["season", "weekday"],
         "gaps": false}],
     "left_out": {"id": "counts the rows"}}

number      (value - mean) / scale; the median fills gaps
category    one 0/1 column per value in the train rows; all are 0 for an unseen value and a gap
boolean     yes is 1, no is 0; the mean fills gaps
date        the days since the first one, as a number; and sine and cosine of the position in each
            of its parts (see `rnc.data.dates`), both 0 for a gap

A column with gaps in the train rows adds a 0/1 column that marks them. A column that never varies
adds nothing: its scale, or the mean of a boolean, is null. "gap_words" of a number or date lists
texts that count as gaps.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
from numpy.typing import NDArray

from rnc.data import sources
from rnc.data.columns import (
    as_booleans,
    as_numbers,
    as_text,
    look_at,
    names_rows,
    nested,
    too_many_texts,
)
from rnc.data.dates import cycle, elapsed_days, parts_of, read_dates, words_of_format
from rnc.data.errors import DataError, first_few
from rnc.data.numerals import Cells
from rnc.data.splits import holds_splits

Learned = dict[str, Any]
"""The statistics of one column, from the train rows."""

_LARGEST = float(np.finfo(np.float32).max)


def fit_features(
    frame: pd.DataFrame,
    train: NDArray[Any],
    place: str,
    *,
    left_out: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """The preprocessing for `apply_features`: statistics of every column over the train rows.

    The index of the frame holds row numbers for messages; `train` are positions of rows.
    `left_out` maps columns that are not in the frame to the reason. Unusable columns are added to
    it. If it is None, an unusable column raises.
    """
    columns, reasons = [], dict(left_out or {})
    for name in frame.columns:
        fitted = _fit_column(frame[name], train, place, strict=left_out is None)
        if not isinstance(fitted, str):
            columns.append(fitted)
        elif left_out is not None:
            reasons[name] = fitted
        else:
            raise DataError(
                f"{place}: column {name!r} {fitted}. It cannot be a feature: leave it out of the "
                "data or of --feature-column (feature_columns=), or name it with --exclude-column "
                "(exclude_columns=)."
            )
    preprocessing = {"columns": columns, **({"left_out": reasons} if reasons else {})}
    if not feature_names(preprocessing):
        why = "".join(f" {name!r} {reason}." for name, reason in list(reasons.items())[:10])
        raise DataError(
            f"{place}: none of its {len(frame.columns)} feature columns "
            f"({first_few(frame.columns)}) varies over the train rows and can be used.{why} Add a "
            "column that does."
        )
    return preprocessing


def apply_features(
    frame: pd.DataFrame, preprocessing: dict[str, Any], place: str
) -> NDArray[np.float32]:
    """Rows of a table as inputs of a network: (n, p) float32, finite.

    Columns that the preprocessing does not name are ignored.

    >>> frame = pd.DataFrame({"size": [1.0, None, 3.0], "city": ["Oslo", "Rome", "Oslo"]})
    >>> fitted = fit_features(frame, np.arange(3), "homes.csv")
    >>> feature_names(fitted)
    ['size', 'size is missing', 'city=Oslo', 'city=Rome']
    >>> apply_features(frame, fitted, "homes.csv")
    array([[-1.,  0.,  1.,  0.],
           [ 0.,  1.,  0.,  1.],
           [ 1.,  0.,  1.,  0.]], dtype=float32)
    """
    x = np.empty((len(frame), len(feature_names(preprocessing))), np.float32)
    done = 0
    for fitted in preprocessing["columns"]:
        for values in _apply_column(sources.column(frame, fitted["name"], place), fitted, place):
            x[:, done] = values
            done += 1
    return x


def feature_names(preprocessing: dict[str, Any]) -> list[str]:
    """A name for each of the p columns that `apply_features` makes."""
    return [name for column in preprocessing["columns"] for name in names_of(column)]


def names_of(column: Learned) -> list[str]:
    """The names of the inputs that one column becomes."""
    own = str(column["name"])
    if column["type"] == "category":
        names = [f"{own}={category}" for category in column["categories"]]
    elif column["type"] == "boolean":
        names = [] if column["mean"] is None else [own]
    else:
        names = [] if column["scale"] is None else [own]
    for part in column.get("parts", ()):
        names += [f"{own} {part} sine", f"{own} {part} cosine"]
    return names + [f"{own} is missing"] * column["gaps"]


def cells_of(preprocessing: dict[str, Any]) -> Cells:
    """How to read the cells of new data: categories as text, numbers by the decimal sign."""
    names: dict[str, list[str]] = {"category": [], "number": []}
    for column in preprocessing.get("columns", []):
        names.setdefault(column["type"], []).append(column["name"])
    return Cells(names["category"], names["number"], preprocessing.get("decimal"))


def choose_columns(
    frame: pd.DataFrame,
    chosen: Sequence[str] | None,
    excluded: Sequence[str],
    reserved: Sequence[str],
    place: str,
) -> tuple[list[str], dict[str, str] | None]:
    """The feature columns, and why others are left out: column -> reason, None if `chosen` is set.

    By default they are all columns that have no other use and do not just identify the row.
    `reserved` are targets, split and group, which cannot be features.
    """
    columns = list(frame.columns)
    _check_names(frame, chosen, excluded, reserved, place)
    if chosen is not None:
        return list(dict.fromkeys(chosen)), None
    names, left_out = [], {}
    for name in columns:
        if name in reserved:
            continue
        reason = "is excluded" if name in excluded else _no_feature(frame[name])
        if reason is not None:
            left_out[name] = reason
            continue
        if sources.looks_like_files(frame[name]):
            raise DataError(
                f"{place}: column {name!r} holds names of image files. Give their folder with "
                "--images (images=), or leave the column out with --exclude-column "
                "(exclude_columns=)."
            )
        names.append(name)
    if not names:
        why = "".join(f" {name!r} {reason}." for name, reason in list(left_out.items())[:10])
        raise DataError(
            f"{place} has no feature columns; its columns: {first_few(columns, 30)}.{why} Add "
            "some, name them with --feature-column (feature_columns=), or give the folder of the "
            "images with --images (images=)."
        )
    return names, left_out


def choose_array_columns(
    x: pd.DataFrame, chosen: Sequence[str] | None, excluded: Sequence[str], place: str
) -> list[str]:
    """The columns of an array that are chosen, or else all that are not excluded.

    No other column is left out, since new arrays must have the same columns.
    """
    _check_names(x, chosen, excluded, (), place)
    return [name for name in (x.columns if chosen is None else chosen) if name not in excluded]


def _no_feature(values: pd.Series) -> str | None:
    if nested(values) is not None:
        return look_at(values).reason
    if holds_splits(values):  # it says nothing about the target
        return f"says train, val or test; --split-column {values.name} splits by it"
    return names_rows(values)


def _check_names(
    frame: pd.DataFrame,
    chosen: Sequence[str] | None,
    excluded: Sequence[str],
    reserved: Sequence[str],
    place: str,
) -> None:
    for flag, names in (("feature", chosen or ()), ("exclude", excluded)):
        for name in names:
            sources.column(frame, name, place)
            if name in reserved:
                raise DataError(
                    f"{place}: {name!r} is a target, split or group column and cannot be a feature "
                    f"column, too. Leave it out of --{flag}-column ({flag}_columns=)."
                )
    if both := sorted(set(chosen or ()) & set(excluded)):
        raise DataError(
            f"{place}: {first_few(both)} is named by both --feature-column (feature_columns=) and "
            "--exclude-column (exclude_columns=). Name it once."
        )


# --------------------------------------------------------------------------------------- learning


def _fit_column(
    column: pd.Series, train: NDArray[Any], place: str, *, strict: bool
) -> Learned | str:
    """The statistics of a column over the train rows, or the reason why it is unusable."""
    kind = look_at(column)
    if kind.type is None:
        return kind.reason
    fitted: Learned = {"name": column.name, "type": kind.type}
    if kind.words:
        column = _with_gaps(column, kind.words)
    seen = column.iloc[train]
    gaps = bool(seen.isna().any()) and not seen.isna().all()
    if kind.type == "category":
        reason = too_many_texts(column, seen, strict=strict)
        if reason is not None:
            return reason
        return fitted | {"categories": sorted(set(as_text(seen).dropna())), "gaps": gaps}
    if kind.type == "boolean":
        shares, _ = as_booleans(seen.dropna())
        constant = len(shares) == 0 or shares.min() == shares.max()
        return fitted | {"mean": None if constant else float(shares.mean()), "gaps": gaps}
    if kind.type == "date":
        fitted |= _fit_dates(seen, str(kind.format))
    else:
        numbers, _ = as_numbers(seen)
        _check_range(numbers, seen, place)
        fitted |= _fit_numbers(numbers)
    return fitted | {"gaps": gaps} | ({"gap_words": list(kind.words)} if kind.words else {})


def _fit_numbers(numbers: NDArray[np.float64]) -> Learned:
    known = numbers[~np.isnan(numbers)]
    if known.size == 0 or known.min() == known.max():
        return {"mean": None, "scale": None, "median": None}
    mean, unit = float(known.mean()), float(np.ptp(known))
    # Divide by the range first: squares of very large or tiny numbers would over- or underflow.
    scale = max(float(((known - mean) / unit).std()) * unit, float(np.finfo(np.float64).tiny))
    return {"mean": mean, "scale": scale, "median": float(np.median(known))}


def _fit_dates(seen: pd.Series, form: str) -> Learned:
    times, _ = read_dates(seen, form)
    known = times[~np.isnat(times)]
    if known.size == 0:
        return {"format": form, "first": None, "parts": []} | _fit_numbers(np.empty(0))
    first = str(known.min())
    days = _fit_numbers(elapsed_days(known, first))
    return {"format": form, "first": first, "parts": parts_of(known)} | days


# --------------------------------------------------------------------------------------- applying


def _apply_column(column: pd.Series, fitted: Learned, place: str) -> list[NDArray[Any]]:
    if words := fitted.get("gap_words"):
        column = _with_gaps(column, words)
    values = _APPLIED[fitted["type"]](column, fitted, place)
    return values + [column.isna().to_numpy()] * fitted["gaps"]


def _categories(column: pd.Series, fitted: Learned, place: str) -> list[NDArray[Any]]:
    texts = as_text(column)
    return [(texts == category).to_numpy(dtype=bool) for category in fitted["categories"]]


def _numbers(column: pd.Series, fitted: Learned, place: str) -> list[NDArray[Any]]:
    if fitted["scale"] is None:
        return []
    numbers, text = as_numbers(column)
    _check_cells(column, text, "a number", place)
    _check_range(numbers, column, place)
    return [_standardised(numbers, fitted)]


def _booleans(column: pd.Series, fitted: Learned, place: str) -> list[NDArray[Any]]:
    if fitted["mean"] is None:
        return []
    numbers, odd = as_booleans(column)
    _check_cells(column, odd, "yes or no", place)
    return [np.where(np.isnan(numbers), fitted["mean"], numbers)]


def _dates(column: pd.Series, fitted: Learned, place: str) -> list[NDArray[Any]]:
    if fitted["scale"] is None:
        return []
    times, odd = read_dates(column, fitted["format"])
    _check_cells(column, odd, f"a date as {words_of_format(fitted['format'])}", place)
    days = _standardised(elapsed_days(times, fitted["first"]), fitted)
    return [days, *(wave for part in fitted["parts"] for wave in cycle(times, part))]


_APPLIED: dict[str, Callable[[pd.Series, Learned, str], list[NDArray[Any]]]] = {
    "number": _numbers,
    "category": _categories,
    "boolean": _booleans,
    "date": _dates,
}


def _with_gaps(column: pd.Series, words: Sequence[str]) -> pd.Series:
    """The column with gaps in place of these texts."""
    return column.astype(object).mask(as_text(column).isin(words), np.nan)


def _standardised(numbers: NDArray[np.float64], fitted: Learned) -> NDArray[np.float64]:
    filled = np.where(np.isnan(numbers), fitted["median"], numbers)
    with np.errstate(over="ignore"):
        scaled: NDArray[np.float64] = (filled - fitted["mean"]) / fitted["scale"]
    return scaled.clip(-_LARGEST, _LARGEST)  # stays finite as float32


def _check_cells(column: pd.Series, bad: NDArray[np.bool_], expected: str, place: str) -> None:
    """Raise for cells that are not of the type of the train rows."""
    if bad.any():
        first = int(bad.argmax())
        raise DataError(
            f"{place} row {column.index[first]}: {column.name} is {column.iloc[first]!r}, expected "
            f"{expected}, as in the train rows. Leave the cell empty if it is unknown."
        )


def _check_range(numbers: NDArray[np.float64], column: pd.Series, place: str) -> None:
    """Raise for infinite values, and for those too large to subtract a mean from."""
    bad = np.abs(numbers) > 1e300
    if bad.any():
        raise DataError(
            f"{place} row {column.index[int(bad.argmax())]}: {column.name} is "
            f"{numbers[bad][0]}, expected a finite number. Leave the cell empty if it is unknown."
        )
