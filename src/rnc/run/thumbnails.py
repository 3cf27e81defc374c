"""Small pictures of samples, for the report: images shrunk, slices, signals as lines.

images   uint8 (k, c, s, s), s at most 48: the middle square, averaged over areas; for volumes
         (k, 1, 96, 96): the middle slices along d, h and w of the first channel
signals  float32 (k, c, 64), c at most 3: the lowest and highest value of each of 32 parts, in their
         order; signals of up to 64 values are interpolated

Rows of a table have no picture.
"""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import interpolate

THUMBNAIL_SIDE = 48
SKETCH_LENGTH = 64
SKETCH_CHANNELS = 3  # of a signal: more lines could not be told apart

_CHUNK = 256  # samples in memory at a time
_MAX_SIDE = 4096  # of pictures that are read: larger ones would bloat a page


class Thumbnails(NamedTuple):
    """Pictures of samples."""

    rows: NDArray[np.int64]
    """(k,) their rows in predictions.csv."""
    kind: str
    """images or signals"""
    content: NDArray[Any]
    """Images (k, c, s, s) in uint8, or signals (k, c, l) in float32."""

    def at(self, places: NDArray[np.int64]) -> "Thumbnails":
        """The pictures at these positions, in this order."""
        return Thumbnails(self.rows[places], self.kind, self.content[places])

    def and_then(self, others: "Thumbnails") -> "Thumbnails":
        """These pictures, then the others; only these if the others have another kind or shape."""
        if (self.kind, self.content.shape[1:]) != (others.kind, others.content.shape[1:]):
            return self
        return Thumbnails(
            np.concatenate([self.rows, others.rows]),
            self.kind,
            np.concatenate([self.content, others.content]),
        )


def parse_thumbnails(tensors: Mapping[str, Tensor], samples: int) -> Thumbnails:
    """The tensors of thumbnails.safetensors of a run with this many predictions, checked."""
    kinds = [name for name in ("images", "signals") if name in tensors]
    if len(kinds) != 1 or "rows" not in tensors:
        raise ValueError(f"needed rows, and images or signals; got {', '.join(sorted(tensors))}.")
    rows, content = tensors["rows"].numpy(), tensors[kinds[0]].numpy()
    dims, dtype = (4, np.uint8) if kinds == ["images"] else (3, np.float32)
    if content.ndim != dims or content.dtype != dtype or content.shape[0] != len(rows):
        raise ValueError(f"needed {kinds[0]} for {len(rows)} rows; got {content.shape}.")
    if 0 in content.shape or max(content.shape[-2:]) > _MAX_SIDE:
        raise ValueError(f"needed small {kinds[0]}; got {content.shape}.")
    if len(rows) and not 0 <= rows.min() <= rows.max() < samples:
        raise ValueError(f"rows {rows.min()} to {rows.max()} are not all among the {samples}.")
    return Thumbnails(rows, kinds[0], content)


def thumbnails(x: NDArray[Any], samples: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
    """Pictures by the kind of the data: "images" or "signals"; nothing for a table.

    >>> thumbnails(np.zeros((9, 1, 60, 99)), np.arange(4))["images"].shape
    (4, 1, 48, 48)
    """
    draw = {5: _slices, 4: _shrink, 3: _sketch}.get(x.ndim)
    if draw is None or len(samples) == 0:
        return {}
    step = _CHUNK if x.ndim < 5 else _CHUNK // 16
    chunks = (samples[i : i + step] for i in range(0, len(samples), step))
    return {_KINDS[x.ndim]: np.concatenate([draw(x[chunk]) for chunk in chunks])}


_KINDS = {5: "images", 4: "images", 3: "signals"}


def _shrink(images: NDArray[Any]) -> NDArray[np.uint8]:
    height, width = images.shape[2:]
    side = min(height, width)
    top, left = (height - side) // 2, (width - side) // 2
    square = torch.from_numpy(images[:, :, top : top + side, left : left + side]).float()
    small = interpolate(square, size=min(side, THUMBNAIL_SIDE), mode="area")
    return small.round().clamp(0, 255).byte().numpy()


def _slices(volumes: NDArray[Any]) -> NDArray[np.uint8]:
    """Three middle slices of each volume in a square. The first axis of each slice points up.

    For a scan from NIfTI, an axial slice is at the upper left, a coronal one below it, and a
    sagittal one beside that. The top of a slice is then the front or the head. Each volume has its
    own grey scale, from the 1st to the 99th percentile of its slices.
    """
    d, h, w = (length // 2 for length in volumes.shape[2:])
    planes = (volumes[:, :1, d], volumes[:, :1, :, h], volumes[:, :1, :, :, w])
    axial, coronal, sagittal = (
        interpolate(
            torch.from_numpy(np.array(plane[:, :, ::-1], dtype=np.float32)),
            size=(THUMBNAIL_SIDE, THUMBNAIL_SIDE),
            mode="area",
        )
        for plane in planes
    )
    values = torch.cat([part.flatten(1) for part in (axial, coronal, sagittal)], dim=1)
    low, high = torch.quantile(values, torch.tensor([0.01, 0.99]), dim=1)[..., None, None, None]
    span = torch.where(high > low, high - low, 1.0)
    upper = torch.cat([axial, low.expand_as(axial)], dim=3)
    square = torch.cat([upper, torch.cat([coronal, sagittal], dim=3)], dim=2)
    shades: NDArray[np.uint8] = ((square - low) / span * 255).clamp(0, 255).byte().numpy()
    return shades


def _sketch(signals: NDArray[Any]) -> NDArray[np.float32]:
    signals = np.ascontiguousarray(signals[:, :SKETCH_CHANNELS], dtype=np.float32)
    length = signals.shape[2]
    if length <= SKETCH_LENGTH:
        tensor = torch.from_numpy(signals)
        return interpolate(tensor, size=SKETCH_LENGTH, mode="linear", align_corners=True).numpy()
    edges = np.linspace(0, length, SKETCH_LENGTH // 2 + 1).round().astype(int)
    points = []
    for start, stop in pairwise(edges):
        part = signals[:, :, start:stop]
        places = np.stack([part.argmin(axis=2), part.argmax(axis=2)], axis=2)
        points.append(np.take_along_axis(part, np.sort(places, axis=2), axis=2))
    return np.concatenate(points, axis=2)
