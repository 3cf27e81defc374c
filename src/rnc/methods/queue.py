"""A queue of earlier samples: a small batch is contrasted with them as well as with itself.

Cross-batch memory (Wang 2020, arXiv:1912.06798): features of earlier steps are kept without
gradient. They come from weights that are some steps old. The lower the rate and the shorter the
queue, the less that matters.
"""

from typing import Protocol

import torch
from torch import Tensor, nn

from rnc.loss.batch import as_rows
from rnc.loss.distributed import gather_rows
from rnc.methods.objective import MethodSetup


class ContrastLoss(Protocol):
    """A loss that contrasts a batch with itself and with a queue."""

    def __call__(
        self,
        features: Tensor,
        targets: Tensor,
        *,
        weights: Tensor | None,
        queue: tuple[Tensor, Tensor] | None,
    ) -> Tensor:
        """The loss of features (n, v, d) and targets (n, t), with weights (n,) of its anchors."""


class QueuedLoss(nn.Module):
    """A loss of features and targets that remembers the samples of earlier calls.

    It keeps the last `setup.options.queue` samples of all processes, in all their views. The queue
    is part of the state dict, so a resumed training has it.

    >>> from rnc.loss import rnc_loss
    >>> from rnc.methods.objective import MethodOptions
    >>> options = MethodOptions(queue=5)
    >>> setup = MethodSetup(d=3, targets=torch.zeros(9, 1), updates=1, options=options)
    >>> loss = QueuedLoss(rnc_loss, setup)
    >>> for _ in range(3):
    ...     value = loss(torch.randn(2, 1, 3), torch.randn(2, 1))
    >>> [rows.shape for rows in loss.kept]
    [torch.Size([5, 3]), torch.Size([5, 1])]
    """

    features: Tensor
    targets: Tensor

    def __init__(self, loss: ContrastLoss, setup: MethodSetup) -> None:
        super().__init__()
        self.loss, self.gather = loss, setup.gather
        self.capacity = setup.options.queue * setup.views
        self.seen = 0  # rows so far; not a tensor, since reading one synchronizes with a GPU
        t = setup.targets.shape[1]
        self.register_buffer("features", torch.zeros(self.capacity, setup.d))
        self.register_buffer("targets", torch.zeros(self.capacity, t, dtype=torch.float64))

    @property
    def kept(self) -> tuple[Tensor, Tensor]:
        """Features (m, d) and targets (m, t) of the rows in the queue."""
        filled = min(self.seen, self.capacity)
        return self.features[:filled], self.targets[:filled]

    def forward(self, features: Tensor, targets: Tensor, weights: Tensor | None = None) -> Tensor:
        """The loss of a batch. Then its samples replace the oldest ones in the queue."""
        loss = self.loss(features, targets, weights=weights, queue=self.kept)
        self._keep(features.detach(), targets)
        return loss

    @torch.no_grad()
    def _keep(self, features: Tensor, targets: Tensor) -> None:
        new_features, new_targets = as_rows(features, targets, "QueuedLoss")
        if self.gather:
            new_features, new_targets, _ = gather_rows(new_features, new_targets)
        count = len(new_features)
        places = torch.arange(self.seen, self.seen + count, device=features.device) % self.capacity
        last = slice(max(0, count - self.capacity), None)  # rows before would be overwritten
        self.features[places[last]] = new_features[last].to(self.features.dtype)
        self.targets[places[last]] = new_targets[last]
        self.seen += count

    def get_extra_state(self) -> Tensor:
        """The number of rows so far, for the state dict."""
        return torch.tensor(self.seen)

    def set_extra_state(self, state: Tensor) -> None:
        """Restore the number of rows from the state dict."""
        self.seen = int(state)
