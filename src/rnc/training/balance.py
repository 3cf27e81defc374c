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

An encoder does not weigh samples, it may see rare ones more often: drawn in proportion to
density(y)^-k. `even_exponent` finds the k with which training targets are spread like those of
validation, which is 0 where both are from one source.
"""

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rnc.config import FitConfig
from rnc.data.table import Table
from rnc.loss.pairwise import circle_of

KERNEL_WIDTH = 0.1
"""Of the Gaussian, in standard deviations of a target."""
PLACES = 10
"""A target is rounded to the width over this."""
LEAST_DENSITY = 0.01
"""Over the mean of all samples."""
EXPONENTS = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Those to choose from on validation."""
LEAST_ROWS = 30
"""Of validation, or groups of them, to choose an exponent by."""
SURE = 2.0
"""How many standard errors better an exponent must be than none."""
MOST_DRAWN = 0.5
"""The exponent of a draw that is chosen: 1 repeats the rarest so often that they are learned by
heart (benchmarks/results/recipe_trials.csv)."""
LEAST_GAIN = 1e-6
"""Of log-likelihood: less is rounding."""
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
    weights = _density(targets, targets, period) ** -exponent
    return weights / weights.mean()


def chosen_oversample(config: FitConfig, table: Table) -> float:
    """What the config says, or what the validation targets of the table say, up to MOST_DRAWN."""
    if config.oversample is not None:
        return config.oversample
    train, val = (torch.tensor(table.y[table.rows(split)]) for split in ("train", "val"))
    groups = None if table.group is None else table.group[table.rows("val")]
    return min(MOST_DRAWN, even_exponent(train, val, circle_of(config.distance), groups))


def even_exponent(
    targets: Tensor,
    val_targets: Tensor,
    period: float | None = None,
    groups: NDArray[Any] | None = None,
) -> float:
    """The exponent of EXPONENTS with which training is spread like validation: (n, t), (m, t).

    Drawn with exponent k, targets have a density p(y)^(1 - k) / Z with Z = mean of p(y_i)^-k over
    training. The k of the greatest likelihood of the validation targets is taken, if it is surely
    above 0: by SURE standard errors of the difference in log-likelihood. Groups (m,), such as
    persons, have like targets: a few of them make sure of nothing, and neither do a few rows.

    >>> ages = torch.cat([torch.full((90, 1), 20.0), torch.linspace(20, 80, 61)[:, None]])
    >>> even_exponent(ages, ages), even_exponent(ages, torch.linspace(20, 80, 61)[:, None])
    (0.0, 1.0)
    """
    count = len(val_targets) if groups is None else len(np.unique(groups))
    if count < LEAST_ROWS or (targets == targets[:1]).all():
        return 0.0
    log_density = _density(targets, targets, period).log()
    gains = -_density(targets, val_targets, period).log()  # per unit of k
    of_group = torch.arange(len(gains))
    if groups is not None:
        of_group = torch.tensor(np.unique(groups, return_inverse=True)[1])
    sums = gains.new_zeros(len(gains)).index_add(0, of_group, gains - gains.mean())
    error = float(sums.square().sum().sqrt()) / len(gains)
    best, most = 0.0, LEAST_GAIN
    for k in EXPONENTS[1:]:
        normaliser = torch.logsumexp(-k * log_density, dim=0) - math.log(len(log_density))
        gain = float(k * gains.mean() - normaliser)
        if gain > max(most, SURE * k * error):
            best, most = k, gain
    return best


def drawn_rows(shares: Tensor, generator: torch.Generator) -> Tensor:
    """As many rows as there are shares, shuffled, each drawn about as often as its share says.

    Shares (n,) have mean 1, or are in proportion to such. A row is drawn the whole number of times
    below or above its share, which is less noisy than independent draws; never if that is 0.

    >>> rows = drawn_rows(torch.tensor([2.0, 0.5, 0.5]), torch.Generator().manual_seed(0))
    >>> len(rows), int((rows == 0).sum())
    (3, 2)
    """
    ends = shares.double().cumsum(0)
    ends = (ends * (len(shares) / ends[-1]) + torch.rand((), generator=generator).double()).floor()
    ends[ends == ends[-1]] = len(shares)  # whatever was lost by rounding
    counts = ends.diff(prepend=ends.new_zeros(1)).long()
    rows = torch.arange(len(shares)).repeat_interleave(counts)
    return rows[torch.randperm(len(rows), generator=generator)]


def _density(targets: Tensor, at: Tensor, period: float | None) -> Tensor:
    """How many samples have about such targets, no less than LEAST_DENSITY: (n, t), (m, t) -> (m,).

    The geometric mean over several targets.
    """
    pairs = list(zip(targets.double().unbind(1), at.double().unbind(1), strict=True))
    own = torch.stack([_column_density(y, y, period).log() for y, _ in pairs]).mean(dim=0).exp()
    if at is targets:
        return own.clamp(min=LEAST_DENSITY * own.mean())
    there = torch.stack([_column_density(y, places, period).log() for y, places in pairs])
    return there.mean(dim=0).exp().clamp(min=LEAST_DENSITY * own.mean())


def _column_density(y: Tensor, at: Tensor, period: float | None) -> Tensor:
    """How many samples have about this target, by a Gaussian: (n,), (m,) -> (m,)."""
    deviation = y.std(correction=0)
    place = torch.where(deviation > 0, deviation, 1.0) * KERNEL_WIDTH / PLACES
    around = None if period is None else period / place
    places, counts = torch.unique(((y - y.mean()) / place).round(), return_counts=True)
    asked, place_of = torch.unique(((at - y.mean()) / place).round(), return_inverse=True)
    sums = []
    for part in asked.split(max(1, _PAIRS // len(places))):
        gaps = (part[:, None] - places).abs()
        if around is not None:
            gaps = gaps % around
            gaps = torch.minimum(gaps, around - gaps)
        sums.append(torch.exp(-0.5 * (gaps / PLACES).square()) @ counts.double())
    return torch.cat(sums)[place_of]
