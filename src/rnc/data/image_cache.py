"""Decoded images and volumes, kept on disk between runs.

The cache is an .npy file with the pixels, which later runs map into memory, and a .json manifest
with a stamp of every file, which says its content (see `rnc.data.stamps`). Files whose content has
changed since are decoded again; the pixels of the others are copied. Pixels are written to a file
of a new name. They count only once the manifest, replaced in one step, names them: a killed run, or
two runs at once, leave either the old cache or a new one. Processes that want the same cache at
once, as under torchrun, wait for the first of them, and map what it made.
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

_VERSION = 1  # of the cache: raise it whenever the same file would give other pixels
_in_use: set[Path] = set()  # pixel files that this process reads


class Decoded(NamedTuple):
    """Pixels of the images that can be read, in order, and what is wrong with the others."""

    x: NDArray[Any]
    """(n, c, side, side) or (n, c, side, side, side), possibly mapped from the cache: read it, do
    not write."""
    bad: dict[int, str]
    """Position among the files -> what is wrong with it."""
    digests: list[str] | None = None
    """A hash of the content of every file, "" where there is none; None if there is no cache."""


class StoredForm(NamedTuple):
    """What files become, and what makes it of them."""

    shape: tuple[int, ...]
    """Of one sample."""
    dtype: type[np.generic]
    decode: Callable[[Sequence[str], bool], Generator[NDArray[Any] | str]]
    """Files and whether to show a bar -> what each is, or why there is nothing."""
    kind: str = "image"

    @property
    def nbytes(self) -> int:
        """Of one sample."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


class Decoding(NamedTuple):
    """How the image files of a table are decoded; the fields are options of `read_table`."""

    image_size: int
    skip_bad: bool
    cache: str | Path | None
    progress: bool
    fit: str = "crop"
    channels: int | None = 3
    """None: as the files are."""
    resample: str = "bicubic"
    """One of `rnc.data.images.FILTERS`."""
    volume_size: int = 64
    intensity: str = "keep"

    def as_fitted(self, preprocessing: Mapping[str, Any]) -> "Decoding":
        """The same, for a model with this preprocessing; an older one lacks what is usual."""
        return self._replace(
            image_size=preprocessing.get("side", self.image_size),
            fit=preprocessing.get("fit", "crop"),
            channels=preprocessing.get("channels", 3),
            resample=preprocessing.get("resample", "bicubic"),
        )

    @property
    def preprocessing(self) -> dict[str, Any]:
        """What new files need to be decoded in the same way, as JSON types."""
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
    """Decode images, or take them from the cache where the files have not changed.

    `cache` is a path without its suffix; each set of files, side, number of channels, fit and
    resample needs its own. With None, the pixels are kept in memory only.
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
    """Decode files of any kind, or take them from the cache, as `load_images` does with images."""
    if cache is None:
        unread = [Stamp(str(file), -1, -1) for file in files]
        return _into_memory(_pixels(unread, None, form, progress), len(files), form)
    old = _Cache.read(cache, form)
    stamps = stamps_of(files, {} if old is None else {one.file: one for one in old.stamps})
    if found := _found(cache, old, stamps):
        return found
    with one_at_a_time(cache.with_name(f"{cache.name}.lock")):
        old = _Cache.read(cache, form)  # another process may have made it while this one waited
        return _found(cache, old, stamps) or _made(cache, old, stamps, form, progress)


def _found(cache: Path, old: "_Cache | None", stamps: list[Stamp]) -> Decoded | None:
    """What the cache has, if it is of these files as they are."""
    if old is None or _contents(stamps) != _contents(old.stamps):
        return None
    _mark_used(cache, old, stamps)
    return Decoded(old.x, dict(old.bad), [stamp.digest for stamp in stamps])


def _made(
    cache: Path, old: "_Cache | None", stamps: list[Stamp], form: StoredForm, progress: bool
) -> Decoded:
    """What the cache has after it was made."""
    needed = len(stamps) * form.nbytes
    try:
        if cache.parent == default_cache():  # any other folder is its owner's to keep small
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
    """Pixels of every file in order, or the reason why there are none; old ones are copied."""
    known = old.rows() if old is not None else {}
    changed = [stamp.file for stamp in stamps if stamp.digest not in known]
    with warnings.catch_warnings(), closing(form.decode(changed, progress)) as fresh:
        warnings.filterwarnings("ignore", module="PIL")  # of unusual metadata, which do no harm
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
    """A cache that has been read from disk."""

    x: NDArray[Any]
    pixels: str
    """The name of the file of x."""
    stamps: list[Stamp]
    bad: dict[int, str]

    def rows(self) -> dict[str, int]:
        """The row of x that holds each good content; an older cache does not say which it is."""
        good = (stamp.digest for i, stamp in enumerate(self.stamps) if i not in self.bad)
        return {digest: row for row, digest in enumerate(good) if digest}

    @classmethod
    def read(cls, cache: Path, form: StoredForm) -> "_Cache | None":
        """The cache at this path, or None if it is absent, incomplete or of other images."""
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
    """Write the pixels beside the old ones, then let the manifest name them."""
    cache.parent.mkdir(parents=True, exist_ok=True)
    data = cache.with_name(f"{cache.name}.{uuid4().hex[:12]}.npy")
    bad: dict[int, str] = {}
    try:
        with data.open("wb") as file:
            _write_header(file, (len(stamps), *form.shape), form)
            for i, result in enumerate(pixels):
                if isinstance(result, str):
                    bad[i] = result
                else:  # a full disk raises here; with a mapped file it would kill the process
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


def _contents(stamps: Sequence[Stamp]) -> list[tuple[str, str, bool]]:
    """What the pixels depend on. A file that cannot be read has no digest."""
    return [(stamp.file, stamp.digest, stamp.size >= 0) for stamp in stamps]


def _mark_used(cache: Path, old: _Cache, stamps: list[Stamp]) -> None:
    """Set the time of the last use, and note new times of files whose content is the same."""
    with suppress(OSError):  # a cache that may only be read is as good
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
