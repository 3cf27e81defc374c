"""Training on rows whose targets are missing or known in part."""

import dataclasses
import re
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rnc.config import FitConfig
from rnc.config.partial_labels import encoder_reason, exact_reason
from rnc.config.sizes import labelled_batch_size
from rnc.data.splits import PARTIAL
from rnc.data.table import Table
from rnc.loss.anchor_weights import shares
from rnc.loss.partial import pack
from rnc.methods.registry import OBJECTIVES
from rnc.model import Regressor
from rnc.training.batches import Batches


def has_partial_rows(table: Table) -> bool:
    """Whether a table has rows whose targets are missing or known in part."""
    return table.ends is not None and bool((table.split == PARTIAL).any())


def has_missing_targets(table: Table) -> bool:
    """Whether some row has a target about which nothing is known."""
    if table.ends is None:
        return False
    return bool(np.isinf(table.ends[table.split == PARTIAL]).all(axis=-1).any())


def partial_batches(table: Table, model: Regressor, drawn: Tensor | None, **served: Any) -> Batches:
    """Batches of all training rows. At least half of the samples drawn have exact targets.

    Args:
        table: the data.
        model: as for `Batches`.
        drawn: relative weights for drawing the rows with exact targets; None for equal weights.
        served: further arguments of `Batches`.
    """
    rows, partly = table.rows("train"), table.rows(PARTIAL)
    exact = torch.ones(len(rows), dtype=torch.float64) if drawn is None else drawn
    exact = exact / exact.sum() * max(len(rows), len(partly))
    often = torch.cat([exact, torch.ones(len(partly), dtype=torch.float64)])
    rows = np.concatenate([rows, partly])
    weight = None if table.weight is None else shares(torch.tensor(table.weight[rows]))
    return Batches(table, model, sample_weights=weight, shares=often, rows=rows, **served)


def head_batches(
    table: Table, model: Regressor, config: FitConfig, exact: Batches, **served: Any
) -> Batches:
    """Batches for a head's loss; with intervals and censored targets, if the config allows them.

    Args:
        table: the data.
        model: as for `Batches`.
        config: the config of the run.
        exact: batches of the rows with exact targets.
        served: further arguments of `Batches`.
    """
    partly = table.ranged_rows
    if not len(partly) or exact_reason(config):
        return exact
    rows = np.concatenate([table.rows("train"), partly])
    weight = None if table.weight is None else shares(torch.tensor(table.weight[rows]))
    often = exact.shares
    if often is not None:
        often = torch.cat([often, torch.ones(len(partly), dtype=often.dtype)])
    served |= {"weights": weight, "sample_weights": weight}
    return Batches(table, model, shares=often, rows=rows, **served)


def for_heads(config: FitConfig, table: Table) -> FitConfig:
    """The config for stages with a head's loss: its batch size suits the labelled rows."""
    assert config.batch_size is not None
    size = labelled_batch_size(config.batch_size, config.trained(table.sizes))
    return dataclasses.replace(config, batch_size=size)


def unused_words(table: Table, config: FitConfig) -> list[str]:
    """A warning, in a list, if rows with missing or partly known targets train no encoder."""
    if not has_partial_rows(table) or config.takes_partial:
        return []
    partly, ranged = int((table.split == PARTIAL).sum()), len(table.ranged_rows)
    reason, what = exact_reason(config), "whose targets are missing or known in part"
    if reason:
        words = f"{partly} rows {what} are not used: {reason} needs exact targets."
    elif config.uses_objective and config.scheme != "regularize":
        words = f"{partly} rows {what} do not train the encoder: {encoder_reason(config)} "
        words += f"needs exact targets. {ranged} of them train the head."
    elif partly > ranged:
        words = f"{partly - ranged} rows without a target are not used: a head's loss needs one."
    else:
        return []
    able = ", ".join(name for name, spec in OBJECTIVES.items() if spec.takes_partial)
    advice = "To train the encoder on these rows, use scheme probe, finetune or auto with "
    advice += f"objective {able}, without c_mixup, queue and positives."
    return [f"{words} {advice}"]


def check_partial(table: Table, config: FitConfig) -> None:
    """Raise if the encoder trains on partly known targets, and these do not suit its loss."""
    if not has_partial_rows(table) or not config.takes_partial:
        return
    if not config.objective_spec.partial:  # it uses no targets
        return
    assert table.ends is not None
    rows = table.rows(PARTIAL)
    lower, upper = torch.tensor(table.ends[rows]).unbind(dim=-1)
    try:
        pack(lower, upper, config.distance, check=True)
    except ValueError as error:
        names = table.names[rows]  # the error counts only these rows
        named = re.sub(r"in row (\d+)", lambda row: f"in row {names[int(row[1])]}", str(error))
        raise ValueError(f"Rows with targets known in part: {named}") from error
