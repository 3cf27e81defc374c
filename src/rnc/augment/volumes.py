"""Views of volumes: windows, mirror images and intensities, then a block that is erased."""

import torch
from torch import Tensor

from rnc.augment.configs import VolumeAugment
from rnc.augment.erasing import erase_, erasing_draws

VOLUME_DRAWS = [3, 1, 2]  # as `volume_views` splits them


def middle_volume(volumes: Tensor, config: VolumeAugment) -> Tensor:
    """The view of `eval_view`: (n, c, d, h, w) -> its middle window."""
    for dim, side in enumerate(config.sides(volumes.shape[2:]), start=2):
        volumes = volumes.narrow(dim, (volumes.shape[dim] - side) // 2, side)
    return volumes.float().contiguous()


def volume_views(volumes: Tensor, config: VolumeAugment, draws: Tensor) -> Tensor:
    """Random views: (n, c, d, h, w) and uniform numbers (n, v, k) -> (n, v, c, d', h', w').

    Windows are taken along one side after the other, the side of shortest memory stride last. So
    only the indices of one side at a time are in memory beside the voxels.
    """
    sizes = [*VOLUME_DRAWS, erasing_draws(config, sides=3)]
    place, mirror, change, block = torch.split(draws, sizes, dim=-1)
    views = volumes[:, None].expand(-1, draws.shape[1], *volumes.shape[1:])  # no copy
    for axis, side in enumerate(config.sides(volumes.shape[2:])):
        index = _window(place[..., axis], side, volumes.shape[2 + axis])  # (n, v, side)
        if axis == 2 and config.flip:
            index = torch.where(mirror < 0.5, index.flip(-1), index)
        shape = [*views.shape[:3], *(side if i == axis else views.shape[3 + i] for i in range(3))]
        index = index.view(*index.shape[:2], 1, *(side if i == axis else 1 for i in range(3)))
        views = views.gather(3 + axis, index.expand(shape))
    views = views.float()
    if config.intensity > 0:
        contrast, shift = (config.intensity * (2 * change - 1)).unbind(-1)
        views = views * (1 + contrast)[..., None, None, None, None]
        views = views + shift[..., None, None, None, None]
    if config.erase > 0:
        rows = views.flatten(0, 1)
        views = erase_(rows, block.flatten(0, 1), config.erase, config.erase_sides).view(
            views.shape
        )
    return views


def _window(place: Tensor, side: int, total: int) -> Tensor:
    """Positions of a window of a side, anywhere inside: (n, v) -> (n, v, side)."""
    start = (place * (total - side + 1)).long().clamp(max=total - side)
    return start[..., None] + torch.arange(side, device=place.device)
