"""Read CSV files as data frames, at once or in chunks of rows.

To parse a large file at once, pandas needs about ten times its size in memory. So a large file is
parsed in chunks, whose columns are then joined. The types of the columns must be those that the
whole file would give. If the chunks do not determine them, the file is parsed at once after all.
"""

import csv
import gzip
import io
import re
import warnings
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import IO, Any, NamedTuple

import pandas as pd  # type: ignore[import-untyped]
from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from rnc.data.errors import DataError
from rnc.data.in_memory import AnyFile, NamedBytes, open_bytes
from rnc.data.names import check_names
from rnc.data.numerals import Cells, read_decimals
from rnc.printable import on_one_line

# fmt: off
GAPS = (
    "", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN",
    "<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null", "?",
)
# fmt: on
"""Texts that count as gaps: those of pandas, and ?."""
LARGE_BYTES = 2**25
"""Files above this size are parsed in chunks."""
CHUNK_CELLS = 2**20
"""Cells of a chunk."""
_HEADER_LINES = 100  # at most
_EXACT = 2**53  # whole numbers below this are exact as floats
_FIELDS = (
    "Every row needs as many fields as the header; an empty one is a gap. Put quotes around text "
    "that holds the separator."
)


class Chunk(NamedTuple):
    """Some rows of a CSV file."""

    frame: pd.DataFrame
    """Its index holds the row numbers of a spreadsheet."""
    share: float
    """The share of the file that has been read so far."""


def read_csv(source: AnyFile, cells: Cells, *, progress: bool = False) -> pd.DataFrame:
    """All rows of a CSV file, without empty lines; `progress` shows a bar if it is large."""
    frame = None
    if isinstance(source, Path) and source.stat().st_size > LARGE_BYTES:
        frame = _by_chunks(source, cells, progress)
    separator = separator_of(source)
    if frame is None:
        with _parsing(source, separator):
            frame = pd.read_csv(_opened(source), low_memory=False, **_options(separator, cells))
        # pandas fills a short row with gaps. Only if the last column has gaps, check all rows.
        _check_records(source, separator, all_rows=frame.empty or frame.iloc[:, -1].hasnans)
        frame.index = pd.RangeIndex(2, len(frame) + 2)
        frame = _without_gaps(frame)
    return read_decimals(frame, cells, separator)


def _without_gaps(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame without empty rows, and with NaN for gaps that pandas kept as texts.

    pandas does so in a column that begins with a number of more than 64 bits.
    """
    texts = [name for name in frame if frame[name].dtype.kind == "O"]
    frame = frame.assign(**{name: frame[name].mask(frame[name].isin(GAPS)) for name in texts})
    return frame.dropna(how="all")


def csv_names(source: AnyFile) -> list[str]:
    """The names of the columns."""
    separator = separator_of(source)
    with _parsing(source, separator):
        header = pd.read_csv(_opened(source), nrows=0, **_options(separator, Cells()))
    return [str(name) for name in header]


def _opened(source: AnyFile) -> Any:
    """The source for pandas, which opens and unpacks a path itself."""
    return source if isinstance(source, Path) else open_bytes(source)


def csv_chunks(source: Path, cells: Cells, rows: int | None = None) -> Iterator[Chunk]:
    """The rows of a CSV file in chunks of `rows`, each with types of its own.

    Numbers with a decimal comma stay text. Empty rows are left out.
    """
    separator, size, start, gaps = separator_of(source), source.stat().st_size, 2, False
    rows = rows or max(1, CHUNK_CELLS // max(1, len(csv_names(source))))
    packing = "gzip" if source.suffix.lower() == ".gz" else None
    options = _options(separator, cells) | {"chunksize": rows, "compression": packing}
    with source.open("rb") as file:
        with _parsing(source, separator):
            chunks = pd.read_csv(file, low_memory=False, **options)
        with chunks:
            while True:
                with _parsing(source, separator):
                    frame = next(chunks, None)
                if frame is None:
                    break
                gaps = gaps or frame.empty or frame.iloc[:, -1].hasnans
                frame.index = pd.RangeIndex(start, start + len(frame))
                start += len(frame)
                yield Chunk(_without_gaps(frame), file.tell() / max(1, size))
    _check_records(source, separator, all_rows=gaps or start == 2)


def _by_chunks(source: Path, cells: Cells, progress: bool) -> pd.DataFrame | None:
    """All rows, joined column by column; None if the chunks do not determine the types."""
    if cells.decimal == ",":
        return None
    parts: dict[Any, list[pd.Series]] = {}
    index: list[pd.Index] = []
    with _reading_bar(source, progress) as show:
        for frame, share in csv_chunks(source, cells):
            show(share)
            index.append(frame.index)
            for name in frame:  # copies, or every column would keep its whole chunk in memory
                parts.setdefault(name, []).append(frame[name].reset_index(drop=True).copy())
    columns = {}
    for name in list(parts):
        column = joined_column(parts.pop(name))
        if column is None:
            return None
        columns[name] = column
    return pd.DataFrame(columns, copy=False).set_axis(index[0].append(index[1:]), axis=0)


@contextmanager
def _reading_bar(source: Path, progress: bool) -> Iterator[Callable[[float], None]]:
    """A context with a progress bar on a terminal. It yields a function that takes the share."""
    console = Console(stderr=True)
    is_shown = progress and console.is_terminal
    what = TextColumn("{task.description}", markup=False)
    columns = (what, BarColumn(), TaskProgressColumn())
    times = (TimeElapsedColumn(), TimeRemainingColumn())
    bar = Progress(*columns, *times, console=console, transient=True, disable=not is_shown)
    with bar:
        task = bar.add_task(on_one_line(f"Reading {source.name}"), total=1.0)
        yield lambda share: bar.update(task, completed=share)


def joined_column(parts: Sequence[pd.Series]) -> pd.Series | None:
    """The joined column, or None if its values or type could differ from a file read at once.

    >>> joined_column([pd.Series([1, 2]), pd.Series([None, 0.5])]).tolist()
    [1.0, 2.0, nan, 0.5]
    >>> joined_column([pd.Series([1, 2]), pd.Series(["3", "x"])]) is None
    True
    """
    known = [part for part in parts if part.notna().any()] or list(parts[:1])
    kinds = {part.dtype.kind for part in known}
    gaps = any(part.isna().any() for part in parts)
    if kinds == {"i", "f"} or (kinds == {"i"} and gaps):
        whole = [part for part in known if part.dtype.kind == "i"]
        if any(part.abs().max() >= _EXACT for part in whole):
            return None
    elif len({part.dtype for part in known}) > 1 or (gaps and kinds & {"b", "u"}):
        return None
    dtype = "float64" if kinds == {"i", "f"} or (kinds == {"i"} and gaps) else known[0].dtype
    return pd.concat([part.astype(dtype) for part in parts], ignore_index=True)


def _options(separator: str, cells: Cells) -> dict[str, Any]:
    every = cells.decimal == ","  # read all as text: otherwise pandas would take 1.200 for 1.2
    return {
        "sep": separator,
        "dtype": str if every else dict.fromkeys(cells.text, str),
        "na_values": list(GAPS),
        "keep_default_na": False,
        "index_col": False,  # otherwise a row with one field too many would shift all columns
        "skip_blank_lines": False,  # otherwise row numbers would differ from a spreadsheet's
        "skipinitialspace": True,
    }


@contextmanager
def _parsing(source: AnyFile, separator: str) -> Iterator[None]:
    """A context that turns errors of pandas into errors that say what is wrong with the file."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)
            yield
    except pd.errors.EmptyDataError as error:
        raise DataError(f"{source} is empty; expected a header and rows.") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{source} is not UTF-8 text ({error}). Save it as CSV UTF-8.") from error
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{source} cannot be read ({error}). Is it whole?") from error
    except (pd.errors.ParserError, pd.errors.ParserWarning, csv.Error) as error:
        _check_records(source, separator)  # raises an error that names the row, if it can
        reason = str(error).strip().rstrip(".")
        raise DataError(f"{source} cannot be read as a table ({reason}). {_FIELDS}") from error


def open_text(source: AnyFile) -> IO[str]:
    """An open text file, decompressed if its name ends in .gz."""
    if isinstance(source, NamedBytes):
        return io.TextIOWrapper(open_bytes(source), "utf-8-sig", errors="replace", newline="")
    if source.suffix.lower() == ".gz":
        return gzip.open(source, "rt", encoding="utf-8-sig", errors="replace")
    return source.open(encoding="utf-8-sig", errors="replace", newline="")


def separator_of(source: AnyFile) -> str:
    """The separator of the fields: a comma, semicolon or tab, by its count in the header."""
    try:
        with open_text(source) as file:
            header = file.readline()
            for line in islice(file, _HEADER_LINES):  # a name in quotes may span several lines
                if header.count('"') % 2 == 0:
                    break
                header += line
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{source} cannot be read ({error}). Is it whole?") from error
    return max(",;\t", key=re.sub(r'"[^"]*"', "", header).count)


def _check_records(source: AnyFile, separator: str, *, all_rows: bool = True) -> None:
    """Raise if two columns share a name, or if a row has fewer or more fields than the header.

    Without `all_rows`, only the header and the first row below it are checked.
    """
    with open_text(source) as file:
        records = csv.reader(file, delimiter=separator, skipinitialspace=True)
        try:
            header = next(records, [])
            check_names(header, str(source))
            for row, cells in enumerate(records if all_rows else islice(records, 1), 2):
                if len(cells) != len(header) and any(cell.strip() for cell in cells):
                    raise DataError(
                        f"{source} row {row} has {len(cells)} fields, the header has "
                        f"{len(header)}. {_FIELDS}"
                    )
        except csv.Error as error:
            raise DataError(f"{source} line {records.line_num}: {error}. {_FIELDS}") from error
