"""Scores of labels that are known in part, against their definitions."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from rnc.metrics import concordance_index, hit_share

INF = math.inf
Array = NDArray[np.float64]
VALUES = st.integers(-3, 3).map(float)
ENDS = st.one_of(
    VALUES.map(lambda y: (y, y)),
    st.tuples(VALUES, VALUES).map(lambda pair: (min(pair), max(pair))),
    VALUES.map(lambda y: (y, INF)),
    VALUES.map(lambda y: (-INF, y)),
    st.just((math.nan, math.nan)),
)
SAMPLES = st.lists(st.tuples(VALUES, ENDS, st.integers(0, 4)), min_size=1, max_size=25)


def slow_concordance(guess: Array, lower: Array, upper: Array, weights: Array) -> float:
    """The definition, pair by pair."""
    right = pairs = 0.0
    for i in range(len(guess)):
        for j in range(len(guess)):
            low, high = np.nan_to_num(lower[j], nan=-INF), np.nan_to_num(upper[i], nan=INF)
            both_exact = lower[i] == upper[i] == lower[j] == upper[j]
            if i == j or both_exact or not high <= low:
                continue
            weight = weights[i] * weights[j]
            pairs += weight
            right += weight * (1.0 if guess[i] < guess[j] else 0.5 * (guess[i] == guess[j]))
    return right / pairs if pairs else math.nan


@settings(deadline=None, max_examples=100)
@given(SAMPLES)
def test_concordance_equals_the_definition(
    samples: list[tuple[float, tuple[float, float], int]],
) -> None:
    guess, ends, weights = (np.array(column, dtype=float) for column in zip(*samples, strict=True))
    lower, upper = ends.T
    ones = np.ones(len(guess))
    plain = concordance_index(guess, lower, upper)
    np.testing.assert_equal(plain, slow_concordance(guess, lower, upper, ones))
    if weights.any():
        weighted = concordance_index(guess, lower, upper, weights=weights)
        expected = slow_concordance(guess, lower, upper, weights)
        np.testing.assert_allclose(weighted, expected, rtol=1e-12)


def test_exact_labels_have_the_concordance_of_kendall() -> None:
    """C is (tau-a + 1) / 2 where nothing is tied."""
    from scipy.stats import kendalltau  # type: ignore[import-untyped]

    rng = np.random.default_rng(0)
    truth = rng.normal(size=3001)
    guess = truth + rng.normal(size=3001)
    expected = (kendalltau(guess, truth).statistic + 1) / 2
    assert concordance_index(guess, truth, truth) == pytest.approx(expected, abs=1e-12)
    assert concordance_index(-guess, truth, truth) == pytest.approx(1 - expected, abs=1e-12)


def test_a_censoring_comes_after_an_event_of_its_time() -> None:
    assert concordance_index(np.array([1.0, 2.0]), np.array([5.0, 5]), np.array([5.0, INF])) == 1
    tied = np.array([5.0, 5.0])
    assert math.isnan(concordance_index(np.array([1.0, 2.0]), tied, tied))


def test_pairs_of_several_targets_are_pooled() -> None:
    guess = np.array([[1.0, 3.0], [2.0, 2.0], [3.0, 1.0]])
    truth = np.array([[1.0, 1.0], [2.0, math.nan], [3.0, 3.0]])
    assert concordance_index(guess, truth, truth) == 3 / 4


@given(SAMPLES)
def test_hits_equal_the_definition(samples: list[tuple[float, tuple[float, float], int]]) -> None:
    guess, ends, weights = (np.array(column, dtype=float) for column in zip(*samples, strict=True))
    lower, upper = ends.T
    part = [i for i in range(len(guess)) if lower[i] < upper[i]]
    hits = [lower[i] <= guess[i] <= upper[i] for i in part]
    expected = np.mean(hits) if part else math.nan
    np.testing.assert_allclose(hit_share(guess, lower, upper), expected)
    if weights[part].any():
        expected = np.average(hits, weights=weights[part])
        np.testing.assert_allclose(hit_share(guess, lower, upper, weights=weights), expected)


def test_a_label_without_ends_is_no_hit() -> None:
    lower, upper = np.array([-INF, 3.0]), np.array([INF, 3.0])
    assert math.isnan(hit_share(np.zeros(2), lower, upper))


@pytest.mark.parametrize("score", [hit_share, concordance_index])
def test_refuses_what_is_no_interval(score: type[float]) -> None:
    with pytest.raises(ValueError, match=r"lower <= upper; got 4 and 3 in row 1. An open end is"):
        score(np.zeros(2), np.array([1.0, 4.0]), np.array([1.0, 3.0]))
    with pytest.raises(ValueError, match=r"shape \(n, t\); got \(3, 1\) and \(2, 1\)"):
        score(np.zeros(3), np.zeros(2), np.zeros(2))
    with pytest.raises(ValueError, match=r"got \(3, 1\) for upper and \(2, 1\) for lower"):
        score(np.zeros(2), np.zeros(2), np.zeros(3))
    with pytest.raises(ValueError, match="lower <= upper; got inf and inf in row 0"):
        score(np.zeros(1), np.array([INF]), np.array([INF]))
