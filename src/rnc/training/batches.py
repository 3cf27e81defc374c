"""Batches of a split: which samples, in which order, in which views, on which device.

Order and views are functions of (seed, stage, epoch, step) alone. So a resumed run sees what the
uninterrupted one would have seen, and several processes see the parts of what one would have seen.
"""

import hashlib
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

from rnc.augment import Augment, draw_views, eval_view, views_from
from rnc.data.table import Table
from rnc.model import Regressor

RESIDENT = 0.5
"""Share of a GPU's free memory that raw samples may take to live there."""


class Batch(NamedTuple):
    """One step's samples for this process."""

    views: Tensor
    """(n, v, ...), float32."""
    targets: Tensor
    """(n, t), float64."""
    all_targets: Tensor
    """Targets of the samples of all processes, (m, t)."""


class Batches:
    """The training samples on their device, served in shuffled batches."""

    def __init__(
        self,
        table: Table,
        model: Regressor,
        *,
        device: torch.device,
        rank: int = 0,
        world_size: int = 1,
        seed: int = 0,
    ) -> None:
        self.rows = table.rows("train")
        self.targets = torch.tensor(table.y[self.rows], device=device)
        self.model, self.device = model, device
        self.normalised = any(isinstance(module, _BatchNorm) for module in model.modules())
        self.rank, self.world_size, self.seed = rank, world_size, seed
        self.source = table.x
        self.resident: Tensor | None = None
        if device.type == "cuda":
            free, _ = torch.cuda.mem_get_info(device)
            if table.x[:1].nbytes * len(self.rows) < RESIDENT * free:
                self.resident = torch.tensor(table.x[self.rows], device=device)

    def __len__(self) -> int:
        return len(self.rows)

    def epoch(
        self, stage: str, epoch: int, *, batch_size: int, views: int, drop_last: bool
    ) -> Iterator[Batch]:
        """The batches of one epoch, in shares of batch_size / world_size per process.

        With drop_last, all have batch_size samples. Without, the last may have fewer, but where
        the model has batch normalisation, not fewer than two per process: those wait for another
        epoch.
        """
        order = _generator("cpu", self.seed, stage, epoch)
        shuffled = torch.randperm(len(self), generator=order)
        rest = len(self) % batch_size
        least = batch_size if drop_last else 2 * self.world_size if self.normalised else 1
        stop = len(self) - rest if rest < least else len(self)
        for step, start in enumerate(range(0, stop, batch_size)):
            everyone = shuffled[start : min(start + batch_size, stop)]
            drawing = _generator(self.device, self.seed, stage, epoch, step)
            yield self._batch(everyone, views, drawing)

    def _batch(self, everyone: Tensor, views: int, drawing: torch.Generator) -> Batch:
        share = torch.tensor_split(torch.arange(len(everyone)), self.world_size)[self.rank]
        mine = everyone[share]
        raw = self.model.standardise(self.raw(mine))
        targets = self.targets[everyone.to(self.device)]
        augment: Augment = self.model.augment
        if views == 0:
            made = eval_view(raw, augment)[:, None]
        else:
            # Numbers for the whole batch, of which this process uses its part.
            like = raw.new_empty(1, *raw.shape[1:]).expand(len(everyone), *raw.shape[1:])
            draws = draw_views(like, augment, views, drawing)
            made = views_from(raw, augment, draws[share.to(self.device)])
        return Batch(made, targets[share.to(self.device)], targets)

    def raw(self, which: Tensor) -> Tensor:
        """Raw training samples on the device."""
        if self.resident is not None:
            return self.resident[which.to(self.device)]
        samples: np.ndarray = self.source[self.rows[which.numpy()]]
        return torch.from_numpy(samples).to(self.device)


def _generator(device: torch.device | str, *key: int | str) -> torch.Generator:
    """A generator whose numbers depend on the key alone."""
    return torch.Generator(device).manual_seed(seed_of(*key))


def seed_of(*key: int | str) -> int:
    """A seed for a key, well mixed and the same everywhere.

    >>> seed_of(0, "encoder", 1) == seed_of(0, "encoder", 1) != seed_of(0, "encoder", 2)
    True
    """
    digest = hashlib.sha256(repr(key).encode()).digest()
    return int.from_bytes(digest[:7], "big")
