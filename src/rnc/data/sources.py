"""Read files as columns and arrays, before the columns have roles.

Rows are numbered as a person sees them: in a CSV the header is row 1, as in a spreadsheet; in
Parquet, NPZ and arrays the first row is 0, as in pandas and numpy.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
from numpy.typing import NDArray

from rnc.data.csv_text import read_csv
from rnc.data.errors import DataError, did_you_mean, first_few
from rnc.data.formats import CSV_SUFFIXES, TABLE_READERS, suffix_of
from rnc.data.images import IMAGE_SUFFIXES
from rnc.data.names import check_names
from rnc.data.numerals import BY_LOOK, Cells, read_decimals
from rnc.data.packed import member_of
from rnc.data.shards import is_data_folder, is_image_folder, read_folder

TABLES = tuple(TABLE_READERS)
ARRAYS = (".npz",)
NIFTI_SUFFIXES = (".nii", ".nii.gz")
VOLUME_SUFFIXES = (*NIFTI_SUFFIXES, ".npy")
_SAMPLE_SUFFIXES = IMAGE_SUFFIXES.union(VOLUME_SUFFIXES)

_IMAGE_COLUMNS = ("image", "file", "path", "filename", "file_name", "img", "scan", "volume")


def is_data_file(source: str | Path) -> bool:
    """Whether a source is a data folder, or has the suffix of a file that `read_table` reads."""
    path = Path(source)
    return is_data_folder(path) if path.is_dir() else suffix_of(path) in TABLES + ARRAYS


def holds_rows(source: Path) -> bool:
    """Whether new data are rows of a file or of shards, not a folder of image files."""
    return is_data_file(source) and not is_image_folder(source)


def folder_of(source: Path) -> Path:
    """The folder that file names in a source are relative to."""
    return source if source.is_dir() else source.parent


def existing(source: Path, known: Sequence[str] = TABLES + ARRAYS) -> Path:
    """The source. Raises unless it is a file of a known type or a data folder."""
    if not source.exists():
        raise DataError(f"{source} does not exist. Check the path.")
    if source.is_dir() and ".tar" in known and is_data_folder(source):
        return source
    if suffix_of(source) not in known or source.is_dir():
        what = "a folder" if source.is_dir() else f"of type {suffix_of(source) or 'unknown'!r}"
        packed = suffix_of(source) in (".tar.gz", ".tgz") and ".tar" in known
        advice = " Unpack the tar first (gunzip)." if packed else ""
        raise DataError(f"{source} is {what}; expected a file of type {', '.join(known)}.{advice}")
    return source


def read_frame(source: Path, cells: Cells = BY_LOOK, *, progress: bool = False) -> pd.DataFrame:
    """A table of any type in `TABLE_READERS`; the index holds row numbers for messages.

    In a CSV, empty cells, "NA", "nan", "null", "?" and the like are gaps; empty lines are ignored.
    By default, a comma is the decimal sign if the CSV has another separator and some number has no
    other reading. `progress` shows a bar for a large CSV.
    """
    check_decimal(cells.decimal)
    if source.is_dir():
        frame = read_folder(source, lambda file: TABLE_READERS[suffix_of(file)](file, cells))
    elif suffix_of(source) in CSV_SUFFIXES:
        frame = read_csv(source, cells, progress=progress)
    else:
        frame = TABLE_READERS[suffix_of(source)](source, cells)
    return read_decimals(named_columns(frame, str(source)), cells)


def check_decimal(decimal: str | None) -> None:
    """Raise unless the decimal sign is a comma, a point or None."""
    if decimal not in (None, ".", ","):
        raise DataError(f"--decimal (decimal=) must be ',' or '.'; got {decimal!r}.")


def named_columns(frame: pd.DataFrame, place: str) -> pd.DataFrame:
    """The frame with texts as column names. Raises for repeated names, and if it is empty."""
    frame = frame.set_axis([str(name) for name in frame.columns], axis=1)
    check_names(frame.columns, place)
    if frame.empty:
        raise DataError(f"{place} has no rows below its header ({first_few(frame.columns, 30)}).")
    return frame


def column(frame: pd.DataFrame, name: str, place: str) -> pd.Series:
    """A column by name; the error for a missing one lists the columns."""
    columns = list(frame.columns)
    if name not in columns:
        hint = did_you_mean(name, columns, 3)
        raise DataError(
            f"{place} has no column {name!r}; its columns: {first_few(columns, 30)}.{hint}"
        )
    return frame[name]


def image_column(frame: pd.DataFrame, name: str, taken: Sequence[str], place: str) -> str:
    """The column of file names: the one named, or for "auto" the first that looks like it."""
    if name != "auto":
        column(frame, name, place)
        return name
    if candidates := columns_of_files(frame, taken):
        return candidates[0]
    columns = [str(candidate) for candidate in frame.columns if candidate not in taken]
    if candidates := [c for c in columns if c.lower() in _IMAGE_COLUMNS]:
        return candidates[0]
    raise DataError(
        f"{place} has no column of image file names; its columns: {first_few(frame.columns, 30)}. "
        "Name it with --image-column (image_column=)."
    )


def columns_of_files(frame: pd.DataFrame, taken: Sequence[str]) -> list[str]:
    """The columns that look like file names of images or volumes."""
    columns = [str(candidate) for candidate in frame.columns if candidate not in taken]
    return [name for name in columns if looks_like_files(frame[name])]


def looks_like_files(values: pd.Series) -> bool:
    """Whether the first values look like file names of images or volumes."""
    first = values.head(100).dropna().tolist()
    return bool(first) and all(
        isinstance(value, str)
        and (suffix_of(Path(value.strip())) in _SAMPLE_SUFFIXES or member_of(value) is not None)
        for value in first
    )


def kind_of(x: NDArray[Any], place: str) -> str:
    """The kind of an array, by its number of dimensions: table, signal, image or volume."""
    kinds = {2: "table", 3: "signal", 4: "image", 5: "volume"}
    if x.ndim not in kinds or 0 in x.shape[1:]:
        raise DataError(
            f"{place}: x must be (n, p) for a table, (n, c, l) for signals, (n, c, h, w) for "
            f"images or (n, c, d, h, w) for volumes, with no empty side; got {x.shape}."
        )
    if x.shape[0] == 0:
        raise DataError(f"{place}: x has no rows; got {x.shape}.")
    if x.dtype.kind == "c" or (x.ndim > 2 and x.dtype.kind not in "biuf"):
        raise DataError(f"{place}: x must hold real numbers; got {x.dtype}.")
    return kinds[x.ndim]


def as_signals(x: NDArray[Any], place: str) -> NDArray[np.float32]:
    """Signals as finite float32: (n, c, l)."""
    with np.errstate(over="ignore"):
        signals = x.astype(np.float32, copy=False)
    bad = np.flatnonzero(~np.isfinite(signals).all(axis=(1, 2)))
    if bad.size:
        raise DataError(
            f"{place}: x has NaN, infinite or too large values in {bad.size} of {len(x)} signals "
            f"(rows {first_few(bad)}). Repair these signals, or leave them out."
        )
    return signals


def as_volumes(x: NDArray[Any], place: str) -> NDArray[Any]:
    """Volumes as finite float32, or unchanged if they are uint8: (n, c, d, h, w)."""
    if x.shape[1] > 4 and x.shape[4] in (1, 2, 3, 4) and min(x.shape[1:4]) > x.shape[4]:
        raise DataError(
            f"{place}: x must be (n, c, d, h, w) for volumes; got {x.shape}, which looks like "
            "(n, d, h, w, c). Use x.transpose(0, 4, 1, 2, 3)."
        )
    if x.dtype == np.uint8:
        return x
    with np.errstate(over="ignore"):
        volumes = x.astype(np.float32, copy=False)
    bad = [i for i, volume in enumerate(volumes) if not np.isfinite(volume).all()]
    if bad:
        raise DataError(
            f"{place}: x has NaN, infinite or too large values in {len(bad)} of {len(x)} volumes "
            f"(rows {first_few(bad)}). Repair these volumes, or leave them out."
        )
    return volumes


def as_pixels(x: NDArray[Any], place: str) -> NDArray[np.uint8]:
    """Images as uint8: (n, c, h, w)."""
    if x.shape[1] > 4 and x.shape[3] in (1, 3, 4):
        raise DataError(
            f"{place}: x must be (n, c, h, w) for images; got {x.shape}, which looks like "
            "(n, h, w, c). Use x.transpose(0, 3, 1, 2)."
        )
    low, high = x.min(), x.max()
    if x.dtype.kind == "f" or low < 0 or high > 255:
        raise DataError(
            f"{place}: x must hold images as whole numbers from 0 to 255; got {x.dtype} from "
            f"{low:g} to {high:g}. Scale them and use x.round().astype('uint8')."
        )
    return x.astype(np.uint8, copy=False)


AS_ARRAYS: dict[str, Callable[[NDArray[Any], str], NDArray[Any]]] = {
    "signal": as_signals,
    "image": as_pixels,
    "volume": as_volumes,
}
"""By kind other than table: the function that checks arrays and gives them the dtype of a Table."""


def as_columns(
    x: NDArray[Any] | pd.DataFrame, names: Sequence[Any] | NDArray[Any] | None, place: str
) -> NDArray[Any] | pd.DataFrame:
    """A table as named columns (x0, x1, ... by default) with rows from 0; other kinds unchanged."""
    if isinstance(x, pd.DataFrame):
        check_names(x.columns, place)
        return x.set_axis([str(name) for name in x.columns], axis=1).reset_index(drop=True)
    if kind_of(x, place) != "table":
        return x
    if x.dtype.kind not in "biufmMUSTO":
        raise DataError(f"{place}: x must hold numbers, texts or dates; got {x.dtype}.")
    x = x.astype(x.dtype.newbyteorder("="), copy=False)  # pandas needs this machine's byte order
    names = [f"x{i}" for i in range(x.shape[1])] if names is None else [str(name) for name in names]
    if len(names) != x.shape[1]:
        raise DataError(f"{place}: {len(names)} feature names for x with {x.shape[1]} columns.")
    check_names(names, place)
    return pd.DataFrame(x, columns=names)
