"""A toy batch, and its positive and negative pairs for an anchor: the paper's Figure 2.

An anchor makes a positive pair with each other sample. The negatives of the pair are the other
samples whose labels are at least as far from the anchor's. Together with the positive sample they
form the denominator.
"""

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from rnc.data.table import Table
from rnc.experiments.plan import Row, Setting
from rnc.loss.equation import pair_losses
from rnc.loss.pairwise import Pairwise, distances_of

TOY_SHARES = (2 / 7, 3 / 7, 0.0, 1.0)
"""The paper's 20 (the anchor), 30, 0 and 70 years, scaled to the range 0..1."""
DISTANCE, NEGATIVES, ALIKE = "label distance", "negatives", "loss if all features were alike"


class RankedPair(NamedTuple):
    """A positive pair of the anchor."""

    positive: int
    """Index of the positive sample in the batch."""
    distance: float
    """Distance between the labels of the pair."""
    negatives: tuple[int, ...]
    """The rest of the denominator, nearest first: all at least as far as the positive sample."""
    alike: float
    """The loss of the pair if all features are equal: log of the size of the denominator."""


def ranked_pairs(
    labels: NDArray[Any], distance: str | Pairwise = "l1", anchor: int = 0
) -> list[RankedPair]:
    """The positive pairs of an anchor in a batch with labels (n, t), nearest first.

    >>> pairs = ranked_pairs(np.array([[20], [30], [0], [70]]))
    >>> [(pair.positive, pair.negatives) for pair in pairs]
    [(1, (2, 3)), (2, (3,)), (3, ())]
    """
    y = torch.from_numpy(np.asarray(labels, dtype=np.float64))
    distances = distances_of(distance, y, y)
    losses = pair_losses(torch.zeros_like(distances), distances)[anchor].flip(0).tolist()
    row = distances[anchor].tolist()
    order = sorted((i for i in range(len(row)) if i != anchor), key=lambda i: row[i])
    return [
        RankedPair(i, row[i], tuple(k for k in order if k != i and row[k] >= row[i]), loss)
        for i, loss in zip(order, losses, strict=True)
    ]


def toy_batch(table: Table) -> NDArray[np.int64]:
    """Training rows whose first targets are placed like the paper's example, the anchor first."""
    return rows_at(table, TOY_SHARES)


def rows_at(table: Table, shares: tuple[float, ...]) -> NDArray[np.int64]:
    """Different training rows with targets near these shares of the 1st to 99th percentile."""
    rows = table.rows("train")
    target = table.y[rows, 0]
    low, high = np.quantile(target, (0.01, 0.99))
    free = np.ones(len(rows), bool)
    chosen = []
    for share in shares[: len(rows)]:
        away = np.where(free, np.abs(target - (low + share * (high - low))), np.inf)
        place = int(away.argmin())
        free[place] = False
        chosen.append(rows[place])
    return np.array(chosen, dtype=np.int64)


def label_text(target: NDArray[Any]) -> str:
    """The targets (t,) of a sample as text.

    >>> label_text(np.array([20.0])), label_text(np.array([-12.345, 3.0]))
    ('20', '-12.3, 3')
    """
    return ", ".join(f"{value:.3g}" for value in target)


def pair_rows(setting: Setting) -> list[Row]:
    """The positive pairs of the toy batch as rows of a table."""
    table = setting.data.table
    labels = table.y[toy_batch(table)]
    anchor = f"anchor {label_text(labels[0])}"
    rows = []
    for pair in ranked_pairs(labels, setting.base.distance):
        positive = f"positive {label_text(labels[pair.positive])}"
        values = {DISTANCE: pair.distance, NEGATIVES: len(pair.negatives), ALIKE: pair.alike}
        rows += [Row(anchor, positive, name, (float(one),)) for name, one in values.items()]
    return rows
