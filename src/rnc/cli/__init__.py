"""The command `rnc`. It only translates: flags into a FitConfig, records into a progress bar.

One file for each group of commands. A command imports what it needs when it runs, and the flags
that FitConfig gives it are made when it is called, so that `rnc --help` answers at once.
"""

from collections.abc import Callable
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import rnc
from rnc.cli.cache import cache
from rnc.cli.convert import convert
from rnc.cli.data import DataFlags
from rnc.cli.datasets import datasets
from rnc.cli.finished import evaluate, export, predict, report
from rnc.cli.fit import demo, fit
from rnc.cli.flags import with_flags
from rnc.cli.paper import SET_BY_TABLE, compare, reproduce
from rnc.cli.push import push
from rnc.cli.resume import resume
from rnc.cli.search import search
from rnc.cli.serve import serve
from rnc.cli.terminal import console

_START, _USE, _RESEARCH = "Start here", "Use a run", "Research"
_PANELS: dict[str, tuple[Callable[..., None], ...]] = {
    _START: (demo, fit, predict),
    _USE: (resume, evaluate, report, export, serve, push),
    _RESEARCH: (search, compare, reproduce, convert),
}
_TRAINING: dict[str, Callable[..., None]] = {
    command.__name__: command for command in (fit, search, compare, reproduce)
}
"""Commands with a flag per field of FitConfig. Importing FitConfig takes seconds."""


class _Commands(TyperGroup):
    """The group of commands. It builds the flags of a training command when that is called."""

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[Any, Any, list[str]]:
        """The command that the arguments name, and the remaining arguments."""
        name, command, rest = super().resolve_command(ctx, args)
        if name in _TRAINING:
            with console.status("Loading PyTorch"):
                from rnc.config import FitConfig

            alone = typer.Typer(add_completion=False, rich_markup_mode="markdown")
            hidden = SET_BY_TABLE if name in ("compare", "reproduce") else ()
            alone.command()(with_flags(_TRAINING[name], DataFlags, FitConfig, hidden=hidden))
            command = typer.main.get_command(alone)
        return name, command, rest


app = typer.Typer(
    cls=_Commands,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)
for panel, commands in _PANELS.items():
    for command in commands:
        app.command(rich_help_panel=panel)(with_flags(command))
app.add_typer(datasets, name="datasets", rich_help_panel=_RESEARCH)
app.add_typer(cache, name="cache", rich_help_panel=_USE)


def _say_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"rnc {rnc.__version__}")
        raise typer.Exit


@app.callback()
def _about(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_say_version, is_eager=True, help="show the version"),
    ] = False,
) -> None:
    """Deep regression whose representations keep the order of the labels.

    Start with `rnc demo`, then `rnc fit table.csv --target price --out runs/price`.
    """


def main() -> None:
    """Entry point of the command `rnc`."""
    app(prog_name="rnc")
