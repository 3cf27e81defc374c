"""Files that are written completely or not at all: beside their place, then moved onto it.

A crash, a full disk or a kill leaves the old file as it was. Nothing here reads or writes a pickle.
"""

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any
from uuid import uuid4

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

PART = ".part"
"""Ending of the names of files that are being written."""
_PART_NAME = re.compile(rf"\..*{re.escape(PART)}|\.tmp\w{{6}}")  # the latter of safetensors itself
LOCK_FILE = ".lock"
"""In a folder that a process writes to, or that a killed one wrote to; see `rnc.lock`."""
CONFIG_FILE = "config.json"
MODEL_FILE = "model.safetensors"
CALIBRATION_FILE = "calibration.safetensors"
REFERENCE_FILE = "reference.safetensors"
"""Of a run folder and of its copy on the hub; `rnc.run.folder` names all files of a run."""


class DamagedFileError(ValueError):
    """A file is not as it was written; the message names it."""


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
    # One entry: of several, the format does not keep the order, and equal files would differ.
    header = {"note": json.dumps({"hash": hash_tensors(arrays), "note": note})}
    write_file(path, lambda temporary: save_file(arrays, temporary, metadata=header))


def read_tensors(path: Path) -> tuple[dict[str, Tensor], Any]:
    """The tensors and the note of a file that `write_tensors` wrote.

    Raises DamagedFileError for a file that was cut off or changed since. Older versions stored no
    hash; of their files, only the length is known.
    """
    try:
        with safe_open(path, framework="pt") as file:
            note = json.loads((file.metadata() or {}).get("note", "null"))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, ValueError, RecursionError) as error:
        raise DamagedFileError(f"{path} is damaged ({error}).") from error
    if not isinstance(note, dict) or note.keys() != {"hash", "note"}:  # of an older version
        return tensors, note
    if note["hash"] != hash_tensors(tensors):
        raise DamagedFileError(f"{path} is damaged (its content has changed since it was written).")
    return tensors, note["note"]


def hash_tensors(tensors: Mapping[str, Tensor]) -> str:
    """A hash of names, types, shapes and every byte."""
    digest = blake2b(digest_size=16)
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def contents(folder: Path) -> list[Path]:
    """What a folder holds but for what a killed process may have left: locks, unfinished files."""
    found = sorted(folder.iterdir())
    return [path for path in found if path.name != LOCK_FILE and not _is_part(path)]


def sweep(folder: Path) -> None:
    """Delete the unfinished files of a killed process in a folder that nobody else writes to."""
    for path in folder.iterdir() if folder.is_dir() else ():
        if _is_part(path):
            path.unlink(missing_ok=True)


def _is_part(path: Path) -> bool:
    return _PART_NAME.fullmatch(path.name) is not None


def write_file(path: Path, write: Callable[[Path], Any]) -> None:
    """Have a function write a file beside its place, and move it there when it is complete."""
    with written_whole(path) as temporary:
        write(temporary)


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """A file to write beside its place, which is moved there if nothing is raised."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{uuid4().hex[:8]}{PART}")
    try:
        temporary.touch(exist_ok=False)  # with the rights that the umask leaves
        rights = temporary.stat().st_mode
        yield temporary
        temporary.chmod(rights)  # safetensors takes some away
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    except (OSError, SafetensorError) as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise OSError(
            getattr(error, "errno", None),
            f"{path} could not be written: {reason}. What was there before is still there",
        ) from error
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
