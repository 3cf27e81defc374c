"""Commands that list the paper's datasets and check a copy of one."""

from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from rnc.cli.terminal import console, friendly, stdout

_STYLES = {"ok": "green", "warning": "yellow", "error": "red"}

datasets = typer.Typer(rich_markup_mode="markdown")


@datasets.callback(invoke_without_command=True)
def list_datasets(context: typer.Context) -> None:
    """List the paper's datasets and how to get them, or check a copy of one.

    For instance:

        rnc datasets
        rnc datasets check agedb --root data
        rnc fit agedb --root data --out runs/agedb

    Nothing is downloaded for you: most of these datasets require a form or forbid copies.
    """
    if context.invoked_subcommand is not None:
        return
    from rnc.data.datasets.registry import DATASETS

    out = stdout(soft_wrap=True, highlight=False)
    for dataset in DATASETS.values():
        counts = ", ".join(f"{count:,} {what}" for what, count in dataset.counts.items())
        extra = f' (pip install "rank-n-contrast[{dataset.extra}]")' if dataset.extra else ""
        out.print(dataset.name, style="bold")
        out.print(f"  {dataset.title}: {dataset.what}{extra}")
        out.print(f"  published: {counts}")
        out.print(f"  access: {dataset.access}")
    out.print("\nCheck a copy: rnc datasets check NAME --root DIR")


@datasets.command()
def check(
    name: Annotated[str, typer.Argument(help="a name from `rnc datasets`", show_default=False)],
    root: Annotated[Path, typer.Option(help="folder of your copy", show_default=False)],
) -> None:
    """Compare your copy of a dataset with the published one.

    For instance:

        rnc datasets check skyfinder --root data/skyfinder

    Every file is opened, so a full copy takes minutes. A warning is a difference from the published
    figures. An error is something that cannot be used; then the exit code is 1.
    """
    from rnc.data.datasets.registry import check_dataset, find_dataset

    out, counts = stdout(soft_wrap=True, highlight=False), Counter[str]()
    with friendly():
        dataset = find_dataset(name)
        console.print(f"Checking {dataset.title} in {root}; every file is opened.")
        for finding in check_dataset(name, root, progress=console.is_terminal):
            out.print(f"{finding.level:<8}", style=_STYLES[finding.level], end="")
            out.print(finding.text)
            counts[finding.level] += 1
    summary = f"{counts['ok']} ok, {counts['warning']} warnings, {counts['error']} errors."
    out.print(f"\n{summary}")
    if counts["error"]:
        raise typer.Exit(1)
    out.print(f"Train on it: rnc fit {dataset.name} --root {root} --out runs/{dataset.name}")
