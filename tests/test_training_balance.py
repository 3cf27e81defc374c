"""Weights by the density of targets, and the choice of their exponent on validation."""

import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor

from rnc.config import FitConfig
from rnc.heads import make_head
from rnc.metrics import mae
from rnc.run.fit import fit_run
from rnc.run.folder import RunFolder
from rnc.training import probe
from rnc.training.balance import EXPONENTS, balance_weights
from rnc.training.probe import HeadFit, solve_head
from training_cases import columns, quick

Split = tuple[Tensor, Tensor]


def slow_density(y: list[float], *, rounded: bool, period: float | None = None) -> list[float]:
    """Sums of a Gaussian of a tenth of the deviation, sample by sample."""
    mean = sum(y) / len(y)
    deviation = math.sqrt(sum((v - mean) ** 2 for v in y) / len(y))
    step = 0.01 * deviation
    at = [round((v - mean) / step) * step if rounded else v for v in y]
    density = []
    for one in at:
        total = 0.0
        for other in at:
            gap = abs(one - other)
            gap = gap if period is None else min(gap % period, period - gap % period)
            total += math.exp(-0.5 * (gap / (0.1 * deviation)) ** 2)
        density.append(total)
    return density


def slow_weights(density: list[float], exponent: float) -> Tensor:
    mean = sum(density) / len(density)
    weights = [max(one, 0.01 * mean) ** -exponent for one in density]
    return torch.tensor([w * len(weights) / sum(weights) for w in weights], dtype=torch.float64)


@pytest.mark.parametrize("exponent", [0.25, 1.0])
@pytest.mark.parametrize("period", [None, 24.0])
def test_weights_are_the_density_to_a_power(exponent: float, period: float | None) -> None:
    torch.manual_seed(0)
    y = 24 * torch.rand(90, dtype=torch.float64) ** 2
    y[:30] = y[:30].round()  # ties
    weights = balance_weights(y[:, None], exponent, period)
    exact = slow_weights(slow_density(y.tolist(), rounded=True, period=period), exponent)
    torch.testing.assert_close(weights, exact, rtol=1e-9, atol=0)
    smooth = slow_weights(slow_density(y.tolist(), rounded=False, period=period), exponent)
    torch.testing.assert_close(weights, smooth, rtol=0.06, atol=0)
    assert float(weights.mean()) == pytest.approx(1)


def test_several_targets_have_the_geometric_mean_of_their_densities() -> None:
    y = torch.randn(50, 2, dtype=torch.float64)
    densities = [slow_density(column.tolist(), rounded=True) for column in y.T]
    density = [math.sqrt(a * b) for a, b in zip(*densities, strict=True)]
    torch.testing.assert_close(balance_weights(y, 0.5), slow_weights(density, 0.5))


def test_units_do_not_matter() -> None:
    y = torch.randn(200, 1, dtype=torch.float64) ** 3
    for scale, shift in ((1e6, 0.0), (1e-6, 0.0), (-3.0, 1e5)):
        torch.testing.assert_close(
            balance_weights(scale * y + shift, 0.75), balance_weights(y, 0.75), rtol=1e-6, atol=0
        )


def test_a_circle_has_no_ends() -> None:
    hours = torch.arange(0, 24, 0.1, dtype=torch.float64)[:, None]
    around, line = balance_weights(hours, 1.0, 24.0), balance_weights(hours, 1.0)
    torch.testing.assert_close(around, torch.ones_like(around), rtol=0.02, atol=0)
    assert line[0] > 1.5 * line[120]


def test_targets_that_do_not_vary_weigh_alike() -> None:
    y = torch.stack([torch.full((20,), 7.0), torch.arange(20.0)], dim=1)
    torch.testing.assert_close(balance_weights(y[:, :1], 1.0), torch.ones(20).double())
    alone, both = balance_weights(y[:, 1:], 1.0), balance_weights(y, 2.0)
    torch.testing.assert_close(both, alone)  # a root of the only density that varies


def test_a_lone_sample_weighs_at_most_100_to_the_exponent() -> None:
    y = torch.zeros(100_000, 1)
    y[0] = 50.0
    for exponent in (0.5, 1.0):
        weights = balance_weights(y, exponent)
        assert float(weights[0] / weights[1]) == pytest.approx(100**exponent, rel=1e-3)


@pytest.mark.parametrize("exponent", [-0.5, math.nan, math.inf])
def test_an_exponent_must_be_a_number_from_0(exponent: float) -> None:
    with pytest.raises(ValueError, match=rf"exponent >= 0, as 0\.5; got {exponent}\. 0 weighs all"):
        balance_weights(torch.zeros(3, 1), exponent)


# ------------------------------------------------------------------------- choosing on validation


def faces(n: int, *, even: bool, seed: int) -> Split:
    """Features that show an age with noise; most are young, or all ages are as frequent."""
    generator = torch.Generator().manual_seed(seed)
    share = torch.rand(n, 1, generator=generator, dtype=torch.float64)
    ages = 100 * (share if even else share**4)
    seen = ages + 15 * torch.randn(n, 1, generator=generator, dtype=torch.float64)
    centres = torch.linspace(-20, 120, 12, dtype=torch.float64)
    return torch.exp(-(((seen - centres) / 20) ** 2)), ages


def solve(train: Split, val: Split, test: Split, **options: Any) -> tuple[HeadFit, float]:
    """What solve_head found, and the test error of the head."""
    head = make_head("l1", train[0].shape[1], train[1]).double()
    found = solve_head(head, *train, *val, **options)
    return found, mae(head.decode(head(test[0])).detach(), test[1])


def test_a_balance_is_chosen_where_rare_targets_count_as_much() -> None:
    train, val, test = (faces(n, even=n < 1000, seed=n) for n in (1500, 300, 900))
    plain, plain_error = solve(train, val, test, balance=0.0)
    chosen, error = solve(train, val, test, balance=None)
    assert plain.balance == 0
    assert chosen.balance > 0
    assert chosen.error < plain.error
    assert error < 0.9 * plain_error
    grid = [solve(train, val, test, balance=k)[0].error for k in EXPONENTS]
    assert chosen.error <= min(grid) * 1.01


def test_none_is_chosen_by_chance_or_by_few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Validation is like training, so what is best there by a little is not better."""
    chosen, by_chance = [], []
    for seed in range(6):
        train, val = faces(300, even=False, seed=seed), faces(40, even=False, seed=100 + seed)
        chosen.append(solve(train, val, val, balance=None)[0].balance)
        with monkeypatch.context() as patch:
            patch.setattr(probe, "SURE", 0.0)
            by_chance.append(solve(train, val, val, balance=None)[0].balance)
    assert chosen == [0.0] * 6
    assert max(by_chance) > 0
    monkeypatch.setattr(probe, "SURE", 0.0)
    train, val = faces(1500, even=False, seed=1), faces(29, even=True, seed=2)
    assert solve(train, val, val, balance=None)[0].balance == 0
    monkeypatch.setattr(probe, "LEAST_ROWS", 29)
    assert solve(train, val, val, balance=None)[0].balance > 0


def test_rows_of_a_group_are_no_evidence_of_their_own() -> None:
    """Copies of few rows make sure of nothing, and neither do many rows of few groups."""
    train, (features, ages) = faces(1500, even=False, seed=1), faces(45, even=True, seed=3)
    alone = solve(train, (features, ages), (features, ages), balance=None)[0]
    copied = features.repeat(20, 1), ages.repeat(20, 1)
    by_rows = solve(train, copied, copied, balance=None)[0]
    groups = np.tile(np.arange(45), 20)
    by_groups = solve(train, copied, copied, balance=None, val_groups=groups)[0]
    assert (alone.balance, by_groups.balance) == (0, 0)
    assert by_rows.balance > 0
    many = faces(300, even=True, seed=300)
    assert solve(train, many, many, balance=None, val_groups=np.arange(300))[0].balance > 0
    assert solve(train, many, many, balance=None, val_groups=np.arange(300) % 29)[0].balance == 0


def test_a_number_is_what_weights_of_the_same_density_do() -> None:
    train, val = faces(200, even=False, seed=0), faces(50, even=True, seed=1)
    own = torch.rand(200, dtype=torch.float64) + 0.5
    own /= own.mean()
    both = own * balance_weights(train[1], 0.5)
    heads = []
    for weights, balance in ((own, 0.5), (both / both.mean(), 0.0)):
        head = make_head("l1", 12, train[1]).double()
        found = solve_head(head, *train, *val, weights=weights, balance=balance)
        assert found.balance == balance
        heads.append(head)
        losses = head.loss(head(train[0]), train[1]).detach()
        assert found.loss == pytest.approx(float((weights * losses).mean()))
    torch.testing.assert_close(heads[0].linear.weight, heads[1].linear.weight)


# ------------------------------------------------------------------------------- saying which


def test_the_choice_is_in_records_scores_and_the_answer(tmp_path: Path) -> None:
    records = list(fit_run(columns(), quick(balance=0.5), tmp_path))
    assert [(record.stage, record.balance) for record in records] == [
        ("encoder", None),
        ("encoder", None),
        ("head", 0.5),
    ]
    run = RunFolder(tmp_path)
    assert run.records == records
    penalty = records[-1].penalty
    assert penalty in probe.PENALTIES
    assert run.scores["head"] == {"penalty": penalty, "balance": 0.5}
    assert f"ridge penalty {penalty:g} and balance 0.5: rare" in run.answer.details[0]
    again = list(fit_run(columns(), quick(balance=0.5), tmp_path, resume=True))
    assert again == records
    assert RunFolder(tmp_path).scores["head"] == {"penalty": penalty, "balance": 0.5}


def test_a_head_that_was_not_solved_says_nothing(tmp_path: Path) -> None:
    list(fit_run(columns(), quick(head_solver="sgd", balance=0.5), tmp_path / "sgd"))
    assert "head" not in RunFolder(tmp_path / "sgd").scores
    records = list(fit_run(columns(), quick(scheme="finetune", epochs=1), tmp_path / "tuned"))
    kept = min((r for r in records if r.stage == "finetune"), key=lambda r: r.val_error or 0.0)
    assert (kept.epoch == 0) == ("head" in RunFolder(tmp_path / "tuned").scores)


def test_best_chooses_and_the_other_presets_do_not() -> None:
    for preset, balance in (("best", None), ("quick", 0.0), ("paper", 0.0)):
        assert FitConfig(preset=preset).resolve(1000, "table").balance == balance


def test_a_history_of_an_older_version_is_read(tmp_path: Path) -> None:
    list(fit_run(columns(), quick(), tmp_path))
    run = RunFolder(tmp_path)
    known = [dataclasses.replace(r, penalty=None, balance=None) for r in run.records]
    frame = pd.read_csv(tmp_path / "history.csv").drop(columns=["penalty", "balance"])
    frame.to_csv(tmp_path / "history.csv", index=False)
    assert RunFolder(tmp_path).records == known
