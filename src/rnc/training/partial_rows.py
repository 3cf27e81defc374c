"""Rows whose targets are missing or known in part, in the batches of an encoder that RnC trains."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from rnc.config import FitConfig
from rnc.data.splits import PARTIAL
from rnc.data.table import Table
from rnc.loss.anchor_weights import shares
from rnc.model import Regressor
from rnc.training.batches import Batches


def has_partial_rows(table: Table) -> bool:
    """Whether there are such rows."""
    return table.ends is not None and bool((table.split == PARTIAL).any())


def partial_batches(table: Table, model: Regressor, drawn: Tensor | None, **served: Any) -> Batches:
    """Batches of all training rows, exact or not; half of those drawn have exact targets, or more.

    Args:
        table: the data.
        model: as for `Batches`.
        drawn: how often an epoch has each row with exact targets, if not once.
        served: further arguments of `Batches`.
    """
    rows, partly = table.rows("train"), table.rows(PARTIAL)
    exact = torch.ones(len(rows), dtype=torch.float64) if drawn is None else drawn
    exact = exact / exact.sum() * max(len(rows), len(partly))
    weight = None
    if table.weight is not None:
        weight = shares(torch.tensor(table.weight[np.concatenate([rows, partly])]))
    often = torch.cat([exact, torch.ones(len(partly), dtype=torch.float64)])
    return Batches(table, model, sample_weights=weight, shares=often, partial=True, **served)


def check_partial(table: Table, config: FitConfig) -> None:
    """Raise where such rows cannot train what is to be trained."""
    if not has_partial_rows(table):
        return
    count = (table.split == PARTIAL).sum()
    if config.scheme in ("probe", "finetune", "auto") and config.objective != "rnc":
        raise ValueError(
            f"Objective {config.objective} needs exact targets, and {count} rows have targets that "
            "are missing or known in part. Use objective rnc, or leave these rows out (no "
            "--partial-labels, but --drop-missing)."
        )
    if config.queue:
        raise ValueError(
            f"queue={config.queue} keeps exact targets of earlier samples; it does not go with "
            "--partial-labels (partial_labels=True). Leave out one of them."
        )
