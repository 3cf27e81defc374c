"""Every block of code in the documentation is run, or gives a reason why it is not."""

import re

import pytest
import typer

from doc_blocks import BLOCKS, CODE, OTHER, PAGES, ROOT, Block
from rnc.cli import app

COMMANDS = [(block, words) for block in BLOCKS if block.is_code for words in block.commands()]


def test_no_block_is_overlooked() -> None:
    fences = [page.read_text(encoding="utf-8").count("\n```") for page in PAGES]
    assert sum(fences) == 2 * len(BLOCKS)
    assert len(BLOCKS) > 60


def test_every_block_has_a_language() -> None:
    strange = [block.place for block in BLOCKS if block.language not in (*CODE, *OTHER)]
    assert not strange, f"begin these blocks with ```python, bash, text or bibtex: {strange}"


def test_most_blocks_are_run() -> None:
    code = [block for block in BLOCKS if block.is_code]
    run = [block for block in code if not block.mark.startswith("not run")]
    assert len(run) >= 0.55 * len(code)


@pytest.mark.parametrize(
    "block", [b for b in BLOCKS if b.mark and b.is_code], ids=lambda b: b.place
)
def test_a_block_that_is_not_walked_says_why_or_where(block: Block) -> None:
    kind, _, said = block.mark.partition(": ")
    if kind == "not run":
        assert len(said.split()) >= 3, f"{block.place}: {said!r} is no reason"
        return
    test = ROOT / said
    assert test.exists(), f"{block.place}: {said} is not there"
    name = block.page.rpartition("/")[2]
    assert name in test.read_text(encoding="utf-8"), f"{said} does not read {name}"


def command_of(words: list[str]) -> tuple[typer.core.TyperCommand, list[str]]:
    """The command that the words name, and its words."""
    command = typer.main.get_command(app)
    while isinstance(command, typer.core.TyperGroup) and words and not words[0].startswith("-"):
        context = command.make_context("rnc", [], resilient_parsing=True)
        _, command, words = command.resolve_command(context, words)
    return command, words


@pytest.mark.parametrize(("block", "words"), COMMANDS, ids=lambda x: getattr(x, "place", None))
def test_every_flag_that_is_printed_exists(block: Block, words: list[str]) -> None:
    """Also of commands that are not run here."""
    command, rest = command_of(words)
    known = {flag for one in command.params for flag in (*one.opts, *one.secondary_opts)}
    flags = {word.partition("=")[0] for word in rest if re.match(r"--?[a-z]", word)}
    unknown = flags - known - {"--help"}
    assert not unknown, f"{block.place}: rnc {words[0]} has no {sorted(unknown)}"


def test_every_script_that_is_printed_exists() -> None:
    lines = [line for block in BLOCKS if block.language == "bash" for line in block.lines()]
    scripts = re.findall(r"\bpython ([\w/]+\.py)", "\n".join(lines))
    assert len(scripts) > 15
    assert not [script for script in scripts if not (ROOT / script).exists()]
