"""The range in which the loss is exact, by the definition in arbitrary precision."""

from typing import Any

import pytest
import torch
from torch import Tensor

from exact_oracle import Setting, exact_losses
from rnc import RnCLoss, rnc_loss

TOLERANCE = {torch.float32: 1e-6, torch.float64: 1e-11}


def check_exact(features: Tensor, targets: Tensor, **options: Any) -> None:
    """Compare value and gradient; a row may err by its share of what was added up to it.

    And by what the rounding of distances to 15 digits does, where they differ by less than that.
    """
    features = features.detach().requires_grad_()
    loss = rnc_loss(features, targets, backend="torch", **options)
    (grad,) = torch.autograd.grad(loss, features)
    n = len(features)
    rows, labels = features.detach().double().tolist(), targets.double().tolist()
    exact = exact_losses(rows, labels, [1 / n] * n, Setting(**options))
    tolerance = TOLERANCE[features.dtype]
    assert loss.item() == pytest.approx(float(sum(exact.losses) / n), rel=tolerance)
    for row, right, scale, slack in zip(grad.tolist(), *exact[2:], strict=True):
        allowed = float(tolerance * scale + slack)
        assert row == pytest.approx([float(c) for c in right], rel=0, abs=allowed)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("similarity", ["l2", "l1"])
@pytest.mark.parametrize("spread", [1e5, 1e10, 1e16, 1e30])
def test_gradients_are_exact_however_far_features_spread(
    spread: float, similarity: str, dtype: torch.dtype
) -> None:
    features = (spread * torch.randn(9, 3)).to(dtype)
    for targets in (torch.randn(9, 1), torch.randint(0, 3, (9, 1))):
        check_exact(features, targets, similarity=similarity, temperature=1.0)
        check_exact(features, targets, similarity=similarity, temperature=1.0, positives=3)


@pytest.mark.parametrize("factor", [1e4, 1e7, 1e12, 1e30])
def test_one_row_far_away_does_not_blur_the_others(factor: float) -> None:
    features = torch.randn(6, 3)
    features[2] *= factor
    check_exact(features, torch.randn(6, 1))
    check_exact(features, torch.randn(6, 1), temperature=0.1)


def test_groups_of_rows_far_from_each_other_stay_exact() -> None:
    features = torch.randn(12, 2) + 1e6 * torch.arange(3.0).repeat(4)[:, None]
    check_exact(features, torch.randn(12, 1))


def test_pairs_that_are_too_near_for_the_product_are_taken_in_blocks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    features, reference = torch.randn(8, 3), torch.randn(9, 3)
    features[0], reference[1] = 1e8, -1e9
    targets, labels = torch.randn(8, 1), torch.randn(9, 1)

    def gradients() -> tuple[Tensor, ...]:
        rows = features.clone().requires_grad_(), reference.clone().requires_grad_()
        loss = rnc_loss(rows[0], targets, reference=(rows[1], labels))
        return torch.autograd.grad(loss, rows)

    whole = gradients()
    monkeypatch.setattr("rnc.loss.pairwise.NEAR_NUMBERS", 15)
    for part, all_at_once in zip(gradients(), whole, strict=True):
        torch.testing.assert_close(part, all_at_once)


@pytest.mark.parametrize("similarity", ["l2", "l1", "cosine"])
@pytest.mark.parametrize("scale", [1e-300, 1e-200, 1e155, 1e250])
def test_float64_features_of_any_scale(scale: float, similarity: str) -> None:
    features = scale * torch.randn(6, 3, dtype=torch.float64)
    check_exact(features, torch.randn(6, 1), similarity=similarity)


@pytest.mark.parametrize("scale", [2.0**-564, 2.0**532])
@pytest.mark.parametrize("t", [1, 2])
def test_l2_ranks_labels_of_any_scale(scale: float, t: int) -> None:
    features, targets = torch.randn(8, 3), torch.randint(-5, 6, (8, t)).double()
    expected = rnc_loss(features, targets, label_distance="l2")
    assert rnc_loss(features, scale * targets, label_distance="l2") == expected


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("similarity", ["l2", "l1", "cosine"])
def test_a_reference_without_a_target_gives_zero_and_no_nan(
    similarity: str, dtype: torch.dtype
) -> None:
    features = torch.randn(4, 3, dtype=dtype, requires_grad=True)
    queue = torch.zeros(5, 3, dtype=dtype), torch.full((5, 1), torch.nan)
    loss = rnc_loss(
        features, torch.arange(4), reference=queue, missing="skip", similarity=similarity
    )
    (grad,) = torch.autograd.grad(loss, features)
    assert loss == 0
    assert grad.tolist() == [[0.0] * 3] * 4


# ------------------------------------------------------------------------- beyond it: refused


@pytest.mark.parametrize("backend", ["torch", "triton"])
@pytest.mark.parametrize("missing", ["raise", "skip"])
@pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")  # of the interpreter
def test_targets_whose_distances_overflow_are_refused(missing: str, backend: str) -> None:
    targets = torch.tensor([0.0, 1.5e308, -1.5e308, 1.0], dtype=torch.float64)
    message = r"within 1e\+300.*got 1.5e\+308 in 2 of 4 samples \(rows 1, 2\)\. Divide them all"
    with pytest.raises(ValueError, match=message):
        rnc_loss(torch.randn(4, 2), targets, missing=missing, backend=backend)


def test_a_loss_that_its_type_cannot_hold_is_refused() -> None:
    features = torch.tensor([[1e38], [-1e38], [0.0]])
    message = r"too large for torch.float32.*temperature=0.1\. Scale the features down or raise"
    with pytest.raises(ValueError, match=message):
        rnc_loss(features, torch.arange(3), temperature=0.1)
    assert rnc_loss(features.double(), torch.arange(3), temperature=0.1).isfinite()


def test_a_similarity_that_returns_nan_is_named() -> None:
    def broken(a: Tensor, b: Tensor) -> Tensor:
        return (a @ b.T).log()

    with pytest.raises(ValueError, match=r"from similarity=<function.*broken.*finite numbers"):
        rnc_loss(torch.randn(5, 3), torch.arange(5), similarity=broken)


def test_a_temperature_that_asks_for_a_gradient_is_refused_and_the_advice_gives_it_one() -> None:
    temperature = torch.nn.Parameter(torch.tensor(0.7, dtype=torch.float64))
    features, targets = torch.randn(6, 3, dtype=torch.float64), torch.arange(6)
    message = r"number; got a tensor that asks for a gradient.*divide by it before the loss"
    with pytest.raises(TypeError, match=message):
        rnc_loss(features, targets, temperature=temperature)
    with pytest.raises(TypeError, match=message):
        RnCLoss(temperature=temperature)
    loss = rnc_loss(features / temperature, targets, temperature=1.0)
    (grad,) = torch.autograd.grad(loss, temperature)
    low, high = (rnc_loss(features, targets, temperature=0.7 + h) for h in (-1e-6, 1e-6))
    assert loss.item() == pytest.approx(rnc_loss(features, targets, temperature=0.7).item())
    assert grad.item() == pytest.approx((high - low).item() / 2e-6, rel=1e-5)
