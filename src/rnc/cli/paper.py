"""Commands for the paper's tables: compare and reproduce."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from rnc.cli.terminal import bar, friendly

FORWARD = {"allow_extra_args": True, "ignore_unknown_options": True}


def compare(
    out: Annotated[Path, typer.Option(help="folder for the runs and the table")] = Path(
        "runs/compare"
    ),
    seeds: Annotated[int, typer.Option(min=1, help="how many times, with different seeds")] = 3,
    epochs: Annotated[int, typer.Option(min=1, help="of every method")] = 12,
) -> None:
    """Train every method of the paper on the demo's digits, and print its Table 2.

    Probe and fine-tuning of RnC, SupCon, SimCLR and DINO, and the regression methods end to end,
    with one encoder, rate and number of epochs. Takes about eight minutes on a CPU.
    """
    from rnc.experiments.compare import run_comparison

    with friendly(), bar() as show:
        table = run_comparison(out, seeds=seeds, epochs=epochs, show=show)
    Console().print(table, markup=False)
    Console().print(f"Table: {out / 'comparison.md'}")


def reproduce(context: typer.Context) -> None:
    """Train what a table or figure of the paper needs; ours beside the published numbers."""
    from rnc.experiments.__main__ import main

    main(context.args, "rnc reproduce")
