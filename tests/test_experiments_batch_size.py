"""The study of batch sizes: the trainings of its lines, and its table and curve."""

import csv
import dataclasses
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from rnc.cli import app
from rnc.experiments import RESULTS, Data, reproduce
from rnc.experiments.batch_size import ALONE, CACHED, QUEUED, batch_size
from rnc.experiments.plan import Setting, base_config
from rnc.run.folder import DoesNotApply
from training_cases import columns


def setting_of(rows: int, **given: Any) -> Setting:
    data = Data.of_table(columns(rows=rows))
    base = base_config(data, "quick", None, {"epochs": 6, **given})
    return Setting(data, base, 2, given=given)


def test_lines_see_as_many_samples_at_a_rate_that_follows_the_batch() -> None:
    plan = batch_size(setting_of(370, batch_size=32, lr=0.004))  # 259 to train
    assert "batch-size" not in RESULTS
    sizes = [8, 16, 32, 64, 128]
    methods = [line.method for line in plan.lines]
    assert methods == [ALONE] * 5 + [QUEUED] * 4 + [CACHED] * 4
    for line in plan.lines:
        size, (config, second) = int(line.setting.split()[0]), (run.config for run in line.runs)
        assert (config.seed, second.seed) == (0, 1)
        assert config.batch_size == (128 if line.method == CACHED else size)
        assert config.chunk == (size if line.method == CACHED else 0)
        assert config.queue == (128 - size if line.method == QUEUED else 0)
        assert config.lr == pytest.approx(0.004 * (config.batch_size / 32) ** 0.5)
        seen = config.epochs * (259 // config.batch_size) * config.batch_size
        assert seen == pytest.approx(6 * 259, rel=0.1)
    assert [int(line.setting.split()[0]) for line in plan.lines[:5]] == sizes


def test_too_few_rows_and_fields_of_the_lines_are_refused() -> None:
    with pytest.raises(DoesNotApply, match="It needs 32 training rows; own has 21"):
        batch_size(setting_of(30))
    with pytest.raises(ValueError, match=r"differ in --queue, --chunk: leave that out"):
        batch_size(setting_of(100, queue=4, chunk=4))


def test_a_table_and_a_curve_are_written_and_the_preset_is_the_users(tmp_path: Path) -> None:
    fit = {"epochs": 1, "device": "cpu", "encoder": "mlp", "preset": "quick"}
    table = columns(rows=60)  # 42 to train: batches of 8 and 16
    rows = reproduce("batch-size", table, tmp_path, seeds=1, fit=fit, say=lambda text: None)
    assert {(row.method, row.setting) for row in rows} == {
        (ALONE, "8 in memory"),
        (ALONE, "16 in memory"),
        (QUEUED, "8 in memory"),
        (CACHED, "8 in memory"),
    }
    updates = {(r.method, r.setting): r.values for r in rows if r.score == "updates"}
    assert updates[ALONE, "8 in memory"] == (5,)
    assert updates[CACHED, "8 in memory"] == updates[ALONE, "16 in memory"] == (2,)
    errors = {(r.method, r.setting): r.values for r in rows if r.score == "MAE"}
    # without batch normalisation, chunks change nothing but rounding
    assert errors[CACHED, "8 in memory"] == pytest.approx(errors[ALONE, "16 in memory"], rel=1e-3)
    assert errors[QUEUED, "8 in memory"] != errors[ALONE, "8 in memory"]
    with (tmp_path / "batch-size.csv").open() as file:
        assert len(list(csv.DictReader(file))) == len(rows)
    text = (tmp_path / "batch-size.md").read_text()
    assert "![Small batches](batch-size.png)" in text
    assert "for batches of 16 and grows with the square root of the batch size" in text
    assert (tmp_path / "batch-size.svg").exists()


def test_the_command_says_what_the_lines_differ_in(tmp_path: Path) -> None:
    result = CliRunner().invoke(
        app, ["reproduce", "batch-size", "--chunk", "4", "--out", str(tmp_path)]
    )
    assert result.exit_code != 0
    assert "The lines of batch-size differ in --chunk" in " ".join(result.output.split())


def test_lines_of_one_table_may_have_chunks_where_others_cannot() -> None:
    """Fields of small batches reach the lines that have a use for them."""
    setting = setting_of(100, queue=4, chunk=4)
    assert (setting.base.queue, setting.base.chunk) == (0, 0)
    of = {
        name: runs[0].config
        for name, runs in {
            "rnc": setting.rnc(),
            "dino": setting.rnc(objective="dino"),
            "l1": setting.end2end(),
        }.items()
    }
    assert {name: (config.queue, config.chunk) for name, config in of.items()} == {
        "rnc": (4, 4),
        "dino": (0, 0),
        "l1": (0, 4),
    }
    assert dataclasses.replace(of["rnc"], queue=0, chunk=0) == setting_of(100).rnc()[0].config
