"""Each head against the golden numbers, its definition written slowly, and its contract."""

import json
import math
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from golden import golden_cases
from rnc.heads import Head, HeadConfig, head_config, make_head
from rnc.heads.registry import HEADS

BINNED = [name for name, spec in HEADS.items() if spec.binned]


def golden_head(name: str, bins: int, low: float = 0.0, step: float = 1.0, **options: Any) -> Head:
    return Head(HeadConfig(name, 1, (low,), (step,), (bins,), options))


def check_golden(
    head: Head,
    logits: Tensor,
    targets: Tensor,
    *,
    loss: float,
    grad: Any,
    decoded: Tensor,
    rtol: float = 1e-9,
) -> None:
    torch.testing.assert_close(head.decode(logits), decoded, rtol=rtol, atol=0)
    logits = logits.clone().requires_grad_()
    losses = head.loss(logits, targets)
    assert losses.shape == (len(logits),)
    assert losses.dtype == logits.dtype
    assert losses.mean().item() == pytest.approx(loss, rel=rtol)
    (own,) = torch.autograd.grad(losses.mean(), logits)
    wanted = torch.as_tensor(grad, dtype=logits.dtype)
    torch.testing.assert_close(own, wanted, rtol=rtol, atol=rtol * float(wanted.abs().max()))


def f64(values: Any) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


@pytest.mark.parametrize(
    ("file", "dtype", "rtol"),
    [("corn_float64", torch.float64, 1e-9), ("corn_float32", torch.float32, 2e-5)],
)
def test_golden_corn(file: str, dtype: torch.dtype, rtol: float) -> None:
    for case in golden_cases(file):
        logits, classes = torch.tensor(case["logits"], dtype=dtype), torch.tensor(case["labels"])
        head = golden_head("corn", case["num_classes"])
        mean = f64(case["unconditional_probas"]).sum(dim=1, keepdim=True)
        golden = {"loss": case["loss"], "grad": case["grad_logits"], "decoded": mean}
        check_golden(head, logits, classes, **golden, rtol=rtol)
        by_class = golden_head("corn", case["num_classes"], decode="class")
        assert by_class.decode(logits)[:, 0].tolist() == case["decoded"]


def test_golden_or() -> None:
    for case in golden_cases("or_niu"):
        logits, classes = f64(case["single_logit"]), torch.tensor(case["labels"])
        head = golden_head("or", case["num_classes"])
        loss = case["loss_sum_over_tasks_mean_over_samples"]
        grad = f64(case["grad_logits2"])[..., 1]  # z = l1 - l0 has the gradient of l1
        mean = f64(case["probas"]).sum(dim=1, keepdim=True)
        check_golden(head, logits, classes, loss=loss, grad=grad, decoded=mean)
        by_class = golden_head("or", case["num_classes"], decode="class")
        assert by_class.decode(logits)[:, 0].tolist() == case["decoded"]


@pytest.mark.parametrize("form", ["batchmean", "original"])
@pytest.mark.parametrize("case", golden_cases("dldl_v2"))
def test_golden_dldl(case: dict[str, Any], form: str) -> None:
    low, step = case["label_min"], case["step"]
    # The golden files weigh the error in units of the target, the head in bins.
    options = {"sigma": case["sigma"] / step, "alpha": step, "original": form == "original"}
    head = golden_head("dldl", len(case["bins"]), low, step, **options)
    logits, targets = f64(case["logits"]), f64(case["targets"])
    loss, grad = case[f"total_{form}_lambda1"], case[f"grad_logits_total_{form}"]
    decoded = f64(case["expectation"])[:, None]
    check_golden(head, logits, targets, loss=loss, grad=grad, decoded=decoded)


@pytest.mark.parametrize("case", golden_cases("dldl_v2"))
def test_golden_lde_is_the_cross_entropy_to_the_dldl_distribution(case: dict[str, Any]) -> None:
    low, step = case["label_min"], case["step"]
    head = golden_head("lde", len(case["bins"]), low, step, sigma=case["sigma"] / step)
    p, logits = f64(case["target_distribution"]), f64(case["logits"])
    wanted = case["kl_batchmean"] - (p * p.log()).sum(dim=1).mean().item()
    loss = head.loss(logits, f64(case["targets"])).mean().item()
    assert loss == pytest.approx(wanted, rel=1e-9)


@pytest.mark.parametrize("case", golden_cases("dex"))
def test_golden_dex(case: dict[str, Any]) -> None:
    bins, logits = case["bins"], f64(case["logits"])
    head = golden_head("dex", len(bins), bins[0], bins[1] - bins[0])
    targets, decoded = f64(bins)[case["classes"]], f64(case["expectation"])[:, None]
    golden = {"loss": case["loss"], "grad": case["grad_logits"], "decoded": decoded}
    check_golden(head, logits, targets, **golden)


@pytest.mark.parametrize("case", golden_cases("l2cs"))
def test_golden_l2cs(case: dict[str, Any]) -> None:
    low, step, bins = case["bin_start"], case["bin_width"], case["num_bins"]
    alpha = case["alpha"] * step**2  # the head squares bins, the golden file degrees
    axes = (low, low), (step, step), (bins, bins)
    head = Head(HeadConfig("l2cs", 1, *axes, {"alpha": alpha, "original": True}))
    logits = torch.cat([f64(case["logits_pitch"]), f64(case["logits_yaw"])], dim=1)
    loss = (case["loss_pitch"] + case["loss_yaw"]) / 2  # the head takes the mean over angles
    grad = torch.cat([f64(case["grad_pitch"]), f64(case["grad_yaw"])], dim=1) / 2
    angles = f64([case["pred_pitch"], case["pred_yaw"]]).T
    check_golden(head, logits, f64(case["targets_deg"]), loss=loss, grad=grad, decoded=angles)


@pytest.mark.parametrize(
    "case", [c for c in golden_cases("regression_losses") if c["loss_name"] in HEADS]
)
def test_golden_regression_losses_with_sample_weights(case: dict[str, Any]) -> None:
    head = golden_head(case["loss_name"], 1)
    prediction, target = f64(case["pred"]).requires_grad_(), f64(case["target"])
    weights = f64(case["weights"])[:, 0] if case["weights"] else torch.ones(len(target)).double()
    loss = (weights * head.loss(prediction, target)).mean()
    assert loss.item() == pytest.approx(case["loss"], rel=1e-9)
    (grad,) = torch.autograd.grad(loss, prediction)
    torch.testing.assert_close(grad, f64(case["grad_pred"]), rtol=1e-9, atol=0)
    assert torch.equal(head.decode(prediction), prediction)


def slow_loss(o: Tensor, u: float, name: str, config: HeadConfig) -> Tensor:
    """The loss of one sample and target, from the table at the top of heads/__init__.py."""
    error = (o[0] - u).abs()
    if name in ("l1", "mse", "huber"):
        beta = config.options.get("beta", 1.0)
        huber = error**2 / (2 * beta) if error.item() <= beta else error - beta / 2
        return {"l1": error, "mse": error**2, "huber": huber}[name]
    if name == "quantile":
        levels = zip(o, config.options["levels"], strict=True)
        pinball = [a * (u - q) if u >= q.item() else (1 - a) * (q - u) for q, a in levels]
        return 2 * sum(pinball, start=torch.zeros(()).double()) / len(pinball)
    if name == "gaussian":
        scale = config.options["floor"] + (1 + o[1].exp()).log()
        weight = scale.detach() ** (2 * config.options["beta"])
        return -weight * torch.distributions.Normal(o[0], scale).log_prob(f64(u))
    bins = len(o) + 1 if name in ("or", "corn") else len(o)
    c = min(max(math.floor(u + 0.5), 0), bins - 1)
    if name in ("or", "corn"):
        terms = []
        for k in range(bins - 1):
            p = 1 / (1 + (-o[k]).exp())
            if name == "or" or k <= c:
                terms.append(-(p.log() if c > k else (1 - p).log()))
        return sum(terms, start=torch.zeros(()).double())
    q = [o[k].exp() / sum(o[i].exp() for i in range(bins)) for k in range(bins)]
    p = [
        math.exp(-((k - u) ** 2) / (2 * config.options.get("sigma", 1.0) ** 2)) for k in range(bins)
    ]
    p = [share / sum(p) for share in p]
    e = sum(k * q[k] for k in range(bins))
    cross = -sum(p[k] * q[k].log() for k in range(bins))
    entropy = -sum(share * math.log(share) for share in p)
    alpha = config.options.get("alpha", 1.0)
    return {
        "dex": -q[c].log(),
        "lde": cross,
        "dldl": cross - entropy + alpha * (e - u).abs(),
        "l2cs": -q[c].log() + alpha * (e - u) ** 2,
    }[name]


OPTIONS: dict[str, dict[str, Any]] = {
    "huber": {"beta": 0.4},
    "dldl": {"sigma": 1.3, "alpha": 0.7},
    "l2cs": {"alpha": 0.3},
    "lde": {"sigma": 0.8},
    "quantile": {"levels": (0.1, 0.5, 0.8)},
    "gaussian": {"beta": 0.3, "floor": 0.01},
}


@pytest.mark.parametrize("t", [1, 2])
@pytest.mark.parametrize("name", HEADS)
def test_equals_the_definition(name: str, t: int) -> None:
    train = f64([[-3.0, 100.0], [2.5, 300.0], [0.25, 180.0]])[:, :t]
    steps = {"step": [0.5, 40.0][:t]} if name in BINNED else {}
    config = head_config(name, 4, train, **steps, options=OPTIONS.get(name))
    head = Head(config)
    targets = torch.rand(9, t).double() * f64([7.0, 260.0])[:t] + f64([-3.8, 70.0])[:t]
    outputs = torch.randn(9, sum(head.widths)).double().requires_grad_()
    slow = torch.zeros(9).double()
    for i, block in enumerate(outputs.split(head.widths, dim=1)):
        units = [(y - config.shift[i]) / config.scale[i] for y in targets[:, i].tolist()]
        losses = torch.stack(
            [slow_loss(o, u, name, config) for o, u in zip(block, units, strict=True)]
        )
        if name == "corn":
            classes = [min(max(math.floor(u + 0.5), 0), config.bins[i] - 1) for u in units]
            losses = losses * 9 / sum(min(c + 1, config.bins[i] - 1) for c in classes)
        slow = slow + losses / t
    fast = head.loss(outputs, targets)
    torch.testing.assert_close(fast, slow, rtol=1e-10, atol=1e-12)
    upstream = torch.linspace(-1, 2, 9).double()
    (grad,) = torch.autograd.grad(fast, outputs, upstream)
    (slow_grad,) = torch.autograd.grad(slow, outputs, upstream)
    torch.testing.assert_close(grad, slow_grad, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", HEADS)
def test_units_of_the_target_do_not_matter(name: str) -> None:
    y = torch.randn(40).double()
    head, other = make_head(name, 3, y), make_head(name, 3, 1000 * y - 70)
    other.load_state_dict(head.state_dict())
    outputs = head(torch.randn(40, 3))
    torch.testing.assert_close(other.loss(outputs, 1000 * y - 70), head.loss(outputs, y))
    torch.testing.assert_close(other.decode(outputs), 1000 * head.decode(outputs) - 70)


@pytest.mark.parametrize("name", HEADS)
def test_learns_a_line_better_than_the_mean(name: str) -> None:
    x = torch.linspace(-1, 1, 101)[:, None]
    y = 5 * x[:, 0] - 20
    head = make_head(name, 1, y)
    optimiser = torch.optim.Adam(head.parameters(), lr=0.1)
    for _ in range(200):
        optimiser.zero_grad()
        head.loss(head(x), y).mean().backward()
        optimiser.step()
    error = (head.decode(head(x))[:, 0] - y).abs().mean()
    assert error < 0.5 * (y - y.mean()).abs().mean()


@pytest.mark.parametrize("size", [1.0, 1e4, 1e15])
@pytest.mark.parametrize("name", HEADS)
def test_loss_and_gradient_are_finite_for_large_outputs(name: str, size: float) -> None:
    y = torch.linspace(-2, 3, 8)
    head = make_head(name, 3, y)
    outputs = (torch.randn(8, head.widths[0]).sign() * size).requires_grad_()
    losses = head.loss(outputs, y)
    (grad,) = torch.autograd.grad(losses.mean(), outputs)
    assert losses.isfinite().all()
    assert grad.isfinite().all()
    assert head.decode(outputs).isfinite().all()


@pytest.mark.parametrize("name", HEADS)
def test_half_precision_features_give_a_float32_loss(name: str) -> None:
    y = torch.rand(6)
    head = make_head(name, 3, y)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        outputs = head(torch.randn(6, 3))
        losses = head.loss(outputs, y)
    assert outputs.dtype == torch.bfloat16
    assert losses.dtype == torch.float32
    torch.testing.assert_close(losses, head.loss(outputs.float(), y), rtol=1e-6, atol=1e-6)
    for dtype in (torch.float16, torch.bfloat16):
        assert head.loss(head(torch.randn(6, 3, dtype=dtype)), y).dtype == torch.float32


@pytest.mark.parametrize("name", HEADS)
def test_json_and_weights_rebuild_the_head(name: str) -> None:
    y = np.random.default_rng(0).normal(size=(20, 2))
    config = head_config(name, 3, y, options=OPTIONS.get(name))
    head = Head(config)
    again = Head(HeadConfig.from_json(json.loads(json.dumps(vars(config)))))
    assert again.config == config
    assert set(head.state_dict()) == {"linear.weight", "linear.bias"}
    again.load_state_dict(head.state_dict())
    features = torch.randn(5, 3)
    assert torch.equal(again.decode(again(features)), head.decode(head(features)))


@pytest.mark.parametrize("name", [name for name in HEADS if name not in ("quantile", "gaussian")])
def test_the_json_of_an_older_version_makes_the_same_head(name: str) -> None:
    """Every head had the same five options beside its other fields."""
    config = head_config(name, 3, np.array([20.0, 30.0, 64.0]), options=OPTIONS.get(name))
    old = {key: value for key, value in vars(config).items() if key != "options"}
    old |= {"beta": 1.0, "sigma": 2.0, "alpha": 1.0, "decode": "mean", "original": False}
    old |= OPTIONS.get(name, {})
    assert HeadConfig.from_json(json.loads(json.dumps(old))) == config


@pytest.mark.parametrize("name", HEADS)
def test_a_pickle_is_the_same_head(name: str) -> None:
    head = make_head(name, 4, torch.tensor([20.0, 30.0, 64.0]))
    outputs = head(torch.randn(3, 4))
    again = pickle.loads(pickle.dumps(head))
    torch.testing.assert_close(again.decode(outputs), head.decode(outputs), rtol=0, atol=0)


@pytest.mark.parametrize("name", HEADS)
def test_a_missing_target_has_loss_nan_and_spoils_no_other(name: str) -> None:
    y = torch.tensor([0.0, 1.0, 2.0, 3.0])
    head = make_head(name, 3, y)
    losses = head.loss(head(torch.randn(4, 3)), torch.tensor([0.0, math.nan, 2.0, math.inf]))
    assert losses.isfinite().tolist() == [True, False, True, False]


@pytest.mark.parametrize("name", BINNED)
def test_outputs_sure_of_a_class_decode_to_its_centre(name: str) -> None:
    head = golden_head(name, 5, low=-1.0, step=0.5)
    for k in range(5):
        sure = torch.arange(4) < k if name in ("or", "corn") else torch.arange(5) == k
        outputs = torch.where(sure, 60.0, -60.0)[None]
        assert head.decode(outputs).item() == pytest.approx(-1.0 + 0.5 * k, abs=1e-6)


@pytest.mark.parametrize(
    ("y", "k"), [(-9.0, 0), (0.49, 0), (0.5, 1), (1.5, 2), (2.4, 2), (2.5, 3), (3.2, 3), (99, 3)]
)
def test_classes_are_rounded_half_up_and_clipped(y: float, k: int) -> None:
    outputs = torch.randn(1, 4)
    loss = golden_head("dex", 4).loss(outputs, torch.tensor([y]))
    torch.testing.assert_close(loss, -outputs.log_softmax(dim=1)[:, k])


def test_a_date_keeps_its_precision() -> None:
    days = 2_459_000.5 + torch.linspace(0, 1, 11, dtype=torch.float64)
    head = make_head("l1", 1, days)
    outputs = ((days - days.mean()) / days.std(correction=0)).float()[:, None]
    assert (head.decode(outputs)[:, 0] - days).abs().max() < 1e-6
    assert head.loss(outputs, days).max() < 1e-5


@pytest.mark.parametrize(
    ("targets", "options", "low", "step", "bins"),
    [
        ([3.0, 7.0, 5.0], {}, 3.0, 1.0, 5),
        ([-100.0, 100.0], {}, -100.0, 1.0, 201),
        ([0.0, 201.0], {}, 0.0, 2.01, 101),
        ([-0.5, 0.0, 1.5], {}, -0.5, 0.02, 101),
        ([0.0, 0.6], {"step": 0.1}, 0.0, 0.1, 7),
        ([0.0, 1.0], {"step": 0.4}, 0.0, 0.4, 4),
        ([1.0, 101.0], {"low": 0, "high": 101}, 0.0, 1.0, 102),  # AgeDB in the paper
        ([5.5, 90.0], {"low": 0, "high": 95, "step": 1}, 0.0, 1.0, 96),  # TUAB
        ([-9.5, 30.0], {"low": -20, "high": 49, "step": 1}, -20.0, 1.0, 70),  # SkyFinder
        ([4.0, 4.0], {"low": 0, "high": 9}, 0.0, 1.0, 10),
    ],
)
def test_bins(targets: list[float], options: Any, low: float, step: float, bins: int) -> None:
    config = head_config("dex", 8, np.array(targets), **options)
    assert (config.shift, config.bins) == ((low,), (bins,))
    assert config.scale[0] == pytest.approx(step, rel=1e-12)


def test_bins_of_several_targets() -> None:  # gaze in the paper
    gaze = np.array([[-30.3, -20.0], [5.0, 40.2]])
    config = head_config("or", 8, gaze, low=[-40, -45], high=[10, 45], step=[0.5, 1])
    assert config.bins == (101, 91)
    assert Head(config).widths == [100, 90]
    assert Head(config)(torch.randn(3, 8)).shape == (3, 190)


def test_scale_is_that_of_the_training_targets_or_given() -> None:
    config = head_config("l1", 8, np.array([[1.0, 10.0], [3.0, 50.0]]))
    assert (config.shift, config.scale, config.bins) == ((2.0, 30.0), (1.0, 20.0), (1, 1))
    plain = head_config("l1", 8, np.array([[1.0, 10.0], [3.0, 50.0]]), shift=0.0, scale=1.0)
    assert (plain.shift, plain.scale) == ((0.0, 0.0), (1.0, 1.0))
