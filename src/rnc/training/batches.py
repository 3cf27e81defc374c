"""Batches of training samples: which samples, in which order, in which views, on which device.

Order and views depend only on (seed, stage, epoch, step), and are drawn on the CPU. So a resumed
run sees the same batches as an uninterrupted one, several processes together see the same as a
single one, and a GPU sees the same as a CPU.

`epoch` decides on the host what goes into a batch. `make` turns that into views on the device
without synchronizing, so that a CUDA graph can hold it.
"""

import contextlib
import hashlib
import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

from rnc.augment import draw_views, eval_view, views_from
from rnc.augment.configs import Augment
from rnc.config import FitConfig, Switch
from rnc.data.table import Table
from rnc.loss.pairwise import Pairwise, circle_of
from rnc.methods.c_mixup import mix_with, partner_share, partners
from rnc.model import Regressor
from rnc.model.batching import rows_at_once
from rnc.training.balance import drawn_rows
from rnc.training.label_ends import ends_of

_COPY_BYTES = 2**27  # copied to the device at a time
RESIDENT_SHARE = 0.5
"""Raw samples are kept on a GPU if they take less than this share of its free memory."""
ENCODED_TOGETHER = 1024
"""About how many samples a frozen encoder sees at a time; fewer for volumes."""


@dataclass(frozen=True)
class Mixup:
    """The options for mixing samples with similar targets: see `rnc.methods.c_mixup`."""

    alpha: float = 2.0
    bandwidth: float | None = None
    label_distance: str | Pairwise = "l2"

    @classmethod
    def of(cls, config: FitConfig) -> "Mixup":
        """The options of a config, with Euclidean distance as published, except on a circle."""
        distance = "l2" if circle_of(config.distance) is None else config.distance
        return cls(config.mixup_alpha, config.mixup_bandwidth, distance)


class Picked(NamedTuple):
    """Tensors on the device, from which `Batches.make` makes a batch."""

    rows: Tensor
    """Which training samples are in the batch of all processes, (m,)."""
    raw: Tensor | None
    """Raw samples of this process, (n, ...); None if all samples are on the device."""
    draws: Tensor | None
    """Random numbers for the views of this process, (n, v, k); None for the plain view."""
    partner: Tensor | None = None
    """The sample that each one is mixed with, (m,). Then raw and draws are for all processes."""
    share: Tensor | None = None
    """The share of the partner in the mixture, (1,)."""
    features: Tensor | None = None
    """A frozen encoder's features of the views of this process, (n, v, d)."""


class Batch(NamedTuple):
    """The samples of one step for this process."""

    views: Tensor
    """(n, v, ...), float32; or features (n, v, d)."""
    targets: Tensor
    """(n, t), float64."""
    all_targets: Tensor
    """Targets of the samples of all processes, (m, t)."""
    weights: Tensor | None = None
    """The weight of each sample in the loss of a head, (n,)."""
    sample_weights: Tensor | None = None
    """The factor of that weight that comes from the data, (n,)."""
    all_weights: Tensor | None = None
    """`sample_weights` for the samples of all processes, (m,)."""
    upper: Tensor | None = None
    """The upper ends of targets that are known in part, (n, t); targets are the lower ones."""
    all_upper: Tensor | None = None
    """`upper` for the samples of all processes, (m, t)."""


class Batches:
    """The training samples in shuffled batches. If they fit on a GPU, they are kept there.

    The model augments and standardises them. `weights` (n,) are the weights of the samples in the
    loss of a head, and `sample_weights` (n,) the factor of them that comes from the data. `shares`
    (n,) say how often an epoch has each sample; by default once. `rows` (n,) chooses rows of the
    table whose targets may be known in part; by default the train rows.
    """

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
        mixup: Mixup | None = None,
        weights: Tensor | None = None,
        sample_weights: Tensor | None = None,
        shares: Tensor | None = None,
        rows: NDArray[np.int64] | None = None,
    ) -> None:
        self.rows = table.rows("train")
        self.known_targets = torch.tensor(table.y[self.rows])  # on the host
        self.targets, self.upper = self.known_targets.to(device), None
        if rows is not None:
            self.rows, ends = rows, ends_of(table, rows)
            self.targets, self.upper = (end.to(device) for end in ends)
        self.mixup, self.weights = mixup, None if weights is None else weights.to(device)
        self.sample_weights = None if sample_weights is None else sample_weights.to(device)
        self.model, self.device, self.shares = model, device, shares
        self.normalised = any(isinstance(module, _BatchNorm) for module in model.modules())
        self.rank, self.world_size, self.seed = rank, world_size, seed
        self.source = table.x
        self.resident: Tensor | None = None
        if device.type == "cuda" and resident != "off":
            needed = table.x[:1].nbytes * len(self.rows)
            if resident == "on" or needed < RESIDENT_SHARE * torch.cuda.mem_get_info(device)[0]:
                self.resident = _on_device(table.x, self.rows, device)
        self._views: Callable[[Tensor, Augment, Tensor], Tensor] = (
            _channels_last_views if channels_last else views_from
        )
        self.is_compiled = False

    def __len__(self) -> int:
        return len(self.rows)

    def compile(self) -> None:
        """Use compiled code for the views from now on."""
        if not self.is_compiled:
            self._views, self.is_compiled = torch.compile(self._views, dynamic=False), True

    def epoch(
        self,
        stage: str,
        epoch: int,
        *,
        batch_size: int,
        views: int,
        drop_last: bool,
        mixed: bool = False,
        passes: int = 1,
        whole: bool = False,
    ) -> Iterator[Picked]:
        """The batches of one epoch. Each process gets its part of every batch.

        With `drop_last`, every batch has batch_size samples. Without it, the last one may have
        fewer. But if the model has batch normalisation, a last batch with fewer than two samples
        per process is dropped. With `mixed`, samples are mixed with the options in `mixup`. An
        epoch is `passes` passes over the samples. With `whole`, every process gets whole batches.
        """
        ordering = _generator(self.seed, stage, epoch)
        shuffled = torch.cat([self._order(ordering) for _ in range(passes)])
        on_device = shuffled.to(self.device)
        stop = self._used(batch_size, drop_last, passes)
        for step, start in enumerate(range(0, stop, batch_size)):
            chosen = slice(start, min(start + batch_size, stop))
            drawing = _generator(self.seed, stage, epoch, step)
            everyone = shuffled[chosen]
            takes_all = mixed or whole
            mine = slice(0, len(everyone)) if takes_all else self._share_of(len(everyone))
            picked = self._pick(everyone, on_device[chosen], mine, views, drawing)
            if mixed:
                mixing = _generator(self.seed, stage, epoch, step, "mixup")
                picked = picked._replace(**self._partners(everyone, mixing))
            yield picked

    def _order(self, generator: torch.Generator) -> Tensor:
        """The order of the samples in one pass."""
        if self.shares is None:
            return torch.randperm(len(self), generator=generator)
        return drawn_rows(self.shares, generator)

    def whole_views(self, stage: str, *, batch_size: int, views: int) -> Iterator[Tensor]:
        """An endless stream of views (n, v, ...) of random batches, the same in every process."""
        size = min(batch_size, len(self))
        for epoch in itertools.count():
            for picked in self.epoch(
                stage, epoch, batch_size=size, views=views, drop_last=True, whole=True
            ):
                yield self._make_views(picked.rows, picked.raw, picked.draws)

    def steps(self, batch_size: int, *, drop_last: bool, passes: int = 1) -> int:
        """How many batches an epoch has."""
        return math.ceil(self._used(batch_size, drop_last, passes) / batch_size)

    def _used(self, batch_size: int, drop_last: bool, passes: int) -> int:
        """How many samples an epoch uses."""
        total = passes * len(self)
        rest = total % batch_size
        least = batch_size if drop_last else 2 * self.world_size if self.normalised else 1
        return total - rest if rest < least else total

    def _pick(
        self, everyone: Tensor, rows: Tensor, mine: slice, views: int, drawing: torch.Generator
    ) -> Picked:
        draws = raw = None
        if views > 0:
            # They are drawn for the batch of all processes, and this process uses its part.
            dtype = torch.uint8 if self.source.dtype == np.uint8 else torch.float32
            like = torch.empty(1, *self.source.shape[1:], dtype=dtype)
            like = like.expand(len(everyone), *like.shape[1:])
            draws = self._to_device(draw_views(like, self.model.augment, views, drawing)[mine])
        if self.resident is None:
            samples: NDArray[np.generic] = self.source[self.rows[everyone[mine].numpy()]]
            raw = self._to_device(torch.from_numpy(samples))
        return Picked(rows, raw, draws)

    def _partners(self, everyone: Tensor, drawing: torch.Generator) -> dict[str, Tensor]:
        """Partners and their share, drawn on the host, since a CUDA graph would repeat numbers."""
        assert self.mixup is not None
        partner = partners(
            self.known_targets[everyone],
            bandwidth=self.mixup.bandwidth,
            label_distance=self.mixup.label_distance,
            generator=drawing,
            validate=False,
        )
        share = partner_share(self.mixup.alpha, 1, generator=drawing)
        return {"partner": self._to_device(partner), "share": self._to_device(share)}

    def make(self, picked: Picked) -> Batch:
        """The batch of what was picked: views, targets and weights."""
        mine = self._share_of(len(picked.rows))
        targets = self.targets[picked.rows]
        weights = None if self.weights is None else self.weights[picked.rows[mine]]
        everyone = None if self.sample_weights is None else self.sample_weights[picked.rows]
        upper = None if self.upper is None else self.upper[picked.rows]
        own = [None if values is None else values[mine] for values in (everyone, upper)]
        further = (weights, own[0], everyone, own[1], upper)
        if picked.partner is None:
            views = picked.features
            if views is None:
                views = self._make_views(picked.rows[mine], picked.raw, picked.draws)
            return Batch(views, targets[mine], targets, *further)
        assert self.mixup is not None
        assert picked.share is not None
        # A partner may be in another process's part, so each makes the views of the whole batch.
        views = self._make_views(picked.rows, picked.raw, picked.draws)
        circle = circle_of(self.mixup.label_distance)
        views, targets = mix_with(views, targets, picked.partner, picked.share, circle=circle)
        return Batch(views[mine], targets[mine], targets, *further)

    def _make_views(self, rows: Tensor, raw: Tensor | None, draws: Tensor | None) -> Tensor:
        """Views of training samples, from `raw` or, if that is None, from those on the device."""
        if raw is None:
            assert self.resident is not None
            raw = self.resident[rows]
        raw = self.model.standardise(raw)
        if draws is None:
            return eval_view(raw, self.model.augment)[:, None]
        return self._views(raw, self.model.augment, draws)

    def encoded(
        self,
        batches: Iterator[Picked],
        encode: Callable[[Tensor], Tensor],
        *,
        batch_size: int,
        compiled: bool,
    ) -> Iterator[Picked]:
        """The same batches with features by `encode`, a frozen encoder: (n, ...) -> (n, d).

        An encoder in evaluation mode treats every sample by itself, so it can see several batches
        at once. A GPU hardly takes longer for several than for one. Only a full group of batches
        uses compiled views, since it is not worth compiling for the last, smaller group.
        """
        together = max(1, rows_at_once(self.source, ENCODED_TOGETHER) // batch_size)
        while several := list(islice(batches, together)):
            # set_stance takes effect when it is called, not on entering the `with` block.
            stance = (
                contextlib.nullcontext()
                if compiled and len(several) == together
                else torch.compiler.set_stance("force_eager")
            )
            with stance, torch.no_grad():
                features = self._features(several, encode)
            for picked, part in zip(several, features, strict=True):
                yield Picked(picked.rows, None, None, features=part)

    def _features(
        self, several: list[Picked], encode: Callable[[Tensor], Tensor]
    ) -> tuple[Tensor, ...]:
        """The features of this process's samples of several batches, (n, v, d) for each."""
        mine = [picked.rows[self._share_of(len(picked.rows))] for picked in several]
        raw = [picked.raw for picked in several if picked.raw is not None]
        draws = [picked.draws for picked in several if picked.draws is not None]
        views = self._make_views(
            torch.cat(mine), torch.cat(raw) if raw else None, torch.cat(draws) if draws else None
        )
        features = encode(views.flatten(0, 1))
        features = features.reshape(*views.shape[:2], features.shape[1])
        return torch.split(features, [len(rows) for rows in mine])

    def _share_of(self, samples: int) -> slice:
        """The part of a batch that this process gets."""
        size, more = divmod(samples, self.world_size)
        start = self.rank * size + min(self.rank, more)
        return slice(start, start + size + (self.rank < more))

    def _to_device(self, values: Tensor) -> Tensor:
        """A copy on the device. The host does not wait for it, and can prepare the next batch."""
        if self.device.type != "cuda":
            return values.to(self.device)
        return values.pin_memory().to(self.device, non_blocking=True)


def _channels_last_views(raw: Tensor, augment: Augment, draws: Tensor) -> Tensor:
    views = views_from(raw, augment, draws)
    images = views.flatten(0, 1).contiguous(memory_format=torch.channels_last)
    return images.view(*views.shape[:2], *images.shape[1:])


def _on_device(x: NDArray[Any], rows: NDArray[np.int64], device: torch.device) -> Tensor:
    """Rows of x on the device, copied in parts, so that the host needs no copy of all of them."""
    first = torch.from_numpy(x[rows[:1]])
    found = torch.empty((len(rows), *x.shape[1:]), dtype=first.dtype, device=device)
    step = max(1, _COPY_BYTES // max(1, first.nbytes))
    for start in range(0, len(rows), step):
        part = rows[start : start + step]
        found[start : start + len(part)].copy_(torch.from_numpy(x[part]))
    return found


def _generator(*key: int | str) -> torch.Generator:
    """A generator whose numbers depend only on the key."""
    return torch.Generator().manual_seed(seed_of(*key))


def seed_of(*key: int | str) -> int:
    """A seed from a hash of the key, the same on every machine.

    >>> seed_of(0, "encoder", 1) == seed_of(0, "encoder", 1) != seed_of(0, "encoder", 2)
    True
    """
    digest = hashlib.sha256(repr(key).encode()).digest()
    return int.from_bytes(digest[:7], "big")
