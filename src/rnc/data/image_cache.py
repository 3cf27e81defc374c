"""A cache of decoded images and volumes on disk.

A cache is an .npy file with the pixels and a .json manifest. Later runs map the pixels into memory.
The manifest has a stamp of every file, which identifies its content (see `rnc.data.stamps`). Files
whose content has changed are decoded again; the pixels of the others are copied.

New pixels go to a file with a new name. Then the manifest, which names that file, is replaced
atomically. So a killed run, or two runs at once, leave either the old cache or a new one. If
several processes need the same cache, as under torchrun, the first one decodes, and the others wait
and map its file.
"""

import json
import math
import os
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from rnc.data.cache_entries import default_cache, delete_abandoned, make_room
from rnc.data.errors import DataError
from rnc.data.images import FITS, Pixels, decode_all
from rnc.data.stamps import Stamp, stamps_of
from rnc.files import write_text
from rnc.lock import one_at_a_time

_VERSION = 1  # of the cache: increase it if the same file would give other pixels
_in_use: set[Path] = set()  # pixel files that this process reads


class Decoded(NamedTuple):
    """The pixels of the readable images, in order, and the problems of the others."""

    x: NDArray[Any]
    """(n, c, side, side) or (n, c, side, side, side). Do not write to it: it may be mapped from the
    cache."""
    bad: dict[int, str]
    """Position among the files -> the problem of that file."""
    digests: list[str] | None = None
    """A hash of the content of every file, "" for an unreadable one; None without a cache."""


class StoredForm(NamedTuple):
    """The form of decoded files: shape and dtype of a sample, and the function that decodes."""

    shape: tuple[int, ...]
    """The shape of one sample."""
    dtype: type[np.generic]
    decode: Callable[[Sequence[str], bool], Generator[NDArray[Any] | str]]
    """Takes files and whether to show a bar; yields the sample of each, or why there is none."""
    kind: str = "image"

    @property
    def nbytes(self) -> int:
        """Bytes of one sample."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


class Decoding(NamedTuple):
    """How the image files of a table are decoded; the fields are options of `read_table`."""

    image_size: int
    skip_bad: bool
    cache: str | Path | None
    progress: bool
    fit: str = "crop"
    channels: int | None = 3
    """None: that of the files."""
    resample: str = "bicubic"
    """One of `rnc.data.images.FILTERS`."""
    volume_size: int = 64
    intensity: str = "keep"

    def as_fitted(self, preprocessing: Mapping[str, Any]) -> "Decoding":
        """The decoding that a model with this preprocessing needs. Old models lack some keys."""
        return self._replace(
            image_size=preprocessing.get("side", self.image_size),
            fit=preprocessing.get("fit", "crop"),
            channels=preprocessing.get("channels", 3),
            resample=preprocessing.get("resample", "bicubic"),
        )

    @property
    def preprocessing(self) -> dict[str, Any]:
        """The preprocessing that decodes new files in the same way, as JSON types."""
        usual = {"channels": self.channels, "fit": self.fit, "side": self.image_size}
        return usual | ({} if self.resample == "bicubic" else {"resample": self.resample})


def load_images(
    files: Sequence[str | Path],
    side: int,
    *,
    channels: int = 3,
    fit: str = "crop",
    cache: Path | None = None,
    progress: bool = False,
    resample: str = "bicubic",
) -> Decoded:
    """Decode images, or read them from the cache if the files have not changed.

    `cache` is a path without suffix. Each set of files, side, number of channels, fit and resample
    needs its own. With None, the pixels stay in memory only.
    """
    if not isinstance(side, int) or side < 1:
        raise DataError(f"image_size must be a whole number of pixels >= 1; got {side!r}.")
    if channels not in (1, 3):
        raise DataError(f"Image files have 3 channels (RGB) or 1 (grey); got channels={channels}.")
    if fit not in FITS:
        raise DataError(f"fit must be one of {', '.join(FITS)}; got {fit!r}.")

    def decode(names: Sequence[str], show: bool) -> Generator[Pixels | str]:
        return decode_all(names, side, channels, fit, show, resample)

    form = StoredForm((channels, side, side), np.uint8, decode)
    return load_files(files, form, cache=cache, progress=progress)


def load_files(
    files: Sequence[str | Path],
    form: StoredForm,
    *,
    cache: Path | None = None,
    progress: bool = False,
) -> Decoded:
    """Decode files of any kind, or read them from the cache, as `load_images` does with images."""
    if cache is None:
        unread = [Stamp(str(file), -1, -1) for file in files]
        return _into_memory(_pixels(unread, None, form, progress), len(files), form)
    old = _Cache.read(cache, form)
    stamps = stamps_of(files, {} if old is None else {one.file: one for one in old.stamps})
    if found := _found(cache, old, stamps):
        return found
    with one_at_a_time(cache.with_name(f"{cache.name}.lock")):
        old = _Cache.read(cache, form)  # another process may have written it meanwhile
        return _found(cache, old, stamps) or _made(cache, old, stamps, form, progress)


def _found(cache: Path, old: "_Cache | None", stamps: list[Stamp]) -> Decoded | None:
    """The content of the cache if it matches these files, else None."""
    if old is None or _contents(stamps) != _contents(old.stamps):
        return None
    _mark_used(cache, old, stamps)
    return Decoded(old.x, dict(old.bad), [stamp.digest for stamp in stamps])


def _made(
    cache: Path, old: "_Cache | None", stamps: list[Stamp], form: StoredForm, progress: bool
) -> Decoded:
    """Decode files that are not in the old cache, write the new cache, and return its content."""
    needed = len(stamps) * form.nbytes
    try:
        if cache.parent == default_cache():  # the user manages any other folder
            make_room(cache.parent, needed, frozenset(_in_use))
        return _into_cache(_pixels(stamps, old, form, progress), stamps, cache, form)
    except OSError as error:
        raise DataError(
            f"The {form.kind} cache {cache} cannot be written ({error}). It needs "
            f"{needed / 1e6:.0f} MB; make room, or choose another folder."
        ) from error


def _pixels(
    stamps: list[Stamp], old: "_Cache | None", form: StoredForm, progress: bool
) -> Iterator[NDArray[Any] | str]:
    """The pixels of every file in order, or the reason why there are none.

    Pixels in the old cache are copied; the other files are decoded.
    """
    known = old.rows() if old is not None else {}
    changed = [stamp.file for stamp in stamps if stamp.digest not in known]
    with warnings.catch_warnings(), closing(form.decode(changed, progress)) as fresh:
        warnings.filterwarnings("ignore", module="PIL")  # about unusual metadata, which is harmless
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        for stamp in stamps:
            is_known = old is not None and stamp.digest in known
            yield old.x[known[stamp.digest]] if old is not None and is_known else next(fresh)


def _into_memory(pixels: Iterator[NDArray[Any] | str], n: int, form: StoredForm) -> Decoded:
    x, good, bad = np.empty((n, *form.shape), form.dtype), 0, {}
    for i, result in enumerate(pixels):
        if isinstance(result, str):
            bad[i] = result
        else:
            x[good] = result
            good += 1
    return Decoded(x[:good], bad)


class _Cache(NamedTuple):
    """The content of a cache on disk."""

    x: NDArray[Any]
    pixels: str
    """The name of the file of x."""
    stamps: list[Stamp]
    bad: dict[int, str]

    def rows(self) -> dict[str, int]:
        """Digest of a readable file -> its row in x. Caches of older versions have no digests."""
        good = (stamp.digest for i, stamp in enumerate(self.stamps) if i not in self.bad)
        return {digest: row for row, digest in enumerate(good) if digest}

    @classmethod
    def read(cls, cache: Path, form: StoredForm) -> "_Cache | None":
        """The cache at this path, or None if it is missing, incomplete or of another form."""
        try:
            manifest = json.loads(_manifest(cache).read_text(encoding="utf-8"))
            stamps = [Stamp(*stamp) for stamp in manifest["files"]]
            bad = {int(i): str(reason) for i, reason in manifest["bad"].items()}
            shape = (len(stamps) - len(bad), *form.shape)
            if manifest["version"] != _VERSION or tuple(manifest["shape"]) != shape:
                return None
            x = _map(cache.with_name(manifest["pixels"]), shape, form)
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None
        return (
            cls(x, manifest["pixels"], stamps, bad)
            if x.shape == shape and x.dtype == form.dtype
            else None
        )


def _map(path: Path, shape: tuple[int, ...], form: StoredForm) -> NDArray[Any]:
    if 0 in shape:  # nothing to map
        return np.empty(shape, form.dtype)
    mapped: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    _in_use.add(path)
    return mapped


def _into_cache(
    pixels: Iterator[NDArray[Any] | str], stamps: list[Stamp], cache: Path, form: StoredForm
) -> Decoded:
    """Write the pixels to a new file, and then replace the manifest."""
    cache.parent.mkdir(parents=True, exist_ok=True)
    data = cache.with_name(f"{cache.name}.{uuid4().hex[:12]}.npy")
    bad: dict[int, str] = {}
    try:
        with data.open("wb") as file:
            _write_header(file, (len(stamps), *form.shape), form)
            for i, result in enumerate(pixels):
                if isinstance(result, str):
                    bad[i] = result
                else:  # a full disk raises here; writing to a mapped file would kill the process
                    file.write(np.ascontiguousarray(result).data)
            shape = (len(stamps) - len(bad), *form.shape)
            _write_header(file, shape, form)
            file.flush()
            os.fsync(file.fileno())
        x = _map(data, shape, form)
        _commit(cache, data, {"shape": shape, "files": stamps, "bad": bad})
    except BaseException:
        data.unlink(missing_ok=True)
        raise
    return Decoded(x, bad, [stamp.digest for stamp in stamps])


def _write_header(file: Any, shape: tuple[int, ...], form: StoredForm) -> None:
    """Write the .npy header, which has the same length for any number of rows."""
    file.seek(0)
    descr = np.lib.format.dtype_to_descr(np.dtype(form.dtype))
    header = {"descr": descr, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, header)


def _commit(cache: Path, data: Path, manifest: dict[str, Any]) -> None:
    """Write a manifest that names the pixel file `data`, and delete the file that it replaces."""
    manifest = {"version": _VERSION, "pixels": data.name} | manifest
    replaced = None
    with suppress(OSError, ValueError, KeyError, TypeError):
        replaced = json.loads(_manifest(cache).read_text(encoding="utf-8"))["pixels"]
    write_text(_manifest(cache), json.dumps(manifest))
    if replaced not in (None, data.name):
        with suppress(OSError):  # another run deleted it, or (on Windows) still reads it
            cache.with_name(replaced).unlink()
    delete_abandoned(cache.parent, f"{cache.name}.")


def _contents(stamps: Sequence[Stamp]) -> list[tuple[str, str, bool]]:
    """The facts about files that pixels depend on. An unreadable file has no digest."""
    return [(stamp.file, stamp.digest, stamp.size >= 0) for stamp in stamps]


def _mark_used(cache: Path, old: _Cache, stamps: list[Stamp]) -> None:
    """Set the time of the last use, and store new times of files with unchanged content."""
    with suppress(OSError):  # the cache may be read-only
        if stamps == old.stamps:
            os.utime(_manifest(cache))
        else:
            _commit(
                cache,
                cache.with_name(old.pixels),
                {"shape": old.x.shape, "files": stamps, "bad": old.bad},
            )


def _manifest(cache: Path) -> Path:
    return cache.with_name(f"{cache.name}.json")
