"""The comparison of all methods on one data set."""

import csv
import json
from pathlib import Path

import pytest

from rnc.config import FitConfig
from rnc.experiments.compare import (
    FINETUNE,
    METHODS,
    PROBE,
    REGRESSION,
    Method,
    Result,
    comparison_table,
    digits_config,
    run_comparison,
)
from rnc.training.loop import Record


def result(group: str, method: str, seed: int, mae: float) -> Result:
    return Result(group, method, seed, mae, r2=0.5, spearman=0.25, seconds=1.5)


def test_the_table_has_the_groups_of_the_paper_sorted_by_error() -> None:
    table = comparison_table(
        [
            result(REGRESSION, "L1", 0, 3.0),
            result(PROBE, "SupCon", 0, 4.0),
            result(PROBE, "RnC", 0, 2.0),
            result(PROBE, "RnC", 1, 3.0),
            result(FINETUNE, "RnC", 0, 1.0),
        ]
    )
    assert table.splitlines()[2:] == [
        f"| *{PROBE}* | | | | |",
        "| RnC | 2.500 ± 0.707 | 0.500 ± 0.000 | 0.250 ± 0.000 | 1.50 |",
        "| SupCon | 4.000 | 0.500 | 0.250 | 1.50 |",
        f"| *{FINETUNE}* | | | | |",
        "| RnC | 1.000 | 0.500 | 0.250 | 1.50 |",
        f"| *{REGRESSION}* | | | | |",
        "| L1 | 3.000 | 0.500 | 0.250 | 1.50 |",
    ]


def test_every_method_has_a_config_and_a_folder_of_its_own() -> None:
    common = digits_config(1).to_json()
    configs = [FitConfig(**(common | method.changes)) for method in METHODS]
    assert len(set(configs)) == len({method.folder for method in METHODS}) == len(METHODS)
    assert {config.objective for config in configs} == {"rnc", "supcon", "simclr", "dino"}


def test_runs_and_scores_are_left_in_the_folder(tmp_path: Path) -> None:
    methods = [Method("SupCon", {"objective": "supcon"}), Method("L1", {"scheme": "end2end"})]
    records: list[Record] = []
    table = run_comparison(tmp_path, seeds=1, epochs=1, methods=methods, show=records.append)
    assert [record.stage for record in records] == ["encoder", "head", *["finetune"] * 2, "end2end"]
    assert (tmp_path / "comparison.md").read_text(encoding="utf-8") == table
    with (tmp_path / "comparison.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [(row["group"], row["method"]) for row in rows] == [
        (PROBE, "SupCon"),
        (FINETUNE, "SupCon"),
        (REGRESSION, "L1"),
    ]
    assert float(rows[0]["seconds"]) == pytest.approx(records[0].seconds)
    assert rows[1]["seconds"] == rows[0]["seconds"]
    probe, tuned = (
        json.loads((tmp_path / name / "scores.json").read_text())["validation_error"]
        for name in ("supcon-0", "supcon-finetuned-0")
    )
    assert tuned <= probe * (1 + 1e-6)
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) == [
        "l1-0",
        "supcon-0",
        "supcon-finetuned-0",
    ]
