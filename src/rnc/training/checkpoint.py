"""Checkpoints, from which a stopped training continues. Only this file knows their format.

    checkpoint/last.safetensors      the running stage: model, objective, optimizer, best weights
    checkpoint/previous.safetensors  the checkpoint before, in case the last one is damaged
    checkpoint/encoder.safetensors   the weights after a finished stage, here that of the encoder

Records are JSON types here. The note of a file holds its format. Format 1, or none, is from the
first version: it called a calibration fds, and the note of a finished stage was a list of records.
"""

import math
import re
import time
import warnings
from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from rnc.files import DamagedFileError, read_tensors, write_tensors
from rnc.methods.objective import Objective
from rnc.model import Regressor
from rnc.training.averaging import WeightAverage
from rnc.training.teacher import Teacher

if TYPE_CHECKING:  # reading a run should not import Lightning, which is slow
    from lightning.fabric.plugins import Precision

CHECKPOINT_FOLDER = "checkpoint"
"""A folder in a run folder: the checkpoints that a killed run continues from."""
CHECKPOINT_FORMAT = 2
LAST_FILE = "last.safetensors"
"""A file in the checkpoint folder: the checkpoint of the stage that ran last."""
_PREVIOUS_FILE = "previous.safetensors"
ENCODER_FILE = Path(CHECKPOINT_FOLDER, "encoder.safetensors")
"""A file in a run folder: the encoder that the first stage trained."""
CHEAP_SECONDS = 0.05
"""If writing takes no longer than this, a checkpoint is written after every epoch."""

Records = list[dict[str, Any]]


def write_stage(path: Path, weights: dict[str, Tensor], records: Records) -> None:
    """Write the result of a finished stage: the weights of the model and a record per epoch."""
    write_tensors(path, weights, {"format": CHECKPOINT_FORMAT, "records": records})


def read_stage(path: Path) -> tuple[dict[str, Tensor], Records]:
    """The weights and records that `write_stage` wrote."""
    weights, note = read_tensors(path)
    if isinstance(note, dict):
        _check_format(path, note)
    records: Records = note["records"] if isinstance(note, dict) else note
    return weights, records


def has_stage(path: Path) -> bool:
    """Whether there is a usable file of a finished stage. A damaged one gives a warning."""
    if not path.exists():
        return False
    try:
        read_stage(path)
    except DamagedFileError as error:
        warnings.warn(f"{error} This stage is trained again.", stacklevel=2)
        return False
    return True


def forget_later_stages(folder: Path) -> None:
    """Delete the files of stages after the first in a run folder, since the first is to go on."""
    later = ("head", "finetune")
    for name in (LAST_FILE, _PREVIOUS_FILE):
        file = folder / CHECKPOINT_FOLDER / name
        if file.exists() and _stage_of(file).endswith(later):
            file.unlink()
    for path in (folder / CHECKPOINT_FOLDER).glob("*.safetensors"):
        if path.stem.endswith(later):
            path.unlink()


def _stage_of(path: Path) -> str:
    """The name of a checkpoint's stage; "" for a damaged checkpoint."""
    with suppress(DamagedFileError):
        return str(read_tensors(path)[1]["stage"])
    return ""


def _last_good(path: Path) -> tuple[dict[str, Tensor], Any] | None:
    """Tensors and note of the last checkpoint or, if it is damaged, of the one before; or None."""
    for file in (path, path.with_name(_PREVIOUS_FILE)):
        if file.exists():
            try:
                return read_tensors(file)
            except DamagedFileError as error:
                text = f"{error} Training goes on from the last good checkpoint before it."
                warnings.warn(text, stacklevel=2)
    return None


class StageState:
    """All that a stage changes, and its best weights so far. It can be saved and restored."""

    def __init__(
        self,
        model: Regressor,
        objective: Objective,
        optimizer: torch.optim.Optimizer,
        precision: "Precision",
        average: WeightAverage | None = None,
        teacher: Teacher | None = None,
    ) -> None:
        self.model, self.objective, self.average = model, objective, average
        self.teacher = teacher
        self.optimizer, self.precision = optimizer, precision
        self.best: dict[str, Tensor] | None = None
        self.best_error = float("inf")
        self.saved_at, self.save_seconds = -math.inf, 0.0

    def note_error(self, error: float | None) -> None:
        """Remember the weights if they are the best so far."""
        if error is not None and (self.best is None or error < self.best_error):
            self.best_error = error
            self.best = weights_of(self.model)

    def finish(self) -> None:
        """Finish the objective, and put the best weights into the model if any were noted."""
        self.objective.finish()
        if self.best is not None:
            self.model.load_state_dict(self.best)

    def save(self, path: Path, stage: str, records: Records, *, is_last: bool) -> None:
        """Write a checkpoint, unless saving would take over a tenth of the time.

        If `is_last`, it is written in any case.
        """
        started = time.perf_counter()
        is_slow = self.save_seconds > CHEAP_SECONDS
        if is_slow and started - self.saved_at < 10 * self.save_seconds and not is_last:
            return
        state, numbers = pack_state(self.optimizer)
        groups = {
            "model": self.model.state_dict(),
            "objective": self.objective.own_state(),
            "optimizer": state,
            "average": {} if self.average is None else self.average.state(),
            "teacher": {} if self.teacher is None else self.teacher.state(),
            "best": self.best or {},
        }
        tensors = {
            f"{group}/{name}": value
            for group, values in groups.items()
            for name, value in values.items()
        }
        note = {
            "format": CHECKPOINT_FORMAT,
            "stage": stage,
            "best_error": None if self.best is None else self.best_error,
            "optimizer": numbers,
            "precision": self.precision.state_dict(),
            "records": records,
        }
        if path.exists():
            previous = path.with_name(_PREVIOUS_FILE)
            previous.unlink(missing_ok=True)
            with suppress(OSError):  # the file system may have no hard links
                previous.hardlink_to(path)
        write_tensors(path, tensors, note)
        self.saved_at = time.perf_counter()
        self.save_seconds = self.saved_at - started

    def restore(self, path: Path, stage: str) -> Records:
        """Restore what `save` wrote for this stage, if anything; return its records."""
        tensors, note = _last_good(path) or ({}, None)
        if note is None:
            return []
        _check_format(path, note)
        if note["stage"] != stage:
            return []
        groups: dict[str, dict[str, Tensor]] = defaultdict(dict)
        for key, value in tensors.items():
            group, name = key.split("/", 1)
            if "format" not in note and group == "objective":
                name = re.sub(r"^fds\.", "calibration.", name)
            groups[group][name] = value
        self.model.load_state_dict(groups["model"])
        self.objective.load_own_state(groups["objective"])
        unpack_state(self.optimizer, groups["optimizer"], note["optimizer"])
        if self.average is not None and groups["average"]:
            self.average.load_state(groups["average"])
        if self.teacher is not None and groups["teacher"]:
            self.teacher.load_state(groups["teacher"])
        if state := note.get("precision"):  # empty unless gradients are scaled
            self.precision.load_state_dict(state)
        if groups["best"]:
            device = self.model.input_shift.device
            self.best = {name: value.to(device) for name, value in groups["best"].items()}
            self.best_error = note["best_error"]
        records: Records = note["records"]
        return records


def weights_of(model: Regressor) -> dict[str, Tensor]:
    """A copy of the weights and buffers of a model."""
    return {name: value.clone() for name, value in model.state_dict().items()}


def pack_state(optimizer: torch.optim.Optimizer) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The state of an optimizer, as named tensors and named values of other types."""
    tensors: dict[str, Tensor] = {}
    numbers: dict[str, Any] = {}
    for parameter, state in optimizer.state_dict()["state"].items():
        for name, value in state.items():
            kind = tensors if isinstance(value, Tensor) else numbers
            kind[f"{parameter}.{name}"] = value
    return tensors, numbers


def unpack_state(
    optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor], numbers: dict[str, Any]
) -> None:
    """Restore what `pack_state` returned. It has no learning rates: every epoch sets them."""
    state: dict[int, dict[str, Any]] = {}
    for key, value in (*tensors.items(), *numbers.items()):
        parameter, name = key.split(".", 1)
        state.setdefault(int(parameter), {})[name] = value
    optimizer.load_state_dict(
        {"state": state, "param_groups": optimizer.state_dict()["param_groups"]}
    )


def _check_format(path: Path, note: dict[str, Any]) -> None:
    if note.get("format", 1) > CHECKPOINT_FORMAT:
        raise ValueError(
            f"{path} has checkpoint format {note['format']}, and this version reads up to "
            f"{CHECKPOINT_FORMAT}. Continue the run with the version of rank-n-contrast that "
            "started it, or train again with --overwrite."
        )
