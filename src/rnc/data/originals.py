"""Keep the original columns of a table, and find texts that were read as gaps.

A report shows the original cells of the test samples with the worst errors.
"""

from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
from numpy.typing import NDArray

from rnc.data.columns import as_text

MOST_KEPT = 2**25
"""Up to this many bytes of cells, all rows are kept. Of more, only the rows outside train."""


def kept_originals(
    frame: pd.DataFrame, preprocessing: dict[str, Any], split: NDArray[np.str_]
) -> pd.DataFrame:
    """The columns that a model uses, by position of row. A large table lacks its train rows."""
    names = [column["name"] for column in preprocessing["columns"]]
    frame = frame[names].reset_index(drop=True)
    kept = np.flatnonzero(split != "train")
    if len(kept) == len(frame) or frame.memory_usage(index=False).sum() <= MOST_KEPT:
        return frame
    return frame.iloc[kept]


def originals_of(frame: pd.DataFrame | None, rows: NDArray[np.int64]) -> pd.DataFrame | None:
    """The rows at these positions; None if one of them is not kept."""
    if frame is None or not np.isin(rows, frame.index).all():
        return None
    return frame.loc[rows]


def gap_cells(frame: pd.DataFrame, preprocessing: dict[str, Any]) -> dict[str, list[str]]:
    """The texts that count as gaps, by column, each with the first row that has it."""
    found = {}
    for column in preprocessing["columns"]:
        if words := column.get("gap_words"):
            cells = as_text(frame[column["name"]])
            found[column["name"]] = [f"{word!r}{_first_row(cells, word)}" for word in words]
    return found


def _first_row(cells: pd.Series, word: str) -> str:
    """The first row with a text and the number of further ones, in brackets; "" without any."""
    rows = cells.index[cells == word].tolist()
    more = f" and {len(rows) - 1} more" if len(rows) > 1 else ""
    return f" (row {rows[0]}{more})" if rows else ""
