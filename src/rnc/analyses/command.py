"""What `rnc evaluate` does, beside its flags: scores on other data, and analyses with progress."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from rnc.analyses.analysis import AnalysisOptions
from rnc.analyses.registry import ALL, analyse, choose
from rnc.run.evaluate import evaluate_run
from rnc.run.folder import DoesNotApply, RunFolder, write_evaluation


def evaluate_other(
    folder: Path, data: Path, images: Path | None = None, out: Path | None = None
) -> Path:
    """Evaluate a run on other data with the same columns; the folder of its scores.

    Args:
        folder: a run folder.
        data: a labelled table.
        images: the folder of its images; by default that of the run's.
        out: where the scores go; by default into the run folder, by the name of the data.
    """
    run = RunFolder(folder)
    source = dataclasses.replace(
        run.source,
        source=str(data),
        images=run.source.images if images is None else str(images),
        split_column=None,
        group_column=None,
    )
    model = run.model.config
    table = source.read(model.augment.get("size", 224), model.preprocessing)
    evaluation = evaluate_run(run.model, table, run.fit, run.train_targets)
    out = out or folder / f"evaluation-{data.stem}"
    write_evaluation(evaluation, out)
    return out


def run_analyses(
    folder: Path, names: Sequence[str], options: AnalysisOptions, console: Console
) -> list[Path]:
    """Do analyses by name, with a progress bar; the files they are in.

    What "all" adds and does not apply to the run is left out, and the reason printed.

    Args:
        folder: a run folder.
        names: of `rnc.analyses.registry.ANALYSES`, or "all".
        options: for all of them.
        console: to print on.
    """
    chosen, run, paths = choose(names), RunFolder(folder), []
    if options.data is not None and "transfer" not in chosen:
        raise ValueError(
            "--data with --with is the table to transfer to; got "
            f"{', '.join(f'--with {name}' for name in names)}. Add --with transfer, or leave out "
            "one of the two."
        )
    for name in chosen:
        try:
            paths.append(_with_progress(run, name, options, console))
            console.print(f"{name}: {paths[-1]}", markup=False)
        except DoesNotApply as error:
            if ALL not in names or name in names:
                raise
            console.print(f"{name} left out: {error}", markup=False)
        except KeyboardInterrupt:
            console.print(f"\nStopped in {name}. Finished parts are not done again.", markup=False)
            raise
    return paths


def _with_progress(run: RunFolder, name: str, options: AnalysisOptions, console: Console) -> Path:
    bar = Progress(
        TextColumn("{task.fields[what]:<32}"),
        BarColumn(),
        TextColumn("{task.completed}/{task.total}"),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    with bar:
        task = bar.add_task(name, total=None, what=name)

        def show(done: int, total: int, what: str) -> None:
            bar.update(task, completed=done, total=total, what=f"{name}: {what}")

        return analyse(run, name, dataclasses.replace(options, show=show))
