"""Atomic writes: a file is written under a temporary name and then moved to its own.

A crash, a full disk or a kill leaves the old file unchanged. Nothing here reads or writes a pickle.
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
_PART_NAME = re.compile(rf"\..*{re.escape(PART)}|\.tmp\w{{6}}")  # safetensors writes .tmp files
LOCK_FILE = ".lock"
"""The lock file in a folder that a process writes to. A killed process may leave it behind."""
CONFIG_FILE = "config.json"
MODEL_FILE = "model.safetensors"
CALIBRATION_FILE = "calibration.safetensors"
REFERENCE_FILE = "reference.safetensors"
"""Files of a run folder that its copy on the hub has, too. `rnc.run.folder` names all files."""


class DamagedFileError(ValueError):
    """A file differs from what was written. The message names it."""


def write_text(path: Path, text: str) -> None:
    """Write a text file."""
    write_file(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def write_json(path: Path, content: Any) -> None:
    """Write JSON. NaN and infinity raise, since strict readers do not accept them."""
    write_text(path, json.dumps(content, indent=2, allow_nan=False) + "\n")


def write_tensors(path: Path, tensors: Mapping[str, Tensor], note: Any = None) -> None:
    """Write named tensors as safetensors, with a note of JSON types."""
    # Copies, since the format does not accept parameters that share memory.
    arrays = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    # One entry, since the format does not keep the order of several: equal files would differ.
    header = {"note": json.dumps({"hash": hash_tensors(arrays), "note": note})}
    write_file(path, lambda temporary: save_file(arrays, temporary, metadata=header))


def read_tensors(path: Path) -> tuple[dict[str, Tensor], Any]:
    """The tensors and the note of a file that `write_tensors` wrote.

    Raises DamagedFileError for a file that was cut off or changed since. Older versions stored no
    hash, so only the length of their files can be checked.
    """
    try:
        with safe_open(path, framework="pt") as file:
            note = json.loads((file.metadata() or {}).get("note", "null"))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, ValueError, RecursionError) as error:
        raise DamagedFileError(f"{path} is damaged ({error}).") from error
    if not isinstance(note, dict) or note.keys() != {"hash", "note"}:  # from an older version
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
    """The files in a folder, without locks and unfinished files that a killed process may leave."""
    found = sorted(folder.iterdir())
    return [path for path in found if path.name != LOCK_FILE and not _is_part(path)]


def sweep(folder: Path) -> None:
    """Delete unfinished files that a killed process left. Nobody else may write to the folder."""
    for path in folder.iterdir() if folder.is_dir() else ():
        if _is_part(path):
            path.unlink(missing_ok=True)


def _is_part(path: Path) -> bool:
    return _PART_NAME.fullmatch(path.name) is not None


def write_file(path: Path, write: Callable[[Path], Any]) -> None:
    """Write a file atomically: `write` gets a temporary path, which is then moved to `path`."""
    with written_whole(path) as temporary:
        write(temporary)


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """A context with a temporary path to write to. It is moved to `path` if nothing is raised."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{uuid4().hex[:8]}{PART}")
    try:
        temporary.touch(exist_ok=False)  # with the permissions that the umask gives
        permissions = temporary.stat().st_mode
        yield temporary
        temporary.chmod(permissions)  # safetensors removes some of them
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
