"""Names of the user are printed as they are, also where a terminal library reads them as markup."""

from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

from evaluation_cases import houses
from rnc.cli import app
from rnc.cli.terminal import steps_bar

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


def test_bars_take_any_text() -> None:
    with steps_bar() as show:
        show(1, 2, "[/x]")


def test_no_command_has_a_console_of_its_own() -> None:
    files = [path for path in CLI.glob("*.py") if path.name != "terminal.py"]
    assert [path.name for path in files if "Console(" in path.read_text()] == []
