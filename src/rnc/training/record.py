"""What training tells: a record per epoch, and where it is for whoever looks in between.

Kept apart from the loop, which takes seconds to import.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import MISSING, dataclass, fields
from typing import NamedTuple, TypeVar

Item = TypeVar("Item")


@dataclass(frozen=True)
class Record:
    """The result of one epoch; epoch 0 is what a stage started from, where that counts."""

    stage: str
    epoch: int
    epochs: int
    lr: float
    train_loss: float
    gap: float | None
    """Mean of loss minus lower bound, where the objective has one."""
    val_error: float | None
    """The error of the head's predictions. While an encoder is trained without a head, in some
    epochs, that of a quick probe of its features: `rnc.training.probe.probe_error`."""
    seconds: float
    penalty: float | None = None
    """The ridge penalty that validation chose, where the head was solved."""
    balance: float | None = None
    """The exponent of its sample weights, likewise: `rnc.training.balance`."""


RECORD_FIELDS = [field.name for field in fields(Record)]
NEEDED_FIELDS = [field.name for field in fields(Record) if field.default is MISSING]
"""Those that every version had."""
ShowRecord = Callable[[Record], None]
"""What is told about every epoch, such as a progress bar."""


class Step(NamedTuple):
    """A place in a training: so many steps of an epoch are done, or of what has no epochs."""

    stage: str
    """The stage, or what is being done where there are no epochs to count."""
    epoch: int = 0
    epochs: int = 0
    done: int = 0
    steps: int = 0
    """Of an epoch, or in all; 0 where they cannot be counted."""
    at: float = 0.0
    """Seconds, by `time.perf_counter`."""

    @property
    def epochs_done(self) -> float:
        """How many epochs are done, with the part of this one."""
        return self.epoch - 1 + self.done / max(1, self.steps)


@dataclass
class Pulse:
    """Where the training of this process is: written as it goes on, read by a progress bar."""

    now: Step | None = None
    label: str = ""
    """Which of several trainings it is, as in "RnC(L1) seed 2"."""


PULSE = Pulse()


def told(stage: str, items: Iterable[Item], steps: int) -> Iterator[Item]:
    """The items, each a step of something that has no epochs; the pulse says how far it is."""
    for done, item in enumerate(items):
        PULSE.now = Step(stage, done=done, steps=steps, at=time.perf_counter())
        yield item
