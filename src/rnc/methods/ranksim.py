"""RankSim: neighbours should rank alike by feature and by label (Gong 2022, arXiv:2205.15236).

    R(a)_j = rank of a_j in the row a, from 1 for the largest, divided by the length of the row
    L      = sum_i mean_j ( R(cos(v_i, v_.))_j - R(-d_i.)_j )^2

Both go over one sample per distinct label. Ranks have no gradient. In its place, for an upstream
gradient g and the interpolation l (Vlastelica 2020, arXiv:1912.02175):

    dL/ds = ( R(s + l g) - R(s) ) / l

Beside the RnC loss: both rank samples by label for each anchor, but RnC is smooth in the features
and contrasts every pair, where RankSim compares ranks and has a finite difference for a gradient.
"""

from typing import Any

import torch
from torch import Tensor

from rnc.loss.batch import as_rows
from rnc.loss.pairwise import Pairwise, cosine, resolve_label_distance
from rnc.loss.plain import rank
from rnc.methods.labels import check_labels, check_positive, first_of_each


def ranksim_loss(
    features: Tensor,
    targets: Tensor,
    *,
    interpolation: float = 2.0,
    label_distance: str | Pairwise = "l1",
    original: bool = False,
    generator: torch.Generator | None = None,
    validate: bool = True,
) -> Tensor:
    """RankSim loss of a batch: 0 when the samples around each one rank alike by feature and label.

    The loss is a sum over anchors, so it grows with the number of distinct labels. Its gradient is
    not linear in the weight of the loss, so only the sum keeps the meaning of published weights,
    such as 100 with interpolation 2 for ages. A batch with one distinct label has loss 0.

    Features are (n, d), or (n, v, d), where one view stands for its sample. `label_distance` and
    `validate` are as for `rnc_loss`. The generator draws the sample of each label. Without one, the
    first in the batch is taken; with `original`, torch's global generator draws.

    `original` does as the published code: tied ranks are broken in any order instead of sharing
    their average rank, which splits ages at the same distance; the sample of each label is drawn at
    random; there is only one target.

    >>> ages = torch.tensor([20.0, 30.0, 45.0])
    >>> in_order = torch.tensor([[1.0, 0.0], [0.9, 0.4], [0.0, 1.0]])
    >>> ranksim_loss(in_order, ages) < ranksim_loss(in_order.roll(1, 0), ages)
    tensor(True)
    """
    check_positive(interpolation=interpolation)
    distance = resolve_label_distance(label_distance)
    rows = as_rows(features, targets, "ranksim_loss")
    if original and rows.targets.shape[1] > 1:
        raise ValueError(
            f"ranksim_loss(original=True) has one target; got {rows.targets.shape[1]}. Leave "
            "original out, and choose a label_distance."
        )
    if validate:
        check_labels(targets, "ranksim_loss", features)
    with torch.autocast(features.device.type, enabled=False):
        distances = distance(rows.targets, rows.targets)
        kept = first_of_each(distances, _draw(distances, original, generator))
        pairs = kept[:, None] & kept[None, :]
        n = kept.sum().clamp(min=1)
        similarities = cosine(rows.features, rows.features).masked_fill(~pairs, -torch.inf)
        by_label = _ranks((-distances).masked_fill(~pairs, -torch.inf), not original) / n
        by_feature: Tensor = _Ranks.apply(similarities, n, interpolation, not original)
        errors = (by_feature - by_label).square().masked_fill(~pairs, 0.0)
        return (errors.sum() / n).to(rows.features.dtype)


def _draw(distances: Tensor, always: bool, generator: torch.Generator | None) -> Tensor | None:
    """A random order of the rows, or None to keep the order of the batch."""
    if generator is None and not always:
        return None
    device = distances.device if generator is None else generator.device
    return torch.randperm(len(distances), generator=generator, device=device).to(distances.device)


def _ranks(rows: Tensor, ties: bool) -> Tensor:
    """The rank of each number in its row, from 1 for the largest: (n, m) -> (n, m).

    With `ties`, equal numbers share their average rank. That keeps the sum of the ranks and does
    not depend on the order of the batch.
    """
    ranking = rank(rows)
    if not ties:
        return (ranking.rank_of + 1).double()
    shared = (ranking.first_tie + ranking.last_tie).double() / 2 + 1
    return shared.gather(1, ranking.rank_of)


class _Ranks(torch.autograd.Function):
    """Ranks divided by n; the gradient is the finite difference of the header."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, n: Tensor, interpolation: float, ties: bool) -> Tensor:
        ranks = _ranks(rows, ties) / n
        ctx.save_for_backward(rows, ranks, n)
        ctx.interpolation, ctx.ties = interpolation, ties
        return ranks

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        rows, ranks, n = ctx.saved_tensors
        moved = _ranks(rows + ctx.interpolation * grad, ctx.ties) / n
        return (moved - ranks) / ctx.interpolation, None, None, None
