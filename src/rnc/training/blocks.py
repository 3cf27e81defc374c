"""Rows of features in blocks: all of them as one block in memory, or read from a temporary file.

A head is solved on the features of all training rows, which are 2 GB for a million rows of 512. On
a CPU, if there are more than MOST_HELD features, they are written once to a file in the temporary
folder, and every pass over them reads about BLOCK_VALUES at a time. The file has no name, so that a
killed process leaves nothing behind.
"""

import tempfile
from collections.abc import Callable, Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

MOST_HELD = 2**24
"""The most features that are kept in memory: 64 MiB. Solving in float64 takes 3 to 4 times that."""
BLOCK_VALUES = 2**20

SomeRows = tuple[slice | Tensor, Tensor]
"""An index of (n,) that selects some rows, and these rows."""


class Held:
    """Rows (n, d) in memory, as one block."""

    def __init__(self, rows: Tensor) -> None:
        self.rows = rows
        self.shape, self.device = tuple(rows.shape), rows.device

    def parts(self, mask: Tensor | None = None) -> Iterator[SomeRows]:
        """All rows, or those that a mask (n,) selects."""
        yield (slice(None), self.rows) if mask is None else (mask, self.rows[mask])

    def map(self, change: Callable[[Tensor], Tensor]) -> "Held":
        """The rows after a change of each row."""
        return Held(change(self.rows))


class _Scratch:
    """A temporary file that is closed, and so deleted, once nothing refers to it any more."""

    def __init__(self) -> None:
        self.file = tempfile.TemporaryFile()  # noqa: SIM115

    def __del__(self) -> None:
        self.file.close()


class Spilled:
    """Rows (n, d) in a file of float32, for a CPU. A block is read when it is needed."""

    def __init__(
        self,
        scratch: _Scratch,
        shape: tuple[int, ...],
        change: Callable[[Tensor], Tensor] = lambda rows: rows,
    ) -> None:
        self.scratch, self.shape, self.change = scratch, shape, change
        self.device = torch.device("cpu")

    @classmethod
    def write(cls, batches: Iterator[NDArray[np.float32]], shape: tuple[int, int]) -> "Spilled":
        """The rows of all batches, written to a temporary file."""
        scratch = _Scratch()
        try:
            for batch in batches:
                scratch.file.write(np.ascontiguousarray(batch, np.float32).data)
            scratch.file.flush()
        except OSError as error:
            raise OSError(
                f"The features of {shape[0]:,} rows need {4 * shape[0] * shape[1] / 1e9:.1f} GB in "
                f"the temporary folder {tempfile.gettempdir()} ({error}). Make room there, or "
                "name another one by the environment variable TMPDIR."
            ) from error
        return cls(scratch, shape)

    def parts(self, mask: Tensor | None = None) -> Iterator[SomeRows]:
        """All rows, or those that a mask (n,) selects, block by block."""
        step = max(1, BLOCK_VALUES // self.shape[1])
        for start in range(0, self.shape[0], step):
            block = slice(start, min(start + step, self.shape[0]))
            if mask is None:
                yield block, self.change(self._read(block))
            elif len(chosen := mask[block].nonzero()[:, 0]):
                yield start + chosen, self.change(self._read(block)[chosen])

    def map(self, change: Callable[[Tensor], Tensor]) -> "Spilled":
        """The rows after a change of each row, which is made whenever a block is read."""
        before = self.change
        return Spilled(self.scratch, self.shape, lambda rows: change(before(rows)))

    def _read(self, block: slice) -> Tensor:
        width = self.shape[1]
        rows = np.empty((block.stop - block.start, width), np.float32)
        self.scratch.file.seek(block.start * width * rows.itemsize)
        got = self.scratch.file.readinto(rows.data.cast("B"))
        if got != rows.nbytes:
            raise OSError(
                f"A temporary file of features ended early: {got} of {rows.nbytes} bytes."
            )
        return torch.from_numpy(rows)


Blocks = Held | Spilled


def as_blocks(rows: Tensor | Blocks) -> Blocks:
    """Rows as blocks; a tensor becomes one block."""
    return Held(rows) if isinstance(rows, Tensor) else rows


def are_many(shape: tuple[int, int], device: torch.device) -> bool:
    """Whether to keep features (n, d) in a file: on a CPU, if n > d and there are too many."""
    return device.type == "cpu" and shape[0] > shape[1] and shape[0] * shape[1] > MOST_HELD


def times(rows: Blocks, weight: Tensor) -> Tensor:
    """The product of all rows and a vector: (n, d), (d,) -> (n,)."""
    # Small results between large buffers would fragment the heap, by 1 GB at n = 700,000.
    product = weight.new_empty(rows.shape[0])
    for index, some in rows.parts():
        product[index] = some @ weight
    return product


def pulled(rows: Blocks, pull: Tensor) -> Tensor:
    """The sum of all rows, each times its number: (n, d), (n,) -> (d,)."""
    parts = (some.T @ pull[index] for index, some in rows.parts())
    total = next(parts)
    for part in parts:
        total = total + part
    return total


def mean_and_variance(rows: Blocks) -> tuple[Tensor, Tensor]:
    """The mean and the variance of each column, in float64: (n, d) -> (d,), (d,)."""
    if isinstance(rows, Held):
        values = rows.rows.double()
        return values.mean(dim=0), values.var(dim=0)
    n = rows.shape[0]
    mean = sum(some.double().sum(dim=0) for _, some in rows.parts()) / n
    squares = sum((some.double() - mean).square().sum(dim=0) for _, some in rows.parts())
    return torch.as_tensor(mean), torch.as_tensor(squares) / (n - 1)
