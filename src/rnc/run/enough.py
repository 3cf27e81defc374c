"""Whether a run was trained for long enough, judged by its records."""

import math
from collections.abc import Sequence
from typing import Any

from rnc.config import FitConfig
from rnc.config.sizes import LEAST_UPDATES, Sizes, labelled_batch_size
from rnc.training.record import Record

FEW_UPDATES = 500
"""A training with fewer updates is short."""
NOTABLE = 0.05
"""If the validation error fell by this share or more in the last quarter, it was still falling."""
_FIRST_STAGES = ("encoder", "end2end", "regularize")


def kept_scheme(validation_errors: dict[str, float]) -> str:
    """The scheme that auto kept: the first whose error is the lowest one, up to rounding.

    >>> kept_scheme({"end2end": 2.0, "probe": 1.5, "finetune": 1.5 - 1e-9})
    'probe'
    """
    best = min(validation_errors.values())
    return next(k for k, v in validation_errors.items() if v <= best * (1 + 1e-6))


def training_length(
    records: Sequence[Record], config: FitConfig, rows: Sizes | int, kept: str | None = None
) -> dict[str, Any]:
    """The entry "training" of scores.json: how long it was, and whether that was enough.

    {"updates": of the network, "enough": true or false, "why": the reason if not, else None,
     "epochs": only if not enough: to how many epochs to continue}

    Args:
        records: the records of all epochs.
        config: the resolved config of the run.
        rows: how many rows there were to train on.
        kept: the scheme that auto kept; None for other schemes.
    """
    mine = [r for r in records if kept is None or _belongs(r.stage, kept)]
    trained = [r for r in mine if r.epoch > 0 and _kind(r.stage) in (*_FIRST_STAGES, "finetune")]
    updates = sum(updates_per_epoch(config, rows, _kind(r.stage)) for r in trained)
    found: dict[str, Any] = {"updates": updates, "enough": True, "why": None}
    first = [r for r in trained if _kind(r.stage) in _FIRST_STAGES]
    if not first:  # the encoder comes from another run
        return found
    per_epoch = updates_per_epoch(config, rows, _kind(first[0].stage))
    epochs = first[-1].epoch
    if epochs * per_epoch < FEW_UPDATES:
        why: str | None = f"{epochs * per_epoch:,} updates"
        epochs = max(2 * epochs, math.ceil(LEAST_UPDATES / per_epoch))
    elif (why := _still_falling(first)) is not None:
        epochs = 2 * epochs
    else:
        return found
    return found | {"enough": False, "why": why, "epochs": epochs}


def updates_per_epoch(config: FitConfig, rows: Sizes | int, kind: str) -> int:
    """The number of weight updates in an epoch of a stage."""
    assert config.batch_size is not None
    sizes = config.trained(rows)
    if kind in ("encoder", "regularize"):
        steps = sizes.encoder / config.batch_size
    else:
        steps = sizes.labelled / labelled_batch_size(config.batch_size, sizes)
    whole = math.floor(steps) if kind in ("encoder", "regularize") else math.ceil(steps)
    return math.ceil(whole / config.accumulate)


def _still_falling(records: Sequence[Record]) -> str | None:
    """How far the validation error fell in the last quarter, in words; None if it hardly did."""
    errors = [(r.epoch, r.val_error) for r in records if r.val_error is not None]
    end = records[-1].epoch
    before = [error for epoch, error in errors if epoch <= 0.75 * end]
    after = [error for epoch, error in errors if epoch > 0.75 * end]
    if not before or not after or min(after) > (1 - NOTABLE) * min(before):
        return None
    share = 1 - min(after) / min(before)
    return f"the validation error fell by {share:.0%} in the last quarter of the epochs"


def _kind(stage: str) -> str:
    return stage.rsplit("/", 1)[-1]


def _belongs(stage: str, scheme: str) -> bool:
    """Whether a stage of a run with scheme auto trained the model of this scheme."""
    shared = stage == "encoder" and scheme in ("probe", "finetune")
    return shared or stage.startswith(f"{scheme}/")
