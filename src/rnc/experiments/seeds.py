"""The runs of one seed: a single one, or in a cross-validation one for each fold."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rnc.data.folds import parse_fold
from rnc.experiments.plan import Finished, Score
from rnc.metrics import Columns


def by_seed(finished: Sequence[Finished]) -> dict[int, list[Finished]]:
    """Finished runs by seed. A seed that lacks a fold, since it diverged, is left out."""
    found: dict[int, list[Finished]] = {}
    for one in finished:
        found.setdefault(one.planned.config.seed, []).append(one)
    fold = finished[0].planned.fold if finished else None
    count = 1 if fold is None else parse_fold(fold)[1]
    return {seed: runs for seed, runs in found.items() if len(runs) == count}


def over_folds(score: Score, runs: Sequence[Finished]) -> float:
    """The score of a seed: the mean over its folds, weighted by their test rows."""
    values = np.array([score(one) for one in runs])
    weights = np.array([tested_weights(one).sum() for one in runs])
    return float(values[0] if len(runs) == 1 else np.average(values, weights=weights))


def tested_weights(finished: Finished) -> Columns:
    """The weight of each test row, (n,), which is 1 unless the data have weights."""
    table = finished.planned.table
    rows: NDArray[np.int64] = table.rows("test")
    return np.ones(len(rows)) if table.weight is None else table.weight[rows]
