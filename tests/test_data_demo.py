"""The digits that need no download."""

import numpy as np
from scipy.ndimage import rotate

from rnc.data.demo import digits_table


def moment_angle(picture):
    """Direction of the longest axis of the ink, in degrees anticlockwise from upright."""
    rows, columns = np.indices(picture.shape)
    ink = picture / picture.sum()
    dy, dx = rows - (rows * ink).sum(), columns - (columns * ink).sum()
    angle = np.arctan2(2 * (dx * -dy * ink).sum(), ((dx**2 - dy**2) * ink).sum()) / 2
    return np.rad2deg(angle) % 180 - 90


def test_digits_are_a_balanced_table_of_grey_images():
    table = digits_table(3)
    assert table.kind == "image"
    assert table.x.shape == (1797, 1, 28, 28)
    assert table.y.min() >= -60
    assert table.y.max() < 60
    assert [len(table.rows(name)) for name in ("train", "val", "test")] == [1258, 180, 359]
    assert np.bincount(table.subgroup["digit"]).min() > 150
    correlation = np.corrcoef(table.subgroup["digit"], table.y[:, 0])[0, 1]
    assert abs(correlation) < 0.06
    assert table.preprocessing == {"channels": 1, "shape": [28, 28]}


def test_seed_decides_angles_and_split():
    one, again, other = digits_table(0), digits_table(0), digits_table(1)
    assert (one.x == again.x).all()
    assert (one.split == again.split).all()
    assert (one.y != other.y).mean() > 0.99
    assert (one.split != other.split).any()


def test_target_is_the_angle_by_which_the_picture_is_turned():
    turned, upright = digits_table(0), digits_table(0, largest_angle=1e-9)
    for i in range(20):
        expected = rotate(upright.x[i, 0].astype(float), turned.y[i, 0], reshape=False, order=1)
        difference = np.abs(expected.clip(0, 255) - turned.x[i, 0]).mean()
        against = rotate(upright.x[i, 0].astype(float), -turned.y[i, 0], reshape=False, order=1)
        if abs(turned.y[i, 0]) > 10:
            assert difference < 0.5 * np.abs(against.clip(0, 255) - turned.x[i, 0]).mean()
        assert difference < 8


def test_positive_angles_turn_ones_anticlockwise():
    table = digits_table(0)
    ones = table.subgroup["digit"] == 1
    found = np.array([moment_angle(picture[0].astype(float)) for picture in table.x[ones]])
    assert np.corrcoef(found, table.y[ones, 0])[0, 1] > 0.8


def test_no_ink_is_cut_off():
    table = digits_table(0)
    edge = np.concatenate([table.x[:, 0, 0], table.x[:, 0, -1], table.x[:, 0, :, 0]], axis=1)
    assert edge.max() < 128
    assert table.x.max() == 255
