"""SupCon against the golden numbers, its definition written slowly, and another library."""

from typing import Any

import pytest
import torch
from torch import Tensor

from golden import golden_cases
from rnc import rnc_loss
from rnc.heads import Head, HeadConfig
from rnc.methods.projection import ProjectionHead, unit_length
from rnc.methods.supcon import supcon_loss, to_classes

TOLERANCE = {torch.float64: 1e-9, torch.float32: 2e-5}


def slow_losses(features: Tensor, classes: list[int], temperature: float) -> Tensor:
    """One loss per row of (n, d)."""
    losses = []
    for i, anchor in enumerate(features):
        others = [k for k in range(len(features)) if k != i]
        s = {k: anchor @ features[k] / temperature for k in others}
        log_sum = torch.stack(list(s.values())).logsumexp(0)
        terms = [log_sum - s[p] for p in others if classes[p] == classes[i]]
        losses.append(torch.stack(terms).mean() if terms else 0 * anchor.sum())
    return torch.stack(losses)


def check(loss: Tensor, features: Tensor, value: float, grad: Any, rtol: float) -> None:
    assert loss.dtype == features.dtype
    assert loss.item() == pytest.approx(value, rel=rtol)
    (own,) = torch.autograd.grad(loss, features)
    wanted = torch.as_tensor(grad, dtype=features.dtype)
    torch.testing.assert_close(own, wanted, rtol=rtol, atol=rtol * float(wanted.abs().max()))


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("number", range(5))
def test_golden(number: int, dtype: torch.dtype) -> None:
    case = golden_cases(f"supcon_{str(dtype).removeprefix('torch.')}")[number]
    features = torch.tensor(case["features"], dtype=dtype, requires_grad=True)
    temperatures = {key: case[key] for key in ("temperature", "base_temperature")}
    losses = supcon_loss(features, torch.tensor(case["labels"]), **temperatures, reduction="none")
    # contrast_mode "one" has only the first views as anchors.
    loss = losses[:, 0].mean() if case["contrast_mode"] == "one" else losses.mean()
    check(loss, features, case["loss"], case["grad_features"], TOLERANCE[dtype])
    if case["contrast_mode"] == "all":
        mean = supcon_loss(features, torch.tensor(case["labels"]), **temperatures)
        assert mean.item() == pytest.approx(case["loss"], rel=TOLERANCE[dtype])


@pytest.mark.parametrize("n", [2, 3, 17])
@pytest.mark.parametrize("classes", [1, 4, 100])
def test_equals_the_definition(n: int, classes: int) -> None:
    features = unit_length(torch.randn(n, 5, dtype=torch.float64)).requires_grad_()
    labels = torch.randint(0, classes, (n,))
    expected = slow_losses(features, labels.tolist(), 0.3).mean() * 0.3 / 0.1
    (grad,) = torch.autograd.grad(3 * expected, features)
    loss = supcon_loss(features, labels, temperature=0.3, base_temperature=0.1)
    check(3 * loss, features, 3 * expected.item(), grad, 1e-10)


def test_is_the_rnc_loss_over_the_nearest_rank() -> None:
    features = unit_length(torch.randn(12, 2, 5)).requires_grad_()
    classes = torch.randint(0, 4, (12,))
    expected = rnc_loss(
        features,
        classes,
        temperature=0.1,
        similarity=lambda a, b: a.double() @ b.double().T,
        positives=1,
    )
    (grad,) = torch.autograd.grad(expected, features)
    loss = supcon_loss(features, classes, temperature=0.1, base_temperature=0.1)
    check(loss, features, expected.item(), grad, 1e-5)


def test_agrees_with_pytorch_metric_learning() -> None:
    losses = pytest.importorskip("pytorch_metric_learning.losses")
    features = unit_length(torch.randn(32, 6)).requires_grad_()
    classes = torch.arange(32) % 8  # each anchor has a positive: theirs leaves out the others
    expected = losses.SupConLoss(temperature=0.1)(features, classes)
    loss = supcon_loss(unit_length(features), classes, temperature=0.1, base_temperature=0.1)
    check(loss, features, expected.item(), torch.autograd.grad(expected, features)[0], 1e-4)


def test_corn_agrees_with_coral_pytorch() -> None:
    losses = pytest.importorskip("coral_pytorch.losses")
    dataset = pytest.importorskip("coral_pytorch.dataset")
    for bins in (2, 5, 20):
        logits = torch.randn(40, bins - 1, requires_grad=True)
        classes = torch.randint(0, bins, (40,))
        expected = losses.corn_loss(logits, classes, num_classes=bins)
        (grad,) = torch.autograd.grad(expected, logits)
        head = Head(HeadConfig("corn", 1, (0.0,), (1.0,), (bins,), {"decode": "class"}))
        check(head.loss(logits, classes).mean(), logits, expected.item(), grad, 1e-5)
        decoded = head.decode(logits)[:, 0].tolist()
        assert decoded == dataset.corn_label_from_logits(logits).tolist()


def test_an_anchor_without_positives_has_loss_0_and_counts() -> None:
    features = unit_length(torch.randn(5, 4))
    losses = supcon_loss(features, torch.tensor([7, 1, 1, 2, 3]), reduction="none")
    assert losses[[0, 3, 4]].tolist() == [0, 0, 0]
    assert (losses[1:3] > 0).all()
    mean = supcon_loss(features, torch.tensor([7, 1, 1, 2, 3]))
    assert mean.item() == pytest.approx(losses.sum().item() / 5)


def test_all_classes_distinct_is_loss_0_with_gradient_0() -> None:
    features = torch.randn(6, 4, requires_grad=True)
    loss = supcon_loss(features, torch.arange(6))
    loss.backward()
    assert loss.item() == 0
    assert features.grad is not None
    assert features.grad.abs().max() == 0


def test_a_class_may_be_a_row_of_bins() -> None:
    features = unit_length(torch.randn(20, 2, 4))
    rows = torch.randint(0, 3, (20, 2))
    assert supcon_loss(features, rows) == supcon_loss(features, rows[:, 0] * 3 + rows[:, 1])


def test_huge_features_and_a_small_temperature_stay_finite() -> None:
    features = (1e4 * torch.randn(8, 4)).requires_grad_()
    loss = supcon_loss(features, torch.arange(8) % 2, temperature=1e-3)
    loss.backward()
    assert loss.isfinite()
    assert features.grad is not None
    assert features.grad.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_gives_float32(dtype: torch.dtype) -> None:
    features = unit_length(torch.randn(16, 2, 8)).to(dtype)
    classes = torch.randint(0, 4, (16,))
    loss = supcon_loss(features, classes)
    assert loss.dtype == torch.float32
    assert loss == supcon_loss(features.float(), classes)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert supcon_loss(features.float(), classes) == loss


def test_errors_say_what_to_do() -> None:
    features = torch.randn(4, 3)
    with pytest.raises(ValueError, match=r"at least two rows .* got 1\. Use a larger batch"):
        supcon_loss(features[:1], torch.zeros(1))
    with pytest.raises(ValueError, match=r"same n; got \(4, 3\) and \(5,\)"):
        supcon_loss(features, torch.zeros(5))
    with pytest.raises(ValueError, match=r"temperature must be a positive number; got 0"):
        supcon_loss(features, torch.zeros(4), temperature=0)
    with pytest.raises(ValueError, match=r"base_temperature must be a positive number; got -1"):
        supcon_loss(features, torch.zeros(4), base_temperature=-1)
    with pytest.raises(ValueError, match=r"reduction must be one of mean, none; got 'sum'"):
        supcon_loss(features, torch.zeros(4), reduction="sum")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"finite features; got NaN .* 1 of 4 samples \(rows 2\)"):
        supcon_loss(features.index_fill(0, torch.tensor(2), torch.nan), torch.zeros(4))
    with pytest.raises(ValueError, match=r"finite targets; got NaN .* 1 of 4 samples \(rows 3\)"):
        supcon_loss(features, torch.tensor([0, 1, 1, torch.nan]))


# ------------------------------------------------------------------------------- its neighbours


@pytest.mark.parametrize(("low", "high", "step"), [(0, 101, 1), (-40, 10, 0.5), (-1.5, 1.5, None)])
def test_classes_are_those_of_dex(low: float, high: float, step: float | None) -> None:
    targets = torch.linspace(low - 1, high + 1, 501)
    classes = to_classes(targets, low, high, step)[:, 0]
    used = step or (high - low) / 100
    wanted = [
        min(max(int((y - low) / used + 0.5), 0), round((high - low) / used))
        for y in targets.clamp(min=low).double().tolist()
    ]
    assert classes.tolist() == wanted
    config = HeadConfig("dex", 1, (float(low),), (used,), (max(wanted) + 1,))
    logits = torch.randn(501, max(wanted) + 1)
    picked = -logits.log_softmax(1).gather(1, classes[:, None])[:, 0]
    torch.testing.assert_close(Head(config).loss(logits, targets), picked)


def test_several_targets_have_a_bin_each() -> None:
    gaze = torch.tensor([[-40.0, -45.0], [-39.5, 45.0], [10.0, 0.2]])
    classes = to_classes(gaze, low=[-40, -45], high=[10, 45], step=[0.5, 1])
    assert classes.tolist() == [[0, 0], [1, 90], [100, 45]]
    assert to_classes(gaze, -45, 45, 1).tolist() == [[5, 0], [6, 90], [55, 45]]


def test_classes_say_what_they_need() -> None:
    with pytest.raises(ValueError, match=r"one per target; got 2 for targets \(4, 3\)"):
        to_classes(torch.zeros(4, 3), low=[0, 0], high=[1, 1])
    with pytest.raises(ValueError, match=r"low=None and high=3\. Give the lowest"):
        to_classes(torch.zeros(4), low=None, high=3)
    with pytest.raises(ValueError, match=r"finite targets; got NaN .* \(rows 1\)"):
        to_classes(torch.tensor([0.0, torch.nan]), low=0, high=3)


def test_a_projection_has_length_1_in_float32() -> None:
    head = ProjectionHead(6, hidden=5, out=3)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        projection = head(torch.randn(4, 2, 6))
    assert projection.shape == (4, 2, 3)
    assert projection.dtype == torch.float32
    torch.testing.assert_close(projection.norm(dim=2), torch.ones(4, 2))
    raw = ProjectionHead(6, normalize=False)
    assert [tuple(p.shape) for p in raw.parameters()] == [(6, 6), (6,), (128, 6), (128,)]
    x = torch.randn(4, 6)
    first, second = raw.layers[0], raw.layers[2]
    assert raw(x).equal(second(first(x).clamp(min=0)))


def test_a_projection_of_zeros_is_finite() -> None:
    rows = torch.zeros(2, 3, requires_grad=True)
    unit_length(rows).sum().backward()
    assert rows.grad is not None
    assert rows.grad.isfinite().all()


def test_a_projection_without_width_is_refused() -> None:
    with pytest.raises(ValueError, match=r"widths >= 1; got d=4, hidden=4, out=0"):
        ProjectionHead(4, out=0)
