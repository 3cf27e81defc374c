"""The exact head: against closed forms, a linear program and long training."""

import math

import numpy as np
import pytest
import torch
from scipy.optimize import linprog
from torch import Tensor

from rnc.heads import Head, head_config, make_head
from rnc.metrics import mae
from rnc.training import probe
from rnc.training.probe import probe_error, solve_head

CONVEX = ["l1", "mse", "huber", "dex", "lde", "or", "corn"]


def problem(n: int = 80, d: int = 5, targets: int = 1) -> tuple[Tensor, Tensor]:
    """Features of different units and whole-numbered targets that follow them, with noise."""
    features = torch.randn(n, d) * torch.tensor([0.1, 1.0, 3.0, 1.0, 1.0])[:d] + 2
    weight = torch.randn(d, targets)
    return features, (3 * (features @ weight + 0.5 * torch.randn(n, targets))).round().double()


def loss_of(head: Head, features: Tensor, targets: Tensor) -> float:
    with torch.no_grad():
        return float(head.loss(head(features), targets).mean())


def only(monkeypatch: pytest.MonkeyPatch, *penalties: float) -> None:
    monkeypatch.setattr(probe, "PENALTIES", penalties)


@pytest.mark.parametrize("penalty", [1e-9, 0.1])
def test_mse_is_ridge_regression(penalty: float, monkeypatch: pytest.MonkeyPatch) -> None:
    features, targets = problem(targets=2)
    only(monkeypatch, penalty)
    head = make_head("mse", 5, targets)
    solve_head(head, features, targets, features, targets)
    # mean_i mean_t (w_t z_i - u_it)^2 + penalty |w|^2, with both sides centred
    x = features.double() - features.double().mean(dim=0)
    scale = x.square().sum(dim=0).div(len(x) - 1).mean().sqrt()
    z, u = x / scale, (targets - targets.mean(dim=0)) / targets.std(dim=0, correction=0)
    gram = z.T @ z / len(z) / 2 + penalty * torch.eye(5)
    expected = torch.linalg.solve(gram, z.T @ u / len(z) / 2)
    torch.testing.assert_close(
        head.linear.weight.T.double(), expected / scale, rtol=1e-3, atol=1e-4
    )
    if penalty < 1e-6:
        ones = torch.cat([features.double(), torch.ones(len(z), 1)], dim=1)
        predictions = ones @ torch.linalg.lstsq(ones, targets).solution
        torch.testing.assert_close(head.decode(head(features)), predictions, rtol=1e-3, atol=1e-3)


def test_l1_is_the_linear_program(monkeypatch: pytest.MonkeyPatch) -> None:
    features, targets = problem()
    only(monkeypatch, 1e-9)
    head = make_head("l1", 5, targets)
    loss = solve_head(head, features, targets, features, targets).loss
    n, u = len(targets), ((targets - targets.mean()) / targets.std(correction=0))[:, 0].numpy()
    rows = np.concatenate([features.numpy(), np.ones((n, 1))], axis=1)
    optimum = linprog(  # minimise mean_i e_i with -e <= rows @ w - u <= e
        np.r_[np.zeros(6), np.ones(n) / n],
        A_ub=np.block([[rows, -np.eye(n)], [-rows, -np.eye(n)]]),
        b_ub=np.r_[u, -u],
        bounds=[(None, None)] * 6 + [(0, None)] * n,
    ).fun
    assert optimum <= loss * (1 + 1e-6)
    assert loss == pytest.approx(optimum, rel=2e-2)  # L-BFGS stops at a corner nearby


@pytest.mark.parametrize("name", CONVEX)
def test_it_gets_at_least_as_low_as_long_training(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    features, targets = problem()
    only(monkeypatch, 1e-6)
    head, trained = make_head(name, 5, targets), make_head(name, 5, targets)
    loss = solve_head(head, features, targets, features, targets).loss
    standard = (features - features.mean(dim=0)) / features.std(dim=0)  # as easy as it gets
    optimizer = torch.optim.SGD(trained.parameters(), lr=0.1, momentum=0.9)
    for step in range(400):
        optimizer.param_groups[0]["lr"] = 0.1 * (1 - step / 400)
        optimizer.zero_grad()
        trained.loss(trained(standard), targets).mean().backward()
        optimizer.step()
    assert loss <= loss_of(trained, standard, targets) * 1.01


@pytest.mark.parametrize("name", ["l1", "mse", "huber"])
@pytest.mark.parametrize("targets", [1, 2])
def test_the_scale_of_the_head_changes_nothing_but_its_loss(name: str, targets: int) -> None:
    features, y = problem(n=120, targets=targets)
    split = (features[:80].double(), y[:80], features[80:].double(), y[80:])
    usual = head_config(name, 5, split[1])
    scales = [usual.scale, tuple(s / 20 for s in usual.scale)]
    if targets == 1 or name != "huber":  # whose knees of two targets would move apart
        scales.append((7.3,) * targets)
    predictions = []
    for scale in scales:
        knee = {"beta": 0.2 * usual.scale[0] / scale[0]} if name == "huber" else {}
        head = Head(head_config(name, 5, split[1], scale=scale, options=knee)).double()
        loss, error, *_ = solve_head(head, *split)
        assert loss == pytest.approx(loss_of(head, *split[:2]), rel=1e-9)
        assert error == pytest.approx(mae(head.decode(head(split[2])), split[3]), rel=1e-9)
        predictions.append(head.decode(head(split[0])))
    for other in predictions[1:]:
        torch.testing.assert_close(other, predictions[0], rtol=1e-6, atol=1e-9)


def test_the_knee_of_huber_stays_where_the_head_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A knee near 0 makes it l1 and one far out mse, whatever the standard deviation."""
    features, targets = problem()
    targets[:3] += 300  # which moves the mean and not the median
    only(monkeypatch, 1e-6)
    found = {}
    for name, options in {
        "l1": {},
        "mse": {},
        "near": {"beta": 1e-2},
        "far": {"beta": 1e4},
    }.items():
        kind = "huber" if "beta" in options else name
        head = Head(head_config(kind, 5, targets, scale=0.7, options=options)).double()
        solve_head(head, features, targets, features, targets, steps=1000)
        found[name] = head.decode(head(features))
    apart = (found["l1"] - found["mse"]).abs().mean()
    assert (found["near"] - found["l1"]).abs().mean() < 0.1 * apart
    assert (found["far"] - found["mse"]).abs().mean() < 0.02 * apart


def test_it_reports_what_the_head_has() -> None:
    features, targets = problem(n=120)
    split = (features[:80], targets[:80], features[80:], targets[80:])
    for name in ("l1", "dldl", "corn"):
        head = make_head(name, 5, targets)
        loss, error, *_ = solve_head(head, *split)
        assert loss == pytest.approx(loss_of(head, *split[:2]), rel=1e-4)
        assert error == pytest.approx(mae(head.decode(head(split[2])), split[3]), rel=1e-4)


@pytest.mark.parametrize("name", ["l1", "mse", "dex", "or"])
def test_a_weight_of_two_is_a_sample_that_comes_twice(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    features, targets = problem()
    only(monkeypatch, 1e-3)
    twice = torch.arange(80) < 20
    weights = torch.where(twice, 2.0, 1.0)
    repeated = (torch.cat([features, features[twice]]), torch.cat([targets, targets[twice]]))
    predictions = []
    for training, options in (
        ((features, targets), {"weights": weights / weights.mean()}),
        (repeated, {}),
        ((features, targets), {}),
    ):
        head = make_head(name, 5, targets)
        solve_head(head, *training, features, targets, steps=2000, **options)
        predictions.append(head.decode(head(features)))
    weighted, doubled, plain = predictions
    assert (weighted - doubled).abs().mean() < 0.2 * (weighted - plain).abs().mean()


def test_validation_picks_the_penalty(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(1)
    features = torch.randn(80, 30)  # nearly as many as training samples
    targets = (features[:, :1] + torch.randn(80, 1)).double()
    split = (features[:40], targets[:40], features[40:], targets[40:])
    errors = []
    for penalty in probe.PENALTIES:
        with monkeypatch.context() as patch:
            only(patch, penalty)
            errors.append(solve_head(make_head("mse", 30, targets), *split).error)
    assert max(errors) > 1.05 * min(errors)
    chosen = solve_head(make_head("mse", 30, targets), *split)
    assert chosen.error == pytest.approx(min(errors), rel=1e-9)
    assert chosen.penalty == probe.PENALTIES[errors.index(min(errors))]


def test_the_measure_picks_the_penalty_and_is_reported() -> None:
    features, targets = problem(n=120)
    split = (features[:80], targets[:80], features[80:], targets[80:])
    head = make_head("l1", 5, targets)
    worst = solve_head(head, *split, measure=lambda a, b: 1 / mae(a, b)).error
    best = solve_head(make_head("l1", 5, targets), *split).error
    assert mae(head.decode(head(split[2])), split[3]) == pytest.approx(1 / worst, rel=1e-4)
    assert 1 / worst > best


def test_a_unit_that_hardly_ever_fired_cannot_shout() -> None:
    """One training sample has a little of it; a validation sample has as much as is usual."""
    features, targets = problem(n=120)
    rare = torch.zeros(120, 1)
    rare[3], rare[100] = 1e-3, 1.0
    split = (torch.cat([features, rare], dim=1), targets)
    head, without = make_head("l1", 6, targets), make_head("l1", 5, targets)
    solve_head(head, split[0][:80], targets[:80], split[0][80:], targets[80:])
    solve_head(without, features[:80], targets[:80], features[80:], targets[80:])
    a, b = (h.decode(h(x))[100] for h, x in ((head, split[0]), (without, features)))
    assert (a - b).abs() < targets.std()


def test_features_that_do_not_vary_leave_the_best_constant() -> None:
    features, targets = torch.full((40, 3), 7.0), torch.arange(40.0).double()[:, None]
    head = make_head("mse", 3, targets)
    solve_head(head, features, targets, features, targets)
    torch.testing.assert_close(head.decode(head(features)), torch.full_like(targets, 19.5))


def test_features_that_are_not_finite_give_infinite_numbers() -> None:
    features, targets = problem()
    features[0, 0] = torch.nan
    head = make_head("l1", 5, targets)
    found = solve_head(head, features, targets, features, targets, balance=None)
    assert (found.loss, found.error) == (np.inf, np.inf)
    assert np.isfinite(found.penalty)  # no number that JSON does not have


def test_a_quick_probe_says_how_good_features_are() -> None:
    torch.manual_seed(0)
    features, val_features = torch.randn(200, 8), torch.randn(50, 8)
    weights = torch.randn(8, 2, dtype=torch.float64)
    targets, val_targets = (30 + 20 * f.double() @ weights for f in (features, val_features))
    constant = float((val_targets - targets.mean(dim=0)).abs().mean())
    assert probe_error(features, targets, val_features, val_targets) < 0.01 * constant
    for scale in (1e-30, 1e30):  # whatever their units
        error = probe_error(scale * features, targets, scale * val_features, val_targets)
        assert error < 0.01 * constant
    nothing = torch.zeros(200, 8)
    assert probe_error(nothing, targets, nothing[:50], val_targets) == pytest.approx(constant)
    few = probe_error(features[:3], targets[:3], val_features, val_targets)
    assert math.isfinite(few)
    val_features[3, 3] = torch.nan
    assert probe_error(features, targets, val_features, val_targets) == math.inf
