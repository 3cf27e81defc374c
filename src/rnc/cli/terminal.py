"""What commands show: progress, scores, and errors as one line."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table as RichTable

if TYPE_CHECKING:
    from rnc.analyses.analysis import ShowProgress
    from rnc.training.loop import Record, ShowRecord

console = Console(stderr=True)


@contextlib.contextmanager
def friendly(when_stopped: str | None = None) -> Iterator[None]:
    """Expected errors as one clear line, and how to go on after Ctrl-C."""
    try:
        yield
    except KeyboardInterrupt:
        if when_stopped is not None:
            console.print(f"\nStopped. {when_stopped}", markup=False)
        raise typer.Exit(130) from None
    except (ValueError, OSError, RuntimeError, FloatingPointError, ImportError) as error:
        console.print(f"rnc: {error}", markup=False, style="red")
        raise typer.Exit(2) from None


@contextlib.contextmanager
def bar(*, one_line: bool = False) -> Iterator["ShowRecord"]:
    """A progress bar that records feed: loss, gap to the bound, validation error, time left.

    Args:
        one_line: show only the stage that runs, and nothing when all is done: for many runs.
    """
    from rnc.loss.distributed import is_first_process

    progress = Progress(
        TextColumn("{task.description:<12}"),
        BarColumn(),
        TextColumn("{task.completed}/{task.total}  {task.fields[numbers]}"),
        TimeRemainingColumn(),
        console=console,
        transient=one_line,
        disable=not is_first_process() or (one_line and not console.is_terminal),
    )
    tasks: dict[str, Any] = {}
    shown: dict[str, int] = {}

    def show(record: "Record") -> None:
        if record.epoch <= shown.get(record.stage, record.epoch):  # as the next seed begins
            if one_line:
                for task in list(progress.task_ids):
                    progress.remove_task(task)
            tasks[record.stage] = progress.add_task(record.stage, total=record.epochs, numbers="")
        shown[record.stage] = record.epoch
        numbers = f"loss {record.train_loss:.4f}"
        if record.gap is not None:
            numbers += f"  gap {record.gap:.3f}"
        if record.val_error is not None:
            numbers += f"  val {record.val_error:.4g}"
        progress.update(tasks[record.stage], completed=record.epoch, numbers=numbers)

    with progress:
        yield show


@contextlib.contextmanager
def steps_bar() -> Iterator["ShowProgress"]:
    """A progress bar for steps of any kind, which goes when all is done."""
    progress = Progress(
        TextColumn("{task.description:<32}"),
        BarColumn(),
        TextColumn("{task.completed}/{task.total}"),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )

    def show(done: int, total: int, what: str) -> None:
        progress.update(task, completed=done, total=total, description=what)

    with progress:
        task = progress.add_task("", total=None)
        yield show


def print_scores(folder: Path) -> None:
    """The scores of a finished run, or of an evaluation."""
    from rnc.run.folder import RunFolder

    scores = RunFolder(folder).scores
    table = RichTable("score", "value")
    for name, value in scores.get("test", {}).items():
        table.add_row(name, f"{value:.4g}")
    Console().print(table)
    for scheme, error in sorted(scores.get("auto", {}).items(), key=lambda item: item[1]):
        Console().print(f"{scheme}: validation error {error:.4g}")
