"""Small pictures and sparklines of test samples, drawn anew from numbers.

Nothing of a user's image file reaches the page: a sheet holds all pictures, re-encoded. Runs whose
pictures have the same shape share one sheet, which holds each picture once.
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

_MOST_PICTURES = 20_000  # of a sheet: more do not fit into it, and take long to try
_LOSSLESS_PIXELS = 500_000
_MAX_SIDE = 48


class Thumbnails(NamedTuple):
    """Samples as they look."""

    rows: NDArray[np.int64]
    """(k,) places in predictions.csv."""
    kind: str
    """images or signals"""
    content: NDArray[Any]
    """Images (k, c, s, s) in uint8, or signals (k, c, l) in float32."""

    def at(self, places: NDArray[np.int64]) -> "Thumbnails":
        """Some of them, in this order."""
        return Thumbnails(self.rows[places], self.kind, self.content[places])


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
    return Thumbnails(rows, kinds[0], content)


class Pool(NamedTuple):
    """Pictures of several runs, all of one shape, each once."""

    content: NDArray[Any]
    """As in Thumbnails."""
    places: dict[int, dict[int, int]]
    """By run and row: which of them it is."""


def pool(parts: Sequence[Thumbnails | None], kind: str) -> list[Pool]:
    """The pictures of one kind that runs have, by their shapes.

    The first pictures of all runs come first, then the second ones, and so on.

    >>> some, other = np.array([[5], [6], [8]]), np.array([[7], [5]])
    >>> parts = [Thumbnails(np.arange(len(its)), "signals", its) for its in (some, other)]
    >>> (found,) = pool(parts, "signals")
    >>> found.content[:, 0].tolist(), found.places
    ([5, 7, 6, 8], {0: {0: 0, 1: 2, 2: 3}, 1: {0: 1, 1: 0}})
    """
    groups: dict[tuple[int, ...], dict[int, Thumbnails]] = {}
    for i, part in enumerate(parts):
        if part is not None and part.kind == kind:
            groups.setdefault(part.content.shape[1:], {})[i] = part
    return [_each_once(group) for group in groups.values()]


def _each_once(parts: dict[int, Thumbnails]) -> Pool:
    found: dict[bytes, int] = {}
    pictures: list[NDArray[Any]] = []
    places: dict[int, dict[int, int]] = {i: {} for i in parts}
    for rank in range(max(len(part.rows) for part in parts.values())):
        for i, part in parts.items():
            if rank < len(part.rows):
                key = hashlib.sha256(part.content[rank].tobytes()).digest()
                if key not in found:
                    found[key] = len(pictures)
                    pictures.append(part.content[rank])
                places[i][int(part.rows[rank])] = found[key]
    return Pool(np.stack(pictures), places)


class Sheet(NamedTuple):
    """Pictures of many samples side by side, as one file."""

    pictures: int
    columns: int
    lines: int
    uri: str


def make_sheets(pools: Sequence[Pool]) -> list[Sheet]:
    """A sheet for each pool of images.

    One that would be too large holds the first pictures only: put those that matter first.
    """
    return [_sheet(its.content, SHEET_BYTES // len(pools)) for its in pools]


def _sheet(images: NDArray[np.uint8], limit: int) -> Sheet:
    pictures = min(len(images), _MOST_PICTURES)
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
