"""Weights that let samples with rare targets count more: density(y)^-k, with mean 1.

The density of a target is the number of training samples around it. They are counted by a Gaussian
whose width is a tenth of the targets' standard deviation, so that units do not matter:

    density(y) = sum_j exp(-(y - y_j)^2 / (2 width^2)),    width = 0.1 sd

Targets are first rounded to a tenth of the width, so that a million of them have only a few
thousand different values. With several targets, the density is the geometric mean of theirs. If
targets are on a circle, as angles are, those on both sides of its end are near each other. A
density counts as at least a hundredth of the mean. So a lone sample weighs at most 100^k times as
much as one of mean density.

Compared with LDS (`rnc.methods.lds_fds`): k = 1/2 is similar to its "sqrt_inv", whose bins have the
units of the target. LDS also applies while the encoder trains.

Weights here are for a head. An encoder may instead see rare samples more often: they are drawn in
proportion to density(y)^-k. `even_exponent` finds the k with which training targets spread like
those of validation. It is 0 unless the two surely differ.
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
"""Width of the Gaussian, in standard deviations of a target."""
PLACES = 10
"""Targets are rounded to the width divided by this number."""
LEAST_DENSITY = 0.01
"""The least density, as a share of the mean density of all samples."""
EXPONENTS = (0.0, 0.25, 0.5, 0.75, 1.0)
"""The exponents that validation chooses from."""
LEAST_ROWS = 30
"""How many validation rows, or groups of rows, it takes to choose an exponent above 0."""
SURE = 2.0
"""By how many standard errors an exponent must be better than 0."""
MOST_DRAWN = 0.5
"""The largest exponent that is chosen for drawing samples. 1 would repeat the rarest ones so often
that they are learned by heart (benchmarks/results/recipe_trials.csv)."""
LEAST_GAIN = 1e-6
"""The least gain in log-likelihood. Smaller gains are rounding errors."""
_PAIRS = 2**22  # pairs of targets in memory at a time


def balance_weights(targets: Tensor, exponent: float, period: float | None = None) -> Tensor:
    """The weight of each training sample, with mean 1: (n, t) -> (n,), float64.

    Args:
        targets: of the training samples; all finite.
        exponent: with 0, all weights are equal; with 1, every range of targets has the same weight.
        period: the length of the circle that targets are on, such as 24 for hours; None for a line.

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
    """The config's exponent for drawing samples, or one by validation targets, up to MOST_DRAWN."""
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
    """The exponent with which training targets spread like those of validation: (n, t), (m, t).

    If samples are drawn with exponent k, their targets have the density p(y)^(1 - k) / Z, where Z
    is the mean of p(y_i)^-k over training. Of EXPONENTS, the result is the one under which the
    validation targets are likeliest. It must beat 0 by SURE standard errors of the difference in
    log-likelihood; otherwise the result is 0. It is also 0 for fewer than LEAST_ROWS rows, or
    groups (m,) if given: targets within a group, such as a person, are similar.

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
    """Draw n row numbers in random order, each row about as often as its share.

    Shares (n,) are scaled to mean 1. Each row comes as often as its share, rounded down or up,
    which is less noisy than independent draws. A row with share 0 never comes.

    >>> rows = drawn_rows(torch.tensor([2.0, 0.5, 0.5]), torch.Generator().manual_seed(0))
    >>> len(rows), int((rows == 0).sum())
    (3, 2)
    """
    ends = shares.double().cumsum(0)
    ends = (ends * (len(shares) / ends[-1]) + torch.rand((), generator=generator).double()).floor()
    ends[ends == ends[-1]] = len(shares)  # in case of rounding errors
    counts = ends.diff(prepend=ends.new_zeros(1)).long()
    rows = torch.arange(len(shares)).repeat_interleave(counts)
    return rows[torch.randperm(len(rows), generator=generator)]


def _density(targets: Tensor, at: Tensor, period: float | None) -> Tensor:
    """The density of targets (n, t) at other targets: (n, t), (m, t) -> (m,).

    With several targets, it is the geometric mean of their densities. It is at least LEAST_DENSITY
    times the mean over all samples.
    """
    pairs = list(zip(targets.double().unbind(1), at.double().unbind(1), strict=True))
    own = torch.stack([_column_density(y, y, period).log() for y, _ in pairs]).mean(dim=0).exp()
    if at is targets:
        return own.clamp(min=LEAST_DENSITY * own.mean())
    there = torch.stack([_column_density(y, places, period).log() for y, places in pairs])
    return there.mean(dim=0).exp().clamp(min=LEAST_DENSITY * own.mean())


def _column_density(y: Tensor, at: Tensor, period: float | None) -> Tensor:
    """The number of samples around each value of `at`, by a Gaussian: (n,), (m,) -> (m,)."""
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
