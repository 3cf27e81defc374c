"""Changes of light, shape and file: brightness, contrast, saturate, elastic, pixelate, jpeg.

Images are floats in 0..1 of shape (n, c, h, w).
"""

import io

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from torch.nn.functional import grid_sample

from rnc.analyses.corruption_blur import separable, smooth
from rnc.analyses.corruption_draws import Draws


def brightness(x: Tensor, severity: int, draws: Draws) -> Tensor:
    """A larger V of HSV: the largest channel grows, and the others in proportion."""
    value = x.amax(dim=1, keepdim=True)
    raised = (value + severity / 10).clamp(max=1.0)
    return torch.where(value > 0, x / value.clamp(min=1e-6) * raised, raised)


def contrast(x: Tensor, severity: int, draws: Draws) -> Tensor:
    """Every channel moved towards its mean over the image."""
    mean = x.mean(dim=(2, 3), keepdim=True)
    return mean + (x - mean) * (0.4, 0.3, 0.2, 0.1, 0.05)[severity - 1]


def saturate(x: Tensor, severity: int, draws: Draws) -> Tensor:
    """S of HSV scaled and shifted: less colour at severities 1 and 2, more from 3 on.

    A grey pixel has no hue and counts as red, so severities 4 and 5 give it a colour.
    """
    factor, shift = ((0.3, 0.0), (0.1, 0.0), (2.0, 0.0), (5.0, 0.1), (20.0, 0.2))[severity - 1]
    value = x.amax(dim=1, keepdim=True)
    below = value - x  # 0 for the largest channel, saturation * value for the smallest
    chroma = below.amax(dim=1, keepdim=True)
    red = torch.tensor([0.0, 1.0, 1.0], device=x.device).view(1, 3, 1, 1)
    hue = torch.where(chroma > 0, below / chroma.clamp(min=1e-6), red)
    saturation = chroma / value.clamp(min=1e-6)
    return value * (1 - hue * (saturation * factor + shift).clamp(max=1.0))


def elastic_transform(x: Tensor, severity: int, draws: Draws) -> Tensor:
    """Every pixel moved by a smooth random field that scales with the shorter side."""
    strength = (12.5, 16.25, 21.25, 25.0, 30.0)[severity - 1]
    h, w = x.shape[2:]
    side = min(h, w)
    moves = draws.uniform(2, h, w, low=-0.005 * side, high=0.005 * side)
    moves = strength * smooth(moves, 0.01 * side)
    rows = torch.arange(h, device=x.device)[:, None] + moves[:, 0]
    columns = torch.arange(w, device=x.device) + moves[:, 1]
    grid = torch.stack([(2 * columns + 1) / w - 1, (2 * rows + 1) / h - 1], dim=-1)
    return grid_sample(x, grid, padding_mode="reflection", align_corners=False)


def pixelate(x: Tensor, severity: int, draws: Draws) -> Tensor:
    """The image reduced by averaging boxes of pixels, and enlarged again by repeating pixels."""
    scale = (0.6, 0.5, 0.4, 0.3, 0.25)[severity - 1]

    def matrix(length: int) -> Tensor:
        small = int(length * scale)
        box = length / small
        middles = (torch.arange(small, dtype=torch.float64)[:, None] + 0.5) * box
        away = (torch.arange(length) + 0.5 - middles) / box
        weights = ((away > -0.5) & (away <= 0.5)).float()
        nearest = ((torch.arange(length) + 0.5) / box).long()
        return (weights / weights.sum(dim=1, keepdim=True))[nearest]

    return separable(x, matrix(x.shape[2]), matrix(x.shape[3]))


def jpeg_compression(x: Tensor, severity: int, draws: Draws) -> Tensor:
    """Each image written as a JPEG file and read again, one after the other on the CPU."""
    quality = (25, 18, 15, 10, 7)[severity - 1]
    images = (255 * x).round().byte().permute(0, 2, 3, 1).cpu().numpy()
    stored = np.stack([_through_jpeg(image, quality) for image in images])
    return torch.from_numpy(stored).to(x.device).permute(0, 3, 1, 2) / 255


def _through_jpeg(image: NDArray[np.uint8], quality: int) -> NDArray[np.uint8]:
    """(h, w, c) -> (h, w, c)."""
    file = io.BytesIO()
    Image.fromarray(image.squeeze()).save(file, "JPEG", quality=quality)
    with Image.open(file) as stored:
        return np.asarray(stored).reshape(image.shape)
