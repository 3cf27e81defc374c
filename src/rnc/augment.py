"""Views of a batch, made on its device with parameters drawn per sample.

    train_views(x, config, views)   random views          (n, ...) -> (n, v, ...)
    eval_view(x, config)            the one fixed view    (n, ...) -> (n, ...)

The config says how: `ImageAugment` for uint8 images (n, c, h, w), `SignalAugment` for signals
(n, c, l), `TableAugment` for tables (n, p). Defaults are the paper's where it has them.

`draw_views` draws one (n, v, k) tensor of uniform numbers, and `views_from` makes views of it with
tensor operations only, without a loop over samples or a wait for a GPU. torch.compile takes all of
it but a torch.Generator: to compile with one, call `draw_views` and compile `views_from`.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

CROP_TRIES = 10  # as torchvision
EVAL_RESIZE = 8 / 7  # the paper's Resize(256) before CenterCrop(224)
CPU_CHUNK = 2**20  # numbers at a time that stay in a processor's cache: several times the speed

BRIGHTNESS, CONTRAST, SATURATION, HUE = range(4)


@dataclass(frozen=True)
class ImageAugment:
    """How uint8 images become views (c, size, size); None, False or 0 switches a part off.

    Args:
        size: side of the square views in pixels.
        crop_scale: smallest and largest share of the image that a random crop covers. None: the
            view of `eval_view` instead of a crop.
        crop_ratio: smallest and largest width / height of a crop.
        flip: mirror half of the views. Turn it off where left and right change the target (gaze,
            head pose, steering angle).
        jitter: strength of brightness, contrast, saturation and hue. The last two, and greyscale,
            are for images with three channels.
        jitter_p: share of the views whose colours are jittered.
        grayscale_p: share of the views that lose their colours.
        mean: subtracted from pixels in 0..1; one number, or one per channel.
        std: divides them after that.
    """

    size: int
    crop_scale: tuple[float, float] | None = (0.2, 1.0)
    crop_ratio: tuple[float, float] = (3 / 4, 4 / 3)
    flip: bool = True
    jitter: tuple[float, float, float, float] | None = (0.4, 0.4, 0.4, 0.1)
    jitter_p: float = 0.8
    grayscale_p: float = 0.2
    mean: tuple[float, ...] = (0.5,)
    std: tuple[float, ...] = (0.5,)

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if isinstance(value, list):  # JSON has no tuples
                object.__setattr__(self, name, tuple(value))
        _check(self.size >= 1, "size", "a number of pixels >= 1", self.size)
        if self.crop_scale is not None:
            low, high = self.crop_scale
            _check(0 < low <= high <= 1, "crop_scale", "low and high in 0..1", self.crop_scale)
        low, high = self.crop_ratio
        _check(0 < low <= high, "crop_ratio", "low and high > 0", self.crop_ratio)
        if self.jitter is not None:
            *blends, hue = self.jitter
            legal = len(blends) == 3 and all(0 <= x <= 1 for x in blends) and 0 <= hue <= 0.5
            _check(legal, "jitter", "three strengths in 0..1 and hue in 0..0.5", self.jitter)
        _check(0 <= self.jitter_p <= 1, "jitter_p", "a share in 0..1", self.jitter_p)
        _check(0 <= self.grayscale_p <= 1, "grayscale_p", "a share in 0..1", self.grayscale_p)
        _check(min(self.std) > 0, "std", "numbers > 0", self.std)


@dataclass(frozen=True)
class SignalAugment:
    """How signals become views (c, round(crop * l)).

    A view is a window of the signal, not stretched, so that frequencies keep their meaning; in
    `eval_view` the middle one, so that the encoder sees one length only.

    Args:
        crop: share of the signal in a view; 1 for all of it.
    """

    crop: float = 0.9

    def __post_init__(self) -> None:
        _check(0 < self.crop <= 1, "crop", "a share with 0 < crop <= 1", self.crop)


@dataclass(frozen=True)
class TableAugment:
    """How rows of a standardised table become views (p,).

    Args:
        noise: standard deviation of Gaussian noise added to every feature.
        mask: share of the features set to 0, the mean of a standardised column. 0 by default:
            without a feature, the target may be another.
    """

    noise: float = 0.05
    mask: float = 0.0

    def __post_init__(self) -> None:
        _check(0 <= self.noise < math.inf, "noise", "a number >= 0", self.noise)
        _check(0 <= self.mask < 1, "mask", "a share with 0 <= mask < 1", self.mask)


Augment = ImageAugment | SignalAugment | TableAugment
Planes = tuple[Tensor, ...]


def train_views(
    x: Tensor, config: Augment, views: int, generator: torch.Generator | None = None
) -> Tensor:
    """Random views of every sample: (n, ...) -> (n, v, ...), float32, without gradient.

    Args:
        x: uint8 images (n, c, h, w), signals (n, c, l) or a table (n, p), as config needs.
        config: what to do.
        views: how many; 0 stands for one view without augmentation, that of `eval_view`.
        generator: source of the random numbers, on the device of x; torch's own by default.

    >>> faces = torch.randint(0, 256, (8, 3, 64, 64), dtype=torch.uint8)
    >>> train_views(faces, ImageAugment(size=56, flip=False), views=2).shape
    torch.Size([8, 2, 3, 56, 56])
    """
    _check(views >= 0, "views", "0 (no augmentation) or more", views)
    if views == 0:
        return eval_view(x, config).unsqueeze(1)
    return views_from(x, config, draw_views(x, config, views, generator))


@torch.no_grad()
def eval_view(x: Tensor, config: Augment) -> Tensor:
    """The view without randomness: (n, ...) -> (n, ...), float32.

    Images that have exactly the size of a view are used whole. All others are scaled so that the
    short side is 8/7 of the size, as in the paper (256 for 224), and the middle is cut out.
    Signals keep their middle, tables stay as they are.
    """
    _check_input(x, config)
    with torch.autocast(x.device.type, enabled=False):
        if isinstance(config, ImageAugment):
            middle = _middle_windows(x, config.size, x.new_zeros((1, 1), dtype=torch.float32))
            return _normalise(_resample(x, *middle, config.size)[:, 0].unbind(1), config)
        if isinstance(config, SignalAugment):
            length = _crop_length(x.shape[2], config)
            return x.float().narrow(2, (x.shape[2] - length) // 2, length).contiguous()
        return x.float()


def draw_views(
    x: Tensor, config: Augment, views: int, generator: torch.Generator | None = None
) -> Tensor:
    """All random numbers of a batch's views, uniform in 0..1: (n, v, k)."""
    _check_input(x, config)
    if generator is not None and generator.device.type != x.device.type:
        raise ValueError(
            f"the generator must live on the device of the batch, {x.device}; got one on "
            f"{generator.device}. Make it with torch.Generator({str(x.device)!r})."
        )
    count = sum(_IMAGE_DRAWS) if isinstance(config, ImageAugment) else 2 * x.shape[1]
    return torch.rand(x.shape[0], views, count, generator=generator, device=x.device)


@torch.no_grad()
def views_from(x: Tensor, config: Augment, draws: Tensor) -> Tensor:
    """The views that the numbers of `draw_views` stand for: (n, ...), (n, v, k) -> (n, v, ...)."""
    _check_input(x, config)
    with torch.autocast(x.device.type, enabled=False):  # half precision would cost grey levels
        if isinstance(config, SignalAugment):
            return _signal_views(x.float(), config, draws)
        if isinstance(config, TableAugment):
            return _table_views(x.float(), config, draws)
        if x.device.type != "cpu" or torch.compiler.is_compiling():
            return _image_views(x, config, draws)
        chunk = max(1, CPU_CHUNK // (draws.shape[1] * x.shape[1] * config.size**2))
        chunks = zip(torch.split(x, chunk), torch.split(draws, chunk), strict=True)
        return torch.cat([_image_views(part, config, drawn) for part, drawn in chunks])


_IMAGE_DRAWS = [CROP_TRIES, CROP_TRIES, 2, 1, 1, 4, 4, 1]  # how many for each name below


def _image_views(images: Tensor, config: ImageAugment, draws: Tensor) -> Tensor:
    parts = torch.split(draws, _IMAGE_DRAWS, dim=-1)
    areas, ratios, place, mirror, jitter, strengths, order, grey = parts
    if config.crop_scale is None:
        rows, columns = _middle_windows(images, config.size, torch.zeros_like(draws[..., 0]))
    else:
        rows, columns = _random_windows(images, config, areas, ratios, place)
    if config.flip:
        start, step, back = columns.start, columns.step, mirror[..., 0] < 0.5
        start = torch.where(back, start + config.size * step, start)
        columns = columns._replace(start=start, step=torch.where(back, -step, step))
    pixels = _resample(images, rows, columns, config.size)
    planes = pixels.flatten(0, 1).unbind(1)
    if config.jitter is not None and config.jitter_p > 0:
        signed = (2 * strengths - 1) * (jitter < config.jitter_p)  # 0 changes nothing
        change = [s * x for s, x in zip(config.jitter, signed.flatten(0, 1).unbind(1), strict=True)]
        factors = 1 + torch.stack(change[:HUE], dim=1)
        planes = jitter_colours(planes, factors, change[HUE], order.flatten(0, 1).argsort(dim=1))
    if config.grayscale_p > 0 and len(planes) == 3:
        lose, luma = (grey < config.grayscale_p).float().view(-1, 1, 1), _grey(planes)
        planes = tuple(plane.lerp(luma, lose) for plane in planes)
    return _normalise(planes, config).view(pixels.shape)


class Window(NamedTuple):
    """Where the pixels along one side of the views lie, in pixels of the source: (n, v) each."""

    start: Tensor  # where the first begins
    step: Tensor  # how wide each is; negative reads backwards
    low: Tensor  # source pixels from here
    high: Tensor  # to here may be looked at


def _random_windows(
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
    found = fits.gather(-1, first)

    def window(lengths: Tensor, largest: float, limit: int, place: Tensor) -> Window:
        largest = max(1, min(limit, round(largest)))
        length = torch.where(found, lengths.gather(-1, first), float(largest))[..., 0]
        start = (place * (limit - length + 1)).floor().minimum(limit - length)
        return Window(start, length / config.size, start, start + length)

    return window(heights, w / low, h, place[..., 0]), window(widths, h * high, w, place[..., 1])


def _middle_windows(images: Tensor, size: int, like: Tensor) -> tuple[Window, Window]:
    """Rows and columns of `eval_view`, in the shape of like."""
    h, w = images.shape[2:]
    short = size if h == w == size else round(size * EVAL_RESIZE)

    def window(length: int) -> Window:
        resized = int(short * length / min(h, w))
        step = length / resized
        start = round((resized - size) / 2) * step
        return Window(*(torch.full_like(like, value) for value in (start, step, 0.0, length)))

    return window(h), window(w)


def _resample(images: Tensor, rows: Window, columns: Window, size: int) -> Tensor:
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
            planes = _mix(planes, factor, _grey(planes) * to_grey[:, i, None, None])
        return planes

    planes = blend(planes, place < first, (0, 1))
    planes = _shift_hue(planes, hue * hue_first[:, 0])
    planes = blend(planes, between & hue_first, (1, 2))
    mean = _grey(planes).mean(dim=(1, 2), keepdim=True)
    planes = _mix(planes, factors[:, CONTRAST, None, None], mean)
    planes = blend(planes, between & ~hue_first, (1, 2))
    planes = _shift_hue(planes, hue * ~hue_first[:, 0])
    return blend(planes, place > last, (2, 3))


def _mix(planes: Planes, factor: Tensor, other: Tensor) -> Planes:
    rest = (1 - factor) * other
    return tuple((plane * factor).add_(rest).clamp_(0.0, 1.0) for plane in planes)


def _grey(planes: Planes) -> Tensor:
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


def _normalise(planes: Planes, config: ImageAugment) -> Tensor:
    """(channels - mean) / std: c times (n, h, w) -> (n, c, h, w)."""
    mean, std = (x * (len(planes) if len(x) == 1 else 1) for x in (config.mean, config.std))
    return torch.stack([(x - m) / s for x, m, s in zip(planes, mean, std, strict=True)], dim=1)


def _signal_views(signals: Tensor, config: SignalAugment, draws: Tensor) -> Tensor:
    c, total = signals.shape[1:]
    length = _crop_length(total, config)
    start = (draws[..., 0] * (total - length + 1)).long().clamp(max=total - length)
    index = start[..., None] + torch.arange(length, device=signals.device)  # (n, v, length)
    views = signals[:, None].expand(-1, draws.shape[1], -1, -1)
    return views.gather(3, index[:, :, None].expand(-1, -1, c, -1))


def _table_views(table: Tensor, config: TableAugment, draws: Tensor) -> Tensor:
    noise, mask = draws.chunk(2, dim=-1)
    noise = torch.special.ndtri(noise.clamp(min=2.0**-25))  # normal; a uniform number may be 0
    views: Tensor = table[:, None] + config.noise * noise
    return views.masked_fill(mask < config.mask, 0.0)


def _crop_length(length: int, config: SignalAugment) -> int:
    return max(1, round(config.crop * length))


def _check(legal: bool, name: str, needed: str, got: object) -> None:
    if not legal:
        raise ValueError(f"{name} must be {needed}; got {got!r}.")


def _check_input(x: Tensor, config: Augment) -> None:
    legal, advice = x.is_floating_point(), "Call .float(), or take the config for this data."
    if isinstance(config, ImageAugment):
        legal, needed = x.dtype == torch.uint8 and x.dim() == 4, "uint8 images (n, c, h, w)"
        advice = "Images in 0..1 become uint8 by (255 * x).round().to(torch.uint8)."
    elif isinstance(config, SignalAugment):
        legal, needed = legal and x.dim() == 3, "floating-point signals (n, c, l)"
    else:
        legal, needed = legal and x.dim() == 2, "a floating-point table (n, p)"
    if not legal or 0 in x.shape[1:]:
        came = f"{x.dtype} of shape {tuple(x.shape)}"
        raise ValueError(f"{type(config).__name__} needs {needed}; got {came}. {advice}")
    for values in (config.mean, config.std) if isinstance(config, ImageAugment) else ():
        needed = f"1 or {x.shape[1]} numbers, one per channel"
        _check(len(values) in (1, x.shape[1]), "mean and std", needed, values)
