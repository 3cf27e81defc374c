"""The reports of training: a record per epoch, and its current step for a progress bar.

This file is separate from the loop, which takes seconds to import.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import MISSING, dataclass, fields
from typing import NamedTuple, TypeVar

Item = TypeVar("Item")


@dataclass(frozen=True)
class Record:
    """The result of one epoch. Epoch 0 is the start of a stage, if it may be the best."""

    stage: str
    epoch: int
    epochs: int
    lr: float
    train_loss: float
    gap: float | None
    """Mean of the loss minus its lower bound, if the objective has one."""
    val_error: float | None
    """The validation error, in epochs that measure it. If an encoder is trained without a head, it
    is that of a quick probe of its features: `rnc.training.probe.probe_error`."""
    seconds: float
    penalty: float | None = None
    """The ridge penalty that validation chose, if the head was solved."""
    balance: float | None = None
    """The exponent of the sample weights, if the head was solved: `rnc.training.balance`."""


RECORD_FIELDS = [field.name for field in fields(Record)]
NEEDED_FIELDS = [field.name for field in fields(Record) if field.default is MISSING]
"""The fields that records of every version have."""
ShowRecord = Callable[[Record], None]
"""A function that gets the record of every epoch, for instance to show progress."""


class Step(NamedTuple):
    """A point in a training: how many steps of an epoch, or of a task without epochs, are done."""

    stage: str
    """The name of the stage, or of the task."""
    epoch: int = 0
    epochs: int = 0
    done: int = 0
    steps: int = 0
    """The number of steps in the epoch or the task; 0 if it is not known."""
    at: float = 0.0
    """The time in seconds, from `time.perf_counter`."""

    @property
    def epochs_done(self) -> float:
        """How many epochs are done, including a part of the current one."""
        return self.epoch - 1 + self.done / max(1, self.steps)


@dataclass
class Pulse:
    """The current step of this process. Training writes it, and a progress bar reads it."""

    now: Step | None = None
    label: str = ""
    """Which of several trainings it is, such as "RnC(L1) seed 2"."""


PULSE = Pulse()


def told(stage: str, items: Iterable[Item], steps: int) -> Iterator[Item]:
    """The same items. Each counts as a step of a task without epochs, which PULSE shows."""
    for done, item in enumerate(items):
        PULSE.now = Step(stage, done=done, steps=steps, at=time.perf_counter())
        yield item
