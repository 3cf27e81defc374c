"""Scores of test rows whose targets are known in part: the split "test-part".

Errors need exact targets. A row with an interval or a censored target can only be scored by whether
its interval holds the prediction, and by its order among other rows:

    hit_share       share of the targets known in part whose interval holds the prediction
    concordance     over all test rows, exact or not; for survival times, Harrell's C

They are in scores.json beside the errors of the exact test rows. predictions_partial.csv has the
predictions: the name and, for each target T, the columns T_at_least, T_at_most and T_predicted.
"""

import math
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
from numpy.typing import NDArray

from rnc.data.splits import PARTIAL_TEST
from rnc.data.table import Table
from rnc.metrics import Columns, concordance_index, hit_share
from rnc.model import Regressor
from rnc.run.predictions import NAME, predicted_column

AT_LEAST, AT_MOST = "at_least", "at_most"


class PartialTest:
    """Predictions for the test rows known in part, together with those for the exact ones."""

    def __init__(
        self, model: Regressor, table: Table, exact: NDArray[np.int64], prediction: Columns
    ) -> None:
        assert table.ends is not None
        self.table, self.rows = table, table.rows(PARTIAL_TEST)
        own = np.asarray(model.predict_prepared(table.x, rows=self.rows), np.float64)
        self.own = own.reshape(len(self.rows), -1)
        rows = np.concatenate([exact, self.rows])
        self.prediction = np.concatenate([prediction, self.own])
        self.lower, self.upper = np.moveaxis(table.ends[rows], -1, 0)
        self.weights = None if table.weight is None else table.weight[rows]

    def scores(self, column: int | None = None) -> dict[str, float]:
        """Scores by name, of all targets or of one. Undefined scores are left out."""
        of = slice(None) if column is None else slice(column, column + 1)
        parts = (self.prediction[:, of], self.lower[:, of], self.upper[:, of])
        found = {
            "concordance": concordance_index(*parts, weights=self.weights),
            "hit_share": hit_share(*parts, weights=self.weights),
        }
        return {name: score for name, score in found.items() if not math.isnan(score)}

    @property
    def frame(self) -> pd.DataFrame:
        """The rows of predictions_partial.csv; an open end is empty."""
        columns = {NAME: self.table.names[self.rows]}
        for i, target in enumerate(self.table.target_names):
            for end, name in ((self.lower, AT_LEAST), (self.upper, AT_MOST)):
                values = end[-len(self.rows) :, i]
                columns[f"{target}_{name}"] = np.where(np.isfinite(values), values, np.nan)
            columns[predicted_column(target)] = self.own[:, i]
        return pd.DataFrame(columns)


def score_partial_test(
    model: Regressor,
    table: Table,
    exact: NDArray[np.int64],
    prediction: Columns,
    scores: dict[str, Any],
) -> pd.DataFrame | None:
    """Add these scores to an evaluation of the test split; returns predictions_partial.csv.

    Returns None and adds nothing if another split is evaluated or no test row is known in part.

    Args:
        model: the evaluated model.
        table: the data.
        exact: positions of the test rows with exact targets, (n,).
        prediction: predictions for these rows, (n, t).
        scores: the scores so far, as in scores.json; changed in place.
    """
    if "test" not in scores or table.ends is None or not len(table.rows(PARTIAL_TEST)):
        return None
    found = PartialTest(model, table, exact, prediction)
    scores["test"] |= found.scores()
    for i, name in enumerate(table.target_names):
        if name in scores.get("per_target", {}):
            scores["per_target"][name] |= found.scores(i)
    return found.frame
