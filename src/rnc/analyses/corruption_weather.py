"""Weather: snow, frost, fog, and spatter of water or mud.

Images are floats in 0..1 of shape (n, c, h, w). On grey images, coloured parts become the
grey of their colour. Flakes, crystals and drops have fixed sizes in pixels; clouds span the image.
"""

import torch
from torch import Tensor
from torch.nn.functional import pad

from rnc.analyses.corruption_blur import convolve, enlarge, smear, smooth
from rnc.analyses.corruption_draws import Draws

LUMA = (0.299, 0.587, 0.114)
ICE = (0.94, 1.0, 1.06)
WATER = (175 / 255, 238 / 255, 238 / 255)
MUD = (63 / 255, 42 / 255, 20 / 255)

CELL = 16  # pixels between two frost crystals


def snow(x: Tensor, severity: int, draws: Draws) -> Tensor:
    """A whitened image under falling flakes, and the same flakes turned by 180 degrees."""
    options = (
        (0.1, 0.3, 3.0, 0.5, 10, 4.0, 0.8),
        (0.2, 0.3, 2.0, 0.5, 12, 4.0, 0.7),
        (0.55, 0.3, 4.0, 0.9, 12, 8.0, 0.7),
        (0.55, 0.3, 4.5, 0.85, 12, 8.0, 0.65),
        (0.55, 0.3, 2.5, 0.85, 12, 12.0, 0.55),
    )
    mean, deviation, size, least, radius, sigma, keep = options[severity - 1]
    flakes = enlarge(mean + deviation * draws.normal(1, *x.shape[2:]), size)
    flakes = flakes.masked_fill(flakes < least, 0.0).clamp(max=1.0)
    flakes = smear(flakes, radius, sigma, draws.uniform(low=-135.0, high=-45.0))
    whitened = torch.maximum(x, 1.5 * _grey(x) + 0.5)
    return keep * x + (1 - keep) * whitened + flakes + flakes.rot90(2, dims=(2, 3))


def frost(x: Tensor, severity: int, draws: Draws) -> Tensor:
    """A weighted sum of the image and of ice.

    `_ice` computes the ice. It has about the mean and spread of the original's photos.
    """
    image, ice = ((1.0, 0.4), (0.8, 0.6), (0.7, 0.7), (0.65, 0.7), (0.6, 0.75))[severity - 1]
    return image * x + ice * _coloured(_ice(draws, *x.shape[2:]), ICE, x.shape[1])


def fog(x: Tensor, severity: int, draws: Draws) -> Tensor:
    """The image under a cloud, darkened so that no pixel is brighter than the brightest before."""
    options = ((1.5, 2.0), (2.0, 2.0), (2.5, 1.7), (2.5, 1.5), (3.0, 1.4))
    density, decay = options[severity - 1]
    brightest = x.amax(dim=(1, 2, 3), keepdim=True)
    fogged = x + density * _clouds(draws, x.shape[2], x.shape[3], decay)
    return fogged * (brightest / (brightest + density))


def spatter(x: Tensor, severity: int, draws: Draws) -> Tensor:
    """Drops of water with shiny rims; from severity 4 on, spots of mud instead."""
    options = (
        (0.65, 0.3, 4.0, 0.69, 0.6),
        (0.65, 0.3, 3.0, 0.68, 0.6),
        (0.65, 0.3, 2.0, 0.68, 0.5),
        (0.65, 0.3, 1.0, 0.65, 1.5),
        (0.67, 0.4, 1.0, 0.65, 1.5),
    )
    mean, deviation, sigma, least, strength = options[severity - 1]
    liquid = smooth(mean + deviation * draws.normal(1, *x.shape[2:]), sigma)
    if severity <= 3:
        liquid = liquid.masked_fill(liquid < least, 0.0).clamp(max=1.0)
        shine = liquid * _rims(liquid > 0)
        shine = shine / shine.amax(dim=(1, 2, 3), keepdim=True).clamp(min=1e-6)
        return x + strength * _coloured(shine, WATER, x.shape[1])
    spots = smooth((liquid > least).float(), strength)
    spots = spots.masked_fill(spots < 0.8, 0.0)
    return x * (1 - spots) + _coloured(spots, MUD, x.shape[1])


# ------------------------------------------------------------------------------------ colours


def _grey(x: Tensor) -> Tensor:
    """(n, c, h, w) -> (n, 1, h, w)."""
    if x.shape[1] == 1:
        return x
    return (x * torch.tensor(LUMA, device=x.device).view(1, 3, 1, 1)).sum(dim=1, keepdim=True)


def _coloured(layer: Tensor, colour: tuple[float, float, float], channels: int) -> Tensor:
    """A layer (n, 1, h, w) in a colour, or in the grey of the colour: (n, c, h, w)."""
    tone = torch.tensor(colour, device=layer.device).view(1, 3, 1, 1)
    return layer * (tone if channels == 3 else _grey(tone))


# ----------------------------------------------------------------------------- clouds and ice


def _clouds(draws: Draws, h: int, w: int, decay: float) -> Tensor:
    """Plasma in 0..1 by midpoint displacement on a torus: (n, 1, h, w).

    A grid of side 2^k is refined level by level. A new point is the mean of its four neighbours,
    first the diagonal ones, then the straight ones, plus a random number. The range of the random
    numbers is divided by decay^2 per level.
    """
    side = 1 << (max(h, w) - 1).bit_length()
    noise = draws.uniform(side, side, low=-1.0, high=1.0)
    cloud = torch.zeros_like(noise)
    step, spread = side, 1.0
    while step >= 2:
        half = step // 2
        old = cloud[:, ::step, ::step]
        beside = old + old.roll(-1, 1)
        middle = (beside + beside.roll(-1, 2)) / 4 + spread * noise[:, half::step, half::step]
        cloud[:, half::step, half::step] = middle
        across = (old + old.roll(-1, 2) + middle + middle.roll(1, 1)) / 4
        cloud[:, ::step, half::step] = across + spread * noise[:, ::step, half::step]
        along = (old + old.roll(-1, 1) + middle + middle.roll(1, 2)) / 4
        cloud[:, half::step, ::step] = along + spread * noise[:, half::step, ::step]
        step, spread = half, spread / decay**2
    cloud = cloud - cloud.amin(dim=(1, 2), keepdim=True)
    return (cloud / cloud.amax(dim=(1, 2), keepdim=True))[:, None, :h, :w]


def _ice(draws: Draws, h: int, w: int) -> Tensor:
    """Frost on a window, crystals with bright edges on a plasma; 0 is no frost: (n, 1, h, w).

    The crystals are cells around scattered points. Each cell is darker at its middle, and has its
    own brightness.
    """
    first, second, own = _cells(draws.uniform(3, -(-h // CELL) + 2, -(-w // CELL) + 2))
    crystals = 0.5 * torch.exp((first - second) / 2) + 0.3 * first / CELL + 0.3 * own
    thickness = draws.uniform(1, 1, 1, low=0.1, high=0.62)
    ice = thickness + 0.35 * _clouds(draws, h, w, 1.5) + 0.45 * crystals[:, None, :h, :w]
    return ice.clamp(0.0, 1.0)


def _cells(points: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Distances of every pixel to the two nearest points, and the brightness of the nearest.

    Args:
        points: row, column and brightness of one point in each square of a grid, in 0..1: (n, 3,
            rows + 2, columns + 2). The squares at the border of the grid are outside the image.
    """
    down_to, across_to = points.shape[2] - 2, points.shape[3] - 2
    row = torch.arange(down_to * CELL, device=points.device)[:, None] % CELL
    column = torch.arange(across_to * CELL, device=points.device) % CELL
    first = torch.full((len(points), len(row), len(column)), 1e6, device=points.device)
    second, own = first, first
    for down in range(3):  # the two nearest points are nearly always in these squares
        for across in range(3):
            square = points[:, :, down : down + down_to, across : across + across_to]
            near = square.repeat_interleave(CELL, dim=2).repeat_interleave(CELL, dim=3)
            rows = CELL * (near[:, 0] + down - 1) - row
            columns = CELL * (near[:, 1] + across - 1) - column
            distance = torch.hypot(rows, columns)
            nearer = distance < first
            second = torch.where(nearer, first, second.minimum(distance))
            own = torch.where(nearer, near[:, 2], own)
            first = first.minimum(distance)
    return first, second, own


# -------------------------------------------------------------------------------------- drops


def _rims(wet: Tensor) -> Tensor:
    """The brightness of the shine of drops, 0..255: the distance from the nearest rim, embossed.

    The rims are the wet pixels with a dry neighbour. The original's edge detector finds about the
    same pixels.
    """
    cross = torch.tensor([[0.0, 1, 0], [1, 1, 1], [0, 1, 0]], device=wet.device)
    distance = _distance(wet & (convolve(wet.float(), cross) < 4.5), 20)
    third = torch.full((3, 3), 1 / 9, device=wet.device)
    levels = (convolve(distance, third) + 1e-3).floor()  # gives the same levels on all devices
    emboss = torch.tensor([[-2.0, -1, 0], [-1, 1, 1], [0, 1, 2]], device=wet.device)
    return convolve(convolve(_equalised(levels), emboss).clamp(0, 255), third)


def _distance(goal: Tensor, limit: int) -> Tensor:
    """Euclidean distance of every pixel to the nearest True pixel, at most limit."""
    h, w = goal.shape[2:]
    far = torch.full(goal.shape, float(limit), device=goal.device).masked_fill(goal, 0.0)
    along = pad(far, (limit, limit), value=float(limit))
    shifts = range(-limit, limit + 1)
    line = far
    for shift in shifts:
        line = line.minimum(along[..., limit + shift : limit + shift + w] + abs(shift))
    square = pad(line**2, (0, 0, limit, limit), value=float(limit**2))
    nearest = line**2
    for shift in shifts:
        nearest = nearest.minimum(square[..., limit + shift : limit + shift + h, :] + shift**2)
    return nearest.sqrt()


def _equalised(levels: Tensor) -> Tensor:
    """Whole grey levels 0..255 after histogram equalization: (n, 1, h, w)."""
    index = levels.long().flatten(1)
    counts = torch.zeros(len(index), 256, device=levels.device)
    counts.scatter_add_(1, index, torch.ones_like(index, dtype=torch.float32))
    below = counts.cumsum(dim=1)
    lowest = counts.gather(1, index.amin(dim=1, keepdim=True))
    spread = (below - lowest) * 255 / (index.shape[1] - lowest).clamp(min=1)
    return spread.clamp(min=0.0).round().gather(1, index).view(levels.shape)
