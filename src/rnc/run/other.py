"""Evaluate a finished run on other labelled data, into a folder that a report can show.

The folder is like that of a run, but without a model. Its config.json names the evaluated run and
the data; history.csv and train_targets.safetensors are copied from the run.
"""

import dataclasses
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rnc.analyses.standard import finish_folder
from rnc.data.errors import DataError, first_few
from rnc.data.opened import OpenedData, open_data
from rnc.data.source import DataSource
from rnc.data.sources import ARRAYS
from rnc.data.table import Table
from rnc.files import CONFIG_FILE, MODEL_FILE, contents, sweep, write_json
from rnc.lock import check_free, locked
from rnc.model import FORMAT
from rnc.run.baselines import guess_errors
from rnc.run.evaluate import evaluate_run
from rnc.run.folder import HISTORY_FILE, RUN_FILES, RUN_FOLDERS, TRAIN_TARGETS_FILE, RunFolder
from rnc.run.neighbours import with_neighbours

EVALUATION_OF = "evaluation_of"
"""Entry of config.json: the run that was evaluated."""


class OtherEvaluation(NamedTuple):
    """The folder with the scores, and notes for the user."""

    folder: Path
    notes: tuple[str, ...]


def evaluate_other(
    folder: Path,
    data: Path,
    images: Path | None = None,
    out: Path | None = None,
    *,
    target: Sequence[str] = (),
    drop_missing: bool = False,
    skip_bad: bool = False,
    overwrite: bool = False,
    command: str = "",
    weight_column: str | None = None,
) -> OtherEvaluation:
    """Evaluate a run on other data with the same columns.

    Subgroup and weight columns of the run that the data lack are left out.

    Args:
        folder: a run folder.
        data: a labelled table.
        images: the folder of its images; by default the one of the run's images.
        out: the folder for the scores; by default evaluation-NAME in the run folder, by the name of
            the data.
        target: its columns with the targets, if they have other names than in the run.
        drop_missing: leave out rows without a target, even if the run did not.
        skip_bad: leave out broken images, even if the run did not.
        overwrite: replace the evaluation in `out`.
        command: what the user typed, for the report.
        weight_column: the column with the weights of rows; by default that of the run.
    """
    run = RunFolder(folder)
    where = folder / f"evaluation-{data.stem}" if out is None else out
    _check_out(where, data, overwrite=overwrite, is_default=out is None)
    opened = _opened(run, data)
    source, missing = _source(run, data, images, target, weight_column, opened)
    source = dataclasses.replace(
        source,
        drop_missing=source.drop_missing or drop_missing,
        skip_bad=source.skip_bad or skip_bad,
    )
    config = run.model.config
    size = config.augment.get("size", 224)
    side = config.preprocessing.get("side")
    table = source.read(size, config.preprocessing, opened=opened, side=side)
    del opened  # its columns take as much memory as the table
    table = dataclasses.replace(table, target_names=run.targets)
    evaluation = evaluate_run(run.model, table, run.fit, run.train_targets)
    evaluation = with_neighbours(evaluation, run.model, table)
    if run.train_targets is not None:
        truth = table.y[table.rows("test")]
        rows = table.rows("test")
        weights = None if table.weight is None else table.weight[rows]
        guess = guess_errors(run.train_targets, truth, table.target_names, run.fit, weights=weights)
        evaluation.scores["baselines"] = {"median": guess}
    with locked(where):
        sweep(where)
        _prepare(where, run, source, command)
        finish_folder(evaluation, where)
    return OtherEvaluation(where, _notes(data, missing, table, run.source, source))


def _opened(run: RunFolder, data: Path) -> OpenedData | None:
    """The opened file, so that it is read once; None for a copy of the run's dataset."""
    fitted = dataclasses.replace(run.source, source=str(data))
    if fitted.is_copy:
        return None
    return open_data(data, run.model.config.preprocessing, fitted.decimal, progress=True)


def _source(
    run: RunFolder,
    data: Path,
    images: Path | None,
    target: Sequence[str],
    weight_column: str | None,
    opened: OpenedData | None,
) -> tuple[DataSource, list[str]]:
    """How to read the data, and the subgroup columns of the run that they lack."""
    fitted = dataclasses.replace(run.source, source=str(data))
    if opened is None:  # a copy has its own columns
        return fitted, []
    columns = list(opened.frame)
    targets = tuple(target) or fitted.target
    if len(targets) != len(run.targets) and (target or fitted.target):
        raise DataError(
            f"{run.path} predicts {len(run.targets)} targets ({', '.join(run.targets)}); got "
            f"{len(targets)} with --target: {', '.join(targets)}. Name one column for each."
        )
    lacking = [name for name in targets if name not in columns]
    if lacking and data.suffix not in ARRAYS:
        raise DataError(
            f"{data} has no column {', '.join(lacking)}; its columns: {first_few(columns, 30)}. If "
            "what the run predicts has another name there, say so with --target."
        )
    missing = [name for name in fitted.subgroup_columns if name not in columns]
    kept = tuple(name for name in fitted.subgroup_columns if name in columns)
    weight = weight_column or fitted.weight_column
    if weight not in columns and weight_column is None:
        weight = None
    return dataclasses.replace(
        fitted,
        target=targets,
        images=fitted.images if images is None else str(images),
        split_column=None,
        group_column=None,
        subgroup_columns=kept,
        weight_column=weight,
    ).for_columns(columns), missing


def _notes(
    data: Path, missing: Sequence[str], table: Table, fitted: DataSource, source: DataSource
) -> tuple[str, ...]:
    notes, weight = list(table.notes), fitted.weight_column
    if fitted.end_columns and not source.end_columns:
        absent = ", ".join(fitted.end_columns)
        notes.append(f"{data} has no column {absent}: all of its targets count as exact.")
    if missing:
        notes.append(f"{data} has no column {', '.join(missing)}: no scores by it.")
    if weight is not None and table.weight is None:
        notes.append(f"{data} has no column {weight}: all of its rows count alike.")
    if table.skipped:
        first = table.skipped[0]
        notes.append(f"{len(table.skipped)} rows skipped, such as {first.name}: {first.reason}.")
    return tuple(notes)


def _check_out(out: Path, data: Path, *, overwrite: bool, is_default: bool) -> None:
    """Raise unless the folder may take an evaluation.

    An old evaluation may be replaced with `overwrite`, and in the default folder if it is of the
    same data.
    """
    check_free(out)
    if not out.exists() or (out.is_dir() and not contents(out)):
        return
    if not out.is_dir() or not _is_evaluation(out):
        held = "a run" if (out / MODEL_FILE).exists() else "something else"
        raise FileExistsError(
            f"{out} exists and holds {held}. Choose a new folder for --out; nothing was changed."
        )
    run = RunFolder(out)
    is_same = is_default and (not run.exists or run.source.source == str(data))
    if not overwrite and not is_same:
        raise FileExistsError(
            f"{out} holds an evaluation. Add --overwrite to replace it, or choose another --out."
        )


def _is_evaluation(folder: Path) -> bool:
    """Whether a folder holds only an evaluation. Older versions wrote no config.json into it."""
    if any(path.name not in RUN_FILES + RUN_FOLDERS for path in contents(folder)):
        return False
    run = RunFolder(folder)
    return not (folder / MODEL_FILE).exists() and (not run.exists or EVALUATION_OF in run.config)


def _prepare(out: Path, run: RunFolder, source: DataSource, command: str) -> None:
    """Clear the folder, and write the files that a report needs beside the evaluation."""
    RunFolder(out).delete()
    config = run.config
    name = f"{config.get('name') or run.path.resolve().name} on {Path(source.source).stem}"
    known = {key: config[key] for key in ("model", "fit", "environment") if key in config}
    entries: dict[str, Any] = {"data": source.to_json(), "command": command, "name": name}
    content = {"format": FORMAT} | known | entries | {EVALUATION_OF: str(run.path)}
    write_json(out / CONFIG_FILE, content)
    for file in (HISTORY_FILE, TRAIN_TARGETS_FILE):
        if (run.path / file).exists():
            shutil.copyfile(run.path / file, out / file)
