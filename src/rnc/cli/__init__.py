"""The command `rnc`: translation only. Flags become a FitConfig, records become a progress bar.

One file for each group of commands. A command imports what it needs when it runs, so that
`rnc --help` answers at once.
"""

import typer

from rnc.cli.data import DataFlags
from rnc.cli.datasets import datasets
from rnc.cli.finished import evaluate, export, predict, report
from rnc.cli.fit import demo, fit
from rnc.cli.flags import with_flags
from rnc.cli.paper import compare, reproduce
from rnc.cli.search import search
from rnc.config import FitConfig

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    help="""Deep regression whose representations keep the order of the labels.

    Start with `rnc demo`, then `rnc fit table.csv --target price --out runs/price`.""",
)
for command in (demo, fit, predict, evaluate, report, export, search, compare, reproduce):
    trains_on_data = command in (fit, search, compare, reproduce)
    app.command()(with_flags(command, *((DataFlags, FitConfig) if trains_on_data else ())))
app.add_typer(datasets, name="datasets")


def main() -> None:
    """Entry point of the command `rnc`."""
    app(prog_name="rnc")
