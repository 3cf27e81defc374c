"""Files of tables -> data frames: one reader per type of file, in `TABLE_READERS`.

The index of each frame holds the numbers of its rows as a person sees them: in text and in a
spreadsheet the header is row 1; in JSON lines the first line is row 1; elsewhere the first row is
0, as in pandas.
"""

import csv
import gzip
import json
import re
import warnings
import zlib
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import IO, Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]

from rnc.data.errors import DataError
from rnc.data.names import check_names
from rnc.data.numerals import Cells, read_decimals

_HEADER_LINES = 100  # at most
# fmt: off
_GAPS = (  # those of pandas, and ?
    "", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN",
    "<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null", "?",
)
# fmt: on
_FIELDS = (
    "Every row needs as many fields as the header; an empty one is a gap. Put quotes around text "
    "that holds the separator."
)

Reader = Callable[[Path, Cells], pd.DataFrame]


def suffix_of(path: Path) -> str:
    """The end of a file name that tells its type: ".csv", ".csv.gz".

    >>> suffix_of(Path("a/Houses.CSV.gz")), suffix_of(Path("v1.2.parquet"))
    ('.csv.gz', '.parquet')
    """
    suffix = path.suffix.lower()
    return Path(path.stem).suffix.lower() + suffix if suffix == ".gz" else suffix


# ---------------------------------------------------------------------------------------- text


def _read_csv(source: Path, cells: Cells) -> pd.DataFrame:
    separator = _separator(source)
    every = cells.decimal == ","  # or 1.200 would be read as 1.2 before the comma is looked for
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)
            frame = pd.read_csv(
                source,
                sep=separator,
                dtype=str if every else dict.fromkeys(cells.text, str),
                na_values=list(_GAPS),
                keep_default_na=False,
                index_col=False,  # or a row with one field too many would shift all columns
                skip_blank_lines=False,  # or the row numbers would not be those of a spreadsheet
                skipinitialspace=True,
                low_memory=False,  # one type per column, whatever its length
            )
    except pd.errors.EmptyDataError as error:
        raise DataError(f"{source} is empty; expected a header and rows.") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{source} is not UTF-8 text ({error}). Save it as CSV UTF-8.") from error
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{source} cannot be read ({error}). Is it whole?") from error
    except (pd.errors.ParserError, pd.errors.ParserWarning, csv.Error) as error:
        _check_records(source, separator)  # it knows the row
        reason = str(error).strip().rstrip(".")
        raise DataError(f"{source} cannot be read as a table ({reason}). {_FIELDS}") from error
    # pandas fills a short row with gaps; only then is it worth the time to look at all of them.
    _check_records(source, separator, all_rows=frame.empty or frame.iloc[:, -1].hasnans)
    frame.index = pd.RangeIndex(2, len(frame) + 2)
    # In a column that begins with a number of more than 64 bits, pandas keeps gaps as texts.
    texts = [name for name in frame if frame[name].dtype.kind == "O"]
    frame = frame.assign(**{name: frame[name].mask(frame[name].isin(_GAPS)) for name in texts})
    return read_decimals(frame.dropna(how="all"), cells, separator)


def _open_text(source: Path) -> IO[str]:
    if source.suffix.lower() == ".gz":
        return gzip.open(source, "rt", encoding="utf-8-sig", errors="replace")
    return source.open(encoding="utf-8-sig", errors="replace", newline="")


def _separator(source: Path) -> str:
    try:
        with _open_text(source) as file:
            header = file.readline()
            for line in islice(file, _HEADER_LINES):  # a name in quotes may have several
                if header.count('"') % 2 == 0:
                    break
                header += line
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{source} cannot be read ({error}). Is it whole?") from error
    return max(",;\t", key=re.sub(r'"[^"]*"', "", header).count)


def _check_records(source: Path, separator: str, *, all_rows: bool = True) -> None:
    """Raise for two columns of one name, and for rows that are shorter or longer than the header.

    Without `all_rows`, only the header and the first row below it are looked at.
    """
    with _open_text(source) as file:
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


# ---------------------------------------------------------------------------------------- JSON


def _read_json(source: Path, cells: Cells) -> pd.DataFrame:
    """A list of objects, or an object per line."""
    try:
        with _open_text(source) as file:
            content = file.read()
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{source} cannot be read ({error}). Is it whole?") from error
    lines = content.lstrip()[:1] != "["
    numbered = list(enumerate(content.splitlines(), 1)) if lines else [(1, content)]
    rows: dict[int, dict[str, Any]] = {}
    for number, line in numbered:
        if not line.strip():
            continue
        try:
            value = json.loads(line, object_pairs_hook=lambda pairs: _object(pairs, source))
        except json.JSONDecodeError as error:
            raise DataError(
                f"{source} line {number}: no JSON ({error.msg}, column {error.colno}). Write one "
                "object per line, or one list of objects."
            ) from error
        found = dict(enumerate(value)) if not lines else {number: value}
        for row, one in found.items():
            if not isinstance(one, dict):
                raise DataError(
                    f"{source} row {row}: expected an object with a value for every column, as "
                    f'{{"age": 3, "city": "Oslo"}}; got {type(one).__name__}.'
                )
        rows |= found
    if not rows:
        raise DataError(f"{source} is empty; expected objects, a row each.")
    frame = pd.DataFrame(list(rows.values()), index=list(rows))
    return _blanks_as_gaps(frame)


def _object(pairs: list[tuple[str, Any]], source: Path) -> dict[str, Any]:
    check_names((key for key, _ in pairs), str(source))
    return dict(pairs)


# -------------------------------------------------------------------------------------- binary


def _read_parquet(source: Path, cells: Cells) -> pd.DataFrame:
    return _by_arrow(source, "Parquet", _parquet_file)


def _read_feather(source: Path, cells: Cells) -> pd.DataFrame:
    return _by_arrow(source, "Arrow", _arrow_file)


def _parquet_file(source: Path) -> pd.DataFrame:
    import pyarrow.parquet as pq  # type: ignore[import-untyped]

    check_names(pq.read_schema(source).names, str(source))
    return pd.read_parquet(source)


def _arrow_file(source: Path) -> pd.DataFrame:
    """A Feather or Arrow file; an Arrow stream has no magic bytes and another reader."""
    with source.open("rb") as file:
        if file.read(6).startswith((b"ARROW1", b"FEA1")):
            return pd.read_feather(source)
    import pyarrow as pa

    with pa.OSFile(str(source)) as file, pa.ipc.open_stream(file) as stream:
        return stream.read_pandas()


def _by_arrow(source: Path, what: str, read: Callable[[Path], pd.DataFrame]) -> pd.DataFrame:
    try:
        frame = read(source)
    except ImportError as error:
        raise DataError(
            f"{source} needs the package pyarrow to be read: pip install pyarrow. Or save the "
            "table as CSV."
        ) from error
    except DataError:
        raise
    except (OSError, ValueError) as error:  # pyarrow's own errors are kinds of these
        raise DataError(f"{source} cannot be read as {what} ({error}).") from error
    frame.index = pd.RangeIndex(len(frame))
    return frame


def _read_excel(source: Path, cells: Cells) -> pd.DataFrame:
    """The first sheet of a spreadsheet."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of openpyxl, about styles and the like
            header = pd.read_excel(source, engine="openpyxl", header=None, nrows=1)
            frame = pd.read_excel(source, engine="openpyxl", na_values=list(_GAPS))
    except ImportError as error:
        raise DataError(
            f"{source} needs the package openpyxl to be read: pip install "
            "'rank-n-contrast[excel]'. Or save the sheet as CSV UTF-8."
        ) from error
    except Exception as error:  # zipfile, XML and openpyxl have many types
        raise DataError(f"{source} cannot be read as a spreadsheet ({error}).") from error
    check_names(header.stack(), str(source))
    frame = frame.set_axis([str(name) for name in frame.columns], axis=1)
    frame.index = pd.RangeIndex(2, len(frame) + 2)
    return _blanks_as_gaps(frame.dropna(how="all"))


def _blanks_as_gaps(frame: pd.DataFrame) -> pd.DataFrame:
    """Texts of nothing but blanks are gaps, as they are in a CSV."""

    def is_blank(value: Any) -> bool:
        return isinstance(value, str) and value.strip() in ("", "?")

    texts = [name for name in frame if frame[name].map(is_blank).any()]
    return frame.assign(
        **{
            name: frame[name].astype(object).mask(frame[name].map(is_blank), np.nan)
            for name in texts
        }
    )


TABLE_READERS: dict[str, Reader] = {
    ".csv": _read_csv,
    ".tsv": _read_csv,
    ".txt": _read_csv,
    ".csv.gz": _read_csv,
    ".tsv.gz": _read_csv,
    ".parquet": _read_parquet,
    ".feather": _read_feather,
    ".arrow": _read_feather,
    ".json": _read_json,
    ".jsonl": _read_json,
    ".ndjson": _read_json,
    ".jsonl.gz": _read_json,
    ".xlsx": _read_excel,
}
"""How a file is read, by its suffix: the file, and how its cells are read."""
