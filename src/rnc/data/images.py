"""Decode image files to uint8 pixels (c, side, side), in several threads.

Every image becomes an upright square. It is turned by its EXIF orientation and cropped, padded or
stretched to `side` pixels (see `FITS`). Colours become RGB or, for one channel, grey. Transparent
parts become white; 16-bit grey keeps its upper 8 bits.
"""

import errno
import os
from collections.abc import Callable, Collection, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import ExifTags, Image, UnidentifiedImageError
from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, TimeRemainingColumn

from rnc.data.errors import DataError
from rnc.data.packed import member_of, opened_picture

# fmt: off
IMAGE_SUFFIXES = frozenset((
    ".avif", ".bmp", ".gif", ".jp2", ".jpeg", ".jpg", ".pgm",
    ".png", ".pnm", ".ppm", ".tif", ".tiff", ".webp",
))
# fmt: on

_BLOCK = 1024  # images in flight
_TASK = 16  # images per task of a thread: one by one, small images cost too much overhead

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


def decode(
    file: Path, side: int, channels: int = 3, fit: str = "crop", resample: str = "bicubic"
) -> Pixels:
    """One image file as an upright square: (c, side, side)."""
    with Image.open(opened_picture(file), formats=readable_formats()) as image:
        image.draft(None, (2 * side, 2 * side))  # large JPEGs: decode at a fraction of the size
        return square(image, side, channels, fit, resample)


def square(
    picture: Image.Image, side: int, channels: int = 3, fit: str = "crop", resample: str = "bicubic"
) -> Pixels:
    """A picture of any size and mode as an upright square: (c, side, side).

    Args:
        picture: it is turned by its EXIF orientation, if it has one.
        side: side of the square, in pixels.
        channels: 3 for RGB, 1 for grey.
        fit: one of `FITS`.
        resample: one of `FILTERS`.
    """
    if fit not in FITS:
        raise DataError(f"fit must be one of {', '.join(FITS)}; got {fit!r}.")
    picture.load()  # after this, a TIFF has applied its orientation itself
    turn = _TURNS.get(_orientation(picture))
    picture = _in_colours(picture, "RGB" if channels == 3 else "L")
    if picture.size != (side, side):
        picture = FITS[fit](picture, side, FILTERS[resample])
    if turn is not None:
        picture = picture.transpose(turn)
    return np.asarray(picture).reshape(side, side, channels).transpose(2, 0, 1)


def whole(picture: Image.Image, channels: int = 3) -> Pixels:
    """A picture of any mode, upright and in its own size: (c, h, w)."""
    picture.load()
    turn = _TURNS.get(_orientation(picture))
    picture = _in_colours(picture, "RGB" if channels == 3 else "L")
    if turn is not None:
        picture = picture.transpose(turn)
    return np.asarray(picture).reshape(picture.height, picture.width, channels).transpose(2, 0, 1)


def _crop(picture: Image.Image, side: int, by: Image.Resampling) -> Image.Image:
    cut = min(picture.size)
    left, top = (picture.width - cut) / 2, (picture.height - cut) / 2
    return _resize(picture, (side, side), (left, top, left + cut, top + cut), by)


def _pad(picture: Image.Image, side: int, by: Image.Resampling) -> Image.Image:
    longer = max(picture.size)
    width, height = (max(1, round(side * length / longer)) for length in picture.size)
    page = Image.new(picture.mode, (side, side), _BARS[picture.mode])
    whole = _resize(picture, (width, height), (0, 0, *picture.size), by)
    page.paste(whole, ((side - width) // 2, (side - height) // 2))
    return page


def _stretch(picture: Image.Image, side: int, by: Image.Resampling) -> Image.Image:
    return _resize(picture, (side, side), (0, 0, *picture.size), by)


def _resize(
    picture: Image.Image,
    size: tuple[int, int],
    box: tuple[float, float, float, float],
    by: Image.Resampling,
) -> Image.Image:
    return picture.resize(size, by, box, reducing_gap=3.0)


FILTERS = {"bicubic": Image.Resampling.BICUBIC, "bilinear": Image.Resampling.BILINEAR}
"""The filters that scale a picture. Both average over the area of a pixel."""


_BARS: dict[str, int | tuple[int, ...]] = {"L": 128, "RGB": (128, 128, 128)}  # about 0 normalised
FITS: dict[str, Callable[[Image.Image, int, Image.Resampling], Image.Image]] = {
    "crop": _crop,
    "pad": _pad,
    "stretch": _stretch,
}
"""How a picture becomes a square. crop: cut out its middle, as in the paper; pad: add mid-grey
bars; stretch: change its proportions."""


def image_files(folder: Path) -> list[Path]:
    """All images in a folder and its subfolders, sorted by name, without hidden files."""
    return files_below(folder, "image", IMAGE_SUFFIXES)


def files_below(folder: Path, what: str, suffixes: Collection[str]) -> list[Path]:
    """All files with these suffixes in a folder and its subfolders, sorted, without hidden ones."""
    if not folder.is_dir():
        raise DataError(f"The {what} folder {folder} does not exist.")
    found = sorted(
        path
        for path in folder.rglob("*")
        if path.name.lower().endswith(tuple(suffixes))
        and not any(part.startswith(".") for part in path.relative_to(folder).parts)
    )
    if not found:
        raise DataError(f"{folder} holds no {what}s ({', '.join(sorted(suffixes))}).")
    return found


def decode_all(
    files: Sequence[str],
    side: int,
    channels: int,
    fit: str,
    progress: bool,
    resample: str = "bicubic",
) -> Generator[Pixels | str]:
    """The pixels of every file in order, or the reason why there are none.

    Threads suffice: Pillow releases the interpreter lock while it decodes and scales. Processes
    would be no faster, and each would have to import everything again.
    """

    def decode_one(file: str) -> Pixels | str:
        return _decode_or_reason(file, side, channels, fit, resample)

    return by_threads(files, decode_one, "Decoding images", progress)


def by_threads(
    files: Sequence[str],
    decode_one: Callable[[str], NDArray[Any] | str],
    title: str,
    progress: bool,
    *,
    in_flight: int = _BLOCK,
    task: int = _TASK,
) -> Generator[NDArray[Any] | str]:
    """The results of `decode_one` for each file in order, computed in several threads.

    At most `in_flight` files are in memory, and a thread gets `task` of them at a time. `progress`
    shows a bar.
    """
    columns = (*Progress.get_default_columns()[:3], MofNCompleteColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=Console(stderr=True, quiet=not progress), disable=not progress)
    with ThreadPoolExecutor(reader_threads()) as pool, bar:
        line = bar.add_task(title, total=len(files))
        for start in range(0, len(files), in_flight):
            block = files[start : start + in_flight]
            chunks = [block[i : i + task] for i in range(0, len(block), task)]
            for results in pool.map(lambda chunk: [decode_one(file) for file in chunk], chunks):
                bar.advance(line, len(results))
                yield from results


def reader_threads() -> int:
    """The number of threads that read files: the processors that this process may use."""
    found = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return found or 1


def readable_formats() -> list[str]:
    """The formats that Pillow reads, common ones first. EPS is excluded: it runs a program."""
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


def _decode_or_reason(file: str, side: int, channels: int, fit: str, resample: str) -> Pixels | str:
    path = Path(file)
    try:
        if member_of(file) is None and not path.is_file():
            return "no such file" if not path.exists() else "not a file"
        return decode(path, side, channels, fit, resample)
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        return (
            f"more than {Image.MAX_IMAGE_PIXELS:,} pixels, refused as a decompression bomb; save a "
            "smaller copy"
        )
    except UnidentifiedImageError:
        is_empty = path.is_file() and not path.stat().st_size
        return "an empty file" if is_empty else "not an image"
    except MemoryError:
        raise
    except Exception as error:  # Pillow raises many types for broken files
        if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
            raise  # the machine's fault, not the file's
        return str(error) or type(error).__name__
