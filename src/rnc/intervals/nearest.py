"""Search for the nearest of many features, exact enough and fast on a CPU.

All distances are compared in float32, by one matrix product per block. This selects k candidates
and a few more. Their distances are computed again from differences, and these decide.
"""

import math

import torch
from torch import Tensor

_PAIRS = 2**22  # distances in memory at a time
_NUMBERS = 2**18  # values of differences in memory at a time
_SPARE = 8  # candidates beyond k, since the product rounds and may rank the last ones wrongly
_LARGEST = 1e30  # features are cut to this, in units of the known ones: products stay finite


class NearestSearch:
    """Known features (m, d), ready to be searched.

    >>> search = NearestSearch(torch.tensor([[0.0], [1.0], [5.0]]))
    >>> distances, rows = search(torch.tensor([[1.5]]), 2)
    >>> distances.tolist(), rows.tolist()
    ([[0.5, 1.5]], [[1, 0]])
    """

    def __init__(self, features: Tensor) -> None:
        if not features.isfinite().all():
            bad = int((~features.isfinite()).any(dim=1).sum())
            raise ValueError(
                f"Features of training samples must be finite; {bad} of {len(features)} are not."
            )
        self.features = features
        # If features were far from 0, the product would lose the digits that separate neighbours.
        self._centre = features.double().mean(dim=0)
        centred = features.double() - self._centre
        self._scale = max(float(centred.abs().max()), math.ulp(0.0)) if len(features) else 1.0
        self._known = (centred / self._scale).float()
        self._squares = (self._known**2).sum(dim=1)

    def __len__(self) -> int:
        return len(self.features)

    def __call__(
        self, features: Tensor, k: int, *, itself: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Distances (n, k) of features (n, d) to the k nearest, near ones first, and their rows.

        Known features at the same distance come in their order. `itself` (n,) holds the row of each
        feature among the known ones, which is then not its own neighbour. Features that are not
        finite have no neighbours: their distances are NaN and their rows -1.
        """
        self._check(features, k, itself)
        found = []
        for some in torch.split(torch.arange(len(features)), max(1, _PAIRS // len(self))):
            found.append(self._block(features[some], k, None if itself is None else itself[some]))
        distances, rows = (torch.cat(parts) for parts in zip(*found, strict=True))
        lost = ~features.isfinite().all(dim=1)
        distances[lost], rows[lost] = math.nan, -1
        return distances, rows

    def _block(self, features: Tensor, k: int, itself: Tensor | None) -> tuple[Tensor, Tensor]:
        scaled = (features.double() - self._centre) / self._scale
        scaled = scaled.nan_to_num().clamp(-_LARGEST, _LARGEST).float()
        # Squared distances minus the sample's own squared norm, which keeps the order.
        gaps = torch.addmm(self._squares, scaled, self._known.T, alpha=-2)
        if itself is not None:
            gaps[torch.arange(len(gaps)), itself] = math.inf
        others = len(self) - (itself is not None)
        candidates = gaps.topk(min(k + _SPARE, others), dim=1, largest=False, sorted=False).indices
        candidates = candidates.sort(dim=1).values
        order = self._distances(features, candidates).sort(dim=1, stable=True)
        return order.values[:, :k], candidates.gather(1, order.indices[:, :k])

    def _distances(self, features: Tensor, rows: Tensor) -> Tensor:
        """Distances of features (n, d) to known rows (n, k), from their differences: (n, k)."""
        count = max(1, _NUMBERS // max(1, rows.shape[1] * features.shape[1]))
        differences = (
            self.features[some] - one[:, None]
            for some, one in zip(
                torch.split(rows, count), torch.split(features, count), strict=True
            )
        )
        norm = torch.linalg.vector_norm
        return torch.cat([norm(part, dim=2, dtype=torch.float64) for part in differences])

    def _check(self, features: Tensor, k: int, itself: Tensor | None) -> None:
        if features.dim() != 2 or features.shape[1] != self.features.shape[1]:
            raise ValueError(
                f"features must be (n, {self.features.shape[1]}), as those of training; got "
                f"{tuple(features.shape)}."
            )
        most = len(self) - (itself is not None)
        if not 1 <= k <= most:
            raise ValueError(
                f"k must be 1 to {most}, as many training samples as are known; got {k}."
            )
