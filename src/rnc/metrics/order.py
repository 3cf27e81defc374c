"""How well features keep the order of the labels: rank correlations over pairs of samples."""

import math
from typing import NamedTuple

import numpy as np
import torch

from rnc.loss.pairwise import Pairwise, resolve_label_distance, resolve_similarity
from rnc.metrics.columns import Values, as_columns, float_rows


class Ordinality(NamedTuple):
    """How well the similarities of features follow those of labels, from -1 to 1."""

    spearman: float
    kendall: float
    """tau-b, which corrects for ties."""


def ordinality(
    features: Values,
    target: Values,
    *,
    similarity: str | Pairwise = "l2",
    label_distance: str | Pairwise = "l1",
    points: int = 2000,
    seed: int = 0,
) -> Ordinality:
    """Rank correlations, over all pairs of samples, of label similarity and feature similarity.

    Label similarity is minus the label distance. Both correlations are exact for the samples
    used, and nan if all labels, or all features, are equally far apart.

    Args:
        features: (n, d).
        target: (n,) or (n, t).
        similarity: as for `rnc_loss`.
        label_distance: as for `rnc_loss`.
        points: draw this many samples, with the seed, if there are more. Time grows with its
            square: 2,000 points are 2 million pairs, 2 to 3 seconds.
        seed: of that draw.

    >>> ages = np.array([20.0, 30.0, 45.0, 70.0])
    >>> ordinality(2 * ages[:, None], ages)
    Ordinality(spearman=1.0, kendall=1.0)
    """
    from scipy import stats  # type: ignore[import-untyped]  # slow, and help texts need none

    if points < 3:
        raise ValueError(f"ordinality needs points >= 3; got {points}.")
    labels, rows = as_columns(target, "target"), float_rows(features)
    if len(rows) != len(labels) or len(rows) < 3:
        raise ValueError(
            "ordinality needs features (n, d) and target (n, t) with the same n >= 3; got "
            f"{rows.shape} and {labels.shape}."
        )
    n = len(rows)
    chosen = np.random.default_rng(seed).permutation(n)[:points] if n > points else np.arange(n)
    y, z = torch.from_numpy(labels[chosen]), torch.from_numpy(rows[chosen])
    distances = resolve_label_distance(label_distance)(y, y)
    similarities = resolve_similarity(similarity)(z, z)
    above = np.triu_indices(len(chosen), k=1)
    a, b = -distances.numpy()[above], similarities.numpy()[above]
    if a.min() == a.max() or b.min() == b.max():
        return Ordinality(math.nan, math.nan)
    spearman = np.corrcoef(stats.rankdata(a), stats.rankdata(b))[0, 1]
    return Ordinality(float(spearman), float(stats.kendalltau(a, b).statistic))
