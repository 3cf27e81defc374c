"""How good a model is on the validation rows, and heads solved on its features."""

import math
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from rnc.data.table import Table
from rnc.loss.pairwise import Pairwise, circle_of
from rnc.metrics import Values, error_measure
from rnc.model import Regressor
from rnc.training.blocks import Blocks, Spilled, are_many
from rnc.training.probe import HeadFit, probe_error, solve_head
from rnc.training.record import told

if TYPE_CHECKING:  # takes seconds to import
    from lightning.fabric import Fabric

PROBED_ROWS = 1024
"""How many rows of a split a quick probe of an encoder uses."""


class Validation:
    """The errors of a model, as it is at a call, on validation rows.

    Running statistics differ between processes, so the first one decides for all.
    """

    def __init__(
        self, fabric: "Fabric", model: Regressor, table: Table, label_distance: str | Pairwise
    ) -> None:
        self.fabric, self.model, self.table = fabric, model, table
        self.measure, self.period = error_measure(label_distance), circle_of(label_distance)

    def model_error(self) -> float:
        """The error of the model's predictions; infinite if one is not finite."""
        rows = self.table.rows("val")
        predicted = self.model.predict_prepared(self.table.x, rows=rows)
        return self._error(predicted, self.table.y[rows])

    def head_error(self, features: Tensor, targets: Tensor) -> float:
        """The error of the head on given features (n, d) for targets (n, t)."""
        with torch.no_grad():
            return self._error(self.model.head.decode(self.model.head(features)), targets)

    def _error(self, predicted: Values, targets: Values) -> float:
        is_finite = torch.as_tensor(predicted).isfinite().all()
        return self.fabric.broadcast(self.measure(predicted, targets) if is_finite else math.inf)

    def encoder_error(self) -> float:
        """The error of a quick probe of the encoder as it is."""
        train, val = (self.embedded(split, limit=PROBED_ROWS) for split in ("train", "val"))
        return self.fabric.broadcast(probe_error(*train, *val, self.measure))

    def embedded(self, split: str, limit: int | None = None) -> tuple[Tensor, Tensor]:
        """Features and targets of the rows of a split, or of so many of them, evenly chosen."""
        rows, device = self.table.rows(split), self.fabric.device
        if limit is not None and len(rows) > limit:
            rows = rows[np.linspace(0, len(rows) - 1, limit).astype(int)]
        features = torch.from_numpy(self.model.embed_prepared(self.table.x, rows=rows))
        return features.to(device), torch.tensor(self.table.y[rows], device=device)

    def _blocks(self, split: str) -> tuple[Tensor | Blocks, Tensor]:
        """What `embedded` returns for all rows; in a file if they are many."""
        rows, d = self.table.rows(split), self.model.head.config.d
        if not are_many((len(rows), d), self.fabric.device):
            return self.embedded(split)
        size = 256
        batches = self.model.embed_batches(self.table.x, rows=rows, batch_size=size)
        batches = told("features", batches, math.ceil(len(rows) / size))
        return Spilled.write(batches, (len(rows), d)), torch.tensor(self.table.y[rows])

    def solve_head(self, weights: Tensor | None, balance: float | None) -> HeadFit:
        """Solve the head on the encoder as it is; the arguments are those of `solve_head`."""
        group = self.table.group
        return solve_head(
            self.model.head,
            *self._blocks("train"),
            *self._blocks("val"),
            measure=self.measure,
            weights=weights,
            balance=balance,
            period=self.period,
            val_groups=None if group is None else group[self.table.rows("val")],
        )
