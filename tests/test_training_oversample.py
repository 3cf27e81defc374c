"""Rare targets drawn more often: how often each row is drawn, and the choice of the exponent."""

import dataclasses
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from rnc.config import FitConfig
from rnc.data.table import Table, table_from_arrays
from rnc.run.answer import answer
from rnc.run.fit import fit_run
from rnc.run.folder import RunFolder
from rnc.training.balance import EXPONENTS, balance_weights, drawn_rows, even_exponent
from rnc.training.batches import Batches
from rnc.training.recipes import build_regressor
from training_cases import fit, quick, same, weights


def skewed(rows: int, seed: int) -> Tensor:
    """Ages of which most are young: (n, 1)."""
    generator = torch.Generator().manual_seed(seed)
    return 80 * torch.rand(rows, 1, generator=generator, dtype=torch.float64) ** 3


def table_of(train: Tensor, val: Tensor) -> Table:
    """A table whose one column is its target, with some noise."""
    y = torch.cat([train, val, val]).numpy()
    x = np.column_stack([y, np.random.default_rng(0).normal(size=len(y))])
    split = np.repeat(["train", "val", "test"], [len(train), len(val), len(val)])
    return table_from_arrays(x, y[:, 0], split=split)


def test_a_row_is_drawn_as_often_as_its_share_says() -> None:
    shares = balance_weights(skewed(200, seed=0), 1.0)
    generator = torch.Generator().manual_seed(0)
    total: Counter[int] = Counter()
    for _ in range(400):
        rows = drawn_rows(shares, generator)
        assert len(rows) == 200
        counts = torch.bincount(rows, minlength=200)
        assert ((counts - shares).abs() < 1).all()
        total.update(rows.tolist())
    often = torch.tensor([total[row] / 400 for row in range(200)])
    torch.testing.assert_close(often, shares.float(), rtol=0, atol=0.1)


def test_a_row_whose_share_is_0_is_never_drawn() -> None:
    shares = torch.cat([torch.full((1000,), 0.1), torch.zeros(7)])
    for seed in range(300):
        rows = drawn_rows(shares, torch.Generator().manual_seed(seed))
        assert len(rows) == len(shares)
        assert rows.max() < 1000


@pytest.mark.parametrize("exponent", EXPONENTS)
def test_the_exponent_is_that_of_validation(exponent: float) -> None:
    train, pool = skewed(4000, seed=1), skewed(4000, seed=2)
    shares = balance_weights(pool, exponent) if exponent else torch.ones(4000)
    drawn = torch.multinomial(shares.float(), 800, generator=torch.Generator().manual_seed(3))
    assert abs(even_exponent(train, pool[drawn]) - exponent) <= 0.25
    assert exponent > 0 or even_exponent(train, pool[drawn]) == 0


def test_a_few_groups_make_sure_of_nothing() -> None:
    train = skewed(2000, seed=1)
    persons = torch.tensor([1.0, 30.0, 75.0], dtype=torch.float64)
    val = persons.repeat_interleave(100)[:, None]
    assert even_exponent(train, val) > 0
    assert even_exponent(train, val, groups=np.repeat(["a", "b", "c"], 100)) == 0
    assert even_exponent(train, torch.linspace(0, 80, 29, dtype=torch.float64)[:, None]) == 0
    assert even_exponent(train, torch.linspace(0, 80, 30, dtype=torch.float64)[:, None]) > 0


def test_targets_that_are_all_alike_or_missing_in_training_do_no_harm() -> None:
    same_ones = torch.full((50, 2), 3.0)
    assert even_exponent(same_ones, same_ones) == 0
    assert even_exponent(same_ones, same_ones + 100) == 0
    assert even_exponent(same_ones, same_ones[:0]) == 0


def test_an_epoch_has_rare_targets_more_often() -> None:
    table = table_of(skewed(300, seed=1), skewed(60, seed=2))
    config = quick().resolve(300, "table")
    shares = balance_weights(torch.tensor(table.y[table.rows("train")]), 1.0)
    cpu = torch.device("cpu")
    batches = Batches(table, build_regressor(table, config), device=cpu, shares=shares)
    picked = list(batches.epoch("encoder", 1, batch_size=50, views=2, drop_last=True))
    rows = torch.cat([one.rows for one in picked])
    assert len(rows) == 300
    assert batches.targets[rows].mean() > batches.targets.mean() + 10
    again = batches.epoch("encoder", 1, batch_size=50, views=2, drop_last=True)
    assert torch.equal(rows, torch.cat([one.rows for one in again]))


def test_preset_best_chooses_it_and_says_so(tmp_path: Path) -> None:
    even = torch.linspace(0, 80, 60, dtype=torch.float64)[:, None]
    shifted, alike = (table_of(skewed(300, seed=1), val) for val in (even, skewed(60, seed=2)))
    config = FitConfig(epochs=1, device="cpu")
    for _ in fit_run(shifted, config, tmp_path / "shifted"):
        pass
    scores = RunFolder(tmp_path / "shifted").scores
    assert scores["oversample"] in EXPONENTS[1:]
    words = " ".join(answer(scores, RunFolder(tmp_path / "shifted").config, "run").details)
    assert f"drawn more often in training (oversample {scores['oversample']:g})" in words
    one, _ = fit(alike, config)
    other, _ = fit(alike, dataclasses.replace(config, oversample=0.0))
    assert same(weights(one), weights(other))
    drawn, _ = fit(alike, dataclasses.replace(config, oversample=0.5))
    assert not same(weights(one), weights(drawn))
