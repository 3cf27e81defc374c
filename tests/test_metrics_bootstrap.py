"""Intervals: how often they hold the truth, and what they are made of."""

import numpy as np
import pytest

from rnc.metrics import bootstrap
from rnc.metrics.bootstrap import mean_interval, r2_interval


@pytest.mark.parametrize(
    ("draw", "truth", "n", "least"),
    [
        (lambda rng, n: np.abs(rng.normal(size=n)), np.sqrt(2 / np.pi), 12, 0.925),
        (lambda rng, n: np.abs(rng.normal(size=n)), np.sqrt(2 / np.pi), 100, 0.93),
        (lambda rng, n: rng.exponential(size=n), 1.0, 60, 0.905),
    ],
)
def test_nineteen_of_twenty_intervals_hold_the_true_mean(draw, truth, n, least):
    rng = np.random.default_rng(0)
    found = [mean_interval(draw(rng, n), resamples=400, seed=i) for i in range(800)]
    held = np.mean([one.low <= truth <= one.high for one in found])
    assert least < held < 0.975


def test_a_lower_level_holds_less_often():
    rng = np.random.default_rng(0)
    samples = [np.abs(rng.normal(size=40)) for _ in range(500)]
    found = [mean_interval(one, level=0.5, resamples=300, seed=i) for i, one in enumerate(samples)]
    assert 0.43 < np.mean([one.low <= np.sqrt(2 / np.pi) <= one.high for one in found]) < 0.57


def test_resamples_are_as_large_as_the_group():
    errors = np.random.default_rng(0).exponential(size=400)
    found = mean_interval(errors, resamples=4000)
    width = 2 * 1.97 * errors.std() / 20  # of the mean of 400; another size has another width
    assert found.high - found.low == pytest.approx(width, rel=0.08)


def test_an_interval_depends_on_the_seed_alone(monkeypatch):
    errors = np.random.default_rng(0).exponential(size=50)
    whole = mean_interval(errors, seed=3)
    assert mean_interval(errors, seed=3) == whole
    assert mean_interval(errors, seed=4) != whole
    monkeypatch.setattr(bootstrap, "_CHUNK", 170)
    assert mean_interval(errors, seed=3) == whole


def test_too_few_samples_have_no_interval():
    assert mean_interval(np.array([])) is None
    assert mean_interval(np.array([4.0])) is None
    assert mean_interval(np.array([1.0, 3.0])) == (1.0, 3.0)


def test_what_it_cannot_use_is_refused():
    with pytest.raises(ValueError, match=r"got \(2, 1\), 0.95 and 1000"):
        mean_interval(np.ones((2, 1)))
    with pytest.raises(ValueError, match=r"level between 0 and 1.* got \(2,\), 95 and 1000"):
        mean_interval(np.ones(2), level=95)


def test_an_interval_of_the_mean_is_about_two_standard_errors_wide_on_each_side():
    values = np.random.default_rng(0).normal(5, 3, 1000)
    low, high = mean_interval(values)
    error = values.std() / np.sqrt(len(values))
    assert low == pytest.approx(values.mean() - 1.96 * error, abs=0.15 * error)
    assert high == pytest.approx(values.mean() + 1.96 * error, abs=0.15 * error)


def test_an_interval_of_r2_holds_the_r2_of_resamples_made_slowly():
    rng = np.random.default_rng(0)
    true = rng.normal(50, 9, (60, 2))
    predicted = true + rng.normal(0, 4, true.shape)
    found = []
    for _ in range(1000):
        rows = rng.integers(60, size=60)
        y, p = true[rows], predicted[rows]
        found.append(1 - ((p - y) ** 2).sum() / ((y - y.mean(axis=0)) ** 2).sum())
    slow = np.percentile(found, [2.5, 97.5])
    np.testing.assert_allclose(r2_interval(predicted, true), slow, atol=0.02)
    assert r2_interval(predicted[:5, :1], np.ones((5, 1))) is None
