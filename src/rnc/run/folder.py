"""The run folder: the names of its files, how each is read, and how each is written.

    config.json         model, FitConfig, data, command, environment; "format" is the version
    checkpoint/         the state from which a killed run continues
    train_targets.safetensors   targets (m, t) that the model learns from
    skipped.csv         rows that were left out, and why
    history.csv         one line per epoch
    model.safetensors   the weights: written when training is done
    reference.safetensors   training samples to compare others with, see `rnc.run.reference`
    calibration.safetensors calibration rows for intervals, see `rnc.intervals.calibration`
    features.safetensors    features (k, d) of test samples, and their rows (k,) in predictions.csv
    thumbnails.safetensors  small pictures of test samples, see `rnc.run.thumbnails`
    predictions.csv     see `rnc.run.predictions`
    predictions_partial.csv     see `rnc.run.partial_scores`
    worst_inputs.csv    for a table: row in predictions.csv and features of the worst errors
    scores.json         see `rnc.run.evaluate`; written last, so a run that has it is finished
    trackers.json       which trackers took which records; tensorboard/, wandb/: their files
    analyses/           NAME.json and, where it has arrays, NAME.safetensors
    report.html

Except for trackers, `rnc.files` writes every file completely or not at all. `RunFolder` reads
strictly: a missing or broken file raises, and the message says what to do. `rnc.run.partial` reads
what is there. Both use the readers of `rnc.run.parts`. `rnc.run.write` writes an evaluation. Names
that lower layers need are defined there: `rnc.files` has config.json and the safetensors of model,
reference and calibration; `rnc.training.checkpoint` has checkpoint/.
"""

import csv
import io
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from rnc.config import FitConfig
from rnc.config.sizes import Sizes
from rnc.data.errors import DataError
from rnc.data.fingerprint import check_fingerprint
from rnc.data.inputs import Skipped
from rnc.data.source import DataSource
from rnc.data.table import Table
from rnc.files import (
    CALIBRATION_FILE,
    CONFIG_FILE,
    MODEL_FILE,
    REFERENCE_FILE,
    write_json,
    write_tensors,
    write_text,
)
from rnc.json_types import check_fields, damaged
from rnc.metrics import Columns
from rnc.model import Regressor, read_config
from rnc.run.answer import Answer, answer
from rnc.run.parts import (
    Features,
    read_arrays,
    read_features,
    read_history,
    read_object,
    read_predictions,
    read_scores,
    read_train_targets,
    records_of,
)
from rnc.run.predictions import Predictions
from rnc.run.spreadsheet import guarded
from rnc.training.checkpoint import CHECKPOINT_FOLDER
from rnc.training.record import RECORD_FIELDS, Record

HISTORY_FILE = "history.csv"
SCORES_FILE = "scores.json"
PREDICTIONS_FILE = "predictions.csv"
PARTIAL_PREDICTIONS_FILE = "predictions_partial.csv"
FEATURES_FILE = "features.safetensors"
THUMBNAILS_FILE = "thumbnails.safetensors"
WORST_INPUTS_FILE = "worst_inputs.csv"
TRAIN_TARGETS_FILE = "train_targets.safetensors"
SKIPPED_FILE = "skipped.csv"
REPORT_FILE = "report.html"
TRACKERS_FILE = "trackers.json"
ANALYSES_FOLDER = "analyses"
TENSORBOARD_FOLDER = "tensorboard"

RUN_FILES = (
    CONFIG_FILE,
    HISTORY_FILE,
    MODEL_FILE,
    REFERENCE_FILE,
    CALIBRATION_FILE,
    SCORES_FILE,
    PREDICTIONS_FILE,
    PARTIAL_PREDICTIONS_FILE,
    FEATURES_FILE,
    THUMBNAILS_FILE,
    WORST_INPUTS_FILE,
    TRAIN_TARGETS_FILE,
    SKIPPED_FILE,
    REPORT_FILE,
    TRACKERS_FILE,
)
RUN_FOLDERS = (CHECKPOINT_FOLDER, ANALYSES_FOLDER, TENSORBOARD_FOLDER)

Part = TypeVar("Part")


class DoesNotApply(ValueError):
    """An analysis cannot be applied to this run. The message says why."""


@dataclass(frozen=True)
class AnalysisResult:
    """The result of an analysis: JSON types, and arrays for a file beside the JSON file."""

    content: dict[str, Any]
    tensors: dict[str, Tensor] = field(default_factory=dict)


@dataclass(eq=False)
class RunFolder:
    """The folder of a run. Each part is read when it is first needed."""

    path: Path
    given_table: Table | None = None
    """The data that the run was fitted on, if they are not in the file that config.json names."""
    encoder: nn.Module | None = None
    """The encoder, if the run was fitted with a module of the caller."""
    given_scores: dict[str, Any] | None = None
    """The future content of scores.json, for a run that is about to be finished."""

    def __post_init__(self) -> None:
        self.path = Path(self.path)

    @property
    def exists(self) -> bool:
        """Whether there is a run, finished or not."""
        return (self.path / CONFIG_FILE).exists()

    @property
    def is_finished(self) -> bool:
        """Whether the run is trained and evaluated."""
        return (self.path / SCORES_FILE).exists()

    @cached_property
    def config(self) -> dict[str, Any]:
        """config.json."""
        return read_config(self.path)

    @cached_property
    def fit(self) -> FitConfig:
        """How the run was fitted."""
        with damaged(self.path / CONFIG_FILE, "Restore it as it was, or fit again."):
            for part in ("fit", "resolved"):
                check_fields(self.config.get(part, {}), FitConfig, part, all_known=False)
            return FitConfig.from_json(self.config.get("fit", {}))

    @property
    def targets(self) -> tuple[str, ...]:
        """Names of the targets."""
        with damaged(self.path / CONFIG_FILE, "Restore it as it was, or fit again."):
            return tuple(self.config["model"]["target_names"])

    @property
    def pairs(self) -> dict[str, Any]:
        """Label distance and similarity of the run, as `rnc_loss` takes them."""
        return {"label_distance": self.fit.distance, "similarity": self.fit.similarity}

    @cached_property
    def scores(self) -> dict[str, Any]:
        """scores.json."""
        if self.given_scores is not None:
            return self.given_scores
        return self._read(SCORES_FILE, read_scores)

    @property
    def answer(self) -> Answer:
        """The result of the run in words: its error, and the errors of the baselines."""
        return answer(self.scores, self.config, str(self.path))

    @cached_property
    def records(self) -> list[Record]:
        """history.csv: one record per epoch."""
        return self._read(HISTORY_FILE, lambda path: records_of(read_history(path)))

    @cached_property
    def predictions(self) -> Predictions:
        """predictions.csv."""
        path, targets = self.path / PREDICTIONS_FILE, self.targets
        roles = self.scores.get("columns")
        predictions = self._read(
            PREDICTIONS_FILE, lambda path: read_predictions(path, targets, roles)
        )
        unknown = np.isnan(predictions.errors).any(axis=1)
        if unknown.any():
            raise ValueError(
                f"{path} has {int(unknown.sum())} of {len(predictions)} rows without a number for "
                f"a target or its prediction. Write it again with `rnc resume {self.path}`."
            )
        return predictions

    @property
    def truth(self) -> Columns:
        """The true targets of the test samples, (n, t)."""
        return self.predictions.truth

    @property
    def errors(self) -> Columns:
        """The absolute errors of the test samples, (n, t)."""
        return self.predictions.errors

    @property
    def subgroups(self) -> dict[str, NDArray[np.str_]]:
        """The subgroup columns of the test samples, as text."""
        return self.predictions.subgroups

    @property
    def features(self) -> NDArray[np.float32]:
        """Features of the samples in `rows`, (k, d)."""
        return self._features.values

    @property
    def rows(self) -> NDArray[np.int64]:
        """Which rows of predictions.csv have features, (k,)."""
        return self._features.rows

    @cached_property
    def _features(self) -> Features:
        features = self._read(FEATURES_FILE, read_features)
        if bad := int((~np.isfinite(features.values).all(axis=1)).sum()):
            raise ValueError(
                f"{self.path / FEATURES_FILE} has NaN or infinite values in {bad} of "
                f"{len(features.values)} samples: the training diverged. Lower its learning rate."
            )
        return features

    @cached_property
    def train_targets(self) -> Columns | None:
        """The targets that the model was trained on, (m, t); None if the run did not keep them."""
        if not (self.path / TRAIN_TARGETS_FILE).exists():
            return None
        count = len(self.targets)
        return self._read(TRAIN_TARGETS_FILE, lambda path: read_train_targets(path, count))

    @property
    def sizes(self) -> Sizes | None:
        """How many rows there were to train on; None if the run did not keep these numbers."""
        if (kept := self.config.get("sizes")) is not None:
            return Sizes(**kept)
        targets = self.train_targets
        return None if targets is None else Sizes(len(targets), len(targets))

    @cached_property
    def model(self) -> Regressor:
        """The trained model, on a GPU if there is one and the config allows it."""
        gpu = torch.cuda.is_available() and self.fit.device != "cpu"
        return Regressor.load(self.path, self.encoder).to("cuda" if gpu else "cpu")

    @property
    def source(self) -> DataSource:
        """How the data of the run were read; its `source` is empty if the caller gave a table."""
        known = {"source": "", "target": list(self.targets)}
        return DataSource.from_json(known | (self.config.get("data") or {}))

    @cached_property
    def table(self) -> Table:
        """The data that the run was fitted on, read again."""
        given = self.given_table
        return self._checked(self.read_table() if given is None else given)

    def read_table(self) -> Table:
        """The data, read from the place that config.json names. The run may be unfinished."""
        data = self.source
        if not data.source:
            raise DoesNotApply(
                f"{self.path} does not say where its data are, as runs of `rnc fit` do. From "
                "Python, give them: RunFolder(path, table)."
            )
        if not Path(data.source).exists():
            back = "Put the data back."
            there = "Run the command in the folder where `rnc fit` was run."
            raise FileNotFoundError(
                f"{self.path} was fitted on {data.source}, which does not exist, seen from "
                f"{Path.cwd()}. {back if Path(data.source).is_absolute() else there}"
            )
        # Prepare the data as the model expects, even if this version would do it differently.
        fitted = None if data.is_copy else self.config["model"].get("preprocessing") or {}
        side = self.config["model"].get("preprocessing", {}).get("side")
        return data.read(self.fit.image_size, fitted, same_rows=True, side=side)

    def check_data(self, table: Table) -> None:
        """Raise unless these are the data that the run was started on, to the last byte."""
        advice = f"Use them as they were, or another --out. `rnc resume {self.path}` reads them as"
        advice += " the version that started the run did."
        check_fingerprint(self.config.get("fingerprint"), table, str(self.path), advice)

    def has_analysis(self, name: str) -> bool:
        """Whether an analysis of this name was done."""
        return self._analysis_file(name).exists()

    def analysis(self, name: str) -> AnalysisResult:
        """The result of an analysis."""
        path = self._analysis_file(name)
        if not path.exists():
            raise FileNotFoundError(
                f"{self.path} has no analysis {name}. Add it with "
                f"`rnc evaluate {self.path} --with {name}`."
            )
        arrays = path.with_suffix(".safetensors")
        tensors = read_arrays(arrays) if arrays.exists() else {}
        return AnalysisResult(read_object(path), tensors)

    # ----------------------------------------------------------------------------- writing

    def write_analysis(self, name: str, result: AnalysisResult) -> Path:
        """Write the result of an analysis, and return the path of its JSON file."""
        path = self._analysis_file(name)
        if result.tensors:
            write_tensors(path.with_suffix(".safetensors"), result.tensors)
        write_json(path, result.content)
        return path

    def write_history(self, records: Sequence[Record]) -> None:
        """Write history.csv."""
        _write_csv(self.path / HISTORY_FILE, RECORD_FIELDS, [asdict(one) for one in records])

    def write_skipped(self, skipped: Sequence[Skipped]) -> None:
        """Write skipped.csv, if a row was left out."""
        if not skipped:
            return
        rows = [{"name": guarded(row.name), "reason": guarded(row.reason)} for row in skipped]
        _write_csv(self.path / SKIPPED_FILE, ["name", "reason"], rows)

    def write_train_targets(self, targets: Columns) -> None:
        """Write train_targets.safetensors: targets (m, t)."""
        write_tensors(self.path / TRAIN_TARGETS_FILE, {"targets": torch.from_numpy(targets)})

    def delete_checkpoint(self) -> None:
        """Delete the checkpoints, from which a killed run would continue."""
        shutil.rmtree(self.path / CHECKPOINT_FOLDER, ignore_errors=True)

    def delete(self) -> None:
        """Delete the files of the run, and nothing else in the folder.

        If the process is killed meanwhile, the folder still holds a run, an unfinished one.
        """
        (self.path / SCORES_FILE).unlink(missing_ok=True)
        for name in RUN_FOLDERS:
            shutil.rmtree(self.path / name, ignore_errors=True)
        for name in reversed(RUN_FILES):
            (self.path / name).unlink(missing_ok=True)

    # ----------------------------------------------------------------------------- private

    def _checked(self, table: Table) -> Table:
        self.check_data(table)
        names, before = table.names[table.rows("test")], self.predictions.names
        if names.tolist() != before.tolist():
            raise DataError(
                f"The data have changed since {self.path} was fitted: their {len(names)} test rows "
                f"are not the {len(before)} rows of predictions.csv. Fit again."
            )
        return table

    def _analysis_file(self, name: str) -> Path:
        return self.path / ANALYSES_FOLDER / f"{name}.json"

    def _read(self, name: str, read: Callable[[Path], Part]) -> Part:
        """A part of the run, read by `read`. An error names the file and says what to do."""
        path = self._file(name)
        with damaged(path, f"Write it again with `rnc resume {self.path}`."):
            return read(path)

    def _file(self, name: str) -> Path:
        path = self.path / name
        if not path.exists():
            config = read_config(self.path)  # raises if this is no run at all
            if command := config.get("command") if "evaluation_of" in config else None:
                raise FileNotFoundError(
                    f"{self.path} has no {name}. Repeat with --overwrite: {command}"
                )
            raise FileNotFoundError(
                f"{self.path} has no {name}: the run is not finished. Continue it with "
                f"`rnc resume {self.path}`."
            )
        return path


def _write_csv(path: Path, fields: Sequence[str], rows: Sequence[dict[str, Any]]) -> None:
    text = io.StringIO()
    writer = csv.DictWriter(text, fields, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_text(path, text.getvalue())
