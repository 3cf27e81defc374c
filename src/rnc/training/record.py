"""What training tells about an epoch. Kept apart from the loop, which takes seconds to import."""

from collections.abc import Callable
from dataclasses import dataclass, fields


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


RECORD_FIELDS = [field.name for field in fields(Record)]
ShowRecord = Callable[[Record], None]
"""What is told about every epoch, such as a progress bar."""
