"""A run from labelled data to a finished folder: train, evaluate, save.

`fit_run` yields a record per epoch, for whoever shows them; `fit` runs it to its end. What the
folder holds, and when each file is written, is in `rnc.run.folder`. The test split is looked at
once, after training.
"""

import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import rnc
from rnc.analyses.standard import write_standard_analyses
from rnc.config import SPEED_ONLY, FitConfig
from rnc.data.inputs import essential
from rnc.data.source import DataSource
from rnc.data.table import Table
from rnc.files import read_tensors, sweep
from rnc.loss.distributed import is_first_process
from rnc.methods.objective import PairLoss
from rnc.model import MODEL_FILE, ModelConfig, Regressor, read_config, without_head
from rnc.run.baselines import baselines
from rnc.run.enough import kept_scheme, training_length
from rnc.run.evaluate import evaluate_run
from rnc.run.folder import RunFolder, write_evaluation
from rnc.training.checkpoint import ENCODER_FILE, read_stage
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
) -> RunFolder:
    """Train on a table, evaluate, and return the finished run folder.

    Args:
        table: labelled, split data.
        config: how to train.
        out: the run folder; must be new or empty unless it is resumed or overwritten.
        data: how the table was read, for config.json, so that `rnc evaluate` can read it again.
        name: of the run in reports; by default the folder's.
        resume: continue the run in `out`, which must have the same config.
        overwrite: delete the run in `out` first.
        encoder: a module of the caller's own.
        encoder_from: a run whose encoder is taken as it is instead of training one.
        objective: of the caller's own, instead of config.objective: features (n, v, d) and targets
            (n, t), of all processes, -> the number to minimise.
        show: takes the record of every epoch.
    """
    for record in fit_run(
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
    ):
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
    """`fit` step by step: one Record per epoch; the run folder is finished after the last.

    Beside the arguments of `fit` there are `command`, what the user typed, for the report;
    `encoder_weights`, an encoder to take as `train` does, which a resumed run needs again; and
    `encoder_records` of the epochs that trained it, for history.csv: they are not yielded; and
    `boosting`, whether to train scikit-learn's beside a table, to compare with.
    """
    if objective is not None:
        config = replace(config, objective="own")
    run, is_first = RunFolder(out), is_first_process()
    model = build_regressor(table, config, encoder)
    if resume:
        model.use_augment(run.config["model"]["augment"])  # older versions had other defaults
        encoder_from = _same_source(run, encoder_from)
    if encoder_from is not None and not (resume and (out / ENCODER_FILE).exists()):
        encoder_weights = read_encoder(encoder_from, model, config)
    check_training(model, table, config, objective, encoder_weights)
    entries = {
        "fit": config.to_json(),
        "data": {} if data is None else data.to_json(),
        "command": command,
        "environment": environment(),
        **({} if name is None else {"name": name}),
        **({} if encoder_from is None else {"encoder_from": str(encoder_from)}),
    }
    if is_first:
        prepare_folder(out, config, resume=resume, overwrite=overwrite)
        for folder in (out, (out / ENCODER_FILE).parent):
            sweep(folder)
        if not resume:
            model.save_config(out, entries)
            run.write_skipped(table.skipped)
        run.write_train_targets(table.y[table.rows("train")])
    records = list(encoder_records)
    for record in train(model, table, config, out, own=objective, encoder_weights=encoder_weights):
        records.append(record)
        if is_first:
            run.write_history(records)
        yield record
    if is_first:
        model.save(out, entries)
        PULSE.now = Step("evaluating")
        evaluation = evaluate_run(model, table, config)
        evaluation.scores.update(_validation(records, config))
        kept, rows = evaluation.scores.get("kept"), len(table.rows("train"))
        evaluation.scores["training"] = training_length(records, config, rows, kept)
        evaluation.scores["baselines"] = baselines(table, config, boosting=boosting)
        write_evaluation(evaluation, out)
        write_standard_analyses(RunFolder(out))


def read_encoder(folder: Path, model: Regressor, config: FitConfig) -> dict[str, Tensor]:
    """The weights of the encoder of another run; raises if it does not fit."""
    if config.scheme not in ("probe", "finetune"):
        raise ValueError(
            "--encoder-from takes the place of training an encoder before a head, which scheme "
            f"{config.scheme} does not do. Use --scheme probe or finetune."
        )
    theirs, ours = ModelConfig(**read_config(folder)["model"]), model.config
    for what in ("kind", "encoder", "input_shape", "preprocessing"):
        a, b = getattr(theirs, what), getattr(ours, what)
        if what == "preprocessing":
            a, b = essential(a, theirs.kind), essential(b, ours.kind)
        if a != b:
            shown = "" if what == "preprocessing" else f": {a} there, {b} here"
            raise ValueError(
                f"The encoder of {folder} does not fit these data: another {what}{shown}. Use the "
                "same columns, --encoder and --image-size, or train an encoder."
            )
    finished, stage = folder / MODEL_FILE, folder / ENCODER_FILE
    if not stage.exists() and not finished.exists():
        raise FileNotFoundError(
            f"{folder} has no trained encoder yet. Finish that run first: the command that "
            "started it and --resume."
        )
    weights, _ = read_tensors(finished) if finished.exists() else read_stage(stage)
    return without_head(weights)


def _same_source(run: RunFolder, encoder_from: Path | None) -> Path | None:
    """The run that a resumed run took its encoder from; raises if another one is given now."""
    before = run.config.get("encoder_from")
    if encoder_from is not None and before != str(encoder_from):
        raise ValueError(
            f"{run.path} was started with {'its own encoder' if before is None else before} and "
            f"not with --encoder-from {encoder_from}. Leave that out to resume it, or use another "
            "--out."
        )
    return None if before is None else Path(before)


def _validation(records: Sequence[Record], config: FitConfig) -> dict[str, Any]:
    """The best validation error of the run; with scheme auto that of each, and which was kept."""
    best: dict[str, float] = {}
    last = records[-1].stage if records else ""
    for record in records:
        if record.stage == "encoder" or (config.scheme != "auto" and record.stage != last):
            continue  # the first of two stages: its head is not the one that stays
        if record.val_error is not None:
            scheme = record.stage.split("/")[0]
            best[scheme] = min(record.val_error, best.get(scheme, float("inf")))
    if not best:
        return {}
    auto = {"auto": best, "kept": kept_scheme(best)} if config.scheme == "auto" else {}
    return {"validation_error": min(best.values()), **auto}


def prepare_folder(out: Path, config: FitConfig, *, resume: bool, overwrite: bool) -> None:
    """Raise unless the folder may take this run; nothing but an old run is ever deleted."""
    if resume:
        # A field that the run's version did not have yet was as it is by default.
        before = RunFolder(out).fit.to_json()
        changed = {
            name: (before[name], value)
            for name, value in config.to_json().items()
            if before[name] != value and name not in SPEED_ONLY
        }
        if changed:
            listed = "; ".join(f"{name}: {a!r} then, {b!r} now" for name, (a, b) in changed.items())
            raise ValueError(
                f"{out} was started with other options ({listed}). Use the same ones to resume it, "
                "or another --out."
            )
        return
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return
    if not RunFolder(out).exists:
        raise FileExistsError(
            f"{out} exists and holds no run. Choose a new folder for --out; nothing was changed."
        )
    if not overwrite:
        raise FileExistsError(
            f"{out} holds a run. Add --resume to continue it, --overwrite to replace it, or choose "
            "another --out."
        )
    RunFolder(out).delete()


def environment() -> dict[str, str]:
    """What the numbers of a run depend on besides its config."""
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "none"
    return {
        "rank-n-contrast": rnc.__version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "gpu": gpu,
        "platform": f"{platform.system()} {platform.machine()}",
    }
