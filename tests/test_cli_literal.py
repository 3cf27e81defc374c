"""Names of the user are printed as they are, also where a terminal library reads them as markup."""

import dataclasses
import io
import os
import re
import sys
from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

from evaluation_cases import houses, table_of, untrained
from rnc.cli import app
from rnc.cli.data import describe
from rnc.cli.terminal import console, steps_bar
from rnc.data.errors import DataError, DataWarning
from rnc.run.outputs import STDOUT, open_rows

CLI = Path(__file__).parent.parent / "src" / "rnc" / "cli"
TARGETS = ("flow [/min]", "weight [kg]", "time :clock1:")


def rnc(*words: object) -> str:
    result = CliRunner().invoke(app, [str(word) for word in words], env={"COLUMNS": "400"})
    assert isinstance(result.exception, SystemExit | None), result.exception
    return result.output


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What commands say about targets, columns, files and folders with such names."""
    folder = tmp_path_factory.mktemp("[bold]")
    frame = pd.read_csv(houses(folder / "houses.csv"))
    frame = frame.rename(columns={"price": TARGETS[0], "age": TARGETS[1], "rooms": TARGETS[2]})
    frame.to_csv(source := folder / "[red]x.csv", index=False)
    run, options = folder / "runs" / "[" / "x]", ("--preset", "quick", "--epochs", 1)
    asked = [word for target in TARGETS for word in ("--target", target)]
    return {
        "fit": rnc("fit", source, *asked, *options, "--out", run),
        "again": rnc("fit", source, *asked, *options, "--out", run),
        "resume": rnc("resume", run),
        "predict": rnc("predict", run, source, "-o", folder / "[i]p.csv"),
        "evaluate": rnc("evaluate", run, "--data", source, "--out", folder / "[b]e"),
        "report": rnc("report", run, "--out", folder / "[u]r.html"),
        "search": rnc("search", source, *asked, *options, "--trials", 1, "--out", folder / "[s]s"),
        "missing": rnc("fit", source, "--target", "[/nope]", "--out", folder / "new"),
        "typo": rnc("fit", source, "--preset", "[/fast]", "--out", run),
        "nothing": rnc("evaluate", folder / "[/none]"),
    }


def test_targets_are_printed_as_they_are(said: dict[str, str]) -> None:
    for command in ("fit", "search"):
        assert f"target {', '.join(TARGETS)}" in said[command]


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("fit", "[bold]0/runs/[/x]/report.html"),
        ("again", "[bold]0/runs/[/x] holds a run"),
        ("resume", "rnc predict "),
        ("predict", "predictions in "),
        ("evaluate", "[b]e --out report.html"),
        ("report", "[u]r.html"),
        ("search", "[s]s/trials.csv"),
        ("missing", "[/nope]"),
        ("typo", "[/fast]"),
        ("nothing", "[/none]"),
    ],
)
def test_names_of_files_and_folders_are_printed_as_they_are(
    said: dict[str, str], command: str, text: str
) -> None:
    assert text in said[command].replace("\n", "")


ODD = "flow\x1b]0;owned\x07\x1b[2J\r\x9b31m\u202e\nfine"
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e\ud800-\udfff]")


def test_control_characters_in_names_are_written_out(tmp_path: Path) -> None:
    table = dataclasses.replace(table_of(60), target_names=(ODD,), notes=(ODD,))
    run = untrained(tmp_path / "run\x1b[31m\nx", table)
    with console.capture() as captured:
        describe(table)
    said = captured.get() + rnc("evaluate", run.path) + rnc("report", run.path)
    frame = pd.DataFrame({ODD: range(40), "y": range(40)})
    frame.to_csv(source := tmp_path / "a\x1b[1m\nb.csv", index=False)
    said += rnc("fit", source, "--target", "nope", "--out", tmp_path / "new\x1b[31m")
    assert r"target flow\x1b]0;owned\x07\x1b[2J\r\x9b31m\u202e\nfine" in said
    assert r"Note: flow\x1b" in said
    assert "run\\x1b[31m" in said
    assert "has no column 'nope'; its columns: flow\\x1b" in " ".join(said.split())  # wrapped
    assert CONTROL.findall(said) == []
    names = (ODD, "\x00", os.fsdecode(b"\xff.csv"))  # the last has a byte that is no text
    assert [CONTROL.findall(f"{DataError(name)}{DataWarning(name)}") for name in names] == [[]] * 3


def test_predictions_on_a_terminal_are_written_out_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for is_terminal in (True, False):
        screen = io.StringIO()
        monkeypatch.setattr(screen, "isatty", lambda is_terminal=is_terminal: is_terminal)
        monkeypatch.setattr(sys, "stdout", screen)
        with open_rows(STDOUT) as write:
            write(pd.DataFrame({"name": ["a\x1b[2Jb", "c"]}))
        assert (CONTROL.findall(screen.getvalue()) == []) == is_terminal
        assert len(screen.getvalue().splitlines()) == 3


def test_bars_take_any_text() -> None:
    with steps_bar() as show:
        show(1, 2, "[/x]")


def test_no_command_has_a_console_of_its_own() -> None:
    files = [path for path in CLI.glob("*.py") if path.name != "terminal.py"]
    assert [path.name for path in files if "Console(" in path.read_text()] == []
