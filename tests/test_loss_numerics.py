"""Finite for every finite input, and exact where the authors' code returns -inf."""

import shutil
import warnings

import pytest
import torch
from torch import Tensor

from oracle import slow_losses
from rnc import rnc_loss


def gradient(loss: Tensor, features: Tensor) -> Tensor:
    (grad,) = torch.autograd.grad(loss, features)
    return grad


@pytest.mark.parametrize("similarity", ["l2", "l1"])
@pytest.mark.parametrize("temperature", [0.1, 2.0])
@pytest.mark.parametrize("spread", [1e-30, 1e-3, 1.0, 50.0, 1e4, 1e8])
def test_spread_features_are_finite_and_exact(
    spread: float, temperature: float, similarity: str
) -> None:
    features = (torch.randn(16, 8) * spread).requires_grad_()
    targets = torch.randint(0, 9, (16, 1))
    loss = rnc_loss(features, targets, temperature=temperature, similarity=similarity)
    grad = gradient(loss, features)
    assert loss.isfinite()
    assert grad.isfinite().all()
    exact = slow_losses(features, targets, temperature=temperature, similarity=similarity).mean()
    exact_grad = gradient(exact, features)
    assert loss.item() == pytest.approx(exact.item(), rel=1e-5)
    error = torch.linalg.norm(grad - exact_grad) / torch.linalg.norm(exact_grad)
    assert error <= 1e-5


@pytest.mark.parametrize("similarity", ["l2", "l1", "cosine"])
@pytest.mark.parametrize("spread", [1e12, 1e20, 1e30])
def test_absurdly_spread_features_are_finite(spread: float, similarity: str) -> None:
    features = (torch.randn(16, 8) * spread).requires_grad_()
    loss = rnc_loss(features, torch.randint(0, 9, (16, 1)), similarity=similarity)
    assert loss.isfinite()
    assert gradient(loss, features).abs().max() < 1.0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("similarity", ["l2", "l1", "cosine"])
def test_coincident_features_have_gradient_zero(similarity: str, dtype: torch.dtype) -> None:
    features = torch.full((6, 4), 3.7, dtype=dtype, requires_grad=True)
    loss = rnc_loss(features, torch.arange(6), similarity=similarity)
    assert loss.isfinite()
    torch.testing.assert_close(
        gradient(loss, features), torch.zeros(6, 4, dtype=dtype), rtol=0, atol=1e-7
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("d", [3, 512])
def test_a_second_view_equal_to_the_first_changes_no_gradient(d: int, dtype: torch.dtype) -> None:
    view = torch.randn(8, d, dtype=dtype)
    features = torch.stack([view, view], dim=1).requires_grad_()
    targets = torch.randn(8, 1)
    loss = rnc_loss(features, targets)
    exact = slow_losses(features, targets).mean()
    torch.testing.assert_close(loss.double(), exact, rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(
        gradient(loss, features), gradient(exact, features), rtol=1e-5, atol=1e-7
    )


@pytest.mark.parametrize("similarity", ["l2", "l1", "cosine"])
def test_rows_of_zeros_are_finite(similarity: str) -> None:
    features = torch.randn(6, 4)
    features[2:4] = 0.0
    features.requires_grad_()
    loss = rnc_loss(features, torch.arange(6), similarity=similarity)
    assert loss.isfinite()
    assert gradient(loss, features).isfinite().all()


def test_an_offset_that_all_features_share_does_not_cost_precision() -> None:
    features = torch.randn(16, 32)
    targets = torch.randn(16, 1)
    shifted = features + 100.0
    exact = slow_losses(shifted, targets).mean()
    torch.testing.assert_close(rnc_loss(shifted, targets).double(), exact, rtol=1e-6, atol=0.0)


def test_equal_labels_and_equal_features_reach_the_bound_exactly() -> None:
    features = torch.zeros(4, 2, 3)
    assert rnc_loss(features, torch.zeros(4)).item() == pytest.approx(1.945910149, abs=1e-6)


@pytest.mark.parametrize(("dtype", "rtol"), [(torch.float16, 1e-3), (torch.bfloat16, 1e-2)])
def test_half_precision_is_computed_in_float32(dtype: torch.dtype, rtol: float) -> None:
    features = (torch.randn(16, 512) * 5).to(dtype).requires_grad_()
    targets = torch.randn(16, 1)
    loss = rnc_loss(features, targets, temperature=0.5)
    assert loss.dtype == torch.float32
    exact = slow_losses(features, targets, temperature=0.5).mean()
    assert loss.item() == pytest.approx(exact.item(), rel=1e-5)
    torch.testing.assert_close(
        gradient(loss, features), gradient(exact, features), rtol=rtol, atol=1e-6
    )


@pytest.mark.parametrize("similarity", ["l2", "l1", "cosine"])
def test_autocast_changes_nothing(similarity: str) -> None:
    features, targets = torch.randn(16, 64), torch.randn(16, 1)
    plain = rnc_loss(features, targets, similarity=similarity)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert rnc_loss(features, targets, similarity=similarity) == plain


@pytest.mark.parametrize("similarity", ["l2", "l1", "cosine"])
@pytest.mark.parametrize("positives", [None, 2])
def test_gradcheck(similarity: str, positives: int | None) -> None:
    features = torch.randn(5, 2, 3, dtype=torch.float64, requires_grad=True)
    targets = torch.tensor([1, 1, 2, 5, 3])
    for chunk_size in (None, 4):
        assert torch.autograd.gradcheck(
            lambda rows, chunk_size=chunk_size: rnc_loss(
                rows, targets, similarity=similarity, positives=positives, chunk_size=chunk_size
            ),
            features,
        )


def test_a_second_derivative_is_refused_rather_than_wrong() -> None:
    features = torch.randn(5, 3, requires_grad=True)
    loss = rnc_loss(features, torch.arange(5))
    with pytest.raises(RuntimeError, match=r"no second derivative.*Leave out create_graph=True"):
        torch.autograd.grad(loss, features, create_graph=True)


def test_only_one_pairwise_array_outlives_the_forward_pass() -> None:
    """The gradient, beside the similarities that the distance itself keeps."""
    features = torch.randn(64, 4, requires_grad=True)
    kept: list[int] = []

    def note(tensor: Tensor) -> Tensor:
        kept.append(tensor.numel())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        rnc_loss(features, torch.arange(64))
    assert sum(size >= 64 * 63 for size in kept) == 2


def test_chunks_keep_no_pairwise_array() -> None:
    features = torch.randn(64, 4, requires_grad=True)
    kept: list[int] = []

    def note(tensor: Tensor) -> Tensor:
        kept.append(tensor.numel())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        rnc_loss(features, torch.arange(64), chunk_size=32)
    assert max(kept, default=0) < 32 * 64


@pytest.mark.parametrize(
    ("backend", "similarity", "chunk_size"),
    [
        ("aot_eager", "l2", None),
        ("aot_eager", "l2", 6),
        ("aot_eager", "l1", None),
        ("aot_eager", "cosine", None),
        pytest.param(
            "inductor",
            "l2",
            None,
            marks=pytest.mark.skipif(
                not shutil.which("g++"), reason="inductor needs a C++ compiler"
            ),
        ),
    ],
)
def test_compiles_to_one_graph(backend: str, similarity: str, chunk_size: int | None) -> None:
    features = torch.randn(10, 2, 5, requires_grad=True)
    targets = torch.randint(0, 4, (10,))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the compiler's own deprecations
        torch.compiler.reset()
        compiled = torch.compile(rnc_loss, fullgraph=True, backend=backend)
        loss = compiled(features, targets, similarity=similarity, chunk_size=chunk_size)
        grad = gradient(loss, features)
    eager = rnc_loss(features, targets, similarity=similarity)
    torch.testing.assert_close(loss, eager, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(grad, gradient(eager, features), rtol=1e-5, atol=1e-7)
