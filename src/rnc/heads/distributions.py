"""Quantiles of the distributions that heads predict, in the units of u.

from quantiles of a grid   linear between levels, in the scores of a normal distribution: exact
                           for normal targets. Beyond the grid the outermost two levels go on
                           in the same way, as the tails of a normal distribution
from masses of bins        the mass of class k lies evenly between k - 1/2 and k + 1/2; no
                           quantile is beyond the centres of the first and the last class
from a mean and a scale    those of a normal distribution
"""

from collections.abc import Sequence

import torch
from torch import Tensor

LEVELS = (0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.975)
"""The quantiles that are learned and given unless others are asked for."""


def check_levels(levels: Sequence[float]) -> tuple[float, ...]:
    """The levels as floats; raises for those that no quantile has, and for one that is twice.

    >>> check_levels([0.9, 0.1])
    (0.9, 0.1)
    """
    given = tuple(float(level) for level in levels)
    if not given or not all(0 < level < 1 for level in given) or len(set(given)) < len(given):
        raise ValueError(
            "quantiles must be one or more levels above 0 and below 1, each once, as [0.1, 0.5, "
            f"0.9]; got {list(levels)}."
        )
    return given


def between_levels(values: Tensor, grid: Sequence[float], levels: Tensor) -> Tensor:
    """Quantiles from those of a grid, both in rising order: (n, k), (q,) -> (n, q).

    >>> normal = torch.special.ndtri(torch.tensor([[0.1, 0.5, 0.9]]).double())
    >>> between_levels(normal, (0.1, 0.5, 0.9), torch.tensor([0.2, 0.99]).double())
    tensor([[-0.8416,  2.3263]], dtype=torch.float64)
    """
    if len(grid) == 1:
        return values.expand(-1, len(levels))
    known = torch.special.ndtri(levels.new_tensor(grid))
    asked = torch.special.ndtri(levels)
    after = torch.searchsorted(known, asked).clamp(1, len(grid) - 1)
    shares = (asked - known[after - 1]) / (known[after] - known[after - 1])
    # Exact at either end, unlike left + share * (right - left).
    return torch.lerp(values[:, after - 1], values[:, after], shares.expand(len(values), -1))


def of_masses(masses: Tensor, levels: Tensor) -> Tensor:
    """Quantiles of classes with these masses: (n, b), (q,) -> (n, q).

    >>> of_masses(torch.tensor([[0.25, 0.5, 0.25]]).double(), torch.tensor([0.5, 0.6]).double())
    tensor([[1.0000, 1.2000]], dtype=torch.float64)
    """
    bins, rows = masses.shape[1], len(masses)
    edges = masses.cumsum(dim=1)
    edges = torch.cat([edges.new_zeros(rows, 1), edges / edges[:, -1:]], dim=1)
    levels = levels.expand(rows, -1).contiguous()
    # The first class that ends at or above the level; it has some mass, since it starts below.
    place = torch.searchsorted(edges, levels).clamp(1, bins) - 1
    start, end = edges.gather(1, place), edges.gather(1, place + 1)
    return (place - 0.5 + (levels - start) / (end - start)).clamp(0, bins - 1)


def of_normal(mean: Tensor, scale: Tensor, levels: Tensor) -> Tensor:
    """Quantiles of normal distributions: (n,), (n,), (q,) -> (n, q)."""
    scores: Tensor = torch.special.ndtri(levels)
    return mean[:, None] + scale[:, None] * scores
