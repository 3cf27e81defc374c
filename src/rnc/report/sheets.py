"""Sheets of small pictures, and sparklines of signals, drawn from the numbers of thumbnails.

No part of a user's image file is copied to the page: a sheet has many pictures, encoded again. Runs
whose pictures have the same shape share one sheet, which has each picture once.
"""

import base64
import hashlib
import io
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from rnc.run.thumbnails import Thumbnails

SHEET_BYTES = 8_000_000
"""Most bytes of all sheets of a page together."""

_MAX_PICTURES = 20_000  # on a sheet: more would not fit, and trying them would take long
_LOSSLESS_PIXELS = 500_000
_MAX_SIDE = 96


class PicturePool(NamedTuple):
    """Pictures of several runs, all with the same shape, each of them once."""

    content: NDArray[Any]
    """As in Thumbnails."""
    places: dict[int, dict[int, int]]
    """By run and row of predictions.csv: the position of its picture in `content`."""


def pool_pictures(parts: Sequence[Thumbnails | None], kind: str) -> list[PicturePool]:
    """The runs' pictures of one kind, in a pool for each shape.

    The first picture of each run comes first, then the second of each, and so on.

    >>> one, other = np.array([[5], [6], [8]]), np.array([[7], [5]])
    >>> parts = [Thumbnails(np.arange(len(x)), "signals", x) for x in (one, other)]
    >>> (pool,) = pool_pictures(parts, "signals")
    >>> pool.content[:, 0].tolist(), pool.places
    ([5, 7, 6, 8], {0: {0: 0, 1: 2, 2: 3}, 1: {0: 1, 1: 0}})
    """
    groups: dict[tuple[int, ...], dict[int, Thumbnails]] = {}
    for i, part in enumerate(parts):
        if part is not None and part.kind == kind:
            groups.setdefault(part.content.shape[1:], {})[i] = part
    return [_each_once(group) for group in groups.values()]


def _each_once(parts: dict[int, Thumbnails]) -> PicturePool:
    known: dict[bytes, int] = {}
    pictures: list[NDArray[Any]] = []
    places: dict[int, dict[int, int]] = {i: {} for i in parts}
    for rank in range(max(len(part.rows) for part in parts.values())):
        for i, part in parts.items():
            if rank < len(part.rows):
                key = hashlib.sha256(part.content[rank].tobytes()).digest()
                if key not in known:
                    known[key] = len(pictures)
                    pictures.append(part.content[rank])
                places[i][int(part.rows[rank])] = known[key]
    return PicturePool(np.stack(pictures), places)


class PictureSheet(NamedTuple):
    """Pictures of many samples side by side, as one file."""

    pictures: int
    columns: int
    lines: int
    uri: str


def make_sheets(pools: Sequence[PicturePool]) -> list[PictureSheet]:
    """A sheet for each pool of images.

    A sheet that would be too large has only the first pictures, so put important ones first.
    """
    return [_sheet(pool.content, SHEET_BYTES // len(pools)) for pool in pools]


def _sheet(images: NDArray[np.uint8], limit: int) -> PictureSheet:
    pictures = min(len(images), _MAX_PICTURES)
    while True:
        columns = math.ceil(math.sqrt(pictures))
        data = _encoded(_tiled(images[:pictures], columns))
        if len(data) * 4 / 3 <= limit or pictures == 1:
            break
        pictures = max(1, int(0.95 * pictures * limit / (len(data) * 4 / 3)))
    uri = f"data:image/webp;base64,{base64.b64encode(data).decode()}"
    return PictureSheet(pictures, columns, math.ceil(pictures / columns), uri)


def _tiled(images: NDArray[np.uint8], columns: int) -> NDArray[np.uint8]:
    """Tile pictures row by row: (k, c, h, w) -> (lines * h, columns * w, 3)."""
    k, c, height, width = images.shape
    if max(height, width) > _MAX_SIDE:
        step = math.ceil(max(height, width) / _MAX_SIDE)
        images = images[:, :, ::step, ::step]
        height, width = images.shape[2:]
    colors = images[:, :3] if c >= 3 else np.repeat(images[:, :1], 3, axis=1)
    lines = math.ceil(k / columns)
    cells = np.zeros((lines * columns, height, width, 3), np.uint8)
    cells[:k] = colors.transpose(0, 2, 3, 1)
    grid = cells.reshape(lines, columns, height, width, 3).transpose(0, 2, 1, 3, 4)
    return grid.reshape(lines * height, columns * width, 3)


def _encoded(pixels: NDArray[np.uint8]) -> bytes:
    """The pixels as WebP: lossless for a sheet of few pixels, else lossy."""
    exact = pixels.shape[0] * pixels.shape[1] <= _LOSSLESS_PIXELS
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "webp", lossless=exact, quality=75, method=2)
    return file.getvalue()


def sparklines(signals: NDArray[np.float32]) -> dict[str, Any]:
    """Signals (k, c, l) for the page, each channel scaled to 0..255 by its own range."""
    shown = signals.astype(np.float64)
    shown = np.where(np.isfinite(shown), shown, 0.0)
    low = shown.min(axis=2, keepdims=True)
    span = shown.max(axis=2, keepdims=True) - low
    levels = np.where(span > 0, (shown - low) / np.where(span > 0, span, 1) * 255, 127)
    return {
        "channels": shown.shape[1],
        "length": shown.shape[2],
        "bytes": base64.b64encode(levels.round().astype(np.uint8).tobytes()).decode(),
    }
