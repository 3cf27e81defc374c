"""The comparison of all methods on one data set."""

import csv
import json
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from rnc.cli import app
from rnc.config import FitConfig
from rnc.experiments import Data, Method, compare
from rnc.experiments.comparison import (
    FINETUNED,
    METHODS,
    PROBED,
    REGRESSION,
    comparison_plan,
    methods_named,
)
from rnc.experiments.plan import Row, Setting, base_config
from rnc.experiments.store import run_key
from rnc.experiments.write import table
from rnc.methods.registry import OBJECTIVES, REGULARIZERS
from rnc.training.record import Record
from training_cases import columns

FAST = {"encoder": "mlp", "batch_size": 16, "device": "cpu", "head_epochs": 1, "prototypes": 16}


def row(setting: str, method: str, score: str, *values: float) -> Row:
    return Row(method, setting, score, values)


def test_the_table_has_the_groups_of_the_paper_sorted_by_error() -> None:
    lines = table(
        [
            row(PROBED, "SupCon", "MAE", 4.0),
            row(PROBED, "RnC", "MAE", 2.0, 3.0),
            row(PROBED, "RnC", "R2", 0.5, 0.5),
            row(PROBED, "Broken", "MAE"),
            row(FINETUNED, "RnC", "MAE", 1.0),
            row(REGRESSION, "L1", "MAE", 3.0),
            row(PROBED, "DINO", "MAE", 3.5),
        ],
        grouped=True,
    )
    assert lines == [
        "| method | MAE | R2 |",
        "| --- | --- | --- |",
        f"| *{PROBED}* |  |  |",
        "| RnC | 2.500 ± 0.707 | 0.500 ± 0.000 |",
        "| DINO | 3.500 |  |",
        "| SupCon | 4.000 |  |",
        "| Broken | diverged |  |",
        f"| *{FINETUNED}* |  |  |",
        "| RnC | 1.000 |  |",
        f"| *{REGRESSION}* |  |  |",
        "| L1 | 3.000 |  |",
    ]


def test_every_method_has_a_run_of_its_own() -> None:
    data = Data.of_digits()
    setting = Setting(data, base_config(data, "quick", 1, {}), 1)
    plan = comparison_plan(setting)
    learned = [method for method in METHODS if method.learns_representation]
    assert len(plan.runs) == len(METHODS) + len(learned)
    assert len({run_key(run) for run in plan.runs}) == len(plan.runs)
    assert {run.config.objective for run in plan.runs} == {"rnc", "supcon", "simclr", "dino"}


def test_what_the_digits_are_compared_with_stays() -> None:
    """The numbers of docs/results.md were trained with this config."""
    from rnc.experiments.comparison import _on_digits

    data = Data.of_digits()
    config = base_config(data, "quick", 12, _on_digits(12))
    assert config == FitConfig(
        preset="quick",
        encoder="small-cnn",
        epochs=12,
        head_epochs=12,
        batch_size=64,
        lr=2e-3,
        image_size=16,
        flip=False,
        prototypes=256,
    )


def test_runs_and_scores_are_left_in_the_folder(tmp_path: Path) -> None:
    methods = [Method("SupCon", {"objective": "supcon"}), Method("L1", {"scheme": "end2end"})]
    records: list[Record] = []
    rows = compare("digits", tmp_path, seeds=1, epochs=1, methods=methods, show=records.append)
    assert [record.stage for record in records] == ["encoder", "head", *["finetune"] * 2, "end2end"]
    text = (tmp_path / "comparison.md").read_text(encoding="utf-8")
    assert "\n".join(table(rows, grouped=True)) in text
    with (tmp_path / "comparison.csv").open(encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    assert [(line["setting"], line["method"]) for line in lines[::4]] == [
        (PROBED, "SupCon"),
        (FINETUNED, "SupCon"),
        (REGRESSION, "L1"),
    ]
    seconds = [float(line["mean"]) for line in lines if line["score"] == "seconds per epoch"]
    assert seconds[0] == pytest.approx(records[0].seconds, rel=1e-4)
    assert seconds[1] == seconds[0]
    errors = {}
    for folder in (tmp_path / "runs").iterdir():
        scheme = json.loads((folder / "config.json").read_text())["fit"]["scheme"]
        errors[scheme] = json.loads((folder / "scores.json").read_text())["validation_error"]
    assert set(errors) == {"probe", "finetune", "end2end"}
    assert errors["finetune"] <= errors["probe"] * (1 + 1e-6)


def test_an_objective_of_ones_own_is_a_row(tmp_path: Path) -> None:
    def centred(features: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return (features.mean(dim=(1, 2)) - targets[:, 0].float() / 20).square().mean()

    methods = [Method("RnC", {}), Method("Centred", {}, centred)]
    rows = compare(columns(), tmp_path, seeds=1, epochs=1, methods=methods, fit=FAST)
    errors = {(row.method, row.setting): row.values for row in rows if row.score == "MAE"}
    assert list(errors) == [
        (name, group) for name in ("RnC", "Centred") for group in (PROBED, FINETUNED)
    ]
    assert errors["RnC", PROBED] != errors["Centred", PROBED]


def test_methods_for_one_target_are_left_out_with_two(tmp_path: Path) -> None:
    said: list[str] = []
    methods = [method for method in METHODS if method.name in ("L1", "LDE")]
    options = {"seeds": 1, "epochs": 1, "fit": FAST, "methods": methods}
    rows = compare(columns(targets=2), tmp_path, say=said.append, **options)
    assert {row.method for row in rows} == {"L1"}
    assert said[0] == "LDE left out: it needs one target, own has 2."


def test_the_command_compares_on_a_file(tmp_path: Path) -> None:
    lines = "".join(f"{i * i},{2 * i + i % 7}\n" for i in range(90))
    (tmp_path / "houses.csv").write_text("area,price\n" + lines)
    words = ["compare", str(tmp_path / "houses.csv"), "--target", "price", "--seeds", "1"]
    words += ["--epochs", "1", "--batch-size", "16", "--out", str(tmp_path / "out")]
    words += ["--method", "L1"]
    result = CliRunner().invoke(app, words, env={"COLUMNS": "200"})
    assert result.exit_code == 0, result.output
    assert f"| *{REGRESSION}* |" in result.stdout
    assert "comparison on houses.csv: 1 runs; left to train" in result.stdout
    assert f"Table: {tmp_path / 'out' / 'comparison.md'}" in result.stdout
    folder = next((tmp_path / "out" / "runs").iterdir())
    config = json.loads((folder / "config.json").read_text())
    assert config["data"]["source"] == str(tmp_path / "houses.csv")
    assert config["fit"]["preset"] == "quick"


def test_lines_are_chosen_by_name() -> None:
    assert [method.name for method in methods_named(["C-Mixup", "SupCon"])] == ["SupCon", "C-Mixup"]
    assert methods_named([]) == list(METHODS)
    result = CliRunner().invoke(app, ["compare", "--method", "Mixup"], env={"COLUMNS": "900"})
    assert result.exit_code == 2
    assert "There is no method 'Mixup' in the comparison; known are 'SimCLR', 'DINO'" in (
        result.output
    )


def test_every_method_of_the_registries_has_a_row() -> None:
    """All but the second way of FDS to keep its statistics."""
    for field, known in (("objective", OBJECTIVES), ("regularizer", REGULARIZERS)):
        compared = {method.changes[field] for method in METHODS if field in method.changes}
        assert set(known) - {"fds-cumulative"} == compared
