"""Attacks on reading in pieces: a large CSV, cut anywhere, is what it is as a whole."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from attack.harness import Silent, Verdict
from attack.soup_cases import CELLS, as_text, column
from attack.tables_truth import Rng, pick
from rnc.data import DataError, Inputs, csv_text, read_inputs, read_table, stream
from rnc.data.image_cache import Decoding
from rnc.data.numerals import Cells
from rnc.data.raw import InputReader
from rnc.data.sources import read_frame


def try_chunks(rng: Rng, folder: Path) -> Verdict:
    """One mixture of cells: the frame, and the inputs of a model, whole and in pieces."""
    n, decimal = int(rng.integers(10, 60)), pick(rng, (None, None, ",", "."))
    names = [f"c{i}" for i in range(int(rng.integers(1, 5)))]
    paths, both = [], {name: column(rng, 2 * n, CELLS) for name in names}
    for part, start in (("old", 0), ("new", n)):
        (folder / part).mkdir(exist_ok=True)
        columns = {name: cells[start : start + n] for name, cells in both.items()}
        y = (rng.permutation(n) + 0.5).tolist()
        paths.append(as_text(rng, {**columns, "y": y}, folder / part))
    with pytest.MonkeyPatch.context() as patch:
        outcomes = [_frame(paths[1], decimal)]
        patch.setattr(csv_text, "LARGE_BYTES", 0)
        patch.setattr(csv_text, "CHUNK_CELLS", int(rng.integers(1, 80)))
        outcomes.append(_frame(paths[1], decimal))
    whole, chunks = outcomes
    if isinstance(whole, pd.DataFrame) != isinstance(chunks, pd.DataFrame):
        raise Silent(f"whole: {whole}; in chunks: {chunks}")
    if isinstance(whole, pd.DataFrame):
        pd.testing.assert_frame_equal(whole, chunks)
    return _new_data(rng, paths, decimal)


def _frame(path: Path, decimal: str | None) -> pd.DataFrame | str:
    try:
        return read_frame(path, Cells(decimal=decimal))
    except DataError as error:
        return str(error)


def _new_data(rng: Rng, paths: list[Path], decimal: str | None) -> Verdict:
    try:
        fitted = read_table(paths[0], target="y", decimal=decimal).preprocessing
    except DataError:
        return "refused"
    expected: Inputs | str
    found: Inputs | str
    try:
        expected = read_inputs(paths[1], fitted, "table")
    except DataError as error:
        expected = str(error)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stream, "BATCH", int(rng.integers(1, 20)))
        patch.setattr(stream, "PIECE_BYTES", 1)
        try:
            found = _streamed(paths[1], fitted)
        except DataError as error:
            found = str(error)
    if isinstance(expected, str) or isinstance(found, str):
        if expected != found:
            raise Silent(f"whole: {expected}; in pieces: {found}")
        return "refused"
    same = np.array_equal(expected.x, found.x) and expected.names.tolist() == found.names.tolist()
    if not same or expected.notes != found.notes:
        raise Silent(f"other rows in pieces: {expected} and {found}")
    if not expected.columns.astype(str).equals(found.columns.astype(str)):
        raise Silent(f"other columns in pieces: {expected.columns} and {found.columns}")
    return "right"


def _streamed(path: Path, fitted: dict[str, object]) -> Inputs:
    reader = InputReader(fitted, "table", None, "auto", Decoding(8, False, None, False))
    try:
        pieces = list(stream.stream_inputs([path], reader))
    except stream.NeedsWhole:
        pieces = list(stream.stream_inputs([path], reader, whole=True))
    parts = [piece.inputs for piece in pieces]
    return Inputs(
        np.concatenate([part.x for part in parts]),
        np.concatenate([part.names for part in parts]),
        columns=pd.concat([part.columns.astype(object) for part in parts], ignore_index=True),
        notes=parts[-1].notes,
    )
