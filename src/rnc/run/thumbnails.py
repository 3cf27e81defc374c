"""Small pictures of samples, for the report: images shrunk, signals as the lines they make.

images   uint8 (k, c, s, s), s at most 48: the middle square, averaged over areas
signals  float32 (k, c, 64), c at most 3: lowest and highest value of 32 stretches, in their order

A table's rows have no picture.
"""

from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import interpolate

SIDE = 48
LENGTH = 64
CHANNELS = 3  # of a signal: more lines are not told apart

_CHUNK = 256  # samples in memory at a time


def thumbnails(x: NDArray[Any], samples: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
    """Pictures by the kind of the data: "images" or "signals"; nothing for a table.

    Args:
        x: all samples of a Table.
        samples: which of them, (k,).

    >>> thumbnails(np.zeros((9, 1, 60, 99)), np.arange(4))["images"].shape
    (4, 1, 48, 48)
    """
    draw = {4: _shrink, 3: _sketch}.get(x.ndim)
    if draw is None or len(samples) == 0:
        return {}
    chunks = (samples[i : i + _CHUNK] for i in range(0, len(samples), _CHUNK))
    return {_KINDS[x.ndim]: np.concatenate([draw(x[chunk]) for chunk in chunks])}


_KINDS = {4: "images", 3: "signals"}


def _shrink(images: NDArray[Any]) -> NDArray[np.uint8]:
    height, width = images.shape[2:]
    side = min(height, width)
    top, left = (height - side) // 2, (width - side) // 2
    square = torch.from_numpy(images[:, :, top : top + side, left : left + side]).float()
    small = interpolate(square, size=min(side, SIDE), mode="area")
    return small.round().clamp(0, 255).byte().numpy()


def _sketch(signals: NDArray[Any]) -> NDArray[np.float32]:
    signals = np.ascontiguousarray(signals[:, :CHANNELS], dtype=np.float32)
    length = signals.shape[2]
    if length <= LENGTH:
        tensor = torch.from_numpy(signals)
        return interpolate(tensor, size=LENGTH, mode="linear", align_corners=True).numpy()
    edges = np.linspace(0, length, LENGTH // 2 + 1).round().astype(int)
    points = []
    for start, stop in pairwise(edges):
        part = signals[:, :, start:stop]
        places = np.stack([part.argmin(axis=2), part.argmax(axis=2)], axis=2)
        points.append(np.take_along_axis(part, np.sort(places, axis=2), axis=2))
    return np.concatenate(points, axis=2)
