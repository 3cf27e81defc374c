"""The equation against the definition, and every faster way against the equation."""

import importlib.util
from typing import Any

import pytest
import torch
from torch import Tensor

from oracle import slow_losses
from rnc import RnCLoss, rnc_loss
from rnc.loss import circular
from rnc.loss.equation import pair_losses

TIES = {"many": 2, "some": 8, "none": None}  # distinct integer labels
DISTANCES: dict[str, Any] = {"circular": circular(24.0)}
"""What a name of the definition is called here, where it differs."""


def batch(n: int, views: int, ties: str, t: int = 1) -> tuple[Tensor, Tensor]:
    features = torch.randn(n, views, 5, dtype=torch.float64)
    if TIES[ties] is None:
        return features, torch.rand(n, t, dtype=torch.float64) * 30 - 10
    return features, torch.randint(-3, TIES[ties] - 3, (n, t)).double()


def losses_and_gradient(features: Tensor, losses: Tensor) -> tuple[Tensor, Tensor]:
    """In float64, with an upstream gradient that differs for every anchor."""
    losses = losses.flatten()
    upstream = torch.linspace(-1, 2, len(losses), dtype=losses.dtype, device=losses.device)
    (grad,) = torch.autograd.grad(losses, features, upstream)
    return losses.detach().double(), grad.double()


# ------------------------------------------------------------------ the equation and the definition


@pytest.mark.parametrize("ties", TIES)
@pytest.mark.parametrize("views", [1, 2, 3])
@pytest.mark.parametrize("n", [2, 3, 7, 31])
def test_the_equation_equals_the_definition(n: int, views: int, ties: str) -> None:
    features, targets = batch(n, views, ties)
    features.requires_grad_()
    reference = rnc_loss(features, targets, backend="reference", reduction="none")
    ours = losses_and_gradient(features, reference)
    slow = losses_and_gradient(features, slow_losses(features, targets))
    torch.testing.assert_close(ours, slow, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("similarity", ["l2", "l1", "cosine"])
@pytest.mark.parametrize(("distance", "t"), [("l1", 3), ("l2", 3), ("angular", 2), ("circular", 2)])
def test_the_equation_takes_every_distance_and_similarity(
    distance: str, t: int, similarity: str
) -> None:
    features, targets = batch(9, 2, "none", t)
    features.requires_grad_()
    options: dict[str, Any] = {"similarity": similarity, "temperature": 0.7}
    reference = rnc_loss(
        features,
        targets,
        label_distance=DISTANCES.get(distance, distance),
        backend="reference",
        reduction="none",
        **options,
    )
    slow = slow_losses(features, targets, label_distance=distance, **options)
    torch.testing.assert_close(
        losses_and_gradient(features, reference),
        losses_and_gradient(features, slow),
        rtol=1e-11,
        atol=1e-12,
    )


def test_pair_losses_come_furthest_first() -> None:
    distances = torch.tensor([[0.0, 2.0, 1.0], [2.0, 0.0, 1.0], [1.0, 1.0, 0.0]])
    losses = pair_losses(torch.zeros(3, 3), distances)
    one, both = 0.0, torch.tensor(2.0).log().item()
    torch.testing.assert_close(losses.tolist(), [[one, both], [one, both], [both, both]])


def test_the_mean_is_over_all_pairs() -> None:
    features, targets = batch(6, 2, "some")
    losses = rnc_loss(features, targets, backend="reference", reduction="none")
    assert losses.shape == (6, 2)
    torch.testing.assert_close(rnc_loss(features, targets, backend="reference"), losses.mean())


# ------------------------------------------------------------- the faster ways and the equation

WAYS: dict[str, dict[str, Any]] = {
    "plain": {"backend": "torch"},
    "chunked": {"backend": "torch", "chunk_size": 7},
    "one anchor a chunk": {"backend": "torch", "chunk_size": 1},
    "fused": {"backend": "triton"},
    "fused and chunked": {"backend": "triton", "chunk_size": 4},
}
TOLERANCE = {torch.float64: 1e-11, torch.float32: 1e-5}
NO_TRITON = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="Triton is not installed"
)


@pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")  # of Triton's interpreter
@pytest.mark.parametrize("reduction", ["mean", "none"])
@pytest.mark.parametrize("similarity", ["l2", "l1", "cosine"])
@pytest.mark.parametrize("ties", TIES)
@pytest.mark.parametrize(
    ("way", "n", "dtype"),
    [
        *[("plain", n, dtype) for n in (2, 31, 257) for dtype in TOLERANCE],
        *[("chunked", n, dtype) for n in (2, 31, 257) for dtype in TOLERANCE],
        ("one anchor a chunk", 31, torch.float64),
        pytest.param("fused", 2, torch.float32, marks=NO_TRITON),
        pytest.param("fused", 9, torch.float32, marks=NO_TRITON),
        pytest.param("fused and chunked", 9, torch.float32, marks=NO_TRITON),
    ],
)
def test_every_faster_way_equals_the_equation(
    way: str, n: int, dtype: torch.dtype, ties: str, similarity: str, reduction: str
) -> None:
    device = "cuda" if way.startswith("fused") and torch.cuda.is_available() else "cpu"
    features, targets = batch(n, 1, ties)
    fast, exact = features.to(device, dtype).requires_grad_(), features.to(dtype).double()
    exact.requires_grad_()
    options: dict[str, Any] = {"similarity": similarity, "reduction": reduction}
    losses = rnc_loss(fast, targets.to(device), **options, **WAYS[way])
    assert losses.dtype == dtype
    loss, grad = losses_and_gradient(fast, losses)
    reference = rnc_loss(exact, targets, backend="reference", **options)
    exact_loss, exact_grad = losses_and_gradient(exact, reference)
    tolerance = TOLERANCE[dtype]
    torch.testing.assert_close(loss.cpu(), exact_loss, rtol=tolerance, atol=tolerance)
    least = tolerance * float(exact_grad.abs().max() + 1e-3)
    torch.testing.assert_close(grad.cpu(), exact_grad, rtol=tolerance, atol=least)


# ---------------------------------------------------------------------------- what it leaves out


def test_missing_targets_are_skipped_by_the_equation_too() -> None:
    features, targets = batch(8, 2, "some")
    targets[3] = torch.nan
    for reduction in ("mean", "none"):
        options: dict[str, Any] = {"missing": "skip", "reduction": reduction}
        torch.testing.assert_close(
            rnc_loss(features, targets, backend="reference", **options),
            rnc_loss(features, targets, backend="torch", **options),
        )


@pytest.mark.parametrize("present", [0, 1])
def test_the_equation_is_zero_without_a_pair(present: int) -> None:
    features, targets = torch.randn(4, 3, requires_grad=True), torch.arange(4.0)
    targets[present:] = torch.nan
    loss = rnc_loss(features, targets, missing="skip", backend="reference")
    (grad,) = torch.autograd.grad(loss, features)
    assert loss == 0
    assert grad.abs().sum() == 0


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"positives": 2}, "contrasts all samples, got positives=2"),
        ({"tie_tolerance": 0.1}, r"ties are exact, got tie_tolerance=0\.1"),
        ({"chunk_size": 3}, "all anchors at once, got chunk_size=3"),
        (
            {"reference": (torch.randn(3, 4), torch.randn(3))},
            "each other, got reference= or queue=",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_the_equation_has_not_is_refused(options: dict[str, Any], reason: str) -> None:
    features, targets = torch.randn(6, 4), torch.randn(6)
    with pytest.raises(ValueError, match=f"backend='reference' cannot run here: .*{reason}.*auto"):
        rnc_loss(features, targets, backend="reference", **options)
    assert rnc_loss(features, targets, **options).isfinite()


def test_a_second_derivative_exists_for_the_equation() -> None:
    features = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
    loss = RnCLoss(similarity="cosine", backend="reference")
    assert torch.autograd.gradgradcheck(lambda rows: loss(rows, torch.arange(5)), features)
