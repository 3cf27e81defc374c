"""The parts of the corruptions, against their definitions written slowly or scipy's."""

import colorsys
import math

import numpy as np
import pytest
import torch
from scipy import ndimage, spatial, stats

from rnc.analyses import corruption_blur, corruption_weather
from rnc.analyses.corruption import CORRUPTIONS, corrupt
from rnc.analyses.corruption_blur import convolve, enlarge, smear, smooth
from rnc.analyses.corruption_draws import Draws


def draws_of(n: int) -> Draws:
    return Draws("test", 0, range(n), torch.device("cpu"))


def test_shot_noise_counts_are_poisson():
    for level, severity, photons in ((255, 1, 60), (40, 2, 25), (128, 5, 3), (0, 3, 12)):
        x = torch.full((2, 1, 100, 100), level / 255)
        counts = (CORRUPTIONS["shot_noise"](x, severity, draws_of(2)) * photons).flatten()
        whole = counts.round().long()
        assert (counts - whole).abs().max() < 1e-4
        rate = photons * level / 255
        expected = stats.poisson.pmf(np.arange(20 + 3 * photons), rate) * len(whole)
        seen = np.bincount(whole.numpy(), minlength=len(expected))
        assert np.abs(seen - expected).max() <= 5 * math.sqrt(expected.max()) * (rate > 0)


def test_impulse_noise_makes_its_share_of_black_and_of_white():
    noisy = corrupt(torch.full((4, 3, 100, 100), 90, dtype=torch.uint8), "impulse_noise", 5)
    assert noisy.unique().tolist() == [0, 90, 255]
    for level in (0, 255):
        assert (noisy == level).float().mean().item() == pytest.approx(0.135, abs=0.005)


@pytest.mark.parametrize("sigma", [0.32, 1.5, 6.0])
def test_smooth_is_scipys_gaussian_filter(sigma):
    x = torch.rand(2, 3, 33, 40)
    expected = ndimage.gaussian_filter(x.numpy(), (0, 0, sigma, sigma), mode="nearest")
    np.testing.assert_allclose(smooth(x, sigma).numpy(), expected, atol=1e-6)


def test_convolve_is_scipys_correlation():
    x, kernel = torch.rand(2, 3, 33, 40), torch.randn(5, 5)
    expected = ndimage.correlate(x.numpy(), kernel.numpy()[None, None], mode="mirror")
    np.testing.assert_allclose(convolve(x, kernel).numpy(), expected, atol=1e-5)


@pytest.mark.parametrize("factor", [1.0, 1.07, 1.31, 4.4])
def test_enlarge_is_scipys_zoom_of_the_middle(factor):
    x = torch.rand(1, 1, 40, 57)
    (h, w), parts = x.shape[2:], [math.ceil(side / factor) for side in x.shape[2:]]
    top, left = (h - parts[0]) // 2, (w - parts[1]) // 2
    middle = x[0, 0, top : top + parts[0], left : left + parts[1]].numpy()
    zoomed = ndimage.zoom(middle, factor, order=1)
    top, left = (zoomed.shape[0] - h) // 2, (zoomed.shape[1] - w) // 2
    expected = zoomed[top : top + h, left : left + w]
    np.testing.assert_allclose(enlarge(x, factor)[0, 0].numpy(), expected, atol=1e-5)


def test_a_smear_is_a_weighted_mean_of_shifted_copies():
    x, angles = torch.rand(3, 2, 33, 40), torch.tensor([30.0, -45.0, -120.0])
    weights = np.exp(-0.5 * (np.arange(9) / 3.0) ** 2)
    expected = np.zeros(x.shape)
    for image, angle in enumerate(np.deg2rad(angles.numpy())):
        for step, weight in enumerate(weights / weights.sum()):
            rows = np.arange(33) + math.ceil(step * math.sin(angle) - 0.5)
            columns = np.arange(40) + math.ceil(step * math.cos(angle) - 0.5)
            shifted = x[image].numpy()[:, rows.clip(0, 32)][:, :, columns.clip(0, 39)]
            expected[image] += weight * shifted
    np.testing.assert_allclose(smear(x, 4, 3.0, angles).numpy(), expected, atol=1e-6)


@pytest.mark.parametrize("reach", [1, 2, 4])
def test_glass_replaces_pixels_one_after_the_other(reach):
    chance = torch.rand(3, 2, 33, 40)
    shifts = (chance * 2 * reach).long() - reach
    for image in range(3):
        pixels = np.arange(33 * 40).reshape(33, 40)
        for row in range(33 - reach, reach, -1):
            for column in range(40 - reach, reach, -1):
                down, right = shifts[image, :, row, column].tolist()
                pixels[row, column] = pixels[row + down, column + right]
        got = corruption_blur._shuffle(chance, reach)[image]
        assert got.tolist() == pixels.flatten().tolist()


@pytest.mark.parametrize(
    ("name", "severity", "in_hsv"),
    [
        ("brightness", 2, lambda h, s, v: (h, s, min(v + 0.2, 1))),
        ("saturate", 2, lambda h, s, v: (h, 0.1 * s, v)),
        ("saturate", 4, lambda h, s, v: (h, min(5 * s + 0.1, 1), v)),
    ],
)
def test_colours_change_in_hsv(name, severity, in_hsv):
    pixels = torch.randint(0, 256, (1024, 3), dtype=torch.uint8)
    pixels[:100] = pixels[:100, :1]  # grey
    expected = [
        colorsys.hsv_to_rgb(*in_hsv(*colorsys.rgb_to_hsv(*(pixel / 255))))
        for pixel in pixels.double().numpy()
    ]
    got = corrupt(pixels.T.reshape(1, 3, 32, 32), name, severity)[0].flatten(1).T
    np.testing.assert_allclose(got, 255 * np.array(expected), atol=0.51)


def test_motion_blurs_to_one_side_within_45_degrees():
    dots = torch.zeros(50, 1, 65, 65, dtype=torch.uint8)
    dots[:, :, 32, 50] = 255
    _, _, row, column = corrupt(dots, "motion_blur", 5).nonzero(as_tuple=True)
    assert (column <= 50).all()
    assert ((row - 32).abs() <= 50 - column + 1).all()
    assert (row - 32).max() > 12
    assert (row - 32).min() < -12


def test_an_elastic_transform_moves_pixels_by_a_smooth_field():
    x = torch.rand(2, 3, 64, 70)
    got = CORRUPTIONS["elastic_transform"](x, 3, draws_of(2))
    fields = (draws_of(2).uniform(2, 64, 70).numpy() * 2 - 1) * 0.005 * 64
    for image, field, new in zip(x.numpy(), fields, got.numpy(), strict=True):
        rows, columns = (21.25 * ndimage.gaussian_filter(f, 0.64, mode="nearest") for f in field)
        places = [np.arange(64)[:, None] + rows, np.arange(70) + columns]
        for before, after in zip(image, new, strict=True):
            expected = ndimage.map_coordinates(before, places, order=1, mode="reflect")
            np.testing.assert_allclose(after, expected, atol=1e-4)


def test_clouds_are_midpoints_moved_at_random():
    side, decay = 16, 1.5
    noise = 2 * draws_of(1).uniform(side, side)[0].double().numpy() - 1
    cloud, step, spread = np.zeros((side, side)), side, 1.0

    def move(row, column, offsets):
        around = [cloud[(row + i) % side, (column + j) % side] for i, j in offsets]
        cloud[row, column] = np.mean(around) + spread * noise[row, column]

    while step >= 2:
        half = step // 2
        corners = [(i, j) for i in (-half, half) for j in (-half, half)]
        sides = [(-half, 0), (half, 0), (0, -half), (0, half)]
        grid = [(i, j) for i in range(0, side, step) for j in range(0, side, step)]
        for i, j in grid:
            move(i + half, j + half, corners)
        for i, j in grid:
            move(i, j + half, sides)
            move(i + half, j, sides)
        step, spread = half, spread / decay**2
    expected = (cloud - cloud.min()) / (cloud.max() - cloud.min())
    got = corruption_weather._clouds(draws_of(1), 16, 13, decay)[0, 0]
    np.testing.assert_allclose(got.numpy(), expected[:, :13], atol=1e-5)


def test_the_brightest_pixel_stays_so_where_the_fog_is_densest():
    fogged = corrupt(torch.full((3, 3, 64, 64), 100, dtype=torch.uint8), "fog", 5)
    thinnest = round(100 * (100 / 255) / (100 / 255 + 3))
    assert fogged.amax(dim=(1, 2, 3)).tolist() == [100] * 3
    assert fogged.amin(dim=(1, 2, 3)).tolist() == [thinnest] * 3


def test_ice_crystals_are_cells_around_their_nearest_points():
    points = torch.rand(1, 3, 6, 7)
    first, second, own = (part[0].flatten() for part in corruption_weather._cells(points))
    corners = np.stack(np.meshgrid(np.arange(6), np.arange(7), indexing="ij")) - 1
    places = (16 * (corners + points[0, :2].numpy())).reshape(2, -1).T
    pixels = np.stack(np.meshgrid(np.arange(64), np.arange(80), indexing="ij")).reshape(2, -1).T
    distances, nearest = spatial.KDTree(places).query(pixels, k=2)
    brightness = points[0, 2].flatten().numpy()[nearest[:, 0]]
    for got, expected in ((first, distances[:, 0]), (second, distances[:, 1]), (own, brightness)):
        assert np.isclose(got.numpy(), expected, atol=1e-3).mean() > 0.97


def test_rims_shine_by_their_embossed_distance():
    wet = smooth(torch.rand(4, 1, 50, 60), 3.0) > 0.53
    got = corruption_weather._rims(wet)
    cross, emboss = ndimage.generate_binary_structure(2, 1), [[-2, -1, 0], [-1, 1, 1], [0, 1, 2]]
    for mask, shine in zip(wet[:, 0].numpy(), got[:, 0].numpy(), strict=True):
        rim = mask & ~ndimage.binary_erosion(mask, cross, border_value=1)
        assert 50 < rim.sum() < mask.sum()
        distance = ndimage.distance_transform_edt(~rim).clip(max=20)
        levels = np.floor(ndimage.uniform_filter(distance, 3, mode="mirror") + 1e-3)
        levels = corruption_weather._equalised(torch.tensor(levels)[None, None])[0, 0].numpy()
        lit = ndimage.correlate(levels, np.array(emboss, float), mode="mirror").clip(0, 255)
        expected = ndimage.uniform_filter(lit, 3, mode="mirror")
        np.testing.assert_allclose(shine, expected, atol=1e-2)


def test_an_image_without_a_drop_stays_as_it_is(monkeypatch):
    monkeypatch.setattr(Draws, "normal", lambda self, *shape: torch.zeros(2, *shape))
    x = torch.rand(2, 3, 32, 40)
    assert torch.equal(CORRUPTIONS["spatter"](x, 1, draws_of(2)), x)


def test_distances_to_a_rim_are_euclidean_up_to_the_limit():
    rims = torch.rand(3, 1, 50, 60) < 0.002
    rims[:, :, 0, 0] = True
    expected = np.stack([ndimage.distance_transform_edt(~rim) for rim in rims[:, 0].numpy()])
    got = corruption_weather._distance(rims, 20)[:, 0]
    assert expected.max() > 20
    np.testing.assert_allclose(got.numpy(), expected.clip(max=20), rtol=1e-6)


def test_equalised_levels_are_the_scaled_shares_of_those_up_to_them():
    levels = torch.randint(3, 9, (2, 1, 8, 8)).float() ** 2
    got = corruption_weather._equalised(levels)
    for image, new in zip(levels, got, strict=True):
        lowest = (image == image.min()).sum()
        for level in image.unique():
            expected = (255 * ((image <= level).sum() - lowest) / (64 - lowest)).round()
            assert (new[image == level] == expected).all()


def test_water_is_brighter_and_mud_is_brown():
    grey = torch.full((8, 3, 64, 64), 128, dtype=torch.uint8)
    water, mud = corrupt(grey, "spatter", 3), corrupt(grey, "spatter", 5)
    assert (water >= grey).all()
    assert (water[:, 1] >= water[:, 0]).all()
    spots = mud[:, 0] < 80
    assert 0.1 < spots.float().mean() < 0.6
    assert torch.equal(mud.amin(dim=(0, 2, 3)), torch.tensor([63, 42, 20], dtype=torch.uint8))
