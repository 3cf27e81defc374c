"""Views of a batch, made on its device with parameters drawn per sample.

    train_views(x, config, views)   random views          (n, ...) -> (n, v, ...)
    eval_view(x, config)            the one fixed view    (n, ...) -> (n, ...)
    TEST_VIEWS[name](view)          the views that a prediction averages over, from the fixed view

The config says how: `ImageAugment` for uint8 images (n, c, h, w), `SignalAugment` for signals
(n, c, l), `VolumeAugment` for volumes (n, c, d, h, w), `TableAugment` for tables (n, p). Defaults
are the paper's where it has them.

`draw_views` draws one (n, v, k) tensor of uniform numbers. `views_from` makes views of it with
tensor operations only, without a loop over samples or a synchronization with a GPU. torch.compile
takes all of it except a torch.Generator: to use one, call `draw_views` and compile `views_from`.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from rnc.augment.configs import (
    Augment,
    CachedViews,
    ImageAugment,
    SignalAugment,
    TableAugment,
    VolumeAugment,
    check_value,
)
from rnc.augment.erasing import erase_, erasing_draws
from rnc.augment.images import IMAGE_DRAWS, image_views, middle_view
from rnc.augment.volumes import VOLUME_DRAWS, middle_volume, volume_views

CHUNK_VALUES = 2**20  # on a CPU, a chunk that stays in the cache is several times as fast


def train_views(
    x: Tensor, config: Augment, views: int, generator: torch.Generator | None = None
) -> Tensor:
    """Random views of every sample: (n, ...) -> (n, v, ...), float32, without gradient.

    Args:
        x: uint8 images (n, c, h, w), signals (n, c, l), volumes (n, c, d, h, w) or a table (n, p),
            as config needs.
        config: what to do.
        views: how many; 0 stands for one view without augmentation, that of `eval_view`.
        generator: source of the random numbers, on the device of x; torch's own by default.

    >>> faces = torch.randint(0, 256, (8, 3, 64, 64), dtype=torch.uint8)
    >>> train_views(faces, ImageAugment(size=56, flip=False), views=2).shape
    torch.Size([8, 2, 3, 56, 56])
    """
    check_value(views >= 0, "views", "0 (no augmentation) or more", views)
    if views == 0:
        return eval_view(x, config).unsqueeze(1)
    return views_from(x, config, draw_views(x, config, views, generator))


@torch.no_grad()
def eval_view(x: Tensor, config: Augment) -> Tensor:
    """The view without randomness: (n, ...) -> (n, ...), float32.

    Images that have exactly the size of a view are used whole. All others are scaled so that the
    short side is 8/7 of the size, as in the paper (256 for 224), and the middle is cut out.
    Signals and volumes keep their middle, tables stay as they are.
    """
    _check_input(x, config)
    with torch.autocast(x.device.type, enabled=False):
        if isinstance(config, ImageAugment):
            return middle_view(x, config)
        if isinstance(config, SignalAugment):
            length = config.length(x.shape[2])
            return x.float().narrow(2, (x.shape[2] - length) // 2, length).contiguous()
        if isinstance(config, VolumeAugment):
            return middle_volume(x, config)
        return x[:, : config.tests].float() if isinstance(config, CachedViews) else x.float()


def _alone(view: Tensor) -> tuple[Tensor, ...]:
    return (view,)


def _with_mirror_image(view: Tensor) -> tuple[Tensor, ...]:
    return view, view.flip(-1)


def _each(views: Tensor) -> tuple[Tensor, ...]:
    return views.unbind(1)


TEST_VIEWS: dict[str, Callable[[Tensor], tuple[Tensor, ...]]] = {
    "plain": _alone,
    "mirror": _with_mirror_image,
    "cached": _each,
}
"""The views that a prediction averages over, by name: (n, ...) -> one or more of that shape."""


def check_test_views(name: str, kind: str) -> None:
    """Raise if a kind of data does not have these test views."""
    check_value(name in TEST_VIEWS, "test_views", "one of plain, mirror", name)
    if name == "mirror" and kind not in ("image", "volume"):
        raise ValueError(
            "test_views='mirror' averages over an image and its mirror image; got data of kind "
            f"{kind}. Use test_views='plain', or leave it out."
        )


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
    own = {ImageAugment: sum(IMAGE_DRAWS), VolumeAugment: sum(VOLUME_DRAWS)}
    count = own.get(type(config), 2 * x.shape[1])
    count = max(1, config.views) if isinstance(config, CachedViews) else count
    draws = torch.rand(x.shape[0], views, count, generator=generator, device=x.device)
    more = erasing_draws(config, sides=x.dim() - 2)
    if more == 0:
        return draws
    # Drawn separately, so that crops and colours are the same with and without erasing.
    block = torch.rand(x.shape[0], views, more, generator=generator, device=x.device)
    return torch.cat([draws, block], dim=-1)


@torch.no_grad()
def views_from(x: Tensor, config: Augment, draws: Tensor) -> Tensor:
    """The views that the numbers of `draw_views` determine: (n, ...), (n, v, k) -> (n, v, ...)."""
    _check_input(x, config)
    with torch.autocast(x.device.type, enabled=False):  # half precision would cost grey levels
        if isinstance(config, SignalAugment):
            return _signal_views(x.float(), config, draws)
        if isinstance(config, VolumeAugment):
            return volume_views(x, config, draws)
        if isinstance(config, TableAugment):
            return _table_views(x.float(), config, draws)
        if isinstance(config, CachedViews):
            return _cached_views(x.float(), config, draws)
        if x.device.type != "cpu" or torch.compiler.is_compiling():
            return image_views(x, config, draws)
        chunk = max(1, CHUNK_VALUES // (draws.shape[1] * x.shape[1] * config.size**2))
        chunks = zip(torch.split(x, chunk), torch.split(draws, chunk), strict=True)
        return torch.cat([image_views(part, config, drawn) for part, drawn in chunks])


def _signal_views(signals: Tensor, config: SignalAugment, draws: Tensor) -> Tensor:
    c, total = signals.shape[1:]
    length = config.length(total)
    start = (draws[..., 0] * (total - length + 1)).long().clamp(max=total - length)
    index = start[..., None] + torch.arange(length, device=signals.device)  # (n, v, length)
    views = signals[:, None].expand(-1, draws.shape[1], -1, -1)
    views = views.gather(3, index[:, :, None].expand(-1, -1, c, -1))
    if config.erase > 0:
        rows, block = views.flatten(0, 1), draws[..., 2 * c :].flatten(0, 1)
        views = erase_(rows, block, config.erase, config.erase_length).view(views.shape)
    return views


def _table_views(table: Tensor, config: TableAugment, draws: Tensor) -> Tensor:
    noise, mask = draws.chunk(2, dim=-1)
    noise = torch.special.ndtri(noise.clamp(min=2.0**-25))  # normal; a uniform number may be 0
    views: Tensor = table[:, None] + config.noise * noise
    return views.masked_fill(mask < config.mask, 0.0)


def _cached_views(features: Tensor, config: CachedViews, draws: Tensor) -> Tensor:
    """Cached random views in random order, or the test views if no random views are cached."""
    count = config.views or config.tests
    order = draws[:, 0, :count].argsort(dim=1) if config.views else None
    place = torch.arange(draws.shape[1], device=draws.device) % count
    index = place.expand(len(features), -1) if order is None else config.tests + order[:, place]
    return features.gather(1, index[..., None].expand(-1, -1, features.shape[2]))


def _check_input(x: Tensor, config: Augment) -> None:
    legal, advice = x.is_floating_point(), "Call .float(), or take the config for this data."
    if isinstance(config, ImageAugment):
        legal, needed = x.dtype == torch.uint8 and x.dim() == 4, "uint8 images (n, c, h, w)"
        advice = "Images in 0..1 become uint8 by (255 * x).round().to(torch.uint8)."
    elif isinstance(config, SignalAugment):
        legal, needed = legal and x.dim() == 3, "floating-point signals (n, c, l)"
    elif isinstance(config, CachedViews):
        legal = legal and x.dim() == 3 and x.shape[1] == config.tests + config.views
        needed = f"features (n, {config.tests + config.views}, d)"
    elif isinstance(config, VolumeAugment):
        legal = (legal or x.dtype == torch.uint8) and x.dim() == 5
        needed = "floating-point or uint8 volumes (n, c, d, h, w)"
    else:
        legal, needed = legal and x.dim() == 2, "a floating-point table (n, p)"
    if not legal or 0 in x.shape[1:]:
        came = f"{x.dtype} of shape {tuple(x.shape)}"
        raise ValueError(f"{type(config).__name__} needs {needed}; got {came}. {advice}")
    for values in (config.mean, config.std) if isinstance(config, ImageAugment) else ():
        needed = f"1 or {x.shape[1]} numbers, one per channel"
        check_value(len(values) in (1, x.shape[1]), "mean and std", needed, values)
