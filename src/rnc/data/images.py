"""Image files -> uint8 pixels (n, c, side, side), decoded once and kept on disk.

Every image becomes an upright square: turned as its EXIF orientation says, short side scaled to
`side`, centre cut out, colours as RGB (or grey where one channel is asked for). Transparent parts
become white; 16-bit grey keeps its upper 8 bits.

The cache is an .npy file with the pixels, which later runs map into memory, and a .json manifest
with the size and modification time of every file. What changed since is decoded anew, the rest is
copied. Pixels are written to a file of a new name and count only once the manifest, replaced in
one step, names them: a killed run or two runs at once leave either the old cache or a new one.
"""

import errno
import json
import os
import stat
import time
import warnings
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray
from PIL import ExifTags, Image, UnidentifiedImageError
from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, TimeRemainingColumn

from rnc.data.errors import DataError

# fmt: off
IMAGE_SUFFIXES = frozenset((
    ".avif", ".bmp", ".gif", ".jp2", ".jpeg", ".jpg", ".pgm",
    ".png", ".pnm", ".ppm", ".tif", ".tiff", ".webp",
))
# fmt: on

_VERSION = 1  # of the cache: another number wherever the same file would give other pixels
_BLOCK = 1024  # images in flight
_TASK = 16  # images that a thread takes at a time: small ones cost less than handing them over
_ABANDONED = 24 * 3600  # seconds after which a pixel file without manifest is nobody's

_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}

Pixels = NDArray[np.uint8]


class Decoded(NamedTuple):
    """Pixels of the good images, in order, and why the others are none."""

    x: Pixels
    """(n, c, side, side), possibly mapped from the cache: read it, do not write."""
    bad: dict[int, str]
    """Position among the files -> what is wrong with it."""


def load_images(
    files: Sequence[Path],
    side: int,
    *,
    channels: int = 3,
    cache: Path | None = None,
    progress: bool = False,
) -> Decoded:
    """Decode images, or take them from the cache where the files have not changed.

    Args:
        files: the images, in order.
        side: width and height of the result in pixels.
        channels: 3 for RGB, 1 for grey.
        cache: where the cache is, without suffix; two sets of files need two. None keeps the
            pixels in memory only.
        progress: show a bar on stderr.
    """
    if not isinstance(side, int) or side < 1:
        raise DataError(f"image_size must be a whole number of pixels >= 1; got {side!r}.")
    if channels not in (1, 3):
        raise DataError(f"Image files have 3 channels (RGB) or 1 (grey); got channels={channels}.")
    stamps = [_stamp(file) for file in files]
    old = _Cache.read(cache, side, channels) if cache is not None else None
    if old is not None and stamps == old.stamps:
        return Decoded(old.x, dict(old.bad))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="PIL")  # odd metadata is no reason to worry anyone
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        pixels = _pixels(stamps, old, side, channels, progress)
        if cache is None:
            return _into_memory(pixels, len(files), side, channels)
        try:
            return _into_cache(pixels, stamps, cache, side, channels)
        except OSError as error:
            raise DataError(
                f"The image cache {cache} cannot be written ({error}). It needs "
                f"{len(files) * channels * side**2 / 1e6:.0f} MB; make room, or choose another "
                "folder."
            ) from error


def decode(file: Path, side: int, channels: int = 3) -> Pixels:
    """One image as an upright square: (c, side, side)."""
    with Image.open(file, formats=_formats()) as image:
        image.draft(None, (2 * side, 2 * side))  # large JPEGs: decode at a fraction of the size
        image.load()  # after this, a TIFF has applied its orientation itself
        turn = _TURNS.get(_orientation(image))
        picture = _in_colours(image, "RGB" if channels == 3 else "L")
    if picture.size != (side, side):
        cut = min(picture.size)
        left, top = (picture.width - cut) / 2, (picture.height - cut) / 2
        box = (left, top, left + cut, top + cut)
        picture = picture.resize((side, side), Image.Resampling.BICUBIC, box, reducing_gap=3.0)
    if turn is not None:
        picture = picture.transpose(turn)
    return np.asarray(picture).reshape(side, side, channels).transpose(2, 0, 1)


def image_files(folder: Path) -> list[Path]:
    """All images in a folder and below, by name; hidden files are left out."""
    if not folder.is_dir():
        raise DataError(f"The image folder {folder} does not exist.")
    found = sorted(
        path
        for path in folder.rglob("*")
        if path.suffix.lower() in IMAGE_SUFFIXES
        and not any(part.startswith(".") for part in path.relative_to(folder).parts)
    )
    if not found:
        raise DataError(f"{folder} holds no images ({', '.join(sorted(IMAGE_SUFFIXES))}).")
    return found


def default_cache() -> Path:
    """The folder for caches of all data sets, where the system keeps such things."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rnc" / "images"


# -------------------------------------------------------------------------------------- decoding


def _formats() -> list[str]:
    """What Pillow reads, the usual first, less EPS, which runs another program."""
    Image.init()
    usual = ("JPEG", "PNG", "WEBP")
    return [*usual, *(name for name in Image.ID if name not in (*usual, "EPS"))]


def _orientation(image: Image.Image) -> int:
    try:
        return int(image.getexif().get(ExifTags.Base.Orientation, 1))
    except Exception:  # broken metadata fails in many ways, and the pixels may be good
        return 1


def _in_colours(image: Image.Image, mode: str) -> Image.Image:
    if image.mode == "F":
        raise ValueError("floating-point pixels have no known range; save it with 8 or 16 bits")
    if image.mode.startswith("I"):  # Pillow's own conversion would cut off at 255
        values = np.asarray(image).astype(np.int64)
        if values.min() < 0 or values.max() > 0xFFFF:
            raise ValueError("32-bit pixels have no known range; save it with 8 or 16 bits")
        image = Image.fromarray((values >> 8).astype(np.uint8))
    if image.has_transparency_data:
        page = Image.new("RGBA", image.size, "white")
        page.alpha_composite(image.convert("RGBA"))
        image = page
    return image.convert(mode)


def _decode_or_reason(file: str, side: int, channels: int) -> Pixels | str:
    path = Path(file)
    try:
        if not path.is_file():
            return "no such file" if not path.exists() else "not a file"
        return decode(path, side, channels)
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        return (
            f"more than {Image.MAX_IMAGE_PIXELS:,} pixels, refused as a decompression bomb; save a "
            "smaller copy"
        )
    except UnidentifiedImageError:
        return "not an image" if path.stat().st_size else "an empty file"
    except MemoryError:
        raise
    except Exception as error:  # what a broken file makes Pillow raise is not limited to a few
        if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
            raise  # the machine's fault, not the file's
        return str(error) or type(error).__name__


def _pixels(
    stamps: "list[_Stamp]", old: "_Cache | None", side: int, channels: int, progress: bool
) -> Iterator[Pixels | str]:
    """Pixels, or why there are none, for every file in order; threads do the work.

    Pillow lets go of the interpreter lock while it decodes and scales, so threads do as well as
    processes, which would have to import everything again.
    """
    known = old.rows() if old is not None else {}
    todo = [stamp.file for stamp in stamps if stamp not in known]
    decoder = partial(_decode_or_reason, side=side, channels=channels)
    with closing(_decode_all(todo, decoder, progress)) as fresh:
        for stamp in stamps:
            if old is not None and stamp in known:
                yield old.x[known[stamp]]
            else:
                yield next(fresh)


def _decode_all(
    files: list[str], decoder: "partial[Pixels | str]", progress: bool
) -> Generator[Pixels | str]:
    columns = (*Progress.get_default_columns()[:3], MofNCompleteColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=Console(stderr=True, quiet=not progress), disable=not progress)
    with ThreadPoolExecutor(_workers()) as pool, bar:
        task = bar.add_task("Decoding images", total=len(files))
        for start in range(0, len(files), _BLOCK):
            stop = min(start + _BLOCK, len(files))
            tasks = [files[i : min(i + _TASK, stop)] for i in range(start, stop, _TASK)]
            for results in pool.map(lambda some: [decoder(file) for file in some], tasks):
                bar.advance(task, len(results))
                yield from results


def _workers() -> int:
    if hasattr(os, "sched_getaffinity"):  # the processors that this process may use, on Linux
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _into_memory(pixels: Iterator[Pixels | str], n: int, side: int, channels: int) -> Decoded:
    x, good, bad = np.empty((n, channels, side, side), np.uint8), 0, {}
    for i, result in enumerate(pixels):
        if isinstance(result, str):
            bad[i] = result
        else:
            x[good] = result
            good += 1
    return Decoded(x[:good], bad)


# ----------------------------------------------------------------------------------------- cache


class _Stamp(NamedTuple):
    """A file as it was: another size or time means another content."""

    file: str
    size: int
    mtime_ns: int


def _stamp(file: Path) -> _Stamp:
    # Every start does this for every file, and pathlib takes several times as long.
    path = os.path.abspath(file)  # noqa: PTH100
    try:
        found = os.stat(path)  # noqa: PTH116
        readable = stat.S_ISREG(found.st_mode) and os.access(path, os.R_OK)
    except (OSError, ValueError):
        readable = False
    return _Stamp(path, found.st_size, found.st_mtime_ns) if readable else _Stamp(path, -1, -1)


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
        """The cache of this name, or None where it is absent, of another kind or not whole."""
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
                else:  # plain writes: a full disk raises here, but kills a process that maps
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
    """The .npy header, whose length numpy keeps the same for any number of rows."""
    file.seek(0)
    header = {"descr": "|u1", "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, header)


def _commit(cache: Path, data: Path, manifest: dict[str, Any]) -> None:
    manifest = {"version": _VERSION, "pixels": data.name} | manifest
    temporary = data.with_suffix(".json")
    replaced = _named_pixels(cache)
    try:
        temporary.write_text(json.dumps(manifest), encoding="utf-8")
        temporary.replace(_manifest(cache))
    finally:
        temporary.unlink(missing_ok=True)
    for path in cache.parent.iterdir():
        if path.name.startswith(f"{cache.name}.") and path.suffix == ".npy" and path != data:
            _remove_unused(path, at_once=path.name == replaced)


def _remove_unused(path: Path, *, at_once: bool) -> None:
    """Remove pixels that no manifest names, unless another run may be writing them."""
    try:
        if at_once or time.time() - path.stat().st_mtime > _ABANDONED:
            path.unlink()
    except OSError:  # another run was faster, or (on Windows) still reads it
        return


def _named_pixels(cache: Path) -> str | None:
    try:
        return str(json.loads(_manifest(cache).read_text(encoding="utf-8"))["pixels"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _manifest(cache: Path) -> Path:
    return cache.with_name(f"{cache.name}.json")
