"""RankSim against the golden numbers, its definition written slowly, and its contract."""

from typing import Any

import pytest
import torch
from torch import Tensor

from golden import golden_cases
from oracle import DISTANCES
from rnc.loss import circular
from rnc.methods.ranksim import ranksim_loss


def slow_ranks(row: list[float]) -> list[float]:
    """From 1 for the largest, divided by the length; equal numbers share the average."""
    return [(sum(b > a for b in row) + sum(b >= a for b in row) + 1) / 2 / len(row) for a in row]


def slow_loss_and_gradient(
    features: Tensor, labels: list[list[float]], interpolation: float, weight: float, distance: str
) -> tuple[float, Tensor]:
    """Weight times the loss, and its gradient; `labels` are distinct."""
    n = len(features)
    unit = features / features.norm(dim=1, keepdim=True)
    s = unit @ unit.T
    pull, loss = torch.zeros(n, n, dtype=torch.float64), 0.0
    for i in range(n):
        row = s[i].tolist()
        ranks = slow_ranks(row)
        wanted = slow_ranks([-DISTANCES[distance](labels[i], label) for label in labels])
        errors = [a - b for a, b in zip(ranks, wanted, strict=True)]
        loss += weight * sum(e * e for e in errors) / n
        moved = slow_ranks(
            [a + interpolation * weight * 2 * e / n for a, e in zip(row, errors, strict=True)]
        )
        steps = zip(moved, ranks, strict=True)
        pull[i] = f64([(a - b) / interpolation for a, b in steps])
    (grad,) = torch.autograd.grad(s, features, pull)
    return loss, grad


@pytest.mark.parametrize(("name", "rtol"), [("float64", 1e-6), ("float32", 2e-5)])
@pytest.mark.parametrize("original", [False, True])
@pytest.mark.parametrize("number", range(5))
def test_golden(number: int, original: bool, name: str, rtol: float) -> None:
    case = golden_cases(f"ranksim_{name}")[number]
    dtype = getattr(torch, name)
    features, labels = torch.tensor(case["features"], dtype=dtype), f64(case["labels"])
    wanted = torch.tensor(case["grad_features"], dtype=dtype)
    order = torch.arange(len(features))
    if case["picked_indices"] is not None:
        picked = torch.tensor(case["picked_indices"])
        others = order[~torch.isin(order, picked)]
        # The default takes the first sample of each label; the original gets no other.
        order = picked if original else torch.cat([picked, others])
    features = features[order].requires_grad_()
    loss = ranksim_loss(
        features, labels[order], interpolation=case["interpolation_lambda"], original=original
    )
    assert loss.dtype == dtype
    assert loss.item() == pytest.approx(case["loss"], rel=rtol)
    (grad,) = torch.autograd.grad(loss, features)
    scale = rtol * float(wanted.abs().max())
    torch.testing.assert_close(grad, wanted[order], rtol=rtol, atol=scale)


def f64(values: Any) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


LABELS: dict[str, Tensor] = {
    "l1": torch.tensor([[-3.0], [0.0], [1.0], [2.0], [5.0], [9.0], [10.0]]),  # ties on both sides
    "l2": torch.tensor([[0.0, 0.0], [3.0, 4.0], [0.0, 5.0], [-5.0, 0.0], [1.0, 1.0]]),
    "angular": torch.tensor([[0.0, 0.0], [10.0, 0.0], [-10.0, 0.0], [0.0, 25.0], [3.0, 4.0]]),
    "circular": torch.tensor([[23.0], [1.0], [0.0], [12.0], [6.0], [18.0]]),
}


@pytest.mark.parametrize("weight", [1.0, 100.0])
@pytest.mark.parametrize("distance", LABELS)
def test_equals_the_definition_with_ties(distance: str, weight: float) -> None:
    labels = LABELS[distance]
    features = torch.randn(len(labels), 4, dtype=torch.float64, requires_grad=True)
    named = circular(24) if distance == "circular" else distance
    loss = weight * ranksim_loss(features, labels, interpolation=1.5, label_distance=named)
    value, wanted = slow_loss_and_gradient(features, labels.tolist(), 1.5, weight, distance)
    assert loss.item() == pytest.approx(value, rel=1e-9)
    (grad,) = torch.autograd.grad(loss, features)
    torch.testing.assert_close(grad, wanted, rtol=1e-9, atol=1e-12)
    assert grad.abs().max() > 0


def test_ties_depend_on_no_order_by_default() -> None:
    ages = torch.arange(40.0)  # every anchor has ages at the same distance on both sides
    features, order = torch.randn(40, 8), torch.randperm(40)
    loss = ranksim_loss(features, ages)
    torch.testing.assert_close(ranksim_loss(features[order], ages[order]), loss)
    # Published ranks split them, which costs even where features follow the labels.
    angles = ages[:, None] / 40
    in_order = torch.cat([angles.cos(), angles.sin()], dim=1).double()
    assert ranksim_loss(in_order, ages) != ranksim_loss(in_order, ages, original=True)


def test_one_sample_stands_for_each_label() -> None:
    labels = torch.tensor([4.0, 1.0, 4.0, -2.0, 1.0, 7.0])
    features = torch.randn(6, 3, requires_grad=True)
    loss = 50 * ranksim_loss(features, labels)
    (grad,) = torch.autograd.grad(loss, features)
    assert (grad[[2, 4]] == 0).all()
    first = [0, 1, 3, 5]
    assert loss == 50 * ranksim_loss(features[first], labels[first])


def test_a_generator_draws_that_sample() -> None:
    labels, features = torch.arange(30) % 6, torch.randn(30, 4)

    def drawn(seed: int, original: bool) -> float:
        generator = torch.Generator().manual_seed(seed)
        return ranksim_loss(features, labels, generator=generator, original=original).item()

    for original in (False, True):
        values = [drawn(seed, original) for seed in range(8)]
        assert len(set(values)) > 1
        assert values == [drawn(seed, original) for seed in range(8)]
    assert ranksim_loss(features, labels) == ranksim_loss(features, labels)


@pytest.mark.parametrize("n", [1, 5])
def test_one_distinct_label_has_loss_0(n: int) -> None:
    features = torch.randn(n, 3, requires_grad=True)
    loss = ranksim_loss(features, torch.full((n,), 7.0))
    loss.backward()
    assert loss.item() == 0
    assert features.grad is not None
    assert (features.grad == 0).all()


def test_zero_and_coincident_features_are_finite() -> None:
    for features in (torch.zeros(6, 3), torch.ones(6, 3), 1e30 * torch.randn(6, 3)):
        features.requires_grad_()
        loss = 100 * ranksim_loss(features, torch.arange(6))
        (grad,) = torch.autograd.grad(loss, features)
        assert loss.isfinite()
        assert grad.isfinite().all()


def test_descent_lowers_it() -> None:
    ages = torch.rand(24) * 80
    features = torch.randn(24, 6, requires_grad=True)
    start = ranksim_loss(features, ages).item()
    optimiser = torch.optim.SGD([features], lr=0.05)
    for _ in range(60):
        optimiser.zero_grad()
        (100 * ranksim_loss(features, ages)).backward()
        optimiser.step()
    assert ranksim_loss(features, ages).item() < 0.5 * start


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_gives_float32(dtype: torch.dtype) -> None:
    features, ages = torch.randn(12, 6).to(dtype), torch.arange(12)
    loss = ranksim_loss(features, ages)
    assert loss.dtype == torch.float32
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert ranksim_loss(features.float(), ages) == loss


def test_errors_say_what_to_do() -> None:
    features = torch.randn(4, 3)
    with pytest.raises(ValueError, match=r"interpolation must be a positive number; got 0"):
        ranksim_loss(features, torch.arange(4), interpolation=0)
    with pytest.raises(ValueError, match=r"has one target; got 2\. Leave original out"):
        ranksim_loss(features, torch.zeros(4, 2), original=True)
    with pytest.raises(ValueError, match=r"ranksim_loss needs finite targets; .* \(rows 1\)"):
        ranksim_loss(features, torch.tensor([0.0, torch.nan, 1.0, 2.0]))
    with pytest.raises(ValueError, match=r"same n; got \(4, 3\) and \(3,\)"):
        ranksim_loss(features, torch.zeros(3))
    with pytest.raises(ValueError, match=r"label_distance must be one of l1, .* got 'l3'"):
        ranksim_loss(features, torch.zeros(4), label_distance="l3")
