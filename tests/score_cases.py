"""Untrained models and their tables, whose scores follow from the definitions."""

import numpy as np
from torch import nn

from rnc.data import Table
from rnc.heads import head_config
from rnc.model import ModelConfig, Regressor

P, D = 4, 6


def table_of(n=60, t=1, subgroup=None, seed=0, **changes):
    """Rows whose targets depend on the inputs; two thirds train, then val and test by turns."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, P)).astype(np.float32)
    fields = {
        "x": x,
        "y": 10 + 3 * x[:, :t].astype(np.float64) + rng.normal(size=(n, t)),
        "target_names": ("age", "height", "weight")[:t],
        "kind": "table",
        "split": np.array(["train", "train", "train", "train", "val", "test"] * n)[:n],
        "names": np.array([f"row {i}" for i in range(n)]),
        "subgroup": subgroup or {},
    }
    return Table(**(fields | changes))


def model_for(table, head="l1", encoder=None, **changes):
    encoder = encoder or nn.Sequential(nn.Linear(P, D), nn.Tanh())
    config = {
        "kind": "table",
        "encoder": "own",
        "input_shape": (P,),
        "augment": {},
        "head": vars(head_config(head, D, table.y)),
        "target_names": table.target_names,
    }
    return Regressor(ModelConfig(**(config | changes)), encoder)
