"""Noise of a sensor: gaussian, shot, impulse, speckle.

Images are floats in 0..1 of shape (n, c, h, w). `corrupt` clips results to that range.
"""

import torch
from torch import Tensor

from rnc.analyses.corruption_draws import Draws


def gaussian_noise(x: Tensor, severity: int, draws: Draws) -> Tensor:
    """Added noise x + s * normal, as in images taken in the dark."""
    return x + (0.08, 0.12, 0.18, 0.26, 0.38)[severity - 1] * draws.normal(*x.shape[1:])


def speckle_noise(x: Tensor, severity: int, draws: Draws) -> Tensor:
    """Multiplied noise x + s * x * normal: bright pixels vary more."""
    return x + (0.15, 0.2, 0.35, 0.45, 0.6)[severity - 1] * x * draws.normal(*x.shape[1:])


def shot_noise(x: Tensor, severity: int, draws: Draws) -> Tensor:
    """Photon noise Poisson(p * x) / p, with p photons for a white pixel.

    Counts come from uniform numbers by the inverse of the cumulative probabilities of each grey
    level. That takes one search in one table, on any device.
    """
    photons = (60, 25, 12, 5, 3)[severity - 1]
    counts = torch.arange(1.0, photons + 10 * photons**0.5, dtype=torch.float64)
    rates = torch.arange(256, dtype=torch.float64)[:, None] / 255 * photons
    at_most = torch.special.gammaincc(counts, rates).to(x.device)  # P(count < 1, 2, ...)
    levels = (255 * x).round().long()
    offset = torch.arange(256, device=x.device)[:, None]  # joins all levels in one sorted table
    places = levels + draws.uniform(*x.shape[1:]).double()
    ranks = torch.searchsorted((at_most + offset).flatten(), places.contiguous(), right=True)
    return (ranks - levels * len(counts)).float() / photons


def impulse_noise(x: Tensor, severity: int, draws: Draws) -> Tensor:
    """A share of the values replaced: half of it by 0, half of it by 1."""
    share = (0.03, 0.06, 0.09, 0.17, 0.27)[severity - 1]
    chance = draws.uniform(*x.shape[1:])
    return x.masked_fill(chance < share / 2, 0.0).masked_fill(chance >= 1 - share / 2, 1.0)
