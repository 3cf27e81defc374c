"""A teacher that estimates the missing targets of training rows.

The teacher is the encoder, with the mean of its weights if there is one (`rnc.training.averaging`),
and a ridge regression on its features of labelled rows, which every lesson solves anew. The teacher
sees samples without augmentation, while the encoder learns from augmented views. For a missing
target it gives

    estimate - margin <= target <= estimate + margin

and RnC ranks by that. "estimates" has no margin. With "intervals", the margin is `multiple` times
the mean absolute error on validation rows with similar estimates, and RnC uses an order only if it
is certain within the intervals (`rnc.loss.partial`). What is known about other targets is kept.

Before the first lesson, rows about which nothing is known are not drawn. Without a label, RnC would
push them away from all other rows, which harms the order by age (docs/labels.md). After it they are
drawn like labelled rows, in proportion to density(estimate)^-oversample. If no row is known in part
and there is no margin, RnC uses its loss for exact targets, with fused kernels.

Validation rows choose the penalty and show how large errors are, but are not trained on. Tarvainen
and Valpola 2017 ("Mean teachers") label by a moving mean what a network learns from augmented
views. Huang et al. 2024 ("RankUp") teach pairwise ranks in this way.
"""

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor

from rnc.config import FitConfig
from rnc.data.splits import PARTIAL
from rnc.training.balance import balance_weights, chosen_oversample
from rnc.training.batches import Batches
from rnc.training.partial_rows import has_missing_targets
from rnc.training.ridge import Ridge, solved_ridges
from rnc.training.validation import Validation

if TYPE_CHECKING:  # takes seconds to import
    from lightning.fabric import Fabric

LESSONS = 16
"""From the first lesson on, there is a lesson after every 1 / LESSONS of the epochs."""
FIRST_LESSON = 0.15
"""Share of the epochs before the first lesson, since a new encoder knows nothing to teach."""
TEACHER_PENALTIES = (1e-3, 1e-2, 1e-1, 1.0, 10.0)
NEAR = 0.2
"""Width of the Gaussian over estimates that averages errors, in deviations of the estimates."""
PRIOR_ROWS = 10.0
"""Extra rows with the overall mean error in every average, so that a few rows do not decide it."""
MOST_TEACHER_ROWS = 20_000
"""The most labelled rows to solve the regression on, and the most validation rows to judge it."""
TAUGHT_TOGETHER = 512
"""Samples that the encoder sees at a time."""
_PAIRS = 2**22  # pairs of estimates in memory at a time


class TaughtTargets(NamedTuple):
    """The teacher's estimates of targets, and their margins: (n, t) each."""

    estimates: Tensor
    margins: Tensor


class Teacher:
    """Writes its estimates of missing targets into `batches`.

    `multiple` is the factor of the margin, 0 for estimates without margins. `oversample` is the
    exponent by which rows are drawn. Both are described above.
    """

    def __init__(
        self,
        fabric: "Fabric",
        validation: Validation,
        batches: Batches,
        *,
        multiple: float,
        oversample: float,
        epochs: int,
    ) -> None:
        assert batches.upper is not None
        assert batches.shares is not None
        self.fabric, self.validation, self.batches = fabric, validation, batches
        self.multiple, self.oversample, self.epochs = multiple, oversample, epochs
        count = len(batches.known_targets)
        # Slices of the batches' tensors, which every lesson changes in place.
        self.lower, self.upper = batches.targets[count:], batches.upper[count:]
        self.shares = batches.shares[count:]
        self.missing = (self.lower == -torch.inf) & (self.upper == torch.inf)
        unknown = self.missing.all(dim=1)
        self.later_shares = self.shares.clone()
        self.shares[unknown.to(self.shares.device)] = 0.0
        if unknown.all() and not multiple:
            batches.upper = None
        self.lessons = torch.zeros((), dtype=torch.int64)

    @classmethod
    def of(
        cls,
        fabric: "Fabric",
        validation: Validation,
        batches: Batches,
        config: FitConfig,
        epochs: int,
    ) -> "Teacher | None":
        """The teacher of a config; None if it wants no teacher or no target is missing."""
        if not config.teaches or not has_missing_targets(validation.table):
            return None
        return cls(
            fabric,
            validation,
            batches,
            multiple=config.teacher_margin if config.teacher == "intervals" else 0.0,
            oversample=chosen_oversample(config, validation.table),
            epochs=epochs,
        )

    def is_due(self, epoch: int) -> bool:
        """Whether to teach after an epoch. A stage that goes on without lessons gets one soon."""
        later = epoch - max(1, math.ceil(FIRST_LESSON * self.epochs))
        every = max(1, math.ceil(self.epochs / LESSONS))
        is_time = later % every == 0 or not self.lessons
        return later >= 0 and is_time and epoch < self.epochs

    @torch.no_grad()
    def teach(self) -> None:
        """Estimate missing targets anew with the current encoder. All processes use the first's."""
        said = torch.stack(self._said())
        if self.fabric.world_size > 1:
            dist.broadcast(said, src=0)
        estimates, margins = said.unbind()
        if not estimates.isfinite().all():  # training diverged, as its loss will show
            return
        self.lower.copy_(torch.where(self.missing, estimates - margins, self.lower))
        self.upper.copy_(torch.where(self.missing, estimates + margins, self.upper))
        self.shares.copy_(self.later_shares)
        self.lessons += 1
        if self.oversample:
            self.shares.copy_(balance_weights(estimates.cpu(), self.oversample))

    def _said(self) -> TaughtTargets:
        validation = self.validation
        both = [validation.some_rows(split, MOST_TEACHER_ROWS) for split in ("train", "val")]
        x, x_val = (torch.cat(list(self._features(rows))) for rows in both)
        y, y_val = (torch.tensor(validation.table.y[rows]).to(x) for rows in both)
        weights, val_weights = (validation.weights_of(rows) for rows in both)
        if not (x.isfinite().all() and x_val.isfinite().all()):
            return TaughtTargets(*torch.full((2, *self.lower.shape), torch.nan).to(self.lower))
        found = [(ridge, ridge(x_val)) for ridge in self._ridges(x, y, weights)]
        ridge, judged = min(found, key=lambda one: _mean_error(one[1], y_val, val_weights))
        estimates = self._estimates(ridge).clamp(y.amin(dim=0), y.amax(dim=0))
        if not self.multiple:
            return TaughtTargets(estimates, torch.zeros_like(estimates))
        errors = local_errors(estimates, judged, y_val, val_weights)
        return TaughtTargets(estimates, self.multiple * errors)

    def _ridges(self, x: Tensor, y: Tensor, weights: Tensor | None) -> Iterator[Ridge]:
        """Regressions to choose from: with the given weights and, if oversampled, with balance."""
        yield from solved_ridges(x, y, weights, TEACHER_PENALTIES)
        if self.oversample:
            balance = balance_weights(y, self.oversample)
            balance = balance if weights is None else balance * weights.to(balance)
            yield from solved_ridges(x, y, balance, TEACHER_PENALTIES)

    def _estimates(self, ridge: Ridge) -> Tensor:
        """The estimates for all partial rows, (n, t). Their features are not kept."""
        rows = self.validation.table.rows(PARTIAL)
        return torch.cat([ridge(features) for features in self._features(rows)])

    def _features(self, rows: NDArray[np.int64]) -> Iterator[Tensor]:
        """The features of rows without augmentation, in training's precision, batch by batch."""
        model, x = self.validation.model, self.validation.table.x
        with self.fabric.autocast():
            for features in model.embed_batches(x, rows=rows, batch_size=TAUGHT_TOGETHER):
                yield torch.from_numpy(features).to(self.lower)

    def state(self) -> dict[str, Tensor]:
        """The named tensors that `load_state` needs to continue."""
        names = ("lower", "upper", "shares", "lessons")
        return {name: getattr(self, name).clone() for name in names}

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Continue from what `state` returned."""
        for name, value in state.items():
            getattr(self, name).copy_(value)


def _mean_error(estimates: Tensor, targets: Tensor, weights: Tensor | None) -> float:
    """The mean absolute error over rows and targets, in standard deviations of the targets."""
    deviations = targets.std(dim=0, correction=0)
    misses = (estimates - targets).abs() / torch.where(deviations > 0, deviations, 1.0)
    counts = misses.new_ones(len(misses)) if weights is None else weights.to(misses)
    return float((counts * misses.mean(dim=1)).sum() / counts.sum())


def local_errors(
    asked: Tensor, estimates: Tensor, targets: Tensor, weights: Tensor | None = None
) -> Tensor:
    """The mean error of estimates near the asked ones: (n, t), (m, t), (m, t) -> (n, t).

    It is the mean of |estimate - target|, weighted by a Gaussian with a width of NEAR deviations.

    >>> ages = torch.tensor([[20.0], [80.0]]).repeat(100, 1)
    >>> off = torch.where(ages > 50, 10.0, 1.0)
    >>> local_errors(torch.tensor([[20.0], [50.0], [80.0]]), ages, ages + off).flatten()
    tensor([1.4091, 5.5000, 9.5909])
    """
    counts = estimates.new_ones(len(estimates)) if weights is None else weights.to(estimates)
    counts = counts * (len(counts) / counts.sum())
    parts = torch.split(asked, max(1, _PAIRS // len(estimates)))
    misses = (estimates - targets).abs()
    return torch.cat([_around(part, estimates, misses, counts) for part in parts])


def _around(asked: Tensor, estimates: Tensor, misses: Tensor, counts: Tensor) -> Tensor:
    """The mean misses near the asked estimates: (n, t), (m, t), (m, t), (m,) -> (n, t)."""
    columns = []
    for place, near, miss in zip(asked.T, estimates.T, misses.T, strict=True):
        deviation = near.std(correction=0)
        gaps = (place[:, None] - near) / (NEAR * torch.where(deviation > 0, deviation, 1.0))
        shares = torch.exp(-0.5 * gaps.square()) * counts
        prior = PRIOR_ROWS * (counts * miss).mean()
        columns.append((shares @ miss + prior) / (shares.sum(dim=1) + PRIOR_ROWS))
    return torch.stack(columns, dim=1)
