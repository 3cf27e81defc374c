"""SimCLR's loss, NT-Xent (Chen 2020, arXiv:2002.05709).

    s_ik = cos(z_i, z_k) / temperature          z from a projection head
    P_i  = the other views of the sample of i
    L    = mean_i mean_{p in P_i} [ log sum_{k != i} exp(s_ik) - s_ip ]

Beside the RnC loss: NT-Xent sees no labels, so all other samples are equally far. It is SupCon with
every sample as a class of its own.
"""

import torch
import torch.distributed as dist
from torch import Tensor, nn

from rnc.loss.anchor_weights import as_weights
from rnc.loss.batch import as_rows
from rnc.loss.distributed import world_size
from rnc.loss.pairwise import cosine
from rnc.methods.labels import check_labels
from rnc.methods.objective import FeatureObjective, MethodSetup
from rnc.methods.projection import ProjectionHead
from rnc.methods.supcon import class_contrast


def ntxent_loss(
    features: Tensor,
    *,
    weights: Tensor | None = None,
    temperature: float = 0.1,
    gather: bool = False,
    validate: bool = True,
) -> Tensor:
    """NT-Xent loss of a batch: low when views of a sample are alike, and no others are.

    The loss is finite for finite input; half precision gives a float32 result. It is the mean over
    the anchors. The authors' TensorFlow code adds up both directions, which is twice as much.
    Features are (n, v, d) with v >= 2 views of each sample; the loss normalises them. `weights`
    (n,) of the anchors, `gather` and `validate` are as for `rnc_loss`.

    >>> x = torch.randn(8, 1, 16)
    >>> ntxent_loss(torch.cat([x, x], dim=1)) < ntxent_loss(torch.cat([x, x.flip(0)], dim=1))
    tensor(True)
    """
    if features.dim() != 3 or features.shape[1] < 2:
        raise ValueError(
            "ntxent_loss needs features (n, v, d) with v >= 2 views of each sample; got "
            f"{tuple(features.shape)}. Augment each sample twice and stack the views."
        )
    samples = torch.arange(features.shape[0], device=features.device)
    if gather and world_size() > 1:  # unique numbers across all processes
        samples = samples * world_size() + dist.get_rank()
    rows = as_rows(features, samples, "ntxent_loss")
    if validate:
        check_labels(samples, "ntxent_loss", features)
    if weights is not None:
        n, v = features.shape[:2]
        weights = as_weights(weights, n, v, "ntxent_loss", check=validate)
    return class_contrast(rows, cosine, temperature, "mean", gather, "ntxent_loss", weights)


def simclr_objective(encoder: nn.Module, setup: MethodSetup) -> FeatureObjective:
    """NT-Xent of projected features, for an encoder."""
    temperature = setup.options.contrast_temperature

    def loss(
        projections: Tensor,
        targets: Tensor,
        weights: Tensor | None = None,
        upper: Tensor | None = None,
    ) -> Tensor:  # targets are ignored, whether exact or not
        return ntxent_loss(
            projections,
            weights=weights,
            temperature=temperature,
            gather=setup.gather,
            validate=False,
        )

    projection = ProjectionHead(setup.d, out=setup.options.projection_size)
    return FeatureObjective(encoder, loss, projection)
