"""Files that are written completely or not at all: beside their place, then moved onto it.

A crash, a full disk or a kill leaves the old file as it was. Nothing here reads or writes a pickle.
"""

import json
import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

PART = ".part"
"""Ending of the names of files that are being written."""
LOCK_FILE = ".lock"
"""In a folder that a process writes to, or that a killed one wrote to; see `rnc.lock`."""


def write_text(path: Path, text: str) -> None:
    """Write a text file."""
    write_file(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def write_json(path: Path, content: Any) -> None:
    """Write JSON that strict readers accept: NaN and infinity are refused."""
    write_text(path, json.dumps(content, indent=2, allow_nan=False) + "\n")


def write_tensors(path: Path, tensors: Mapping[str, Tensor], note: Any = None) -> None:
    """Write named tensors as safetensors, with a note of JSON types."""
    # Copies: parameters that share memory are refused by the format.
    arrays = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    header = {"note": json.dumps(note)}
    write_file(path, lambda temporary: save_file(arrays, temporary, metadata=header))


def read_tensors(path: Path) -> tuple[dict[str, Tensor], Any]:
    """The tensors and the note of a file that `write_tensors` wrote."""
    with safe_open(path, framework="pt") as file:
        note = json.loads((file.metadata() or {}).get("note", "null"))
        return {name: file.get_tensor(name) for name in file.keys()}, note  # noqa: SIM118


def contents(folder: Path) -> list[Path]:
    """What a folder holds but for what a killed process may have left: locks, unfinished files."""
    found = sorted(folder.iterdir())
    return [path for path in found if path.name != LOCK_FILE and not _is_part(path)]


def sweep(folder: Path) -> None:
    """Delete the unfinished files of a killed process in a folder that nobody else writes to."""
    for part in folder.glob(f".*{PART}"):
        part.unlink(missing_ok=True)


def _is_part(path: Path) -> bool:
    return path.name.startswith(".") and path.name.endswith(PART)


def write_file(path: Path, write: Callable[[Path], Any]) -> None:
    """Have a function write a file beside its place, and move it there when it is complete."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=PART)
    os.close(handle)
    temporary = Path(name)
    try:
        write(temporary)
        temporary.chmod(0o644)
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
