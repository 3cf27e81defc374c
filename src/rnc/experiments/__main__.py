"""The command `rnc reproduce`: flags become data and settings, records a line."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from rnc.config import Preset
from rnc.data.datasets.registry import DATASETS
from rnc.data.source import DataSource
from rnc.experiments.data import DIGITS, Data
from rnc.experiments.results import ALL, RESULTS
from rnc.experiments.run import reproduce
from rnc.training.loop import Record

console = Console(stderr=True)


def command(
    name: Annotated[
        str, typer.Argument(help=f"{', '.join(RESULTS)}, or {ALL}", show_default=False)
    ],
    data: Annotated[
        str, typer.Option(help="digits, a dataset's name, or a .csv, .tsv, .parquet, .npz file")
    ] = DIGITS,
    root: Annotated[Path | None, typer.Option(help="folder of your copy of the dataset")] = None,
    target: Annotated[list[str] | None, typer.Option(help="column of a file to predict")] = None,
    images: Annotated[Path | None, typer.Option(help="folder of the images of a file")] = None,
    split_column: Annotated[str | None, typer.Option(help="column of train, val, test")] = None,
    group_column: Annotated[str | None, typer.Option(help="rows that stay together")] = None,
    nuisance: Annotated[
        str | None, typer.Option(help="for spurious: column that the target does not depend on")
    ] = None,
    other: Annotated[
        str | None, typer.Option(help="for transfer: a second dataset's name, or a second file")
    ] = None,
    other_root: Annotated[Path | None, typer.Option(help="folder of its copy")] = None,
    out: Annotated[Path, typer.Option(help="folder for runs and tables")] = Path("runs/paper"),
    seeds: Annotated[
        int | None, typer.Option(min=1, help="default: 3, of std 5; quick: 1, and 3")
    ] = None,
    preset: Annotated[Preset, typer.Option(help="paper: 400 epochs; quick: a look")] = "quick",
    epochs: Annotated[int | None, typer.Option(min=1, help="instead of the preset's")] = None,
    encoder: Annotated[str | None, typer.Option(help="instead of the data's own")] = None,
    image_size: Annotated[int, typer.Option(help="side of the encoder's view, in pixels")] = 224,
    batch_size: Annotated[int | None, typer.Option(help="instead of the data's own")] = None,
    lr: Annotated[float | None, typer.Option(help="learning rate of encoders")] = None,
    end2end_lr: Annotated[float | None, typer.Option(help="of end-to-end training")] = None,
) -> None:
    """Train what a table of the paper needs, and print ours beside the published numbers.

    For instance:

        rnc reproduce main

        rnc reproduce main --data agedb --root data --preset paper --out runs/agedb

        rnc reproduce all --data houses.csv --target price --nuisance town
    """
    columns: dict[str, Any] = {
        "target": tuple(target or ()),
        "images": None if images is None else str(images),
        "split_column": split_column,
        "group_column": group_column,
        "subgroup_columns": () if nuisance is None else (nuisance,),
    }
    given = {"encoder": encoder, "batch_size": batch_size, "lr": lr}
    fit: dict[str, Any] = {k: v for k, v in given.items() if v is not None}
    with _friendly(), _progress() as (show, say):
        chosen = _read(data, root, columns, image_size)
        if other is not None:
            second = chosen.table.preprocessing or None
            chosen = chosen.with_other(_read(other, other_root, columns, image_size, second))
        reproduce(
            name,
            chosen,
            out,
            seeds=seeds,
            preset=preset,
            epochs=epochs,
            fit=fit,
            end2end_lr=end2end_lr,
            show=show,
            say=say,
        )


def _read(
    data: str,
    root: Path | None,
    columns: dict[str, Any],
    image_size: int,
    preprocessing: dict[str, Any] | None = None,
) -> Data:
    if data == DIGITS:
        return Data.of_digits()
    name = data.strip().lower().replace("_", "-")
    if name in DATASETS:
        if root is None:
            raise ValueError(f"{name} is a dataset: say with --root DIR where your copy is.")
        return Data.of_dataset(name, root, image_size=image_size)
    if not Path(data).exists():
        raise ValueError(
            f"--data must be {DIGITS}, a file that is there, or one of "
            f"{', '.join(DATASETS)}; got {data!r}."
        )
    source = DataSource(data, **columns)
    table = source.read(image_size, preprocessing)
    more = {"fit": {"image_size": image_size}, "source": source}
    return Data.of_table(table, Path(data).stem, **more)


@contextlib.contextmanager
def _progress() -> Iterator[tuple[Callable[[Record], None], Callable[[str], None]]]:
    """What takes records, as a bar on a terminal; and what takes lines of text."""
    bar = Progress(
        TextColumn("{task.description:<10}"),
        BarColumn(),
        TextColumn("{task.completed}/{task.total}  loss {task.fields[loss]:.4f}"),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    with bar:
        task = bar.add_task("", total=1, loss=0.0)

        def show(record: Record) -> None:
            bar.update(
                task,
                description=record.stage,
                completed=record.epoch,
                total=record.epochs,
                loss=record.train_loss,
            )

        yield show, lambda text: print(text, flush=True)


@contextlib.contextmanager
def _friendly() -> Iterator[None]:
    """Expected errors as one clear line, and how to go on after Ctrl-C."""
    try:
        yield
    except KeyboardInterrupt:
        console.print("\nStopped. The same command goes on from here.", markup=False)
        raise typer.Exit(130) from None
    except (ValueError, OSError, RuntimeError, ImportError) as error:
        console.print(f"rnc reproduce: {error}", markup=False, style="red")
        raise typer.Exit(2) from None


def main(words: Sequence[str] | None = None, name: str = "python -m rnc.experiments") -> None:
    """Run the command.

    Args:
        words: its arguments; by default those of this process.
        name: what the user typed before them.
    """
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(command)
    app(args=words, prog_name=name)


if __name__ == "__main__":
    main()
