"""A file of labelled data, read once: its columns and, of an .npz file, all that it holds."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd  # type: ignore[import-untyped]

from rnc.data import sources
from rnc.data.archive import Archive, read_archive
from rnc.data.errors import DataError
from rnc.data.features import cells_of
from rnc.data.numerals import read_decimals


class OpenedData(NamedTuple):
    """What `read_table` makes a Table of."""

    path: Path
    place: str
    """Its name in messages."""
    frame: pd.DataFrame
    """Its columns; the index holds the numbers of rows for messages."""
    archive: Archive | None = None
    """All that an .npz file holds."""


def open_data(
    source: str | Path | pd.DataFrame,
    preprocessing: dict[str, Any] | None = None,
    decimal: str | None = None,
    *,
    progress: bool = False,
) -> OpenedData:
    """Read a file, or take a DataFrame; the arguments are those of `read_table`."""
    cells = cells_of(preprocessing or {})
    cells = cells if decimal is None else cells._replace(decimal=decimal)
    if isinstance(source, pd.DataFrame):
        place = "the DataFrame"
        sources.check_decimal(decimal)
        frame = sources.named_columns(source.reset_index(drop=True), place)
        return OpenedData(Path("DataFrame"), place, read_decimals(frame, cells))
    path = sources.existing(Path(source))
    if path.suffix.lower() in sources.ARRAYS:
        archive = read_archive(path)
        frame = columns_frame(archive.columns, len(archive.x), str(path))
        return OpenedData(path, str(path), frame, archive)
    return OpenedData(path, str(path), sources.read_frame(path, cells, progress=progress))


def columns_frame(columns: Mapping[str, Any], n: int, place: str) -> pd.DataFrame:
    """Columns of n values each; one of shape (n, 1) is as good."""
    arrays: dict[str, Any] = {}
    for name, values in columns.items():
        is_array = isinstance(values, np.ndarray | pd.Series)
        shape = values.shape if is_array else np.asarray(values, object).shape
        if len(values) != n or shape not in ((n,), (n, 1)):
            got = len(values) if shape == (len(values),) else f"shape {shape}"
            raise DataError(f"{place}: x has {n} rows and {name} has {got}; they must be as many.")
        arrays[name] = values if shape == (n,) else np.asarray(values).reshape(n)
    return pd.DataFrame(arrays, index=pd.RangeIndex(n))
