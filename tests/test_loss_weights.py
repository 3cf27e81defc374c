"""Weights of anchors: sum_i w_i l_i / sum_i w_i, by every way to compute the loss."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from oracle import slow_losses
from rnc import RnCLoss, rnc_loss
from rnc.loss.anchor_weights import shares
from rnc.loss.theory import gap, ideal_embedding, lower_bound
from rnc.methods.objective import MethodOptions, MethodSetup
from rnc.methods.queue import QueuedLoss

TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5}
WAYS: dict[str, dict[str, Any]] = {
    "reference": {"backend": "reference"},
    "plain": {"backend": "torch"},
    "chunks": {"backend": "torch", "chunk_size": 3},
    "fused": {"backend": "triton"},
    "fused chunks": {"backend": "triton", "chunk_size": 3},
}
# Lanes that are masked out may divide by zero; Triton's interpreter lets NumPy say so.
pytestmark = pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")


def weighted_mean(losses: Tensor, weights: Tensor, views: int) -> Tensor:
    """The definition, of losses (n * views,) that the oracle gives view by view."""
    total, divisor = losses.new_zeros(()), 0.0
    for i, loss in enumerate(losses):
        total = total + float(weights[i // views]) * loss
        divisor += float(weights[i // views])
    return total / divisor


def check(way: str, features: Tensor, targets: Tensor, weights: Tensor, **options: Any) -> None:
    if way.startswith("fused"):
        pytest.importorskip("triton", reason="Triton is not installed")
        features = features.float()
    exact = features.detach().double().requires_grad_()
    features = features.detach().requires_grad_()
    expected = weighted_mean(slow_losses(exact, targets, **options), weights, features.shape[1])
    loss = rnc_loss(features, targets, weights=weights, **options, **WAYS[way])
    assert loss.dtype == features.dtype
    tolerance = TOLERANCE[features.dtype]
    torch.testing.assert_close(loss.double(), expected, rtol=tolerance, atol=tolerance)
    (wanted,) = torch.autograd.grad(3 * expected, exact)
    (found,) = torch.autograd.grad(3 * loss, features)
    scale = float(wanted.abs().max()) + 1e-3
    torch.testing.assert_close(found.double(), wanted, rtol=tolerance, atol=tolerance * scale)


@pytest.mark.parametrize("way", ["reference", "plain", "chunks"])
@settings(max_examples=15, deadline=None)
@given(
    labels=st.lists(st.integers(0, 4), min_size=2, max_size=6),
    counts=st.lists(st.sampled_from([0.0, 1e-3, 1.0, 2.5, 1e6]), min_size=6, max_size=6),
    views=st.integers(1, 3),
    double=st.booleans(),
    seed=st.integers(0, 999),
)
def test_equals_the_definition(
    way: str, labels: list[int], counts: list[float], views: int, double: bool, seed: int
) -> None:
    weights = torch.tensor(counts[: len(labels)])
    weights[seed % len(labels)] = 1.0
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(len(labels), views, 4, dtype=torch.float64, generator=generator)
    targets = torch.tensor(labels).double()[:, None]
    check(way, features if double else features.float(), targets, weights)


@pytest.mark.parametrize("ties", [2, 5])
def test_the_fused_way_equals_it(ties: int) -> None:
    weights = torch.tensor([1e6, 0.0, 1e-3, 2.5, 1.0])
    check("fused", torch.randn(5, 2, 3), torch.randint(0, ties, (5, 1)), weights)
    check("fused chunks", torch.randn(5, 1, 3), torch.randint(0, ties, (5, 1)), weights)


@pytest.mark.parametrize(
    "options", [{"similarity": "cosine"}, {"similarity": "l1", "temperature": 0.5}], ids=str
)
@pytest.mark.parametrize("way", WAYS)
def test_equals_it_for_other_similarities(way: str, options: dict[str, Any]) -> None:
    check(way, torch.randn(4, 1, 4), torch.randint(0, 3, (4, 1)), torch.rand(4), **options)


@pytest.mark.parametrize("backend", ["torch", "triton"])
def test_a_reference_and_a_queue_have_no_weights(backend: Any) -> None:
    features, targets, weights = torch.randn(5, 4, requires_grad=True), torch.rand(5), torch.rand(5)
    earlier = torch.randn(6, 4), torch.rand(6)
    expected = weighted_mean(
        slow_losses(features, targets[:, None], reference=(earlier[0], earlier[1][:, None])),
        weights,
        1,
    )
    loss = rnc_loss(features, targets, weights=weights, reference=earlier, backend=backend)
    torch.testing.assert_close(loss.double(), expected, rtol=1e-5, atol=1e-5)
    both = torch.cat([features, earlier[0]]), torch.cat([targets, earlier[1]])[:, None]
    expected = weighted_mean(slow_losses(*both)[:5], weights, 1)
    loss = rnc_loss(features, targets, weights=weights, queue=earlier, backend=backend)
    torch.testing.assert_close(loss.double(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("value", [0.3, 1e300])
@pytest.mark.parametrize("way", ["reference", "plain", "chunks", "fused"])
def test_equal_weights_are_no_weights_to_the_bit(way: str, value: float) -> None:
    n = 3 if way == "fused" else 7
    features, targets = torch.randn(n, 2, 5, requires_grad=True), torch.randint(0, 4, (n,))
    weights = torch.full((n,), value, dtype=torch.float64)
    losses = [rnc_loss(features, targets, weights=w, **WAYS[way]) for w in (None, weights)]
    assert torch.equal(*losses)
    assert torch.equal(*(torch.autograd.grad(loss, features)[0] for loss in losses))


def test_a_weight_of_zero_takes_out_an_anchor_and_leaves_a_contrast() -> None:
    features, targets = torch.randn(6, 4, requires_grad=True), torch.arange(6.0)
    weights = torch.tensor([1.0, 1, 1, 1, 1, 0])
    loss = rnc_loss(features, targets, weights=weights)
    per_anchor = rnc_loss(features, targets, reduction="none")
    torch.testing.assert_close(loss, per_anchor[:5].mean())
    assert loss != rnc_loss(features[:5], targets[:5])
    (grad,) = torch.autograd.grad(loss, features)
    assert grad[5].abs().max() > 0


def test_only_ratios_of_weights_matter_at_any_scale() -> None:
    features, targets = torch.randn(6, 4), torch.arange(6.0)
    weights = torch.tensor([1.0, 2, 3, 0, 5, 6], dtype=torch.float64)
    expected = rnc_loss(features, targets, weights=weights)
    for scale in (1e-300, 1e307):
        loss = rnc_loss(features, targets, weights=weights * scale)
        torch.testing.assert_close(loss, expected)


def test_without_reduction_each_loss_is_multiplied() -> None:
    features, targets = torch.randn(4, 2, 3), torch.arange(4.0)
    weights = torch.tensor([0.0, 1, 2, 3])
    for backend in ("torch", "triton"):
        plain, weighted = (
            rnc_loss(features, targets, weights=w, reduction="none", backend=backend)
            for w in (None, weights)
        )
        torch.testing.assert_close(weighted, plain * weights[:, None])


def test_a_skipped_sample_has_no_weight() -> None:
    features, targets = torch.randn(5, 3), torch.tensor([0.0, torch.nan, 2, 4, 7])
    weights = torch.tensor([1.0, 9, 2, 3, 4])
    kept = torch.tensor([0, 2, 3, 4])
    loss = rnc_loss(features, targets, weights=weights, missing="skip")
    expected = rnc_loss(features[kept], targets[kept], weights=weights[kept])
    torch.testing.assert_close(loss, expected)


@pytest.mark.parametrize("way", ["reference", "plain", "fused"])
def test_a_batch_in_which_all_weigh_nothing_has_loss_and_gradient_0(way: str) -> None:
    features = torch.randn(4, 3, requires_grad=True)
    loss = RnCLoss(**WAYS[way])(features, torch.arange(4.0), weights=torch.zeros(4))
    assert loss == 0
    assert torch.autograd.grad(loss, features)[0].count_nonzero() == 0


@pytest.mark.parametrize("backend", ["torch", "triton"])
@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (torch.ones(5), r"one weight per sample, \(6,\), .*; got weights \(5,\)"),
        (torch.ones(6, 2), r"got weights \(6, 2\)"),
        (torch.tensor([1.0, 1, -2, 1, 1, 1]), r">= 0; got 1 of 6 .*: -2 in row 2\."),
        (torch.tensor([torch.nan, 1, 1, 1, torch.inf, 1]), r"nan in row 0, inf in row 4\."),
    ],
)
def test_bad_weights_are_named(weights: Tensor, message: str, backend: Any) -> None:
    with pytest.raises(ValueError, match=message):
        rnc_loss(torch.randn(6, 2, 3), torch.rand(6), weights=weights, backend=backend)


def test_complex_weights_are_refused() -> None:
    with pytest.raises(TypeError, match=r"real weights; got torch\.complex64"):
        rnc_loss(torch.randn(3, 2), torch.rand(3), weights=torch.ones(3, dtype=torch.complex64))


def test_shares_have_mean_1_and_no_gradient_reaches_the_weights() -> None:
    weights = torch.rand(9, dtype=torch.float64, requires_grad=True)
    torch.testing.assert_close(shares(weights).mean(), torch.tensor(1.0, dtype=torch.float64))
    assert not rnc_loss(torch.randn(9, 3), torch.rand(9), weights=weights).requires_grad


def test_the_bound_is_that_of_the_weighted_loss() -> None:
    targets = torch.tensor([1.0, 1, 1, 2, 5, 5])
    weights = torch.tensor([0.0, 1, 2, 5, 1, 3])
    bound = lower_bound(targets, weights=weights, views=2)
    assert bound != lower_bound(targets, views=2)
    assert torch.equal(lower_bound(targets, weights=torch.full((6,), 0.3)), lower_bound(targets))
    features = ideal_embedding(targets, scale=1e3)[:, None].expand(-1, 2, -1)
    loss = rnc_loss(features, targets, weights=weights)
    torch.testing.assert_close(loss, bound)
    assert gap(features, targets, weights=weights).abs() < 1e-9


def test_a_queue_that_remembers_takes_weights_of_the_batch() -> None:
    setup = MethodSetup(d=3, targets=torch.zeros(9, 1), updates=1, options=MethodOptions(queue=4))
    queued = QueuedLoss(rnc_loss, setup)
    first = torch.randn(4, 1, 3), torch.rand(4, 1)
    queued(*first, weights=torch.rand(4))
    features, targets, weights = torch.randn(3, 1, 3), torch.rand(3, 1), torch.rand(3)
    expected = rnc_loss(
        features, targets, weights=weights, queue=(first[0].flatten(0, 1), first[1])
    )
    assert torch.equal(queued(features, targets, weights=weights), expected)
