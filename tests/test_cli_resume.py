"""Resuming a run from its folder alone."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from rnc.cli import app

FAST = ("--preset", "quick", "--epochs", "2", "--batch-size", "32", "--device", "cpu")


def rnc(*words: str | Path) -> tuple[int, str]:
    result = CliRunner().invoke(app, [str(word) for word in words], env={"COLUMNS": "400"})
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, " ".join(result.output.split())


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sums")
    x = np.random.default_rng(0).normal(size=(120, 3))
    frame = pd.DataFrame(x, columns=["a", "b", "c"]).assign(y=x.sum(axis=1))
    frame.to_csv(folder / "sums.csv", index=False)
    words = ("--target", "y", *FAST, "--out", folder / "run")
    code, text = rnc("fit", folder / "sums.csv", *words)
    assert code == 0, text
    assert "To train: encoder 2 epochs x 2 steps, head solved at once." in text
    assert f"Predict: rnc predict {folder / 'run'} NEW" in text
    return folder / "run"


def test_a_run_without_its_end_is_finished(run: Path) -> None:
    before = (run / "predictions.csv").read_bytes()
    for name in ("scores.json", "predictions.csv", "report.html", "model.safetensors"):
        (run / name).unlink()
    code, text = rnc("predict", run, run.parent / "sums.csv", "-o", run.parent / "p.csv")
    assert (code, f"Continue it with `rnc resume {run}`" in text) == (2, True)
    code, text = rnc("resume", run)
    assert code == 0, text
    assert "To train in all: encoder 2 epochs x 2 steps" in text
    assert "y: off by" in text
    assert (run / "report.html").exists()
    assert (run / "predictions.csv").read_bytes() == before


def test_a_finished_run_trains_on(run: Path) -> None:
    code, text = rnc("resume", run, "--epochs", "4")
    assert code == 0, text
    history = pd.read_csv(run / "history.csv")
    assert history[history["stage"] == "encoder"]["epoch"].tolist() == [1, 2, 3, 4]
    assert json.loads((run / "config.json").read_text())["fit"]["epochs"] == 4
    code, text = rnc("resume", run, "--epochs", "3")
    assert (code, "has trained 4 epochs, and --epochs asks for 3" in text) == (2, True)


def test_a_folder_that_is_no_run_is_named(tmp_path: Path) -> None:
    code, text = rnc("resume", tmp_path)
    assert (code, "is no run folder: it needs a config.json" in text) == (2, True)
