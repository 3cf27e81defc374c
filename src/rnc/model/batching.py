"""Results of a model for samples, computed batch by batch."""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

_VOXELS = 2**23  # the first map of resnet3d18 takes 32 bytes for each of them


class Answers(NamedTuple):
    """Features, head outputs and predictions of samples."""

    features: NDArray[np.float32]
    """(n, d)"""
    outputs: NDArray[np.float32]
    """(n, .) outputs of the head."""
    predictions: NDArray[np.float64]
    """(n, t)"""


class InFloat64(nn.Module):
    """An encoder that computes in float64, whatever the type of its input."""

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder.double()

    def forward(self, x: Tensor) -> Tensor:
        """Features of samples."""
        features: Tensor = self.encoder(x.double())
        return features


def rows_at_once(x: NDArray[Any], batch_size: int) -> int:
    """How many samples a network sees at once: fewer for volumes, so that they fit in memory.

    It is a power of two then, so that data in pieces of 256 rows are cut into the same batches.

    >>> rows_at_once(np.empty((9, 3, 32, 32)), 256), rows_at_once(np.empty((9, 1, 64, 64, 64)), 256)
    (256, 32)
    """
    if x.ndim != 5:
        return batch_size
    most = max(1, _VOXELS // math.prod(x.shape[1:]))
    return min(batch_size, 1 << (most.bit_length() - 1))


def joined(
    parts: Iterator[NDArray[Any]], x: NDArray[Any], rows: NDArray[np.int64] | None
) -> NDArray[Any]:
    """All batches in one array, without a second copy of the batches."""
    done, whole = 0, None
    for part in parts:
        if whole is None:
            whole = np.empty((len(x if rows is None else rows), *part.shape[1:]), part.dtype)
        whole[done : done + len(part)] = part
        done += len(part)
    assert whole is not None
    return whole
