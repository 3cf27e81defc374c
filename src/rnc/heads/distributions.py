"""Quantiles of the distributions that heads predict, in the units of u.

from quantiles of a grid   linear interpolation between levels, in the scores of a normal
                           distribution: exact for normal targets. Beyond the grid, the line
                           through the outermost two levels goes on, as normal tails do
from masses of bins        the mass of class k lies evenly between k - 1/2 and k + 1/2; no
                           quantile is beyond the centres of the first and the last class
from a mean and a scale    quantiles of that normal distribution
"""

from bisect import bisect_left
from collections.abc import Sequence
from statistics import NormalDist

import torch
from torch import Tensor

LEVELS = (0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.975)
"""Default levels of the quantiles that are learned and returned."""


def check_levels(levels: Sequence[float]) -> tuple[float, ...]:
    """The levels as floats; raises if one is not between 0 and 1, or occurs twice.

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


def between_levels(values: Tensor, grid: Sequence[float], levels: Sequence[float]) -> Tensor:
    """Quantiles at some levels from those of a grid, which rise with it: (n, k) -> (n, q).

    >>> normal = torch.tensor([[-1.281552, 0.0, 1.281552]])
    >>> between_levels(normal, (0.1, 0.5, 0.9), (0.2, 0.5, 0.99))
    tensor([[-0.8416,  0.0000,  2.3263]])
    """
    if len(grid) == 1 or tuple(levels) == tuple(grid):
        return values.expand(-1, len(levels))
    known, asked = _scores(grid), _scores(levels)
    after = [min(max(bisect_left(known, score), 1), len(grid) - 1) for score in asked]
    shares = [
        (score - known[i - 1]) / (known[i] - known[i - 1])
        for score, i in zip(asked, after, strict=True)
    ]
    # lerp is exact at both ends, unlike left + share * (right - left).
    left, right = values[:, [i - 1 for i in after]], values[:, after]
    return torch.lerp(left, right, values.new_tensor(shares).expand(len(values), -1))


def of_masses(masses: Tensor, levels: Sequence[float]) -> Tensor:
    """Quantiles of classes with these masses: (n, b) -> (n, q).

    >>> of_masses(torch.tensor([[0.25, 0.5, 0.25]]), (0.5, 0.6))
    tensor([[1.0000, 1.2000]])
    """
    bins, rows = masses.shape[1], len(masses)
    edges = masses.cumsum(dim=1)
    edges = torch.cat([edges.new_zeros(rows, 1), edges / edges[:, -1:]], dim=1)
    wanted = masses.new_tensor(levels).expand(rows, -1).contiguous()
    # The first class that ends at or above the level; it has some mass, since it starts below.
    place = torch.searchsorted(edges, wanted).clamp(1, bins) - 1
    start, end = edges.gather(1, place), edges.gather(1, place + 1)
    return (place - 0.5 + (wanted - start) / (end - start)).clamp(0, bins - 1)


def of_normal(mean: Tensor, scale: Tensor, levels: Sequence[float]) -> Tensor:
    """Quantiles of normal distributions: (n,), (n,) -> (n, q).

    >>> of_normal(torch.tensor([10.0]), torch.tensor([2.0]), (0.5, 0.975))
    tensor([[10.0000, 13.9199]])
    """
    return mean[:, None] + scale[:, None] * mean.new_tensor(_scores(levels))


def _scores(levels: Sequence[float]) -> list[float]:
    """The quantiles of the standard normal distribution."""
    return [NormalDist().inv_cdf(level) for level in levels]


def nearest_class(u: Tensor, bins: int) -> Tensor:
    """The class of u: (n,) -> (n, 1).

    Halves are rounded up. If they were rounded to even numbers, every other class would be wider.
    """
    return (u + 0.5).floor().nan_to_num().clamp(0, bins - 1).long()[:, None]
