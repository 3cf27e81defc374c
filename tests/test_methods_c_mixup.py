"""C-Mixup against the golden numbers, its definition written slowly, and its contract."""

import math
from typing import Any

import pytest
import torch
from scipy import stats
from torch import Tensor

from golden import golden_cases
from oracle import DISTANCES
from rnc.loss import circular
from rnc.methods.c_mixup import mix, partner_probabilities, partners


def seed(number: int) -> torch.Generator:
    return torch.Generator().manual_seed(number)


@pytest.mark.parametrize("case", golden_cases("cmixup"))
def test_golden_probabilities(case: dict[str, Any]) -> None:
    labels = torch.tensor(case["labels"], dtype=torch.float32)
    wanted = torch.tensor(case["sampling_probabilities"], dtype=torch.float64)
    own = partner_probabilities(labels, bandwidth=case["bandwidth"])
    torch.testing.assert_close(own, wanted, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("bandwidth", [None, 3.0])
@pytest.mark.parametrize("distance", DISTANCES)
def test_probabilities_equal_the_definition(distance: str, bandwidth: float | None) -> None:
    labels = torch.randn(7, 2, dtype=torch.float64) * 20 - 5
    named = circular(24) if distance == "circular" else distance
    rows = labels.tolist()
    d = [[DISTANCES[distance](a, b) for b in rows] for a in rows]
    spread = math.sqrt(sum(x * x for row in d for x in row) / 49 / 2)
    h = 0.2 * spread if bandwidth is None else bandwidth
    weights = torch.tensor([[math.exp(-x * x / 2 / h / h) for x in row] for row in d]).double()
    own = partner_probabilities(labels, bandwidth=bandwidth, label_distance=named)
    wanted = weights / weights.sum(dim=1, keepdim=True)
    torch.testing.assert_close(own, wanted, rtol=1e-6, atol=1e-9)


def test_the_default_bandwidth_is_a_fifth_of_the_standard_deviation() -> None:
    ages = torch.randn(50, dtype=torch.float64) * 12 + 40
    own = partner_probabilities(ages)
    deviation = ages.std(correction=0).item()
    torch.testing.assert_close(own, partner_probabilities(ages, bandwidth=0.2 * deviation))
    torch.testing.assert_close(own, partner_probabilities(-1000 * ages + 7))


def test_partners_follow_their_probabilities() -> None:
    labels = torch.tensor([0.0, 1.0, 3.0, 3.5])
    wanted = partner_probabilities(labels, bandwidth=1.5)
    draws = [partners(labels, bandwidth=1.5, generator=seed(i)) for i in range(3000)]
    drawn = torch.stack(draws)
    share = torch.stack([(drawn == j).double().mean(dim=0) for j in range(4)], dim=1)
    torch.testing.assert_close(share, wanted, rtol=0, atol=0.035)


def test_equal_labels_are_all_as_likely() -> None:
    torch.testing.assert_close(
        partner_probabilities(torch.full((4,), -7.0)), torch.full((4, 4), 0.25).double()
    )
    assert partner_probabilities(torch.tensor([3.0])).tolist() == [[1.0]]


def test_far_labels_give_finite_probabilities() -> None:
    for labels in (torch.tensor([0.0, 1e30]), torch.tensor([0.0, 1e-30]), torch.tensor([0, 10**6])):
        for bandwidth in (None, 1e-3):
            own = partner_probabilities(labels, bandwidth=bandwidth)
            torch.testing.assert_close(own.sum(dim=1), torch.ones(2).double())
            assert partners(labels, bandwidth=bandwidth).max() <= 1


@pytest.mark.parametrize("per_sample", [False, True])
@pytest.mark.parametrize("shape", [(), (3,), (2, 3, 4, 4)])
def test_x_and_targets_are_mixed_alike(shape: tuple[int, ...], per_sample: bool) -> None:
    targets = torch.rand(20, 2, dtype=torch.float64)
    x = targets.sum(dim=1).reshape(-1, *[1] * len(shape)).expand(20, *shape).clone()
    mixed, mixed_targets = mix(x, targets, bandwidth=0.5, per_sample=per_sample, generator=seed(0))
    assert mixed.shape == x.shape
    total = mixed_targets.sum(dim=1).reshape(-1, *[1] * len(shape)).expand_as(mixed)
    torch.testing.assert_close(mixed, total)
    assert not mixed.equal(x)


def shares(per_sample: bool, alpha: float, number: int) -> Tensor:
    """The part of the own sample, where the partner is the only other one."""
    n = 200 if per_sample else 8
    x = torch.eye(n, dtype=torch.float64)
    found = []
    for i in range(number):
        mixed, _ = mix(x, torch.zeros(n), alpha=alpha, per_sample=per_sample, generator=seed(i))
        found.append(mixed.diagonal()[mixed.diagonal() < 1])
    return torch.stack([f[0] for f in found]) if not per_sample else torch.cat(found)


@pytest.mark.parametrize("alpha", [0.5, 2.0])
@pytest.mark.parametrize("per_sample", [False, True])
def test_shares_are_beta(alpha: float, per_sample: bool) -> None:
    found = shares(per_sample, alpha, 3 if per_sample else 200)
    assert stats.kstest(found.numpy(), stats.beta(alpha, alpha).cdf).pvalue > 0.01


def test_a_batch_has_one_share_unless_asked() -> None:
    x, targets = torch.eye(12), torch.zeros(12)
    one, _ = mix(x, targets, generator=seed(1))
    assert len(one.diagonal()[one.diagonal() < 1].unique()) == 1
    many, _ = mix(x, targets, per_sample=True, generator=seed(1))
    assert len(many.diagonal()[many.diagonal() < 1].unique()) > 5


def test_a_generator_decides_everything() -> None:
    x, targets = torch.randn(10, 3), torch.rand(10)
    first, again, other = (mix(x, targets, generator=seed(i)) for i in (0, 0, 1))
    assert first[0].equal(again[0])
    assert first[1].equal(again[1])
    assert not first[0].equal(other[0])


def test_targets_on_a_circle_are_mixed_along_the_shorter_way() -> None:
    hours = torch.tensor([23.0, 1.0] * 10)
    _, mixed = mix(hours, hours, bandwidth=5.0, label_distance=circular(24))
    assert ((mixed - 24).abs() <= 1).logical_or(mixed.abs() <= 1).all()
    assert not mixed.equal(hours)
    yaw = torch.tensor([[0.0, 179.0], [0.0, -179.0]] * 10)
    _, mixed = mix(yaw, yaw, bandwidth=5.0, label_distance="angular")
    assert ((mixed[:, 1].abs() - 180).abs() <= 1).all()
    assert not mixed.equal(yaw)


def test_whole_numbers_become_float32_and_other_types_stay() -> None:
    images = torch.randint(0, 256, (6, 3, 4, 4), dtype=torch.uint8)
    x, y = mix(images, torch.arange(6))
    assert (x.dtype, y.dtype) == (torch.float32, torch.float32)
    assert x.min() >= 0
    assert x.max() <= 255
    x, y = mix(torch.rand(6, 3).half(), torch.rand(6, 1).double())
    assert (x.dtype, y.dtype) == (torch.float16, torch.float64)
    assert y.shape == (6, 1)


def test_errors_say_what_to_do() -> None:
    x, targets = torch.randn(4, 3), torch.rand(4)
    with pytest.raises(ValueError, match=r"same n .*; got \(4, 3\) on cpu and \(3,\) on cpu"):
        mix(x, targets[:3])
    with pytest.raises(ValueError, match=r"alpha must be a positive number; got 0"):
        mix(x, targets, alpha=0)
    with pytest.raises(ValueError, match=r"bandwidth must be a positive number, or None; got 0"):
        mix(x, targets, bandwidth=0)
    with pytest.raises(ValueError, match=r"c_mixup needs finite targets; .* \(rows 3\)"):
        partners(torch.tensor([0.0, 1.0, 2.0, torch.nan]))
    with pytest.raises(ValueError, match=r"at least one sample and one target; got \(0,\)"):
        partners(torch.zeros(0))
    with pytest.raises(ValueError, match=r"'angular' needs two targets.* got \(4, 1\)"):
        partners(targets, label_distance="angular")
