"""Optimizers and their learning rates."""

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from rnc.config import Optimizer
from rnc.encoders.depth import parameter_depths
from rnc.methods.objective import Objective

_SCALE = "rate_scale"  # entry of a parameter group: set_rate multiplies its rate by it


def make_optimizer(
    name: Optimizer,
    parameters: Iterable[nn.Parameter] | list[dict[str, Any]],
    lr: float,
    weight_decay: float,
    *,
    graphed: bool = False,
    scaled: bool = False,
) -> torch.optim.Optimizer:
    """SGD with momentum 0.9, as in the published code, or AdamW; on a GPU as one fused kernel.

    If `graphed`, a CUDA graph can hold a step: the learning rate is a tensor that `set_rate`
    changes. Steps round the same way with and without a graph. If gradients are `scaled` for 16-bit
    floats, no fused kernel is used, since it would undo the scale only after Fabric has clipped.
    `parameters` may be the groups of `depth_groups`.
    """
    groups: list[Any] = list(parameters)
    first = groups[0]["params"][0] if isinstance(groups[0], dict) else groups[0]
    fused = (first.is_cuda and not scaled) or None
    rate = torch.tensor(lr, device=first.device) if graphed else lr
    for group in groups:
        if isinstance(group, dict):  # its own tensor: set_rate changes it in place
            scale = group[_SCALE]
            group["lr"] = torch.tensor(lr * scale, device=first.device) if graphed else lr * scale
    if name == "sgd":
        return torch.optim.SGD(
            groups, lr=rate, momentum=0.9, weight_decay=weight_decay, fused=fused
        )
    return torch.optim.AdamW(
        groups, lr=rate, weight_decay=weight_decay, capturable=graphed, fused=fused
    )


def depth_groups(objective: Objective, decay: float) -> list[dict[str, Any]]:
    """Parameter groups whose learning rates fall from the last layer of the encoder to the first.

    The last layer, and everything outside the encoder (a head, a projection), have the full rate.
    Each layer below has `decay` times the rate of the layer above it. Parameters that do not train
    are left out.
    """
    depths = {f"encoder.{k}": v for k, v in parameter_depths(objective.encoder).items()}
    top = max(depths.values(), default=0)
    by_depth: dict[int, list[nn.Parameter]] = {}
    for name, parameter in objective.named_parameters():
        if parameter.requires_grad:
            by_depth.setdefault(depths.get(name, top), []).append(parameter)
    return [{"params": by_depth[k], _SCALE: decay ** (top - k)} for k in sorted(by_depth)]


def set_rate(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Set the learning rate, times the scale of each group; in place if it is a tensor."""
    for group in optimizer.param_groups:
        rate = lr * group.get(_SCALE, 1.0)
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate


def learning_rate(epoch: int, epochs: int, lr: float, decay: float, warm_up: int = 0) -> float:
    """The paper's cosine from lr to lr * decay^3, set once per epoch; epochs count from 1.

    It begins after the warm-up, in which the loop raises the rate to lr with every step.

    >>> round(learning_rate(400, 400, lr=0.5, decay=0.1), 6)
    0.0005
    """
    low, done = lr * decay**3, max(0, epoch - warm_up) / max(1, epochs - warm_up)
    return low + (lr - low) * (1 + math.cos(math.pi * done)) / 2
