"""The store of runs and encoders: a planned run finds both by a hash of its data and config.

    OUT/runs/<key>/        a run folder, as `rnc fit` writes it
    OUT/encoders/<key>/    an encoder that several runs start from

A key is a hash of the data and of every field of the config that matters. For an encoder, these are
the fields that its training uses, so all heads share it. A run with scores.json is finished and not
trained again, unless an earlier call trained it by the caller's own objective. An interrupted run
continues from its last checkpoint.
"""

import dataclasses
import hashlib
import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from rnc.config import SPEED_ONLY, FitConfig
from rnc.config.presets import PLAIN
from rnc.data.fingerprint import check_fingerprint
from rnc.data.source import DataSource
from rnc.experiments.plan import BIN_FIELDS, BY_HEAD, HEAD_FIELDS, PlannedRun, canonical
from rnc.files import CONFIG_FILE, LOCK_FILE, MODEL_FILE, read_tensors, write_json
from rnc.lock import locked
from rnc.run.fit import fit_run
from rnc.run.folder import RunFolder
from rnc.run.parts import read_object
from rnc.trackers.records import tracked
from rnc.trackers.registry import check_trackers
from rnc.training.checkpoint import ENCODER_FILE, read_stage
from rnc.training.recipes import build_regressor, train_encoder
from rnc.training.record import Record, ShowRecord

NOT_ENCODER = (
    "head_options",
    "scheme",
    "head",
    "rnc_weight",
    "regularizer",
    "regularizer_weight",
    "lds",
    "test_views",
    "finetune_keep",
    *HEAD_FIELDS,
)
"""Fields that the training of an encoder by an objective does not use."""

Trained = tuple[Mapping[str, Tensor] | None, list[Record]]
"""The weights of an encoder, None if it is not trained yet, and the records of its epochs."""


def run_key(run: PlannedRun) -> str:
    """The key of a planned run."""
    config = run.config
    content: dict[str, Any] = {
        "data": run.table.digest,
        "fit": _key_fields(config, SPEED_ONLY),
        "start": None if run.start is None else source_key(run.start),
    }
    if config.scheme == "finetune" and config.head_views > 1:  # in addition to its encoder's views
        content["head_views"] = config.head_views
    return _hash(content if run.own is None else {**content, "own": run.own.name})


def encoder_key(run: PlannedRun) -> str:
    """The key of the encoder that an objective trains for a run."""
    config, spec = run.config, run.config.objective_spec
    bins = () if spec.uses_bins else BIN_FIELDS
    if spec.original is None:  # then `original` only changes the head
        config = dataclasses.replace(config, original=False)
    content: dict[str, Any] = {
        "data": run.table.digest,
        "encoder": _key_fields(config, (*SPEED_ONLY, *NOT_ENCODER, *bins)),
    }
    return _hash(content if run.own is None else {**content, "own": run.own.name})


def source_key(start: PlannedRun | Path) -> str:
    """The key of the encoder that a run starts from."""
    if isinstance(start, Path):
        with (start / MODEL_FILE).open("rb") as file:
            return hashlib.file_digest(file, "blake2b").hexdigest()[:16]
    return encoder_key(start) if trains_encoder(start) else run_key(start)


def trains_encoder(run: PlannedRun) -> bool:
    """Whether an objective trains an encoder for a run; other runs can share that encoder."""
    return run.config.scheme in ("probe", "finetune") and run.start is None


def end2end_of(run: PlannedRun) -> PlannedRun:
    """The first stage of scheme two-stage as a run of its own."""
    config = dataclasses.replace(run.config, scheme="end2end")
    return PlannedRun(run.table, canonical(config, run.table), fold=run.fold)


_FIRST_FIELDS = (
    "scheme objective regularizer regularizer_weight lds c_mixup mixup_alpha mixup_bandwidth "
    "projection_size prototypes original head low high step encoder pretrained preset epochs "
    "head_epochs batch_size head_batch_size accumulate clip optimizer lr weight_decay lr_decay "
    "head_lr head_solver temperature contrast_temperature label_distance similarity period "
    "positives rnc_weight image_size views crop crop_scale flip color grayscale seed"
)
"""Fields of FitConfig when keys were introduced."""
_OFF = {
    **{"erase": 0.0, "average": 0.0, "warm_up": 0, "balance": 0.0, "oversample": 0.0},
    **{"test_views": "plain", "keep": "last"},
}
"""Values of later fields in runs from before these fields, if they differ from the default."""


def _key_fields(config: FitConfig, left_out: tuple[str, ...]) -> dict[str, Any]:
    """The fields that make up a key.

    A field that was added to FitConfig later counts only if it differs from the behaviour before.
    So runs from before are still found. Views, temperature and, for runs without crops, crop_scale
    enter as numbers even if they are None in the config, as they always did.
    """
    first = _FIRST_FIELDS.split()
    later = {f.name: f.default for f in dataclasses.fields(config) if f.name not in first} | _OFF
    views = config.head_views if config.scheme in BY_HEAD else config.contrast_views
    numbers: dict[str, Any] = {"views": views, "temperature": config.method_options.temperature}
    numbers |= {} if config.crop else {"crop_scale": PLAIN["crop_scale"]}
    return {
        name: value
        for name, value in (config.to_json() | numbers).items()
        if name not in left_out and not (name in later and value == later[name])
    }


def _hash(content: Mapping[str, Any]) -> str:
    text = json.dumps(content, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def _check_data(folder: Path, run: PlannedRun) -> None:
    """Raise if the folder with the key of a run was trained on other data."""
    if (folder / CONFIG_FILE).exists():
        before = read_object(folder / CONFIG_FILE).get("fingerprint")
        advice = f"Choose another --out, or delete {folder} to train again."
        check_fingerprint(before, run.table, str(folder), advice)


# ------------------------------------------------------------------------------------- the store


class Store:
    """The runs and encoders below a folder.

    Args:
        out: the folder.
        source: where and how the data were read, for config.json of the runs.
        command: the command that the user typed, for the reports of the runs.
        known: finished runs in other folders, by their keys.
        track: names of trackers that get the records of each run.
    """

    def __init__(
        self,
        out: Path,
        source: DataSource | None = None,
        command: str = "",
        known: Mapping[str, Path] | None = None,
        track: Sequence[str] = (),
    ) -> None:
        check_trackers(track)
        self.out, self.source, self.command = out, source, command
        self.track = tuple(track)
        self.known = dict(known or {})
        self.begun: set[Path] = set()

    def folder(self, run: PlannedRun) -> Path:
        """The run folder of a planned run."""
        key = run_key(run)
        return self.known.get(key, self.out / "runs" / key)

    def is_finished(self, run: PlannedRun) -> bool:
        """Whether a planned run is trained and evaluated."""
        folder = self.folder(run)
        if not RunFolder(folder).is_finished or self._is_outdated(run, folder):
            return False
        _check_data(folder, run)
        return True

    def has_encoder(self, run: PlannedRun) -> bool:
        """Whether the encoder that a run shares with others is trained."""
        folder = self._encoder_folder(run)
        if not (folder / ENCODER_FILE).exists() or self._is_outdated(run, folder):
            return False
        _check_data(folder, run)
        return True

    def finish(self, run: PlannedRun, show: ShowRecord, *, name: str | None = None) -> Path:
        """The folder of a planned run. Trains the run if it is not finished."""
        folder = self.folder(run)
        if self.is_finished(run):
            return folder
        with locked(folder):
            self._begin(run, folder)
            self._train(run, folder, show, name)
            RunFolder(folder).delete_checkpoint()  # model.safetensors has the weights
        return folder

    def _train(self, run: PlannedRun, folder: Path, show: ShowRecord, name: str | None) -> None:
        weights, records = self._first_stage(run, show)
        resumed = RunFolder(folder).exists
        epochs = fit_run(
            run.table,
            run.config,
            folder,
            data=self._source_of(run),
            command=self.command,
            name=name,
            resume=resumed,
            encoder_weights=weights,
            encoder_records=records,
            objective=None if run.own is None else run.own.loss,
            boosting=False,  # do not train this baseline for every run
        )
        for record in tracked(epochs, folder, self.track, resume=resumed, earlier=records):
            show(record)

    def _source_of(self, run: PlannedRun) -> DataSource | None:
        """Where and how the data of a run were read."""
        if self.source is None or run.fold is None:
            return self.source
        return dataclasses.replace(self.source, fold=run.fold)

    def delete(self, run: PlannedRun, *, encoder: bool) -> None:
        """Delete the folder of a planned run, and with `encoder` also the encoder it shares."""
        shutil.rmtree(self.folder(run), ignore_errors=True)
        if encoder:
            shutil.rmtree(self._encoder_folder(run), ignore_errors=True)

    def drop_weights(self) -> None:
        """Delete encoders and models. Finished runs keep their scores, and are still finished."""
        shutil.rmtree(self.out / "encoders", ignore_errors=True)
        for path in (self.out / "runs").rglob("*.safetensors"):
            path.unlink()

    def _first_stage(self, run: PlannedRun, show: ShowRecord) -> Trained:
        """The encoder that a run starts from, and the records that its history includes."""
        if run.start is not None:
            return self._encoder_of(run.start, show)[0], []
        if trains_encoder(run):
            return self._encoder(run, show)
        if run.config.scheme == "two-stage":
            return self._encoder_of(end2end_of(run), show)
        return None, []

    def _encoder_of(self, start: PlannedRun | Path, show: ShowRecord) -> Trained:
        """The encoder of a run that another run starts from."""
        if isinstance(start, PlannedRun) and trains_encoder(start):
            return self._encoder(start, show)
        folder = start if isinstance(start, Path) else self.finish(start, show)
        return read_tensors(folder / MODEL_FILE)[0], RunFolder(folder).records

    def _encoder(self, run: PlannedRun, show: ShowRecord) -> Trained:
        """The encoder of a run. Trains it if it is not trained yet."""
        folder = self._encoder_folder(run)
        if not self.has_encoder(run):
            with locked(folder):
                self._train_encoder(run, folder, show)
        weights, records = read_stage(folder / ENCODER_FILE)
        return weights, [Record(**record) for record in records]

    def _train_encoder(self, run: PlannedRun, folder: Path, show: ShowRecord) -> None:
        self._begin(run, folder)
        about = {"fit": run.config.to_json(), "fingerprint": run.table.fingerprint}
        write_json(folder / CONFIG_FILE, about)
        model = build_regressor(run.table, run.config)
        own = None if run.own is None else run.own.loss
        for record in train_encoder(model, run.table, run.config, folder, own=own):
            show(record)
        for path in (folder / ENCODER_FILE).parent.iterdir():
            if path.name != ENCODER_FILE.name:
                path.unlink()

    def _encoder_folder(self, run: PlannedRun) -> Path:
        return self.out / "encoders" / encoder_key(run)

    def _is_outdated(self, run: PlannedRun, folder: Path) -> bool:
        """Whether an earlier call trained the folder by an own objective: it may have changed."""
        return run.own is not None and folder not in self.begun

    def _begin(self, run: PlannedRun, folder: Path) -> None:
        """Empty a folder that cannot be continued, and check the data of one that can."""
        if self._is_outdated(run, folder) or not RunFolder(folder).exists:
            for path in folder.iterdir() if folder.is_dir() else ():
                if path.is_dir():
                    shutil.rmtree(path, ignore_errors=True)
                elif path.name != LOCK_FILE:  # this process holds the lock
                    path.unlink()
        _check_data(folder, run)
        self.begun.add(folder)
