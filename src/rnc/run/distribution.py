"""How good predicted distributions are: the entry "distribution" of scores.json.

    {target: {"crps": ..., "low": ..., "high": ...}}    if the head predicts a distribution

crps is the mean of the continuous ranked probability score (see `rnc.metrics.distributions`), in
the units of the target, so it can be compared with the MAE of a head without a distribution. low
and high are the ends of its 95 % bootstrap interval. At most 2,000 test samples are used: those
whose features are kept.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rnc.heads import Head
from rnc.metrics import Columns
from rnc.metrics.bootstrap import mean_interval
from rnc.metrics.distributions import crps_points

QUANTILES = 99
"""Quantiles of each sample, with equal masses. They give the score to about 1 %."""


@torch.no_grad()
def head_scores(
    head: Head,
    features: NDArray[np.float32],
    truth: Columns,
    targets: Sequence[str],
    period: float | None = None,
) -> dict[str, Any]:
    """The entry of scores.json, from features (n, d) of samples and their true targets (n, t)."""
    outputs = head(torch.from_numpy(features).to(head.linear.weight))
    return distribution_scores(sample_crps(head, outputs, truth, period), targets)


@torch.no_grad()
def sample_crps(
    head: Head, outputs: Tensor, truth: Columns, period: float | None = None
) -> Columns:
    """The CRPS of each sample and target: outputs (n, .), truth (n, t) -> (n, t).

    It is NaN for samples with a quantile or target that is not finite.
    """
    levels = ((np.arange(QUANTILES) + 0.5) / QUANTILES).tolist()
    points = head.quantiles(outputs, levels).cpu().numpy()
    found = np.full(truth.shape, np.nan)
    known = np.isfinite(points).all(axis=(1, 2)) & np.isfinite(truth).all(axis=1)
    if known.any():
        for i in range(truth.shape[1]):
            found[known, i] = crps_points(points[known, i], truth[known, i], period=period)
    return found


def distribution_scores(scores: Columns, targets: Sequence[str]) -> dict[str, Any]:
    """The entry of scores.json, from the CRPS (n, t) of samples. NaN are left out.

    >>> distribution_scores(np.array([[2.0], [2.0], [np.nan]]), ["age"])
    {'age': {'crps': 2.0, 'low': 2.0, 'high': 2.0}}
    """
    entry = {}
    for target, column in zip(targets, scores.T, strict=True):
        known = column[np.isfinite(column)]
        if len(known):
            ends = mean_interval(known)
            entry[target] = {"crps": float(known.mean())} | ({} if ends is None else ends._asdict())
    return entry
