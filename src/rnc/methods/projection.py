"""The head between the features and a contrastive loss (Chen 2020, arXiv:2002.05709).

    z = W2 relu(W1 v),    divided by its length where asked

It is thrown away after training: predictions are made from v. The RnC loss has no such head; it
shapes v itself.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize


class ProjectionHead(nn.Module):
    """Linear, ReLU, Linear: (n, d) or (n, v, d) -> (n, out) or (n, v, out).

    >>> ProjectionHead(512)(torch.randn(8, 2, 512)).shape
    torch.Size([8, 2, 128])
    """

    def __init__(
        self, d: int, *, hidden: int | None = None, out: int = 128, normalize: bool = True
    ) -> None:
        """Make the two layers, with d between them where hidden is None.

        `normalize` scales projections to length 1. SupCon needs that; SimCLR's loss does it itself.
        """
        super().__init__()
        hidden = d if hidden is None else hidden
        if min(d, hidden, out) < 1:
            raise ValueError(f"ProjectionHead needs widths >= 1; got {d=}, {hidden=}, {out=}.")
        self.normalize = normalize
        self.layers = nn.Sequential(nn.Linear(d, hidden), nn.ReLU(), nn.Linear(hidden, out))

    def forward(self, features: Tensor) -> Tensor:
        """The projection; in float32 or wider where it is normalised."""
        projection: Tensor = self.layers(features)
        return unit_length(projection) if self.normalize else projection


def unit_length(rows: Tensor) -> Tensor:
    """Rows of length 1, in float32 or wider: (..., d) -> (..., d). A row of zeros stays."""
    return normalize(rows.to(torch.promote_types(rows.dtype, torch.float32)), dim=-1)
