"""The training loop: the only one, and the only place that knows Lightning Fabric.

`run_stage` is a generator of one Record per epoch. After every epoch it writes a checkpoint that a
later call continues from, or less often where writing would take over a tenth of the time; on a
CPU the continued run ends with the same bits.
"""

import logging
import math
import os
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import torch
from lightning.fabric import Fabric
from lightning.fabric.plugins import Precision
from torch import Tensor

from rnc.config import FitConfig, Optimizer
from rnc.files import read_tensors, write_tensors
from rnc.methods.objective import BatchLabels, Objective
from rnc.model import Regressor
from rnc.training.batches import Batches, EncodedBatches, Picked, seed_of
from rnc.training.graphs import GraphedStep
from rnc.training.optim import (
    learning_rate,
    make_optimizer,
    pack_state,
    set_rate,
    unpack_state,
)

WATCHED = 10
"""How many times a stage without validation is watched."""
CHEAP = 0.05
"""Seconds that writing a checkpoint may take after every epoch, however short."""
PRECISION: dict[str, Any] = {"32": "32-true", "bf16": "bf16-mixed", "16": "16-mixed"}


@dataclass(frozen=True)
class Record:
    """What one epoch came to; epoch 0 is what a stage started from, where that counts."""

    stage: str
    epoch: int
    epochs: int
    lr: float
    train_loss: float
    gap: float | None
    """Mean of loss minus lower bound, where the objective has one."""
    val_error: float | None
    """After a head, what it predicts wrong; while an encoder is trained, now and then, what a quick
    probe of its features does: `rnc.training.probe.probe_error`."""
    seconds: float


RECORD_FIELDS = [field.name for field in fields(Record)]


@dataclass(frozen=True)
class Stage:
    """How to train one thing, and for how long."""

    name: str
    epochs: int
    batch_size: int
    views: int
    optimizer: Optimizer
    lr: float
    lr_decay: float
    weight_decay: float
    drop_last: bool = False
    accumulate: int = 1
    clip: float | None = None
    mixed: bool = False
    """Whether samples are mixed with each other."""
    bound: Callable[[Tensor, int], Tensor] | None = None
    """Targets and views -> the lowest value that the loss can take."""


def make_fabric(config: FitConfig, *, own: bool = False) -> Fabric:
    """Fabric for the device and precision asked for, in one process or under torchrun.

    With own, for an encoder of the caller's, which may have parameters that it does not use.
    """
    cuda = torch.cuda.is_available()
    if config.device == "cuda" and not cuda:
        raise RuntimeError(
            "device='cuda' was asked for, but torch sees no GPU. Use --device cpu, or install a "
            "torch build that fits the driver."
        )
    accelerator = "cuda" if cuda and config.device != "cpu" else "cpu"
    precision = config.precision
    if precision == "auto":
        precision = "bf16" if accelerator == "cuda" else "32"
    local = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    world = int(os.environ.get("WORLD_SIZE", "1"))
    for chatter in ("lightning.fabric", "lightning.pytorch"):  # "Using bfloat16 ..."
        logging.getLogger(chatter).setLevel(logging.WARNING)
    fabric = Fabric(
        accelerator=accelerator,
        devices=local,
        num_nodes=max(1, world // local),
        strategy="auto" if world == 1 else "ddp_find_unused_parameters_true" if own else "ddp",
        precision=PRECISION[precision],
    )
    fabric.launch()
    return fabric


def run_stage(
    fabric: Fabric,
    model: Regressor,
    objective: Objective,
    stage: Stage,
    batches: Batches | EncodedBatches,
    *,
    validate: Callable[[], float] | None = None,
    watch: Callable[[], float] | None = None,
    start: Record | None = None,
    checkpoint: Path | None = None,
    compiled: bool = False,
    graphed: bool = False,
    scaled: bool = False,
) -> Iterator[Record]:
    """Train what an objective holds in place; with `validate`, end with the best weights.

    Args:
        fabric: from `make_fabric`.
        model: what validation and checkpoints see, on the device of fabric.
        objective: what to minimise; holds the parts of the model that are trained.
        stage: how.
        batches: the training samples.
        validate: the error on the validation split, lower is better; None keeps the last weights.
        watch: without validate, an error to show WATCHED times, which chooses nothing.
        start: what the model came to as it is, epoch 0; its weights may then be the best. None:
            only those after an epoch may.
        checkpoint: file to continue from if it holds this stage, and to write after every epoch.
        compiled: compile the encoder, for batches of the full size.
        graphed: replay steps of the full size as a CUDA graph.
        scaled: gradients are scaled for 16-bit floats.
    """
    objective.to(fabric.device)
    trained = [parameter for parameter in objective.parameters() if parameter.requires_grad]
    if not trained:
        raise ValueError(
            f"Stage {stage.name!r} has nothing to train: every parameter of the encoder has "
            "requires_grad=False. Let some learn, or fit only a head on its features."
        )
    optimizer = make_optimizer(
        stage.optimizer, trained, stage.lr, stage.weight_decay, graphed=graphed, scaled=scaled
    )
    precision = fabric.strategy.precision
    if scaled:  # as it would be if the stages before had been done by another process
        precision.load_state_dict(torch.amp.GradScaler(fabric.device.type).state_dict())
    progress = _Progress(model, objective, optimizer, precision)
    records: list[Record] = []
    if checkpoint is not None and checkpoint.exists():
        records = progress.restore(checkpoint, stage.name)
        yield from records
    if start is not None and not records:  # a checkpoint has it
        progress.note_error(start.val_error)
        records.append(start)
        yield start
    if compiled:
        objective.compile_encoder()
    epoch_of = _Epoch(fabric, objective, optimizer, stage, batches, graphed)
    for epoch in range(records[-1].epoch + 1 if records else 1, stage.epochs + 1):
        started = time.perf_counter()
        lr = learning_rate(epoch, stage.epochs, stage.lr, stage.lr_decay)
        set_rate(optimizer, lr)
        torch.manual_seed(seed_of(batches.seed, stage.name, epoch, fabric.global_rank))
        objective.train()
        loss, gap = epoch_of(epoch)
        objective.after_epoch()
        check_finite(loss, stage.name, epoch, hint=objective.hint)
        error = None
        if validate is not None:
            error = validate()
            progress.note_error(error)
        elif watch is not None and epoch % math.ceil(stage.epochs / WATCHED) == 0:
            error = watch()
        check_finite(0.0 if error is None else error, stage.name, epoch, what="validation error")
        seconds = time.perf_counter() - started
        records.append(Record(stage.name, epoch, stage.epochs, lr, loss, gap, error, seconds))
        if checkpoint is not None and fabric.is_global_zero:
            progress.save(checkpoint, stage.name, records, last=epoch == stage.epochs)
        fabric.barrier()
        yield records[-1]
    progress.finish()


class _Epoch:
    """All steps of an epoch; the device is read once, at its end."""

    def __init__(
        self,
        fabric: Fabric,
        objective: Objective,
        optimizer: torch.optim.Optimizer,
        stage: Stage,
        batches: Batches | EncodedBatches,
        graphed: bool,
    ) -> None:
        self.fabric, self.stage, self.batches, self.objective = fabric, stage, batches, objective
        self.wrapped, self.optimizer = fabric.setup(objective, optimizer)
        self.totals = torch.zeros(2, device=fabric.device, dtype=torch.float64)
        self.pending = 0  # gradients added up since the last update
        self.full_step = GraphedStep(self._step) if graphed else self._step

    def __call__(self, epoch: int) -> tuple[float, float | None]:
        """Mean loss of an epoch and its mean gap to the bound."""
        stage, samples = self.stage, 0
        self.totals.zero_()
        self.optimizer.zero_grad()
        for picked in self.batches.epoch(
            stage.name,
            epoch,
            batch_size=stage.batch_size,
            views=stage.views,
            drop_last=stage.drop_last,
            mixed=stage.mixed,
        ):
            samples += len(picked.rows)
            if len(picked.rows) == stage.batch_size:
                self.full_step(picked)
            else:
                with torch.compiler.set_stance("force_eager"):  # not worth compiling again
                    self._step(picked)
        if self.pending:  # fewer than the mean of each was taken for
            grads = [p.grad for p in self.wrapped.parameters() if p.grad is not None]
            torch._foreach_mul_(grads, stage.accumulate / self.pending)
            self._update()
        loss, bound = (self.totals / max(1, samples)).tolist()
        return loss, None if stage.bound is None else loss - bound

    def _step(self, picked: Picked) -> None:
        """One step, without a wait for the device."""
        stage, batch = self.stage, self.batches.make(picked)
        views, count = batch.views.shape[1], len(batch.all_targets)
        loss = self.wrapped(batch.views, BatchLabels(batch.targets, batch.weights))
        self.fabric.backward(loss / stage.accumulate)
        self.pending += 1
        if self.pending == stage.accumulate:
            self._update()
        self.totals[0] += loss.detach() * count
        if stage.bound is not None:
            self.totals[1] += stage.bound(batch.all_targets, views) * count

    def _update(self) -> None:
        clip = self.stage.clip
        if clip is not None:
            self.fabric.clip_gradients(
                self.wrapped, self.optimizer, max_norm=clip, error_if_nonfinite=False
            )
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.objective.after_update()
        self.pending = 0


class _Progress:
    """The weights of a stage, the best of them, and how to write both down."""

    def __init__(
        self,
        model: Regressor,
        objective: Objective,
        optimizer: torch.optim.Optimizer,
        precision: Precision,
    ) -> None:
        self.model, self.objective = model, objective
        self.optimizer, self.precision = optimizer, precision
        self.best: dict[str, Tensor] | None = None
        self.best_error = float("inf")
        self.saved, self.saving = -math.inf, 0.0  # when, and how long it took

    def note_error(self, error: float | None) -> None:
        """Remember the weights if they are the best so far."""
        if error is not None and (self.best is None or error < self.best_error):
            self.best_error = error
            self.best = {name: value.clone() for name, value in self.model.state_dict().items()}

    def finish(self) -> None:
        """Leave the best weights in the model."""
        self.objective.finish()
        if self.best is not None:
            self.model.load_state_dict(self.best)

    def save(self, path: Path, stage: str, records: list[Record], *, last: bool) -> None:
        """Write all that it takes to go on, if it is cheap or it is time."""
        started = time.perf_counter()
        if self.saving > CHEAP and started - self.saved < 10 * self.saving and not last:
            return
        state, numbers = pack_state(self.optimizer)
        tensors = {f"model/{name}": value for name, value in self.model.state_dict().items()}
        own = self.objective.own_state()
        tensors |= {f"objective/{name}": value for name, value in own.items()}
        tensors |= {f"optimizer/{name}": value for name, value in state.items()}
        tensors |= {f"best/{name}": value for name, value in (self.best or {}).items()}
        note = {
            "stage": stage,
            "best_error": None if self.best is None else self.best_error,
            "optimizer": numbers,
            "precision": self.precision.state_dict(),
            "records": [asdict(record) for record in records],
        }
        write_tensors(path, tensors, note)
        self.saved = time.perf_counter()
        self.saving = self.saved - started

    def restore(self, path: Path, stage: str) -> list[Record]:
        """Put back what `save` wrote for this stage; the records of its epochs."""
        tensors, note = read_tensors(path)
        if note["stage"] != stage:
            return []
        groups: dict[str, dict[str, Tensor]] = {
            name: {} for name in ("model", "objective", "optimizer", "best")
        }
        for key, value in tensors.items():
            group, name = key.split("/", 1)
            if group == "objective":  # checkpoints without a format have its former name
                name = re.sub(r"^fds\.", "calibration.", name)
            groups[group][name] = value
        self.model.load_state_dict(groups["model"])
        self.objective.load_own_state(groups["objective"])
        unpack_state(self.optimizer, groups["optimizer"], note["optimizer"])
        if state := note.get("precision"):  # none without a scale, or of an older version
            self.precision.load_state_dict(state)
        if groups["best"]:
            device = self.model.input_shift.device
            self.best = {name: value.to(device) for name, value in groups["best"].items()}
            self.best_error = note["best_error"]
        return [Record(**record) for record in note["records"]]


def check_finite(
    value: float, stage: str, epoch: int, what: str = "loss", *, hint: str = ""
) -> None:
    """Raise where training diverged, before more hours are spent on it."""
    if not math.isfinite(value):
        raise FloatingPointError(
            f"The {what} of stage {stage!r} became {value} in epoch {epoch}. Lower the learning "
            "rate (--lr), clip gradients (--clip 1) or train in full precision (--precision 32)."
            + (f" {hint}" if hint else "")
        )
