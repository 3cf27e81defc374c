"""The training loop: the only one, and the only place that knows Lightning Fabric.

`run_stage` is a generator of one Record per epoch. After every epoch it writes a checkpoint that a
later call continues from; on a CPU the continued run ends with the same bits.
"""

import logging
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal

import torch
from lightning.fabric import Fabric
from torch import Tensor, nn

from rnc.config import FitConfig, Optimizer
from rnc.files import read_tensors, write_tensors
from rnc.model import Regressor
from rnc.training.batches import Batches, seed_of
from rnc.training.optim import learning_rate, make_optimizer, pack_state, unpack_state
from rnc.training.steps import Step, check_finite

PRECISION: dict[str, Any] = {"32": "32-true", "bf16": "bf16-mixed", "16": "16-mixed"}


@dataclass(frozen=True)
class Record:
    """What one epoch came to."""

    stage: str
    epoch: int
    epochs: int
    lr: float
    train_loss: float
    gap: float | None
    """Mean of loss minus lower bound, where the objective has one."""
    val_error: float | None
    seconds: float


RECORD_FIELDS = [field.name for field in fields(Record)]


@dataclass(frozen=True)
class Stage:
    """One thing to train: which part of the model, by which loss, for how long."""

    name: str
    step: Step
    part: Literal["encoder", "head", "all"]
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
    bound: Callable[[Tensor, int], Tensor] | None = None
    """Targets and views -> the lowest value that the loss can take."""


def make_fabric(config: FitConfig) -> Fabric:
    """Fabric for the device and precision asked for, in one process or under torchrun."""
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
    if accelerator == "cuda":
        torch.set_float32_matmul_precision("high")  # TF32: augmentation and encoder, not the loss
    local = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    world = int(os.environ.get("WORLD_SIZE", "1"))
    for chatter in ("lightning.fabric", "lightning.pytorch"):  # "Using bfloat16 ..."
        logging.getLogger(chatter).setLevel(logging.WARNING)
    fabric = Fabric(
        accelerator=accelerator,
        devices=local,
        num_nodes=max(1, world // local),
        strategy="ddp" if world > 1 else "auto",
        precision=PRECISION[precision],
    )
    fabric.launch()
    return fabric


def run_stage(
    fabric: Fabric,
    model: Regressor,
    stage: Stage,
    batches: Batches,
    *,
    validate: Callable[[], float] | None = None,
    checkpoint: Path | None = None,
) -> Iterator[Record]:
    """Train a part of the model in place; with `validate`, end with its best weights.

    Args:
        fabric: from `make_fabric`.
        model: trained in place, on the device of fabric.
        stage: what to do.
        batches: the training samples.
        validate: the error on the validation split, lower is better; None keeps the last weights.
        checkpoint: file to continue from if it holds this stage, and to write after every epoch.
    """
    trained = _select(model, stage.part)
    optimizer = make_optimizer(stage.optimizer, trained, stage.lr, stage.weight_decay)
    progress = _Progress(model, optimizer)
    records: list[Record] = []
    if checkpoint is not None and checkpoint.exists():
        records = progress.restore(checkpoint, stage.name)
        yield from records
    wrapped, fabric_optimizer = fabric.setup(model, optimizer)
    for epoch in range(len(records) + 1, stage.epochs + 1):
        started = time.perf_counter()
        lr = learning_rate(epoch, stage.epochs, stage.lr, stage.lr_decay)
        for group in optimizer.param_groups:
            group["lr"] = lr
        torch.manual_seed(seed_of(batches.seed, stage.name, epoch, fabric.global_rank))
        _set_mode(model, stage.part)
        loss, gap = _run_epoch(fabric, wrapped, fabric_optimizer, stage, batches, epoch)
        check_finite(loss, stage.name, epoch)
        error = validate() if validate is not None else None
        check_finite(0.0 if error is None else error, stage.name, epoch, what="validation error")
        progress.note_error(error)
        seconds = time.perf_counter() - started
        records.append(Record(stage.name, epoch, stage.epochs, lr, loss, gap, error, seconds))
        if checkpoint is not None and fabric.is_global_zero:
            progress.save(checkpoint, stage.name, records)
        fabric.barrier()
        yield records[-1]
    progress.finish()


def _run_epoch(
    fabric: Fabric,
    wrapped: nn.Module,
    optimizer: torch.optim.Optimizer,
    stage: Stage,
    batches: Batches,
    epoch: int,
) -> tuple[float, float | None]:
    """Mean loss of an epoch and its mean gap to the bound; reads the device once, at the end."""
    total = torch.zeros((), device=fabric.device, dtype=torch.float64)
    bounds, samples = torch.zeros_like(total), 0
    served = batches.epoch(
        stage.name,
        epoch,
        batch_size=stage.batch_size,
        views=stage.views,
        drop_last=stage.drop_last,
    )
    step = 0
    optimizer.zero_grad()
    for step, batch in enumerate(served, 1):
        views = batch.views.shape[1]
        features, outputs = wrapped(batch.views.flatten(0, 1))
        loss = stage.step(
            features.unflatten(0, (-1, views)), outputs.unflatten(0, (-1, views)), batch.targets
        )
        fabric.backward(loss / stage.accumulate)
        if step % stage.accumulate == 0:
            _update(fabric, wrapped, optimizer, stage.clip)
        total += loss.detach().double() * len(batch.all_targets)
        samples += len(batch.all_targets)
        if stage.bound is not None:
            bounds += stage.bound(batch.all_targets, views) * len(batch.all_targets)
    if step % stage.accumulate:
        _update(fabric, wrapped, optimizer, stage.clip)
    mean = float(total) / max(1, samples)
    return mean, None if stage.bound is None else mean - float(bounds) / max(1, samples)


def _update(
    fabric: Fabric, wrapped: nn.Module, optimizer: torch.optim.Optimizer, clip: float | None
) -> None:
    if clip is not None:
        fabric.clip_gradients(wrapped, optimizer, max_norm=clip, error_if_nonfinite=False)
    optimizer.step()
    optimizer.zero_grad()


def _select(model: Regressor, part: str) -> list[nn.Parameter]:
    """Let gradients reach one part only, and list its parameters."""
    for name, module in (("encoder", model.encoder), ("head", model.head)):
        for parameter in module.parameters():
            parameter.requires_grad_(part in (name, "all"))
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def _set_mode(model: Regressor, part: str) -> None:
    """Train mode, but for an encoder that is frozen: its statistics must not move."""
    model.train()
    if part == "head":
        model.encoder.eval()


class _Progress:
    """The weights of a stage, the best of them, and how to write both down."""

    def __init__(self, model: Regressor, optimizer: torch.optim.Optimizer) -> None:
        self.model, self.optimizer = model, optimizer
        self.best: dict[str, Tensor] | None = None
        self.best_error = float("inf")

    def note_error(self, error: float | None) -> None:
        """Remember the weights if they are the best so far."""
        if error is not None and (self.best is None or error < self.best_error):
            self.best_error = error
            self.best = {name: value.clone() for name, value in self.model.state_dict().items()}

    def finish(self) -> None:
        """Leave the best weights in the model."""
        if self.best is not None:
            self.model.load_state_dict(self.best)
        self.model.requires_grad_(True)

    def save(self, path: Path, stage: str, records: list[Record]) -> None:
        """Write all that it takes to go on."""
        state, numbers = pack_state(self.optimizer)
        tensors = {f"model/{name}": value for name, value in self.model.state_dict().items()}
        tensors |= {f"optimizer/{name}": value for name, value in state.items()}
        tensors |= {f"best/{name}": value for name, value in (self.best or {}).items()}
        note = {
            "stage": stage,
            "best_error": None if self.best is None else self.best_error,
            "optimizer": numbers,
            "records": [asdict(record) for record in records],
        }
        write_tensors(path, tensors, note)

    def restore(self, path: Path, stage: str) -> list[Record]:
        """Put back what `save` wrote for this stage; the records of its epochs."""
        tensors, note = read_tensors(path)
        if note["stage"] != stage:
            return []
        groups: dict[str, dict[str, Tensor]] = {"model": {}, "optimizer": {}, "best": {}}
        for key, value in tensors.items():
            group, name = key.split("/", 1)
            groups[group][name] = value
        self.model.load_state_dict(groups["model"])
        unpack_state(self.optimizer, groups["optimizer"], note["optimizer"])
        if groups["best"]:
            device = self.model.input_shift.device
            self.best = {name: value.to(device) for name, value in groups["best"].items()}
            self.best_error = note["best_error"]
        return [Record(**record) for record in note["records"]]
