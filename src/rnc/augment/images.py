"""Views of images: crops, flips and resizing, then the colours."""

from typing import NamedTuple

import torch
from torch import Tensor

from rnc.augment.configs import ImageAugment
from rnc.augment.erasing import erase_, erasing_draws

CROP_TRIES = 10  # as torchvision
EVAL_RESIZE = 8 / 7  # the paper's Resize(256) before CenterCrop(224)
IMAGE_DRAWS = [CROP_TRIES, CROP_TRIES, 2, 1, 1, 4, 4, 1]  # as `image_views` splits them
BRIGHTNESS, CONTRAST, SATURATION, HUE = range(4)
Planes = tuple[Tensor, ...]
"""The c channels of images, (n, h, w) each."""


def middle_view(images: Tensor, config: ImageAugment) -> Tensor:
    """The view of `eval_view`: uint8 (n, c, h, w) -> (n, c, size, size)."""
    windows = middle_windows(images, config, images.new_zeros((1, 1), dtype=torch.float32))
    return normalise(resample(images, *windows, config)[:, 0].unbind(1), config)


def image_views(images: Tensor, config: ImageAugment, draws: Tensor) -> Tensor:
    """Random views: uint8 (n, c, h, w) and uniform numbers (n, v, k) -> (n, v, c, size, size)."""
    parts = torch.split(draws, [*IMAGE_DRAWS, erasing_draws(config, sides=2)], dim=-1)
    areas, ratios, place, mirror, jitter, strengths, order, grey, block = parts
    if config.crop_scale is None:
        rows, columns = middle_windows(images, config, torch.zeros_like(draws[..., 0]))
    else:
        rows, columns = random_windows(images, config, areas, ratios, place)
    if config.flip:
        start, step, back = columns.start, columns.step, mirror[..., 0] < 0.5
        start = torch.where(back, start + config.size * step, start)
        columns = columns._replace(start=start, step=torch.where(back, -step, step))
    pixels = resample(images, rows, columns, config)
    planes = pixels.flatten(0, 1).unbind(1)
    if config.jitter is not None and config.jitter_p > 0:
        signed = (2 * strengths - 1) * (jitter < config.jitter_p)  # 0 changes nothing
        change = [s * x for s, x in zip(config.jitter, signed.flatten(0, 1).unbind(1), strict=True)]
        factors = 1 + torch.stack(change[:HUE], dim=1)
        planes = jitter_colours(planes, factors, change[HUE], order.flatten(0, 1).argsort(dim=1))
    if config.grayscale_p > 0 and len(planes) == 3:
        share, target = (grey < config.grayscale_p).float().view(-1, 1, 1), luma(planes)
        planes = tuple(plane.lerp(target, share) for plane in planes)
    views = normalise(planes, config)
    if config.erase > 0:
        views = erase_(views, block.flatten(0, 1), config.erase, config.erase_sides)
    return views.view(pixels.shape)


# ------------------------------------------------------------ which pixels: crops and resizing


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


def middle_windows(images: Tensor, config: ImageAugment, like: Tensor) -> tuple[Window, Window]:
    """Rows and columns of `eval_view`, in the shape of like."""
    (h, w), size = images.shape[2:], config.size
    short = size if h == w == size else eval_side(config)

    def window(length: int) -> Window:
        resized = int(short * length / min(h, w))
        step = length / resized
        start = round((resized - size) / 2) * step
        return Window(*(torch.full_like(like, value) for value in (start, step, 0.0, length)))

    return window(h), window(w)


def eval_side(config: ImageAugment) -> int:
    """The short side of an image before `eval_view` cuts out its middle."""
    return round(config.size * EVAL_RESIZE) if config.short_side is None else config.short_side


def resample(images: Tensor, rows: Window, columns: Window, config: ImageAugment) -> Tensor:
    """Pixels of the views in 0..1: uint8 (n, c, h, w) -> (n, v, c, size, size).

    They are antialiased like Pillow's and torchvision's resize. Crops are boxes, so two products
    with banded matrices are enough; grid_sample would alias.
    """
    (n, c, h, w), size, cubic = images.shape, config.size, config.interpolation == "bicubic"
    v = rows.step.shape[1]
    source = images.permute(0, 2, 1, 3).to(torch.float32, memory_format=torch.contiguous_format)
    lines = _weights(rows, size, h, cubic).flatten(1, 2) @ source.view(n, h, c * w)
    pixels = lines.view(n, v, size * c, w) @ _weights(columns, size, w, cubic).mT
    pixels = pixels.view(n, v, size, c, size).transpose(2, 3).div_(255)
    return pixels.clamp_(0.0, 1.0) if cubic else pixels  # its weights may be below 0


def _weights(window: Window, size: int, length: int, cubic: bool = False) -> Tensor:
    """Weight of every source pixel in every pixel of the view: (n, v) -> (n, v, size, length)."""
    start, step, low, high = (side[..., None, None] for side in window)
    pixel = torch.arange(size, device=step.device)[:, None] + 0.5
    source = torch.arange(length, device=step.device) + 0.5
    reach = step.abs().clamp(min=1.0)  # a pixel that spans several of the source averages them
    weights = (source - (start + pixel * step)).abs_()
    weights = _bicubic(weights / reach) if cubic else weights.div_(-reach).add_(1).clamp_(min=0.0)
    weights.mul_((source > low) & (source < high))
    return weights.div_(weights.sum(dim=-1, keepdim=True))


def _bicubic(x: Tensor) -> Tensor:
    """Pillow's filter of a distance x >= 0, in pixels: Keys' with a = -1/2."""
    near = (1.5 * x - 2.5) * x * x + 1
    far = ((2.5 - 0.5 * x) * x - 4) * x + 2
    return torch.where(x < 1, near, torch.where(x < 2, far, 0.0))


# ----------------------------------------------------------------------------------- colours


def jitter_colours(planes: Planes, factors: Tensor, hue: Tensor, order: Tensor) -> Planes:
    """Images with changed colours, as torchvision's adjust_* functions on float images give.

    Contrast, which needs the mean of an image, is computed once. The changes before and after it,
    whose order differs per image, are pointwise on planes, so a compiler fuses each part into one
    pass.

    Planes are in 0..1; only three of them have saturation and hue. Factors of brightness, contrast
    and saturation are (n, 3), turns of the hue (n,), and the order of all four changes is (n, 4).
    """
    place, rank = torch.arange(4, device=order.device), order.argsort(dim=1)
    contrast_at, hue_at = rank[:, CONTRAST, None], rank[:, HUE, None]
    first, last = torch.minimum(contrast_at, hue_at), torch.maximum(contrast_at, hue_at)
    between, hue_first = (place > first) & (place < last), hue_at < contrast_at
    to_grey = order == SATURATION
    blends = factors.gather(1, order.clamp(max=SATURATION))  # what stands for hue is never used
    blends = torch.where(to_grey, 1.0, blends) if len(planes) != 3 else blends

    def blend(planes: Planes, active: Tensor, places: tuple[int, int]) -> Planes:
        for i in places:
            factor = torch.where(active, blends, 1.0)[:, i, None, None]
            planes = _mix(planes, factor, luma(planes) * to_grey[:, i, None, None])
        return planes

    planes = blend(planes, place < first, (0, 1))
    planes = _shift_hue(planes, hue * hue_first[:, 0])
    planes = blend(planes, between & hue_first, (1, 2))
    mean = luma(planes).mean(dim=(1, 2), keepdim=True)
    planes = _mix(planes, factors[:, CONTRAST, None, None], mean)
    planes = blend(planes, between & ~hue_first, (1, 2))
    planes = _shift_hue(planes, hue * ~hue_first[:, 0])
    return blend(planes, place > last, (2, 3))


def _mix(planes: Planes, factor: Tensor, other: Tensor) -> Planes:
    rest = (1 - factor) * other
    return tuple((plane * factor).add_(rest).clamp_(0.0, 1.0) for plane in planes)


def luma(planes: Planes) -> Tensor:
    """Luma of red, green and blue, the mean of other channels: (n, h, w)."""
    if len(planes) != 3:
        return torch.stack(planes).mean(dim=0)
    red, green, blue = planes
    return (0.2989 * red).add_(green, alpha=0.587).add_(blue, alpha=0.114)


def _shift_hue(planes: Planes, turns: Tensor) -> Planes:
    """Colours turned around the hue circle, by (n,) turns.

    The circle has length 6, with red at 0, green at 2 and blue at 4. A channel, scaled to 0..1, is
    1 up to a distance of 1 from its own hue, 0 from 2 on, and linear between. So the distance from
    red is 1 - red + green + blue, on the side of the larger of green and blue.
    """
    if len(planes) != 3:
        return planes
    red, green, blue = planes
    low = torch.minimum(torch.minimum(red, green), blue)
    span = torch.maximum(torch.maximum(red, green), blue).sub_(low)
    distance = (green + blue).sub_(red).sub_(low).div_(span.clamp(min=1e-12)).add_(1)
    hue = distance.copysign_(green - blue).add_(6 * turns[:, None, None])
    away = [(hue - own).sub_(((hue - own) / 6).round_(), alpha=6).abs_() for own in (0, 2, 4)]
    return tuple(x.neg_().add_(2).clamp_(0.0, 1.0).mul_(span).add_(low) for x in away)


def normalise(planes: Planes, config: ImageAugment) -> Tensor:
    """(channels - mean) / std: c times (n, h, w) -> (n, c, h, w)."""
    mean, std = (x * (len(planes) if len(x) == 1 else 1) for x in (config.mean, config.std))
    return torch.stack([(x - m) / s for x, m, s in zip(planes, mean, std, strict=True)], dim=1)
