"""Whether a config can train on rows with missing or partly known targets: docs/labels.md."""

from typing import TYPE_CHECKING

from rnc.config.sizes import Sizes
from rnc.heads.registry import HEADS

if TYPE_CHECKING:
    from rnc.config import FitConfig


def exact_reason(config: "FitConfig") -> str:
    """Why the head needs exact targets; "" if it can train on intervals, too."""
    head = HEADS[config.head]
    reasons = {
        f"head {config.head}": not (head.outputs_are_values or head.interval is not None),
        f"label distance {config.label_distance}": config.label_distance not in ("l1", "l2"),
        "c_mixup": config.c_mixup,
        "lds": config.lds,
        f"regularizer {config.regularizer}": config.regularizer_spec is not None,
    }
    if config.scheme == "regularize":  # the objective sees the rows of the head
        reasons |= {
            f"objective {config.objective}": not config.objective_spec.partial,
            "queue": config.queue > 0,
            "positives": config.positives is not None,
        }
    return next((reason for reason, holds in reasons.items() if holds), "")


def encoder_reason(config: "FitConfig") -> str:
    """Why the encoder needs exact targets; "" if it can train on other rows, too."""
    reasons = {
        f"objective {config.objective}": not config.objective_spec.takes_partial,
        "c_mixup": config.c_mixup,
        "queue": config.queue > 0,
        "positives": config.positives is not None,
    }
    return next((reason for reason, holds in reasons.items() if holds), "")


def trained_sizes(config: "FitConfig", rows: Sizes | int) -> Sizes:
    """How many of these rows a config trains its head and its encoder on."""
    exact, everyone, ranged = Sizes.of(rows)
    heads = exact if exact_reason(config) else exact + ranged
    if config.takes_partial:
        return Sizes(heads, everyone)
    has_encoder_stage = config.scheme in ("probe", "finetune", "auto")
    return Sizes(heads, exact if has_encoder_stage else heads)
