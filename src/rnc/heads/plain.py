"""Heads whose one output is the prediction, in scales of the target: l1, mse and huber."""

import math

from torch import Tensor

from rnc.heads.spec import HeadOption, HeadOptions, HeadSpec


def _l1(outputs: Tensor, u: Tensor, options: HeadOptions) -> Tensor:
    return (outputs[:, 0] - u).abs()


def _mse(outputs: Tensor, u: Tensor, options: HeadOptions) -> Tensor:
    return (outputs[:, 0] - u).square()


def _huber(outputs: Tensor, u: Tensor, options: HeadOptions) -> Tensor:
    beta: float = options["beta"]
    error = (outputs[:, 0] - u).abs()
    inner = error.clamp(max=beta)
    return inner * (error - inner / 2) / beta


def _first(outputs: Tensor, options: HeadOptions) -> Tensor:
    return outputs[:, 0]


_BETA = HeadOption(1.0, lambda beta: 0 < beta < math.inf, "> 0")

PLAIN_HEADS = {
    "l1": HeadSpec(_l1, _first, outputs_are_values=True, linear=True),
    "mse": HeadSpec(_mse, _first, outputs_are_values=True),
    "huber": HeadSpec(_huber, _first, {"beta": _BETA}, outputs_are_values=True, linear=True),
}
