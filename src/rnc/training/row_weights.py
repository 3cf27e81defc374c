"""The weight of each training row, and how often an epoch has it."""

import torch
from torch import Tensor

from rnc.config import FitConfig
from rnc.data.table import Table
from rnc.loss.anchor_weights import shares
from rnc.loss.pairwise import circle_of
from rnc.methods.lds_fds import lds_weights
from rnc.training.balance import balance_weights, chosen_oversample


def row_weights(config: FitConfig, table: Table) -> tuple[Tensor | None, Tensor | None]:
    """Weights of the training rows, with mean 1: those of the data, and those in a head's loss.

    With LDS, the second are the first times the weights of LDS. None means that all are 1.
    """
    rows = table.rows("train")
    given = None if table.weight is None else shares(torch.tensor(table.weight[rows]))
    if not config.lds:
        return given, given
    targets, original = torch.tensor(table.y[rows]), config.original
    low, high, step = config.low, config.high, config.step
    weights = lds_weights(targets, low=low, high=high, step=step, original=original)
    return given, weights if given is None else shares(weights * given)


def row_shares(config: FitConfig, table: Table) -> Tensor | None:
    """How often an epoch has each training row on average; None for once."""
    exponent, targets = chosen_oversample(config, table), torch.tensor(table.y[table.rows("train")])
    return balance_weights(targets, exponent, circle_of(config.distance)) if exponent else None
