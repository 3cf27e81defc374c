import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from golden import golden_cases
from rnc import circular, rnc_loss
from rnc.loss.theory import (
    epsilon,
    gamma,
    gap,
    ideal_embedding,
    is_delta_ordered,
    lower_bound,
    margin,
)


@pytest.mark.parametrize("case", golden_cases("theory"))
def test_golden_bound_and_epsilon(case: dict[str, Any]) -> None:
    targets = torch.tensor(case["labels_n"], dtype=torch.float64)
    assert lower_bound(targets, views=2).item() == pytest.approx(case["Lstar"], rel=1e-9)
    twice = torch.tensor(case["labels_2n"], dtype=torch.float64)
    assert lower_bound(twice).item() == pytest.approx(case["Lstar"], rel=1e-9)
    for delta, expected in case["epsilon"].items():
        assert epsilon(targets, float(delta), views=2).item() == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("case", golden_cases("theory"))
def test_golden_ideal_embedding(case: dict[str, Any]) -> None:
    targets = torch.tensor(case["labels_n"], dtype=torch.float64)
    for golden in case["sqrt_embedding"]:
        features = ideal_embedding(targets, scale=golden["scale"])[:, None].expand(-1, 2, -1)
        loss = rnc_loss(features, targets, temperature=case["temperature"])
        assert loss.item() == pytest.approx(golden["loss"], rel=1e-9)
        excess = gap(features, targets, temperature=case["temperature"])
        assert excess.item() == pytest.approx(golden["excess"], abs=1e-9)
        for delta, expected in golden["delta_ordered"].items():
            ordered = is_delta_ordered(
                features, targets, float(delta), temperature=case["temperature"]
            )
            assert ordered is expected


def slow_is_ordered(similarities: torch.Tensor, distances: torch.Tensor, delta: float) -> bool:
    s, d = similarities.tolist(), distances.tolist()
    for i in range(len(s)):
        others = [k for k in range(len(s)) if k != i]
        for j in others:
            for k in others:
                if d[i][j] < d[i][k] and not s[i][j] > s[i][k] + 1 / delta:
                    return False
                if j != k and d[i][j] == d[i][k] and not abs(s[i][j] - s[i][k]) < delta:
                    return False
    return True


@settings(max_examples=150, deadline=None)
@given(
    n=st.integers(2, 7),
    scale=st.sampled_from([0.1, 2.0, 8.0, 40.0]),
    noise=st.sampled_from([0.0, 0.05, 1.0]),
    delta=st.sampled_from([0.3, 0.6, 0.9]),
    seed=st.integers(0, 10_000),
)
def test_order_is_found_as_by_definition(
    n: int, scale: float, noise: float, delta: float, seed: int
) -> None:
    torch.manual_seed(seed)
    targets = torch.randint(0, 4, (n, 1)).double()
    features = ideal_embedding(targets, scale=scale)
    features = features + noise * torch.randn_like(features)
    distances = (targets - targets.T).abs()
    similarities = -(features[:, None] - features).norm(dim=2) / 2.0
    expected = slow_is_ordered(similarities, distances, delta)
    assert is_delta_ordered(features, targets, delta) is expected


@pytest.mark.parametrize("seed", range(20))
def test_margin_is_the_smallest_lead_by_definition(seed: int) -> None:
    torch.manual_seed(seed)
    targets = torch.randint(0, 4, (6,))
    features = torch.randn(6, 2, dtype=torch.float64)
    d = (targets[:, None] - targets).abs()
    s = -(features[:, None] - features).norm(dim=2) / 0.5
    triplets = [(i, j, k) for i in range(6) for j in range(6) for k in range(6) if i not in (j, k)]
    leads = [s[i, j] - s[i, k] for i, j, k in triplets if d[i, j] < d[i, k]]
    expected = min(leads).item() if leads else math.inf
    assert margin(features, targets, temperature=0.5).item() == pytest.approx(expected, abs=1e-12)


def test_no_two_distances_leave_an_infinite_margin() -> None:
    assert margin(torch.randn(4, 2), torch.ones(4)).item() == math.inf


@pytest.mark.parametrize(
    ("targets", "views", "rows", "smallest_group"),
    [
        ([1.0, 2.0, 4.0], 1, 3, 1),  # no ties
        ([1.0, 2.0, 4.0], 2, 6, 1),  # the other view of the anchor
        ([5.0, 5.0, 5.0], 1, 3, 2),
        ([5.0, 5.0, 5.0], 2, 6, 5),
        ([0.0, 0.0, 1.0, 1.0], 3, 12, 5),  # 5 equal ones and 6 others
    ],
)
def test_gamma_of_explicit_batches(
    targets: list[float], views: int, rows: int, smallest_group: int
) -> None:
    found = gamma(torch.tensor(targets), 0.01, views=views)
    assert found.item() == pytest.approx(math.log(rows / (smallest_group * 0.01)), rel=1e-12)


def test_the_anchor_is_in_no_group_of_gamma() -> None:
    hours = torch.tensor([0.0, 8.0, 16.0])  # seen from each, the two others tie
    found = gamma(hours, 0.1, label_distance=circular(period=24))
    assert found.item() == pytest.approx(math.log(3 / (2 * 0.1)), rel=1e-12)


@settings(max_examples=100, deadline=None)
@given(
    n=st.integers(2, 8),
    views=st.integers(1, 2),
    excess=st.sampled_from([1e-9, 0.01, 0.5, 2.0]),
    seed=st.integers(0, 10_000),
)
def test_a_margin_above_gamma_brings_the_loss_within_the_excess(
    n: int, views: int, excess: float, seed: int
) -> None:
    torch.manual_seed(seed)
    targets = torch.randint(0, 6, (n,))
    needed = gamma(targets, excess, views=views).item()
    unit = ideal_embedding(targets)[:, None].expand(-1, views, -1)
    features = unit * (1.001 * max(needed, 0.01) / min(1e3, margin(unit, targets).item()))
    assert margin(features, targets) > needed
    assert gap(features, targets) < excess


def test_a_tenth_of_the_margin_is_not_enough() -> None:
    targets = torch.tensor([1.0, 2.0, 4.0])
    unit = ideal_embedding(targets)
    scale = gamma(targets, 0.01) / margin(unit, targets)
    assert gap(1.001 * scale * unit, targets) < 0.01 < gap(0.1 * scale * unit, targets)


def test_gamma_is_finite_for_the_smallest_excess_and_refuses_none() -> None:
    assert 744 < gamma(torch.arange(3), 5e-324).item() < 746
    for excess in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(ValueError, match=f"finite excess above 0; got {excess}"):
            gamma(torch.arange(3), excess)


def slow_violations(similarities: torch.Tensor, distances: torch.Tensor, delta: float) -> int:
    """Groups that spread by delta, and samples of other groups that do not lead by 1/delta."""
    s, d = similarities.tolist(), distances.tolist()
    found = 0
    for i in range(len(s)):
        others = [k for k in range(len(s)) if k != i]
        for distance in {d[i][j] for j in others}:
            group = [s[i][j] for j in others if d[i][j] == distance]
            farther = [s[i][k] for k in others if d[i][k] > distance]
            if max(group) - min(group) >= delta:
                found += 1
            elif farther:
                found += sum(one <= max(farther) + 1 / delta for one in group)
    return found


@settings(max_examples=100, deadline=None)
@given(
    n=st.integers(2, 7),
    scale=st.sampled_from([0.1, 2.0, 8.0, 40.0]),
    delta=st.sampled_from([0.3, 0.6, 0.9]),
    seed=st.integers(0, 10_000),
)
def test_no_more_violations_than_gap_over_epsilon(
    n: int, scale: float, delta: float, seed: int
) -> None:
    torch.manual_seed(seed)
    targets = torch.randint(0, 4, (n, 1)).double()
    features = ideal_embedding(targets, scale=scale)
    features = features + 0.3 * torch.randn_like(features)
    similarities = -(features[:, None] - features).norm(dim=2) / 2.0
    violations = slow_violations(similarities, (targets - targets.T).abs(), delta)
    assert violations <= gap(features, targets) / epsilon(targets, delta) + 1e-6
    assert (violations == 0) is is_delta_ordered(features, targets, delta)


@settings(max_examples=100, deadline=None)
@given(n=st.integers(2, 12), views=st.integers(1, 2), seed=st.integers(0, 10_000))
def test_no_loss_is_below_the_bound(n: int, views: int, seed: int) -> None:
    torch.manual_seed(seed)
    targets = torch.randint(0, 5, (n,))
    features = torch.randn(n, views, 6, dtype=torch.float64) * 10 ** float(torch.randn(()))
    if n * views > 1:
        assert gap(features, targets) >= -1e-12


def test_a_loss_within_epsilon_of_the_bound_means_order() -> None:
    targets = torch.tensor([[3.0, 1.0], [5.0, 5.0], [0.0, 1.0], [1.0, 1.0]])
    proven = []
    for scale in (1.0, 10.0, 100.0, 1000.0):
        features = ideal_embedding(targets, scale=scale)
        for delta in (0.1, 0.5, 0.9):
            if gap(features, targets) < epsilon(targets, delta):
                proven.append(is_delta_ordered(features, targets, delta))
    assert len(proven) >= 3
    assert all(proven)


def test_the_ideal_embedding_has_square_root_distances() -> None:
    targets = torch.randint(-5, 5, (9, 3)).double()
    features = ideal_embedding(targets, scale=3.0)
    expected = 3.0 * (targets[:, None] - targets).abs().sum(2).sqrt()
    measured = (features[:, None] - features).norm(dim=2)
    torch.testing.assert_close(measured, expected, rtol=1e-12, atol=1e-12)


def test_equal_labels_embed_in_one_point() -> None:
    features = ideal_embedding(torch.ones(4))
    assert features.shape == (4, 1)
    assert gap(features, torch.ones(4)).abs() < 1e-12


def test_a_tolerance_joins_groups_that_rounding_split() -> None:
    tenths = torch.arange(5) / 10
    assert lower_bound(tenths) < lower_bound(torch.arange(5))
    assert lower_bound(tenths, tie_tolerance=1e-6) == lower_bound(torch.arange(5))


@pytest.mark.parametrize("delta", [0.0, 1.0, -0.5, float("nan")])
def test_delta_outside_its_range_is_refused(delta: float) -> None:
    with pytest.raises(ValueError, match=f"between 0 and 1, exclusive; got {delta}"):
        epsilon(torch.arange(3), delta)
    with pytest.raises(ValueError, match=f"between 0 and 1, exclusive; got {delta}"):
        is_delta_ordered(torch.randn(3, 2), torch.arange(3), delta)


def test_one_row_has_no_bound() -> None:
    with pytest.raises(ValueError, match=r"at least two rows .* of targets; got 1\."):
        lower_bound(torch.ones(1))
