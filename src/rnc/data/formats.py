"""Read files of tables as data frames. `TABLE_READERS` has one reader per type of file.

The index of each frame holds row numbers as a person counts them. In text and in a spreadsheet, the
header is row 1. In JSON lines, the first line is row 1. Elsewhere the first row is 0, as in pandas.
"""

import json
import warnings
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]

from rnc.data.csv_text import GAPS, open_text, read_csv
from rnc.data.errors import DataError
from rnc.data.formulas import check_calculated
from rnc.data.names import check_names, named_once
from rnc.data.numerals import Cells
from rnc.data.shards import read_arrow, read_tar

Reader = Callable[[Path, Cells], pd.DataFrame]


def suffix_of(path: Path) -> str:
    """The end of a file name that tells its type: ".csv", ".csv.gz".

    >>> suffix_of(Path("a/Houses.CSV.gz")), suffix_of(Path("v1.2.parquet"))
    ('.csv.gz', '.parquet')
    """
    suffix = path.suffix.lower()
    return Path(path.stem).suffix.lower() + suffix if suffix == ".gz" else suffix


# ---------------------------------------------------------------------------------------- JSON


def _read_json(source: Path, cells: Cells) -> pd.DataFrame:
    """The rows of a JSON file: a list of objects, or an object per line."""
    try:
        with open_text(source) as file:
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
            value = json.loads(line, object_pairs_hook=lambda pairs: named_once(pairs, str(source)))
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


# -------------------------------------------------------------------------------------- binary


def _read_parquet(source: Path, cells: Cells) -> pd.DataFrame:
    return _by_arrow(source, "Parquet", lambda file: read_arrow(file, _parquet_file))


def _read_feather(source: Path, cells: Cells) -> pd.DataFrame:
    return _by_arrow(source, "Arrow", lambda file: read_arrow(file, _arrow_file))


def _parquet_file(source: Path) -> pd.DataFrame:
    import pyarrow.parquet as pq  # type: ignore[import-untyped]

    check_names(pq.read_schema(source).names, str(source))
    return pd.read_parquet(source)


def _arrow_file(source: Path) -> pd.DataFrame:
    """The rows of a Feather or Arrow file, or of an Arrow stream, which has no magic bytes."""
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
            warnings.simplefilter("ignore")  # openpyxl warns about styles and the like
            with pd.ExcelFile(source, engine="openpyxl") as file:
                check_calculated(source, file.book.worksheets[0]._worksheet_path)
                header = file.parse(header=None, nrows=1)
                frame = file.parse(na_values=list(GAPS))
    except ImportError as error:
        raise DataError(
            f"{source} needs the package openpyxl to be read: pip install "
            "'rank-n-contrast[excel]'. Or save the sheet as CSV UTF-8."
        ) from error
    except DataError:
        raise
    except Exception as error:  # zipfile, XML and openpyxl raise many types
        raise DataError(f"{source} cannot be read as a spreadsheet ({error}).") from error
    check_names(header.stack(), str(source))
    frame = frame.set_axis([str(name) for name in frame.columns], axis=1)
    frame.index = pd.RangeIndex(2, len(frame) + 2)
    return _blanks_as_gaps(frame.dropna(how="all"))


def _blanks_as_gaps(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame with gaps in place of blank texts and ?, which are gaps in a CSV, too."""

    def is_blank(value: Any) -> bool:
        return isinstance(value, str) and value.strip() in ("", "?")

    texts = [name for name in frame if frame[name].map(is_blank).any()]
    return frame.assign(
        **{
            name: frame[name].astype(object).mask(frame[name].map(is_blank), np.nan)
            for name in texts
        }
    )


CSV_SUFFIXES = (".csv", ".tsv", ".txt", ".csv.gz", ".tsv.gz")
TABLE_READERS: dict[str, Reader] = {
    **dict.fromkeys(CSV_SUFFIXES, read_csv),
    ".parquet": _read_parquet,
    ".feather": _read_feather,
    ".arrow": _read_feather,
    ".json": _read_json,
    ".jsonl": _read_json,
    ".ndjson": _read_json,
    ".jsonl.gz": _read_json,
    ".xlsx": _read_excel,
    ".tar": lambda source, cells: read_tar(source),
}
"""The reader of a file by its suffix."""
