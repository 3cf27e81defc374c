"""DINO against the golden numbers, its definition written slowly, and its contract."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from golden import golden_cases
from rnc.methods.dino import DinoHead, DinoLoss, cosine_schedule, make_teacher, update_teacher


def f64(values: Any) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def slow_loss(student: Tensor, teacher: Tensor, centre: Tensor, t_s: float, t_t: float) -> Tensor:
    terms = []
    for i in range(len(student)):
        for a in range(teacher.shape[1]):
            for b in range(student.shape[1]):
                if a != b:
                    q = ((teacher[i, a] - centre) / t_t).softmax(0)
                    terms.append(-(q * (student[i, b] / t_s).softmax(0).log()).sum())
    return torch.stack(terms).mean()


def views(rows: Any, number: int) -> Tensor:
    """Golden rows are all first views, then all second ones: (v * n, k) -> (n, v, k)."""
    return torch.stack(f64(rows).chunk(number), dim=1)


@pytest.mark.parametrize("case", golden_cases("dino_loss"))
def test_golden_loss_and_centre(case: dict[str, Any]) -> None:
    loss_of = DinoLoss(
        case["out_dim"],
        student_temperature=case["student_temp"],
        teacher_temperature=case["teacher_temp"],
        warmup_temperature=case["warmup_teacher_temp"],
        warmup_epochs=case["warmup_epochs"],
        centre_momentum=case["center_momentum"],
    ).double()
    schedule = [loss_of.teacher_temperature_at(epoch) for epoch in range(case["nepochs"])]
    assert schedule == pytest.approx(case["teacher_temp_schedule"], rel=1e-12)
    for step in case["steps"]:
        student = views(step["student"], case["ncrops"]).requires_grad_()
        loss = loss_of(student, views(step["teacher"], 2), epoch=step["epoch"])
        assert loss.item() == pytest.approx(step["loss"], rel=1e-9)
        (grad,) = torch.autograd.grad(loss, student)
        wanted = views(step["grad_student"], case["ncrops"])
        torch.testing.assert_close(grad, wanted, rtol=1e-9, atol=1e-12)
        torch.testing.assert_close(loss_of.centre, f64(step["center_after"]), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("case", golden_cases("dino_head"))
def test_golden_head(case: dict[str, Any]) -> None:
    head = DinoHead(
        case["in_dim"],
        hidden=case["hidden"],
        bottleneck=case["bottleneck"],
        prototypes=case["out_dim"],
        layers=case["nlayers"],
    ).double()
    params = {k: f64(v) for k, v in case["params"].items()}
    assert (params.pop("last_layer.weight_g") == 1).all()
    state = {"prototypes": params.pop("last_layer.weight_v")}
    for name, value in params.items():
        state[name if name[4].isdigit() else name.replace("mlp", "mlp.0")] = value
    head.load_state_dict(state)
    torch.testing.assert_close(head(f64(case["x"])), f64(case["y"]), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("case", golden_cases("dino_schedule"))
def test_golden_schedule(case: dict[str, Any]) -> None:
    steps, warmup = case["epochs"] * case["iters"], case["warmup_epochs"] * case["iters"]
    ends = {"base": case["base"], "final": case["final"]}
    schedule = [cosine_schedule(i, steps, **ends, warmup=warmup) for i in range(steps)]
    assert schedule == pytest.approx(case["schedule"], rel=1e-12, abs=1e-15)
    assert cosine_schedule(steps + 3, steps, **ends, warmup=warmup) == case["final"]


@pytest.mark.parametrize(("v", "w"), [(2, 2), (2, 1), (5, 2)])
def test_equals_the_definition(v: int, w: int) -> None:
    loss_of = DinoLoss(6, student_temperature=0.3, teacher_temperature=0.2).double()
    loss_of.centre.copy_(torch.randn(6))
    student = torch.randn(4, v, 6, dtype=torch.float64, requires_grad=True)
    teacher = torch.randn(4, w, 6, dtype=torch.float64)
    expected = slow_loss(student, teacher, loss_of.centre.clone(), 0.3, 0.2)
    loss = loss_of(student, teacher)
    torch.testing.assert_close(loss, expected, rtol=1e-10, atol=0)
    (own,), (wanted,) = (torch.autograd.grad(3 * x, student) for x in (loss, expected))
    torch.testing.assert_close(own, wanted, rtol=1e-9, atol=1e-12)


def test_the_centre_moves_in_training_only_and_is_saved() -> None:
    loss_of = DinoLoss(6)
    student, teacher = torch.randn(4, 2, 6), torch.randn(4, 2, 6)
    loss_of.eval()(student, teacher)
    assert (loss_of.centre == 0).all()
    loss_of.train()(student, teacher)
    torch.testing.assert_close(loss_of.centre, 0.1 * teacher.mean(dim=(0, 1)))
    restored = DinoLoss(6)
    restored.load_state_dict(loss_of.state_dict())
    assert restored(student, teacher) == loss_of.eval()(student, teacher)


def test_no_gradient_reaches_the_teacher() -> None:
    student, teacher = torch.randn(4, 2, 6, requires_grad=True), torch.randn(4, 2, 6)
    teacher.requires_grad_()
    DinoLoss(6)(student, teacher).backward()
    assert teacher.grad is None
    assert student.grad is not None


def test_outputs_of_any_size_are_finite() -> None:
    for size in (1e-30, 1e4, 1e30):
        student = (size * torch.randn(4, 2, 6)).requires_grad_()
        loss = DinoLoss(6)(student, size * torch.randn(4, 2, 6))
        loss.backward()
        assert loss.isfinite()
        assert student.grad is not None
        assert student.grad.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_gives_float32(dtype: torch.dtype) -> None:
    student, teacher = torch.randn(4, 2, 6).to(dtype), torch.randn(4, 2, 6).to(dtype)
    loss = DinoLoss(6)(student, teacher)
    assert loss.dtype == torch.float32
    assert loss == DinoLoss(6)(student.float(), teacher.float())


def test_the_teacher_follows_the_student() -> None:
    student = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    teacher = make_teacher(student)
    assert not any(p.requires_grad for p in teacher.parameters())
    start = [p.clone() for p in teacher.parameters()]
    with torch.no_grad():
        for p in student.parameters():
            p += torch.randn_like(p)
    student(torch.randn(8, 3))
    update_teacher(student, teacher, 0.9)
    for a, b, c in zip(start, student.parameters(), teacher.parameters(), strict=True):
        torch.testing.assert_close(c, 0.9 * a + 0.1 * b)
    batch_norm = teacher[1]
    assert isinstance(batch_norm.running_mean, Tensor)
    assert (batch_norm.running_mean == 0).all()
    update_teacher(student, teacher, 0.0)
    for b, c in zip(student.parameters(), teacher.parameters(), strict=True):
        assert b.equal(c)


def test_prototypes_have_no_length_and_can_be_held() -> None:
    head = DinoHead(4, hidden=8, bottleneck=3, prototypes=5)
    x = torch.randn(2, 2, 4)
    outputs = head(x)
    assert outputs.shape == (2, 2, 5)
    assert outputs.abs().max() <= 1 + 1e-6
    with torch.no_grad():
        head.prototypes *= 7
    torch.testing.assert_close(head(x), outputs)
    head(x).sum().backward()
    head.drop_prototype_gradient()
    assert head.prototypes.grad is None
    assert all(p.grad is not None for p in head.mlp.parameters())


def test_a_share_of_the_gradient_reaches_the_prototypes() -> None:
    head, x = DinoHead(4, hidden=8, bottleneck=3, prototypes=5), torch.randn(6, 4)
    gradients = []
    for learning in (None, torch.tensor(0.25), torch.tensor(0.0)):
        head.zero_grad()
        outputs = head(x, learning=learning)
        assert torch.equal(outputs, head(x))
        outputs.square().sum().backward()
        gradients.append([p.grad.clone() for p in (head.prototypes, head.mlp[0].weight)])
    torch.testing.assert_close(gradients[1][0], 0.25 * gradients[0][0])
    assert gradients[0][0].any()
    assert not gradients[2][0].any()
    torch.testing.assert_close(gradients[2][1], gradients[0][1])


def test_a_momentum_may_be_a_tensor() -> None:
    student = nn.Linear(3, 2)
    teachers = [nn.Linear(3, 2) for _ in range(2)]
    teachers[1].load_state_dict(teachers[0].state_dict())
    update_teacher(student, teachers[0], 0.7)
    update_teacher(student, teachers[1], torch.tensor(0.7, dtype=torch.float64))
    for a, b in zip(*(teacher.parameters() for teacher in teachers), strict=True):
        torch.testing.assert_close(a, b)


def test_a_warm_up_ends_at_the_base() -> None:
    values = [cosine_schedule(i, 10, base=2.0, final=0.0, warmup=4, start=0.5) for i in range(11)]
    assert values[:5] == [0.5, 1.0, 1.5, 2.0, 2.0]
    assert values[7] == pytest.approx(1 + math.cos(math.pi / 2))
    assert values[10] == 0.0


def test_errors_say_what_to_do() -> None:
    loss_of, good = DinoLoss(6), torch.randn(4, 2, 6)
    for student, teacher in (
        (good[:, :1], good[:, :1]),
        (good[:, 0], good),
        (good, good[:3]),
        (good, torch.randn(4, 3, 6)),
        (good, torch.randn(4, 2, 5)),
    ):
        with pytest.raises(ValueError, match=r"student \(n, v, 6\) with v >= 2 .*; got \(4, "):
            loss_of(student, teacher)
    with pytest.raises(ValueError, match=r"at least one sample; got 0\. Use drop_last"):
        loss_of(good[:0], good[:0])
    with pytest.raises(ValueError, match=r"DinoLoss's teacher needs finite .* \(rows 0, 1, 2, 3\)"):
        loss_of(good, good * torch.nan)
    assert loss_of.centre.isfinite().all()
    with pytest.raises(ValueError, match=r"teacher_temperature must be a positive number; got 0"):
        DinoLoss(6, teacher_temperature=0)
    with pytest.raises(ValueError, match=r"centre_momentum must be between 0 and 1; got 2"):
        DinoLoss(6, centre_momentum=2)
    with pytest.raises(ValueError, match=r"momentum must be between 0 and 1; got 1\.1"):
        update_teacher(nn.Linear(2, 2), nn.Linear(2, 2), 1.1)
    with pytest.raises(ValueError, match=r"got 2 parameters .* and 1 .*make_teacher\(student\)"):
        update_teacher(nn.Linear(2, 2), nn.Linear(2, 2, bias=False), 0.9)
    with pytest.raises(ValueError, match=r"warmup <= steps; got step=0, warmup=5, steps=4"):
        cosine_schedule(0, 4, base=1.0, final=0.0, warmup=5)
    with pytest.raises(ValueError, match=r"layers >= 1; got .*layers=0"):
        DinoHead(4, layers=0)
