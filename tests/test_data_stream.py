"""New data in pieces: the same rows as at once, in bounded memory, and what must be read whole."""

import io
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from rich.console import Console

from rnc.data import csv_text, stream
from rnc.data.errors import DataError
from rnc.data.image_cache import Decoding
from rnc.data.numerals import Cells
from rnc.data.raw import InputReader
from rnc.data.stream import NeedsWhole, Piece, stream_inputs
from rnc.data.table import read_table

FILES = {"channels": 3, "fit": "crop", "side": 40}


def people(path: Path, rows: int = 1500) -> pd.DataFrame:
    """A CSV with an id, numbers with gaps, whole numbers, a category and a target."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "id": [f"{i:05d}" for i in range(rows)],
            "height": rng.normal(170, 10, rows).round(3),
            "visits": rng.integers(0, 9, rows),
            "town": rng.choice(["Oslo", "Rome"], rows),
            "age": rng.normal(40, 9, rows).round(2),
        }
    )
    frame.loc[rows // 2 :: 7, "height"] = np.nan  # the first chunks have no gaps
    frame.to_csv(path, index=False)
    return frame


def reader_of(preprocessing: dict[str, Any], kind: str, *, skip_bad: bool = False) -> InputReader:
    decoding = Decoding(image_size=40, skip_bad=skip_bad, cache=None, progress=False)
    return InputReader(preprocessing, kind, None, "auto", decoding)


@pytest.fixture
def table(tmp_path: Path) -> tuple[Path, InputReader]:
    path = tmp_path / "people.csv"
    people(path)
    fitted = read_table(path, target="age", exclude_columns=["id"])
    return path, reader_of(fitted.preprocessing, "table")


def assert_the_same(pieces: list[Piece], reader: InputReader, paths: list[Path]) -> None:
    """All pieces but the last are whole batches, and together they are the data."""
    at_once = reader.paths(paths)
    assert len(pieces) > 1
    assert all(len(piece.inputs.x) % stream.BATCH == 0 for piece in pieces[:-1])
    assert len(pieces[-1].inputs.x) > 0
    for field in ("x", "names"):
        together = np.concatenate([getattr(piece.inputs, field) for piece in pieces])
        np.testing.assert_array_equal(together, getattr(at_once, field))
    columns = pd.concat([piece.inputs.columns for piece in pieces], ignore_index=True)
    columns = columns if len(columns.columns) else at_once.columns
    pd.testing.assert_frame_equal(columns, at_once.columns, check_exact=True)
    assert sum((piece.inputs.skipped for piece in pieces), ()) == at_once.skipped
    assert sum((piece.inputs.notes for piece in pieces), ()) == at_once.notes
    assert pieces[-1].done == pieces[-1].total


def test_a_csv_in_chunks_is_the_csv(
    table: tuple[Path, InputReader], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(csv_text, "CHUNK_CELLS", 5 * 100)
    new = tmp_path / "new.csv"
    frame = people(new)
    frame.loc[::5, "town"] = "Bonn"
    frame.to_csv(new, index=False)
    pieces = list(stream_inputs([new], table[1]))
    assert_the_same(pieces, table[1], [new])
    assert pieces[-1].inputs.notes[0].startswith("town: 300 of 1500 rows have values")
    assert pieces[0].inputs.columns["id"][7] == "00007"


@pytest.mark.parametrize(
    "cell",
    ["1,200.5", "tall", "1e400"],
    ids=["a number with a comma", "text among numbers", "a number beyond all bounds"],
)
def test_a_csv_that_only_tells_as_a_whole_is_read_whole(
    table: tuple[Path, InputReader], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cell: str
) -> None:
    monkeypatch.setattr(csv_text, "CHUNK_CELLS", 5 * 100)
    new = tmp_path / "new.csv"
    frame = people(new).astype({"height": object})
    frame.loc[1400, "height"] = cell
    frame.to_csv(new, index=False)
    with pytest.raises(NeedsWhole):
        list(stream_inputs([new], table[1]))
    ends = [_end(lambda: table[1].paths([new]).x), _end(lambda: _whole(new, table[1]))]
    np.testing.assert_array_equal(*ends)


def _end(read: Callable[[], Any]) -> Any:
    """What comes out, or the message."""
    try:
        return read()
    except DataError as error:
        return str(error)


def _whole(path: Path, reader: InputReader) -> Any:
    return np.concatenate([p.inputs.x for p in stream_inputs([path], reader, whole=True)])


def test_signals_are_unpacked_as_they_are_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "PIECE_BYTES", 2**14)
    path, rng = tmp_path / "ecg.npz", np.random.default_rng(0)
    x = rng.normal(size=(20_000, 2, 50)).astype(np.float32)
    np.savez(path, x=x, y=np.arange(20_000.0), more=np.zeros((2, 2)))
    reader = reader_of({"channels": 2}, "signal")
    assert_the_same(list(stream_inputs([path], reader)), reader, [path])
    tracemalloc.start()
    for _ in stream_inputs([path], reader):
        pass
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < x.nbytes / 3  # at once: x, and a copy of it


def test_images_are_decoded_as_they_are_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "BATCH", 32)
    for i in range(600):
        Image.new("RGB", (50, 40), (i % 256, 0, 0)).save(tmp_path / f"{i:03d}.png")
    (tmp_path / "300.png").write_bytes(b"no image")
    (tmp_path / "301.png").write_bytes(b"")
    reader = reader_of(FILES, "image", skip_bad=True)
    paths = [tmp_path]
    assert_the_same(list(stream_inputs(paths, reader)), reader, paths)
    tracemalloc.start()
    for _ in stream_inputs(paths, reader):
        pass
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 300 * 3 * 40 * 40  # some batches of pixels, not those of 600 files


def test_all_bad_images_are_named_before_anything_is_kept(tmp_path: Path) -> None:
    for i in range(600):
        Image.new("RGB", (50, 40)).save(tmp_path / f"{i:03d}.png")
    for i in (2, 599):
        (tmp_path / f"{i:03d}.png").write_bytes(b"no image")
    reader = reader_of(FILES, "image")
    with pytest.raises(DataError) as error:
        list(stream_inputs([tmp_path], reader))
    with pytest.raises(DataError) as at_once:
        reader.paths([tmp_path])
    assert str(error.value) == str(at_once.value)
    assert "2 of 600" in str(error.value)


COLUMNS = {
    "numbers": ["1.25"] * 300,
    "whole, then not": ["1"] * 150 + ["2.5"] * 150,
    "whole, then gaps": ["3"] * 150 + [""] * 150,
    "gaps, then text": [""] * 150 + ["a"] * 150,
    "thousands": ["1,200"] * 300,
    "nothing": [""] * 300,
    "yes or no": ["True", "False"] * 150,
    "numbers, then text": ["1"] * 299 + ["x"],
    "yes, then gaps": ["True"] * 150 + [""] * 150,
    "beyond exact floats": [str(2**60 + i) for i in range(299)] + ["0.5"],
}


@pytest.mark.parametrize("name", COLUMNS)
def test_a_large_csv_has_the_columns_of_a_small_one(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "data.csv"
    pd.DataFrame({name: COLUMNS[name], "id": range(300)}).to_csv(path, index=False)
    whole = csv_text.read_csv(path, Cells(text=["id"]))
    monkeypatch.setattr(csv_text, "LARGE_BYTES", 0)
    monkeypatch.setattr(csv_text, "CHUNK_CELLS", 2 * 37)
    chunks = csv_text.read_csv(path, Cells(text=["id"]))
    pd.testing.assert_frame_equal(chunks, whole, check_exact=True)


GROWTH = """
import re, sys
from pathlib import Path
from rnc.data import csv_text
from rnc.data.numerals import Cells

def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1])

csv_text.LARGE_BYTES, csv_text.CHUNK_CELLS = 2**20, 2**15
small = Path(sys.argv[1]).with_name("small.csv")
small.write_text("a,b\\n1,2.5\\n")
csv_text.read_csv(small, Cells())  # what pandas loads on its first call
start = peak()
frame = csv_text.read_csv(Path(sys.argv[1]), Cells())
by_chunks = peak()
del frame
csv_text.LARGE_BYTES = 2**40
csv_text.read_csv(Path(sys.argv[1]), Cells())
print(by_chunks - start, peak() - start)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's /proc")
def test_a_large_csv_has_a_bar_on_a_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a[b]{c}\x1b.csv"
    pd.DataFrame({"x": np.arange(100) % 7, "y": range(100)}).to_csv(path, index=False)
    monkeypatch.setattr(csv_text, "LARGE_BYTES", 0)
    monkeypatch.setattr(csv_text, "CHUNK_CELLS", 40)
    read_table(path, target="y", progress=True)
    assert capsys.readouterr() == ("", "")
    screen = io.StringIO()
    terminal = partial(Console, file=screen, force_terminal=True, color_system=None, width=100)
    monkeypatch.setattr(csv_text, "Console", lambda stderr: terminal())
    read_table(path, target="y")
    assert screen.getvalue() == ""
    read_table(path, target="y", progress=True)
    assert "Reading a[b]{c}\\x1b.csv" in screen.getvalue()
    assert "100%" in screen.getvalue()


def test_a_large_csv_takes_less_memory_than_to_parse_it_at_once(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    row = ",".join(f"{i + 1 / 7:.15f}" for i in range(10)) + "\n"
    path.write_text(",".join("abcdefghij") + "\n" + 80_000 * row)
    command = [sys.executable, "-c", GROWTH, str(path)]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    by_chunks, at_once = map(int, said.split())
    assert by_chunks < at_once / 2
