"""A projection on the features of an encoder that does not change: (n, d) -> (n, d).

    z = (features - shift) / scale           from the training features; one scale for all
    projection(features) = z + W2 ReLU(LayerNorm(W1 z))

W2 starts at 0, so that training starts from the features as they are. docs/pretrained.md compares
it with a linear map and with no projection.
"""

import torch
from torch import Tensor, nn

HIDDEN_UNITS = 512
"""Width of the hidden layer."""


class ResidualProjection(nn.Module):
    """What is learned on top of frozen features."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.shift: Tensor
        self.scale: Tensor
        self.register_buffer("shift", torch.zeros(d))
        self.register_buffer("scale", torch.ones(()))
        self.hidden = nn.Sequential(
            nn.Linear(d, HIDDEN_UNITS), nn.LayerNorm(HIDDEN_UNITS), nn.ReLU()
        )
        self.out = nn.Linear(HIDDEN_UNITS, d)
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)
        self.num_features = d

    @torch.no_grad()
    def learn_scale(self, features: Tensor) -> None:
        """Set shift and scale from training features (n, d)."""
        values = features.double()
        self.shift.copy_(values.mean(dim=0))
        spread = values.var(dim=0, correction=0).mean().sqrt()
        self.scale.copy_(spread if spread > 0 else torch.ones_like(spread))

    def forward(self, features: Tensor) -> Tensor:
        """Projected features."""
        z = (features - self.shift) / self.scale
        projected: Tensor = z + self.out(self.hidden(z))
        return projected


class ProjectedEncoder(nn.Module):
    """A frozen encoder followed by a projection of its features: (n, ...) -> (n, d)."""

    def __init__(self, backbone: nn.Module, projection: ResidualProjection) -> None:
        super().__init__()
        self.backbone, self.projection = backbone, projection

    def forward(self, x: Tensor) -> Tensor:
        """Projected features of samples."""
        features: Tensor = self.projection(self.backbone(x))
        return features
