"""Small pictures and sparklines of test samples, drawn anew from numbers.

Nothing of a user's image file reaches the page: a sheet holds all pictures of a run, re-encoded.
Runs with the same pictures share one sheet.
"""

import base64
import hashlib
import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from rnc.files import read_tensors

SHEET_BYTES = 8_000_000
"""Of all sheets of a page together."""
CHANNELS = 4
"""Of a signal that get a line."""

_LOSSLESS_PIXELS = 500_000
_MAX_SIDE = 48


class Thumbnails(NamedTuple):
    """Samples as they look."""

    rows: NDArray[np.int64]
    """(k,) places in predictions.csv."""
    images: NDArray[np.uint8] | None = None
    """(k, c, s, s)"""
    signals: NDArray[np.float32] | None = None
    """(k, c, l)"""

    def at(self, places: NDArray[np.int64]) -> "Thumbnails":
        """Some of them."""
        return Thumbnails(
            self.rows[places],
            None if self.images is None else self.images[places],
            None if self.signals is None else self.signals[places],
        )


def read_thumbnails(path: Path, samples: int) -> Thumbnails:
    """The file thumbnails.safetensors of a run with this many predictions, checked."""
    tensors, _ = read_tensors(path)
    rows = tensors["rows"].numpy()
    kinds = [name for name in ("images", "signals") if name in tensors]
    if len(kinds) != 1:
        raise ValueError(f"needed images or signals; got {', '.join(sorted(tensors))}.")
    content = tensors[kinds[0]].numpy()
    dims, dtype = (4, np.uint8) if kinds == ["images"] else (3, np.float32)
    if content.ndim != dims or content.dtype != dtype or content.shape[0] != len(rows):
        raise ValueError(f"needed {kinds[0]} for {len(rows)} rows; got {content.shape}.")
    if 0 in content.shape or max(content.shape[-2:]) > 4096:
        raise ValueError(f"needed small {kinds[0]}; got {content.shape}.")
    if len(rows) and not 0 <= rows.min() <= rows.max() < samples:
        raise ValueError(f"rows {rows.min()} to {rows.max()} are not all among the {samples}.")
    return Thumbnails(rows, **{kinds[0]: content})


class Sheet(NamedTuple):
    """Pictures of many samples side by side, as one file."""

    pictures: int
    columns: int
    lines: int
    uri: str


def make_sheets(parts: Sequence[Thumbnails | None]) -> tuple[list[Sheet], list[int | None]]:
    """Sheets for the pictures of several runs, and which one each run uses.

    A sheet that would be too large holds the first pictures only: put those that matter first.
    """
    found: dict[bytes, int] = {}
    distinct: list[NDArray[np.uint8]] = []
    which: list[int | None] = []
    for part in parts:
        if part is None or part.images is None or not len(part.rows):
            which.append(None)
            continue
        images = np.ascontiguousarray(part.images)
        key = hashlib.sha256(repr(images.shape).encode() + images.tobytes()).digest()
        if key not in found:
            found[key] = len(distinct)
            distinct.append(images)
        which.append(found[key])
    return [_sheet(images, SHEET_BYTES // len(distinct)) for images in distinct], which


def _sheet(images: NDArray[np.uint8], limit: int) -> Sheet:
    pictures = len(images)
    while True:
        columns = math.ceil(math.sqrt(pictures))
        data = _encoded(_tiled(images[:pictures], columns))
        if len(data) * 4 / 3 <= limit or pictures == 1:
            break
        pictures = max(1, int(0.95 * pictures * limit / (len(data) * 4 / 3)))
    uri = f"data:image/webp;base64,{base64.b64encode(data).decode()}"
    return Sheet(pictures, columns, math.ceil(pictures / columns), uri)


def _tiled(images: NDArray[np.uint8], columns: int) -> NDArray[np.uint8]:
    """(k, c, s, s) -> (lines * s, columns * s, 3), read from left to right."""
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
    """WebP; exact where that stays small, as for drawings and tiny pictures."""
    exact = pixels.shape[0] * pixels.shape[1] <= _LOSSLESS_PIXELS
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "webp", lossless=exact, quality=75, method=2)
    return file.getvalue()


def sparklines(signals: NDArray[np.float32]) -> dict[str, Any]:
    """Signals (k, c, l) for the page, each between its own least and largest value, 0 to 255."""
    shown = signals[:, :CHANNELS].astype(np.float64)
    shown = np.where(np.isfinite(shown), shown, 0.0)
    low = shown.min(axis=2, keepdims=True)
    span = shown.max(axis=2, keepdims=True) - low
    levels = np.where(span > 0, (shown - low) / np.where(span > 0, span, 1) * 255, 127)
    return {
        "channels": shown.shape[1],
        "length": shown.shape[2],
        "bytes": base64.b64encode(levels.round().astype(np.uint8).tobytes()).decode(),
    }
