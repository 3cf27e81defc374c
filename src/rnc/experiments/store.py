"""Runs by what they are: a job finds its run, and its encoder, by data and configuration.

    OUT/runs/<key>/        a run folder, as `rnc fit` leaves it
    OUT/encoders/<key>/    an encoder that several runs start from

A key is a hash of the data and of every field of the config that matters: for an encoder, those
that its training looks at, so that all heads share it. A run with scores.json is finished and is
never trained again; one that was interrupted continues where its last checkpoint is.
"""

import csv
import dataclasses
import json
import shutil
from collections.abc import Callable, Iterable, Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from rnc.config import SPEED_ONLY, FitConfig
from rnc.data.digest import table_digest
from rnc.data.source import DataSource
from rnc.experiments.plan import BINS, HEAD_STAGE, Job, canonical
from rnc.files import read_tensors, write_json, write_tensors
from rnc.model import without_head
from rnc.run.fit import fit_run
from rnc.training.checkpoint import ENCODER_FILE, read_stage
from rnc.training.loop import RECORD_FIELDS, Record
from rnc.training.recipes import build_regressor, train

Show = Callable[[Record], None]

NOT_ENCODER = (
    "head_options",
    "scheme",
    "head",
    "rnc_weight",
    "regularizer",
    "regularizer_weight",
    "lds",
    *HEAD_STAGE,
)
"""Fields that the training of an encoder by an objective does not look at."""


def run_key(job: Job) -> str:
    """What identifies the run of a job."""
    fields = {k: v for k, v in job.config.to_json().items() if k not in SPEED_ONLY}
    start = None if job.start is None else source_key(job.start)
    return _hash({"data": table_digest(job.table), "fit": fields, "start": start})


def encoder_key(job: Job) -> str:
    """What identifies the encoder that an objective trains for a job."""
    bins = () if job.config.objective == "supcon" else BINS  # whose classes are bins
    left_out = (*SPEED_ONLY, *NOT_ENCODER, *bins)
    fields = {k: v for k, v in job.config.to_json().items() if k not in left_out}
    return _hash({"data": table_digest(job.table), "encoder": fields})


def source_key(job: Job) -> str:
    """What identifies the encoder that another job starts from."""
    return encoder_key(job) if trains_encoder(job) else run_key(job)


def trains_encoder(job: Job) -> bool:
    """Whether a job has an encoder trained by an objective, which others can share."""
    return job.config.scheme in ("probe", "finetune") and job.start is None


def end2end_of(job: Job) -> Job:
    """The first stage of scheme two-stage as a job of its own."""
    config = dataclasses.replace(job.config, scheme="end2end")
    return Job(job.table, canonical(config, job.table))


def _hash(content: Mapping[str, Any]) -> str:
    text = json.dumps(content, sort_keys=True)
    return blake2b(text.encode(), digest_size=8).hexdigest()


# ------------------------------------------------------------------------------------- the store


class _Stage(NamedTuple):
    """A finished first stage of a run."""

    name: str
    weights: dict[str, Tensor]
    records: list[dict[str, Any]]
    whole: bool
    """Whether the head belongs to it."""


class Store:
    """The runs and encoders below a folder."""

    def __init__(self, out: Path, source: DataSource | None = None) -> None:
        self.out, self.source = out, source

    def folder(self, job: Job) -> Path:
        """The run folder of a job."""
        return self.out / "runs" / run_key(job)

    def is_finished(self, job: Job) -> bool:
        """Whether the run of a job is there, trained and evaluated."""
        return (self.folder(job) / "scores.json").exists()

    def has_encoder(self, job: Job) -> bool:
        """Whether the encoder that a job shares with others is trained."""
        return self._encoder_file(job).exists()

    def finish(self, job: Job, show: Show, *, name: str | None = None) -> Path:
        """The run folder of a job, trained now unless it was before.

        Args:
            job: what to train.
            show: takes a record for every epoch that is trained now.
            name: of the run in reports.
        """
        folder = self.folder(job)
        if self.is_finished(job):
            return folder
        stage = self._first_stage(job, show)
        if stage is not None:
            self._place(job, stage)
        if not (folder / "config.json").exists():
            build_regressor(job.table, job.config).save_config(
                folder, {"fit": job.config.to_json()}
            )
        before = 0 if stage is None else len(stage.records)
        runs = fit_run(job.table, job.config, folder, data=self.source, name=name, resume=True)
        for i, record in enumerate(runs):
            if i >= before:
                show(record)
        shutil.rmtree(folder / "checkpoint", ignore_errors=True)  # model.safetensors has it all
        return folder

    def _first_stage(self, job: Job, show: Show) -> _Stage | None:
        if job.start is not None:
            return _Stage("encoder", self._weights(job.start, show), [], whole=False)
        if trains_encoder(job):
            weights, records = self._encoder(job, show)
            return _Stage("encoder", weights, records, whole=False)
        if job.config.scheme == "two-stage":
            folder = self.finish(end2end_of(job), show)
            weights, _ = read_tensors(folder / "model.safetensors")
            return _Stage("end2end", weights, read_history(folder), whole=True)
        return None

    def _weights(self, job: Job, show: Show) -> dict[str, Tensor]:
        """The weights of a job that another starts from."""
        if trains_encoder(job):
            return self._encoder(job, show)[0]
        return read_tensors(self.finish(job, show) / "model.safetensors")[0]

    def _place(self, job: Job, stage: _Stage) -> None:
        """Give a run a first stage that is done: its weights, with a head of the run's own."""
        path = self.folder(job) / "checkpoint" / f"{stage.name}.safetensors"
        if path.exists():
            return
        learned = stage.weights if stage.whole else without_head(stage.weights)
        model = build_regressor(job.table, job.config)
        write_tensors(path, model.state_dict() | learned, stage.records)

    def _encoder_file(self, job: Job) -> Path:
        folder = self.out / "encoders" / encoder_key(job)
        return folder / ENCODER_FILE

    def _encoder(self, job: Job, show: Show) -> tuple[dict[str, Tensor], list[dict[str, Any]]]:
        """The encoder of a job and its records, trained now unless it was before."""
        path = self._encoder_file(job)
        if not path.exists():
            config = encoder_only(job.config)
            write_json(path.parent.parent / "config.json", {"fit": config.to_json()})
            model = build_regressor(job.table, config)
            for record in train(model, job.table, config, path.parent.parent):
                show(record)
            for name in ("last", "head"):
                (path.parent / f"{name}.safetensors").unlink(missing_ok=True)
        weights, records = read_stage(path)
        return weights, records


def encoder_only(config: FitConfig) -> FitConfig:
    """The config that trains the encoder and leaves the head as it is."""
    return dataclasses.replace(
        config, scheme="probe", head="l1", head_solver="sgd", head_epochs=0, lds=False
    )


def read_history(folder: Path) -> list[dict[str, Any]]:
    """The records of a run, as `Record` takes them."""
    text = (folder / "history.csv").read_text(encoding="utf-8")
    return [_record(row) for row in csv.DictReader(text.splitlines())]


def _record(row: Mapping[str, str]) -> dict[str, Any]:
    values: dict[str, Any] = {"stage": row["stage"]}
    for name in RECORD_FIELDS[1:]:
        kind = int if name in ("epoch", "epochs") else float
        values[name] = kind(row[name]) if row[name] else None
    return values


# -------------------------------------------------------------------------------------- the cost


class Cost(NamedTuple):
    """What is left to do."""

    runs: int
    finished: int
    encoders: int
    epochs: int
    work: float
    """Views of samples, over all epochs."""

    def __str__(self) -> str:
        done = f", {self.finished} of them finished before" if self.finished else ""
        many = f"{self.encoders} encoder{'s' * (self.encoders != 1)}"
        return f"{self.runs} runs{done}; left to train: {many} and {self.epochs} epochs in all"


def cost_of(jobs: Iterable[Job], store: Store) -> Cost:
    """What jobs cost that are not done yet; what they share counts once."""
    runs: dict[str, Job] = {}
    encoders: dict[str, Job] = {}
    for job in jobs:
        _add(job, runs, encoders)
    left = [job for job in runs.values() if not store.is_finished(job)]
    needed = {encoder_key(one) for job in left for one in (job, job.start) if one is not None}
    missing = [job for key, job in encoders.items() if key in needed and not store.has_encoder(job)]
    epochs = [_last_stage(job) for job in left] + [_encoder_stage(job) for job in missing]
    return Cost(
        len(runs),
        len(runs) - len(left),
        len(missing),
        sum(count for count, _ in epochs),
        sum(count * size for count, size in epochs),
    )


def _add(job: Job, runs: dict[str, Job], encoders: dict[str, Job]) -> None:
    runs[run_key(job)] = job
    if trains_encoder(job):
        encoders[encoder_key(job)] = job
    if job.config.scheme == "two-stage":
        _add(end2end_of(job), runs, encoders)
    if job.start is not None and trains_encoder(job.start):
        encoders[encoder_key(job.start)] = job.start
    elif job.start is not None:
        _add(job.start, runs, encoders)


def epoch_size(job: Job, stage: str) -> float:
    """Views of samples in an epoch of a job, by the name of its stage."""
    trained = job if job.start is None else job.start
    views = trained.config.views if stage in ("encoder", "regularize") else 1
    return len(trained.table.rows("train")) * max(1, views)


def _last_stage(job: Job) -> tuple[int, float]:
    """Epochs of the stage that belongs to a run alone, and views in each."""
    config, rows = job.config, len(job.table.rows("train"))
    assert config.epochs is not None
    if config.scheme in ("end2end", "regularize"):
        views = 1 if config.scheme == "end2end" else max(1, config.views)
        return config.epochs, rows * views
    assert config.head_epochs is not None
    exact = config.head_solver == "exact" and config.scheme != "finetune"
    return (1 if exact else config.head_epochs), rows


def _encoder_stage(job: Job) -> tuple[int, float]:
    assert job.config.epochs is not None
    return job.config.epochs, len(job.table.rows("train")) * max(1, job.config.views)
