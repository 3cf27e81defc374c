"""The command `rnc`: translation only. Flags become a FitConfig, records become a progress bar.

Each command imports what it needs when it runs, so that `rnc --help` answers at once.
"""

import contextlib
import dataclasses
import inspect
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_type_hints

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table as RichTable

from rnc.config import FitConfig
from rnc.distributed import is_first_process

if TYPE_CHECKING:
    from rnc.data import Table
    from rnc.model import Regressor
    from rnc.training.loop import Record

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    help="""Deep regression whose representations keep the order of the labels.

    Start with `rnc demo`, then `rnc fit table.csv --target price --out runs/price`.""",
)
console = Console(stderr=True)
Folder = Annotated[Path, typer.Argument(help="a run folder", show_default=False)]
Images = Annotated[Path | None, typer.Option(help="folder that image file names are relative to")]


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="folder for the runs and the report")] = Path(
        "runs/demo"
    ),
    seeds: Annotated[int, typer.Option(min=1, help="how many times, with different seeds")] = 3,
    epochs: Annotated[int, typer.Option(min=1, help="of both methods")] = 12,
) -> None:
    """Real digits, rotated: learn the angle with L1 and with RnC, and see the difference.

    1,797 handwritten digits, each turned by a known angle. The angle is the target; which digit
    it is plays the spurious part. Takes about two minutes on two CPU cores.
    """
    from rnc.demo import run_demo

    with _friendly(), _bar() as show:
        rows, report = run_demo(out, seeds=seeds, epochs=epochs, show=show)
    table = RichTable("method", "seed", "MAE (degrees)", "R2", "Spearman", "digit readable")
    for row in rows:
        table.add_row(*row)
    Console().print(table)
    Console().print(f"Report: {report}")


def fit(
    source: Annotated[
        Path, typer.Argument(help=".csv, .tsv, .parquet or .npz", show_default=False)
    ],
    out: Annotated[Path, typer.Option(help="folder for the run", show_default=False)],
    target: Annotated[list[str] | None, typer.Option(help="column to predict; may repeat")] = None,
    images: Images = None,
    image_column: Annotated[str, typer.Option(help="column of file names")] = "auto",
    feature_column: Annotated[
        list[str] | None, typer.Option(help="column to predict from; may repeat; default: the rest")
    ] = None,
    split_column: Annotated[
        str | None, typer.Option(help="column of train/val/test; 'none' makes a seeded split")
    ] = None,
    group_column: Annotated[
        str | None, typer.Option(help="rows that share a value stay in one split")
    ] = None,
    subgroup_column: Annotated[
        list[str] | None, typer.Option(help="column to report scores by; may repeat")
    ] = None,
    drop_missing: Annotated[bool, typer.Option(help="leave out rows without a target")] = False,
    skip_bad: Annotated[bool, typer.Option(help="leave out broken images")] = False,
    resume: Annotated[bool, typer.Option(help="continue the run in --out")] = False,
    overwrite: Annotated[bool, typer.Option(help="replace the run in --out")] = False,
    **options: Any,
) -> None:
    """Train a regressor on a table, signals or images, evaluate it and write a report.

    For instance:

        rnc fit houses.csv --target price --preset quick --out runs/houses

        rnc fit faces.csv --images faces --target age --encoder resnet18 --out runs/age

        rnc fit ecg.npz --scheme auto --preset quick --batch-size 64 --out runs/ecg

    The paper's recipe is the default: 400 epochs of the RnC loss, then a head on the frozen
    encoder. --preset quick is for a first look.
    """
    from rnc.report import write_report
    from rnc.runs import fit_run, typed_command

    with _friendly(out):
        config = FitConfig(**options)
        data = {
            "source": str(source),
            "target": target or [],
            "images": None if images is None else str(images),
            "image_column": image_column,
            "feature_columns": feature_column,
            "split_column": split_column,
            "group_column": group_column,
            "subgroup_columns": subgroup_column or [],
            "drop_missing": drop_missing,
            "skip_bad": skip_bad,
        }
        table = _read(data, config)
        _describe(table)
        runs = fit_run(
            table,
            config,
            out,
            data=data,
            command=typed_command(),
            resume=resume,
            overwrite=overwrite,
        )
        with _bar() as show:
            for record in runs:
                show(record)
        if is_first_process():
            _print_scores(out)
            Console().print(f"Report: {write_report([out])}")


@app.command()
def predict(
    run: Folder,
    source: Annotated[
        Path, typer.Argument(help="image, folder, .csv, .tsv, .parquet or .npz", show_default=False)
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="CSV file to write")] = Path(
        "predictions.csv"
    ),
    images: Images = None,
    skip_bad: Annotated[bool, typer.Option(help="leave out broken images")] = False,
) -> None:
    """Predict with a finished run: files, a folder, a table or an array."""
    import pandas as pd  # type: ignore[import-untyped]

    from rnc.data import read_inputs
    from rnc.files import write_text
    from rnc.model import Regressor

    with _friendly():
        model = Regressor.load(run)
        side = _stored_side(model)
        inputs = read_inputs(
            source,
            model.config.preprocessing,
            model.config.kind,
            images=images,
            image_size=side,
            skip_bad=skip_bad,
            progress=True,
        )
        predictions = pd.DataFrame(model.predict(inputs.x), columns=list(model.config.target_names))
        predictions.insert(0, "name", inputs.names)
        write_text(output, predictions.to_csv(index=False))
        for skipped in inputs.skipped:
            console.print(f"skipped {skipped.name}: {skipped.reason}", markup=False)
        Console().print(f"{len(predictions)} predictions in {output}", markup=False)


@app.command()
def evaluate(
    run: Folder,
    data: Annotated[Path | None, typer.Option(help="other labelled data of the same kind")] = None,
    images: Images = None,
    out: Annotated[Path | None, typer.Option(help="folder for the scores of --data")] = None,
    analyses: Annotated[
        list[str] | None,
        typer.Option(
            "--with",
            metavar="NAME",
            help="analysis to add; may repeat: map, similarity, subgroups, targets, order, "
            "readable, unseen, corruption, reduced, transfer; all: those that do not train",
        ),
    ] = None,
    map_method: Annotated[
        str | None, typer.Option(help="pca, tsne or umap (extra: umap, the default if installed)")
    ] = None,
    corruption_samples: Annotated[int, typer.Option(help="most images to corrupt")] = 2000,
    seen: Annotated[
        list[str] | None,
        typer.Option(metavar="LOW:HIGH", help="range of the target seen in training; may repeat"),
    ] = None,
    share: Annotated[
        list[float] | None,
        typer.Option(help="share of the training rows for reduced; may repeat; 1 to 1/8"),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="trainings of reduced per share")] = 1,
    target: Annotated[
        list[str] | None, typer.Option(help="target in --data of transfer, if it has another name")
    ] = None,
) -> None:
    """Show the scores of a run, evaluate it on other data, or analyse it.

    For instance:

        rnc evaluate runs/age --data other.csv

        rnc evaluate runs/age --with all

        rnc evaluate runs/age --with unseen --seen 20:40 --seen 60:80

        rnc evaluate runs/age --with map --map-method tsne --with corruption

        rnc evaluate runs/age --with transfer --data other.csv --images others

    An analysis is written to analyses/ in the run folder, and `rnc report` shows it.
    """
    from rnc.evaluation.breakdown import parse_range
    from rnc.evaluation.command import evaluate_other, run_analyses
    from rnc.evaluation.folder import SHARES, Options

    with _friendly():
        if not analyses:
            _print_scores(run if data is None else evaluate_other(run, data, images, out))
            return
        options = Options(
            map_method=map_method,
            corruption_samples=corruption_samples,
            seen=tuple(map(parse_range, seen or [])),
            shares=tuple(share or SHARES),
            seeds=seeds,
            data=data,
            images=images,
            target=tuple(target or []),
        )
        run_analyses(run, analyses, options, console)


@app.command()
def report(
    runs: Annotated[list[Path], typer.Argument(help="one or several run folders")],
    out: Annotated[Path | None, typer.Option(help="HTML file; default: in the first run")] = None,
    figures: Annotated[
        Path | None, typer.Option(help="folder for the figures as PNG and SVG (extra: figures)")
    ] = None,
) -> None:
    """Write one self-contained report.html that shows runs side by side."""
    from rnc.report import write_figures, write_report

    with _friendly():
        Console().print(f"Report: {write_report(runs, out)}", markup=False)
        if figures is not None:
            written = write_figures(runs, figures)
            Console().print(f"{len(written)} figures in {figures}", markup=False)


@app.command()
def export(
    run: Folder,
    out: Annotated[Path | None, typer.Option(help="default: model.onnx in the run")] = None,
) -> None:
    """Write the model as ONNX and check it against PyTorch (extra: export)."""
    from rnc.export import export_onnx
    from rnc.model import Regressor

    with _friendly():
        path = out or run / "model.onnx"
        export_onnx(Regressor.load(run), path)
        Console().print(f"Written and checked: {path}")


# ------------------------------------------------------------------------------------ plumbing


def _with_config(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command one flag per field of FitConfig, in place of its **options."""
    hints = get_type_hints(FitConfig, include_extras=True)
    flags = []
    for field in dataclasses.fields(FitConfig):
        kind, text = get_args(hints[field.name])
        annotation = Annotated[kind, typer.Option(help=text)]  # type: ignore[valid-type]
        flags.append(
            inspect.Parameter(
                field.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=field.default,
                annotation=annotation,
            )
        )
    own = [p for p in inspect.signature(command).parameters.values() if p.name != "options"]
    own = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own]
    command.__signature__ = inspect.Signature([*own, *flags])  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in [*own, *flags]}
    return command


app.command()(_with_config(fit))


def _read(data: dict[str, Any], config: FitConfig) -> "Table":
    from rnc.evaluation.folder import read_data

    return read_data(data, config)


def _stored_side(model: "Regressor") -> int:
    from rnc.evaluation.folder import stored_side

    return stored_side(model.config.augment.get("size", 224))


def _describe(table: "Table") -> None:
    counts = ", ".join(f"{len(table.rows(split))} {split}" for split in ("train", "val", "test"))
    shape = "x".join(map(str, table.x.shape[1:]))
    console.print(f"{table.kind} {shape}, {counts}, target {', '.join(table.target_names)}")
    if table.skipped:
        console.print(f"{len(table.skipped)} rows skipped, listed in skipped.csv")


@contextlib.contextmanager
def _bar() -> Iterator[Callable[["Record"], None]]:
    """A progress bar that records feed: loss, gap to the bound, validation error, time left."""
    progress = Progress(
        TextColumn("{task.description:<12}"),
        BarColumn(),
        TextColumn("{task.completed}/{task.total}  {task.fields[numbers]}"),
        TimeRemainingColumn(),
        console=console,
        disable=not is_first_process(),
    )
    tasks: dict[str, Any] = {}

    def show(record: "Record") -> None:
        if record.stage not in tasks or record.epoch == 1:
            tasks[record.stage] = progress.add_task(record.stage, total=record.epochs, numbers="")
        numbers = f"loss {record.train_loss:.4f}"
        if record.gap is not None:
            numbers += f"  gap {record.gap:.3f}"
        if record.val_error is not None:
            numbers += f"  val {record.val_error:.4g}"
        progress.update(tasks[record.stage], completed=record.epoch, numbers=numbers)

    with progress:
        yield show


def _print_scores(folder: Path) -> None:
    path = folder / "scores.json"
    if not path.exists():
        raise FileNotFoundError(f"{folder} has no scores.json: the run is not finished.")
    scores = json.loads(path.read_text(encoding="utf-8"))
    table = RichTable("score", "value")
    for name, value in scores.get("test", {}).items():
        table.add_row(name, f"{value:.4g}")
    Console().print(table)
    for scheme, error in sorted(scores.get("auto", {}).items(), key=lambda item: item[1]):
        Console().print(f"{scheme}: validation error {error:.4g}")


@contextlib.contextmanager
def _friendly(out: Path | None = None) -> Iterator[None]:
    """Expected errors as one clear line, and how to go on after Ctrl-C."""
    try:
        yield
    except KeyboardInterrupt:
        if out is not None:
            console.print(f"\nStopped. Continue with the same command and --resume ({out}).")
        raise typer.Exit(130) from None
    except (ValueError, OSError, RuntimeError, FloatingPointError, ImportError) as error:
        console.print(f"rnc: {error}", markup=False, style="red")
        raise typer.Exit(2) from None


def main() -> None:
    """Entry point of the command `rnc`."""
    app(prog_name="rnc")


if __name__ == "__main__":
    main()
