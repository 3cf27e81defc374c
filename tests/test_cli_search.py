"""`rnc search` as a user types it, and the flags that it shares with `rnc fit`."""

import dataclasses
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import typer
from typer.testing import CliRunner

from rnc.cli import app
from rnc.cli.data import DataFlags
from rnc.cli.flags import take, typed, value_of
from rnc.cli.terminal import friendly
from rnc.config import FitConfig

FAST = ["--preset", "quick", "--epochs", "1", "--batch-size", "16", "--device", "cpu"]


def run(*words: str | Path) -> tuple[int, str]:
    """Exit code and everything that was printed."""
    result = CliRunner().invoke(app, [str(word) for word in words], env={"COLUMNS": "400"})
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.output


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that rnc is called from, with 80 samples in it."""
    monkeypatch.chdir(tmp_path)
    x = np.random.default_rng(0).normal(size=(80, 4))
    np.savez("data.npz", x=x, y=x @ [3.0, 2, 1, 0])
    return tmp_path


def test_a_search_ends_with_the_command_that_trains_the_best(data: Path) -> None:
    words = ["search", "data.npz", "--split-column", "none", *FAST, "--no-flip", "--out", "study"]
    words += ["--choice", "lr=0.001,0.01", "--choice", "head=l1,huber", "--trials", "3"]
    code, text = run(*words)
    assert code == 0, text
    assert "trial 2 complete" in text
    frame = pd.read_csv("study/trials.csv")
    assert frame["state"].tolist() == ["complete"] * 3
    best = json.loads(Path("study/best.json").read_text())
    assert best["validation_error"] == frame["validation_error"].min()
    command = shlex.split(text.strip().splitlines()[-1])
    assert command[:3] == ["rnc", "fit", "data.npz"]
    code, text = run(*command[1:])
    assert code == 0, text
    config = json.loads(Path("runs/study/config.json").read_text())
    assert config["fit"] == best["config"]
    scores = json.loads(Path("runs/study/scores.json").read_text())
    assert scores["validation_error"] == pytest.approx(best["validation_error"], rel=1e-5)

    code, text = run(*words[:-1], "4")
    assert code == 0, text
    assert "trial 2" not in text
    assert len(pd.read_csv("study/trials.csv")) == 4


def test_a_search_stopped_by_a_key_says_how_to_go_on(data: Path) -> None:
    # Scheme probe, whose encoder is hardly ever reported: a key in the middle of a write to the
    # study can leave its database locked for minutes.
    words = ["search", "data.npz", *FAST, "--scheme", "probe", "--epochs", "5000"]
    command = [sys.executable, "-m", "rnc.cli", *words, "--choice", "lr=0.001", "--out", "study"]
    process = subprocess.Popen(
        command, env=os.environ | {"OMP_NUM_THREADS": "1"}, stderr=subprocess.PIPE
    )
    while not list(Path("study").glob("checkpoints/*/checkpoint/last.safetensors")):
        time.sleep(0.05)
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    said = " ".join(process.communicate()[1].decode().split())
    assert process.returncode == 130, said
    assert "Stopped. The same command continues the study (study)." in said
    assert "Traceback" not in said
    assert pd.read_csv("study/trials.csv")["state"].tolist() == ["failed", "waiting"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--range", "lr=1e-3"], "--range needs KEY=LOW:HIGH or KEY=LOW:HIGH:log; got 'lr=1e-3'"),
        (["--range", "lr=a:b"], "--range needs KEY=LOW:HIGH or KEY=LOW:HIGH:log; got 'lr=a:b'"),
        (["--range", "lr=1:2:ln"], "got 'lr=1:2:ln'"),
        (["--range", "rate=1:2"], "There is no option 'rate' to search; known are scheme, "),
        (["--choice", "rate=1"], "There is no option 'rate' to search; known are scheme, "),
        (["--choice", "epochs=1,x"], "--choice epochs must be a whole number; got 'x'"),
        (["--choice", "scheme=probe,x"], "--choice scheme must be one of probe, finetune, "),
        (["--choice", "flip=maybe"], "--choice flip must be true or false; got 'maybe'"),
        (["--choice", "lr"], "--choice needs KEY=VALUE; got 'lr'"),
        (["--choice", "lr=-1"], "lr must be a positive number; got -1.0"),
        (["--choice", "lr=1", "--storage", "x"], "The storage x cannot be used"),
    ],
)
def test_bad_input_is_one_clear_line(data: Path, words: list[str], message: str) -> None:
    code, text = run("search", "data.npz", *FAST, *words, "--out", "study")
    assert code == 2
    assert message in text
    assert "Traceback" not in text


def test_a_study_in_which_all_diverged_says_so(data: Path) -> None:
    words = ["--optimizer", "sgd", "--choice", "lr=1e30", "--scheme", "end2end"]
    code, text = run("search", "data.npz", *FAST, *words, "--out", "study")
    assert code == 2
    assert "None of the 1 trials" in text
    assert "search lower learning rates" in text
    assert pd.read_csv("study/trials.csv")["state"].tolist() == ["diverged"]


def test_help_teaches_by_examples() -> None:
    code, text = run("search", "--help")
    assert code == 0
    for word in ("--range lr=1e-2:1:log", "--choice temperature=1,2", "postgresql+psycopg://"):
        assert word in text
    for field in dataclasses.fields(FitConfig):
        name = field.name.removesuffix("s") if field.name.endswith("_options") else field.name
        assert f"--{name.replace('_', '-')} " in text


def test_help_is_quick_because_it_imports_little() -> None:
    heavy = {"optuna", "pandas", "timm", "lightning", "sklearn", "rnc.search", "rnc.training"}
    heavy |= {"scipy.stats", "scipy.ndimage"}
    look = f"import sys, rnc.cli; print({heavy} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, check=True, text=True)
    assert done.stdout.strip() == "set()"


def test_typed_words_give_the_same_dataclass() -> None:
    flags = DataFlags("a b.csv", target=["x", "y"], drop_missing=True, root=Path("r"))
    words = ["a b.csv", "--target", "x", "--target", "y", "--drop-missing", "--root", "r"]
    assert typed(flags) == words
    assert take({**dataclasses.asdict(flags), "other": 1}, DataFlags) == flags


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("None", float | None, None),
        ("1e-3", float | None, 0.001),
        ("off", bool, False),
        ("p1, p2", list[str], ["p1", "p2"]),
        ("none", str, "none"),
    ],
)
def test_words_become_values_of_a_type(text: str, kind: object, value: object) -> None:
    assert value_of(text, kind) == value


def test_a_stop_that_a_library_hides_behind_an_error_is_a_stop(capsys):
    def interrupted():
        try:
            raise KeyboardInterrupt
        finally:
            raise UnboundLocalError("of Optuna, while it told the storage")

    with pytest.raises(typer.Exit) as end, friendly("The same command continues the study."):
        interrupted()
    assert end.value.exit_code == 130
    assert "Stopped. The same command continues the study." in capsys.readouterr().err
    with pytest.raises(UnboundLocalError), friendly("The same command continues the study."):
        raise UnboundLocalError("of ours: a bug is not hidden")
