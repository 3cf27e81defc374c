"""Labels as groups: which rows share one, which bin each falls into; and checks of arguments."""

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from rnc.heads import PerTarget, head_config
from rnc.heads.registry import nearest_class
from rnc.loss.batch import as_targets, check_finite
from rnc.metrics import Values


class Grid(NamedTuple):
    """Class centres low + k * step for k = 0 .. bins - 1, for each target."""

    low: tuple[float, ...]
    step: tuple[float, ...]
    bins: tuple[int, ...]


def label_grid(
    low: PerTarget, high: PerTarget, step: PerTarget = None, *, targets: Tensor | None = None
) -> Grid:
    """The classes of the head `dex` for given training targets, or for targets from low to high.

    >>> label_grid(-20, 49)
    Grid(low=(-20.0,), step=(1.0,), bins=(70,))
    """
    if targets is not None:
        values: Values = targets.cpu()
    elif low is None or high is None:
        raise ValueError(
            f"classes need low and high; got low={low} and high={high}. Give the lowest and the "
            "highest training target: those of a batch would be other classes in each batch."
        )
    else:
        ends = [np.atleast_1d(np.asarray(end, dtype=np.float64)) for end in (low, high)]
        values = np.stack(np.broadcast_arrays(*ends))
    config = head_config("dex", 1, values, low=low, high=high, step=step)
    return Grid(config.shift, config.scale, config.bins)


def to_classes(
    targets: Tensor,
    low: PerTarget,
    high: PerTarget,
    step: PerTarget = None,
    *,
    validate: bool = True,
) -> Tensor:
    """The class of each target, as the head `dex` has it: (n,) or (n, t) -> (n, t), whole numbers.

    With several targets, a class is a row: one bin per target. Angles are binned like any other
    target, so 359 and 0 degrees are far apart. The lowest class centre is low, and the last one is
    the first at or above high; targets beyond them count as the nearest class. A step of None is 1
    for whole ends at most 200 apart, otherwise (high - low) / 100. `validate` checks for NaN, which
    would become class 0; the check synchronizes with a GPU once.

    >>> to_classes(torch.tensor([-3.0, 0.4, 0.5, 99.0]), low=0, high=10)[:, 0]
    tensor([ 0,  0,  1, 10])
    """
    rows = as_targets(targets, "to_classes")
    grid = label_grid(low, high, step)
    if len(grid.bins) not in (1, rows.shape[1]):
        raise ValueError(
            f"to_classes needs one low and high, or one per target; got {len(grid.bins)} for "
            f"targets {tuple(targets.shape)}."
        )
    if validate:
        check_labels(rows, "to_classes")
    return grid_classes(rows, grid)


def grid_classes(rows: Tensor, grid: Grid) -> Tensor:
    """The class of each target on a grid, NaN as 0: (n, t) -> (n, t)."""
    axes = [axis * (rows.shape[1] if len(axis) == 1 else 1) for axis in grid]
    columns = zip(rows.unbind(1), *axes, strict=True)
    return torch.cat(
        [nearest_class((y - low) / step, bins) for y, low, step, bins in columns], dim=1
    )


def check_positive(**values: float) -> None:
    """Raise if a value is not a positive number; the message gives its name."""
    for name, value in values.items():
        if not 0 < value < math.inf:
            raise ValueError(f"{name} must be a positive number; got {value}.")


def check_labels(targets: Tensor, caller: str, features: Tensor | None = None) -> None:
    """Raise if a target or a feature is NaN or infinite: the methods cannot leave out a sample."""
    if features is None:
        features = targets.new_zeros(1)
    # `check_finite` would advise missing="skip" for NaN.
    check_finite(features, targets.nan_to_num(nan=torch.inf, posinf=torch.inf), "raise", caller)


def first_of_each(distances: Tensor, order: Tensor | None = None) -> Tensor:
    """Mask of one row per distinct label, that of lowest order: label distances (n, n) -> (n,).

    No shape depends on values, so the mask needs no synchronization with a GPU.
    """
    if order is None:
        order = torch.arange(distances.shape[0], device=distances.device)
    return ~((distances == 0) & (order[None, :] < order[:, None])).any(dim=1)
