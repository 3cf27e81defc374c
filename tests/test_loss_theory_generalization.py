"""From batches to all data, and appendix B: explicit cases, and the definitions written slowly."""

import math
from itertools import combinations, product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from rnc.loss.theory import epsilon, gap, ideal_embedding, is_delta_ordered
from rnc.loss.theory_generalization import (
    TripletCount,
    complexity_of_all_functions,
    count_triplets,
    gap_for_all,
    generalization_bound,
    is_delta_monotonic,
    markov_bound,
    rademacher_complexity,
    triplet_share,
    unordered_batches,
)

LABELS = torch.tensor([0.0, 1.0, 3.0, 7.0, 20.0, 60.0])
DELTA = 0.9


class Lookup:
    """Similarities as they are given: a feature is the number of its sample."""

    def __init__(self, lead: float) -> None:
        """Everyone leads by 40 over the next farther one, but sample 2 over 3, seen from 0."""
        distances = (LABELS[:, None] - LABELS).abs()
        self.similarities = -80.0 * distances.argsort(dim=1).argsort(dim=1).double()
        self.similarities[0, 3] = self.similarities[0, 2] - 2 * lead  # temperature 2

    def __call__(self, a: Tensor, b: Tensor) -> Tensor:
        return self.similarities[a.long(), b.long().T]


def batches_of(size: int) -> list[Tensor]:
    return [torch.tensor(rows) for rows in combinations(range(len(LABELS)), size)]


def gaps_of(similarity: Lookup, size: int) -> Tensor:
    gaps = [gap(r[:, None].double(), LABELS[r], similarity=similarity) for r in batches_of(size)]
    return torch.stack(gaps)


def are_ordered(similarity: Lookup, size: int) -> list[bool]:
    return [
        is_delta_ordered(r[:, None].double(), LABELS[r], DELTA, similarity=similarity)
        for r in batches_of(size)
    ]


# ------------------------------------------------------------------------- from batches to all data


@pytest.mark.parametrize("threshold", [0.001, 0.02, 0.05, 0.3])
def test_no_more_batches_reach_a_threshold_than_markov_says(threshold: float) -> None:
    features = ideal_embedding(LABELS, scale=8.0)
    gaps = torch.stack([gap(features[rows], LABELS[rows]) for rows in batches_of(3)])
    share = (gaps >= threshold).double().mean().item()
    assert share <= markov_bound(gaps.mean().item(), threshold) <= 1


def test_markov_is_reached_by_a_number_that_is_0_or_the_threshold() -> None:
    values = torch.tensor([0.0, 0.0, 0.0, 5.0])
    assert markov_bound(values.mean().item(), 5.0) == 0.25
    assert markov_bound(7.0, 5.0) == 1.0
    assert markov_bound(0.0, 5e-324) == 0.0


@pytest.mark.parametrize(("lead", "share"), [(1.0, 0.05), (1.2, 0.0)])
def test_one_triplet_spoils_the_batches_that_hold_it(lead: float, share: float) -> None:
    similarity = Lookup(lead)
    unordered = 1 - sum(are_ordered(similarity, 3)) / 20
    assert unordered == pytest.approx(share)  # 1.2 is above 1/delta, 1.0 is not
    epsilons = torch.stack([epsilon(LABELS[rows], DELTA) for rows in batches_of(3)])
    bound = unordered_batches(gaps_of(similarity, 3), epsilons)
    assert share <= bound < 0.2


def test_a_gap_below_0_is_rounding_and_counts_as_0() -> None:
    assert unordered_batches(torch.tensor([-1e-7, 1e-9]), torch.tensor([1e-8, 1e-8])) == (
        pytest.approx(0.05)
    )


@pytest.mark.parametrize("size", [3, 4, 6])
def test_the_share_of_batches_that_hold_a_triplet(size: int) -> None:
    holding = [rows for rows in combinations(range(6), size) if {1, 3, 4} <= set(rows)]
    assert triplet_share(6, size) == pytest.approx(len(holding) / math.comb(6, size))


def test_a_mean_gap_below_that_for_all_means_that_all_are_ordered() -> None:
    needed = gap_for_all(DELTA, len(LABELS), 3)
    outcomes = []
    for lead in (-5.0, 0.5, 1.0, 1.1, 1.2, 5.0, 20.0, 40.0):
        similarity = Lookup(lead)
        is_proven = gaps_of(similarity, 3).mean().item() < needed
        (is_true,) = are_ordered(similarity, len(LABELS))
        assert is_true or not is_proven
        outcomes.append((is_proven, is_true))
    assert {(False, False), (True, True)} <= set(outcomes)


def test_epsilon_for_all_is_that_of_the_worst_labels() -> None:
    for targets in product(range(3), repeat=4):
        for views in (1, 2):
            least = gap_for_all(0.5, 4, 4, views=views)  # one batch: a share of 1
            assert least <= epsilon(torch.tensor(targets), 0.5, views=views).item() * (1 + 1e-12)


# ------------------------------------------------------------------------ delta-monotonic functions


def slow_count(s: list[list[float]], e: list[list[float]], delta: float) -> TripletCount:
    """The three conditions of appendix B, for every i, j and k; each pair is met twice."""
    apart = apart_broken = alike = alike_broken = 0
    for i, j, k in product(range(len(s)), repeat=3):
        if len({i, j, k}) < 3:
            continue
        if s[i][j] > s[i][k] + 1 / delta:
            apart, apart_broken = apart + 1, apart_broken + (not e[i][j] < e[i][k])
        elif abs(s[i][j] - s[i][k]) < delta:
            alike, alike_broken = alike + 1, alike_broken + (e[i][j] != e[i][k])
        elif s[i][j] < s[i][k] - 1 / delta:
            apart, apart_broken = apart + 1, apart_broken + (not e[i][j] > e[i][k])
    return TripletCount(apart // 2, apart_broken // 2, alike // 2, alike_broken // 2)


@settings(max_examples=80, deadline=None)
@given(
    n=st.integers(1, 6),
    scale=st.sampled_from([0.5, 3.0, 20.0]),
    delta=st.sampled_from([0.3, 0.9]),
    seed=st.integers(0, 10_000),
)
def test_triplets_are_counted_as_by_definition(
    n: int, scale: float, delta: float, seed: int
) -> None:
    torch.manual_seed(seed)
    features = scale * torch.randn(n, 2, dtype=torch.float64)
    predictions = torch.randint(0, 4, (n, 1)).double()
    s = -(features[:, None] - features).norm(dim=2) / 2.0
    expected = slow_count(s.tolist(), (predictions - predictions.T).abs().tolist(), delta)
    found = count_triplets(features, predictions, delta)
    assert found == expected
    assert is_delta_monotonic(features, predictions, delta) is (expected[1] + expected[3] == 0)


@pytest.mark.parametrize("seed", range(10))
def test_on_ordered_features_a_function_is_monotonic_if_it_orders_as_the_labels_do(
    seed: int,
) -> None:
    torch.manual_seed(seed)
    targets = torch.randint(0, 5, (5,)).double()
    features = ideal_embedding(targets, scale=200.0)
    assert is_delta_ordered(features, targets, DELTA)
    label_order = (targets[:, None] - targets).abs()
    for predictions in (targets, 3 - 2 * targets, torch.randint(0, 5, (5,)).double()):
        order = (predictions[:, None] - predictions).abs()
        expected = all(
            torch.sign(label_order[i, j] - label_order[i, k])
            == torch.sign(order[i, j] - order[i, k])
            for i, j, k in product(range(5), repeat=3)
            if len({i, j, k}) == 3
        )
        assert is_delta_monotonic(features, predictions, DELTA) is expected
    assert is_delta_monotonic(features, targets, DELTA)  # the optimal hypothesis is in the class


def test_similarities_between_delta_and_its_inverse_constrain_nothing() -> None:
    features = torch.tensor([[0.0], [4.0], [10.0]])  # similarities differ by 1, 2 and 3
    predictions = torch.tensor([0.0, 9.0, 1.0])
    assert count_triplets(features, predictions, 0.3) == TripletCount(0, 0, 0, 0)
    assert is_delta_monotonic(features, predictions, 0.3)
    assert count_triplets(features, predictions, 0.4) == TripletCount(1, 1, 0, 0)  # 1/delta: 2.5


def test_a_tolerance_makes_distances_of_predictions_equal() -> None:
    features = torch.tensor([[-5.0], [0.0], [5.0]])
    predictions = torch.tensor([-1.0, 0.0, 1.001])  # the outer two tie, seen from the middle
    assert not is_delta_monotonic(features, predictions, 0.5)
    assert is_delta_monotonic(features, predictions, 0.5, tie_tolerance=0.01)
    assert not is_delta_monotonic(features, predictions, 0.5, tie_tolerance=2.0)  # all are equal


# ------------------------------------------------------------------------------- Rademacher's bound


@pytest.mark.parametrize(
    ("losses", "expected"),
    [
        ([[4.0, 1.0, 2.0]], 0.0),
        ([[3.0], [-3.0]], 3.0),
        ([[1.0, 1.0], [-1.0, -1.0]], 0.5),  # |sum of two signs| / 2
        ([[1.0, 0.0], [0.0, 1.0]], 0.25),  # the larger of two signs, / 2: 1, 1, 1, -1
        (list(product([0.0, 1.0], repeat=4)), 0.5),
    ],
)
def test_complexity_of_explicit_sets(losses: list[list[float]], expected: float) -> None:
    assert rademacher_complexity(torch.tensor(losses)) == pytest.approx(expected, abs=1e-12)


def test_complexity_scales_and_does_not_see_a_shift_or_a_mixture() -> None:
    torch.manual_seed(0)
    losses = torch.rand(5, 6, dtype=torch.float64)
    value = rademacher_complexity(losses)
    assert rademacher_complexity(3 * losses + torch.rand(6)) == pytest.approx(3 * value)
    mixed = torch.cat([losses, losses.mean(dim=0, keepdim=True)])
    assert rademacher_complexity(mixed) == pytest.approx(value)
    massart = (losses - losses.mean(0)).norm(dim=1).max() * math.sqrt(2 * math.log(5)) / 6
    assert 0 < value <= massart.item()
    assert rademacher_complexity(losses[:3]) < value  # fewer hypotheses


def test_drawn_signs_come_close_to_all_signs() -> None:
    torch.manual_seed(0)
    losses = torch.rand(20, 10, dtype=torch.float64)
    exact = rademacher_complexity(losses, draws=1024)
    assert exact == rademacher_complexity(losses, draws=1024, seed=1)
    drawn = rademacher_complexity(losses, draws=1023)
    assert drawn != exact
    assert drawn == pytest.approx(exact, rel=0.1)
    assert drawn == rademacher_complexity(losses, draws=1023)
    assert drawn != rademacher_complexity(losses, draws=1023, seed=1)


def test_fewer_functions_are_delta_monotonic_and_their_bound_is_lower() -> None:
    """Appendix B on three samples: all functions to 0..3, and those that keep the order."""
    targets = torch.tensor([0.0, 1.0, 3.0])
    features = ideal_embedding(targets, scale=100.0)
    assert is_delta_ordered(features, targets, DELTA)
    every = torch.tensor(list(product([0.0, 1.0, 2.0, 3.0], repeat=3)))
    kept = torch.tensor([is_delta_monotonic(features, one, DELTA) for one in every])
    assert every[kept].tolist() == [[0, 1, 3], [3, 2, 0]]
    losses = (every - targets).abs()
    all_functions = rademacher_complexity(losses)
    assert all_functions == pytest.approx(complexity_of_all_functions(targets, 0.0, 3.0))
    assert all_functions == pytest.approx((3 + 2 + 3) / 6)
    monotonic = rademacher_complexity(losses[kept])
    assert monotonic == pytest.approx(1.75 / 3)  # half the mean of |3 s1 + s2 + 3 s3|, over 3
    wide = generalization_bound(all_functions, losses.max().item(), 3)
    narrow = generalization_bound(monotonic, losses[kept].max().item(), 3)
    assert narrow < wide


def test_the_bound_is_the_formula() -> None:
    expected = 2 * 0.5 + 4 * 2.0 * math.sqrt(2 * math.log(400) / 50)
    assert generalization_bound(0.5, 2.0, 50, failure=0.01) == pytest.approx(expected, rel=1e-12)


# ----------------------------------------------------------------------------------------- refusals


def test_numbers_that_bound_nothing_are_refused() -> None:
    with pytest.raises(ValueError, match=r"threshold above 0, both finite; got 0\.1 and 0\.0\."):
        markov_bound(0.1, 0.0)
    with pytest.raises(ValueError, match=r"mean of at least 0 .* got -0\.1 and 1\.0\."):
        markov_bound(-0.1, 1.0)
    with pytest.raises(ValueError, match=r"one epsilon per batch; got shapes \(2,\) and \(3,\)"):
        unordered_batches(torch.ones(2), torch.ones(3))
    with pytest.raises(ValueError, match=r"3 <= batch_size <= samples; got 7 and 6"):
        triplet_share(6, 7)
    with pytest.raises(ValueError, match=r"between 0 and 1, exclusive; got 1\.0"):
        gap_for_all(1.0, 6, 3)
    with pytest.raises(ValueError, match=r"got inf and 1\.0\. A loss without a bound"):
        generalization_bound(math.inf, 1.0, 5)
    with pytest.raises(ValueError, match=r"failure between 0 and 1; got 0 and 0\.05"):
        generalization_bound(0.0, 1.0, 0)


def test_samples_that_fit_no_definition_are_refused() -> None:
    with pytest.raises(ValueError, match=r"between 0 and 1, exclusive; got 0\.0"):
        count_triplets(torch.randn(3, 2), torch.ones(3), 0.0)
    with pytest.raises(ValueError, match=r"at least 0; got -1\.0"):
        count_triplets(torch.randn(3, 2), torch.ones(3), 0.5, tie_tolerance=-1.0)
    with pytest.raises(ValueError, match=r"with the same n; got \(3, 2\) and \(4,\)"):
        count_triplets(torch.randn(3, 2), torch.ones(4), 0.5)
    with pytest.raises(ValueError, match=r"got shape \(1, 2\) with 1 not finite"):
        rademacher_complexity(torch.tensor([[1.0, math.nan]]))
    with pytest.raises(ValueError, match="at least one draw; got 0"):
        rademacher_complexity(torch.ones(1, 2), draws=0)
    with pytest.raises(ValueError, match=r"within 0\.0 to 1\.0; got 0\.5 to 2\.0\. Widen"):
        complexity_of_all_functions(torch.tensor([0.5, 2.0]), 0.0, 1.0)
    with pytest.raises(ValueError, match=r"one target of at least one sample; got \(2, 2\)"):
        complexity_of_all_functions(torch.ones(2, 2), 0.0, 1.0)
