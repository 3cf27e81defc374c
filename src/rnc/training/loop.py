"""The only training loop, and the only place that sets up Lightning Fabric.

`run_stage` is a generator of one Record per epoch. After an epoch it writes a checkpoint, from
which a later call continues. On a CPU, the continued run ends with the same bits.
"""

import logging
import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor, nn

from rnc.config import FitConfig, Keep, Optimizer
from rnc.methods.objective import BatchLabels, Objective
from rnc.model import Regressor
from rnc.training.averaging import WeightAverage, normalisations, take_statistics
from rnc.training.batches import Batches, Picked, seed_of
from rnc.training.caching import cached_backward
from rnc.training.checkpoint import StageState
from rnc.training.graphs import GraphedStep
from rnc.training.optimizers import depth_groups, learning_rate, make_optimizer, set_rate
from rnc.training.record import PULSE, Record, Step
from rnc.training.teacher import Teacher

if TYPE_CHECKING:  # Lightning takes seconds to import, so only `make_fabric` imports it
    from lightning.fabric import Fabric

Result = TypeVar("Result")
QUICK_PROBES = 10
"""How many times a stage measures its error, at most, if it does not do so after every epoch."""
PRECISION: dict[str, Any] = {"32": "32-true", "bf16": "bf16-mixed", "16": "16-mixed"}


@dataclass(frozen=True)
class Stage:
    """The settings of one stage of training."""

    name: str
    epochs: int
    batch_size: int
    views: int
    optimizer: Optimizer
    lr: float
    lr_decay: float
    weight_decay: float
    drop_last: bool = False
    passes: int = 1
    """How many times an epoch goes through the samples."""
    warm_up: int = 0
    """Epochs in which the learning rate rises to lr."""
    average: float = 0.0
    """Which mean of the weights to use, as in `rnc.training.averaging`; 0 for none."""
    accumulate: int = 1
    chunk: int = 0
    """Samples that the encoder sees at a time, as in `rnc.training.caching`; 0 for all of them."""
    queue: int = 0
    """Samples of earlier steps that the objective remembers."""
    clip: float | None = None
    mixed: bool = False
    """Whether C-Mixup mixes samples with each other."""
    layer_decay: float = 1.0
    """Learning rate of a layer of the encoder, as a share of that of the layer above it."""
    bound: Callable[..., Tensor] | None = None
    """A function: targets and `views` -> the lowest value that the loss can take."""


def make_fabric(config: FitConfig, *, own: bool = False) -> "Fabric":
    """Fabric for the device and precision of a config, in one process or under torchrun.

    With `own`, the encoder is a module of the caller, which may have unused parameters.
    """
    from lightning.fabric import Fabric

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
    for chatter in ("lightning.fabric", "lightning.pytorch"):  # hide "Using bfloat16 ..."
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
    fabric: "Fabric",
    model: Regressor,
    objective: Objective,
    stage: Stage,
    batches: Batches,
    *,
    encode: Callable[[Tensor], Tensor] | None = None,
    validate: Callable[[], float] | None = None,
    watch: Callable[[], float] | None = None,
    keep: Keep | None = None,
    start: Record | None = None,
    earlier: Sequence[Record] = (),
    teacher: Teacher | None = None,
    checkpoint: Path | None = None,
    compiled: bool = False,
    graphed: bool = False,
    scaled: bool = False,
) -> Iterator[Record]:
    """Train the parameters of an objective in place; yield one record per epoch.

    `encode` is a frozen encoder, (n, ...) -> (n, d). The objective then sees features.

    `validate` measures the validation error after every epoch, or QUICK_PROBES times if statistics
    of batch normalisation must be recomputed for it. Without `validate`, `watch` is measured
    QUICK_PROBES times. The stage ends with the best weights if `keep` is "best", and with the last
    weights if it is "last". If it is None, it is "best" with `validate`, and else "last".

    `start` is the record of epoch 0, if the weights before training may be the best. `earlier` are
    the records of epochs that this stage has had, if the model holds their result. The stage then
    goes on with the next epoch and a new optimizer. The file `checkpoint` takes precedence: if it
    holds this stage, training continues from it. It is written after every epoch, if that is fast.
    Learning rates follow the number of epochs that the stage has now.

    `teacher` teaches after the epochs that it chooses. `compiled` and `graphed` apply to batches of
    full size; with a frozen encoder, `compiled` applies to the views. `scaled` means that gradients
    are scaled for 16-bit floats.
    """
    objective.to(fabric.device)
    trained, decay = _trained(objective, stage.name), stage.layer_decay
    optimizer = make_optimizer(
        stage.optimizer,
        trained if decay == 1 else depth_groups(objective, decay),
        stage.lr,
        stage.weight_decay,
        graphed=graphed,
        scaled=scaled,
    )
    precision = fabric.strategy.precision
    if scaled:  # start with the scale of a new process, not with that of the stage before
        precision.load_state_dict(torch.amp.GradScaler(fabric.device.type).state_dict())
    average = WeightAverage.of(trained, stage.average, stage.epochs)
    state = StageState(model, objective, optimizer, precision, average, teacher)
    chooses = validate is not None if keep is None else keep == "best"
    records: list[Record] = []
    if checkpoint is not None and checkpoint.exists():
        records = [Record(**fields) for fields in state.restore(checkpoint, stage.name)]
    if earlier and not records:
        records = list(earlier)
        errors = [record.val_error for record in earlier if record.val_error is not None]
        if chooses and errors:
            state.note_error(min(errors))
    records = [replace(record, epochs=stage.epochs) for record in records]
    yield from records
    if start is not None and not records:  # else the records have it already
        state.note_error(start.val_error if chooses else None)
        records.append(start)
        yield start
    if compiled and encode is None:
        objective.compile_encoder()
    measure = _remembered(validate or watch, state) if chooses else validate or watch
    is_seldom = validate is None or (average is not None and batches.normalised)
    run_epoch = _EpochRunner(
        fabric, objective, optimizer, stage, batches, average, teacher, encode, compiled, graphed
    )
    for epoch in range(records[-1].epoch + 1 if records else 1, stage.epochs + 1):
        is_last = epoch == stage.epochs
        is_due = epoch % math.ceil(stage.epochs / QUICK_PROBES) == 0 or not is_seldom
        is_due = is_due or (is_last and chooses)
        records.append(run_epoch(epoch, measure if is_due else None))
        if checkpoint is not None and fabric.is_global_zero:
            fields = [asdict(record) for record in records]
            state.save(checkpoint, stage.name, fields, is_last=is_last)
        fabric.barrier()
        yield records[-1]
    run_epoch.use_average()
    state.finish()


def _remembered(
    measure: Callable[[], float] | None, state: StageState
) -> Callable[[], float] | None:
    """A function that measures the error and remembers the best weights so far."""

    def remembered() -> float:
        assert measure is not None
        error = measure()
        state.note_error(error)
        return error

    return None if measure is None else remembered


def _trained(objective: Objective, stage: str) -> list[nn.Parameter]:
    trained = [parameter for parameter in objective.parameters() if parameter.requires_grad]
    if not trained:
        raise ValueError(
            f"Stage {stage!r} has nothing to train: every parameter of the encoder has "
            "requires_grad=False. Let some learn, or fit only a head on its features."
        )
    return trained


class _EpochRunner:
    """Runs an epoch. Its steps do not wait for the device, which is read once at their end."""

    def __init__(
        self,
        fabric: "Fabric",
        objective: Objective,
        optimizer: torch.optim.Optimizer,
        stage: Stage,
        batches: Batches,
        average: WeightAverage | None,
        teacher: Teacher | None,
        encode: Callable[[Tensor], Tensor] | None,
        compiled: bool,
        graphed: bool,
    ) -> None:
        self.fabric, self.stage, self.batches, self.objective = fabric, stage, batches, objective
        self.encode, self.compiled = encode, compiled
        self.average, self.teacher = average, teacher
        self.normalisations = normalisations(objective.encoder)
        self.rates = optimizer  # Fabric's wrapper below shares its parameter groups
        self.wrapped, self.optimizer = fabric.setup(objective, optimizer)
        self.totals = torch.zeros(2, device=fabric.device, dtype=torch.float64)
        self.pending = 0  # steps whose gradients were added up since the last update
        self.full_step = GraphedStep(self._step) if graphed else self._step

    def __call__(self, epoch: int, measure: Callable[[], float] | None) -> Record:
        """Train for one epoch, and then measure the error if `measure` is given."""
        stage, started = self.stage, time.perf_counter()
        lr = learning_rate(epoch, stage.epochs, stage.lr, stage.lr_decay, stage.warm_up)
        set_rate(self.rates, lr)
        torch.manual_seed(seed_of(self.batches.seed, stage.name, epoch, self.fabric.global_rank))
        self.objective.train()
        loss, gap = self._train(epoch)
        self.objective.after_epoch()
        stop_if_diverged(loss, stage.name, epoch, hint=self.objective.hint)
        if self.average is not None:
            self.average.after_epoch(epoch)
        error = None if measure is None else self._measured(measure)
        stop_if_diverged(error or 0.0, stage.name, epoch, what="validation error")
        if self.teacher is not None and self.teacher.is_due(epoch):
            self._measured(self.teacher.teach)
        seconds = time.perf_counter() - started
        return Record(stage.name, epoch, stage.epochs, lr, loss, gap, error, seconds)

    def _measured(self, measure: Callable[[], Result]) -> Result:
        """The result of `measure`, with the mean of the weights in the model if there is one."""
        if self.average is None or not self.average.count > 0:
            return measure()
        with self.average.applied(self.normalisations):
            self._take_statistics()
            return measure()

    def use_average(self) -> None:
        """Replace the weights of the model by their mean, if there is one."""
        if self.average is not None and self.average.count > 0:
            self.average.apply()
            self._take_statistics()

    def _take_statistics(self) -> None:
        """Compute the batch-norm statistics for the current weights."""
        stage = self.stage
        views = self.batches.whole_views(
            f"{stage.name} statistics",
            batch_size=stage.chunk or stage.batch_size,
            views=stage.views,
        )
        with self.fabric.autocast():
            take_statistics(self.objective.encoder, views)

    def _train(self, epoch: int) -> tuple[float, float | None]:
        """Train for one epoch; return the mean loss and its mean gap to the bound."""
        stage, samples = self.stage, 0
        steps = self.batches.steps(stage.batch_size, drop_last=stage.drop_last, passes=stage.passes)
        self.totals.zero_()
        self.optimizer.zero_grad()
        for done, picked in enumerate(self._picked(epoch)):
            now = time.perf_counter()
            PULSE.now = Step(stage.name, epoch, stage.epochs, done, steps, now)
            samples += len(picked.rows)
            if epoch <= stage.warm_up:
                share = ((epoch - 1) * steps + done + 1) / (stage.warm_up * steps)
                set_rate(self.rates, stage.lr * share)
            if len(picked.rows) == stage.batch_size:
                self.full_step(picked)
            else:
                with torch.compiler.set_stance("force_eager"):  # not worth another compilation
                    self._step(picked)
        if self.pending:  # each loss was divided by `accumulate`, but fewer were added up
            grads = [p.grad for p in self.wrapped.parameters() if p.grad is not None]
            torch._foreach_mul_(grads, stage.accumulate / self.pending)
            self._update()
        loss, bound = (self.totals / max(1, samples)).tolist()
        return loss, None if stage.bound is None else loss - bound

    def _picked(self, epoch: int) -> Iterator[Picked]:
        stage, size = self.stage, self.stage.batch_size
        picked = self.batches.epoch(
            stage.name,
            epoch,
            batch_size=size,
            views=stage.views,
            drop_last=stage.drop_last,
            mixed=stage.mixed,
            passes=stage.passes,
        )
        if self.encode is None:
            return picked
        return self.batches.encoded(picked, self.encode, batch_size=size, compiled=self.compiled)

    def _step(self, picked: Picked) -> None:
        """Run one step, without waiting for the device."""
        stage, batch = self.stage, self.batches.make(picked)
        views, count = batch.views.shape[1], len(batch.all_targets)
        labels = BatchLabels(batch.targets, batch.weights, batch.sample_weights, batch.upper)
        times, weights = stage.accumulate, batch.all_weights
        if stage.chunk:
            loss = cached_backward(
                self.fabric, self.objective, batch.views, labels, chunk=stage.chunk, times=times
            )
        else:
            loss = self.wrapped(batch.views, labels)
            self.fabric.backward(loss / times)
        self.pending += 1
        if self.pending == stage.accumulate:
            self._update()
        self.totals[0] += loss.detach() * count
        if stage.bound is not None:
            more = {"weights": weights, "upper": batch.all_upper}
            more = {name: values for name, values in more.items() if values is not None}
            self.totals[1] += stage.bound(batch.all_targets, views=views, **more) * count

    def _update(self) -> None:
        clip = self.stage.clip
        if clip is not None:
            self.fabric.clip_gradients(
                self.wrapped, self.optimizer, max_norm=clip, error_if_nonfinite=False
            )
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.objective.after_update()
        if self.average is not None:
            self.average.after_update()
        self.pending = 0


def stop_if_diverged(
    value: float, stage: str, epoch: int, what: str = "loss", *, hint: str = ""
) -> None:
    """Raise if a loss or an error is not finite, before more time is spent on training."""
    if not math.isfinite(value):
        raise FloatingPointError(
            f"The {what} of stage {stage!r} became {value} in epoch {epoch}. Lower the learning "
            "rate (--lr), clip gradients (--clip 1) or train in full precision (--precision 32)."
            + (f" {hint}" if hint else "")
        )
