"""Ordinal Entropy against the golden numbers, its definition written slowly, and its contract."""

import pytest
import torch
from torch import Tensor

from golden import golden_cases
from oracle import DISTANCES
from rnc.loss import circular
from rnc.methods.ordinal_entropy import ordinal_entropy_loss

RTOL = {"float64": 1e-9, "float32": 2e-5}


def gradient(loss: Tensor, features: Tensor) -> Tensor:
    (grad,) = torch.autograd.grad(loss, features)
    return grad


def slow_loss(features: Tensor, targets: Tensor, distance: str) -> Tensor:
    labels = [tuple(row) for row in targets.double().tolist()]
    groups = {a: [i for i, b in enumerate(labels) if a == b] for a in dict.fromkeys(labels)}
    centres = {a: features[rows].mean(0) for a, rows in groups.items()}
    centres = {a: centre / centre.norm() for a, centre in centres.items()}
    gaps = [
        (features[i] / features[i].norm() - centres[a]).norm()
        for a, rows in groups.items()
        for i in rows
        if len(rows) > 1
    ]
    keys = list(groups)
    pairs = [(a, b) for i, a in enumerate(keys) for b in keys[i + 1 :]]
    d = [DISTANCES[distance](list(a), list(b)) for a, b in pairs]
    terms = [
        (d_ab - min(d)) / max(d) * (centres[a] - centres[b]).norm()
        for (a, b), d_ab in zip(pairs, d, strict=True)
    ]
    tightness = torch.stack(gaps).mean() if gaps else 0 * features.sum()
    return tightness - (torch.stack(terms).mean() if terms else 0 * features.sum())


@pytest.mark.parametrize("name", RTOL)
@pytest.mark.parametrize("number", range(4))
def test_golden(number: int, name: str) -> None:
    case = golden_cases(f"ordinal_entropy_{name}")[number]
    dtype, rtol = getattr(torch, name), RTOL[name]
    features = torch.tensor(case["features"], dtype=dtype, requires_grad=True)
    labels = torch.tensor(case["labels"], dtype=dtype)

    def check(loss: Tensor, value: float, grad: list[list[float]], rtol: float = rtol) -> None:
        assert loss.dtype == dtype
        assert loss.item() == pytest.approx(value, rel=rtol)
        wanted = torch.tensor(grad, dtype=dtype)
        scale = rtol * float(wanted.abs().max())
        torch.testing.assert_close(gradient(loss, features), wanted, rtol=rtol, atol=scale)

    synthetic = case["loss_synthetic_no_subsampling"], case["grad_synthetic"]
    age = case["loss_age_tightness_minus_diversity"], case["grad_age"]
    # There, equal labels are 1e-6 apart.
    apart = 1e-6 if case["label_kind"] == "dup" else 0.0
    check(ordinal_entropy_loss(features, labels, centres=False), *synthetic, rtol=rtol + apart)
    if age[0] == "nan":  # all labels distinct: the default has tightness 0
        check(ordinal_entropy_loss(features, labels), *synthetic)
        assert ordinal_entropy_loss(features, labels, original=True).isnan()
    else:
        for original in (False, True):
            check(ordinal_entropy_loss(features, labels, original=original), *age)


LABELS: dict[str, Tensor] = {
    "l1": torch.tensor([[-3.0], [0.0], [-3.0], [2.0], [5.0], [0.0], [-3.0]]),
    "l2": torch.tensor([[0.0, 0.0], [3.0, 4.0], [0.0, 0.0], [-5.0, 0.0], [3.0, 4.0]]),
    "angular": torch.tensor([[0.0, 0.0], [10.0, 0.0], [-10.0, 0.0], [10.0, 0.0], [3.0, 4.0]]),
    "circular": torch.tensor([[23.0], [1.0], [0.0], [23.0], [6.0], [18.0]]),
}


@pytest.mark.parametrize("distance", LABELS)
def test_equals_the_definition(distance: str) -> None:
    labels = LABELS[distance]
    features = torch.randn(len(labels), 4, dtype=torch.float64, requires_grad=True)
    named = circular(24) if distance == "circular" else distance
    expected = slow_loss(features, labels, distance)
    loss = ordinal_entropy_loss(features, labels, label_distance=named)
    assert loss.item() == pytest.approx(expected.item(), rel=1e-9)
    torch.testing.assert_close(
        gradient(3 * loss, features), gradient(3 * expected, features), rtol=1e-9, atol=1e-12
    )


def test_views_are_samples_of_one_label() -> None:
    features, ages = torch.randn(6, 2, 4), torch.rand(6)
    rows, repeated = features.flatten(0, 1), ages.repeat_interleave(2)
    assert ordinal_entropy_loss(features, ages) == ordinal_entropy_loss(rows, repeated)


def test_order_of_the_batch_does_not_matter() -> None:
    features, ages, order = torch.randn(20, 4), torch.randint(0, 6, (20,)), torch.randperm(20)
    loss = ordinal_entropy_loss(features, ages)
    torch.testing.assert_close(ordinal_entropy_loss(features[order], ages[order]), loss)


@pytest.mark.parametrize("centres", [True, False])
@pytest.mark.parametrize(
    "labels",
    [[3.0], [3.0, 3.0, 3.0, 3.0], [1.0, 2.0], [-1.0, 2.0, 5.0]],
    ids=["one sample", "one label", "one pair", "all distinct"],
)
def test_few_labels_are_finite(labels: list[float], centres: bool) -> None:
    for features in (torch.randn(len(labels), 3), torch.ones(len(labels), 3)):
        features.requires_grad_()
        loss = ordinal_entropy_loss(features, torch.tensor(labels), centres=centres)
        assert loss.isfinite()
        assert gradient(loss, features).isfinite().all()


def test_zeros_and_opposite_features_are_finite() -> None:
    for features in (torch.zeros(6, 3), torch.tensor([1.0, -1.0] * 3)[:, None].repeat(1, 3)):
        features.requires_grad_()
        loss = ordinal_entropy_loss(features, torch.tensor([1, 1, 2, 2, 3, 3]))
        assert loss.isfinite()
        assert gradient(loss, features).isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_gives_float32(dtype: torch.dtype) -> None:
    features, ages = torch.randn(12, 6).to(dtype), torch.arange(12) // 2
    loss = ordinal_entropy_loss(features, ages)
    assert loss.dtype == torch.float32
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert ordinal_entropy_loss(features.float(), ages) == loss


def test_errors_say_what_to_do() -> None:
    features = torch.randn(4, 3)
    with pytest.raises(ValueError, match=r"same n; got \(4, 3\) and \(3,\)"):
        ordinal_entropy_loss(features, torch.zeros(3))
    with pytest.raises(ValueError, match=r"ordinal_entropy_loss needs finite .* \(rows 1\)"):
        ordinal_entropy_loss(features, torch.tensor([0.0, torch.nan, 1.0, 2.0]))
    with pytest.raises(ValueError, match=r"'circular' .* Pass rnc\.loss\.circular\(period=24\)"):
        ordinal_entropy_loss(features, torch.zeros(4), label_distance="circular")
    with pytest.raises(TypeError, match=r"floating-point features; got torch.int64"):
        ordinal_entropy_loss(torch.ones(4, 3).long(), torch.zeros(4))
