"""Random erasing: a part of a view is set to 0, the mean of what is standardised.

Z. Zhong et al., "Random Erasing Data Augmentation", AAAI 2020; the paper of RnC does without it.
"""

import torch
from torch import Tensor

from rnc.augment.configs import Augment, CachedViews, TableAugment


def erasing_draws(config: Augment, sides: int) -> int:
    """How many random numbers a view takes: one decides, two place it along each side."""
    is_on = not isinstance(config, TableAugment | CachedViews) and config.erase > 0
    return 1 + 2 * sides if is_on else 0


def erase_(views: Tensor, draws: Tensor, share: float, sizes: tuple[float, float]) -> Tensor:
    """Set one block of a share of the views to 0, in place: (m, c, *sides), draws in 0..1.

    Along every side, the block covers a part between `sizes` of the view, anywhere inside: all
    pixels or moments whose middle lies in it. Draws (m, 1 + 2 s) decide whether a view has a block,
    then how large it is along each of the s sides, then where it starts.
    """
    lengths = views.shape[2:]
    hidden = (draws[:, 0] < share).view(-1, *(1 for _ in lengths))
    low, high = sizes
    for side, length in enumerate(lengths):
        size = (low + (high - low) * draws[:, 1 + side]) * length
        start = draws[:, 1 + len(lengths) + side] * (length - size)
        middle = torch.arange(length, device=views.device) + 0.5
        inside = (middle >= start[:, None]) & (middle < (start + size)[:, None])
        hidden = hidden & inside.view(
            -1, *(length if i == side else 1 for i in range(len(lengths)))
        )
    return views.masked_fill_(hidden[:, None], 0.0)
