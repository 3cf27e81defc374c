"""What commands show: progress, scores, and errors as one line."""

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table as RichTable

if TYPE_CHECKING:
    from rnc.analyses.analysis import ShowProgress
    from rnc.training.record import Record, ShowRecord

GOES_ON = "The same command goes on from here."
console = Console(stderr=True)


def typed_command() -> str:
    """The command line of this process, as a user would type it."""
    return " ".join(["rnc", *sys.argv[1:]])


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


def _progress(*, stays: bool) -> Progress:
    """The progress bar of every command; it may stay, on the screen and in a log, when done."""
    from rnc.loss.distributed import is_first_process

    return Progress(
        TextColumn("{task.description:<12}"),
        BarColumn(),
        TextColumn("{task.completed}/{task.total}  {task.fields[numbers]}"),
        TimeRemainingColumn(elapsed_when_finished=True),
        console=console,
        transient=not stays,
        disable=not is_first_process() or not (stays or console.is_terminal),
    )


@contextlib.contextmanager
def bar() -> Iterator["ShowRecord"]:
    """A progress bar per stage that records feed; all of them stay."""
    tasks: dict[str, Any] = {}
    shown: dict[str, int] = {}
    progress = _progress(stays=True)

    def show(record: "Record") -> None:
        if record.epoch <= shown.get(record.stage, record.epoch):  # as the next seed begins
            tasks[record.stage] = progress.add_task(record.stage, total=record.epochs, numbers="")
        shown[record.stage] = record.epoch
        progress.update(tasks[record.stage], completed=record.epoch, numbers=_numbers(record))

    with progress:
        yield show


@contextlib.contextmanager
def records_bar() -> Iterator["ShowRecord"]:
    """One progress bar for the records of many runs, which goes when all is done."""
    with steps_bar() as show:
        yield lambda record: show(
            record.epoch, record.epochs, f"{record.stage:<12} {_numbers(record)}"
        )


@contextlib.contextmanager
def steps_bar() -> Iterator["ShowProgress"]:
    """One progress bar for steps of any kind, which goes when all is done."""
    progress = _progress(stays=False)

    def show(done: int, total: int, what: str) -> None:
        progress.update(task, completed=done, total=total, description=what)

    with progress:
        task = progress.add_task("", total=None, numbers="")
        yield show


def _numbers(record: "Record") -> str:
    """Loss, gap to its bound and validation error of an epoch, as far as it has them."""
    numbers = f"loss {record.train_loss:.4f}"
    if record.gap is not None:
        numbers += f"  gap {record.gap:.3f}"
    if record.val_error is not None:
        numbers += f"  val {record.val_error:.4g}"
    return numbers


def print_scores(folder: Path) -> None:
    """The scores of a finished run, or of an evaluation, in words."""
    from rnc.metrics import score_words
    from rnc.run.folder import RunFolder

    table = RichTable("score", "value")
    for name, value in RunFolder(folder).scores.get("test", {}).items():
        table.add_row(score_words(name), f"{value:.4g}")
    Console().print(table)


def print_answer(folder: Path, run: Path | None = None) -> None:
    """What to tell first about a run, or an evaluation of it, as the last thing on the screen."""
    from rnc.run.answer import answer
    from rnc.run.folder import RunFolder

    run = run or folder
    told = answer(RunFolder(folder).scores, RunFolder(run).config, str(run))
    plain = Console(soft_wrap=True, highlight=False)
    for sentence in (*told.details, told.headline):
        plain.print(sentence, markup=False)
