"""Rank-N-Contrast: deep regression with representations that keep the order of the labels."""

from rnc.loss import RnCLoss, rnc_loss

__version__ = "0.1.0"

__all__ = ["RnCLoss", "__version__", "rnc_loss"]
