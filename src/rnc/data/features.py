"""Columns of a table -> numbers for a network: standardise, one-hot, fill gaps.

Everything is learned from the train rows and kept as a dict that JSON can hold:

    {"columns": [
        {"name": "sqft", "type": "number", "mean": 812.0, "scale": 310.5, "median": 790.0,
         "gaps": true},
        {"name": "city", "type": "category", "categories": ["Oslo", "Rome"], "gaps": false}]}

A number becomes (value - mean) / scale; a gap takes the median. A category becomes one 0/1 column
per value seen in the train rows; an unseen value and a gap are all zeros. A column with gaps in
the train rows adds a 0/1 column that marks them. A column that never varies adds nothing (its
scale is null).
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
from numpy.typing import NDArray

from rnc.data import sources
from rnc.data.errors import DataError, first_few
from rnc.data.splits import holds_splits

MOST_CATEGORIES = 100

_LARGEST = float(np.finfo(np.float32).max)


def fit_features(frame: pd.DataFrame, train: NDArray[Any], place: str) -> dict[str, Any]:
    """Learn from the train rows how to prepare every column, for `apply_features`.

    The index of the frame holds row numbers for messages; `train` are positions of rows.
    """
    columns = [_fit_column(frame[name].iloc[train], place) for name in frame.columns]
    preprocessing = {"columns": columns}
    if not feature_names(preprocessing):
        raise DataError(
            f"{place}: none of its {len(columns)} feature columns ({first_few(frame.columns)}) "
            "varies over the train rows. Add a column that does."
        )
    return preprocessing


def apply_features(
    frame: pd.DataFrame, preprocessing: dict[str, Any], place: str
) -> NDArray[np.float32]:
    """Rows of a table as a network sees them: (n, p) float32, finite.

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
    names = []
    for column in preprocessing["columns"]:
        if column["type"] == "category":
            names += [f"{column['name']}={category}" for category in column["categories"]]
        elif column["scale"] is not None:
            names.append(column["name"])
        if column["gaps"]:
            names.append(f"{column['name']} is missing")
    return names


def text_columns(preprocessing: dict[str, Any]) -> list[str]:
    """Columns to read as text even where every value looks like a number."""
    return [c["name"] for c in preprocessing.get("columns", []) if c["type"] == "category"]


def as_numbers(column: pd.Series) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """The column as float64 with NaN for gaps, and which rows hold something else than numbers."""
    if isinstance(column.dtype, pd.CategoricalDtype):
        column = column.astype(object)
    if pd.api.types.is_datetime64_any_dtype(column.dtype) or column.dtype.kind in "mc":
        return np.full(len(column), np.nan), column.notna().to_numpy()
    # errors="coerce" reads True as 1 in an object column, too.
    numbers = pd.to_numeric(column, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
    return numbers, np.isnan(numbers) & column.notna().to_numpy()


def as_text(column: pd.Series) -> pd.Series:
    """Every value as text; gaps stay gaps."""
    return column.astype(object).map(str, na_action="ignore")


def choose_columns(
    frame: pd.DataFrame, chosen: Sequence[str] | None, reserved: Sequence[str], place: str
) -> list[str]:
    """The feature columns: those chosen, or else all that have no other use.

    `reserved` are targets, split and group, which cannot be features.
    """
    columns = list(frame.columns)
    names = columns if chosen is None else list(dict.fromkeys(chosen))
    if chosen is None:  # a column of split words says nothing about the target
        names = [n for n in names if n not in reserved and not holds_splits(frame[n])]
    for name in names:
        sources.column(frame, name, place)
        if name in reserved:
            raise DataError(
                f"{place}: {name!r} is a target, split or group column and cannot be a feature "
                "column, too. Leave it out of --feature-column (feature_columns=)."
            )
        if chosen is None and sources.looks_like_files(frame[name]):
            raise DataError(
                f"{place}: column {name!r} holds names of image files. Give their folder with "
                "--images (images=), or name the columns to use with --feature-column "
                "(feature_columns=)."
            )
    if not names:
        raise DataError(
            f"{place} has no feature columns; its columns: {first_few(columns, 30)}. Add some, or "
            "give the folder of the images with --images (images=)."
        )
    return names


def _fit_column(column: pd.Series, place: str) -> dict[str, Any]:
    gaps = bool(column.isna().any()) and not column.isna().all()
    numbers, text = as_numbers(column)
    if isinstance(column.dtype, pd.CategoricalDtype) or text.any():
        return _fit_categories(column, gaps, text, place)
    _check_range(numbers, column, place)
    known = numbers[~np.isnan(numbers)]
    fitted = {"name": column.name, "type": "number"}
    if known.size == 0 or known.min() == known.max():
        return fitted | {"mean": None, "scale": None, "median": None, "gaps": gaps}
    mean, unit = float(known.mean()), float(np.ptp(known))
    # Squares of large or tiny numbers would over- or underflow, so divide by the range first.
    scale = max(float(((known - mean) / unit).std()) * unit, float(np.finfo(np.float64).tiny))
    median = float(np.median(known))
    return fitted | {"mean": mean, "scale": scale, "median": median, "gaps": gaps}


def _fit_categories(
    column: pd.Series, gaps: bool, text: NDArray[np.bool_], place: str
) -> dict[str, Any]:
    if column.dtype.kind in "Mm":
        raise DataError(
            f"{place}: column {column.name!r} holds times. Turn them into numbers (days, hours), "
            "or leave the column out of --feature-column (feature_columns=)."
        )
    categories = sorted(set(as_text(column).dropna()))
    if len(categories) > MOST_CATEGORIES:
        numeric = int(column.notna().sum()) - int(text.sum())
        first = int(text.argmax())
        hint = (
            f" It is read as text because of row {column.index[first]}: {column.iloc[first]!r} is "
            "no number; leave such cells empty."
            if numeric > text.sum()
            else ""
        )
        raise DataError(
            f"{place}: column {column.name!r} has {len(categories)} different texts in the train "
            f"rows; one-hot coding takes at most {MOST_CATEGORIES}. Leave it out by naming the "
            f"columns to use with --feature-column (feature_columns=).{hint}"
        )
    return {"name": column.name, "type": "category", "categories": categories, "gaps": gaps}


def _apply_column(column: pd.Series, fitted: dict[str, Any], place: str) -> list[NDArray[Any]]:
    values: list[NDArray[Any]] = []
    if fitted["type"] == "category":
        texts = as_text(column)
        values = [(texts == category).to_numpy(dtype=bool) for category in fitted["categories"]]
    elif fitted["scale"] is not None:
        values = [_standardised(column, fitted, place)]
    if fitted["gaps"]:
        values.append(column.isna().to_numpy())
    return values


def _standardised(column: pd.Series, fitted: dict[str, Any], place: str) -> NDArray[np.float64]:
    numbers, text = as_numbers(column)
    if text.any():
        first = int(text.argmax())
        raise DataError(
            f"{place} row {column.index[first]}: {column.name} is {column.iloc[first]!r}, expected "
            "a number, as in the train rows. Leave the cell empty if it is unknown."
        )
    _check_range(numbers, column, place)
    filled = np.where(np.isnan(numbers), fitted["median"], numbers)
    with np.errstate(over="ignore"):
        scaled: NDArray[np.float64] = (filled - fitted["mean"]) / fitted["scale"]
    return scaled.clip(-_LARGEST, _LARGEST)  # float32 follows, and must stay finite


def _check_range(numbers: NDArray[np.float64], column: pd.Series, place: str) -> None:
    """Raise for infinite values, and for those too large to subtract a mean from."""
    bad = np.abs(numbers) > 1e300
    if bad.any():
        raise DataError(
            f"{place} row {column.index[int(bad.argmax())]}: {column.name} is "
            f"{numbers[bad][0]}, expected a finite number. Leave the cell empty if it is unknown."
        )
