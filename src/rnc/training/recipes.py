"""Recipes: where data, encoder, head, objective and loop meet.

    build_regressor   a new model that fits a table
    train             the stages of a scheme, one Record per epoch; the model ends as it should be

Schemes: probe = encoder by RnC, then the head on it, frozen; finetune = then head and encoder;
regularize = head loss + weight x RnC; end2end = head loss alone; auto = all four, of which the
best on validation stays, with probe and finetune sharing one encoder.
"""

import dataclasses
import math
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from rnc.augment import Augment, ImageAugment, SignalAugment, TableAugment
from rnc.config import FitConfig
from rnc.data.table import Table
from rnc.encoders import build_encoder, default_encoder, feature_size
from rnc.files import read_tensors, write_tensors
from rnc.heads import head_config
from rnc.metrics import angular_error, mae
from rnc.model import ModelConfig, Regressor, input_shape_of
from rnc.theory import lower_bound
from rnc.training.batches import Batches
from rnc.training.loop import Record, Stage, make_fabric, run_stage
from rnc.training.probe import solve_head
from rnc.training.speed import is_compiled, is_graphed, tf32
from rnc.training.steps import check_finite, contrast_step, head_step, regularized_step

AUTO = ("end2end", "probe", "finetune", "regularize")


def build_regressor(table: Table, config: FitConfig, encoder: nn.Module | None = None) -> Regressor:
    """A new model for this data; its weights depend on config.seed alone.

    Args:
        table: the data; the head takes its range or scale from the training targets.
        config: encoder, head, augmentation and seed.
        encoder: a module of the caller's own instead of config.encoder.
    """
    torch.manual_seed(config.seed)
    train = table.rows("train")
    augment = _augment(table, config)
    shape = input_shape_of(table.x[train[:1]], augment)
    name = default_encoder(shape) if config.encoder == "auto" else config.encoder
    module = build_encoder(
        name if encoder is None else encoder, shape, pretrained=config.pretrained
    )
    head = head_config(
        config.head,
        feature_size(module, shape),
        table.y[train],
        low=config.low,
        high=config.high,
        step=config.step,
    )
    model_config = ModelConfig(
        kind=table.kind,
        encoder=name if encoder is None else "own",
        input_shape=shape,
        augment=dataclasses.asdict(augment),
        head=dataclasses.asdict(head),
        target_names=table.target_names,
        preprocessing=table.preprocessing,
    )
    model = Regressor(model_config, module)
    if table.kind == "signal":
        _standardise_signals(model, table.x[train])
    return model


def train(
    model: Regressor, table: Table, config: FitConfig, folder: Path | None = None
) -> Iterator[Record]:
    """Train a model in place by the scheme of config.

    Args:
        model: from `build_regressor`, on any device.
        table: training and validation rows; test rows are not touched.
        config: how.
        folder: where checkpoints live; what it already holds is not done again.
    """
    config = config.resolve()
    _check_rows(table, config)
    with tf32(config):
        yield from _train(_Job(model, table, config, folder))


def _train(job: "_Job") -> Iterator[Record]:
    model, config = job.model, job.config
    if config.scheme != "auto":
        yield from job.scheme(config.scheme)
        return
    best: tuple[float, dict[str, Tensor]] | None = None
    for scheme in AUTO:
        yield from job.scheme(scheme, prefix=f"{scheme}/")
        error = job.validate()
        if best is None or error < best[0]:
            best = (error, _weights(model))
    assert best is not None
    model.load_state_dict(best[1])


class _Job:
    """What the stages of one run share."""

    def __init__(
        self, model: Regressor, table: Table, config: FitConfig, folder: Path | None
    ) -> None:
        self.fabric = make_fabric(config)
        self.model, self.table, self.config, self.folder = model, table, config, folder
        model.to(self.fabric.device)
        channels_last = (
            self.fabric.device.type == "cuda" and table.kind == "image" and config.channels_last
        )
        if channels_last:
            model.encoder.to(memory_format=torch.channels_last)
        self.start = _weights(model)
        self.encoded: dict[str, Tensor] | None = None
        self.batches = Batches(
            table,
            model,
            device=self.fabric.device,
            rank=self.fabric.global_rank,
            world_size=self.fabric.world_size,
            seed=config.seed,
            resident=config.resident,
            channels_last=channels_last,
        )
        self.many = self.fabric.world_size > 1
        self.measure = angular_error if config.label_distance == "angular" else mae

    def scheme(self, name: str, prefix: str = "") -> Iterator[Record]:
        """All stages of a scheme, from the first weights on."""
        self.model.load_state_dict(self.start)
        if name in ("probe", "finetune"):
            yield from self._encode()
            last = self._head_stage if name == "probe" else self._finetune_stage
        else:
            last = self._regularize_stage if name == "regularize" else self._end2end_stage
        yield from self._finished(f"{prefix}{'head' if name == 'probe' else name}", last)

    def validate(self) -> float:
        """Mean absolute error (of angles: angular) on the validation rows; inf after divergence."""
        rows = self.table.rows("val")
        predicted = self.model.predict(self.table.x[rows])
        error = self.measure(predicted, self.table.y[rows]) if _finite(predicted) else math.inf
        # Running statistics differ between processes: one of them decides what is best.
        return self.fabric.broadcast(error)

    def _encode(self) -> Iterator[Record]:
        """Train the encoder, or take the one that another scheme of this run trained."""
        if self.encoded is None:
            yield from self._finished("encoder", self._encoder_stage)
            self.encoded = _weights(self.model)
        self.model.load_state_dict(self.encoded)

    def _finished(self, name: str, run: Callable[[str], Iterator[Record]]) -> Iterator[Record]:
        """Run a stage, or take its result where an earlier call finished it."""
        path = self._file(f"{name.replace('/', '-')}.safetensors")
        # A process that asked later might see the file of this very run.
        if path is not None and self.fabric.broadcast(path.exists()):
            weights, records = read_tensors(path)
            self.model.load_state_dict(weights)
            yield from (Record(**record) for record in records)
            return
        records = []
        for record in run(name):
            records.append(dataclasses.asdict(record))
            yield record
        if path is not None and self.fabric.is_global_zero:
            write_tensors(path, self.model.state_dict(), records)
        self.fabric.barrier()

    def _file(self, name: str) -> Path | None:
        return None if self.folder is None else self.folder / "checkpoint" / name

    def _run(self, stage: Stage, validate: Callable[[], float] | None) -> Iterator[Record]:
        compiled = is_compiled(self.config, self.model, stage, len(self.batches))
        if compiled:
            self.batches.compile()
        return run_stage(
            self.fabric,
            self.model,
            stage,
            self.batches,
            validate=validate,
            checkpoint=self._file("last.safetensors"),
            compiled=compiled,
            graphed=is_graphed(self.config, self.model, stage, self.fabric.world_size),
        )

    def _stage(self, name: str, **changes: Any) -> Stage:
        config = self.config
        assert config.epochs is not None
        assert config.optimizer is not None
        stage = Stage(
            name=name,
            step=head_step(self.model.head, gather=self.many),
            part="all",
            epochs=config.epochs,
            batch_size=config.batch_size,
            views=min(1, config.views),
            optimizer=config.optimizer,
            lr=config.rate(contrast=False),
            lr_decay=config.lr_decay,
            weight_decay=config.weight_decay,
            accumulate=config.accumulate,
            clip=config.clip,
        )
        return dataclasses.replace(stage, **changes)

    def _encoder_stage(self, name: str) -> Iterator[Record]:
        config = self.config
        bound = partial(_bound, config=config)
        step = contrast_step(config, gather=self.many)
        stage = self._stage(
            name,
            step=step,
            part="encoder",
            views=config.views,
            lr=config.rate(contrast=True),
            drop_last=True,
            bound=bound,
        )
        return self._run(stage, None)

    def _end2end_stage(self, name: str) -> Iterator[Record]:
        return self._run(self._stage(name), self.validate)

    def _regularize_stage(self, name: str) -> Iterator[Record]:
        step = regularized_step(self.config, self.model.head, gather=self.many)
        stage = self._stage(name, step=step, views=self.config.views, drop_last=True)
        return self._run(stage, self.validate)

    def _finetune_stage(self, name: str) -> Iterator[Record]:
        """From the RnC encoder and a head solved on it, all weights at a tenth of the rate."""
        yield from ()
        self._solve(name)
        assert self.config.head_epochs is not None
        rate = self.config.rate(contrast=False) / 10
        stage = self._stage(name, epochs=self.config.head_epochs, lr=rate)
        yield from self._run(stage, self.validate)

    def _head_stage(self, name: str) -> Iterator[Record]:
        config = self.config
        assert config.head_epochs is not None
        assert config.head_lr is not None
        if config.head_solver == "exact":
            started = time.perf_counter()
            loss, error = self._solve(name)
            seconds = time.perf_counter() - started
            yield Record(name, 1, 1, 0.0, loss, None, error, seconds)
            return
        stage = self._stage(
            name,
            part="head",
            epochs=config.head_epochs,
            batch_size=config.head_batch_size,
            lr=config.head_lr,
            lr_decay=0.2,
            weight_decay=0.0,
        )
        features, targets = self._embedded("val")

        def validate() -> float:  # the encoder is frozen: its features stay the same
            with torch.no_grad():
                predicted = self.model.head.decode(self.model.head(features))
            error = self.measure(predicted, targets) if predicted.isfinite().all() else math.inf
            return self.fabric.broadcast(error)

        yield from self._run(stage, validate)

    def _embedded(self, split: str) -> tuple[Tensor, Tensor]:
        """Features and targets of the rows of a split."""
        rows, device = self.table.rows(split), self.fabric.device
        features = torch.tensor(self.model.embed(self.table.x[rows]), device=device)
        return features, torch.tensor(self.table.y[rows], device=device)

    def _solve(self, name: str) -> tuple[float, float]:
        train, val = self._embedded("train"), self._embedded("val")
        loss, error = solve_head(self.model.head, *train, *val, measure=self.measure)
        check_finite(loss, name, 1)
        return loss, error


def _weights(model: Regressor) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in model.state_dict().items()}


def _finite(values: np.ndarray) -> bool:
    return bool(np.isfinite(values).all())


def _bound(targets: Tensor, views: int, config: FitConfig) -> Tensor:
    return lower_bound(
        targets, views=views, label_distance=config.label_distance, period=config.period
    )


def _augment(table: Table, config: FitConfig) -> Augment:
    if table.kind == "image":
        side = min(table.x.shape[2:])
        return ImageAugment(
            size=min(config.image_size, side),
            crop_scale=(0.2, 1.0) if config.crop else None,
            flip=config.flip,
            jitter=(0.4, 0.4, 0.4, 0.1) if config.color else None,
            grayscale_p=0.2 if config.grayscale else 0.0,
        )
    if table.kind == "signal":
        return SignalAugment() if config.crop else SignalAugment(crop=1.0)
    return TableAugment()


def _standardise_signals(model: Regressor, x: np.ndarray) -> None:
    """Learn shift and scale of every channel from the training signals."""
    model.input_shift.copy_(torch.tensor(x.mean(axis=(0, 2), dtype=np.float64))[:, None])
    scale = torch.tensor(x.std(axis=(0, 2), dtype=np.float64))[:, None]
    model.input_scale.copy_(torch.where(scale > 0, scale, 1.0))


def _check_rows(table: Table, config: FitConfig) -> None:
    counts = {split: len(table.rows(split)) for split in ("train", "val", "test")}
    if counts["train"] < config.batch_size:
        raise ValueError(
            f"A batch needs batch_size = {config.batch_size} training rows; got {counts['train']}. "
            f"Lower it: --batch-size {max(2, counts['train'] // 4)}."
        )
    if not counts["val"]:
        have = ", ".join(f"{count} {split}" for split, count in counts.items())
        raise ValueError(
            f"Training needs validation rows to choose the best weights by; got {have}. Mark some "
            "rows val, or let a seeded split be made."
        )
