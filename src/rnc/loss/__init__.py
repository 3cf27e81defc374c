"""The Rank-N-Contrast loss: the equation, the function and module, and the fast ways."""

from rnc.loss.loss import RnCLoss, rnc_loss

__all__ = ["RnCLoss", "rnc_loss"]
