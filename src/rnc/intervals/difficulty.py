"""How hard a sample is to predict, by the training samples that are nearest in feature space.

Features that keep the order of the targets put samples of like targets next to each other. If a
sample's neighbours are far away or disagree, its prediction is less certain.
"""

import math
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rnc.intervals.nearest import NearestSearch
from rnc.metrics import Values

PROBES = 2000
"""How many training samples are searched for their own neighbours, to learn the usual distances."""

OUT_OF_RANGE_SHARE = 0.01
"""Share of the training samples that may be further from their nearest other than the limit."""


class OwnNeighbours(NamedTuple):
    """The nearest other training samples of some training samples."""

    distances: Tensor
    """(s, k), near ones first."""
    rows: Tensor
    """(s, k), which training samples these are."""


def own_neighbours(features: Tensor, k: int) -> OwnNeighbours:
    """The nearest others of each of the features (m, d), or of 2,000 spread evenly over them."""
    return _search_itself(NearestSearch(features), k)


def _search_itself(search: NearestSearch, k: int) -> OwnNeighbours:
    probes = torch.linspace(0, len(search) - 1, min(len(search), PROBES), dtype=torch.float64)
    rows = probes.round().long()
    return OwnNeighbours(*search(search.features[rows], k, itself=rows))


class Neighbours:
    """Finds the nearest training samples of any features, and how difficult these are.

    Args:
        features: of training samples, (m, d).
        targets: (m, t).
        k: how many neighbours to use, up to m - 1.
        beta: added to both factors of a difficulty, so that no difficulty is near 0.
        own: what `own_neighbours` returned for these features and this k or a larger one; None
            computes it.
    """

    def __init__(
        self,
        features: Values,
        targets: Values,
        k: int = 25,
        beta: float = 0.1,
        *,
        own: OwnNeighbours | None = None,
    ) -> None:
        known = torch.as_tensor(features)
        self.features = known if known.is_floating_point() else known.double()
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
        self._search = NearestSearch(self.features)
        if own is None or own.rows.shape[1] < self.k:
            own = _search_itself(self._search, self.k)
        self._own_nearest = own.distances[:, 0].double().numpy()
        self.reach = own.distances[:, : self.k].double().mean(dim=1)
        """Mean distance of training samples to their neighbours, (m,), or of 2,000 of them."""
        self.spreads = self._spread(own.rows[:, : self.k].long())

    def nearest(
        self, features: Values, k: int | None = None
    ) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Distances to the k nearest training samples, nearest first, and their rows: (n, k) each.

        k defaults to `self.k`. Features that are not finite have no neighbours: NaN and -1.
        """
        distances, rows = self._search(_tensor(features), self.k if k is None else k)
        return distances.numpy(), rows.numpy()

    def difficulty(self, features: Values) -> NDArray[np.float64]:
        """How hard samples are, (n,): by distance of the neighbours and spread of their targets.

        Each factor is divided by its mean over training samples, and beta is added. The difficulty
        is the geometric mean of both.
        """
        distances, rows = self._search(_tensor(features), self.k)
        far = _over_mean(distances.mean(dim=1), self.reach) + self.beta
        spread = _over_mean(self._spread(rows), self.spreads) + self.beta
        return (far * spread).sqrt().numpy()

    def limit(self, share: float = OUT_OF_RANGE_SHARE) -> float:
        """The least distance that at most a share of the training samples exceed.

        A training sample's distance is the one to the nearest other training sample.

        >>> known = Neighbours(np.array([[0.0], [1.0], [2.0], [6.0]]), np.zeros((4, 1)))
        >>> known.limit(), known.limit(share=0.25)
        (4.0, 1.0)
        """
        ordered = np.sort(self._own_nearest)
        return float(ordered[math.ceil((1 - share) * len(ordered) - 1e-9) - 1])

    def is_out_of_range(
        self, features: Values, share: float = OUT_OF_RANGE_SHARE
    ) -> NDArray[np.bool_]:
        """Whether each sample is further from its nearest training sample than `limit(share)`.

        Features that are not finite are out of range.
        """
        distances, _ = self._search(_tensor(features), 1)
        return self.exceeds_limit(distances[:, 0].numpy(), share)

    def exceeds_limit(
        self, nearest: NDArray[np.float64], share: float = OUT_OF_RANGE_SHARE
    ) -> NDArray[np.bool_]:
        """`is_out_of_range`, from the distances (n,) to the nearest training sample."""
        return np.asarray(~(nearest <= self.limit(share)))

    def _spread(self, rows: Tensor) -> Tensor:
        """Standard deviation of the neighbours' targets, divided by that of all: (n, k) -> (n,)."""
        if len(rows) == 0:
            return self.targets.new_zeros(0)
        return (self.targets[rows].std(dim=1, correction=0) / self.scale).mean(dim=1)


def _tensor(features: Values) -> Tensor:
    given = torch.as_tensor(features)
    return given if given.is_floating_point() else given.double()


def _over_mean(values: Tensor, known: Tensor) -> Tensor:
    mean = known.mean()
    return values / torch.where(mean > 0, mean, 1.0)
