"""Batches of a split: which samples, in which order, in which views, on which device.

Order and views are functions of (seed, stage, epoch, step) alone, drawn on the CPU. So a resumed
run sees what the uninterrupted one would have seen, several processes see the parts of what one
would have seen, and a GPU sees what the CPU would have seen.

`epoch` decides on the host what goes into a batch; `make` turns that into views on the device,
without a wait, so that a CUDA graph can hold it.
"""

import hashlib
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

from rnc.augment import Augment, draw_views, eval_view, views_from
from rnc.config import Switch
from rnc.data.table import Table
from rnc.model import Regressor

RESIDENT = 0.5
"""Share of a GPU's free memory that raw samples may take to live there."""


class Picked(NamedTuple):
    """What a batch will be made of: tensors on the device."""

    rows: Tensor
    """Training samples of all processes, (m,)."""
    raw: Tensor | None
    """Raw samples of this process, (n, ...), unless all samples are on the device anyway."""
    draws: Tensor | None
    """Random numbers for the views of this process, (n, v, k); None for the plain view."""


class Batch(NamedTuple):
    """One step's samples for this process."""

    views: Tensor
    """(n, v, ...), float32."""
    targets: Tensor
    """(n, t), float64."""
    all_targets: Tensor
    """Targets of the samples of all processes, (m, t)."""


class Batches:
    """The training samples, on their device if they fit, served in shuffled batches."""

    def __init__(
        self,
        table: Table,
        model: Regressor,
        *,
        device: torch.device,
        rank: int = 0,
        world_size: int = 1,
        seed: int = 0,
        resident: Switch = "auto",
        channels_last: bool = False,
    ) -> None:
        self.rows = table.rows("train")
        self.targets = torch.tensor(table.y[self.rows], device=device)
        self.model, self.device = model, device
        self.normalised = any(isinstance(module, _BatchNorm) for module in model.modules())
        self.rank, self.world_size, self.seed = rank, world_size, seed
        self.source = table.x
        self.resident: Tensor | None = None
        if device.type == "cuda" and resident != "off":
            needed = table.x[:1].nbytes * len(self.rows)
            if resident == "on" or needed < RESIDENT * torch.cuda.mem_get_info(device)[0]:
                self.resident = torch.tensor(table.x[self.rows], device=device)
        self._views: Callable[[Tensor, Augment, Tensor], Tensor] = (
            _channels_last_views if channels_last else views_from
        )

    def __len__(self) -> int:
        return len(self.rows)

    def compile(self) -> None:
        """Make views by compiled code from now on."""
        self._views = torch.compile(self._views, dynamic=False)

    def epoch(
        self, stage: str, epoch: int, *, batch_size: int, views: int, drop_last: bool
    ) -> Iterator[Picked]:
        """The batches of one epoch, in shares of batch_size / world_size per process.

        With drop_last, all have batch_size samples. Without, the last may have fewer, but where
        the model has batch normalisation, not fewer than two per process: those wait for another
        epoch.
        """
        shuffled = torch.randperm(len(self), generator=_generator(self.seed, stage, epoch))
        on_device = shuffled.to(self.device)
        rest = len(self) % batch_size
        least = batch_size if drop_last else 2 * self.world_size if self.normalised else 1
        stop = len(self) - rest if rest < least else len(self)
        for step, start in enumerate(range(0, stop, batch_size)):
            chosen = slice(start, min(start + batch_size, stop))
            drawing = _generator(self.seed, stage, epoch, step)
            yield self._pick(shuffled[chosen], on_device[chosen], views, drawing)

    def _pick(self, everyone: Tensor, rows: Tensor, views: int, drawing: torch.Generator) -> Picked:
        mine = self._share(len(everyone))
        draws = raw = None
        if views > 0:
            # Numbers for the whole batch, of which this process uses its part.
            like = torch.empty(1, *self.source.shape[1:], dtype=_dtype(self.source))
            like = like.expand(len(everyone), *like.shape[1:])
            draws = self._to_device(draw_views(like, self.model.augment, views, drawing)[mine])
        if self.resident is None:
            samples: NDArray[np.generic] = self.source[self.rows[everyone[mine].numpy()]]
            raw = self._to_device(torch.from_numpy(samples))
        return Picked(rows, raw, draws)

    def make(self, picked: Picked) -> Batch:
        """Views and targets of a batch."""
        mine = self._share(len(picked.rows))
        targets = self.targets[picked.rows]
        raw = picked.raw
        if raw is None:
            assert self.resident is not None
            raw = self.resident[picked.rows[mine]]
        raw = self.model.standardise(raw)
        if picked.draws is None:
            views = eval_view(raw, self.model.augment)[:, None]
        else:
            views = self._views(raw, self.model.augment, picked.draws)
        return Batch(views, targets[mine], targets)

    def _share(self, samples: int) -> slice:
        """The part of a batch that is this process's."""
        size, more = divmod(samples, self.world_size)
        start = self.rank * size + min(self.rank, more)
        return slice(start, start + size + (self.rank < more))

    def _to_device(self, values: Tensor) -> Tensor:
        """A copy that the host does not wait for: it prepares the next batch meanwhile."""
        if self.device.type != "cuda":
            return values.to(self.device)
        return values.pin_memory().to(self.device, non_blocking=True)


def _channels_last_views(raw: Tensor, augment: Augment, draws: Tensor) -> Tensor:
    views = views_from(raw, augment, draws)
    images = views.flatten(0, 1).contiguous(memory_format=torch.channels_last)
    return images.view(*views.shape[:2], *images.shape[1:])


def _dtype(x: NDArray[np.generic]) -> torch.dtype:
    return torch.uint8 if x.dtype == np.uint8 else torch.float32


def _generator(*key: int | str) -> torch.Generator:
    """A generator whose numbers depend on the key alone."""
    return torch.Generator().manual_seed(seed_of(*key))


def seed_of(*key: int | str) -> int:
    """A seed for a key, well mixed and the same everywhere.

    >>> seed_of(0, "encoder", 1) == seed_of(0, "encoder", 1) != seed_of(0, "encoder", 2)
    True
    """
    digest = hashlib.sha256(repr(key).encode()).digest()
    return int.from_bytes(digest[:7], "big")
