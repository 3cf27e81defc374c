"""Start-up: an import or a command loads no more modules than it needs."""

import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import rnc

HEAVY = ("torch", "lightning", "torchvision", "timm", "sklearn", "pandas", "numpy", "scipy")
TRAINING = ("lightning", "torchvision", "timm", "torchmetrics")
COMMAND = "import sys; from rnc.cli import app; app(sys.argv[1:], standalone_mode=False)"


def imported(code: str, of: tuple[str, ...], *words: str | Path) -> list[str]:
    """Which of some modules a process of its own has after a piece of code."""
    code += f"\nimport sys, json; print(json.dumps([m for m in {of} if m in sys.modules]))"
    command = [sys.executable, "-c", code, *map(str, words)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    found: list[str] = json.loads(result.stdout.splitlines()[-1])
    return found


def test_importing_rnc_costs_nothing() -> None:
    assert imported("import rnc", HEAVY) == []


@pytest.mark.parametrize("word", ["--help", "--version"])
def test_help_and_version_do_without_torch(word: str) -> None:
    assert imported(COMMAND, HEAVY, word) == []


def test_the_estimator_does_without_what_only_training_needs() -> None:
    assert imported("from rnc import RnCRegressor", TRAINING) == []
    assert imported("from rnc import RnCRegressor", ("torch",)) == ["torch"]


def test_the_estimator_is_imported_in_a_few_times_of_torch() -> None:
    """Measured: 1.5 times; with Lightning and what it imports it was 3.2 times."""

    def seconds(code: str) -> float:
        started = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True)
        return time.perf_counter() - started

    ratios = (seconds("from rnc import RnCRegressor") / seconds("import torch") for _ in range(3))
    assert any(ratio < 3 for ratio in ratios)


def test_using_a_run_does_without_what_only_training_needs(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(60, 2))
    pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "y": x.sum(1)}).to_csv(tmp_path / "new.csv")
    table = rnc.read_table(tmp_path / "new.csv", target="y")
    config = rnc.FitConfig(preset="quick", epochs=1, batch_size=16, device="cpu")
    run = rnc.fit(table, config, tmp_path / "run").path
    words = ("predict", run, tmp_path / "new.csv", "-o", tmp_path / "predictions.csv")
    assert imported(COMMAND, TRAINING, *words) == []
    assert (tmp_path / "predictions.csv").exists()
    assert imported(COMMAND, TRAINING, "evaluate", run) == []
