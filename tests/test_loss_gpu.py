"""On a CUDA device: the numbers of the CPU, without waiting for the device or large arrays."""

from typing import Any

import pytest
import torch

from rnc import RnCLoss, rnc_loss

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


@pytest.mark.filterwarnings("ignore:The AccumulateGrad node's stream")  # of torch's warm-up
def test_runs_as_the_graph_that_torch_makes() -> None:
    batches = [
        (torch.randn(96, 32, device="cuda") + i, torch.rand(96, device="cuda")) for i in (0, 1)
    ]
    example = (batches[0][0].clone().requires_grad_(), batches[0][1].clone())
    graphed = torch.cuda.make_graphed_callables(RnCLoss(validate=False), example)
    for features, targets in batches:
        losses, grads = [], []
        for loss in (graphed, rnc_loss):
            own = features.clone().requires_grad_()
            losses.append(loss(own, targets))
            grads.append(torch.autograd.grad(losses[-1], own)[0].clone())
        assert torch.equal(losses[0], losses[1])
        assert torch.equal(grads[0], grads[1])


@pytest.mark.parametrize("where", ["features", "targets"])
def test_refuses_what_is_no_number(where: str) -> None:
    features, targets = torch.randn(8, 4).cuda(), torch.rand(8).cuda()
    (features if where == "features" else targets)[3] = torch.nan
    with pytest.raises(ValueError, match=where):
        rnc_loss(features, targets)
    assert not rnc_loss(features, targets, validate=False).isfinite()


@pytest.mark.parametrize("spread", [1e-3, 1.0, 1e4])
@pytest.mark.parametrize("ties", ["many", "some", "none"])
@pytest.mark.parametrize("n", [2, 3, 31, 257, 512, 4096])
def test_equals_the_plain_path_in_float64(n: int, ties: str, spread: float) -> None:
    features = (spread * torch.randn(n, 512, device="cuda")).requires_grad_()
    targets = torch.rand(n, device="cuda", dtype=torch.float64)
    targets = targets if ties == "none" else (targets * {"many": 5, "some": n}[ties]).round()
    loss = rnc_loss(features, targets, backend="triton")
    (grad,) = torch.autograd.grad(loss, features)
    exact = rnc_loss(features.double(), targets, backend="torch")
    (exact_grad,) = torch.autograd.grad(exact, features)
    assert loss.item() == pytest.approx(exact.item(), rel=1e-5, abs=1e-13 * max(1.0, spread))
    error = torch.linalg.norm(grad - exact_grad)
    assert error <= 1e-5 * torch.linalg.norm(exact_grad) + 1e-12
