"""Rows whose targets are missing or known in part, in the batches of an encoder that RnC trains."""

import dataclasses
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rnc.config import FitConfig
from rnc.config.sizes import labelled_batch_size
from rnc.data.splits import PARTIAL
from rnc.data.table import Table
from rnc.loss.anchor_weights import shares
from rnc.loss.partial import pack
from rnc.methods.registry import OBJECTIVES
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


def for_heads(config: FitConfig, table: Table) -> FitConfig:
    """The config of stages by a head's loss, which see the labelled rows alone."""
    assert config.batch_size is not None
    size = labelled_batch_size(config.batch_size, config.trained(table.sizes))
    return dataclasses.replace(config, batch_size=size)


def unused_words(table: Table, config: FitConfig) -> list[str]:
    """What a user should know where rows with targets known in part do not train anything."""
    if not has_partial_rows(table) or config.takes_partial:
        return []
    able = ", ".join(name for name, spec in OBJECTIVES.items() if spec.takes_partial)
    what = f"objective {config.objective}" if config.uses_objective else "a head's loss"
    if config.scheme == "regularize":
        what = "scheme regularize"
    return [
        f"{(table.split == PARTIAL).sum()} rows whose targets are missing or known in part are not "
        f"used: {what} needs exact targets. Scheme probe, finetune or auto with objective {able} "
        "trains its encoder on them."
    ]


def check_partial(table: Table, config: FitConfig) -> None:
    """Raise where such rows cannot train what is to be trained."""
    if not has_partial_rows(table) or not config.takes_partial:
        return
    if not config.objective_spec.partial:  # it looks at no targets
        return
    unable = {
        f"queue={config.queue} keeps exact targets of earlier samples": config.queue,
        f"positives={config.positives} takes the nearest samples": config.positives,
        "c_mixup mixes targets": config.c_mixup,
    }
    for reason, is_on in unable.items():
        if is_on:
            raise ValueError(
                f"{reason}, and {(table.split == PARTIAL).sum()} rows have targets that are "
                "missing or known in part. Leave that option out, or these rows: no "
                "--partial-labels, but --drop-missing."
            )
    assert table.ends is not None
    lower, upper = torch.tensor(table.ends[table.split == PARTIAL]).unbind(dim=-1)
    try:
        pack(lower, upper, config.distance, check=True)
    except ValueError as error:
        raise ValueError(f"Rows with targets known in part: {error}") from error
