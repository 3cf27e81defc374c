"""Records that no epoch of training made: of an untrained encoder, and of a solved head."""

import time

import torch

from rnc.methods.objective import BatchLabels, Objective
from rnc.training.batches import Batches
from rnc.training.loop import Stage
from rnc.training.probe import HeadFit
from rnc.training.record import Record
from rnc.training.validation import Validation


def untrained_record(
    batches: Batches, objective: Objective, stage: Stage, validation: Validation
) -> Record:
    """The record of epoch 0, for an encoder whose features may be best without training.

    It has the loss of one batch, and the error of a quick probe.
    """
    started = time.perf_counter()
    objective.to(batches.device)
    picked = next(
        batches.epoch(stage.name, 0, batch_size=stage.batch_size, views=stage.views, drop_last=True)
    )
    batch = batches.make(picked)
    labels = BatchLabels(batch.targets, batch.weights, batch.sample_weights, batch.upper)
    with torch.no_grad():
        loss = float(objective(batch.views, labels))
    error, seconds = validation.encoder_error(), time.perf_counter() - started
    return Record(stage.name, 0, stage.epochs, 0.0, loss, None, error, seconds)


def solved_record(name: str, epoch: int, epochs: int, found: HeadFit, started: float) -> Record:
    """The record of a solved head; `started` is the time when solving began."""
    seconds = time.perf_counter() - started
    chosen = {"penalty": found.penalty, "balance": found.balance}
    return Record(name, epoch, epochs, 0.0, found.loss, None, found.error, seconds, **chosen)
