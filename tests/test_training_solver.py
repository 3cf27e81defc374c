"""The minimum of a head's loss with a ridge penalty: against the definition, minimised by scipy."""

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from torch import Tensor

from rnc.heads import Head, head_config
from rnc.training.solver import ROUNDED_CORNER, Lbfgs, Newton, make_solver

Array = NDArray[np.float64]
OPTIONS: dict[str, dict[str, Any]] = {"l1": {}, "mse": {}, "huber": {"beta": 0.4}}


def problem(n: int, d: int, t: int = 1) -> tuple[Tensor, Tensor, Tensor]:
    """Features, targets that follow them with noise, and weights with mean 1."""
    torch.manual_seed(n + d)
    features = torch.randn(n, d, dtype=torch.float64)
    noise = torch.randn(n, t, dtype=torch.float64)
    targets = 30 + 8 * features @ torch.randn(d, t, dtype=torch.float64) / d**0.5 + 6 * noise
    weights = torch.rand(n, dtype=torch.float64) + 0.1
    return features, targets, weights / weights.mean()


def zero_head(name: str, d: int, targets: Tensor) -> Head:
    head = Head(head_config(name, d, targets, options=OPTIONS.get(name, {}))).double()
    torch.nn.init.zeros_(head.linear.weight)
    torch.nn.init.zeros_(head.linear.bias)
    return head


def sample_loss(name: str, error: float) -> float:
    """The loss of one sample; that of l1 is a parabola near 0."""
    if name == "mse":
        return error**2
    knee = ROUNDED_CORNER if name == "l1" else OPTIONS["huber"]["beta"]
    return error**2 / (2 * knee) if abs(error) <= knee else abs(error) - knee / 2


def objective(flat: Array, name: str, x: Array, u: Array, weights: Array, penalty: float) -> float:
    """The definition, sample by sample."""
    table = flat.reshape(u.shape[1], x.shape[1] + 1)
    total = 0.0
    for i in range(len(x)):
        errors = [row[:-1] @ x[i] + row[-1] - u[i, k] for k, row in enumerate(table)]
        total += weights[i] * sum(sample_loss(name, e) for e in errors) / len(errors)
    return float(total / len(x) + penalty * (table[:, :-1] ** 2).sum())


@pytest.mark.parametrize("name", ["l1", "mse", "huber"])
@pytest.mark.parametrize(("n", "d", "t"), [(20, 2, 2), (6, 8, 1)])
def test_no_other_weights_are_better(name: str, n: int, d: int, t: int) -> None:
    features, targets, weights = problem(n, d, t)
    head = zero_head(name, d, targets)
    solver = make_solver(head, features, targets)
    solver.weigh(weights)
    solver.minimise(0.05, 200)
    table = torch.cat([head.linear.weight, head.linear.bias[:, None]], dim=1)
    flat = table.detach().flatten().numpy()
    shift, scale = np.array(head.config.shift), np.array(head.config.scale)
    u = (targets.numpy() - shift) / scale
    rest = (name, features.numpy(), u, weights.numpy(), 0.05)
    ours = objective(flat, *rest)
    found = minimize(objective, np.zeros_like(flat), rest, method="BFGS", options={"gtol": 1e-7})
    assert ours <= found.fun + 1e-12
    np.testing.assert_allclose(flat, found.x, atol=1e-4)
    for direction in np.random.default_rng(0).normal(size=(20, len(flat))):
        assert objective(flat + 1e-3 * direction, *rest) > ours


@pytest.mark.parametrize("name", ["l1", "huber", "mse"])
@pytest.mark.parametrize(("n", "d"), [(400, 60), (90, 60), (30, 60), (3, 60)])
def test_few_steps_are_enough(name: str, n: int, d: int) -> None:
    """The gradient of autograd is 0 there, down to penalties where all samples are met."""
    features, targets, _ = problem(n, d)
    head = zero_head(name, d, targets)
    solver = make_solver(head, features, targets)
    for penalty in (1.0, 0.01, 1e-4):
        solver.minimise(penalty, 40)
        error = (head(features) - (targets - head.config.shift[0]) / head.config.scale[0])[:, 0]
        losses = torch.stack([_smooth_loss(name, e) for e in error])
        total = losses.mean() + penalty * head.linear.weight.square().sum()
        gradients = torch.autograd.grad(total, list(head.parameters()))
        assert max(float(g.abs().max()) for g in gradients) < 1e-8


def _smooth_loss(name: str, error: Tensor) -> Tensor:
    if name == "mse":
        return error.square()
    knee = ROUNDED_CORNER if name == "l1" else OPTIONS["huber"]["beta"]
    return error.square() / (2 * knee) if error.abs() <= knee else error.abs() - knee / 2


def test_samples_of_weight_0_do_not_count() -> None:
    features, targets, _ = problem(60, 5)
    found = []
    for rows, weights in ((slice(None), torch.arange(60) < 40), (slice(40), torch.ones(40))):
        head = zero_head("l1", 5, targets)
        solver = make_solver(head, features[rows], targets[rows])
        solver.weigh(weights.double() / weights.double().mean())
        solver.minimise(0.01, 200)
        found.append(head.linear.weight.detach())
    torch.testing.assert_close(found[0], found[1], rtol=1e-8, atol=1e-10)


def test_new_weights_replace_those_before() -> None:
    features, targets, weights = problem(60, 5)
    found = []
    for earlier in (weights, torch.ones(60, dtype=torch.float64)):
        head = zero_head("huber", 5, targets)
        solver = make_solver(head, features, targets)
        solver.weigh(earlier)
        solver.minimise(0.1, 200)
        solver.weigh(weights)
        solver.minimise(0.1, 200)
        found.append(head.linear.weight.detach())
    torch.testing.assert_close(found[0], found[1], rtol=1e-8, atol=1e-10)


def test_samples_that_are_all_beyond_the_knee_leave_finite_weights() -> None:
    """With two samples and a strong penalty nothing bends the loss along the bias."""
    features = torch.tensor([[1.0], [-1.0]], dtype=torch.float64)
    targets = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
    head = zero_head("l1", 1, targets)
    solver = make_solver(head, features, targets)
    solver.minimise(10.0, 200)
    # |w + b + 1| / 2 + |-w + b - 1| / 2 + 10 w^2 has its minimum at w = -1 / 20
    assert head.linear.weight.item() == pytest.approx(-0.05)
    assert abs(head.linear.bias.item()) < 1


def test_other_heads_take_l_bfgs() -> None:
    features, targets, _ = problem(30, 3)
    kinds = {
        name: type(make_solver(zero_head(name, 3, targets), features, targets))
        for name in ("l1", "mse", "huber", "dex", "corn")
    }
    newton = {"l1": Newton, "mse": Newton, "huber": Newton}
    assert kinds == newton | {"dex": Lbfgs, "corn": Lbfgs}
