"""Ridge regression on fixed features, for quick probes of an encoder and for the teacher.

    mean_i w_i |x_i W - y_i|^2 + penalty s |W|^2

x and y are centred, and s is the mean square of a feature.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

QUICK_PENALTIES = (1e-3, 1e-2, 1e-1)


class Ridge(NamedTuple):
    """A solved regression: features (n, d) -> estimates (n, t)."""

    shift: Tensor
    weight: Tensor
    middle: Tensor

    def __call__(self, features: Tensor) -> Tensor:
        """The estimates for features in float64."""
        return (features - self.shift) @ self.weight + self.middle


def solved_ridges(
    features: Tensor,
    targets: Tensor,
    weights: Tensor | None = None,
    penalties: Sequence[float] = QUICK_PENALTIES,
) -> Iterator[Ridge]:
    """A regression for each penalty.

    Args:
        features: (n, d), finite, in float64.
        targets: (n, t).
        weights: (n,) the weights of the samples.
        penalties: the strengths of the penalty, above 0.

    >>> x = torch.tensor([[0.0], [1.0], [2.0]], dtype=torch.float64)
    >>> [round(float(ridge(x)[2]), 2) for ridge in solved_ridges(x, 10 * x)]
    [19.99, 19.9, 19.09]
    """
    if weights is None:
        shift, middle = features.mean(dim=0), targets.mean(dim=0)
        x, y = features - shift, targets - middle
        gram, moment = x.T @ x / len(x), x.T @ y / len(x)
    else:
        parts = (weights / weights.sum()).to(targets)[:, None]
        shift, middle = (parts * features).sum(dim=0), (parts * targets).sum(dim=0)
        x, y = features - shift, targets - middle
        gram, moment = x.T @ (parts * x), x.T @ (parts * y)
    size = gram.diagonal().mean()
    size = torch.where(size > 0, size, 1.0)
    ones = torch.eye(len(gram), dtype=gram.dtype, device=gram.device)
    for penalty in penalties:
        yield Ridge(shift, torch.linalg.solve(gram + penalty * size * ones, moment), middle)
