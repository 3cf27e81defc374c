"""FitConfig: every choice of a training run, in one place."""

from rnc.config.checks import check_limit
from rnc.config.fit_config import (
    SPEED_ONLY,
    Device,
    FitConfig,
    Optimizer,
    Precision,
    Preset,
    Scheme,
    Solver,
    Switch,
)

__all__ = [
    "SPEED_ONLY",
    "Device",
    "FitConfig",
    "Optimizer",
    "Precision",
    "Preset",
    "Scheme",
    "Solver",
    "Switch",
    "check_limit",
]
