"""Heads that count in bins: dex, lde, dldl and l2cs over classes, or and corn over thresholds."""

import math

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from rnc.heads.spec import HeadOption, HeadOptions, HeadSpec

_DECODE = ("mean", "class")


def _dex(outputs: Tensor, u: Tensor, options: HeadOptions) -> Tensor:
    return -outputs.log_softmax(dim=1).gather(1, nearest_class(u, outputs.shape[1]))[:, 0]


def _lde(outputs: Tensor, u: Tensor, options: HeadOptions) -> Tensor:
    log_p = _log_gaussian(outputs, u, options["sigma"])
    return -(log_p.exp() * outputs.log_softmax(dim=1)).sum(dim=1)


def _dldl(outputs: Tensor, u: Tensor, options: HeadOptions) -> Tensor:
    log_p = _log_gaussian(outputs, u, options["sigma"])
    divergence = (log_p.exp() * (log_p - outputs.log_softmax(dim=1))).sum(dim=1)
    share = 1 / outputs.shape[1] if options["original"] else 1.0
    alpha: float = options["alpha"]
    return share * divergence + alpha * (_expectation(outputs, options) - u).abs()


def _l2cs(outputs: Tensor, u: Tensor, options: HeadOptions) -> Tensor:
    error = (_expectation(outputs, options) - u).square()
    alpha: float = options["alpha"]
    return _dex(outputs, u - 0.5 if options["original"] else u, options) + alpha * error


def _or(outputs: Tensor, u: Tensor, options: HeadOptions) -> Tensor:
    above = nearest_class(u, outputs.shape[1] + 1) > _numbers(outputs)
    return -logsigmoid(torch.where(above, outputs, -outputs)).sum(dim=1)


def _corn(outputs: Tensor, u: Tensor, options: HeadOptions) -> Tensor:
    classes, k = nearest_class(u, outputs.shape[1] + 1), _numbers(outputs)
    terms = -logsigmoid(torch.where(classes > k, outputs, -outputs)) * (classes >= k)
    # The mean over samples is then the sum of all terms over their number.
    return terms.sum(dim=1) / (classes >= k).sum(dim=1).double().mean()


def nearest_class(u: Tensor, bins: int) -> Tensor:
    """The class of u: (n,) -> (n, 1).

    Halves go up. Rounded to even numbers, every other class would be wider than its neighbours.
    """
    return (u + 0.5).floor().nan_to_num().clamp(0, bins - 1).long()[:, None]


def _numbers(outputs: Tensor) -> Tensor:
    return torch.arange(outputs.shape[1], device=outputs.device)


def _log_gaussian(outputs: Tensor, u: Tensor, sigma: float) -> Tensor:
    deviations = (_numbers(outputs) - u[:, None]) / sigma
    return (deviations.square() / -2).log_softmax(dim=1)


def _expectation(outputs: Tensor, options: HeadOptions) -> Tensor:
    return (outputs.softmax(dim=1) * _numbers(outputs)).sum(dim=1)


def _or_count(outputs: Tensor, options: HeadOptions) -> Tensor:
    return _count(outputs.sigmoid(), options)


def _corn_count(outputs: Tensor, options: HeadOptions) -> Tensor:
    return _count(outputs.sigmoid().cumprod(dim=1), options)


def _count(above: Tensor, options: HeadOptions) -> Tensor:
    return (above > 0.5).sum(dim=1) if options["decode"] == "class" else above.sum(dim=1)


def _classes(bins: int) -> int:
    return bins


def _thresholds(bins: int) -> int:
    return bins - 1


_SIGMA = {"sigma": HeadOption(2.0, lambda sigma: 0.01 <= sigma < math.inf, ">= 0.01")}
_ALPHA = {"alpha": HeadOption(1.0, lambda alpha: 0 <= alpha < math.inf, ">= 0")}
_ORIGINAL = {"original": HeadOption(False, lambda original: True, "a bool")}
_COUNTED = {"decode": HeadOption("mean", lambda decode: decode in _DECODE, f"one of {_DECODE}")}

BINNED_HEADS = {
    "dex": HeadSpec(_dex, _expectation, {}, _classes, binned=True),
    "dldl": HeadSpec(_dldl, _expectation, _SIGMA | _ALPHA | _ORIGINAL, _classes, binned=True),
    "or": HeadSpec(_or, _or_count, _COUNTED, _thresholds, binned=True),
    "corn": HeadSpec(_corn, _corn_count, _COUNTED, _thresholds, binned=True),
    "l2cs": HeadSpec(_l2cs, _expectation, _ALPHA | _ORIGINAL, _classes, binned=True),
    "lde": HeadSpec(_lde, _expectation, _SIGMA, _classes, binned=True),
}
