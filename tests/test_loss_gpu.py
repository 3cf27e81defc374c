"""On a CUDA device: the numbers of the CPU, no waiting for the device, no large arrays kept."""

from typing import Any

import pytest
import torch

from rnc import rnc_loss

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


@pytest.mark.parametrize("spread", [1e-3, 1.0, 1e4])
@pytest.mark.parametrize("n", [2, 31, 257, 512])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"similarity": "l1"},
        {"similarity": "cosine"},
        {"positives": 5},
        {"chunk_size": 100},
        {"temperature": 0.1},
    ],
    ids=str,
)
def test_equals_the_cpu(options: dict[str, Any], n: int, spread: float) -> None:
    features = (torch.randn(n, 64) * spread).requires_grad_()
    targets = torch.randint(0, 20, (n,))
    exact = rnc_loss(features.double(), targets, **options)
    (exact_grad,) = torch.autograd.grad(exact, features)
    on_gpu = features.detach().cuda().requires_grad_()
    loss = rnc_loss(on_gpu, targets.cuda(), **options)
    (grad,) = torch.autograd.grad(loss, on_gpu)
    assert loss.item() == pytest.approx(exact.item(), rel=1e-5, abs=1e-13 * max(1.0, spread))
    error = torch.linalg.norm(grad.cpu() - exact_grad)
    assert error <= 1e-5 * torch.linalg.norm(exact_grad) + 1e-12


@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
def test_does_not_wait_for_the_device_unless_it_validates() -> None:
    features = torch.randn(64, 2, 32, device="cuda", requires_grad=True)
    targets = torch.randn(64, device="cuda")
    rnc_loss(features, targets, validate=False).backward()
    torch.cuda.set_sync_debug_mode("error")
    try:
        rnc_loss(features, targets, validate=False).backward()
        rnc_loss(features, targets, validate=False, chunk_size=50).backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert features.grad is not None


def test_half_precision_under_autocast() -> None:
    features = torch.randn(64, 32, device="cuda")
    targets = torch.randn(64, device="cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16):
        assert rnc_loss(features, targets) == rnc_loss(features, targets)
        assert rnc_loss(features.half(), targets).dtype == torch.float32
