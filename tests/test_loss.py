"""The loss against its definition, the golden numbers and its own alternatives."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from golden import golden_cases
from oracle import slow_losses
from rnc import RnCLoss, rnc_loss
from rnc.loss import circular

TIES = {"many": 2, "some": 8, "none": None}  # distinct integer labels
TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5}


def batch(
    n: int, *, d: int = 5, t: int = 1, views: int = 1, ties: str = "some", dtype: Any = None
) -> tuple[Tensor, Tensor]:
    features = torch.randn(n, views, d, dtype=dtype or torch.float64)
    if TIES[ties] is None:
        targets = torch.rand(n, t, dtype=torch.float64) * 30 - 10
    else:
        targets = torch.randint(-3, TIES[ties] - 3, (n, t)).double()
    return features.requires_grad_(), targets


def loss_and_gradient(losses: Tensor, features: Tensor) -> tuple[Tensor, Tensor]:
    """Losses and the gradient of an upstream that differs for every anchor."""
    losses = losses.flatten()
    upstream = torch.linspace(-1, 2, len(losses), dtype=losses.dtype)
    (grad,) = torch.autograd.grad(losses, features, upstream, retain_graph=True)
    return losses.detach(), grad


def assert_same(fast: Tensor, slow: Tensor, features: Tensor, least: float = 1e-3) -> None:
    """Equal values and gradients; `least` is the scale that gradients near zero are judged by."""
    tolerance = TOLERANCE[features.dtype]
    loss, grad = loss_and_gradient(fast, features)
    slow_loss, slow_grad = loss_and_gradient(slow, features)
    torch.testing.assert_close(loss, slow_loss, rtol=tolerance, atol=tolerance, check_dtype=False)
    torch.testing.assert_close(
        grad, slow_grad, rtol=tolerance, atol=tolerance * float(slow_grad.abs().max() + least)
    )


# ------------------------------------------------------------------------------ the definition


@pytest.mark.parametrize("ties", TIES)
@pytest.mark.parametrize("views", [1, 2, 3])
@pytest.mark.parametrize("n", [2, 3, 7, 31, 64])
def test_equals_the_definition(n: int, views: int, ties: str) -> None:
    features, targets = batch(n, views=views, ties=ties)
    slow = slow_losses(features, targets)
    for chunk_size in (None, 5):
        fast = rnc_loss(features, targets, reduction="none", chunk_size=chunk_size)
        assert_same(fast, slow, features)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("similarity", ["l2", "l1", "cosine"])
@pytest.mark.parametrize(
    ("label_distance", "t"),
    [("l1", 1), ("l1", 3), ("l2", 1), ("l2", 3), ("angular", 2), ("circular", 1), ("circular", 2)],
)
@pytest.mark.parametrize("ties", TIES)
def test_every_distance_and_similarity_equals_the_definition(
    ties: str, label_distance: str, t: int, similarity: str, dtype: torch.dtype
) -> None:
    features, targets = batch(9, t=t, views=2, ties=ties, dtype=dtype)
    tolerance = (
        1e-9 if label_distance == "angular" else 0.0
    )  # of different labels: equal angles may round apart
    slow = slow_losses(
        features,
        targets,
        label_distance=label_distance,
        similarity=similarity,
        tie_tolerance=tolerance,
    )
    distance = circular(24.0) if label_distance == "circular" else label_distance
    for chunk_size in (None, 4):
        fast = rnc_loss(
            features,
            targets,
            label_distance=distance,
            similarity=similarity,
            tie_tolerance=tolerance,
            reduction="none",
            chunk_size=chunk_size,
        )
        assert fast.dtype == dtype
        assert_same(fast, slow, features)


@pytest.mark.parametrize("ties", TIES)
@pytest.mark.parametrize("positives", range(1, 12))
def test_positives_equal_the_definition(positives: int, ties: str) -> None:
    features, targets = batch(6, views=2, ties=ties)
    slow = slow_losses(features, targets, positives=positives)
    for chunk_size in (None, 5):
        fast = rnc_loss(
            features, targets, positives=positives, reduction="none", chunk_size=chunk_size
        )
        assert_same(fast, slow, features)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_combination_equals_the_definition(data: st.DataObject) -> None:
    torch.manual_seed(data.draw(st.integers(0, 2**31)))
    n, views = data.draw(st.integers(2, 20)), data.draw(st.integers(1, 3))
    ties = data.draw(st.sampled_from(list(TIES)))
    features, targets = batch(n, views=views, ties=ties, t=data.draw(st.integers(1, 3)))
    options: dict[str, Any] = {
        "temperature": data.draw(st.sampled_from([0.1, 0.5, 2.0, 5.0])),
        "label_distance": data.draw(st.sampled_from(["l1", "l2"])),
        "similarity": data.draw(st.sampled_from(["l2", "l1", "cosine"])),
        "positives": data.draw(st.none() | st.integers(1, n * views)),
        "tie_tolerance": data.draw(st.sampled_from([0.0, 0.5, 1.0])),
    }
    if data.draw(st.booleans()):
        others, other_targets = batch(data.draw(st.integers(1, 9)), t=targets.shape[1])
        options["reference"] = (others.detach(), other_targets)
    chunk_size = data.draw(st.none() | st.integers(1, 12))
    fast = rnc_loss(features, targets, reduction="none", chunk_size=chunk_size, **options)
    # What cancels to a gradient near zero are terms that grow as 1 / temperature.
    least = 1e-2 / options["temperature"]
    assert_same(fast, slow_losses(features, targets, **options), features, least)


@pytest.mark.parametrize("chunk_size", [None, 3])
@pytest.mark.parametrize(
    ("case", "dtype", "rtol"),
    [(case, torch.float64, 1e-9) for case in golden_cases("rnc_loss_float64")]
    + [(case, torch.float32, 2e-5) for case in golden_cases("rnc_loss_float32")],
)
def test_golden_numbers_of_the_authors_code(
    case: dict[str, Any], dtype: torch.dtype, rtol: float, chunk_size: int | None
) -> None:
    features = torch.tensor(case["features"], dtype=dtype, requires_grad=True)
    targets = torch.tensor(case["labels"], dtype=dtype)
    loss = RnCLoss(case["temperature"], "l1", "l2", chunk_size=chunk_size)(features, targets)
    assert loss.item() == pytest.approx(case["loss"], rel=rtol)
    (grad,) = torch.autograd.grad(loss, features)
    expected = torch.tensor(case["grad_features"], dtype=dtype)
    torch.testing.assert_close(grad, expected, rtol=rtol, atol=rtol * float(expected.abs().max()))


@pytest.mark.parametrize("case", golden_cases("rnc_variants"))
def test_golden_numbers_of_the_variants(case: dict[str, Any]) -> None:
    targets = torch.tensor(case["labels_2n"], dtype=torch.float64)
    angular = case["label_dist"] == "angular_deg"
    losses = rnc_loss(
        torch.tensor(case["features_2n"], dtype=torch.float64),
        targets.rad2deg() if angular else targets,
        temperature=case["temperature"],
        label_distance="angular" if angular else case["label_dist"],
        similarity=case["feature_sim"],
        positives=case["k_positives"],
        tie_tolerance=1e-9 if angular else 0.0,
        reduction="none",
    )
    torch.testing.assert_close(losses.tolist(), case["per_anchor"], rtol=1e-9, atol=1e-9)
    assert losses.mean().item() == pytest.approx(case["loss"], rel=1e-9)


# ---------------------------------------------------------------------------------- properties


def test_mean_is_the_mean_over_anchors_of_all_views() -> None:
    features, targets = batch(6, views=3)
    losses = rnc_loss(features, targets, reduction="none")
    assert losses.shape == (6, 3)
    torch.testing.assert_close(rnc_loss(features, targets), losses.mean())


def test_every_view_counts() -> None:
    features, targets = batch(4, views=3)
    changed = features.detach().clone()
    changed[:, 2] += 1.0
    assert rnc_loss(changed, targets) != rnc_loss(features, targets)


def test_module_and_function_agree_on_every_option() -> None:
    features, targets = batch(6, views=2)
    options: dict[str, Any] = {
        "temperature": 0.7,
        "label_distance": circular(period=5.0),
        "similarity": "cosine",
        "positives": 3,
        "missing": "skip",
        "tie_tolerance": 0.5,
        "chunk_size": 4,
        "reduction": "none",
        "gather": True,
        "backend": "torch",
        "validate": False,
    }
    reference = batch(5)
    torch.testing.assert_close(
        RnCLoss(**options)(features, targets, reference=reference),
        rnc_loss(features, targets, reference=reference, **options),
    )


def test_the_temperature_of_a_module_may_change() -> None:
    features, targets = batch(6)
    loss = RnCLoss(temperature=2.0, positives=3)
    for temperature in (2.0, 0.5):
        loss.temperature = temperature
        expected = rnc_loss(features, targets, temperature=temperature, positives=3)
        assert loss(features, targets) == expected
        assert loss.temperature == temperature
    assert "temperature=0.5" in repr(loss)
    with pytest.raises(ValueError, match=r"temperature must be a positive number; got -1\.0\."):
        loss.temperature = -1.0


def test_depends_on_label_order_only() -> None:
    features, targets = batch(12, ties="none")
    stretched = 1000 * targets - 7
    torch.testing.assert_close(rnc_loss(features, stretched), rnc_loss(features, targets))


def test_does_not_depend_on_the_order_of_the_batch() -> None:
    features, targets = batch(20, ties="many")
    shuffle = torch.randperm(20)
    for positives in (None, 1, 4, 10):
        torch.testing.assert_close(
            rnc_loss(features[shuffle], targets[shuffle], positives=positives),
            rnc_loss(features, targets, positives=positives),
            rtol=1e-12,
            atol=0.0,
        )


def test_integer_and_flat_targets_are_fine() -> None:
    features, targets = batch(8, ties="some")
    expected = rnc_loss(features, targets)
    assert rnc_loss(features, targets.long().flatten()) == expected
    assert rnc_loss(features, targets.to(torch.int8)) == expected


def test_tolerance_restores_ties_that_floating_point_splits() -> None:
    features, _ = batch(9, ties="none")
    tenths = torch.arange(9) / 10
    exact = rnc_loss(features, torch.arange(9))
    assert rnc_loss(features, tenths) != exact
    assert rnc_loss(features, tenths, tie_tolerance=1e-6) == exact


def test_custom_functions_are_used() -> None:
    features, targets = batch(7)
    doubled = rnc_loss(
        features,
        targets,
        label_distance=lambda a, b: (a - b.T).abs(),
        similarity=lambda a, b: 2.0 * (a @ b.T),
    )
    halved = rnc_loss(features, targets, similarity=lambda a, b: a @ b.T, temperature=1.0)
    torch.testing.assert_close(doubled, halved)


def test_a_custom_distance_keeps_its_array() -> None:
    features, targets = batch(7)
    kept = (targets - targets.T).abs()
    before = kept.clone()
    rnc_loss(features, targets, label_distance=lambda a, b: kept).backward()
    assert torch.equal(kept, before)


def test_reference_receives_gradients() -> None:
    features, targets = batch(5)
    queue, queue_targets = batch(9, ties="none")
    fast = rnc_loss(features, targets, reference=(queue, queue_targets), reduction="none")
    slow = slow_losses(features, targets, reference=(queue, queue_targets))
    assert_same(fast, slow, queue)


def test_reference_may_have_views_of_its_own() -> None:
    features, targets = batch(3)
    queue, queue_targets = batch(4, views=2)
    torch.testing.assert_close(
        rnc_loss(features, targets, reference=(queue, queue_targets), reduction="none").flatten(),
        slow_losses(features, targets, reference=(queue, queue_targets)),
    )


def test_skipping_missing_targets_equals_leaving_the_rows_out() -> None:
    features, targets = batch(9, views=2, t=2)
    targets[3, 0] = targets[7, 1] = torch.nan
    rows = [0, 1, 2, 4, 5, 6, 8]
    without = rnc_loss(features[rows], targets[rows], reduction="none")
    losses = rnc_loss(features, targets, missing="skip", reduction="none")
    torch.testing.assert_close(losses[rows], without)
    assert losses[[3, 7]].abs().sum() == 0
    mean = rnc_loss(features, targets, missing="skip")
    torch.testing.assert_close(mean, without.mean())
    (grad,) = torch.autograd.grad(mean, features)
    assert grad[[3, 7]].abs().sum() == 0
    assert grad[rows].abs().sum() > 0


@pytest.mark.parametrize("present", [0, 1])
def test_loss_is_zero_where_all_but_one_target_is_missing(present: int) -> None:
    features, targets = batch(4)
    targets[present:] = torch.nan
    loss = rnc_loss(features, targets, missing="skip")
    (grad,) = torch.autograd.grad(loss, features)
    assert loss == 0
    assert grad.abs().sum() == 0


def test_missing_rows_of_a_reference_are_skipped_too() -> None:
    features, targets = batch(4)
    queue, queue_targets = batch(6)
    queue_targets[2] = torch.nan
    rows = [0, 1, 3, 4, 5]
    torch.testing.assert_close(
        rnc_loss(features, targets, reference=(queue, queue_targets), missing="skip"),
        rnc_loss(features, targets, reference=(queue[rows], queue_targets[rows])),
    )
