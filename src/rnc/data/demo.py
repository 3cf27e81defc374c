"""Demo data that need no download: digits at known angles, and balls of known radii."""

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

    The class of the digit says nothing about the angle, but changes the picture a lot. It is a
    nuisance variable that a good representation ignores.

    Args:
        seed: seed of the angles and the split.
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


def balls_table(seed: int = 0, *, rows: int = 600, side: int = 20) -> Table:
    """Volumes of a ball in noise; the target is its radius, in voxels.

    The data are simulated, since neither scikit-learn nor scipy has a set of volumes. Each volume
    comes from one of four scanners, with a brightness, contrast and noise of its own. The scanner
    says nothing about the radius: it is a nuisance variable that a good representation ignores.

    Args:
        seed: seed of radii, places, scanners, noise and the split.
        rows: the number of volumes.
        side: side of the volumes in voxels. Radii are uniform from a tenth to three tenths of it.

    >>> table = balls_table(rows=40, side=8)
    >>> table.x.shape, table.x.dtype, table.kind, table.target_names, sorted(table.subgroup)
    ((40, 1, 8, 8, 8), dtype('uint8'), 'volume', ('radius',), ['scanner'])
    """
    rng = np.random.default_rng(seed)
    radii, scanners = rng.uniform(0.1 * side, 0.3 * side, rows), rng.integers(0, 4, rows)
    places = rng.uniform(0.35 * side, 0.65 * side, (rows, 3))
    x = np.empty((rows, 1, side, side, side), np.uint8)
    voxels = np.indices((side, side, side)) + 0.5
    for i, (radius, place, scanner) in enumerate(zip(radii, places, scanners, strict=True)):
        away = np.sqrt(np.square(voxels - place[:, None, None, None]).sum(axis=0))
        ball = (radius - away + 0.5).clip(0, 1)  # the share of a voxel that is inside, nearly
        brightness, contrast, noise = _SCANNERS[scanner]
        noisy = brightness + contrast * ball + rng.normal(0, noise, ball.shape)
        x[i, 0] = noisy.round().clip(0, 255)
    names = np.array([f"volume-{i:04d}" for i in range(rows)])
    return Table(
        x=x,
        y=radii[:, None],
        target_names=("radius",),
        kind="volume",
        split=make_split(radii[:, None], names, seed=seed),
        names=names,
        subgroup={"scanner": scanners},
        preprocessing={"channels": 1, "shape": [side, side, side]},
    )


_SCANNERS = ((60, 60, 30), (90, 40, 20), (40, 90, 45), (120, 60, 45))


def _turned(picture: NDArray[Any], degrees: float, side: int) -> NDArray[Any]:
    """The picture enlarged and turned anticlockwise about its centre: (8, 8) -> (side, side)."""
    cos, sin = np.cos(np.deg2rad(degrees)), np.sin(np.deg2rad(degrees))
    # This maps a position in the result to one in the picture; rows run downwards.
    back = np.array([[cos, sin], [-sin, cos]]) * (picture.shape[0] * _SIDE / (_INK * side))
    centre = (picture.shape[0] - 1) / 2
    offset = centre - back @ np.full(2, (side - 1) / 2)
    # "grid-constant" fades out ink at the border. A sharp edge would reveal the angle.
    turned: NDArray[Any] = affine_transform(
        picture, back, offset, (side, side), order=3, mode="grid-constant"
    )
    return turned.clip(0, 1)
