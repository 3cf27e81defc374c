"""Gather with gradient: each process contrasts its own anchors against the global batch.

Every process holds some rows; the batch is all of them. With these functions DDP's averaged
gradient equals the gradient that one process would get from the whole batch, for any number of
rows per process.
"""

import os
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


def world_size() -> int:
    """The number of processes that share a batch: 1 where torch.distributed is not running."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def is_first_process() -> bool:
    """Whether this is rank 0, the only process that writes files and prints under torchrun."""
    return int(os.environ.get("RANK", "0")) == 0


def gather_rows(features: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, int]:
    """The rows of all processes in rank order, and where this process's rows begin.

    Features are (n, d) and targets (n, t); n may differ between processes, or be 0. Gradients flow
    back to the process that a feature came from. If processes differ in d or t, every process
    raises, since a collective would hang.
    """
    shape = torch.tensor([*features.shape, targets.shape[1]], device=features.device)
    everyone = [torch.empty_like(shape) for _ in range(world_size())]
    dist.all_gather(everyone, shape)
    shapes = [tuple(other.tolist()) for other in everyone]
    if len({other[1:] for other in shapes}) > 1:
        raise ValueError(
            "gather=True needs the same number of features and of targets in every process; got "
            f"(rows, features, targets) = {', '.join(map(str, shapes))} in rank order."
        )
    counts = [other[0] for other in shapes]
    rows: Tensor = _GatherRows.apply(features, counts)
    return rows, _all_gather(targets, counts), sum(counts[: dist.get_rank()])


def global_mean(values: Tensor) -> Tensor:
    """Mean over the values of all processes; every process gets the same number.

    Its gradient is world_size times that of the local part, so that the average of the gradients
    of all processes, which DDP takes, is the gradient of the global mean.
    """
    return global_ratio(values.sum(), values.numel())


def global_ratio(total: Tensor, number: int) -> Tensor:
    """`global_mean`, computed from the sum and the number of each process's values."""
    everyone = torch.stack([total.detach(), total.new_tensor(float(number))])
    dist.all_reduce(everyone)
    count = everyone[1].clamp(min=1)
    local = total * (world_size() / count)
    return local + (everyone[0] / count - local).detach()


def _all_gather(rows: Tensor, counts: list[int]) -> Tensor:
    padded = rows.new_zeros(max(counts), rows.shape[1])
    padded[: rows.shape[0]] = rows
    parts = [torch.empty_like(padded) for _ in counts]
    dist.all_gather(parts, padded)
    return torch.cat([part[:count] for part, count in zip(parts, counts, strict=True)])


class _GatherRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, counts: list[int]) -> Tensor:
        ctx.counts = counts
        return _all_gather(rows, counts)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        grad = grad.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(grad)
        start = sum(ctx.counts[: dist.get_rank()])
        return grad[start : start + ctx.counts[dist.get_rank()]], None
