"""Networks for volumes: residual networks with kernels of three dimensions."""

from collections.abc import Sequence

from torch import Tensor, nn
from torch.nn import functional as F

_GROUP = 8  # channels that are normalised together


class ResNet3d(nn.Module):
    """A residual network for volumes: (n, c, d, h, w) -> (n, 8 width).

    ResNet-18 (He et al., CVPR 2016) with a third side to every kernel: one convolution and a
    pooling that halve the sides each, then four stages of basic blocks, each stage but the first
    halving the sides and doubling the width. Group normalisation (Wu and He, ECCV 2018) takes the
    place of batch normalisation: batches of volumes are small, and the features of a sample must
    not depend on how a batch is cut into chunks or shared among processes. 33.2 million parameters
    with one channel; 64 x 64 x 64 voxels take 5.9 billion multiplications.

    Args:
        channels: number of channels of a volume.
        blocks: number of blocks in each stage.
        width: channels of the first stage, a multiple of 8.
        stem: side of the first kernel; one of 3 has no pooling behind it, for small volumes.
    """

    def __init__(
        self, channels: int, blocks: Sequence[int] = (2, 2, 2, 2), *, width: int = 64, stem: int = 7
    ) -> None:
        super().__init__()
        layers: list[nn.Module] = [
            nn.Conv3d(channels, width, stem, stride=2, padding=stem // 2, bias=False),
            _group_norm(width),
            nn.ReLU(inplace=True),
        ]
        if stem > 3:
            layers.append(nn.MaxPool3d(3, stride=2, padding=1))
        self.num_features = width
        for stage, count in enumerate(blocks):
            for i in range(count):
                out, stride = width * 2**stage, 2 if stage and i == 0 else 1
                layers.append(BasicBlock3d(self.num_features, out, stride))
                self.num_features = out
        self.layers = nn.Sequential(*layers)

    def forward(self, volumes: Tensor) -> Tensor:
        """Features of a batch of volumes."""
        features: Tensor = self.layers(volumes).mean(dim=(2, 3, 4))
        return features


class BasicBlock3d(nn.Module):
    """ReLU(x + two convolutions of x), with a 1-long convolution of x where the shape changes."""

    def __init__(self, width: int, out: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv3d(width, out, 3, stride, padding=1, bias=False)
        self.norm1 = _group_norm(out)
        self.conv2 = nn.Conv3d(out, out, 3, padding=1, bias=False)
        self.norm2 = _group_norm(out)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or width != out:
            convolution = nn.Conv3d(width, out, 1, stride, bias=False)
            self.shortcut = nn.Sequential(convolution, _group_norm(out))

    def forward(self, x: Tensor) -> Tensor:
        """The block's output, at the size that the stride leaves."""
        change = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))
        return F.relu(change + self.shortcut(x))


def _group_norm(width: int) -> nn.GroupNorm:
    return nn.GroupNorm(width // _GROUP, width)
