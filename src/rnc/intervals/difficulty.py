"""What a prediction rests on: the training samples that are nearest in feature space.

Features that keep the order of the targets put samples of like targets next to each other. Where a
sample's neighbours are far away or disagree, its prediction is less sure.
"""

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rnc.metrics import Values

_PAIRS = 2**24  # distances in memory at a time


class Neighbours:
    """The nearest of some training samples to any features.

    Args:
        features: of training samples, (m, d).
        targets: (m, t).
        k: how many neighbours count, up to m - 1.
        beta: added to difficulties over their mean, so that none is near 0.
    """

    def __init__(self, features: Values, targets: Values, k: int = 25, beta: float = 0.1) -> None:
        self.features = torch.as_tensor(features).double()
        self.targets = torch.as_tensor(targets).double()
        if len(self.features) != len(self.targets) or len(self.features) < 2:
            raise ValueError(
                "Neighbours needs features and targets of the same two or more samples; got "
                f"{len(self.features)} and {len(self.targets)}."
            )
        if k < 1:
            raise ValueError(f"k must be at least 1 neighbour; got {k}.")
        self.k, self.beta = min(k, len(self.features) - 1), beta
        deviation = self.targets.std(dim=0, correction=0)
        self.scale = torch.where(deviation > 0, deviation, 1.0)
        own, rows = self._search(self.features, skip_itself=True)
        self.reach = own.mean(dim=1)
        """Mean distance of each training sample to its neighbours, (m,)."""
        self.spreads = self._spread(rows)

    def nearest(self, features: Values) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Distances to the k nearest training samples, near ones first, and which they are."""
        distances, rows = self._search(torch.as_tensor(features).double())
        return distances.numpy(), rows.numpy()

    def difficulty(self, features: Values) -> NDArray[np.float64]:
        """How hard samples are, (n,): their neighbours' distance times the spread of targets there.

        Each over its mean for training samples, plus beta; the geometric mean of both.
        """
        distances, rows = self._search(torch.as_tensor(features).double())
        far = _over_mean(distances.mean(dim=1), self.reach) + self.beta
        spread = _over_mean(self._spread(rows), self.spreads) + self.beta
        return (far * spread).sqrt().numpy()

    def is_out_of_range(self, features: Values, share: float = 0.01) -> NDArray[np.bool_]:
        """Whether samples are further from their neighbours than all but a share of training."""
        distances, _ = self._search(torch.as_tensor(features).double())
        limit = np.quantile(self.reach.numpy(), 1 - share)
        return np.asarray(distances.mean(dim=1) > limit)

    def _spread(self, rows: Tensor) -> Tensor:
        """Standard deviation of the targets of neighbours, over that of all: (n, k) -> (n,)."""
        if len(rows) == 0:
            return self.targets.new_zeros(0)
        return (self.targets[rows].std(dim=1, correction=0) / self.scale).mean(dim=1)

    def _search(self, features: Tensor, *, skip_itself: bool = False) -> tuple[Tensor, Tensor]:
        if features.dim() != 2 or features.shape[1] != self.features.shape[1]:
            raise ValueError(
                f"features must be (n, {self.features.shape[1]}), as those of training; got "
                f"{tuple(features.shape)}."
            )
        count = max(1, _PAIRS // len(self.features))
        found = []
        for start in range(0, len(features), count):
            gaps = torch.cdist(features[start : start + count], self.features)
            if skip_itself:
                rows = torch.arange(len(gaps))
                gaps[rows, start + rows] = math.inf
            found.append(gaps.topk(self.k, dim=1, largest=False))
        if not found:
            return features.new_zeros(0, self.k), torch.zeros(0, self.k, dtype=torch.long)
        return torch.cat([one.values for one in found]), torch.cat([one.indices for one in found])


def _over_mean(values: Tensor, known: Tensor) -> Tensor:
    mean = known.mean()
    return values / torch.where(mean > 0, mean, 1.0)
