"""Files are written completely or not at all, and none of them is a pickle."""

import errno
import json
import math
import os
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import SafetensorError
from torch import Tensor

import rnc
from rnc import files
from rnc.files import DamagedFileError, read_tensors, write_json, write_tensors, write_text

WRITERS: dict[str, Callable[[Path], None]] = {
    "text": lambda path: write_text(path, "new" * 1000),
    "json": lambda path: write_json(path, {"new": [1, 2, 3]}),
    "tensors": lambda path: write_tensors(path, {"new": torch.ones(1000)}),
}
DISK_FULL = OSError(errno.ENOSPC, "No space left on device")


def raise_disk_full(*_: Any) -> None:
    raise DISK_FULL


@pytest.mark.parametrize("kind", WRITERS)
@pytest.mark.parametrize("when", ["flushing", "moving"])
def test_a_full_disk_leaves_the_old_file_whole(
    kind: str, when: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    where, name = (os, "fsync") if when == "flushing" else (Path, "replace")
    monkeypatch.setattr(where, name, raise_disk_full)
    with pytest.raises(OSError, match="No space left on device"):
        WRITERS[kind](path)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("stop", [DISK_FULL, KeyboardInterrupt()], ids=["disk full", "Ctrl-C"])
def test_a_write_that_stops_halfway_leaves_nothing_behind(
    stop: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def save_half(_: dict[str, Tensor], path: Path, metadata: dict[str, str]) -> None:
        path.write_bytes(b"half")
        raise stop

    monkeypatch.setattr(files, "save_file", save_half)
    with pytest.raises(type(stop)):
        write_tensors(tmp_path / "new", {"a": torch.ones(3)})
    assert list(tmp_path.iterdir()) == []


def test_content_reaches_the_disk_before_the_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, seen = tmp_path / "file", []
    path.write_text("old")
    flush = os.fsync

    def fsync(handle: int) -> None:
        seen.append((os.fstat(handle).st_size, path.read_text(), len(list(tmp_path.iterdir()))))
        flush(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    write_text(path, "newer")
    assert seen == [(5, "old", 2)]  # beside its place: a move between disks is not atomic
    assert path.read_text() == "newer"


@pytest.mark.parametrize("kind", WRITERS)
def test_files_can_be_read_by_others_and_their_folder_is_made(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "file"
    WRITERS[kind](path)
    assert path.stat().st_mode & 0o777 == 0o644
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_json_refuses_what_strict_readers_refuse(number: float, tmp_path: Path) -> None:
    path = tmp_path / "scores.json"
    write_json(path, {"mae": 1.5, "name": "Größe"})
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(path, {"mae": number})
    assert json.loads(path.read_text(encoding="utf-8")) == {"mae": 1.5, "name": "Größe"}


def test_tensors_and_their_note_come_back(tmp_path: Path) -> None:
    weight = torch.randn(3, 4, requires_grad=True)
    tensors = {
        "float32": weight,
        "transposed": weight.T,  # shares memory, and is not contiguous
        "float64": torch.tensor([math.nan, math.inf, 1e-300], dtype=torch.float64),
        "bfloat16": torch.randn(2).bfloat16(),
        "count": torch.tensor(2**40),
        "bool": torch.tensor([True, False]),
        "empty": torch.zeros(0, 5),
    }
    note = {"stage": "encoder", "records": [{"epoch": 1, "gap": None}], "gap": 0.1 + 0.2}
    write_tensors(tmp_path / "file", tensors, note)
    read, read_note = read_tensors(tmp_path / "file")
    assert read_note == note
    assert set(read) == set(tensors)
    for name, tensor in tensors.items():
        assert read[name].dtype == tensor.dtype
        torch.testing.assert_close(read[name], tensor.detach(), rtol=0, atol=0, equal_nan=True)
        assert not read[name].requires_grad


def test_a_file_without_a_note_has_none(tmp_path: Path) -> None:
    write_tensors(tmp_path / "file", {"a": torch.ones(1)})
    assert read_tensors(tmp_path / "file")[1] is None


class Trap:
    """An object whose pickle touches a file when it is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.path,))


@pytest.mark.parametrize(
    "save", [torch.save, lambda trap, path: path.write_bytes(pickle.dumps(trap))]
)
def test_a_pickle_is_refused_and_not_run(save: Callable[..., Any], tmp_path: Path) -> None:
    path, touched = tmp_path / "model.safetensors", tmp_path / "touched"
    save(Trap(touched), path)
    with pytest.raises(DamagedFileError, match=r"model\.safetensors is damaged"):
        read_tensors(path)
    assert not touched.exists()


def test_no_source_file_can_load_a_pickle() -> None:
    loads = re.compile(r"torch\.load\(|\bpickle\b.*\bload|import (pickle|joblib)|allow_pickle=True")
    sources = list(Path(rnc.__file__).parent.rglob("*.py"))
    assert len(sources) > 20
    assert [str(path) for path in sources if loads.search(path.read_text())] == []


@pytest.mark.parametrize("how", ["cut", "emptied", "flipped", "header"])
def test_a_file_that_changed_since_it_was_written_is_named(how: str, tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    write_tensors(path, {"a": torch.arange(100.0), "b": torch.tensor(True)}, {"stage": "head"})
    content = bytearray(path.read_bytes())
    if how == "flipped":
        content[-50] ^= 1
    elif how == "header":
        content[20] ^= 1
    path.write_bytes(content[: {"cut": -3, "emptied": 0}.get(how)])
    with pytest.raises(DamagedFileError, match=r"weights\.safetensors is damaged"):
        read_tensors(path)


def test_files_have_the_rights_that_the_umask_leaves(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        write_text(tmp_path / "secret", "x")
    finally:
        os.umask(before)
    assert (tmp_path / "secret").stat().st_mode & 0o777 == 0o600


def test_a_full_disk_is_a_message_of_every_writer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def save_nothing(_: dict[str, Tensor], path: Path, metadata: dict[str, str]) -> None:
        raise SafetensorError("Error while serializing: I/O error: No space left on device")

    monkeypatch.setattr(files, "save_file", save_nothing)
    message = r"new could not be written: .*No space left on device.*still there"
    with pytest.raises(OSError, match=message):
        write_tensors(tmp_path / "new", {"a": torch.ones(3)})
    assert list(tmp_path.iterdir()) == []


def test_equal_tensors_make_equal_files_and_older_files_are_read(tmp_path: Path) -> None:
    tensors = {name: torch.arange(3.0) for name in "abcdef"}
    for name in ("one", "two"):
        write_tensors(tmp_path / name, tensors, {"stage": "head"})
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    files.save_file(tensors, tmp_path / "old", metadata={"note": '{"stage": "head"}'})
    assert read_tensors(tmp_path / "old")[1] == {"stage": "head"}
