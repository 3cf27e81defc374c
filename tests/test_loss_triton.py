"""The fused backend against the plain one: in Triton's interpreter, or on a GPU if there is one."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from rnc import RnCLoss, rnc_loss
from rnc.loss import circular

pytest.importorskip("triton", reason="Triton is not installed")

from rnc.loss.batch import Problem, Rows
from rnc.loss.fused import fused_losses
from rnc.loss.kernels import contrast

# Lanes that are masked out may divide by zero; the interpreter lets NumPy say so.
pytestmark = pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SIZES = [2, 3, 11] + ([31, 257, 512, 4096] if DEVICE == "cuda" else [])
TIES: dict[str, Callable[[int], Tensor]] = {
    "many": lambda n: torch.randint(0, 2, (n,)).double(),
    "some": lambda n: torch.randint(0, max(2, n // 3), (n,)).double(),
    "none": lambda n: torch.randn(n, dtype=torch.float64),
}


def check_equal(features: Tensor, targets: Tensor, **options: Any) -> None:
    """Loss and gradient, with an upstream gradient of its own for every loss."""
    exact = features.detach().double().requires_grad_()
    features = features.detach().to(DEVICE).requires_grad_()
    expected = rnc_loss(exact, targets, **options)
    loss = rnc_loss(features, targets.to(DEVICE), backend="triton", **options)
    assert loss.dtype == torch.float32
    scale = 1 + float(exact.detach().abs().max())  # what a logit of this size rounds to
    torch.testing.assert_close(
        loss.cpu().double(), expected.detach(), rtol=1e-5, atol=1e-14 * scale * features.shape[-1]
    )
    upstream = torch.rand_like(expected) + 0.5
    expected.backward(upstream)
    loss.backward(upstream.to(loss))
    assert exact.grad is not None
    assert features.grad is not None
    error = torch.linalg.norm(features.grad.cpu().double() - exact.grad)
    assert error <= 1e-5 * torch.linalg.norm(exact.grad) + 1e-12


@pytest.fixture(params=[1024, 4], ids=["one tile", "tiles"])
def tiles(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contrast, "SAMPLE_BLOCK", request.param)


@pytest.mark.usefixtures("tiles")
@pytest.mark.parametrize("ties", TIES)
@pytest.mark.parametrize("n", SIZES)
def test_equals_the_plain_path(n: int, ties: str) -> None:
    check_equal(torch.randn(n, 7), TIES[ties](n))


@pytest.mark.usefixtures("tiles")
@pytest.mark.parametrize("spread", [1e-3, 30.0, 200.0, 1e4, 1e8])
def test_equals_it_for_features_of_any_spread(spread: float) -> None:
    for n in (9, *SIZES[3:]):
        check_equal(spread * torch.randn(n, 5), TIES["some"](n))


@pytest.mark.parametrize(
    "options",
    [
        {"similarity": "l1"},
        {"similarity": "cosine"},
        {"temperature": 0.1},
        {"label_distance": "l2"},
        {"reduction": "none"},
        {"reduction": "none", "chunk_size": 4},
        {"chunk_size": 4},
        {"similarity": "l1", "chunk_size": 4},
        {"missing": "skip"},
    ],
    ids=str,
)
def test_equals_it_with_every_option(options: dict[str, Any]) -> None:
    targets = TIES["some"](10)
    if "missing" in options:
        targets[3] = torch.nan
    check_equal(torch.randn(10, 6), targets, **options)


def test_equals_it_for_views_and_targets_of_other_types() -> None:
    check_equal(torch.randn(5, 2, 6), torch.randint(-3, 3, (5, 1)))
    check_equal(torch.randn(6, 40), torch.randn(6).bfloat16())


@pytest.mark.usefixtures("tiles")
def test_labels_whose_distances_round_to_ties_are_ties() -> None:
    close = torch.tensor([0.0, 1e-17, 2e-17, 5e-17, 1.0, 1.0, 2.0, 3.0, 1e-17]).double()
    assert torch.unique((close - 1).abs()).numel() < torch.unique(close).numel()
    for _ in range(3):
        check_equal(torch.randn(9, 4), close[torch.randperm(9)])


def test_coincident_features_have_a_finite_gradient() -> None:
    check_equal(torch.randn(4, 6).repeat(3, 1), TIES["some"](12))
    check_equal(torch.zeros(6, 3), TIES["some"](6))


@pytest.mark.parametrize("spread", [1e-30, 1e30])
def test_is_finite_for_extreme_features(spread: float) -> None:
    features = (spread * torch.randn(6, 4, device=DEVICE)).requires_grad_()
    loss = rnc_loss(features, TIES["some"](6).to(DEVICE), backend="triton")
    loss.backward()
    assert loss.isfinite()
    assert features.grad is not None
    assert features.grad.isfinite().all()


@pytest.mark.parametrize("similarity", ["l2", "l1", "cosine"])
def test_a_reference_gets_its_gradient(similarity: str) -> None:
    anchors, others = torch.randn(5, 4), torch.randn(8, 4)
    targets, labels = TIES["some"](5), TIES["some"](8)
    grads = []
    for backend, dtype, device in (("torch", torch.float64, "cpu"), ("triton", None, DEVICE)):
        a, b = (x.to(device, dtype).detach().requires_grad_() for x in (anchors, others))
        reference = (b, labels.to(device))
        loss = rnc_loss(
            a, targets.to(device), reference=reference, similarity=similarity, backend=backend
        )
        grads.append([grad.cpu().double() for grad in torch.autograd.grad(3 * loss, (a, b))])
    for exact, grad in zip(*grads, strict=True):
        torch.testing.assert_close(grad, exact, rtol=1e-5, atol=1e-7)


def test_anchors_may_be_some_of_the_samples() -> None:
    """As with gather=True, where a process has rows 3 to 6 of a batch."""
    features, targets = torch.randn(9, 4, device=DEVICE), TIES["some"](9).to(DEVICE)
    whole = rnc_loss(features, targets, reduction="none", backend="torch")
    everyone = Rows(features, targets[:, None])
    mine = Rows(features[3:7], targets[3:7, None])
    problem = Problem(mine, everyone, 3, kept=None, is_shared=True, given=[])
    losses = fused_losses(problem, RnCLoss(reduction="none").options)
    torch.testing.assert_close(losses, whole[3:7])
    torch.testing.assert_close(fused_losses(problem, RnCLoss().options), whole[3:7].sum())


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"targets": torch.randn(6, 2)}, "one target per sample, got 2"),
        ({"label_distance": circular(24)}, r"'l1' or 'l2', got circular\(period=24\)"),
        ({"similarity": lambda a, b: a @ b.T}, "similarity 'l2', 'l1' or 'cosine', got <function"),
        ({"positives": 2}, "contrasts all samples, got positives=2"),
        ({"tie_tolerance": 0.1}, "ties are exact, got tie_tolerance=0.1"),
        ({"features": torch.randn(6, 3).double()}, "half precision features, got float64"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_where_it_cannot_run_it_says_why(change: dict[str, Any], reason: str) -> None:
    arguments = {"features": torch.randn(6, 3), "targets": torch.randn(6), **change}
    with pytest.raises(ValueError, match=f"{reason}.*backend='auto' takes what can"):
        rnc_loss(backend="triton", **arguments)
    assert torch.isfinite(rnc_loss(**arguments))


@pytest.mark.skipif(DEVICE == "cuda", reason="needs a machine without a GPU")
def test_without_a_gpu_and_the_interpreter_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contrast, "is_interpreted", lambda: False)
    with pytest.raises(ValueError, match="it needs a GPU, got features on cpu"):
        rnc_loss(torch.randn(4, 3), torch.randn(4), backend="triton")


@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_a_value_that_is_no_number_raises(reduction: str) -> None:
    loss = RnCLoss(backend="triton", reduction=reduction)
    features, targets = torch.randn(6, 3, device=DEVICE), torch.randn(6, device=DEVICE)
    broken = features.clone()
    broken[4, 1] = torch.inf
    with pytest.raises(ValueError, match=r"needs finite features.*1 of 6 samples \(rows 4\)"):
        loss(broken, targets)
    targets[2] = torch.nan
    with pytest.raises(ValueError, match=r"NaN targets in 1 of 6 samples \(rows 2\)"):
        loss(features, targets)


def test_has_no_second_derivative() -> None:
    features = torch.randn(4, 3, device=DEVICE, requires_grad=True)
    loss = rnc_loss(features, torch.randn(4, device=DEVICE), backend="triton")
    with pytest.raises(RuntimeError, match="no second derivative"):
        torch.autograd.grad(loss, features, create_graph=True)


@pytest.mark.parametrize("similarity", ["l2", "l1"])
def test_gradients_err_as_the_documentation_says_where_features_spread_extremely(
    similarity: str,
) -> None:
    for spread, tolerance in ((1e10, 1e-5), (1e14, 0.2)):
        features, targets = spread * torch.randn(7, 3), TIES["some"](7)
        exact = features.double().requires_grad_()
        options: dict[str, Any] = {"similarity": similarity, "temperature": 1.0}
        features = features.to(DEVICE).requires_grad_()
        loss = rnc_loss(features, targets.to(DEVICE), backend="triton", **options)
        (grad,) = torch.autograd.grad(loss, features)
        (right,) = torch.autograd.grad(rnc_loss(exact, targets, **options), exact)
        error = torch.linalg.norm(grad.cpu() - right)
        assert error <= tolerance * torch.linalg.norm(right)
