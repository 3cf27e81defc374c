"""Where the pixels of a view lie in its image, and their values: crops, flips and resizing."""

from typing import NamedTuple

import torch
from torch import Tensor

from rnc.augment.configs import ImageAugment

CROP_TRIES = 10  # as torchvision
EVAL_RESIZE = 8 / 7  # the paper's Resize(256) before CenterCrop(224)


class Window(NamedTuple):
    """Where the pixels along one side of the views lie, in pixels of the source: (n, v) each."""

    start: Tensor  # where the first pixel begins
    step: Tensor  # how wide each pixel is; negative for a view that is mirrored
    low: Tensor  # the first source pixel that counts
    high: Tensor  # the end of those that count


def random_windows(
    images: Tensor, config: ImageAugment, areas: Tensor, ratios: Tensor, place: Tensor
) -> tuple[Window, Window]:
    """Rows and columns of random crops, distributed as torchvision's RandomResizedCrop.

    Of ten crops with uniform area and log-uniform ratio, the first that fits into the image is
    taken, or the largest of an allowed ratio if none fits; its place is uniform.
    """
    assert config.crop_scale is not None
    h, w = images.shape[2:]
    (least, most), (low, high) = config.crop_scale, config.crop_ratio
    area = (least + (most - least) * areas) * (h * w)
    ratio = low * (high / low) ** ratios
    heights, widths = (area / ratio).sqrt().round(), (area * ratio).sqrt().round()
    fits = (heights >= 1) & (heights <= h) & (widths >= 1) & (widths <= w)
    first = fits.int().argmax(dim=-1, keepdim=True)
    any_fits = fits.gather(-1, first)

    def window(lengths: Tensor, largest: float, limit: int, place: Tensor) -> Window:
        largest = max(1, min(limit, round(largest)))
        length = torch.where(any_fits, lengths.gather(-1, first), float(largest))[..., 0]
        start = (place * (limit - length + 1)).floor().minimum(limit - length)
        return Window(start, length / config.size, start, start + length)

    return window(heights, w / low, h, place[..., 0]), window(widths, h * high, w, place[..., 1])


def middle_windows(images: Tensor, size: int, like: Tensor) -> tuple[Window, Window]:
    """Rows and columns of `eval_view`, in the shape of like."""
    h, w = images.shape[2:]
    short = size if h == w == size else round(size * EVAL_RESIZE)

    def window(length: int) -> Window:
        resized = int(short * length / min(h, w))
        step = length / resized
        start = round((resized - size) / 2) * step
        return Window(*(torch.full_like(like, value) for value in (start, step, 0.0, length)))

    return window(h), window(w)


def resample(images: Tensor, rows: Window, columns: Window, size: int) -> Tensor:
    """Pixels of the views in 0..1: uint8 (n, c, h, w) -> (n, v, c, size, size).

    Bilinear with antialiasing, as Pillow's and torchvision's resize. Crops are boxes, so it takes
    two products with banded matrices; grid_sample would alias.
    """
    n, c, h, w = images.shape
    v = rows.step.shape[1]
    source = images.permute(0, 2, 1, 3).to(torch.float32, memory_format=torch.contiguous_format)
    lines = _weights(rows, size, h).flatten(1, 2) @ source.view(n, h, c * w)
    pixels = lines.view(n, v, size * c, w) @ _weights(columns, size, w).mT
    return pixels.view(n, v, size, c, size).transpose(2, 3).div_(255)


def _weights(window: Window, size: int, length: int) -> Tensor:
    """Weight of every source pixel in every pixel of the view: (n, v) -> (n, v, size, length)."""
    start, step, low, high = (side[..., None, None] for side in window)
    pixel = torch.arange(size, device=step.device)[:, None] + 0.5
    source = torch.arange(length, device=step.device) + 0.5
    reach = step.abs().clamp(min=1.0)  # a pixel that spans several of the source averages them
    weights = (source - (start + pixel * step)).abs_().div_(-reach).add_(1).clamp_(min=0.0)
    weights.mul_((source > low) & (source < high))
    return weights.div_(weights.sum(dim=-1, keepdim=True))
