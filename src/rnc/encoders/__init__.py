"""Networks from an input to features: (n, *input_shape) -> (n, d).

The shape of one sample says which kind of encoder fits:

    images   (c, h, w)     any timm model by name (resnet18, resnet50, ...) or "small-cnn"
    volumes  (c, d, h, w)  "resnet3d18", "resnet3d10"
    signals  (c, l)        "resnet1d24", "resnet1d10"
    tables   (p,)          "mlp", "piecewise-mlp"

Features are the last layer's output, averaged over an image, a volume or a signal: no projection
head and no normalisation, as in the paper. To add an encoder, write a class and a line of
`ENCODERS`; your own nn.Module needs neither.
"""

import difflib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rnc.encoders.projection import ProjectedEncoder, ResidualProjection
from rnc.encoders.tables import MLP, PiecewiseMLP
from rnc.encoders.volumes import ResNet3d
from rnc.weights import load_weights, published_weights, weights_file

KINDS = {1: "tables (p,)", 2: "signals (c, l)", 3: "images (c, h, w)", 4: "volumes (c, d, h, w)"}


def build_encoder(
    name: str | nn.Module,
    input_shape: Sequence[int],
    *,
    pretrained: bool = False,
    weights: str | Path | None = None,
    projected: bool = False,
) -> nn.Module:
    """An encoder for inputs of the given shape, checked with one forward pass.

    Weights are random and come from torch's global generator, so seed it first. An encoder with
    batch normalisation needs batches of two samples or more in training, but not in evaluation.

    Args:
        name: one of `ENCODERS`, a timm model for images, or a module (n, *input_shape) -> (n, d),
            which is returned as it is.
        input_shape: shape of one sample as the encoder sees it: (c, h, w), (c, d, h, w),
            (c, l) or (p,).
        pretrained: start from timm's weights, which it downloads or finds in its cache.
        weights: start from these instead: a file or folder, as for `rnc.weights.load_weights`.
        projected: add a projection of the features, as in `rnc.encoders.projection`.

    >>> encoder = build_encoder("mlp", (8,))
    >>> encoder(torch.zeros(5, 8)).shape
    torch.Size([5, 256])
    """
    shape = _checked_shape(input_shape)
    if isinstance(name, nn.Module):
        encoder = name
        if weights is not None:
            raise ValueError("weights are for an encoder by name; load them into your own module.")
    elif name in ENCODERS:
        dims, build = ENCODERS[name]
        _check_kind(name, dims, shape)
        _check_not_published(name, pretrained and weights is None)
        encoder = build(shape[0])
    else:
        encoder = _build_timm(name, shape, pretrained and weights is None)
    if weights is not None:
        load_weights(encoder, str(name), weights)
    d = feature_size(encoder, shape)
    if projected and not isinstance(encoder, ProjectedEncoder):
        return ProjectedEncoder(encoder, ResidualProjection(d))
    return encoder


def default_encoder(input_shape: Sequence[int], *, piecewise: bool = False) -> str:
    """The name of the encoder for a shape: the paper's, or one that suits small images and tables.

    With `piecewise`, tables get the encoder that learns bins from training rows.

    >>> default_encoder((3, 224, 224)), default_encoder((1, 28, 28))
    ('resnet18', 'small-cnn')
    >>> default_encoder((12, 1000)), default_encoder((8,))
    ('resnet1d24', 'mlp')
    >>> default_encoder((1, 58, 58, 58)), default_encoder((1, 16, 16, 16))
    ('resnet3d18', 'resnet3d10')
    >>> default_encoder((8,), piecewise=True)
    'piecewise-mlp'
    """
    shape = _checked_shape(input_shape)
    if len(shape) == 4:
        return "resnet3d18" if min(shape[1:]) > 32 else "resnet3d10"
    if len(shape) == 3:
        return "resnet18" if min(shape[1:]) > 32 else "small-cnn"
    if len(shape) == 2:
        return "resnet1d24"
    return "piecewise-mlp" if piecewise else "mlp"


def feature_size(encoder: nn.Module, input_shape: Sequence[int]) -> int:
    """The number d of features, from one forward pass of zeros in eval mode.

    >>> feature_size(nn.Sequential(nn.Flatten(), nn.Linear(6, 4)), (2, 3))
    4
    """
    shape = _checked_shape(input_shape)
    parameter = next(encoder.parameters(), torch.zeros(0))
    zeros = torch.zeros(2, *shape, device=parameter.device, dtype=parameter.dtype)
    training = [module for module in encoder.modules() if module.training]
    encoder.eval()
    try:
        with torch.no_grad():
            features = encoder(zeros)
    except (RuntimeError, ValueError, IndexError, AssertionError) as error:
        raise ValueError(
            f"{type(encoder).__name__} does not take inputs of shape (n, {_listed(shape)}): "
            f"{error} Choose another encoder or another input size."
        ) from error
    finally:
        for module in training:  # a part that was frozen in eval mode stays so
            module.training = True
    if not isinstance(features, Tensor) or features.dim() != 2 or features.shape[0] != 2:
        came = tuple(features.shape) if isinstance(features, Tensor) else type(features).__name__
        raise ValueError(
            f"an encoder must turn (2, {_listed(shape)}) into features (2, d); "
            f"{type(encoder).__name__} gave {came}. Pool or flatten what it returns."
        )
    return features.shape[1]


def _build_timm(name: str, shape: tuple[int, ...], pretrained: bool) -> nn.Module:
    import timm  # takes seconds, and only encoders for images need it

    _check_timm(name)
    _check_kind(name, 3, shape)
    known = timm.get_pretrained_cfg(name)
    settings: dict[str, Any] = {"num_classes": 0, "in_chans": shape[0]}
    if known is not None and known.fixed_input_size:  # transformers; the others take any size
        settings["img_size"] = shape[1:]
    if pretrained:
        settings |= published_weights(name)
    try:
        encoder = timm.create_model(name, pretrained=pretrained, **settings)
    except (OSError, RuntimeError) as error:
        if not pretrained:
            raise
        raise RuntimeError(
            f"the pretrained weights of {name!r} could not be loaded ({type(error).__name__}). "
            "Go online once, so that they are kept in the Hugging Face cache, or give a file of "
            "them with --weights (weights=), or leave out --pretrained."
        ) from error
    if not pretrained and isinstance(encoder, timm.models.ResNet):
        start_as_in_the_paper(encoder)
    return encoder


def check_encoder(
    name: str, *, image_size: int, pretrained: bool = False, weights: str | Path | None = None
) -> None:
    """Raise if an encoder does not exist, or if its weights cannot be found.

    The check takes no data and builds no network, so it can be called before anything else.
    """
    if weights is not None:
        weights_file(weights)
    published = pretrained and weights is None
    if name == "auto":
        if not published:
            return  # every kind of data has a default encoder
        name = default_encoder((3, image_size, image_size))
    if name in ENCODERS:
        _check_not_published(name, published)
        return
    _check_timm(name)
    if published:
        published_weights(name)


def _check_not_published(name: str, pretrained: bool) -> None:
    if pretrained:
        raise ValueError(
            f"encoder {name!r} has no pretrained weights; got pretrained=True. Leave it out, or "
            "choose a timm model such as 'resnet18'."
        )


def _check_timm(name: str) -> None:
    import timm

    if timm.is_model(name):
        return
    close = difflib.get_close_matches(name, [*ENCODERS, *timm.list_models()], n=5)
    hint = f"Did you mean {', '.join(close)}?" if close else "timm.list_models() has them all."
    raise ValueError(
        f"encoder must be one of {', '.join(ENCODERS)}, a timm image model or an nn.Module; "
        f"got {name!r}. {hint}"
    )


def _checked_shape(input_shape: Sequence[int]) -> tuple[int, ...]:
    shape = tuple(input_shape)
    if len(shape) not in KINDS or min(shape) < 1:
        raise ValueError(
            f"input_shape must be that of one sample: {', '.join(KINDS.values())}; got {shape}. "
            "Leave out the number of samples."
        )
    return shape


def _check_kind(name: str, dims: int, shape: tuple[int, ...]) -> None:
    if len(shape) != dims:
        raise ValueError(
            f"encoder {name!r} takes {KINDS[dims]}; got one of shape ({_listed(shape)}). For "
            f"{KINDS[len(shape)]} use {default_encoder(shape)!r}."
        )


def _listed(shape: tuple[int, ...]) -> str:
    return ", ".join(map(str, shape))


# ------------------------------------------------------------------------------- our networks


class SmallCNN(nn.Module):
    """Four 3x3 convolutions for small images: (n, c, h, w) -> (n, 128).

    Widths 32, 64, 128, 128, each with batch normalisation and ReLU; all but the first halve the
    resolution. 0.24 million parameters, 10 million multiplications at 28 pixels.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for width, stride in ((32, 1), (64, 2), (128, 2), (128, 2)):
            layers.append(nn.Conv2d(channels, width, 3, stride, padding=1, bias=False))
            layers += [nn.BatchNorm2d(width), nn.ReLU(inplace=True)]
            channels = width
        self.layers = nn.Sequential(*layers)
        self.num_features = channels
        start_as_in_the_paper(self)

    def forward(self, images: Tensor) -> Tensor:
        """Features of a batch of images."""
        _check_batch(self, images)
        features: Tensor = self.layers(images).mean(dim=(2, 3))
        return features


class ResNet1d(nn.Module):
    """A residual network for signals: (n, c, l) -> (n, 256).

    The paper says "24-layer 1D ResNet" and no more. Ours follows ResNet-34: one convolution and a
    pooling that halve the length each, then stages of 2, 3, 4 and 2 basic blocks with widths 32,
    64, 128 and 256, each stage but the first halving the length again. Counted as there, without
    the shortcuts: 1 + 11 blocks * 2 convolutions + the linear regressor on top = 24. Kernels are 7
    long (15 in the first layer), since neighbouring samples of a signal differ little and a long
    kernel costs little in one dimension. 2.7 million parameters; 12 leads of 1,000 samples take
    0.14 billion multiplications.
    """

    def __init__(self, channels: int, blocks: Sequence[int] = (2, 3, 4, 2)) -> None:
        super().__init__()
        width = 32
        self.stem = nn.Sequential(
            nn.Conv1d(channels, width, 15, stride=2, padding=7, bias=False),
            nn.BatchNorm1d(width),
            nn.ReLU(inplace=True),
            nn.MaxPool1d(3, stride=2, padding=1),
        )
        layers: list[nn.Module] = []
        for stage, count in enumerate(blocks):
            for i in range(count):
                layers.append(BasicBlock1d(width, 32 * 2**stage, 2 if stage and i == 0 else 1))
                width = 32 * 2**stage
        self.blocks = nn.Sequential(*layers)
        self.num_features = width
        start_as_in_the_paper(self)

    def forward(self, signals: Tensor) -> Tensor:
        """Features of a batch of signals."""
        _check_batch(self, signals)
        features: Tensor = self.blocks(self.stem(signals)).mean(dim=2)
        return features


class BasicBlock1d(nn.Module):
    """ReLU(x + two convolutions of x), with a 1-long convolution of x where the shape changes."""

    def __init__(self, width: int, out: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv1d(width, out, 7, stride, padding=3, bias=False)
        self.norm1 = nn.BatchNorm1d(out)
        self.conv2 = nn.Conv1d(out, out, 7, padding=3, bias=False)
        self.norm2 = nn.BatchNorm1d(out)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or width != out:
            convolution = nn.Conv1d(width, out, 1, stride, bias=False)
            self.shortcut = nn.Sequential(convolution, nn.BatchNorm1d(out))

    def forward(self, x: Tensor) -> Tensor:
        """The block's output, at the length that the stride leaves."""
        change = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))
        return F.relu(change + self.shortcut(x))


def _resnet3d18(channels: int) -> nn.Module:
    network = ResNet3d(channels)
    start_as_in_the_paper(network)
    return network


def _resnet3d10(channels: int) -> nn.Module:
    """For small volumes and for CPUs: 0.9 million parameters, features (n, 128)."""
    network = ResNet3d(channels, (1, 1, 1, 1), width=16, stem=3)
    start_as_in_the_paper(network)
    return network


ENCODERS: dict[str, tuple[int, Callable[[int], nn.Module]]] = {
    "small-cnn": (3, SmallCNN),
    "resnet3d18": (4, _resnet3d18),
    "resnet3d10": (4, _resnet3d10),
    "resnet1d24": (2, ResNet1d),
    "resnet1d10": (2, partial(ResNet1d, blocks=(1, 1, 1, 1))),
    "mlp": (1, MLP),
    "piecewise-mlp": (1, PiecewiseMLP),
}
"""By name: how many dimensions a sample has, and what builds the network for the first one."""


def start_as_in_the_paper(network: nn.Module) -> None:
    """Draw convolutions from N(0, 2 / (kernel * out)); set all batch norms to 1 and 0."""
    for module in network.modules():
        if isinstance(module, nn.Conv1d | nn.Conv2d | nn.Conv3d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        elif isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
            nn.init.ones_(module.weight)
            nn.init.zeros_(module.bias)


def _check_batch(network: nn.Module, x: Tensor) -> None:
    if network.training and x.shape[0] == 1:
        raise ValueError(
            f"{type(network).__name__} has batch normalisation, so that training needs batches of "
            "two samples or more; got 1. Use drop_last=True, or .eval() to encode."
        )
