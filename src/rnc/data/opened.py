"""Open labelled data once: read the columns of a file and, for an .npz file, all its arrays."""

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
    """Opened data, from which `read_table` makes a Table."""

    path: Path
    place: str
    """The name of the data in messages."""
    frame: pd.DataFrame
    """The columns; the index holds row numbers for messages."""
    archive: Archive | None = None
    """The content of an .npz file; None for other sources."""


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
    """A frame of columns with n values each, (n,) or (n, 1). Raises for other shapes."""
    arrays: dict[str, Any] = {}
    for name, values in columns.items():
        is_array = isinstance(values, np.ndarray | pd.Series)
        shape = values.shape if is_array else np.asarray(values, object).shape
        if len(values) != n or shape not in ((n,), (n, 1)):
            got = len(values) if shape == (len(values),) else f"shape {shape}"
            raise DataError(
                f"{place}: x has {n} rows and {name} has {got}; {name} needs one value per row."
            )
        arrays[name] = values if shape == (n,) else np.asarray(values).reshape(n)
    return pd.DataFrame(arrays, index=pd.RangeIndex(n))
