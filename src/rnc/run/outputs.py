"""Files that `rnc predict` writes, checked before any data are read.

predictions   .csv, .tsv or .parquet; "-" is the standard output
features      .npz (names, features), .csv, .tsv or .parquet (name, f0, f1, ...)
"""

import os
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
from numpy.typing import NDArray

from rnc.files import written_whole
from rnc.printable import printable
from rnc.run.predictions import NAME
from rnc.run.spreadsheet import guarded_frame

STDOUT = "-"
FRAMES = (".csv", ".tsv", ".parquet")
FEATURES = (".npz", *FRAMES)


def check_output(
    output: Path, known: Sequence[str], *, run: Path, sources: Iterable[Path], overwrite: bool
) -> None:
    """Raise if a file cannot be written, or if something would be lost.

    Args:
        output: the file.
        known: the endings that its name may have.
        run: the run folder, whose own files must not be replaced.
        sources: the files and folders that are read.
        overwrite: whether an existing file may be replaced. One that is read never may.
    """
    if output.suffix.lower() not in known:
        raise ValueError(f"{output} must end in {', '.join(known)}, which says the format.")
    for source in sources:
        if _same(output, source):
            raise ValueError(
                f"{output} would overwrite the data that are read ({source}). Choose another name "
                "for the output."
            )
    if output.resolve().is_relative_to(run.resolve()) and output.exists():
        raise ValueError(f"{output} is a part of the run {run}. Choose another place.")
    if output.exists() and not output.is_file():
        raise ValueError(f"{output} is no file that can be written. Choose another name.")
    if output.exists() and not overwrite:
        raise FileExistsError(f"{output} exists. Add --overwrite, or choose another name with -o.")
    folder = next(parent for parent in output.resolve().parents if parent.exists())
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise PermissionError(f"{output} cannot be written: {folder} is no folder to write to.")


def _same(one: Path, other: Path) -> bool:
    """Whether two paths lead to the same file, also through links."""
    both_exist = one.exists() and other.exists()
    return one.resolve() == other.resolve() or (both_exist and one.samefile(other))


WriteRows = Callable[[pd.DataFrame], None]
"""Writes the rows of a table below those before. All tables have the same columns."""


@contextmanager
def open_rows(output: Path | str) -> Iterator[WriteRows]:
    """A context with a function that appends tables, in the format of the file's ending.

    The file appears only when the context ends without an error. "-" is CSV on the standard output.
    """
    if output == STDOUT:
        with tempfile.TemporaryFile() as file:
            yield _TextRows(file, ",", guard=False)
            file.seek(0)
            shown = printable if sys.stdout.isatty() else str
            for line in file:
                sys.stdout.write(shown(line.decode()))
        return
    path = Path(output)
    with written_whole(path) as temporary, temporary.open("wb") as file:
        if path.suffix.lower() != ".parquet":
            yield _TextRows(file, "\t" if path.suffix.lower() == ".tsv" else ",")
            return
        rows = _ParquetRows(file)
        yield rows
        rows.finish()


class _TextRows:
    """Writes CSV with one header. `guard` keeps spreadsheets from running texts as formulas."""

    def __init__(self, file: IO[bytes], separator: str, *, guard: bool = True) -> None:
        self.file, self.separator, self.guard, self.header = file, separator, guard, True

    def __call__(self, frame: pd.DataFrame) -> None:
        frame = guarded_frame(frame) if self.guard else frame
        text = frame.to_csv(
            index=False, sep=self.separator, header=self.header, lineterminator="\n"
        )
        self.file.write(text.encode())
        self.header = False


class _ParquetRows:
    """Writes Parquet row groups. All have the column types of the first one."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file = file
        self.writer: Any = None

    def __call__(self, frame: pd.DataFrame) -> None:
        import pyarrow as pa  # type: ignore[import-untyped]
        from pyarrow import parquet

        texts = [name for name in frame if frame[name].dtype == object]  # a column has one type
        frame = frame.assign(
            **{name: frame[name].map(str, na_action="ignore").astype("str") for name in texts}
        )
        table = pa.Table.from_pandas(frame, preserve_index=False)
        if self.writer is None:
            self.writer = parquet.ParquetWriter(self.file, table.schema)
        self.writer.write_table(table.cast(self.writer.schema))

    def finish(self) -> None:
        """Write the end of the file."""
        if self.writer is not None:
            self.writer.close()


WriteFeatures = Callable[[NDArray[np.str_], NDArray[np.float32]], None]
"""Writes names (n,) and features (n, d) below those before."""


@contextmanager
def open_features(output: Path) -> Iterator[WriteFeatures]:
    """A context with a function that appends features and the names of their samples."""
    if output.suffix.lower() != ".npz":
        with open_rows(output) as write:
            yield lambda names, features: write(_named(names, features))
        return
    names: list[NDArray[np.str_]] = []
    width = 0
    with written_whole(output) as temporary, tempfile.TemporaryFile() as rows:

        def add(some: NDArray[np.str_], features: NDArray[np.float32]) -> None:
            nonlocal width
            names.append(np.array(some.tolist(), dtype=np.str_))  # drops unused width
            width = features.shape[1]
            rows.write(np.ascontiguousarray(features).data)

        yield add
        _write_npz(temporary, np.concatenate(names), rows, width)


def _named(names: NDArray[np.str_], features: NDArray[np.float32]) -> pd.DataFrame:
    frame = pd.DataFrame(features, columns=[f"f{i}" for i in range(features.shape[1])])
    frame.insert(0, NAME, names)
    return frame


def _write_npz(path: Path, names: NDArray[np.str_], rows: IO[bytes], width: int) -> None:
    """Write what np.savez(path, names=names, features=rows) would, from a file of float32 rows."""
    header = {"descr": "<f4", "fortran_order": False, "shape": (len(names), width)}
    rows.seek(0)
    with zipfile.ZipFile(path, "w") as archive:
        with archive.open("names.npy", "w", force_zip64=True) as file:
            np.lib.format.write_array(file, names, allow_pickle=False)
        with archive.open("features.npy", "w", force_zip64=True) as file:
            np.lib.format.write_array_header_1_0(file, header)
            shutil.copyfileobj(rows, file)
