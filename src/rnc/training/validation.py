"""The errors of a model on the validation rows, and heads that are solved on its features."""

import math
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rnc.data.table import Table
from rnc.loss.pairwise import Pairwise, circle_of
from rnc.metrics import Values, error_measure
from rnc.model import Regressor
from rnc.training.blocks import Blocks, Spilled, are_many
from rnc.training.label_ends import ends_of
from rnc.training.probe import HeadFit, measured, probe_error, solve_head
from rnc.training.record import told

if TYPE_CHECKING:  # takes seconds to import
    from lightning.fabric import Fabric

PROBED_ROWS = 1024
"""The most rows of a split that a quick probe of an encoder uses."""


class Validation:
    """The errors of a model on validation rows, with its weights at the time of the call.

    Running statistics differ between processes, so all processes use the errors of the first.
    """

    def __init__(
        self, fabric: "Fabric", model: Regressor, table: Table, label_distance: str | Pairwise
    ) -> None:
        self.fabric, self.model, self.table = fabric, model, table
        self.measure, self.period = error_measure(label_distance), circle_of(label_distance)
        self.val_weights = self.weights_of(table.rows("val"))

    def weights_of(self, rows: NDArray[np.int64]) -> Tensor | None:
        """The weights of some rows; None if the data have no weights."""
        weight = self.table.weight
        return None if weight is None else torch.tensor(weight[rows])

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
        found = (self.measure, predicted, targets, self.val_weights)
        return self.fabric.broadcast(measured(*found) if is_finite else math.inf)

    def encoder_error(self) -> float:
        """The error of a quick probe of the current encoder."""
        both = [self.some_rows(split, PROBED_ROWS) for split in ("train", "val")]
        train, val = (self.embedded(rows) for rows in both)
        weights = [self.weights_of(rows) for rows in both]
        return self.fabric.broadcast(probe_error(*train, *val, self.measure, *weights))

    def some_rows(self, split: str, most: int) -> NDArray[np.int64]:
        """At most `most` rows of a split, evenly spaced, without rows of weight 0."""
        rows = self.table.rows(split)
        if self.table.weight is not None:
            rows = rows[self.table.weight[rows] > 0]
        if len(rows) > most:
            rows = rows[np.linspace(0, len(rows) - 1, most).astype(int)]
        return rows

    def embedded(self, rows: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        """Features and targets of some rows."""
        device = self.fabric.device
        features = torch.from_numpy(self.model.embed_prepared(self.table.x, rows=rows))
        return features.to(device), torch.tensor(self.table.y[rows], device=device)

    def _blocks(self, rows: NDArray[np.int64]) -> tuple[Tensor | Blocks, Tensor]:
        """What `embedded` returns, but with the features in a file if there are many."""
        d = self.model.head.config.d
        if not are_many((len(rows), d), self.fabric.device):
            return self.embedded(rows)
        size = 256
        batches = self.model.embed_batches(self.table.x, rows=rows, batch_size=size)
        batches = told("features", batches, math.ceil(len(rows) / size))
        return Spilled.write(batches, (len(rows), d)), torch.tensor(self.table.y[rows])

    def solve_head(
        self, rows: NDArray[np.int64], weights: Tensor | None, balance: float | None
    ) -> HeadFit:
        """Solve the head on the current encoder's features of training rows with weights (n,).

        `weights` and `balance` are as for `rnc.training.probe.solve_head`. Targets of rows may be
        known in part.
        """
        group, (features, targets), upper = self.table.group, self._blocks(rows), None
        if targets.isnan().any():
            targets, upper = (end.to(targets.device) for end in ends_of(self.table, rows))
        return solve_head(
            self.model.head,
            features,
            targets,
            *self._blocks(self.table.rows("val")),
            measure=self.measure,
            weights=weights,
            balance=balance,
            period=self.period,
            val_weights=self.val_weights,
            val_groups=None if group is None else group[self.table.rows("val")],
            upper=upper,
        )
