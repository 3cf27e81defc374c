"""A teacher estimates targets that are missing or known in part."""

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from rnc.data import Table
from rnc.data.splits import PARTIAL
from rnc.training.batches import Batches
from rnc.training.loop import make_fabric
from rnc.training.partial_rows import partial_batches
from rnc.training.recipes import build_regressor
from rnc.training.ridge import solved_ridges
from rnc.training.teacher import Teacher, local_errors
from rnc.training.validation import Validation
from training_cases import Overflowing, columns, fit, partly, quick, same, unnormalised


class Knowing(nn.Module):
    """An encoder whose features are about the terms that the targets are sums of."""

    def forward(self, rows: Tensor) -> Tensor:
        """Columns 0, |1| and 2."""
        return torch.stack([rows[:, 0], rows[:, 1].abs(), rows[:, 2]], dim=1)


def teacher_of(
    table: Table,
    encoder: nn.Module,
    *,
    multiple: float = 1.0,
    oversample: float = 0.0,
    epochs: int = 2,
) -> Teacher:
    config = quick()
    model = build_regressor(table, config, encoder)
    fabric = make_fabric(config)
    batches = partial_batches(table, model, None, device=torch.device("cpu"))
    validation = Validation(fabric, model, table, "l1")
    options = {"multiple": multiple, "oversample": oversample}
    return Teacher(fabric, validation, batches, **options, epochs=epochs)


def truth(targets: int = 1) -> tuple[Table, Tensor]:
    """A table whose targets are known in part, and what they are."""
    table = partly(columns(rows=300, targets=targets))
    return table, torch.tensor(columns(rows=300, targets=targets).y[table.rows(PARTIAL)])


@pytest.mark.parametrize("targets", [1, 2])
def test_a_teacher_who_knows_says_the_truth(targets: int) -> None:
    table, true = truth(targets)
    teacher = teacher_of(table, Knowing(), multiple=0.0)
    known = teacher.lower.clone(), teacher.upper.clone()
    teacher.teach()
    missing = teacher.missing
    assert torch.equal(teacher.lower[missing], teacher.upper[missing])
    assert (teacher.lower - true)[missing].abs().median() < 0.1 * true.std()
    for now, before in zip((teacher.lower, teacher.upper), known, strict=True):
        assert torch.equal(now[~missing], before[~missing])
    batches, count = teacher.batches, len(teacher.batches.known_targets)
    assert batches.upper is not None
    assert torch.equal(batches.targets[count:], teacher.lower)
    assert torch.equal(batches.upper[count:], teacher.upper)
    assert torch.equal(batches.targets[:count], batches.known_targets)


def test_intervals_are_as_wide_as_errors_on_validation() -> None:
    table, true = truth()
    shares = []
    for multiple in (1.0, 3.0):
        teacher = teacher_of(table, unnormalised(), multiple=multiple)
        teacher.teach()
        held = (teacher.lower <= true) & (true <= teacher.upper)
        shares.append(held[teacher.missing].double().mean())
    assert 0.4 < shares[0] < 0.75 < 0.9 < shares[1]


def test_rows_of_which_nothing_is_known_are_not_drawn_at_first() -> None:
    table, _ = truth()
    teacher = teacher_of(table, Knowing())
    count, batches = len(teacher.batches.known_targets), teacher.batches
    unknown = torch.cat([torch.zeros(count, dtype=torch.bool), teacher.missing[:, 0]])
    assert 0 < unknown.sum() < len(unknown) - count
    assert not drawn(batches)[unknown].any()
    assert drawn(batches)[count:].any()
    teacher.teach()
    assert drawn(batches)[unknown].any()


def drawn(batches: Batches) -> Tensor:
    """How often each row is in an epoch."""
    options = {"batch_size": 16, "views": 1, "drop_last": False}
    rows = torch.cat([picked.rows for picked in batches.epoch("encoder", 1, **options)])
    return rows.bincount(minlength=len(batches))


def test_rows_are_drawn_by_the_density_of_estimates() -> None:
    table, true = truth()
    teacher = teacher_of(table, Knowing(), multiple=0.0, oversample=0.5)
    before = teacher.shares.clone()
    teacher.teach()
    assert torch.equal(before, (~teacher.missing[:, 0]).to(before))
    assert float(teacher.shares.mean()) == pytest.approx(1)
    rare = (true[:, 0] - true.mean()).abs() > 1.5 * true.std()
    assert teacher.shares[rare].mean() > 1.3
    assert teacher.batches.shares is not None
    assert torch.equal(teacher.batches.shares[-len(before) :], teacher.shares)


def test_nothing_is_said_by_features_that_are_not_finite() -> None:
    teacher = teacher_of(truth()[0], Overflowing())
    before = teacher.state()
    teacher.teach()
    assert same(before, teacher.state())


def test_a_state_goes_on() -> None:
    table, _ = truth()
    first, other = (teacher_of(table, Knowing(), oversample=0.5) for _ in range(2))
    first.teach()
    assert not same(first.state(), other.state())
    other.load_state(first.state())
    assert same(first.state(), other.state())
    assert torch.equal(first.batches.targets, other.batches.targets)


def test_rows_that_weigh_nothing_do_not_matter() -> None:
    table, _ = truth()
    rows = table.rows("train")
    wrong, weight = table.y.copy(), np.ones(len(table))
    wrong[rows[::2]], weight[rows[::2]] = 1e6, 0.0
    split = table.split.copy()
    split[rows[::2]] = ""
    teachers = [
        teacher_of(dataclasses.replace(table, y=wrong, weight=weight), Knowing()),
        teacher_of(dataclasses.replace(table, split=split), Knowing()),
    ]
    for teacher in teachers:
        teacher.teach()
    torch.testing.assert_close(teachers[0].lower, teachers[1].lower)


def test_a_stage_that_goes_on_is_taught_at_once() -> None:
    teacher = teacher_of(truth()[0], Knowing(), epochs=100)
    assert not teacher.is_due(14)
    assert teacher.is_due(31)  # no lesson so far
    teacher.teach()
    assert not teacher.is_due(31)


@pytest.mark.parametrize(
    ("epochs", "due"), [(1, []), (2, [1]), (3, [1, 2]), (10, [2, 3, 4, 5, 6, 7, 8, 9])]
)
def test_lessons_are_spread_over_the_epochs(epochs: int, due: list[int]) -> None:
    teacher = teacher_of(truth()[0], Knowing(), epochs=epochs)
    teacher.lessons += 1
    assert [epoch for epoch in range(1, epochs + 1) if teacher.is_due(epoch)] == due
    teacher.epochs = 100
    assert [epoch for epoch in range(1, 101) if teacher.is_due(epoch)] == list(range(15, 100, 7))


def test_local_errors_are_weighted_means() -> None:
    torch.manual_seed(0)
    estimates, targets, asked = (torch.randn(n, 2, dtype=torch.float64) for n in (40, 40, 7))
    weights = torch.randint(0, 3, (40,))
    repeated = torch.arange(40).repeat_interleave(weights)
    unit = local_errors(asked, estimates, targets, weights)
    assert unit.shape == (7, 2)
    assert bool((unit > 0).all())
    scaled = local_errors(5 * asked, 5 * estimates, 5 * targets, 3 * weights)
    torch.testing.assert_close(scaled, 5 * unit)
    far = local_errors(asked + 1e3, estimates, targets, weights)  # no error is near: the mean
    mean = (estimates - targets).abs()[repeated].mean(dim=0)
    torch.testing.assert_close(far, mean.expand(7, 2))


def test_a_ridge_is_the_minimum() -> None:
    torch.manual_seed(0)
    x, y = (torch.randn(30, size, dtype=torch.float64) for size in (4, 2))
    weights = torch.rand(30, dtype=torch.float64)
    for given in (None, weights):
        parts = torch.full((30, 1), 1 / 30).double() if given is None else given[:, None]
        parts = parts / parts.sum()
        (ridge,) = solved_ridges(x, y, given, [0.5])
        weight = ridge.weight.clone().requires_grad_()
        centred = x - (parts * x).sum(dim=0)
        size = (parts * centred.square()).sum(dim=0).mean()
        wrong = centred @ weight - (y - (parts * y).sum(dim=0))
        loss = (parts * wrong.square()).sum() + 0.5 * size * weight.square().sum()
        (gradient,) = torch.autograd.grad(loss, weight)
        assert gradient.abs().max() < 1e-12
        torch.testing.assert_close(ridge(x), (centred @ ridge.weight) + (parts * y).sum(dim=0))


# ------------------------------------------------------------------------------------- in training


def trained(table: Table, **changes: Any) -> dict[str, Tensor]:
    model, _ = fit(table, quick(**changes), unnormalised())
    return dict(model.state_dict())


def test_a_teacher_changes_what_an_encoder_learns() -> None:
    table = partly(columns())
    alone, taught = trained(table, teacher="none"), trained(table)
    assert not same(alone, taught)
    assert not same(taught, trained(table, teacher="intervals"))
    assert same(taught, trained(table, teacher="intervals", teacher_margin=0.0))


def only_missing() -> Table:
    """A table whose targets are exact or missing."""
    table = partly(columns())
    split = table.split.copy()
    split[table.ranged_rows] = ""
    return dataclasses.replace(table, split=split)


def test_estimates_train_as_exact_targets(monkeypatch: pytest.MonkeyPatch) -> None:
    table, start = only_missing(), Teacher.__init__
    exact = trained(table, epochs=4)
    ends: list[Tensor | None] = []

    def with_ends(teacher: Teacher, *args: Any, **options: Any) -> None:
        batches = args[2]
        upper = batches.upper
        start(teacher, *args, **options)
        ends.append(batches.upper)
        batches.upper = upper

    monkeypatch.setattr(Teacher, "__init__", with_ends)
    assert same(exact, trained(table, epochs=4))  # equal ends are an exact target, to the bit
    trained(table, teacher="intervals")
    trained(partly(columns()))
    assert [end is None for end in ends] == [True, False, False]


@pytest.mark.parametrize(
    "changes", [{"scheme": "end2end"}, {"objective": "simclr"}, {"objective": "supcon", "step": 9}]
)
def test_who_does_not_rank_is_not_taught(changes: dict[str, Any]) -> None:
    table = partly(columns())
    assert same(trained(table, teacher="none", **changes), trained(table, **changes))


def test_nobody_is_taught_where_no_target_is_missing() -> None:
    table = partly(columns())
    assert table.ends is not None
    ends = np.where(np.isinf(table.ends).all(axis=-1, keepdims=True), [0.0, 9.0], table.ends)
    table = dataclasses.replace(table, ends=ends)
    assert same(trained(table, teacher="none"), trained(table))
    assert not quick(label_distance="circular", period=9.0).teaches
    assert quick().teaches
