"""Supervised contrastive learning, SupCon (Khosla 2020, arXiv:2004.11362).

    s_ik = z_i . z_k / temperature              z of length 1, from a projection head
    P_i  = {p != i : class of p = class of i}
    L_i  = mean_{p in P_i} [ log sum_{k != i} exp(s_ik) - s_ip ],    0 where P_i is empty
    L    = temperature / base_temperature * mean_i L_i      weighted, if the samples have weights

Beside the RnC loss: a label is a class here, so all samples that are not positives are equally far.
L_i is the RnC loss of the anchor over its nearest rank only, `rnc_loss(..., positives=1)`.
"""

import torch
from torch import Tensor, nn

from rnc.loss.anchor_weights import as_weights, shares
from rnc.loss.batch import Rows, as_rows
from rnc.loss.distributed import gather_rows, global_mean, world_size
from rnc.loss.options import Reduction
from rnc.loss.pairwise import Pairwise, l1_distance
from rnc.methods.labels import check_labels, check_positive, grid_classes, label_grid, to_classes
from rnc.methods.objective import FeatureObjective, MethodSetup
from rnc.methods.projection import ProjectionHead

__all__ = ["class_contrast", "supcon_loss", "supcon_objective", "to_classes"]


def supcon_loss(
    features: Tensor,
    classes: Tensor,
    *,
    weights: Tensor | None = None,
    temperature: float = 0.07,
    base_temperature: float = 0.07,
    reduction: Reduction = "mean",
    gather: bool = False,
    validate: bool = True,
) -> Tensor:
    """SupCon loss of a batch: low when features of one class are alike, and no others are.

    The loss is finite for finite input; half precision gives a float32 result. An anchor whose
    class occurs once has loss 0 and counts in the mean. Reduction "none" gives one loss per anchor:
    (n,) or (n, v). `weights` of the anchors, `gather` and `validate` are as for `rnc_loss`.

    Features are (n, d), or (n, v, d) for v views of each sample; every view is an anchor. They have
    length 1, as `ProjectionHead` makes them; the loss does not normalise. Classes are (n,), or
    (n, t) where a class is a row; `to_classes` makes them from targets.

    >>> features = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    >>> alike, mixed = torch.tensor([0, 0, 1, 1]), torch.tensor([0, 1, 0, 1])
    >>> supcon_loss(features, alike) < supcon_loss(features, mixed)
    tensor(True)
    """
    check_positive(base_temperature=base_temperature)
    rows = as_rows(features, classes, "supcon_loss")
    if validate:
        check_labels(classes, "supcon_loss", features)
    if weights is not None:
        views = features.shape[1] if features.dim() == 3 else 1
        weights = as_weights(weights, len(features), views, "supcon_loss", check=validate)
    loss = class_contrast(rows, _dot, temperature, reduction, gather, "supcon_loss", weights)
    return (temperature / base_temperature * loss).reshape(
        features.shape[:-1] if reduction == "none" else ()
    )


def class_contrast(
    rows: Rows,
    similarity: Pairwise,
    temperature: float,
    reduction: Reduction,
    gather: bool,
    caller: str,
    weights: Tensor | None = None,
) -> Tensor:
    """The mean of L_i, or each L_i. Rows with equal targets are of one class.

    `weights` (n,) are those of the rows: they weigh the mean, or multiply each L_i.
    """
    check_positive(temperature=temperature)
    if reduction not in ("mean", "none"):
        raise ValueError(f"reduction must be one of mean, none; got {reduction!r}.")
    others, start = rows, 0
    together = gather and world_size() > 1
    if together:
        all_features, all_classes, start = gather_rows(*rows)
        others = Rows(all_features, all_classes)
    if others.features.shape[0] < 2:
        raise ValueError(
            f"{caller} needs at least two rows (samples x views) to contrast; got "
            f"{others.features.shape[0]}. Use a larger batch, more views or drop_last=True."
        )
    with torch.autocast(rows.features.device.type, enabled=False):
        logits = similarity(rows.features, others.features) / temperature
        itself = torch.zeros_like(logits, dtype=torch.bool)
        itself.diagonal(start).fill_(True)
        positive = (l1_distance(rows.targets, others.targets) == 0) & ~itself
        log_sums = logits.masked_fill(itself, -torch.inf).logsumexp(dim=1)
        count = positive.sum(dim=1)
        mean = logits.masked_fill(~positive, 0.0).sum(dim=1) / count.clamp(min=1)
        losses = ((log_sums - mean) * (count > 0)).to(rows.features.dtype)
        if weights is not None:
            factors = weights if reduction == "none" else shares(weights, is_shared=together)
            losses = losses * factors.to(losses.dtype)
        if reduction == "none":
            return losses
        return global_mean(losses) if together else losses.mean()


def _dot(a: Tensor, b: Tensor) -> Tensor:
    """Dot products in float64, since dividing by a small temperature magnifies rounding."""
    return a.double() @ b.double().T


def supcon_objective(encoder: nn.Module, setup: MethodSetup) -> FeatureObjective:
    """SupCon of projected features, for an encoder; classes are bins of the training targets."""
    options = setup.options
    temperature = options.contrast_temperature
    grid = label_grid(options.low, options.high, options.step, targets=setup.targets)

    def loss(projections: Tensor, targets: Tensor, weights: Tensor | None = None) -> Tensor:
        return supcon_loss(
            projections,
            grid_classes(targets, grid),
            weights=weights,
            temperature=temperature,
            base_temperature=temperature,
            gather=setup.gather,
            validate=False,
        )

    return FeatureObjective(encoder, loss, ProjectionHead(setup.d, out=options.projection_size))
