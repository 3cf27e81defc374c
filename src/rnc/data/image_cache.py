"""Decoded images, kept on disk between runs.

The cache is an .npy file with the pixels, which later runs map into memory, and a .json manifest
with the size and modification time of every file. Files that changed since are decoded again; the
pixels of the others are copied. Pixels are written to a file of a new name. They count only once
the manifest, replaced in one step, names them: a killed run, or two runs at once, leave either the
old cache or a new one.
"""

import json
import os
import stat
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import numpy as np
from PIL import Image

from rnc.data.cache_entries import default_cache, delete_abandoned, make_room
from rnc.data.errors import DataError
from rnc.data.images import FITS, Pixels, decode_all
from rnc.files import write_text

_VERSION = 1  # of the cache: raise it whenever the same file would give other pixels
_in_use: set[Path] = set()  # pixel files that this process reads


class Decoded(NamedTuple):
    """Pixels of the images that can be read, in order, and what is wrong with the others."""

    x: Pixels
    """(n, c, side, side), possibly mapped from the cache: read it, do not write."""
    bad: dict[int, str]
    """Position among the files -> what is wrong with it."""


class Decoding(NamedTuple):
    """How the image files of a table are decoded; the fields are options of `read_table`."""

    image_size: int
    skip_bad: bool
    cache: str | Path | None
    progress: bool
    fit: str = "crop"
    channels: int | None = 3
    """None: as the files are."""

    def as_fitted(self, preprocessing: Mapping[str, Any]) -> "Decoding":
        """The same, for a model with this preprocessing; an older one lacks what is usual."""
        return self._replace(
            image_size=preprocessing.get("side", self.image_size),
            fit=preprocessing.get("fit", "crop"),
            channels=preprocessing.get("channels", 3),
        )

    @property
    def preprocessing(self) -> dict[str, Any]:
        """What new files need to be decoded in the same way, as JSON types."""
        return {"channels": self.channels, "fit": self.fit, "side": self.image_size}


def load_images(
    files: Sequence[Path],
    side: int,
    *,
    channels: int = 3,
    fit: str = "crop",
    cache: Path | None = None,
    progress: bool = False,
) -> Decoded:
    """Decode images, or take them from the cache where the files have not changed.

    `cache` is a path without its suffix; each set of files, side, number of channels and fit needs
    its own. With None, the pixels are
    kept in memory only.
    """
    if not isinstance(side, int) or side < 1:
        raise DataError(f"image_size must be a whole number of pixels >= 1; got {side!r}.")
    if channels not in (1, 3):
        raise DataError(f"Image files have 3 channels (RGB) or 1 (grey); got channels={channels}.")
    if fit not in FITS:
        raise DataError(f"fit must be one of {', '.join(FITS)}; got {fit!r}.")
    stamps = [_stamp(file) for file in files]
    old = _Cache.read(cache, side, channels) if cache is not None else None
    if cache is not None and old is not None and stamps == old.stamps:
        _mark_used(cache)
        return Decoded(old.x, dict(old.bad))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="PIL")  # of unusual metadata, which do no harm
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        pixels = _pixels(stamps, old, side, channels, fit, progress)
        if cache is None:
            return _into_memory(pixels, len(files), side, channels)
        try:
            if cache.parent == default_cache():  # any other folder is its owner's to keep small
                make_room(cache.parent, len(files) * channels * side**2, frozenset(_in_use))
            return _into_cache(pixels, stamps, cache, side, channels)
        except OSError as error:
            raise DataError(
                f"The image cache {cache} cannot be written ({error}). It needs "
                f"{len(files) * channels * side**2 / 1e6:.0f} MB; make room, or choose another "
                "folder."
            ) from error


def _pixels(
    stamps: "list[_Stamp]", old: "_Cache | None", side: int, channels: int, fit: str, progress: bool
) -> Iterator[Pixels | str]:
    """Pixels of every file in order, or the reason why there are none; old ones are copied."""
    known = old.rows() if old is not None else {}
    changed = [stamp.file for stamp in stamps if stamp not in known]
    with closing(decode_all(changed, side, channels, fit, progress)) as fresh:
        for stamp in stamps:
            yield old.x[known[stamp]] if old is not None and stamp in known else next(fresh)


def _into_memory(pixels: Iterator[Pixels | str], n: int, side: int, channels: int) -> Decoded:
    x, good, bad = np.empty((n, channels, side, side), np.uint8), 0, {}
    for i, result in enumerate(pixels):
        if isinstance(result, str):
            bad[i] = result
        else:
            x[good] = result
            good += 1
    return Decoded(x[:good], bad)


class _Stamp(NamedTuple):
    """Size and time of a file; when either changes, the file is decoded again."""

    file: str
    size: int
    mtime_ns: int


def _stamp(file: Path) -> _Stamp:
    # This runs for every file at every start; pathlib takes several times as long.
    path = os.path.abspath(file)  # noqa: PTH100
    with suppress(OSError, ValueError):
        status = os.stat(path)  # noqa: PTH116
        if stat.S_ISREG(status.st_mode) and os.access(path, os.R_OK):
            return _Stamp(path, status.st_size, status.st_mtime_ns)
    return _Stamp(path, -1, -1)


class _Cache(NamedTuple):
    """A cache that has been read from disk."""

    x: Pixels
    stamps: list[_Stamp]
    bad: dict[int, str]

    def rows(self) -> dict[_Stamp, int]:
        """The row of x that holds each good file."""
        good = (stamp for i, stamp in enumerate(self.stamps) if i not in self.bad)
        return {stamp: row for row, stamp in enumerate(good)}

    @classmethod
    def read(cls, cache: Path, side: int, channels: int) -> "_Cache | None":
        """The cache at this path, or None if it is absent, incomplete or of other images."""
        try:
            manifest = json.loads(_manifest(cache).read_text(encoding="utf-8"))
            stamps = [_Stamp(*stamp) for stamp in manifest["files"]]
            bad = {int(i): str(reason) for i, reason in manifest["bad"].items()}
            shape = (len(stamps) - len(bad), channels, side, side)
            if manifest["version"] != _VERSION or tuple(manifest["shape"]) != shape:
                return None
            x = _map(cache.with_name(manifest["pixels"]), shape)
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None
        return cls(x, stamps, bad) if x.shape == shape and x.dtype == np.uint8 else None


def _map(path: Path, shape: tuple[int, ...]) -> Pixels:
    if 0 in shape:  # nothing to map
        return np.empty(shape, np.uint8)
    mapped: Pixels = np.load(path, mmap_mode="r", allow_pickle=False)
    _in_use.add(path)
    return mapped


def _into_cache(
    pixels: Iterator[Pixels | str], stamps: list[_Stamp], cache: Path, side: int, channels: int
) -> Decoded:
    """Write the pixels beside the old ones, then let the manifest name them."""
    cache.parent.mkdir(parents=True, exist_ok=True)
    data = cache.with_name(f"{cache.name}.{uuid4().hex[:12]}.npy")
    bad: dict[int, str] = {}
    try:
        with data.open("wb") as file:
            _write_header(file, (len(stamps), channels, side, side))
            for i, result in enumerate(pixels):
                if isinstance(result, str):
                    bad[i] = result
                else:  # a full disk raises here; with a mapped file it would kill the process
                    file.write(np.ascontiguousarray(result).data)
            shape = (len(stamps) - len(bad), channels, side, side)
            _write_header(file, shape)
            file.flush()
            os.fsync(file.fileno())
        x = _map(data, shape)
        _commit(cache, data, {"shape": shape, "files": stamps, "bad": bad})
    except BaseException:
        data.unlink(missing_ok=True)
        raise
    return Decoded(x, bad)


def _write_header(file: Any, shape: tuple[int, ...]) -> None:
    """Write the .npy header, which has the same length for any number of rows."""
    file.seek(0)
    header = {"descr": "|u1", "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, header)


def _commit(cache: Path, data: Path, manifest: dict[str, Any]) -> None:
    """Name the pixels in the manifest; remove others, unless another run may be writing them."""
    manifest = {"version": _VERSION, "pixels": data.name} | manifest
    replaced = None
    with suppress(OSError, ValueError, KeyError, TypeError):
        replaced = json.loads(_manifest(cache).read_text(encoding="utf-8"))["pixels"]
    write_text(_manifest(cache), json.dumps(manifest))
    if replaced not in (None, data.name):
        with suppress(OSError):  # another run was faster, or (on Windows) still reads it
            cache.with_name(replaced).unlink()
    delete_abandoned(cache.parent, f"{cache.name}.")


def _mark_used(cache: Path) -> None:
    with suppress(OSError):  # a cache that may only be read is as good
        os.utime(_manifest(cache))


def _manifest(cache: Path) -> Path:
    return cache.with_name(f"{cache.name}.json")
