"""Distributions of heads: quantiles match the definitions and never cross."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn.linear_model import QuantileRegressor
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from rnc.heads import LEVELS, Head, HeadConfig, head_config, make_head
from rnc.heads.registry import HEADS
from rnc.training import probe
from rnc.training.probe import solve_head

WITH = [name for name in HEADS if make_head(name, 1, np.array([0.0, 9.0])).has_distribution]
EVERY = tuple(np.linspace(0.001, 0.999, 333).tolist())


def head_of(name: str, bins: int = 1, **options: Any) -> Head:
    return Head(HeadConfig(name, 1, (100.0,), (2.0,), (bins,), options)).double()


def solved(
    name: str, features: Tensor, targets: Tensor, monkeypatch: pytest.MonkeyPatch, **place: Any
) -> Head:
    """A head that has nearly no penalty."""
    monkeypatch.setattr(probe, "PENALTIES", (1e-7,))
    head = Head(head_config(name, features.shape[1], targets, **place)).double()
    solve_head(head, features, targets, features, targets)
    return head


def test_all_heads_but_three_have_a_distribution() -> None:
    assert set(HEADS) - set(WITH) == {"l1", "mse", "huber"}


@pytest.mark.parametrize("name", WITH)
@pytest.mark.parametrize("size", [1.0, 1e4, 1e15])
def test_quantiles_are_finite_and_never_cross(name: str, size: float) -> None:
    torch.manual_seed(0)
    head = make_head(name, 3, np.array([[0.0, -5.0], [9.0, 20.0], [4.5, 3.0]]))
    outputs = torch.randn(40, sum(head.widths)) * size
    found = head.quantiles(outputs, EVERY)
    assert found.shape == (40, 2, len(EVERY))
    assert found.isfinite().all()
    assert (found.diff(dim=2) >= 0).all()
    shuffled = torch.randperm(len(EVERY))
    again = head.quantiles(outputs, [EVERY[i] for i in shuffled])
    assert torch.equal(again, found[..., shuffled])


@pytest.mark.parametrize("name", [name for name in WITH if HEADS[name].binned])
def test_quantiles_of_bins_invert_their_cumulative_mass(name: str) -> None:
    torch.manual_seed(1)
    head = head_of(name, bins=6)
    outputs = torch.randn(20, head.widths[0]).double()
    (masses,) = head.masses(outputs)
    torch.testing.assert_close(masses.sum(dim=1), torch.ones(20).double())
    assert (masses >= 0).all()
    torch.testing.assert_close(
        100 + 2 * (masses * torch.arange(6)).sum(dim=1), head.decode(outputs)[:, 0]
    )
    for row, quantiles in zip(masses.numpy(), head.quantiles(outputs)[:, 0].numpy(), strict=True):
        for level, value in zip(LEVELS, quantiles, strict=True):
            u = (value - 100) / 2
            below = sum(m * min(max(u - (k - 0.5), 0), 1) for k, m in enumerate(row))
            assert below == pytest.approx(level) or (u == 0 and below > level) or u == 5


def test_a_class_without_mass_is_no_quantile() -> None:
    head = head_of("dex", bins=4)
    outputs = torch.tensor([[1000.0, -1000.0, -1000.0, 1000.0]])
    values = head.quantiles(outputs, (0.25, 0.499, 0.501, 0.75))[0, 0]
    assert ((values - 100) / 2).tolist() == pytest.approx([0.0, 0.498, 2.502, 3.0], abs=1e-6)


def test_quantiles_between_levels_and_beyond_are_those_of_a_normal_distribution() -> None:
    head, normal = head_of("quantile"), stats.norm(loc=103, scale=5)
    outputs = torch.from_numpy((normal.ppf(LEVELS)[None] - 100) / 2)
    np.testing.assert_allclose(head.quantiles(outputs, EVERY)[0, 0], normal.ppf(EVERY))
    assert torch.equal(head.quantiles(outputs)[0, 0], 100 + 2 * outputs[0])
    assert head.quantiles(outputs, [0.5]).item() == head.decode(outputs).item()


def test_one_level_is_every_quantile() -> None:
    head = head_of("quantile", levels=[0.5])
    outputs = torch.tensor([[1.5]]).double()
    assert head.quantiles(outputs, [0.1, 0.5, 0.9]).tolist() == [[[103.0, 103.0, 103.0]]]


def test_outputs_that_cross_are_put_in_order_and_fit_better() -> None:
    torch.manual_seed(2)
    head, targets = head_of("quantile"), 100 + 2 * torch.randn(50).double()
    outputs = torch.randn(50, len(LEVELS)).double()
    ordered = outputs.sort(dim=1).values
    torch.testing.assert_close(head.quantiles(outputs)[:, 0], 100 + 2 * ordered)
    torch.testing.assert_close(head.decode(outputs)[:, 0], 100 + 2 * ordered[:, 4])
    assert (head.loss(ordered, targets) <= head.loss(outputs, targets)).all()


def test_the_median_alone_is_the_l1_head() -> None:
    outputs, targets = torch.randn(9, 1).double(), torch.randn(9).double()
    alone = head_of("quantile", levels=[0.5]).loss(outputs, targets)
    torch.testing.assert_close(alone, head_of("l1").loss(outputs, targets))


def test_gaussian_quantiles_are_those_of_its_mean_and_scale() -> None:
    head = head_of("gaussian", floor=0.01)
    outputs = torch.tensor([[1.0, -3.0], [0.0, 2.0]]).double()
    scale = 2 * (0.01 + np.log1p(np.exp([-3.0, 2.0])))
    wanted = stats.norm.ppf(np.array(LEVELS)[:, None], loc=[102.0, 100.0], scale=scale).T
    np.testing.assert_allclose(head.quantiles(outputs)[:, 0], wanted)


def test_beta_0_is_the_likelihood_and_beta_1_learns_means_as_mse() -> None:
    outputs, targets = torch.randn(9, 2).double().requires_grad_(), torch.randn(9).double()
    scale = 0.001 + torch.nn.functional.softplus(outputs[:, 1])
    likelihood = torch.distributions.Normal(outputs[:, 0], scale).log_prob((targets - 100) / 2)
    torch.testing.assert_close(head_of("gaussian", beta=0.0).loss(outputs, targets), -likelihood)
    losses = head_of("gaussian", beta=1.0).loss(outputs, targets)
    (gradient,) = torch.autograd.grad(losses.sum(), outputs)
    error = outputs[:, 0] - (targets - 100) / 2
    torch.testing.assert_close(gradient[:, 0], error)  # half the slope of mse


@pytest.mark.parametrize("name", ["quantile", "gaussian"])
def test_the_largest_errors_have_finite_losses_and_gradients(name: str) -> None:
    head = make_head(name, 3, torch.tensor([0.0, 1e-3]))
    outputs = torch.tensor([[1e15, -3e38], [-1e15, 3e18]]).repeat(1, 5)[:, : head.widths[0]]
    outputs.requires_grad_()
    losses = head.loss(outputs, torch.tensor([1e12, -1e12], dtype=torch.float64))
    (gradient,) = torch.autograd.grad(losses.double().sum(), outputs)
    assert losses.isfinite().all()
    assert gradient.isfinite().all()


def test_solved_quantiles_are_those_of_the_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Features that tell two groups apart: within each, the quantiles of its targets."""
    rng = np.random.default_rng(0)
    side = np.arange(1998) % 2
    targets = np.stack([rng.exponential(1 + 4 * side), rng.normal(size=1998)], axis=1)
    features = torch.from_numpy(side[:, None].astype(float))
    head = solved("quantile", features, torch.from_numpy(targets), monkeypatch)
    found = head.quantiles(head(torch.tensor([[0.0], [1.0]]).double())).detach()
    for group in (0, 1):
        below = targets[side == group][..., None] <= found[group].numpy()
        np.testing.assert_allclose(below.mean(axis=0), [LEVELS, LEVELS], atol=0.005)


def test_solved_quantiles_are_those_of_linear_programming(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    x = rng.normal(size=(120, 3))
    y = x @ [1.0, -2.0, 0.5] + (1 + np.abs(x[:, 0])) * rng.normal(size=120)
    levels = (0.1, 0.5, 0.8)
    targets = torch.from_numpy(y)[:, None]
    head = solved("quantile", torch.from_numpy(x), targets, monkeypatch, options={"levels": levels})
    ours = head(torch.from_numpy(x)).detach().numpy() * head.config.scale + head.config.shift
    for column, level in zip(ours.T, levels, strict=True):
        exact = QuantileRegressor(quantile=level, alpha=0.0).fit(x, y).predict(x)
        gaps = [y - predicted for predicted in (column, exact)]
        lost, least = (np.maximum(level * g, (level - 1) * g).mean() for g in gaps)
        assert least <= lost <= 1.002 * least


@pytest.mark.parametrize("name", ["quantile", "gaussian", "dex"])
def test_noise_that_grows_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.linspace(0, 1, 999)
    noise = stats.norm.ppf((np.arange(37) + 0.5) / 37)[np.arange(999) % 37]
    y = torch.from_numpy(10 * x + (1 + 2 * x) * noise)[:, None]
    place = {"step": 1.0} if name == "dex" else {}
    head = solved(name, torch.from_numpy(x)[:, None], y, monkeypatch, **place)
    places = np.array([0.2, 0.5, 0.8])
    found = head.quantiles(head(torch.from_numpy(places)[:, None]), (0.1, 0.5, 0.9)).detach()
    wanted = stats.norm.ppf(
        np.array([0.1, 0.5, 0.9])[:, None], loc=10 * places, scale=1 + 2 * places
    ).T
    np.testing.assert_allclose(found[:, 0], wanted, atol=0.75 if name == "dex" else 0.35)


@pytest.mark.parametrize("levels", [[], [0.0, 0.5], [0.5, 1.0], [0.5, 0.5], [math.nan]])
def test_levels_that_no_quantile_has_are_refused(levels: list[float]) -> None:
    head = make_head("gaussian", 2, torch.tensor([0.0, 1.0]))
    with pytest.raises(ValueError, match=r"above 0 and below 1, each once.*got \["):
        head.quantiles(torch.randn(3, 2), levels)


@pytest.mark.parametrize(
    ("levels", "got"),
    [([0.1, 0.9], r"\[0\.1, 0\.9\]"), ([0.5, 0.1], r"\[0\.5, 0\.1\]"), (1, "1"), ("all", "'all'")],
)
def test_levels_of_the_head_need_the_median_and_an_order(levels: Any, got: str) -> None:
    with pytest.raises(
        ValueError, match=rf"levels must be rising levels .* with 0\.5 among them; got {got}\."
    ):
        head_config("quantile", 2, torch.tensor([0.0, 1.0]), options={"levels": levels})


def test_a_head_without_distribution_says_which_has_one() -> None:
    head = make_head("mse", 2, torch.tensor([0.0, 1.0]))
    with pytest.raises(
        ValueError, match=r"'mse' predicts one number.*--head quantile.*predict_int"
    ):
        head.quantiles(torch.randn(3, 1))


class Operations(TorchDispatchMode):
    """The names of all that torch computes within."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("name", HEADS)
def test_no_loss_makes_a_tensor_of_numbers_which_a_cuda_graph_forbids(name: str) -> None:
    head, targets = make_head(name, 3, np.array([0.0, 9.0])), torch.tensor([1.0, 2.0])
    outputs = torch.randn(2, head.widths[0], requires_grad=True)
    with Operations() as seen:
        head.loss(outputs, targets).mean().backward()
    assert any("mean" in operation for operation in seen.names)
    assert not any("lift_fresh" in operation for operation in seen.names)


def test_a_tensor_of_numbers_would_be_seen() -> None:
    with Operations() as seen:
        torch.ones(1).new_tensor([0.1, 0.5])
    assert "aten.lift_fresh.default" in seen.names
