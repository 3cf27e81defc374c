"""Weighted scores equal scikit-learn's, repeated samples, and plain ones for equal weights."""

import math
from typing import Any

import numpy as np
import pytest
from sklearn import metrics as theirs

from rnc import metrics
from rnc.metrics.bootstrap import mean_interval, r2_interval

rng = np.random.default_rng(0)
TRUTH, GUESS = rng.integers(0, 30, (60, 2)).astype(float), rng.normal(10, 8, (60, 2))
WEIGHTS = rng.integers(0, 4, 60).astype(float)


def repeated(values: np.ndarray) -> np.ndarray:
    return values.repeat(WEIGHTS.astype(int), axis=0)


@pytest.mark.parametrize("score", [metrics.mae, metrics.mse, metrics.rmse, metrics.r2])
def test_equal_to_scikit_learn(score: Any) -> None:
    name = {"mae": "mean_absolute_error", "mse": "mean_squared_error"}
    name |= {"rmse": "root_mean_squared_error", "r2": "r2_score"}
    for i in range(2):
        expected = getattr(theirs, name[score.__name__])(
            TRUTH[:, i], GUESS[:, i], sample_weight=WEIGHTS
        )
        assert score(GUESS[:, i], TRUTH[:, i], weights=WEIGHTS) == pytest.approx(expected)


@pytest.mark.parametrize("angles", [False, True])
def test_whole_weights_are_repeated_samples(angles: bool) -> None:
    train = TRUTH[:40]
    weighted = metrics.regression_scores(
        GUESS, TRUTH, train, angles=angles, weights=3e200 * WEIGHTS
    )
    plain = metrics.regression_scores(repeated(GUESS), repeated(TRUTH), train, angles=angles)
    assert weighted == pytest.approx(plain)
    hours = {"period": 24.0}
    assert metrics.circular_error(GUESS, TRUTH, weights=WEIGHTS, **hours) == pytest.approx(
        metrics.circular_error(repeated(GUESS), repeated(TRUTH), **hours)
    )


def test_shots_are_weighted_within_their_group_and_count_samples() -> None:
    guess, truth, train = GUESS[:, 0], TRUTH[:, 0], np.repeat(np.arange(15), 30)
    weighted = metrics.shot_scores(guess, truth, train, weights=WEIGHTS)
    plain = metrics.shot_scores(guess, truth, train)
    again = metrics.shot_scores(repeated(guess), repeated(truth), train)
    assert set(weighted) == {"medium", "few"}
    for shot, scores in weighted.items():
        assert scores.pop("n") == plain[shot]["n"]
        assert scores == pytest.approx({k: v for k, v in again[shot].items() if k != "n"})
    only_few = np.where(truth < 15, 0.0, 1.0)
    assert set(metrics.shot_scores(guess, truth, train, weights=only_few)) == {"few"}


def test_equal_weights_are_no_weights() -> None:
    equal, train = np.full(60, 0.3), TRUTH[:40]
    weighted = metrics.regression_scores(GUESS, TRUTH, train, weights=equal)
    assert weighted == pytest.approx(metrics.regression_scores(GUESS, TRUTH, train), rel=1e-14)


def test_an_error_of_0_that_weighs_nothing_leaves_the_geometric_mean() -> None:
    guess, truth = np.array([1.0, 4.0, 0.0]), np.zeros(3)
    assert metrics.geometric_mean_error(guess, truth) == 0
    found = metrics.geometric_mean_error(guess, truth, weights=np.array([1.0, 1.0, 0.0]))
    assert found == pytest.approx(2.0)


@pytest.mark.parametrize("weights", [np.zeros(60), -np.ones(60), np.ones(59)])
def test_bad_weights_are_refused(weights: np.ndarray) -> None:
    with pytest.raises(ValueError, match=r"weights must be 60 numbers, one per row, not negative"):
        metrics.mae(GUESS, TRUTH, weights=weights)


# --------------------------------------------------------------------------------- intervals


def test_intervals_lie_around_the_weighted_score_and_ignore_what_weighs_nothing() -> None:
    values = rng.exponential(size=80)
    weights = np.where(np.arange(80) < 40, 1.0, 0.0)
    ends = mean_interval(values, weights=weights)
    alone = mean_interval(values[:40])
    assert ends is not None
    assert alone is not None
    assert ends == pytest.approx(alone)
    assert mean_interval(values, weights=np.eye(80)[0]) is None


def test_a_few_heavy_samples_are_few_samples() -> None:
    values = rng.normal(size=100)
    widths = []
    for heavy in (100, 5):
        ends = mean_interval(values, weights=np.where(np.arange(100) < heavy, 1.0, 1e-3))
        assert ends is not None
        widths.append(ends.high - ends.low)
    assert widths[1] > 3 * widths[0]


def test_a_weighted_interval_holds_the_mean_as_often_as_it_says() -> None:
    holds = 0
    for seed in range(200):
        draw = np.random.default_rng(seed)
        ends = mean_interval(draw.normal(size=60), weights=draw.exponential(size=60), resamples=300)
        assert ends is not None
        holds += ends.low <= 0 <= ends.high
    assert 0.9 < holds / 200 < 0.99


def test_the_interval_of_r2_takes_weights() -> None:
    guess, weights = TRUTH + rng.normal(0, 3, TRUTH.shape), WEIGHTS + 0.1
    ends = r2_interval(guess, TRUTH, weights=weights)
    assert ends is not None
    assert ends.low < metrics.r2(guess, TRUTH, weights=weights) < ends.high
    equal, plain = r2_interval(guess, TRUTH, weights=np.full(60, 0.3)), r2_interval(guess, TRUTH)
    assert equal == pytest.approx(plain)
    assert r2_interval(guess, TRUTH, weights=np.eye(60)[0]) is None


def test_weights_of_another_length_are_refused() -> None:
    with pytest.raises(ValueError, match=r"weights \(3,\), one per value.*got \(2,\)"):
        mean_interval(np.ones(3), weights=np.ones(2))
    assert math.isnan(metrics.r2(np.ones(2), np.ones(2), weights=np.ones(2)))
