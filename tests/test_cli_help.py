"""What the help shows, and that a terminal can hold it."""

import re
from dataclasses import fields

import pytest
from typer.testing import CliRunner

import rnc
from rnc.cli import app
from rnc.cli.data import DataFlags
from rnc.cli.flags import PANELS
from rnc.cli.paper import SET_BY_TABLE
from rnc.config import FitConfig

COMMANDS = [
    "demo",
    "fit",
    "predict",
    "evaluate",
    "report",
    "export",
    "serve",
    "push",
    "search",
    "compare",
    "reproduce",
    "convert",
    "datasets",
]


def help_of(*words: str, columns: int = 80) -> str:
    result = CliRunner().invoke(app, [*words, "--help"], env={"COLUMNS": str(columns)})
    assert result.exit_code == 0, result.output
    return result.output


def panels(text: str) -> list[str]:
    return re.findall(r"^╭─ (.+?) ─", text, flags=re.MULTILINE)


def flags(text: str) -> list[str]:
    return re.findall(r"^│ (?:\* )? *(--[a-z0-9-]+)", text, flags=re.MULTILINE)


def test_the_version_is_said() -> None:
    assert CliRunner().invoke(app, ["--version"]).output == f"rnc {rnc.__version__}\n"


def test_commands_are_in_panels() -> None:
    text = help_of()
    assert panels(text) == ["Options", "Start here", "Use a run", "Research"]
    assert all(re.search(rf"^│ {name} ", text, flags=re.MULTILINE) for name in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("columns", [80, 100])
def test_a_terminal_holds_every_line(command: str, columns: int) -> None:
    text = help_of(command, columns=columns)
    assert max(map(len, text.splitlines())) <= columns
    assert "…" not in text


def test_the_flags_of_fit_are_in_panels_with_the_common_ones_first() -> None:
    text = help_of("fit")
    names = ["Data", "Method", "Training", "Augmentation", "Speed", "Output"]
    assert panels(text) == ["Arguments", "Options", *names]
    assert flags(text)[:5] == ["--out", "--target", "--images", "--preset", "--scheme"]
    for command in ("search", "compare", "reproduce"):
        assert set(panels(help_of(command))) >= set(names) - {"Output"}


def test_every_flag_of_fit_is_shown_once() -> None:
    shown = flags(help_of("fit"))
    assert len(shown) == len(set(shown))
    named = {name.removesuffix("s") if name.endswith("_options") else name for name in names()}
    assert {f"--{name.replace('_', '-')}" for name in named} <= set(shown)


def names() -> list[str]:
    """Fields that are flags; the source is an argument."""
    return [f.name for cls in (DataFlags, FitConfig) for f in fields(cls) if f.name != "source"]


def test_a_name_is_in_one_panel() -> None:
    listed = [name for panel in PANELS.values() for name in panel]
    assert len(listed) == len(set(listed))


def test_flags_that_a_table_sets_are_not_shown_and_refused() -> None:
    shown = set(flags(help_of("compare")))
    assert not shown & {f"--{name.replace('_', '-')}" for name in SET_BY_TABLE}
    result = CliRunner().invoke(app, ["compare", "--head", "dex"], env={"COLUMNS": "200"})
    assert result.exit_code == 2
    assert "The lines of the table differ in --head" in result.output


def test_a_switch_that_is_off_has_no_second_flag() -> None:
    text = help_of("fit")
    assert "--no-resume" not in text
    assert "--no-flip" in text


def test_a_flag_of_a_command_keeps_the_type_of_its_field() -> None:
    result = CliRunner().invoke(app, ["compare", "--preset", "fast"], env={"COLUMNS": "200"})
    assert result.exit_code == 2
    assert "'fast' is not one of 'best', 'paper', 'quick'" in result.output
