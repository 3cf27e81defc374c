"""The image caches on disk: list the entries, and delete old ones to keep the cache small.

An entry is a manifest NAME.json and the .npy file of pixels that it names. The modification time of
the manifest is the time of the last use. If another process has mapped a file that is deleted, that
process can still read it; on Windows the file is not deleted.
"""

import json
import os
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rnc.data.errors import DataError

LIMIT_VARIABLE = "RNC_CACHE_GB"
_LIMIT = 20.0  # GB
_ABANDONED = 24 * 3600  # seconds after which a pixel file without a manifest is removed


@dataclass(frozen=True)
class CacheEntry:
    """The decoded images of one set of files."""

    name: str
    folder: Path
    pixels: Path
    source: str
    """The folder of the image files."""
    shape: tuple[int, ...]
    """(n, c, side, side)."""
    size: int
    """Bytes on disk."""
    last_use: float
    """Seconds since 1970."""

    def delete(self) -> None:
        """Delete the files of this entry, unless another process has deleted them already."""
        for path in (self.folder / f"{self.name}.json", self.pixels):
            with suppress(OSError):
                path.unlink()


def default_cache() -> Path:
    """The folder of all image caches, inside the user's cache folder."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rnc" / "images"


def cache_limit() -> float:
    """How many bytes the default cache may take."""
    text = os.environ.get(LIMIT_VARIABLE) or str(_LIMIT)
    try:
        limit = float(text) * 1e9
    except ValueError:
        limit = -1.0
    if not limit >= 0:
        raise DataError(f"{LIMIT_VARIABLE} must be a number of gigabytes >= 0; got {text!r}.")
    return limit


def cache_entries(folder: Path) -> list[CacheEntry]:
    """The entries in a folder, sorted by last use, the latest first."""
    found = [_read(path) for path in folder.glob("*.json")] if folder.is_dir() else []
    entries = [entry for entry in found if entry is not None]
    return sorted(entries, key=lambda entry: -entry.last_use)


def make_room(folder: Path, needed: int, kept: frozenset[Path]) -> list[CacheEntry]:
    """Delete the least recently used entries until the needed bytes fit, and return them.

    Args:
        folder: the folder of the entries.
        needed: bytes that will be written.
        kept: pixel files not to delete, since this process reads them.
    """
    delete_abandoned(folder)
    entries = cache_entries(folder)
    excess = sum(entry.size for entry in entries) + needed - cache_limit()
    deleted = []
    for entry in reversed(entries):
        if excess > 0 and entry.pixels not in kept:
            entry.delete()
            excess -= entry.size
            deleted.append(entry)
    return deleted


def delete_abandoned(folder: Path, name: str = "") -> None:
    """Delete pixel files that no manifest names, unless another run may be writing them."""
    named = {entry.pixels for entry in cache_entries(folder)}
    for path in folder.glob("*.npy"):
        if path.name.startswith(name) and path not in named:
            with suppress(OSError):  # another run deleted it, or (on Windows) still reads it
                if time.time() - path.stat().st_mtime > _ABANDONED:
                    path.unlink()


def _read(manifest: Path) -> CacheEntry | None:
    """The entry of a manifest; None if the file is no manifest or was deleted meanwhile."""
    try:
        content = json.loads(manifest.read_text(encoding="utf-8"))
        pixels = manifest.with_name(content["pixels"])
        files = [str(stamp[0]) for stamp in content["files"]]
        status = manifest.stat()
        return CacheEntry(
            manifest.stem,
            manifest.parent,
            pixels,
            os.path.commonpath({str(Path(file).parent) for file in files}) if files else "",
            tuple(int(length) for length in content["shape"]),
            status.st_size + pixels.stat().st_size,
            status.st_mtime,
        )
    except (OSError, ValueError, KeyError, TypeError, IndexError):
        return None
