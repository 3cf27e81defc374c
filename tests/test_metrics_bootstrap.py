"""Bootstrap intervals: how often they hold the truth, and their definition."""

import numpy as np
import pytest

from rnc.metrics import bootstrap
from rnc.metrics.bootstrap import mean_interval, r2_interval, repeated_interval


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


# ----------------------------------------------------------------- pairs, groups and repetitions


def test_a_change_is_resampled_in_pairs():
    rng = np.random.default_rng(0)
    reference = rng.exponential(size=(1, 300))
    values = 0.9 * reference + rng.normal(0, 0.02, (1, 300))
    low, high = repeated_interval(values, reference)
    assert -0.11 < low < -0.1 < high < -0.09
    alone = repeated_interval(values)
    assert high - low < (alone.high - alone.low) / 10


def test_a_change_is_the_ratio_of_means_of_resamples_made_slowly():
    rng = np.random.default_rng(0)
    values, reference = rng.exponential(size=(3, 60)), rng.exponential(size=(3, 60))
    values[2] *= 1.5
    groups = np.array(list("abcdefghijkl") * 5)
    found = []
    for _ in range(4000):
        drawn, seeds = rng.choice(list("abcdefghijkl"), 12), rng.choice(3, 3)
        rows = np.concatenate([np.flatnonzero(groups == one) for one in drawn])
        picked = np.ix_(seeds, rows)
        found.append(values[picked].mean() / reference[picked].mean() - 1)
    slow = np.quantile(found, [0.0108, 0.9892])  # Student's t with 11 degrees of freedom
    fast = repeated_interval(values, reference, groups=groups, resamples=4000)
    np.testing.assert_allclose(fast, slow, atol=0.04)


def test_one_training_on_samples_that_stand_alone_is_as_the_plain_interval():
    values = np.random.default_rng(0).exponential(size=40)
    plain = mean_interval(values)
    assert repeated_interval(values[None]) == pytest.approx(plain)
    assert repeated_interval(values[None], groups=np.arange(40)) == pytest.approx(plain)


def test_samples_that_belong_together_widen_the_interval():
    persons = np.repeat(np.arange(10), 50)
    values = np.random.default_rng(0).exponential(size=10)[persons][None]
    together, apart = repeated_interval(values, groups=persons), repeated_interval(values)
    assert together.high - together.low > 4 * (apart.high - apart.low)


def test_trainings_that_differ_widen_the_interval():
    errors = np.random.default_rng(0).exponential(size=2000)
    alike, different = (np.array([[1 - d], [1.0], [1 + d]]) * errors for d in (0.0, 0.3))
    a, b = repeated_interval(alike, np.tile(errors, (3, 1))), repeated_interval(different, alike)
    assert a == pytest.approx((0, 0))
    # of three trainings the mean deviates by 0.3 / sqrt(3) x 0.82, twice to each side
    assert b.high - b.low == pytest.approx(4 * 0.3 / np.sqrt(3) * 0.82, rel=0.15)


def test_most_intervals_of_few_groups_hold_the_true_change():
    rng = np.random.default_rng(0)
    persons, held = np.repeat(np.arange(12), 8), 0
    for i in range(400):
        shared = rng.exponential(size=12)[persons][None]
        values = 0.8 * shared * rng.uniform(0.8, 1.2, 12)[persons]
        low, high = repeated_interval(values, shared, groups=persons, resamples=400, seed=i)
        held += low <= -0.2 <= high
    assert 0.92 < held / 400 < 0.99


def test_blocks_of_resamples_do_not_change_an_interval(monkeypatch):
    errors = np.random.default_rng(0).exponential(size=(3, 50))
    whole = repeated_interval(errors, seed=3)
    assert repeated_interval(errors, seed=4) != whole
    monkeypatch.setattr(bootstrap, "_CHUNK", 170)
    assert repeated_interval(errors, seed=3) == whole


def test_a_change_that_is_not_defined_has_no_interval():
    assert repeated_interval(np.ones((1, 1)), np.ones((1, 1))) is None
    assert repeated_interval(np.ones((0, 4))) is None
    assert repeated_interval(np.ones((2, 0))) is None
    assert repeated_interval(np.ones((1, 4)), groups=np.array(["a"] * 4)) is None
    assert repeated_interval(np.ones((1, 4)), np.zeros((1, 4))) is None


def test_pairs_must_have_one_shape():
    with pytest.raises(ValueError, match=r"reference of the shape .* \(1, 3\); got \(1, 2\)"):
        repeated_interval(np.ones((1, 3)), np.ones((1, 2)))
    with pytest.raises(ValueError, match=r"groups \(3,\), one per sample; got \(4,\)"):
        repeated_interval(np.ones((1, 3)), groups=np.arange(4))
    with pytest.raises(ValueError, match=r"values \(k, n\).* got \(3,\), 0.95 and 1000"):
        repeated_interval(np.ones(3))
