"""Blur by a lens, glass or movement: gaussian, defocus, glass, motion, zoom.

Images are floats in 0..1 of shape (n, c, h, w). Radii, deviations and shifts are in pixels.
"""

import math

import torch
from torch import Tensor
from torch.nn.functional import pad

from rnc.analyses.corruption_draws import Draws


def gaussian_blur(x: Tensor, severity: int, draws: Draws) -> Tensor:
    """A mean around every pixel, weighted by a Gaussian."""
    return smooth(x, (1.0, 2.0, 3.0, 4.0, 6.0)[severity - 1])


def defocus_blur(x: Tensor, severity: int, draws: Draws) -> Tensor:
    """The mean over a disk with soft edges around every pixel, like the opening of a lens."""
    radius, softness = ((3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5))[severity - 1]
    return convolve(x, _disk(radius, softness))


def glass_blur(x: Tensor, severity: int, draws: Draws) -> Tensor:
    """Pixels replaced by pixels nearby, between two gaussian blurs.

    From the bottom right on, each pixel takes the value of a pixel at most `reach` rows and columns
    away. That pixel may have been replaced before. The original's code intends to swap the two
    pixels, but loses one value, so in fact it computes the same as this.
    """
    options = ((0.7, 1, 2), (0.9, 2, 1), (1.0, 2, 3), (1.1, 3, 2), (1.5, 4, 2))
    sigma, reach, rounds = options[severity - 1]
    c, h, w = x.shape[1:]
    pixels = smooth(x, sigma).flatten(2)
    for _ in range(rounds):
        source = _shuffle(draws.uniform(2, h, w), reach)
        pixels = pixels.gather(2, source[:, None].expand(-1, c, -1))
    return smooth(pixels.view(x.shape), sigma)


def motion_blur(x: Tensor, severity: int, draws: Draws) -> Tensor:
    """A smear in one direction, at most 45 degrees from the horizontal."""
    radius, sigma = ((10, 3.0), (15, 5.0), (15, 8.0), (15, 12.0), (20, 15.0))[severity - 1]
    return smear(x, radius, sigma, draws.uniform(low=-45.0, high=45.0))


def zoom_blur(x: Tensor, severity: int, draws: Draws) -> Tensor:
    """The mean of the image and enlargements of its middle, the first by the factor 1."""
    # The original's first range ends at 1.11 and, by a rounding error, includes it.
    last, step = ((12, 1), (16, 1), (21, 2), (26, 2), (31, 3))[severity - 1]
    layers = [1 + percent / 100 for percent in range(0, last, step)]
    return (x + sum(enlarge(x, factor) for factor in layers)) / (len(layers) + 1)


# ------------------------------------------------------------------------------- operations


def separable(x: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """A linear map along each side: (n, c, h, w), (h, h), (w, w) -> (n, c, h, w)."""
    return rows.to(x) @ x @ columns.to(x).mT


def smooth(x: Tensor, sigma: float) -> Tensor:
    """Gaussian blur, cut off at four deviations; border pixels are repeated outside the image."""

    def matrix(length: int) -> Tensor:
        radius = int(4 * sigma + 0.5)
        offsets = torch.arange(-radius, radius + 1)
        weights = torch.exp(-0.5 * (offsets / sigma) ** 2)
        weights = (weights / weights.sum()).expand(length, -1)
        source = (torch.arange(length)[:, None] + offsets).clamp(0, length - 1)
        return torch.zeros(length, length).scatter_add_(1, source, weights)

    return separable(x, matrix(x.shape[2]), matrix(x.shape[3]))


def convolve(x: Tensor, kernel: Tensor) -> Tensor:
    """Weighted sums around every pixel; the image is mirrored at its border pixels.

    It uses Fourier transforms. For the larger kernels, they take a tenth of the time of conv2d.
    """
    side = kernel.shape[0] // 2
    around = pad(x, (side, side, side, side), mode="reflect")
    size = around.shape[2:]
    waves = torch.fft.rfft2(around) * torch.fft.rfft2(kernel.flip(0, 1).to(x), s=size)
    sums: Tensor = torch.fft.irfft2(waves, s=size)[..., 2 * side :, 2 * side :]
    return sums


def smear(x: Tensor, radius: int, sigma: float, degrees: Tensor) -> Tensor:
    """Motion blur: a mean of shifted copies, whose weights fall like one side of a Gaussian.

    Args:
        x: (n, c, h, w).
        radius: half the length of the smear.
        sigma: standard deviation of the Gaussian.
        degrees: direction for each image: (n,).
    """
    n, c, h, w = x.shape
    steps = torch.arange(2 * radius + 1.0)
    weights = torch.exp(-0.5 * (steps / sigma) ** 2)
    weights /= weights.sum()
    angle = torch.deg2rad(degrees.cpu()).double()[:, None]  # rounds the same way on all devices
    down = (steps * angle.sin() - 0.5).ceil().long().to(x.device)
    right = (steps * angle.cos() - 0.5).ceil().long().to(x.device)
    row, column = torch.arange(h, device=x.device), torch.arange(w, device=x.device)
    pixels, blurred = x.flatten(2), torch.zeros(n, c, h * w, device=x.device)
    for i, weight in enumerate(weights.tolist()):
        rows = (row + down[:, i, None]).clamp(0, h - 1)
        columns = (column + right[:, i, None]).clamp(0, w - 1)
        source = (rows[:, :, None] * w + columns[:, None]).view(n, 1, h * w)
        blurred.add_(pixels.gather(2, source.expand(-1, c, -1)), alpha=weight)
    return blurred.view(x.shape)


def enlarge(x: Tensor, factor: float) -> Tensor:
    """The middle of the image, enlarged to the size of the image by linear interpolation."""

    def matrix(length: int) -> Tensor:
        part = math.ceil(length / factor)
        enlarged = int(part * factor + 0.5)
        place = torch.arange(length) + (enlarged - length) // 2
        place = place * ((part - 1) / (enlarged - 1)) + (length - part) // 2
        return (1 - (torch.arange(length) - place[:, None]).abs()).clamp(min=0.0)

    return separable(x, matrix(x.shape[2]), matrix(x.shape[3]))


def _disk(radius: int, softness: float) -> Tensor:
    """A square kernel with a disk of sum 1, smoothed by a small Gaussian."""
    side = max(radius, 8)
    squares = torch.arange(-side, side + 1) ** 2
    disk = (squares[:, None] + squares <= radius**2).float()
    bell = torch.exp(-0.5 * (torch.arange(-2, 3) / softness) ** 2)
    bell /= bell.sum()
    return convolve((disk / disk.sum())[None, None], bell[:, None] * bell)[0, 0]


def _shuffle(chance: Tensor, reach: int) -> Tensor:
    """For each pixel, the index of the one whose value it gets: (n, 2, h, w) in 0..1 -> (n, h * w).

    The definition replaces one pixel after the other; here all are replaced at once. If the source
    of a pixel was replaced before, the pixel points to it. The source at the end of such a chain of
    pointers gives the value. Pointer doubling finds the ends of all chains.
    """
    h, w = chance.shape[2:]
    row = torch.arange(h, device=chance.device)[:, None]
    column = torch.arange(w, device=chance.device)
    shift = (chance * (2 * reach)).long() - reach
    replaced = (row > reach) & (row <= h - reach) & (column > reach) & (column <= w - reach)
    place = (row * w + column).flatten()
    shift = torch.where(replaced, shift, 0)
    source = ((row + shift[:, 0]) * w + column + shift[:, 1]).flatten(1)
    onward = (source > place) & replaced.flatten()[source]
    pointer = torch.where(onward, source, place)
    for _ in range((h * w).bit_length()):
        pointer = pointer.gather(1, pointer)
    return source.gather(1, pointer)
