"""What a training step minimises: plain functions of a batch's features, outputs and targets."""

import math
from collections.abc import Callable

from torch import Tensor

from rnc.batch import repeat_views
from rnc.config import FitConfig
from rnc.distributed import global_mean
from rnc.heads import Head
from rnc.loss import rnc_loss

Step = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Features (n, v, d), head outputs (n, v, .) and targets (n, t) -> the mean loss of the batch, the
same in every process."""


def contrast_step(config: FitConfig, *, gather: bool) -> Step:
    """The RnC loss of the features."""

    def step(features: Tensor, outputs: Tensor, targets: Tensor) -> Tensor:
        return rnc_loss(
            features,
            targets,
            temperature=config.temperature,
            label_distance=config.label_distance,
            similarity=config.similarity,
            period=config.period,
            gather=gather,
            validate=False,  # `check_finite` says it, with a remedy
        )

    return step


def head_step(head: Head, *, gather: bool) -> Step:
    """The head's own loss, over all views, and with `gather` over all processes."""

    def step(features: Tensor, outputs: Tensor, targets: Tensor) -> Tensor:
        views = outputs.shape[1]
        losses = head.loss(outputs.flatten(0, 1), repeat_views(targets, views))
        return global_mean(losses) if gather else losses.mean()

    return step


def regularized_step(config: FitConfig, head: Head, *, gather: bool) -> Step:
    """The head's loss plus rnc_weight times the RnC loss."""
    contrast, supervised = contrast_step(config, gather=gather), head_step(head, gather=gather)

    def step(features: Tensor, outputs: Tensor, targets: Tensor) -> Tensor:
        extra = contrast(features, outputs, targets)
        return supervised(features, outputs, targets) + config.rnc_weight * extra

    return step


def check_finite(value: float, stage: str, epoch: int, what: str = "loss") -> None:
    """Raise where training diverged, before more hours are spent on it."""
    if not math.isfinite(value):
        raise FloatingPointError(
            f"The {what} of stage {stage!r} became {value} in epoch {epoch}. Lower the learning "
            "rate (--lr), clip gradients (--clip 1) or train in full precision (--precision 32)."
        )
