"""Losses of heads for a target that is known in part: it lies in [lower, upper].

    l1, mse, huber, quantile    for each output, the loss at the value of the interval nearest to
                                it: 0 within the interval, the loss at the nearer end beyond it
    dex, lde, dldl, l2cs, corn  -log of the probability of the classes from that of the lower end to
                                that of the upper one
    or                          the terms of the thresholds that the target is known to be above, or
                                not to be above
    gaussian                    -log of the probability of the interval

If both ends are equal, it is the usual loss of the head; if both are open, it is 0. All are
computed from logarithms, so a prediction far from an interval has a gradient towards it.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from rnc.heads.distributions import nearest_class

LEAST = 1e-12
"""For a probability P, 1 - P is taken to be at least this."""
Options = Mapping[str, Any]


def at_nearest(
    loss: Callable[[Tensor, Tensor, Options], Tensor],
    outputs: Tensor,
    lower: Tensor,
    upper: Tensor,
    options: Options,
) -> Tensor:
    """The loss of outputs that are values, at the value of the interval nearest to each: (n,)."""
    here = outputs.detach().double()
    nearest = here.clamp(lower[:, None], upper[:, None])
    within = (here == nearest) & (lower < upper)[:, None]  # gradient 0, not that of a kink
    outputs = torch.where(within, outputs.detach(), outputs)
    return loss(outputs, nearest if outputs.shape[1] > 1 else nearest[:, 0], options)


def within_or_exact(
    loss: Callable[[Tensor, Tensor, Options], Tensor],
    interval: Callable[[Tensor, Tensor, Tensor, Options], Tensor],
    outputs: Tensor,
    lower: Tensor,
    upper: Tensor,
    options: Options,
) -> Tensor:
    """The usual loss of the head if both ends are equal, else the loss of the interval: (n,)."""
    exact = lower == upper
    # corn divides by the number of terms in the batch, and an interval counts by its lowest class.
    at = torch.where(exact, lower, lower.clamp(min=-1.0))
    losses = interval(outputs, lower, upper, options)
    return torch.where(exact, loss(outputs, at, options).double(), losses)


def _end_classes(lower: Tensor, upper: Tensor, bins: int) -> tuple[Tensor, Tensor]:
    """The first and the last class of an interval: (n, 1) each."""
    ends = (end.clamp(-1.0, float(bins)) for end in (lower, upper))
    first, last = (nearest_class(end, bins) for end in ends)
    return first, last


def classes_within(outputs: Tensor, lower: Tensor, upper: Tensor, options: Options) -> Tensor:
    """-log P(first .. last class) of a head with one output per class: (n, b) -> (n,)."""
    outputs = outputs.double()
    first, last = _end_classes(lower, upper, outputs.shape[1])
    k = torch.arange(outputs.shape[1], device=outputs.device)
    inside = outputs.masked_fill((k < first) | (k > last), -torch.inf)
    return outputs.logsumexp(dim=1) - inside.logsumexp(dim=1)


def or_within(outputs: Tensor, lower: Tensor, upper: Tensor, options: Options) -> Tensor:
    """The loss of the head `or`, which has one output per threshold: (n, b - 1) -> (n,)."""
    outputs = outputs.double()
    first, last = _end_classes(lower, upper, outputs.shape[1] + 1)
    k = torch.arange(outputs.shape[1], device=outputs.device)
    above, below = logsigmoid(outputs) * (k < first), logsigmoid(-outputs) * (k >= last)
    return -(above + below).sum(dim=1)


def corn_within(outputs: Tensor, lower: Tensor, upper: Tensor, options: Options) -> Tensor:
    """-log P(first .. last), P = P(at least first) (1 - P(above last | at least first)): (n,)."""
    outputs = outputs.double()
    first, last = _end_classes(lower, upper, outputs.shape[1] + 1)
    k, logs = torch.arange(outputs.shape[1], device=outputs.device), logsigmoid(outputs)
    reached = (logs * (k < first)).sum(dim=1)
    # For a single class, log(1 - P) is exact however near P is to 1. Several need expm1.
    passed = (logs * ((k >= first) & (k <= last))).sum(dim=1)
    one = logsigmoid(-outputs.gather(1, first.clamp(max=outputs.shape[1] - 1)))[:, 0]
    several = torch.log(-torch.expm1(passed.clamp(max=-LEAST)))
    is_one, is_top = (first == last)[:, 0], last[:, 0] == outputs.shape[1]
    stayed = torch.where(is_one, one, several).masked_fill(is_top, 0.0)
    terms = (first + 1).clamp(max=outputs.shape[1]).double().mean()
    return -(reached + stayed) / terms


def normal_within(mean: Tensor, deviation: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    """-log of the probability of the interval under a normal distribution: (n,) each -> (n,)."""
    low, high = (_standard(end, mean, deviation) for end in (lower, upper))
    # Use the tail in which both probabilities are small: far above the mean, 1 - 1 would be 0.
    flip = low + high > 0
    low, high = torch.where(flip, -high, low), torch.where(flip, -low, high)
    log_high = torch.special.log_ndtr(high)
    gap = (torch.special.log_ndtr(low) - log_high).clamp(max=-LEAST)
    inside: Tensor = log_high + torch.log(-torch.expm1(gap))
    return -inside.masked_fill((lower == -torch.inf) & (upper == torch.inf), 0.0)


def _standard(end: Tensor, mean: Tensor, deviation: Tensor) -> Tensor:
    """An end in standard deviations from the mean; an open end is 1e6 away, without gradient."""
    far = 1e6 * torch.sign(end)
    finite = torch.where(end.isinf(), mean.detach(), end)
    return torch.where(end.isinf(), far, ((finite - mean) / deviation).clamp(-1e6, 1e6))
