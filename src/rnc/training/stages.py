"""The stages of a run: which objective trains which weights, on which batches, from which start."""

import dataclasses
import math
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from rnc.config import FitConfig, Keep
from rnc.data.table import Table
from rnc.heads import head_config
from rnc.methods.objective import HeadObjective, MethodSetup, Objective, PairLoss
from rnc.model import Regressor, without_head
from rnc.training.batches import Batches, Mixup, seed_of
from rnc.training.checkpoint import (
    CHECKPOINT_FOLDER,
    LAST_FILE,
    has_stage,
    read_stage,
    weights_of,
    write_stage,
)
from rnc.training.loop import Stage, make_fabric, run_stage, stop_if_diverged
from rnc.training.objectives import encoder_objective, for_optimizer, head_objective
from rnc.training.partial_rows import for_heads, has_partial_rows, head_batches, partial_batches
from rnc.training.probe import HeadFit
from rnc.training.record import PULSE, Record, Step
from rnc.training.row_weights import row_shares, row_weights
from rnc.training.speed import is_compiled, is_graphed
from rnc.training.start_records import solved_record, untrained_record
from rnc.training.teacher import Teacher
from rnc.training.validation import Validation

AUTO_SHARE = 1 / 3
"""Share of the epochs that scheme auto trains end to end: L1 gains little from more on images.

In preset best, fine-tuning images has a tenth of the epochs. So auto trains on 1.43 times the views
of probe alone.
"""
StageFunction = Callable[[str], Iterator[Record]]
"""A function that runs the stage with the given name."""


class SchemeRunner:
    """Runs the stages of a scheme, and holds what they share.

    The arguments are those of `rnc.training.recipes.train`, with a resolved config.
    """

    def __init__(
        self,
        model: Regressor,
        table: Table,
        config: FitConfig,
        folder: Path | None,
        own: PairLoss | None = None,
        encoder_weights: Mapping[str, Tensor] | None = None,
    ) -> None:
        self.fabric = make_fabric(config, own=model.config.encoder == "own")
        self.model, self.table, self.config, self.folder = model, table, config, folder
        self.by_head = for_heads(config, table)
        self.own, self.encoder_weights = own, encoder_weights
        model.to(self.fabric.device)
        channels_last = (
            self.fabric.device.type == "cuda" and table.kind == "image" and config.channels_last
        )
        if channels_last:
            model.encoder.to(memory_format=torch.channels_last)
        self.start = weights_of(model)
        self.encoded: dict[str, Tensor] | None = None
        self.earlier: list[Record] = []
        """The records of a finished stage that goes on with more epochs."""
        sample_weights, weights = row_weights(config, table)
        self._served: dict[str, Any] = {
            "device": self.fabric.device,
            "rank": self.fabric.global_rank,
            "world_size": self.fabric.world_size,
            "seed": config.seed,
            "resident": config.resident,
            "channels_last": channels_last,
        }
        self.batches = Batches(
            table,
            model,
            **self._served,
            mixup=Mixup.of(config) if config.c_mixup else None,
            weights=weights,
            sample_weights=sample_weights,
            shares=row_shares(config, table),
        )
        self.head_batches = head_batches(table, model, config, self.batches, **self._served)
        self.gather = self.fabric.world_size > 1
        self.validation = Validation(self.fabric, model, table, config.distance)

    def scheme(self, name: str, prefix: str = "") -> Iterator[Record]:
        """Run all stages of a scheme, from the initial weights."""
        self.model.load_state_dict(self.start)
        if name in ("probe", "finetune"):
            yield from self.encode()
        if name == "two-stage":
            yield from self._first_stage("end2end", self._end2end_stage)
            self._new_l1_head()
        stages: dict[str, StageFunction] = {
            "probe": self._head_stage,
            "two-stage": partial(self._head_stage, weighted=False),
            "finetune": self._finetune_stage,
            "regularize": self._regularize_stage,
            "end2end": self._end2end_stage,
        }
        last = "head" if name in ("probe", "two-stage") else name
        yield from self._finished(f"{prefix}{last}", stages[name])

    def encode(self) -> Iterator[Record]:
        """Train the encoder, or take the one that another scheme of this run trained."""
        if self.encoded is None:
            yield from self._first_stage("encoder", self._encoder_stage)
            self.encoded = weights_of(self.model)
        self.model.load_state_dict(self.encoded)

    def _first_stage(self, name: str, run: StageFunction) -> Iterator[Record]:
        """Run the stage before the head, or take the weights that were given instead."""
        if self.encoder_weights is None:
            yield from self._finished(name, run)
            return
        self.model.load_state_dict(self.start | without_head(self.encoder_weights))
        self._keep(name, [])  # so that a resumed run does not need the given weights

    def _finished(self, name: str, run: StageFunction) -> Iterator[Record]:
        """Run a stage, or take its result if an earlier call finished it."""
        path = self._stage_file(name)
        # One process checks for all: a late one might see the file that this very run has written.
        if path is not None and self.fabric.broadcast(has_stage(path)):
            weights, records = read_stage(path)
            self.model.load_state_dict(weights)
            if not records or records[-1]["epoch"] >= self._epochs(name):
                yield from (Record(**record) for record in records)
                return
            self.earlier = [Record(**record) for record in records]  # more epochs are asked for
        records = []
        for record in run(name):
            records.append(dataclasses.asdict(record))
            yield record
        self.earlier = []
        self._keep(name, records)

    def _epochs(self, name: str) -> int:
        """How many epochs a stage has."""
        config, kind = self.config, name.rsplit("/", 1)[-1]
        assert config.epochs is not None
        assert config.head_epochs is not None
        if kind == "head" and config.head_solver == "exact":
            return 1
        if kind in ("head", "finetune"):
            return config.head_epochs
        is_short = config.scheme == "auto" and kind == "end2end"
        return auto_epochs(config.epochs) if is_short else config.epochs

    def _keep(self, name: str, records: list[dict[str, Any]]) -> None:
        """Write the result of a stage."""
        path = self._stage_file(name)
        if path is not None and self.fabric.is_global_zero:
            write_stage(path, self.model.state_dict(), records)
        self.fabric.barrier()

    def _stage_file(self, name: str) -> Path | None:
        return self._file(f"{name.replace('/', '-')}.safetensors")

    def _file(self, name: str) -> Path | None:
        return None if self.folder is None else self.folder / CHECKPOINT_FOLDER / name

    def _run(
        self,
        stage: Stage,
        objective: Objective,
        validate: Callable[[], float] | None,
        frozen: bool = False,
        start: Record | None = None,
        keep: Keep | None = None,
        batches: Batches | None = None,
        teacher: Teacher | None = None,
    ) -> Iterator[Record]:
        batches = batches or self.batches
        compiled = is_compiled(self.config, self.model, stage, len(batches))
        if compiled:
            batches.compile()
        return run_stage(
            self.fabric,
            self.model,
            objective,
            stage,
            batches,
            encode=self._encode_frozen if frozen else None,
            validate=validate,
            watch=self.validation.encoder_error,
            keep=keep,
            start=start,
            earlier=self.earlier,
            teacher=teacher,
            checkpoint=self._file(LAST_FILE),
            compiled=compiled,
            graphed=is_graphed(self.config, self.model, stage, self.fabric.world_size),
            scaled=self.config.precision == "16",
        )

    def _stage(self, name: str, **changes: Any) -> Stage:
        """A stage that trains by a head's loss, with one view of each sample in a batch."""
        config = self.by_head
        assert config.epochs is not None
        assert config.batch_size is not None
        assert config.optimizer is not None
        assert config.weight_decay is not None
        assert config.warm_up is not None
        assert config.average is not None
        passes = max(1, config.head_views)
        stage = Stage(
            name=name,
            epochs=config.epochs,
            batch_size=config.batch_size * passes,
            views=min(1, config.head_views),
            passes=passes,
            warm_up=config.warm_up,
            average=config.average,
            optimizer=config.optimizer,
            lr=config.rate(contrast=False),
            lr_decay=config.lr_decay,
            weight_decay=config.weight_decay,
            accumulate=config.accumulate,
            chunk=config.chunk,
            clip=config.clip,
            mixed=config.c_mixup,
            layer_decay=config.layer_decay,
        )
        stage = dataclasses.replace(stage, **changes)
        is_whole = stage.chunk * self.fabric.world_size >= stage.batch_size
        return dataclasses.replace(stage, chunk=0) if is_whole else stage

    def _contrast_stage(self, name: str, **changes: Any) -> Stage:
        """A stage that contrasts the samples of a batch, with several views of each."""
        return self._stage(
            name,
            batch_size=self.config.batch_size,
            views=self.config.contrast_views,
            passes=1,
            drop_last=True,
            queue=self.config.queue,
            **changes,
        )

    def _encoder_stage(self, name: str) -> Iterator[Record]:
        config = self.config
        stage = self._contrast_stage(name, lr=config.rate(contrast=True))
        batches = self._encoder_batches()
        setup, bound = self._setup(stage, batches), config.objective_spec.bound
        if bound is not None and not stage.queue:  # it holds for a batch alone
            bound = partial(bound, label_distance=config.distance)
            stage = dataclasses.replace(stage, bound=bound)
        torch.manual_seed(seed_of(config.seed, name))
        objective = encoder_objective(self.model, config, setup, self.own)
        assert config.keep is not None
        teacher = Teacher.of(self.fabric, self.validation, batches, config, stage.epochs)
        start = None
        if config.freeze and not self.earlier:  # its untrained features may be the best
            start = untrained_record(batches, objective, stage, self.validation)
        return self._run(
            stage, objective, None, keep=config.keep, start=start, batches=batches, teacher=teacher
        )

    def _encoder_batches(self) -> Batches:
        """The batches of the encoder, with rows of missing or partly known targets if it can."""
        if not (self.config.takes_partial and has_partial_rows(self.table)):
            return self.batches
        return partial_batches(self.table, self.model, self.batches.shares, **self._served)

    def _setup(self, stage: Stage, batches: Batches | None = None) -> MethodSetup:
        """What the methods need to know about a stage."""
        steps = (batches or self.batches).steps(
            stage.batch_size, drop_last=stage.drop_last, passes=stage.passes
        )
        return MethodSetup(
            d=self.model.head.config.d,
            targets=self.batches.known_targets,
            updates=stage.epochs * math.ceil(steps / stage.accumulate),
            gather=self.gather,
            options=self.config.method_options,
            views=max(1, stage.views),
        )

    def _end2end_stage(self, name: str) -> Iterator[Record]:
        stage = self._stage(name, epochs=self._epochs(name))
        batches = self.head_batches
        objective = head_objective(self.model, self.config, self._setup(stage, batches))
        return self._run(stage, objective, self.validation.model_error, batches=batches)

    def _regularize_stage(self, name: str) -> Iterator[Record]:
        stage, batches = self._contrast_stage(name), self.head_batches
        setup, term = self._setup(stage, batches), self.config.objective_spec.term
        assert term is not None
        terms = [(self.config.rnc_weight, term(setup))]
        objective = head_objective(self.model, self.config, setup, terms)
        return self._run(stage, objective, self.validation.model_error, batches=batches)

    def _finetune_stage(self, name: str) -> Iterator[Record]:
        """Train encoder and head together, at a tenth of the learning rate.

        Epoch 0 is the start: a head solved on the encoder. It is kept if no later epoch is better,
        unless finetune_keep is "last".
        """
        start = None if self.earlier else self._solved_start(name)
        epochs = self._epochs(name)
        stage = self._stage(name, epochs=epochs, lr=self.by_head.rate(contrast=False) / 10)
        batches = self.head_batches
        objective = head_objective(self.model, self.config, self._setup(stage, batches))
        keep, error = self.config.finetune_keep, self.validation.model_error
        yield from self._run(stage, objective, error, start=start, keep=keep, batches=batches)

    def _solved_start(self, name: str) -> Record:
        """Solve the head, and return the record of epoch 0."""
        started = time.perf_counter()
        found = self._solve(name, self.head_batches.weights)
        error = self.validation.model_error()
        stop_if_diverged(error, name, 0, what="validation error")
        return solved_record(name, 0, self._epochs(name), found._replace(error=error), started)

    def _new_l1_head(self) -> None:
        torch.manual_seed(seed_of(self.config.seed, "l1 head"))
        targets = self.batches.known_targets
        head = head_config("l1", self.model.head.config.d, targets)
        self.model.replace_head(for_optimizer(head, self.config))

    def _head_stage(self, name: str, *, weighted: bool = True) -> Iterator[Record]:
        config = self.config
        assert config.head_epochs is not None
        assert config.head_lr is not None
        if config.head_solver == "exact":
            started = time.perf_counter()
            batches = self.head_batches
            found = self._solve(name, batches.weights if weighted else batches.sample_weights)
            yield solved_record(name, 1, 1, found, started)
            return
        stage = self._stage(
            name,
            epochs=config.head_epochs,
            batch_size=config.head_batch_size,
            lr=config.head_lr,
            lr_decay=0.2,
            weight_decay=config.head_weight_decay,
            mixed=False,
            passes=1,
            warm_up=0,
            average=0.0,
            chunk=0,
        )
        # The encoder is frozen, so its features stay the same.
        rows = self.table.rows("val")
        validate = partial(self.validation.head_error, *self.validation.embedded(rows))
        self.model.encoder.eval()
        head = HeadObjective(nn.Identity(), self.model.head, weighted=weighted, gather=self.gather)
        yield from self._run(stage, head, validate, frozen=True, batches=self.head_batches)

    def _encode_frozen(self, views: Tensor) -> Tensor:
        with self.fabric.autocast():
            features: Tensor = self.model.encoder(views)  # one view each, even if tests have more
            return features

    def _solve(self, name: str, weights: Tensor | None) -> HeadFit:
        PULSE.now = Step(name)
        rows = self.head_batches.rows
        found = self.validation.solve_head(rows, weights, self.config.balance)
        stop_if_diverged(found.loss, name, 1)
        return found


def auto_epochs(epochs: int) -> int:
    """Epochs of end-to-end training in scheme auto.

    >>> auto_epochs(200), auto_epochs(1)
    (67, 1)
    """
    return math.ceil(AUTO_SHARE * epochs)
