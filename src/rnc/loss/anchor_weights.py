"""Weights of anchors: L = sum_i w_i l_i / sum_i w_i, as `rnc.loss.equation` has it.

This equals mean_i (w_i / mean(w)) l_i. So every backend multiplies its losses by `shares` and then
takes the same mean as without weights.
"""

import torch
import torch.distributed as dist
from torch import Tensor


def as_weights(weights: Tensor, n: int, views: int, caller: str, *, check: bool) -> Tensor:
    """Weights of all rows of a batch, without gradient: (n,) -> (n * views,), float64.

    With `check`, a negative, NaN or infinite weight raises. This synchronizes with a GPU once.
    """
    if weights.shape != (n,):
        raise ValueError(
            f"{caller} needs one weight per sample, ({n},), shared by the views of the sample; got "
            f"weights {tuple(weights.shape)}."
        )
    if weights.is_complex():
        raise TypeError(f"{caller} needs real weights; got {weights.dtype}.")
    weights = weights.detach().double()
    if check and not torch.compiler.is_compiling():
        bad = ~((weights >= 0) & weights.isfinite())
        if bad.any():
            rows = bad.nonzero().flatten().tolist()
            shown = ", ".join(f"{weights[row].item():g} in row {row}" for row in rows[:3])
            raise ValueError(
                f"{caller} needs finite weights >= 0; got {len(rows)} of {n} that are not: {shown}"
                f"{', ...' if len(rows) > 3 else ''}. A sample with weight 0 is no anchor."
            )
    return weights if views == 1 else weights.repeat_interleave(views)


def shares(weights: Tensor, *, is_shared: bool = False) -> Tensor:
    """Weights divided by their mean: (n,) -> (n,).

    The result is exactly 1 if all weights are equal, and 0 if all are 0. If `is_shared`, the mean
    is over all processes. Nothing synchronizes with a GPU, and finite weights never overflow.

    >>> shares(torch.tensor([0.0, 1.0, 2.0]))
    tensor([0., 1., 2.])
    """
    most = weights.max() if len(weights) else weights.new_zeros(())
    if is_shared:
        dist.all_reduce(most, op=dist.ReduceOp.MAX)
    scaled = weights / torch.where(most > 0, most, 1.0)  # 0 .. 1
    sums = torch.stack([scaled.sum(), scaled.new_full((), len(weights))])
    if is_shared:
        dist.all_reduce(sums)
    total, count = sums
    return scaled * torch.where(total > 0, count / total, 0.0)
