"""Ordinal Entropy: spread the centres of labels, by label distance (Zhang 2023, arXiv:2301.08915).

    z_i = v_i / |v_i|                                  features on the unit sphere
    c_a = mean of the v_i with label a, of length 1    one centre per distinct label
    w_ab = (d_ab - min d) / max d                      over pairs of distinct labels
    L = mean_i |z_i - c_label(i)|  -  mean_{a < b} w_ab |c_a - c_b|

The first mean, the tightness, is over samples whose label occurs more than once.

Beside the RnC loss: Ordinal Entropy pushes labels apart in proportion to their distance but never
compares two distances, so it asks for spread and not for order. It is added to the loss of a head.
"""

import torch
from torch import Tensor

from rnc.loss.batch import as_rows
from rnc.loss.pairwise import Pairwise, negative_l2, resolve_label_distance
from rnc.methods.labels import check_labels, first_of_each
from rnc.methods.projection import unit_length


def ordinal_entropy_loss(
    features: Tensor,
    targets: Tensor,
    *,
    label_distance: str | Pairwise = "l1",
    centres: bool = True,
    original: bool = False,
    validate: bool = True,
) -> Tensor:
    """Tightness minus diversity of a batch: low when labels are compact and far apart.

    The loss is finite for finite input: if no label occurs twice, the tightness is 0; if all labels
    are equal, the diversity is 0. Features, targets, `label_distance` and `validate` are as for
    `rnc_loss`. Without `centres`, every sample is a centre and there is no tightness; the authors
    use this if labels hardly ever repeat. `original` does as the published code: the tightness is
    over samples that are not on their centre, and NaN if all are, as when no label repeats.

    >>> ages, features = torch.tensor([20.0, 20.0, 40.0, 70.0]), torch.eye(4)
    >>> ordinal_entropy_loss(features, ages) > ordinal_entropy_loss(features[[0, 0, 2, 3]], ages)
    tensor(True)
    """
    distance = resolve_label_distance(label_distance)
    rows = as_rows(features, targets, "ordinal_entropy_loss")
    if validate:
        check_labels(targets, "ordinal_entropy_loss", features)
    with torch.autocast(features.device.type, enabled=False):
        distances = distance(rows.targets, rows.targets)
        if not centres:
            everyone = torch.ones_like(distances[:, 0], dtype=torch.bool)
            loss = -_diversity(unit_length(rows.features), distances, everyone)
            return loss.to(rows.features.dtype)
        same = distances == 0
        count = same.sum(dim=1)
        # In float64, where the mean of equal rows is that row but for rounding.
        wide = rows.features.double()
        centre = unit_length((same.double() / count[:, None]) @ wide)
        gaps: Tensor = torch.linalg.vector_norm(unit_length(wide) - centre, dim=1)
        far = gaps > 0 if original else count > 1
        number = far.sum() if original else far.sum().clamp(min=1)
        tightness = gaps.masked_fill(~far, 0.0).sum() / number
        diversity = _diversity(centre.to(rows.features.dtype), distances, first_of_each(distances))
        loss = tightness - diversity
        return loss.to(rows.features.dtype)


def _diversity(unit: Tensor, distances: Tensor, kept: Tensor) -> Tensor:
    """Weighted mean distance of the kept rows over their pairs; 0 if there is none."""
    pairs = (kept[:, None] & kept[None, :]).triu(diagonal=1)
    low = distances.masked_fill(~pairs, torch.inf).min()
    high = distances.masked_fill(~pairs, 0.0).max()
    # Without a pair, low is infinite, but then all weights are masked.
    weights = ((distances - low) / high).masked_fill(~pairs | (high == 0), 0.0)
    return (weights * -negative_l2(unit, unit)).sum() / pairs.sum().clamp(min=1)
