"""NT-Xent against the golden numbers, its definition written slowly, and another library."""

import pytest
import torch
from torch import Tensor

from golden import golden_cases
from rnc import rnc_loss
from rnc.methods.simclr import ntxent_loss

TOLERANCE = {torch.float64: 1e-9, torch.float32: 2e-5}


def slow_loss(features: Tensor, temperature: float) -> Tensor:
    n, v, _ = features.shape
    z = {(i, a): features[i, a] / features[i, a].norm() for i in range(n) for a in range(v)}
    losses = []
    for (i, a), anchor in z.items():
        s = {key: anchor @ other / temperature for key, other in z.items() if key != (i, a)}
        log_sum = torch.stack(list(s.values())).logsumexp(0)
        losses.append(torch.stack([log_sum - s[i, b] for b in range(v) if b != a]).mean())
    return torch.stack(losses).mean()


def gradient(loss: Tensor, features: Tensor) -> Tensor:
    (grad,) = torch.autograd.grad(loss, features)
    return grad


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("number", range(4))
def test_golden(number: int, dtype: torch.dtype) -> None:
    case = golden_cases(f"ntxent_{str(dtype).removeprefix('torch.')}")[number]
    features = torch.tensor(case["features_unnormalised"], dtype=dtype, requires_grad=True)
    loss = ntxent_loss(features, temperature=case["temperature"])
    assert loss.dtype == dtype
    assert loss.item() == pytest.approx(case["loss"], rel=TOLERANCE[dtype])
    wanted = torch.tensor(case["grad_features"], dtype=dtype)
    scale = TOLERANCE[dtype] * float(wanted.abs().max())
    torch.testing.assert_close(gradient(loss, features), wanted, rtol=TOLERANCE[dtype], atol=scale)


@pytest.mark.parametrize(("n", "v"), [(1, 2), (5, 2), (4, 3), (3, 5)])
def test_equals_the_definition(n: int, v: int) -> None:
    features = torch.randn(n, v, 6, dtype=torch.float64, requires_grad=True)
    expected, loss = slow_loss(features, 0.2), ntxent_loss(features, temperature=0.2)
    torch.testing.assert_close(loss, expected, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(
        gradient(3 * loss, features), gradient(3 * expected, features), rtol=1e-9, atol=1e-12
    )


def test_is_the_rnc_loss_of_sample_numbers_over_the_nearest_rank() -> None:
    features = torch.randn(9, 3, 6)
    expected = rnc_loss(
        features, torch.arange(9), temperature=0.1, similarity="cosine", positives=1
    )
    torch.testing.assert_close(ntxent_loss(features), expected)


def test_agrees_with_pytorch_metric_learning() -> None:
    losses = pytest.importorskip("pytorch_metric_learning.losses")
    features = torch.randn(16, 2, 6, requires_grad=True)
    rows, samples = features.flatten(0, 1), torch.arange(16).repeat_interleave(2)
    expected = losses.NTXentLoss(temperature=0.1)(rows, samples)
    loss = ntxent_loss(features, temperature=0.1)
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
    torch.testing.assert_close(
        gradient(loss, features), gradient(expected, features), rtol=1e-4, atol=1e-6
    )


def test_the_order_of_samples_and_the_length_of_features_do_not_matter() -> None:
    features = torch.randn(8, 2, 5)
    loss = ntxent_loss(features)
    torch.testing.assert_close(ntxent_loss(features[torch.randperm(8)]), loss)
    torch.testing.assert_close(ntxent_loss(features * torch.rand(8, 2, 1) * 100), loss)


def test_zeros_and_coincident_features_are_finite() -> None:
    for features in (torch.zeros(4, 2, 3), torch.ones(4, 2, 3), 1e30 * torch.randn(4, 2, 3)):
        features.requires_grad_()
        loss = ntxent_loss(features, temperature=0.01)
        assert loss.isfinite()
        assert gradient(loss, features).isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_gives_float32(dtype: torch.dtype) -> None:
    features = torch.randn(16, 2, 8).to(dtype)
    loss = ntxent_loss(features)
    assert loss.dtype == torch.float32
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert ntxent_loss(features.float()) == loss


def test_errors_say_what_to_do() -> None:
    for shape in ((4, 3), (4, 1, 3)):
        with pytest.raises(ValueError, match=r"v >= 2 views .* got \(4, .*Augment each sample"):
            ntxent_loss(torch.randn(shape))
    with pytest.raises(ValueError, match=r"ntxent_loss needs at least two rows .* got 0"):
        ntxent_loss(torch.randn(0, 2, 3))
    with pytest.raises(ValueError, match=r"temperature must be a positive number; got -1"):
        ntxent_loss(torch.randn(4, 2, 3), temperature=-1)
    with pytest.raises(ValueError, match=r"ntxent_loss needs finite features; .* \(rows 0\)"):
        ntxent_loss(torch.tensor([[[1.0], [torch.inf]], [[1.0], [2.0]]]))
