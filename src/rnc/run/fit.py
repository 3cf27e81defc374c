"""A run from labelled data to a finished folder: train, evaluate, save.

`fit_run` yields a record per epoch, for progress bars and trackers; `fit` runs it to its end.
`rnc.run.folder` lists the files of the folder. The test split is used only once, after training.
"""

import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import rnc
from rnc.analyses.standard import finish_folder
from rnc.config import FitConfig
from rnc.data.source import DataSource
from rnc.data.table import Table
from rnc.files import sweep
from rnc.lock import locked
from rnc.loss.distributed import is_first_process
from rnc.methods.objective import PairLoss
from rnc.model import Regressor, read_config
from rnc.model.intervals import calibrate
from rnc.run.baselines import baselines
from rnc.run.enough import kept_scheme, training_length
from rnc.run.evaluate import evaluate_run
from rnc.run.folder import RUN_FOLDERS, RunFolder
from rnc.run.from_weights import check_same_weights, weight_entries
from rnc.run.neighbours import with_neighbours
from rnc.run.reference import reference_of
from rnc.run.resume import as_started, check_same_data, filled_in
from rnc.run.start import check_before_data as check_before_data
from rnc.run.start import check_evaluation, prepare_folder, read_encoder, same_source
from rnc.trackers.records import SayTracker, log_tracker, tracked
from rnc.trackers.registry import check_trackers
from rnc.training.balance import chosen_oversample
from rnc.training.checkpoint import ENCODER_FILE
from rnc.training.recipes import build_regressor, check_training, train
from rnc.training.record import PULSE, Record, ShowRecord, Step


def fit(
    table: Table,
    config: FitConfig,
    out: Path | str,
    *,
    data: DataSource | None = None,
    name: str | None = None,
    resume: bool = False,
    overwrite: bool = False,
    encoder: torch.nn.Module | None = None,
    encoder_from: Path | None = None,
    objective: PairLoss | None = None,
    show: ShowRecord = lambda record: None,
    track: Sequence[str] = (),
) -> RunFolder:
    """Train on a table, evaluate, and return the finished run folder.

    Args:
        table: labelled, split data.
        config: how to train.
        out: the run folder; must be new or empty unless it is resumed or overwritten.
        data: how the table was read, for config.json, so that `rnc evaluate` can read it again.
        name: the name of the run in reports; by default that of the folder.
        resume: continue the run in `out`. Its config must be the same, apart from options that only
            change speed and the numbers of epochs, which may grow.
        overwrite: delete the run in `out` first.
        encoder: a module to use instead of an encoder by name.
        encoder_from: a run whose trained encoder is used instead of training one.
        objective: a function to use instead of config.objective: features (n, v, d) and targets
            (n, t) of all processes -> the loss.
        show: called with the record of every epoch.
        track: names of trackers that get the records, too.
    """
    check_trackers(track)
    records = fit_run(
        table,
        config,
        Path(out),
        data=data,
        name=name,
        resume=resume,
        overwrite=overwrite,
        encoder=encoder,
        encoder_from=encoder_from,
        objective=objective,
    )
    for record in tracked(records, Path(out), track, resume=resume):
        show(record)
    return RunFolder(Path(out), table, encoder)


def fit_run(
    table: Table,
    config: FitConfig,
    out: Path,
    *,
    data: DataSource | None = None,
    command: str = "",
    name: str | None = None,
    resume: bool = False,
    overwrite: bool = False,
    encoder: torch.nn.Module | None = None,
    encoder_from: Path | None = None,
    encoder_weights: Mapping[str, Tensor] | None = None,
    encoder_records: Sequence[Record] = (),
    objective: PairLoss | None = None,
    boosting: bool = True,
) -> Iterator[Record]:
    """`fit` as a generator of one Record per epoch. The run folder is finished after the last.

    It has these arguments beside those of `fit`. `command` is what the user typed, for the report.
    `encoder_weights` are those of a trained encoder, as `train` takes them; a resumed run needs
    them again. `encoder_records` are the epochs that trained this encoder: they are written to
    history.csv, but not yielded. `boosting` says whether to compare with scikit-learn's gradient
    boosting, on tables.
    """
    if objective is not None:
        config = replace(config, objective="own")
    check_evaluation(table, config)
    run, is_first, asked = RunFolder(out), is_first_process(), config
    if resume:
        check_same_data(run, table)
        config = as_started(run, config, table)
    model = build_regressor(table, config, encoder)
    if resume:
        model.use_augment(run.config["model"]["augment"])  # older versions had other defaults
        encoder_from = same_source(run, encoder_from)
    if encoder_from is not None and not (resume and (out / ENCODER_FILE).exists()):
        encoder_weights = read_encoder(encoder_from, model, config)
    check_training(model, table, config, objective, encoder_weights)
    entries = {
        "fit": asked.to_json(),
        **filled_in(config, table, run if resume else None),
        "data": {} if data is None else data.to_json(),
        "command": command,
        "environment": environment(),
        "fingerprint": table.fingerprint,
        **({} if name is None else {"name": name}),
        **({} if encoder_from is None else {"encoder_from": str(encoder_from)}),
        **weight_entries(config, model),
    }
    if resume:
        check_same_weights(run, entries)
    with locked(out):
        if is_first:
            is_changed = prepare_folder(out, asked, resume=resume, overwrite=overwrite)
            _begin(run, model, table, entries if is_changed else None, resume=resume)
        records = list(encoder_records)
        config = _with_oversample(config, table)
        for record in train(
            model, table, config, out, own=objective, encoder_weights=encoder_weights
        ):
            records.append(record)
            if is_first:
                run.write_history(records)
            yield record
        if is_first:
            model.reference = reference_of(model, table)
            model.save(out, entries)
            PULSE.now = Step("evaluating")
            _calibrate(model, table, config, out)
            evaluation = evaluate_run(model, table, config)
            evaluation = with_neighbours(evaluation, model, table)
            evaluation.scores.update(_training_scores(records, config, table))
            evaluation.scores["baselines"] = baselines(table, config, boosting=boosting)
            finish_folder(evaluation, out)


def _with_oversample(config: FitConfig, table: Table) -> FitConfig:
    """The config with an oversampling exponent. If it has none, the targets choose it."""
    resolved = config.resolve(table.sizes, table.kind)
    return replace(config, oversample=chosen_oversample(resolved, table))


def _calibrate(model: Regressor, table: Table, config: FitConfig, out: Path) -> None:
    """Give the model the calibration rows that intervals need, and write them."""
    model.calibration = calibrate(model, table, period=config.period)
    if model.calibration is not None:
        model.calibration.write(out)


def _begin(
    run: RunFolder, model: Regressor, table: Table, entries: dict[str, Any] | None, *, resume: bool
) -> None:
    """Write the files of a run folder before training. Without entries, config.json stays."""
    for folder in (run.path, *(run.path / name for name in RUN_FOLDERS)):
        sweep(folder)
    if entries is not None:
        model.save_config(run.path, entries)
    if not resume:
        run.write_skipped(table.skipped)
    run.write_train_targets(table.y[table.rows("train")])


def resume_run(
    folder: Path | str,
    *,
    epochs: int | None = None,
    head_epochs: int | None = None,
    say: SayTracker = log_tracker,
) -> Iterator[Record]:
    """Continue a run of `rnc fit` from its folder alone: a generator of one Record per epoch.

    Epochs that were trained before are yielded, too, but the run's trackers only get the new ones.
    With more `epochs` than before, training goes on from the last checkpoint. From there, the
    learning rate follows the cosine of the new length.

    Args:
        folder: the run, finished or not.
        epochs: total epochs of the encoder, or of end-to-end training; by default as before.
        head_epochs: total epochs of fine-tuning, or of a head that is trained by gradient steps; by
            default as before.
        say: called with a line of text if a tracker fails.
    """
    run = RunFolder(Path(folder))
    config, content = run.fit, read_config(run.path, complete=True)
    if config.objective == "own" or content["model"]["encoder"] == "own":
        raise ValueError(
            f"{folder} was trained with an encoder or an objective of Python code, which the "
            "folder does not hold. Go on from there: rnc.fit(..., resume=True), with the same "
            "arguments."
        )
    config = replace(config, epochs=config.epochs if epochs is None else epochs)
    if head_epochs is not None:
        config = replace(config, head_epochs=head_epochs)
    check_before_data(config, run.path, resume=True)
    records = fit_run(
        run.read_table(),
        config,
        run.path,
        data=run.source,
        command=content.get("command", ""),
        name=content.get("name"),
        resume=True,
    )
    yield from tracked(records, run.path, resume=True, say=say)


def _training_scores(records: Sequence[Record], config: FitConfig, table: Table) -> dict[str, Any]:
    """Entries of scores.json about the training: validation errors, and if it was long enough."""
    scores, resolved = _validation(records, config), config.resolve(table.sizes, table.kind)
    if config.oversample:
        scores["oversample"] = config.oversample
    return scores | {
        "training": training_length(records, resolved, table.sizes, scores.get("kept"))
    }


def _validation(records: Sequence[Record], config: FitConfig) -> dict[str, Any]:
    """The validation error of the kept weights; with scheme auto also that of each scheme.

    If the kept weights have a solved head, the penalty and balance that validation chose, too.
    """
    best: dict[str, Record] = {}
    errors: dict[str, float] = {}
    last = records[-1].stage if records else ""
    for record in records:
        if record.stage == "encoder" or (config.scheme != "auto" and record.stage != last):
            continue  # an earlier stage, whose head is not kept
        if record.val_error is not None:
            scheme = record.stage.split("/")[0]
            stays = config.finetune_keep == "last" and record.stage == "finetune"
            if scheme not in best or stays or record.val_error < errors[scheme]:
                best[scheme], errors[scheme] = record, record.val_error
    if not best:
        return {}
    kept = kept_scheme(errors)
    auto = {"auto": errors, "kept": kept} if config.scheme == "auto" else {}
    return {"validation_error": min(errors.values()), **auto, **_solved_head(best[kept])}


def _solved_head(record: Record) -> dict[str, Any]:
    if record.penalty is None:
        return {}
    return {"head": {"penalty": record.penalty, "balance": record.balance}}


def environment() -> dict[str, str]:
    """Versions and hardware, on which the numbers of a run depend besides its config."""
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "none"
    return {
        "rank-n-contrast": rnc.__version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "gpu": gpu,
        "platform": f"{platform.system()} {platform.machine()}",
    }
