"""The lower and upper ends of targets, and single numbers that stand for them, as tensors."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rnc.data.table import Table


def ends_of(table: Table, rows: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
    """Lower and upper ends of the targets of some rows: (n, t) each, float64."""
    assert table.ends is not None
    lower, upper = torch.tensor(table.ends[rows]).unbind(dim=-1)
    return lower.contiguous(), upper.contiguous()


def exact_columns(lower: Tensor, upper: Tensor) -> list[NDArray[np.float64]]:
    """The exact values of each target, where both ends are equal: two times (n, t) -> t arrays."""
    columns = zip(lower.unbind(1), upper.unbind(1), strict=True)
    return [low[low == high].double().cpu().numpy() for low, high in columns]


def middles(lower: Tensor, upper: Tensor | None) -> Tensor:
    """One number for each target: the middle of its interval, or the end of an open interval.

    A missing target gets the mean of the exact values in its column, or 0 if there are none.

    >>> inf = torch.inf
    >>> lower, upper = torch.tensor([[2.0], [4], [7], [-inf]]), torch.tensor([[2.0], [6], [inf]])
    >>> middles(lower, torch.cat([upper, torch.tensor([[inf]])])).T
    tensor([[2., 5., 7., 2.]])
    """
    if upper is None:
        return lower
    columns = []
    for low, high in zip(lower.unbind(1), upper.unbind(1), strict=True):
        known = low[low == high]
        mean = known.mean() if len(known) else low.new_zeros(())
        start = torch.where(low.isfinite(), low, torch.where(high.isfinite(), high, mean))
        stop = torch.where(high.isfinite(), high, start)
        columns.append(torch.where(low == high, low, start + (stop - start) / 2))
    return torch.stack(columns, dim=1)
