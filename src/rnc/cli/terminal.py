"""What commands print: progress, scores, and errors as one line."""

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table as RichTable
from rich.text import Text

from rnc.printable import on_one_line, printable

if TYPE_CHECKING:
    from rnc.analyses.analysis import ShowProgress

_EXPECTED = (ValueError, OSError, RuntimeError, FloatingPointError, ImportError)
GOES_ON = "The same command goes on from here."


class _Terminal(Console):
    """A console that escapes control characters in text and tables."""

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(printable(text), **options)


console = _Terminal(stderr=True, markup=False, emoji=False)


def stdout(**options: Any) -> Console:
    """A console for the standard output. As in `console`, brackets and colons are plain text."""
    return _Terminal(markup=False, emoji=False, **options)


def tell(text: str, style: str | None = None) -> None:
    """Print a line for the user to the standard error, apart from output for other programs."""
    console.print(on_one_line(text), highlight=False, soft_wrap=True, style=style)


def say_tracker(text: str) -> None:
    """Print a line about a tracker that failed."""
    tell(f"Note: {text}", style="yellow")


def typed_command() -> str:
    """The command line of this process, as a user would type it."""
    return " ".join(["rnc", *sys.argv[1:]])


@contextlib.contextmanager
def friendly(when_stopped: str | None = None, *, run: Path | None = None) -> Iterator[None]:
    """A context that prints expected errors as one line, and after Ctrl-C how to continue."""
    try:
        yield
    except (KeyboardInterrupt, Exception) as error:
        if _is_stop(error):
            _say_stopped(when_stopped, run)
            raise typer.Exit(130) from None
        if not isinstance(error, _EXPECTED):
            raise
        console.print(f"rnc: {error}", style="red")
        if run is not None:
            _say_what_is_kept(run)
        raise typer.Exit(2) from None


def _is_stop(error: BaseException | None) -> bool:
    """Whether an error is Ctrl-C, or was raised by a library that handled Ctrl-C."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None


def _say_stopped(when_stopped: str | None, run: Path | None) -> None:
    if run is not None:
        from rnc.run.folder import RunFolder

        when_stopped = when_stopped if RunFolder(run).exists else "No run was begun."
    if when_stopped is not None:
        console.print(f"\nStopped. {when_stopped}")


def _say_what_is_kept(run: Path) -> None:
    """After an error between training and scores, say that the trained model is kept."""
    from rnc.files import MODEL_FILE
    from rnc.run.folder import RunFolder

    if (run / MODEL_FILE).exists() and not RunFolder(run).is_finished:
        tell(f"The trained model is kept in {run}. Go on after training with: rnc resume {run}")


@contextlib.contextmanager
def steps_bar() -> Iterator["ShowProgress"]:
    """A context with one progress bar for steps of any kind. The bar disappears at the end."""
    from rnc.loss.distributed import is_first_process

    progress = Progress(
        TextColumn("{task.description:<12}", markup=False),
        BarColumn(),
        TextColumn("{task.completed}/{task.total}"),
        TimeRemainingColumn(elapsed_when_finished=True),
        console=console,
        transient=True,
        disable=not is_first_process() or not console.is_terminal,
    )

    def show(done: int, total: int, what: str) -> None:
        progress.update(task, completed=done, total=total, description=printable(what))

    with progress:
        task = progress.add_task("", total=None)
        yield show


def print_scores(folder: Path) -> None:
    """Print the scores of a finished run, or of an evaluation, as a table."""
    from rnc.metrics import SHOTS, score_words
    from rnc.run.folder import RunFolder

    table, scores = RichTable("score", "value"), RunFolder(folder).scores.get("test", {})
    one_group = sum(f"{shot}_n" in scores for shot in SHOTS) == 1  # then it holds all rows
    for name, value in scores.items():
        if value is not None and not (one_group and name.startswith(SHOTS)):
            table.add_row(score_words(name), f"{value:.4g}")
    stdout().print(table)


def print_answer(folder: Path, run: Path | None = None) -> None:
    """Print the answer about a run, or an evaluation of it. It is printed last, to stay in view."""
    from rnc.run.answer import answer
    from rnc.run.folder import RunFolder

    run = run or folder
    told = answer(RunFolder(folder).scores, RunFolder(run).config, str(run))
    plain = stdout(soft_wrap=True, highlight=False)
    for sentence in (*told.details, told.headline):
        plain.print(on_one_line(sentence))


def print_finished(run: Path) -> None:
    """Print the end of a training: scores, report, what to do next, and last the answer."""
    from rnc.heads.registry import HEADS
    from rnc.model.config import read_config
    from rnc.report import write_report

    print_scores(run)
    stdout(soft_wrap=True).print(f"Report: {write_report([run])}")
    head = HEADS.get(read_config(run)["model"]["head"]["name"])
    more = "" if head is None or head.quantiles is None else " --quantiles 0.1,0.5,0.9"
    tell(f"Predict: rnc predict {run} NEW -o predictions.csv{more}")
    print_answer(run)
