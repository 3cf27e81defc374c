"""The Rank-N-Contrast loss: the equation, the function and module, and the fast ways."""

from rnc.loss import theory
from rnc.loss.loss import RnCLoss, rnc_loss
from rnc.loss.pairwise import circular

__all__ = ["RnCLoss", "circular", "rnc_loss", "theory"]
