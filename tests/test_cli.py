"""The command as a user types it, in its own process where that matters."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import typer
from PIL import Image
from threadpoolctl import threadpool_limits
from typer.testing import CliRunner

from rnc.cli import app
from rnc.cli.data import DataFlags
from rnc.cli.flags import take, typed, with_flags
from rnc.config import FitConfig
from rnc.data import read_table
from rnc.model import Regressor
from rnc.run.folder import RunFolder

ONE_THREAD = os.environ | {"OMP_NUM_THREADS": "1"}
FAST = ["--preset", "quick", "--epochs", "2", "--batch-size", "32", "--device", "cpu"]


def run(*words: str | Path) -> tuple[int, str]:
    """Exit code and everything that was printed, on one line."""
    result = CliRunner().invoke(app, [str(word) for word in words], env={"COLUMNS": "400"})
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, " ".join(result.output.split())


@pytest.fixture
def houses(tmp_path: Path) -> Path:
    """120 houses with numbers, a category, a gap and a price."""
    rng = np.random.default_rng(0)
    area = rng.uniform(50, 200, 120)
    town = rng.choice(["north", "south"], 120)
    price = 3 * area + 40 * (town == "north") + rng.normal(0, 5, 120)
    frame = pd.DataFrame({"area": area, "town": town, "price": price})
    frame.loc[3, "area"] = np.nan
    frame.to_csv(tmp_path / "houses.csv", index=False)
    return tmp_path / "houses.csv"


def test_a_table_becomes_a_run_that_predicts_and_evaluates(houses: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    code, text = run(
        "fit", houses, "--target", "price", "--subgroup-column", "town", *FAST, "--out", out
    )
    assert code == 0, text
    assert "mean absolute error (MAE)" in text
    assert "r2_test_mean" not in text
    last = text.split("report.html", 1)[1]
    assert re.search(r"price: off by .* \(MAE, 24 test rows\); guessing the median: 120;", last)
    names = {path.name for path in out.iterdir()}
    assert {
        "config.json",
        "model.safetensors",
        "history.csv",
        "scores.json",
        "predictions.csv",
        "report.html",
        "checkpoint",
    } <= names
    config = json.loads((out / "config.json").read_text())
    assert config["fit"]["epochs"] == 2
    assert "fit" in config["command"] or config["command"].startswith("rnc")
    scores = json.loads((out / "scores.json").read_text())
    assert set(scores["subgroups"]["town"]) == {"north", "south"}

    new = pd.read_csv(houses).drop(columns="price").head(7)
    new.to_csv(tmp_path / "new.csv", index=False)
    code, text = run("predict", out, tmp_path / "new.csv", "-o", tmp_path / "predicted.csv")
    assert code == 0, text
    predicted = pd.read_csv(tmp_path / "predicted.csv")
    assert len(predicted) == 7
    assert predicted["price"].between(-1e4, 1e4).all()

    code, text = run("evaluate", out, "--data", houses)
    assert code == 0, text
    assert (out / "evaluation-houses" / "scores.json").exists()
    code, text = run("report", out, out, "--out", tmp_path / "both.html")
    assert code == 0, text
    assert (tmp_path / "both.html").stat().st_size > 3e4


def test_the_split_is_chosen_by_flags_and_read_again(houses: Path, tmp_path: Path) -> None:
    out, words = tmp_path / "run", ("--fractions", "0.5", "0.25", "0.25", "--split-seed", "3")
    code, text = run("fit", houses, "--target", "price", *words, *FAST, "--out", out)
    assert code == 0, text
    assert "60 train, 30 val, 30 test" in text
    data = json.loads((out / "config.json").read_text())["data"]
    assert (data["fractions"], data["split_seed"]) == ([0.5, 0.25, 0.25], 3)
    table, split = RunFolder(out).table, {"fractions": (0.5, 0.25, 0.25)}
    same = read_table(houses, target="price", split_seed=3, **split)
    other = read_table(houses, target="price", split_seed=0, **split)
    assert (table.split == same.split).all()
    assert (table.split != other.split).any()
    pd.read_csv(houses).assign(split="test").to_csv(tmp_path / "other.csv", index=False)
    code, text = run("evaluate", out, "--data", tmp_path / "other.csv")
    assert code == 0, text


def test_a_head_has_bins_for_each_target_and_options(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x, gaze = rng.normal(size=(120, 4)), rng.uniform((-40, -45), (10, 45), (120, 2))
    np.savez(tmp_path / "gaze.npz", x=x, y=gaze, target_names=np.array(["pitch", "yaw"]))
    low, high = ("--low", "-40", "--low", "-45"), ("--high", "10", "--high", "45")
    words = (*low, *high, "--step", "0.5", "--step", "1", "--head-option", "decode=class")
    words += ("--head-solver", "sgd", "--head-epochs", "1")
    command = ("fit", tmp_path / "gaze.npz", "--head", "or", *words, *FAST, "--out")
    code, text = run(*command, tmp_path / "run", "--augment-option", "noise=0.1")
    assert code == 0, text
    model = Regressor.load(tmp_path / "run")
    assert (model.head.config.bins, model.head.config.scale) == ((101, 91), (0.5, 1.0))
    assert model.head.config.options == {"decode": "class"}
    assert model.config.augment == {"noise": 0.1, "mask": 0.0}
    code, text = run(*command, tmp_path / "run", "--augment-option", "noise=0.1", "--resume")
    assert code == 0, text
    code, text = run(*command, tmp_path / "other", "--head-option", "beta=1")
    assert (code, "beta=1.0 is no option of head 'or'" in text) == (2, True)
    code, text = run(*command, tmp_path / "other", "--head-option", "beta")
    assert (code, "--head-option needs KEY=VALUE; got 'beta'." in text) == (2, True)


def test_typed_words_make_the_same_config_again() -> None:
    config = FitConfig(
        head="corn",
        head_options={"decode": "class"},
        low=(0.0, 1.5),
        high=9.0,
        augment_options={"mean": (0.4, 0.5, 0.6), "std": (0.2,)},
    )
    flags = DataFlags("x.npz", target=["a", "b"], fractions=(0.6, 0.2, 0.2), split_seed=4)
    caught = []

    def command(**options: Any) -> None:
        caught.append((take(options, DataFlags), take(options, FitConfig)))

    again = typer.Typer()
    again.command()(with_flags(command, DataFlags, FitConfig))
    result = CliRunner().invoke(again, [*typed(flags), *typed(config)])
    assert result.exit_code == 0, result.output
    assert caught == [(flags, config)]


def test_images_of_any_size_become_a_run(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    (tmp_path / "photos").mkdir()
    rows = []
    for i in range(60):
        brightness = int(rng.integers(0, 256))
        noise = rng.integers(-20, 20, (20 + i % 7, 24, 3))
        pixels = np.clip(brightness + noise, 0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(tmp_path / "photos" / f"{i}.png")
        rows.append({"file": f"{i}.png", "brightness": brightness})
    pd.DataFrame(rows).to_csv(tmp_path / "photos.csv", index=False)
    code, text = run(
        *("fit", tmp_path / "photos.csv", "--images", tmp_path / "photos"),
        *("--target", "brightness", "--image-size", "16", "--no-color", "--no-grayscale", *FAST),
        *("--out", tmp_path / "run"),
    )
    assert code == 0, text
    code, text = run(
        "predict", tmp_path / "run", tmp_path / "photos", "-o", tmp_path / "predicted.csv"
    )
    assert code == 0, text
    assert len(pd.read_csv(tmp_path / "predicted.csv")) == 60


def test_signals_become_a_run_by_every_scheme(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    y = rng.uniform(1, 9, 80)
    wave = np.sin(np.linspace(0, 6, 64)[None] * y[:, None] + rng.uniform(0, 6, (80, 1)))
    np.savez(tmp_path / "waves.npz", x=wave[:, None].astype(np.float32), y=y)
    code, text = run(
        *("fit", tmp_path / "waves.npz", "--encoder", "resnet1d10", "--scheme", "auto"),
        *("--head-epochs", "1", *FAST, "--out", tmp_path / "run"),
    )
    assert code == 0, text
    stages = set(pd.read_csv(tmp_path / "run" / "history.csv")["stage"])
    assert {"encoder", "probe/head", "finetune/finetune"} <= stages
    assert Regressor.load(tmp_path / "run").predict_prepared(
        wave[:2, None].astype(np.float32)
    ).shape == (2, 1)


def test_a_folder_with_a_run_or_with_other_files_is_not_touched(
    houses: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    command = ("fit", houses, "--target", "price", *FAST, "--out", out)
    assert run(*command)[0] == 0
    before = {path.name: path.stat().st_mtime_ns for path in out.iterdir()}
    code, text = run(*command)
    assert code == 2
    assert f"holds a run. Continue it with `rnc resume {out}`, add --overwrite" in text
    assert {path.name: path.stat().st_mtime_ns for path in out.iterdir()} == before
    code, text = run(*command, "--resume", "--temperature", "1")
    assert code == 2
    assert "started with other options (temperature: not given then, 1.0 now)" in text
    config = json.loads((out / "config.json").read_text())
    del config["fit"]["crop_scale"]  # as an older version would have written it
    (out / "config.json").write_text(json.dumps(config))
    assert run(*command, "--resume")[0] == 0
    assert run(*command, "--overwrite")[0] == 0

    other = tmp_path / "thesis"
    other.mkdir()
    (other / "thesis.tex").write_text("years of work")
    code, text = run("fit", houses, "--target", "price", *FAST, "--out", other, "--overwrite")
    assert code == 2
    assert "holds no run. Choose a new folder" in text
    assert (other / "thesis.tex").read_text() == "years of work"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--target", "prize"), "price"),
        (("--target", "town"), "expected a number"),
        (("--target", "price", "--batch-size", "5000"), "batch_size = 5000 training rows; got"),
        (("--target", "price", "--head", "l3"), "l3"),
        (("--target", "price", "--lr", "-1"), "lr must be a positive number; got -1"),
        (("--target", "price", "--encoder", "resnet18"), "resnet18"),
    ],
)
def test_bad_input_is_one_clear_line_before_training(
    houses: Path, tmp_path: Path, words: tuple[str, ...], message: str
) -> None:
    code, text = run(
        "fit", houses, "--preset", "quick", *words, "--out", tmp_path / "run", "--device", "cpu"
    )
    assert code == 2
    assert message in text
    assert "Traceback" not in text


def test_folders_that_are_no_runs_are_named(tmp_path: Path) -> None:
    code, text = run("predict", tmp_path / "nowhere", tmp_path, "-o", tmp_path / "p.csv")
    assert code == 2
    assert "no run folder: it needs a config.json" in text


def test_every_field_of_the_config_is_a_flag_with_help() -> None:
    code, text = run("fit", "--help")
    assert code == 0
    for field in fields(FitConfig):
        name = field.name.removesuffix("s") if field.name.endswith("_options") else field.name
        assert f"--{name.replace('_', '-')} " in text


def start_and_stop(command: list[str], folder: Path) -> tuple[int, str]:
    """Start a fit, press Ctrl-C after it wrote a checkpoint; exit code and what it said."""
    checkpoint = folder / "checkpoint" / "last.safetensors"
    process = subprocess.Popen(
        [*command, str(folder)], env=ONE_THREAD, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    while not checkpoint.exists():
        time.sleep(0.02)
        assert process.poll() is None
    time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate()
    return process.returncode, said.decode()


def test_a_stopped_fit_resumes_to_the_same_bits(houses: Path, tmp_path: Path) -> None:
    words = ["fit", str(houses), "--target", "price", *FAST, "--epochs", "200", "--out"]
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    command = [sys.executable, "-m", "rnc.cli", *words]
    code, said = start_and_stop(command, stopped)
    assert code == 130
    assert f"Continue with: rnc resume {stopped}" in said.replace("\n", "")
    assert not (stopped / "model.safetensors").exists()
    for line in ([*words, whole], ["resume", stopped]):
        with threadpool_limits(1):
            assert run(*line)[0] == 0
    for name in ("model.safetensors", "predictions.csv"):
        assert (whole / name).read_bytes() == (stopped / name).read_bytes()
    scores = [json.loads((out / "scores.json").read_text()) for out in (whole, stopped)]
    for one in scores:
        del one["baselines"]["boosting"]["seconds"]
    assert scores[0] == scores[1]


def test_two_processes_equal_one(houses: Path, tmp_path: Path) -> None:
    words = ["fit", str(houses), "--target", "price", *FAST, "--epochs", "4", "--out"]
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    two = [sys.executable, *launch, "-m", "rnc.cli", *words, str(tmp_path / "two")]
    assert run(*words, tmp_path / "one")[0] == 0
    subprocess.run(two, env=ONE_THREAD, check=True, capture_output=True)
    curves = [pd.read_csv(tmp_path / name / "history.csv") for name in ("one", "two")]
    assert len(curves[0]) == 5
    np.testing.assert_allclose(
        curves[0]["train_loss"], curves[1]["train_loss"], rtol=1e-4, atol=1e-4
    )
