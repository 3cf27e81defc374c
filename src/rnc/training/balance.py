"""Weights for training samples, so that rare targets count as well: density(y)^-k, with mean 1.

The density of a target is the number of training samples around it, counted by a Gaussian of a
tenth of the targets' standard deviation, so that units do not matter:

    density(y) = sum_j exp(-(y - y_j)^2 / (2 width^2)),    width = 0.1 sd

Targets are rounded to a tenth of the width first, so that a million of them have a few thousand
places. Several targets have the geometric mean of their densities. Targets on a circle are near
each other across its end, too, and so are pitch and yaw. No density counts as less than a hundredth
of the mean: a lone sample weighs at most 100^k times as much as one of mean density.

Beside LDS (`rnc.methods.lds_fds`): k = 1/2 is near its "sqrt_inv", whose bins have the units of the
target. LDS also weighs the training of the encoder.
"""

import math

import torch
from torch import Tensor

KERNEL_WIDTH = 0.1
"""Of the Gaussian, in standard deviations of a target."""
PLACES = 10
"""A target is rounded to the width over this."""
LEAST_DENSITY = 0.01
"""Over the mean of all samples."""
_PAIRS = 2**22  # in memory at a time


def balance_weights(targets: Tensor, exponent: float, period: float | None = None) -> Tensor:
    """What each training sample counts, with mean 1: (n, t) -> (n,), float64.

    Args:
        targets: finite.
        exponent: 0 weighs all alike; with 1, every stretch of the targets has the same weight.
        period: the length of the circle that targets are on, as 24 for hours; None for a line.

    >>> balance_weights(torch.tensor([[20.0], [20.0], [20.0], [20.0], [60.0]]), 0.5)
    tensor([0.8333, 0.8333, 0.8333, 0.8333, 1.6667], dtype=torch.float64)
    """
    if not 0 <= exponent < math.inf:
        raise ValueError(
            f"balance needs an exponent >= 0, as 0.5; got {exponent}. 0 weighs all samples alike."
        )
    if exponent == 0:
        return torch.ones(len(targets), dtype=torch.float64, device=targets.device)
    columns = [_density(y, period).log() for y in targets.double().unbind(1)]
    density = torch.stack(columns).mean(dim=0).exp()
    weights = density.clamp(min=LEAST_DENSITY * density.mean()) ** -exponent
    return weights / weights.mean()


def _density(y: Tensor, period: float | None) -> Tensor:
    """How many samples have about this target, by a Gaussian: (n,) -> (n,)."""
    deviation = y.std(correction=0)
    place = torch.where(deviation > 0, deviation, 1.0) * KERNEL_WIDTH / PLACES
    around = None if period is None else period / place
    rounded = ((y - y.mean()) / place).round()
    places, place_of, counts = torch.unique(rounded, return_inverse=True, return_counts=True)
    sums = []
    for part in places.split(max(1, _PAIRS // len(places))):
        gaps = (part[:, None] - places).abs()
        if around is not None:
            gaps = gaps % around
            gaps = torch.minimum(gaps, around - gaps)
        sums.append(torch.exp(-0.5 * (gaps / PLACES).square()) @ counts.double())
    return torch.cat(sums)[place_of]
