"""Optimizers and their learning rates."""

import math
from collections.abc import Iterable

import torch
from torch import Tensor, nn

from rnc.config import Optimizer


def make_optimizer(
    name: Optimizer,
    parameters: Iterable[nn.Parameter],
    lr: float,
    weight_decay: float,
    *,
    graphed: bool = False,
    scaled: bool = False,
) -> torch.optim.Optimizer:
    """SGD with momentum 0.9, as released, or AdamW; on a GPU as one fused kernel.

    If `graphed`, a CUDA graph can hold a step: the learning rate is a tensor that `set_rate`
    changes. Steps round in the same way with it and without. If gradients are `scaled` for 16-bit
    floats, there is no fused kernel: it would undo the scale only after Fabric has clipped.
    """
    parameters = list(parameters)
    fused = (parameters[0].is_cuda and not scaled) or None
    rate = torch.tensor(lr, device=parameters[0].device) if graphed else lr
    if name == "sgd":
        return torch.optim.SGD(
            parameters, lr=rate, momentum=0.9, weight_decay=weight_decay, fused=fused
        )
    return torch.optim.AdamW(
        parameters, lr=rate, weight_decay=weight_decay, capturable=graphed, fused=fused
    )


def set_rate(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Change the learning rate, in place where it is a tensor."""
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(lr)
        else:
            group["lr"] = lr


def learning_rate(epoch: int, epochs: int, lr: float, decay: float, warm_up: int = 0) -> float:
    """The paper's cosine from lr to lr * decay^3, set once per epoch; epochs count from 1.

    It begins after the warm-up, in which the rate rises with every step and ends at lr.

    >>> round(learning_rate(400, 400, lr=0.5, decay=0.1), 6)
    0.0005
    """
    low, done = lr * decay**3, max(0, epoch - warm_up) / max(1, epochs - warm_up)
    return low + (lr - low) * (1 + math.cos(math.pi * done)) / 2
