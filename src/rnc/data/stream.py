"""Read new data for a fitted model in pieces, so that memory does not grow with the data.

`stream_inputs` gives the inputs of `read_inputs` for files, in pieces. Image files are decoded as
they are needed. A CSV of columns and an .npz file of signals are read in chunks. Other files, and
several of these, are read whole and cut into pieces. Some tables can only be read as a whole: those
with text among numbers, commas in numbers or cells that do not fit the model. They raise
`NeedsWhole`, and the same call with `whole=True` reads them.
"""

import zipfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd  # type: ignore[import-untyped]

from rnc.data import sources
from rnc.data.archive import read_npz, row_arrays
from rnc.data.csv_text import csv_chunks, csv_names
from rnc.data.errors import DataError
from rnc.data.features import cells_of
from rnc.data.formats import CSV_SUFFIXES, suffix_of
from rnc.data.inputs import ImageRows, Inputs, inputs_from_arrays
from rnc.data.raw import FILE_KINDS, InputReader, unused_notes
from rnc.data.unseen import UnseenCategories

BATCH = 256
"""Rows in a batch of the network. Pieces hold whole batches, so that predictions do not depend on
how the data were cut."""
PIECE_BYTES = 2**25
_NUMBERS = "iuf"


class NeedsWhole(Exception):
    """The data must be read as a whole."""


class Piece(NamedTuple):
    """Some of the rows, with the progress so far."""

    inputs: Inputs
    done: int
    """Number of rows so far."""
    total: int
    """Number of all rows; an estimate while a CSV is read."""


def stream_inputs(
    paths: Sequence[Path], reader: InputReader, *, whole: bool = False
) -> Iterator[Piece]:
    """The rows of files in pieces of whole batches. The last piece has the notes."""
    files = [sources.holds_rows(path) for path in paths]
    path = paths[0]
    kind = FILE_KINDS.get(reader.kind)
    if kind is not None and not any(files):
        rows = ImageRows.listed(paths, relative=len(paths) == 1, kind=kind)
        pieces = _images(rows, pd.DataFrame(index=range(len(rows.files))), reader)
    elif whole or len(paths) > 1:
        pieces = _cut(reader.paths(paths))
    elif kind is not None and files[0] and suffix_of(path) not in sources.ARRAYS:
        pieces = _image_table(path, reader)
    elif reader.kind == "table" and suffix_of(path) in CSV_SUFFIXES and path.is_file():
        pieces = _csv(path, reader)
    elif reader.kind == "signal" and suffix_of(path) in sources.ARRAYS and path.is_file():
        pieces = _signals(path, reader)
    else:
        pieces = _cut(reader.paths(paths))
    return _in_batches(pieces)


def _rows_of(row_bytes: int) -> int:
    """Rows of a piece: the whole batches that fit into PIECE_BYTES, at least one."""
    return BATCH * max(1, PIECE_BYTES // (BATCH * max(1, row_bytes)))


def _cut(inputs: Inputs) -> Iterator[Piece]:
    """Inputs in memory, cut into pieces."""
    n, step = len(inputs.x), _rows_of(inputs.x[:1].nbytes)
    for start in range(0, n, step):
        stop = min(start + step, n)
        yield Piece(_part(inputs, start, stop, is_last=stop == n), stop, n)


def _part(inputs: Inputs, start: int, stop: int, *, is_last: bool) -> Inputs:
    return Inputs(
        inputs.x[start:stop],
        inputs.names[start:stop],
        inputs.skipped if is_last else (),
        inputs.columns.iloc[start:stop].reset_index(drop=True),
        inputs.notes if is_last else (),
    )


# --------------------------------------------------------------------------------------- images


def _image_table(path: Path, reader: InputReader) -> Iterator[Piece]:
    """The images that a table names. The table itself is small, so it is read whole."""
    frame, columns = reader.read_table(sources.existing(path, sources.TABLES))
    rows, used = reader.image_rows(frame, str(path), sources.folder_of(path))
    return _images(rows, columns.drop(columns=used).reset_index(drop=True), reader)


def _images(rows: ImageRows, columns: pd.DataFrame, reader: InputReader) -> Iterator[Piece]:
    """Decoded images, without bad ones. Unless these are skipped, the first one ends the pieces.

    The other images are then decoded only to name all bad ones in the error.
    """
    n, step = len(rows.files), BATCH
    bad: dict[int, str] = {}
    skip_bad = reader.decoding.skip_bad
    decoding = reader.decoding._replace(progress=False)
    for start in range(0, n, step):
        positions = range(start, min(start + step, n))
        found = rows.at(positions).decoded(decoding, reader.preprocessing)
        bad |= {start + i: reason for i, reason in found.bad.items()}
        if bad and not skip_bad:
            continue
        good = [i for i in positions if i not in bad]
        names = np.array([rows.names[i] for i in good], dtype=str)
        given = columns.iloc[good].reset_index(drop=True)
        yield Piece(Inputs(found.x, names, columns=given), positions.stop, n)
    skipped = rows.skipped(rows.usable(bad, skip_bad))
    nothing = Inputs(found.x[:0], np.array([], dtype=str), skipped, columns.iloc[:0])
    yield Piece(nothing, n, n)


# --------------------------------------------------------------------------------------- tables


def _csv(path: Path, reader: InputReader) -> Iterator[Piece]:
    cells = cells_of(reader.preprocessing)
    names = csv_names(path)
    if cells.decimal == ",":
        raise NeedsWhole
    others = reader.others(names)
    numbers = {c["name"] for c in reader.preprocessing["columns"] if c["type"] == "number"}
    text, unseen = [*cells.text, *others], UnseenCategories(reader.preprocessing)
    kinds: dict[str, str] = {}
    done = 0
    for frame, share in csv_chunks(path, cells._replace(text=text)):
        for name in set(names) - set(text):
            kind = frame[name].dtype.kind
            if name in numbers and kind not in _NUMBERS and frame[name].notna().any():
                raise NeedsWhole
            if name not in numbers and kinds.setdefault(name, kind) != kind:
                raise NeedsWhole
        if frame.empty:
            continue
        try:
            inputs = reader.frame(frame, str(path), path.parent, frame[others])
        except DataError as error:
            raise NeedsWhole from error  # so that the message counts all rows
        unseen.add(frame)
        done += len(frame)
        yield Piece(inputs._replace(notes=()), done, max(done, round(done / max(share, 1e-9))))
    if not done:
        raise NeedsWhole
    nothing = _part(inputs, 0, 0, is_last=False)._replace(notes=unseen.notes())
    yield Piece(nothing, done, done)


# -------------------------------------------------------------------------------------- signals


def _signals(path: Path, reader: InputReader) -> Iterator[Piece]:
    """Rows of the array x of an .npz file, read while it is unpacked."""
    try:
        with zipfile.ZipFile(path) as archive, archive.open("x.npy") as file:
            version = np.lib.format.read_magic(file)
            read = np.lib.format.read_array_header_1_0
            shape, is_fortran, dtype = read(file)
            if version != (1, 0) or is_fortran or len(shape) != 3 or dtype.kind not in "biuf":
                raise NeedsWhole
            others = read_npz(path, leave_out=("x",))
            columns, unused = row_arrays(others, shape[0])
            if "feature_names" in others:
                raise NeedsWhole
            given = pd.DataFrame(columns, index=range(shape[0]))
            row_bytes = dtype.itemsize * shape[1] * shape[2]
            step = _rows_of(row_bytes)
            for start in range(0, shape[0], step):
                stop = min(start + step, shape[0])
                data = file.read((stop - start) * row_bytes)
                x = np.frombuffer(data, dtype).reshape(stop - start, *shape[1:])
                x = x.astype(dtype.newbyteorder("="), copy=False)
                inputs = inputs_from_arrays(x, reader.preprocessing, "signal", place=str(path))
                names = np.arange(start, stop).astype(str)
                part = given.iloc[start:stop].reset_index(drop=True)
                notes = unused_notes(unused) if stop == shape[0] else ()
                yield Piece(inputs._replace(names=names, columns=part, notes=notes), stop, shape[0])
    except (DataError, OSError, ValueError, KeyError, zipfile.BadZipFile, EOFError) as error:
        raise NeedsWhole from error  # reading the whole file raises a better message


# -------------------------------------------------------------------------------------- batches


def _in_batches(pieces: Iterable[Piece]) -> Iterator[Piece]:
    """The same rows in pieces of whole batches; the last may be shorter, and is never empty."""
    held: Piece | None = None
    for piece in pieces:
        if held is not None:
            piece = piece._replace(inputs=_joined(held.inputs, piece.inputs))
        held = piece
        ready = (len(held.inputs.x) - 1) // BATCH * BATCH  # leaves rows for the last piece
        if ready > 0:
            n = len(held.inputs.x)
            yield held._replace(inputs=_part(held.inputs, 0, ready, is_last=False))
            held = held._replace(inputs=_part(held.inputs, ready, n, is_last=True))
    if held is not None:
        yield held


def _joined(one: Inputs, other: Inputs) -> Inputs:
    return Inputs(
        np.concatenate([one.x, other.x]),
        np.concatenate([one.names, other.names]),
        one.skipped + other.skipped,
        pd.concat([one.columns, other.columns], ignore_index=True),
        one.notes + other.notes,
    )
