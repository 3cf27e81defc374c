"""Optimizers, the learning rate of every epoch, and an optimizer's state as tensors and JSON."""

import math
from collections.abc import Iterable
from typing import Any

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
    """SGD with momentum 0.9, as in the paper, or AdamW; on a GPU as one fused kernel.

    Args:
        name: which.
        parameters: what it changes.
        lr: learning rate.
        weight_decay: as torch has it.
        graphed: for CUDA parameters, a step can be held in a CUDA graph: the learning rate is a
            tensor that `set_rate` changes. Without, steps round alike.
        scaled: gradients are scaled for 16-bit floats. No fused kernel then, which would undo the
            scale by itself: after Fabric had to clip.
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


def learning_rate(epoch: int, epochs: int, lr: float, decay: float) -> float:
    """The paper's cosine from lr to lr * decay^3, set once per epoch; epochs count from 1.

    >>> round(learning_rate(400, 400, lr=0.5, decay=0.1), 6)
    0.0005
    """
    low = lr * decay**3
    return low + (lr - low) * (1 + math.cos(math.pi * epoch / epochs)) / 2


def pack_state(optimizer: torch.optim.Optimizer) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The state of an optimizer as named tensors and the numbers beside them."""
    tensors: dict[str, Tensor] = {}
    numbers: dict[str, Any] = {}
    for parameter, state in optimizer.state_dict()["state"].items():
        for name, value in state.items():
            kind = tensors if isinstance(value, Tensor) else numbers
            kind[f"{parameter}.{name}"] = value
    return tensors, numbers


def unpack_state(
    optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor], numbers: dict[str, Any]
) -> None:
    """Put back what `pack_state` took; learning rates are set anew every epoch."""
    state: dict[int, dict[str, Any]] = {}
    for key, value in (*tensors.items(), *numbers.items()):
        parameter, name = key.split(".", 1)
        state.setdefault(int(parameter), {})[name] = value
    optimizer.load_state_dict(
        {"state": state, "param_groups": optimizer.state_dict()["param_groups"]}
    )
