"""The minimum of a head's loss for targets that are known in part: against scipy's optimisers."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from torch import Tensor

from rnc.heads import Head, head_config, make_head
from rnc.training.blocks import Held
from rnc.training.one_output import OneInterval, OneOutput, Slope
from rnc.training.probe import solve_head
from rnc.training.solver import QUANTILE_CORNER, ROUNDED_CORNER, Newton, make_solver

Array = NDArray[np.float64]
OPTIONS: dict[str, dict[str, Any]] = {"huber": {"beta": 0.4}, "quantile": {"levels": (0.1, 0.5)}}
HEADS = ("l1", "mse", "huber", "quantile")


def problem(n: int, d: int, t: int = 1) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Features, both ends of targets of every kind, and weights with mean 1."""
    torch.manual_seed(n + d)
    features = torch.randn(n, d, dtype=torch.float64)
    noise = torch.randn(n, t, dtype=torch.float64)
    truth = 30 + 8 * features @ torch.randn(d, t, dtype=torch.float64) / d**0.5 + 6 * noise
    kind = torch.randint(5, (n, t))
    lower = torch.where(kind == 1, 10 * (truth / 10).floor(), truth)
    upper = torch.where(kind == 1, lower + 10, truth)
    lower = lower.masked_fill((kind == 2) | (kind == 4), -math.inf)
    upper = upper.masked_fill((kind == 3) | (kind == 4), math.inf)
    weights = torch.rand(n, dtype=torch.float64) + 0.1
    return features, lower, upper, weights / weights.mean()


def zero_head(name: str, d: int, t: int = 1) -> Head:
    targets = torch.tensor([[20.0], [40.0]]).repeat(1, t)
    head = Head(head_config(name, d, targets, options=OPTIONS.get(name, {}))).double()
    torch.nn.init.zeros_(head.linear.weight)
    torch.nn.init.zeros_(head.linear.bias)
    return head


def sample_loss(name: str, p: float, lower: float, upper: float) -> float:
    """The loss of one output: 0 within the interval, and beyond it that of its end."""
    if name == "mse":
        return max(lower - p, p - upper, 0.0) ** 2
    knee = ROUNDED_CORNER if name == "l1" else OPTIONS["huber"]["beta"]
    error = max(lower - p, p - upper, 0.0)
    return error**2 / (2 * knee) if error <= knee else error - knee / 2


def quantile_loss(p: float, lower: float, upper: float, level: float) -> float:
    """The pinball loss with a rounded corner, less its minimum, flat within the interval."""
    knee, tilt = QUANTILE_CORNER, 1 - 2 * level

    def exact(r: float) -> float:
        bowl = r**2 / (2 * knee) if abs(r) <= knee else abs(r) - knee / 2
        return bowl + tilt * r + tilt**2 * knee / 2

    flat = -tilt * knee
    below = exact(p - lower) if p - lower < flat else 0.0
    return below + (exact(p - upper) if p - upper > flat else 0.0)


def objective(
    flat: Array, name: str, x: Array, ends: tuple[Array, Array], weights: Array, penalty: float
) -> float:
    """The definition, sample by sample."""
    lower, upper = ends
    levels = OPTIONS["quantile"]["levels"] if name == "quantile" else (None,)
    table = flat.reshape(lower.shape[1], len(levels), x.shape[1] + 1)
    total = 0.0
    for i in range(len(x)):
        losses, known = 0.0, 0
        for k, rows in enumerate(table):
            known += bool(np.isfinite(lower[i, k]) or np.isfinite(upper[i, k]))
            for row, level in zip(rows, levels, strict=True):
                p, low, high = row[:-1] @ x[i] + row[-1], lower[i, k], upper[i, k]
                if level is None:
                    losses += sample_loss(name, p, low, high)
                else:
                    losses += quantile_loss(p, low, high, level)
        total += weights[i] * losses / max(known, 1) / len(levels)
    return float(total / len(x) + penalty * (table[..., :-1] ** 2).sum())


@pytest.mark.parametrize("name", HEADS)
@pytest.mark.parametrize(("n", "d", "t"), [(25, 2, 2), (7, 9, 1)])
def test_no_other_weights_are_better(name: str, n: int, d: int, t: int) -> None:
    features, lower, upper, weights = problem(n, d, t)
    head = zero_head(name, d, t)
    solver = make_solver(head, features, lower, upper)
    solver.weigh(weights)
    solver.minimise(0.05, 200)
    table = torch.cat([head.linear.weight, head.linear.bias[:, None]], dim=1)
    flat = table.detach().flatten().numpy()
    shift, scale = np.array(head.config.shift), np.array(head.config.scale)
    ends = ((lower.numpy() - shift) / scale, (upper.numpy() - shift) / scale)
    rest = (name, features.numpy(), ends, weights.numpy(), 0.05)
    ours = objective(flat, *rest)
    found = minimize(objective, np.zeros_like(flat), rest, method="BFGS", options={"gtol": 1e-7})
    assert ours <= found.fun + 1e-12
    assert ours == pytest.approx(found.fun, abs=1e-7)  # the bias may have room, the loss has none


@pytest.mark.parametrize("name", HEADS)
@pytest.mark.parametrize(("n", "d"), [(400, 60), (90, 60), (30, 60)])
def test_the_gradient_is_0_after_a_hundred_steps(name: str, n: int, d: int) -> None:
    features, lower, upper, _ = problem(n, d)
    head = zero_head(name, d)
    solver = make_solver(head, features, lower, upper)
    assert isinstance(solver, Newton)
    assert all(isinstance(one, OneInterval) for one in solver.each)
    (shift,), (scale,) = head.config.shift, head.config.scale
    for penalty in (1.0, 0.01, 1e-4):
        solver.minimise(penalty, 100)
        table = torch.cat([head.linear.weight, head.linear.bias[:, None]], dim=1).detach()
        for one, row in zip(solver.each, table, strict=True):
            p = features @ row[:-1] + row[-1]
            slopes = [
                slope_of(one.slope, p - (end[:, 0] - shift) / scale) for end in (lower, upper)
            ]
            pull = (slopes[0].clamp(max=0) + slopes[1].clamp(min=0)) / n
            gradient = features.T @ pull + 2 * penalty * row[:-1]
            assert gradient.abs().max() < 1e-8
            assert pull.sum().abs() < 1e-8


def slope_of(slope: Slope, r: Tensor) -> Tensor:
    return slope.curvature * r.clamp(-slope.knee, slope.knee) + slope.tilt


@pytest.mark.parametrize("name", HEADS)
def test_equal_ends_are_exact_targets_to_the_bit(name: str) -> None:
    features, lower, _, weights = problem(60, 5)
    targets = lower.masked_fill(lower.isinf(), 31.0)
    found = []
    for upper in (None, targets.clone()):
        head = zero_head(name, 5)
        solver = make_solver(head, features, targets, upper)
        solver.weigh(weights)
        solver.minimise(0.01, 200)
        found.append(torch.cat([head.linear.weight, head.linear.bias[:, None]], dim=1))
    assert torch.equal(*found)


@pytest.mark.parametrize(
    "slope", [Slope(math.inf, 2.0), Slope(0.03, 1 / 0.03), Slope(0.01, 100, 0.4)]
)
def test_narrow_intervals_are_nearly_exact_targets(slope: Slope) -> None:
    """The way of intervals ends where that of exact targets does."""
    features, lower, _, _ = problem(60, 5)
    rows = Held(torch.cat([features, torch.ones(60, 1, dtype=torch.float64)], dim=1))
    u = (lower.masked_fill(lower.isinf(), 31.0)[:, 0] - 30) / 10
    start = torch.zeros(6, dtype=torch.float64)
    exact = OneOutput(rows, 6, u, slope).minimise(start, 0.01, 200)
    narrow = OneInterval(rows, 6, u - 1e-9, u + 1e-9, slope).minimise(start, 0.01, 200)
    torch.testing.assert_close(narrow, exact, rtol=0, atol=1e-7)


@pytest.mark.parametrize("name", HEADS)
def test_censored_targets_alone_leave_finite_weights(name: str) -> None:
    features, lower, _, _ = problem(40, 3)
    lower = lower.masked_fill(lower.isinf(), 31.0)
    head = zero_head(name, 3)
    make_solver(head, features, lower, torch.full_like(lower, math.inf)).minimise(1e-4, 200)
    assert all(value.isfinite().all() for value in head.parameters())
    short = lower - head.decode(head(features))
    assert short.max() < 0.05 * head.config.scale[0]  # up to the rounded corner


@pytest.mark.parametrize("name", ["dex", "corn", "or", "gaussian"])
def test_other_heads_take_the_loss_of_the_head(name: str) -> None:
    features, lower, upper, weights = problem(50, 3)
    targets = torch.tensor([[20.0], [30.0], [40.0]])
    options = {"beta": 0.0} if name == "gaussian" else {}
    head = Head(head_config(name, 3, targets, options=options)).double()
    losses = []
    for steps in (0, 200):
        if steps:
            solver = make_solver(head, features, lower, upper)
            solver.weigh(weights)
            solver.minimise(0.01, steps)
        value = (weights * head.loss(head(features), lower, upper)).mean()
        losses.append(value + 0.01 * head.linear.weight.square().sum())
    assert losses[1] < losses[0]
    gradients = torch.autograd.grad(losses[1], list(head.parameters()))
    assert max(float(g.abs().max()) for g in gradients) < 1e-4


@pytest.mark.parametrize("name", HEADS)
def test_a_head_is_solved_with_targets_that_are_known_in_part(name: str) -> None:
    """One feature falls again where targets are censored: exact rows alone cannot know better."""
    x = torch.linspace(0, 1, 101, dtype=torch.float64)[:, None]
    truth = 10 * x
    seen = truth <= 6
    lower = torch.where(seen, truth, 6.0)
    upper = torch.where(seen, truth, math.inf)
    above = (x - 0.6).clamp(min=0)
    features = torch.cat([x - 2 * above, above], dim=1)
    heads = [make_head(name, 2, truth) for _ in range(2)]
    exact = seen[:, 0]
    rest = (features[exact], truth[exact])
    solve_head(heads[0], *rest, *rest)
    found = solve_head(heads[1], features, lower, *rest, upper=upper, balance=0.5)
    assert math.isfinite(found.loss)
    lowest = [float(head.decode(head(features[~exact])).min().detach()) for head in heads]
    assert lowest[0] < 4
    assert lowest[1] > 5.3


def test_a_solved_head_does_not_depend_on_the_units_of_its_targets() -> None:
    features, lower, upper, _ = problem(80, 3)
    known = lower.isfinite() | upper.isfinite()
    features, lower, upper = (v[known[:, 0]] for v in (features, lower, upper))
    exact = (lower == upper)[:, 0]
    predicted = []
    for factor in (1.0, 1000.0):
        head = make_head("l1", 3, factor * lower[exact])
        val = features[exact], factor * lower[exact]
        solve_head(head, features, factor * lower, *val, upper=factor * upper)
        predicted.append(head.decode(head(features)).detach() / factor)
    torch.testing.assert_close(predicted[1], predicted[0], rtol=1e-5, atol=1e-5)
