"""Pinball loss and CRPS against their definitions by slow integrals, and each other."""

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats
from sklearn.metrics import mean_pinball_loss

from rnc.metrics.distributions import crps_bins, crps_gaussian, crps_points, crps_quantiles, pinball

Array = NDArray[np.float64]
GRID = np.linspace(-40.0, 40.0, 800_001)


def integral(reached: Array, target: float) -> float:
    """CRPS by its definition, from F on the grid."""
    return float(np.trapezoid((reached - (target <= GRID)) ** 2, GRID))


def random_points(n: int = 5, b: int = 7) -> tuple[Array, Array, Array]:
    random = np.random.default_rng(0)
    return random.normal(size=(n, b)), random.uniform(size=(n, b)), random.normal(size=n) * 2


@pytest.mark.parametrize("level", [0.05, 0.5, 0.9])
def test_pinball_is_that_of_scikit_learn(level: float) -> None:
    guess, _, truth = random_points(b=1)
    assert pinball(guess, truth, level).mean() == pytest.approx(
        mean_pinball_loss(truth, guess[:, 0], alpha=level)
    )


@pytest.mark.parametrize("scale", [0.3, 1.0, 5.0])
def test_crps_of_a_gaussian_is_the_integral(scale: float) -> None:
    truth = np.array([-3.0, 0.2, 7.0])
    wanted = [integral(stats.norm(0.5, scale).cdf(GRID), y) for y in truth]
    found = crps_gaussian(np.full(3, 0.5), np.full(3, scale), truth)
    np.testing.assert_allclose(found, wanted, atol=1e-4)


def test_a_gaussian_without_spread_has_the_absolute_error() -> None:
    truth = np.array([1.0, -4.0, 1e200])
    for scale in (0.0, 1e-320, 1e-200):
        found = crps_gaussian(np.zeros(3), np.full(3, scale), truth)
        np.testing.assert_allclose(found, np.abs(truth))
    assert np.isfinite(crps_gaussian(np.zeros(1), np.array([1e300]), np.ones(1))).all()


def test_crps_of_points_is_the_integral() -> None:
    points, masses, truth = random_points()
    found = crps_points(points, truth, masses=masses)
    for i, y in enumerate(truth):
        share = masses[i] / masses[i].sum()
        reached = (share * (points[i] <= GRID[:, None])).sum(axis=1)
        assert found[i] == pytest.approx(integral(reached, y), abs=1e-3)
    pairs = np.abs(points[:, :, None] - points[:, None, :]).mean(axis=(1, 2))
    wanted = np.abs(points - truth[:, None]).mean(axis=1) - pairs / 2
    np.testing.assert_allclose(crps_points(points, truth), wanted)
    np.testing.assert_allclose(crps_points(points[0], truth[:1]), wanted[:1])


def test_crps_on_a_circle_goes_the_shorter_way() -> None:
    points, masses, truth = (np.abs(part) * 12 for part in random_points())
    share = masses / masses.sum(axis=1, keepdims=True)

    def gap(a: float, b: float) -> float:
        return min((a - b) % 24, (b - a) % 24)

    for i, y in enumerate(truth):
        off = sum(share[i, j] * gap(x, y) for j, x in enumerate(points[i]))
        apart = sum(
            share[i, j] * share[i, k] * gap(points[i, j], points[i, k])
            for j in range(7)
            for k in range(7)
        )
        found = crps_points(points[[i]], truth[[i]], masses=masses[[i]], period=24.0)
        assert found.item() == pytest.approx(off - apart / 2)
    # An hour around midnight is narrow, not as wide as a day.
    assert crps_points(np.array([[23.5, 0.5]]), np.zeros(1), period=24.0) == pytest.approx(0.25)


def test_crps_of_even_quantiles_is_twice_the_mean_pinball_loss() -> None:
    quantiles, _, truth = random_points(b=9)
    quantiles, levels = np.sort(quantiles, axis=1), (np.arange(9) + 0.5) / 9
    losses = [pinball(quantiles[:, i], truth, level) for i, level in enumerate(levels)]
    found = crps_quantiles(quantiles, levels, truth)
    np.testing.assert_allclose(found, 2 * np.mean(losses, axis=0))
    crossed = crps_quantiles(quantiles[:, ::-1], levels, truth)
    np.testing.assert_allclose(crossed, found)


def test_many_quantiles_of_a_gaussian_come_to_its_crps() -> None:
    levels = np.concatenate([[0.001], np.linspace(0.005, 0.995, 991), [0.999]])
    truth = np.array([-1.5, 0.1, 3.0])
    quantiles = np.tile(stats.norm.ppf(levels), (3, 1))
    wanted = crps_gaussian(np.zeros(3), np.ones(3), truth)
    np.testing.assert_allclose(crps_quantiles(quantiles, levels, truth), wanted, atol=1e-3)


def test_crps_of_a_histogram_is_the_integral() -> None:
    edges, masses = np.array([-2.0, -1.0, 0.5, 3.0]), np.array([1.0, 2.0, 5.0])
    truth = np.array([-6.0, -1.0, 0.2, 2.9, 4.0])
    reached = np.interp(GRID, edges, np.concatenate([[0.0], np.cumsum(masses / 8)]))
    wanted = [integral(reached, y) for y in truth]
    found = crps_bins(edges, np.tile(masses, (5, 1)), truth)
    np.testing.assert_allclose(found, wanted, atol=1e-4)


def test_narrow_bins_are_points() -> None:
    points, masses, truth = random_points(b=4)
    places = np.sort(points[0])
    edges = np.ravel([places - 1e-9, places + 1e-9], order="F")
    with_gaps = np.zeros((5, 7))
    with_gaps[:, ::2] = masses
    found = crps_bins(edges, with_gaps, truth)
    np.testing.assert_allclose(found, crps_points(places, truth, masses=masses), atol=1e-7)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: pinball(np.ones(2), np.ones(2), 0.0), "level must be above 0.* got 0.0"),
        (lambda: pinball(np.ones((2, 2)), np.ones(2), 0.5), r"one target, .* got \(2, 2\)"),
        (lambda: pinball(np.ones(3), np.ones(2), 0.5), r"same n; got \(3,\) and \(2,\)"),
        (lambda: crps_gaussian(np.ones(1), -np.ones(1), np.ones(1)), "negative; the least is -1"),
        (lambda: crps_points(np.ones((2, 3)), np.ones(3)), r"\(3, b\), a row per target"),
        (lambda: crps_points(np.ones(2), np.ones(1), masses=np.zeros(2)), "row 0 has .0. 0."),
        (lambda: crps_points(np.ones(2), np.ones(1), masses=np.ones(3)), r"\(1, 3\) and \(1, 2\)"),
        (lambda: crps_quantiles(np.ones((1, 2)), np.array([0.5, 0.1]), np.ones(1)), "increase"),
        (lambda: crps_quantiles(np.ones((1, 2)), np.array([0.5]), np.ones(1)), r"\(n, 1\)"),
        (lambda: crps_bins(np.arange(3.0), np.ones((1, 3)), np.ones(1)), "one more than the 3"),
    ],
)
def test_what_cannot_be_is_refused(call: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
