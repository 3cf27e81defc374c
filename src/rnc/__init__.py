"""Rank-N-Contrast: deep regression with representations that keep the order of the labels.

The loss costs torch alone; the other names are imported when they are first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from rnc.loss import RnCLoss, rnc_loss

if TYPE_CHECKING:
    from rnc.config import FitConfig
    from rnc.estimator import RnCRegressor
    from rnc.model import Regressor

__version__ = "0.1.0"

__all__ = ["FitConfig", "Regressor", "RnCLoss", "RnCRegressor", "__version__", "rnc_loss"]

_LATER = {
    "FitConfig": "rnc.config",
    "Regressor": "rnc.model",
    "RnCRegressor": "rnc.estimator",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'rnc' has no attribute {name!r}")
    return getattr(import_module(_LATER[name]), name)
