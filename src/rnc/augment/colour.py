"""The colours of views: jitter, grey, and the normalisation at the end."""

import torch
from torch import Tensor

from rnc.augment.configs import ImageAugment

BRIGHTNESS, CONTRAST, SATURATION, HUE = range(4)
Planes = tuple[Tensor, ...]
"""The c channels of images, (n, h, w) each."""


def jitter_colours(planes: Planes, factors: Tensor, hue: Tensor, order: Tensor) -> Planes:
    """Images with changed colours, as torchvision's adjust_* functions on float images give.

    Contrast, which needs the mean of an image, is computed once; what goes before and after it, in
    an order per image, is pointwise on planes, so that a compiler makes one pass of each.

    Args:
        planes: the c channels in 0..1, (n, h, w) each. Only c = 3 has saturation and hue.
        factors: of brightness, contrast and saturation, (n, 3); 1 changes nothing.
        hue: shift of the hue in turns, (n,).
        order: in which an image takes brightness 0, contrast 1, saturation 2 and hue 3, (n, 4).
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
