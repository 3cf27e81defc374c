"""Data for a first try, without a download: real handwritten digits, turned by a known angle."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import affine_transform  # type: ignore[import-untyped]
from sklearn.datasets import load_digits  # type: ignore[import-untyped]

from rnc.data.splits import make_split
from rnc.data.table import Table

_SIDE, _INK = 28, 20  # a digit of 20 pixels turns freely in a square of 28


def digits_table(seed: int = 0, *, largest_angle: float = 60.0, side: int = _SIDE) -> Table:
    """scikit-learn's 1,797 digits, each turned by a random angle; the target is the angle.

    The class of the digit says nothing about the angle, but a lot about the picture: it is the
    distraction that a good representation leaves out.

    Args:
        seed: decides the angles and the split.
        largest_angle: angles are uniform in [-largest_angle, largest_angle) degrees, positive
            anticlockwise. Below 90, no 6 looks like a 9.
        side: width and height of the images in pixels.

    >>> table = digits_table()
    >>> table.x.shape, table.x.dtype, table.target_names, sorted(table.subgroup)
    ((1797, 1, 28, 28), dtype('uint8'), ('angle',), ['digit'])
    """
    digits, classes = load_digits(return_X_y=True)
    angles = np.random.default_rng(seed).uniform(-largest_angle, largest_angle, len(digits))
    pictures = [
        _turned(picture, angle, side)
        for picture, angle in zip(digits.reshape(-1, 8, 8) / 16, angles, strict=True)
    ]
    names = np.array([f"digit-{i:04d}" for i in range(len(digits))])
    return Table(
        x=(np.stack(pictures)[:, None] * 255).round().astype(np.uint8),
        y=angles[:, None],
        target_names=("angle",),
        kind="image",
        split=make_split(angles[:, None], names, seed=seed),
        names=names,
        subgroup={"digit": classes},
        preprocessing={"channels": 1, "shape": [side, side]},
    )


def _turned(picture: NDArray[Any], degrees: float, side: int) -> NDArray[Any]:
    """The picture larger, and turned anticlockwise about its centre: (8, 8) -> (side, side)."""
    cos, sin = np.cos(np.deg2rad(degrees)), np.sin(np.deg2rad(degrees))
    # From a place in the result back to one in the picture; rows run downwards.
    back = np.array([[cos, sin], [-sin, cos]]) * (picture.shape[0] * _SIDE / (_INK * side))
    centre = (picture.shape[0] - 1) / 2
    offset = centre - back @ np.full(2, (side - 1) / 2)
    # "grid-constant" fades ink at the border out; a cut there would give the angle away.
    turned: NDArray[Any] = affine_transform(
        picture, back, offset, (side, side), order=3, mode="grid-constant"
    )
    return turned.clip(0, 1)
