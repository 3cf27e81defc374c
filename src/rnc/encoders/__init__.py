"""Networks from an input to features: (n, *input_shape) -> (n, d).

The shape of one sample says which kind of encoder fits:

    images   (c, h, w)    any timm model by name (resnet18, resnet50, ...) or "small-cnn"
    signals  (c, l)       "resnet1d24", "resnet1d10"
    tables   (p,)         "mlp"

Features are the last layer's output, averaged over an image or a signal: no projection head and no
normalisation, as in the paper. One more encoder of ours is a class and a line of `ENCODERS` in
networks.py; your own nn.Module needs neither.
"""

import difflib
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from rnc.encoders.networks import ENCODERS, start_as_in_the_paper

__all__ = ["ENCODERS", "build_encoder", "default_encoder", "feature_size"]

KINDS = {1: "tables (p,)", 2: "signals (c, l)", 3: "images (c, h, w)"}


def build_encoder(
    name: str | nn.Module, input_shape: Sequence[int], *, pretrained: bool = False
) -> nn.Module:
    """An encoder for inputs of the given shape, checked with one forward pass.

    Weights are random and come from torch's global generator, so seed it first. Where there is
    batch normalisation, training needs batches of two samples or more; evaluation does not.

    Args:
        name: one of `ENCODERS`, a timm model for images, or a module (n, *input_shape) -> (n, d),
            which is returned as it is.
        input_shape: shape of one sample as the encoder sees it: (c, h, w), (c, l) or (p,).
        pretrained: start from timm's weights, which it downloads or finds in its cache.

    >>> encoder = build_encoder("mlp", (8,))
    >>> encoder(torch.zeros(5, 8)).shape
    torch.Size([5, 256])
    """
    shape = _checked_shape(input_shape)
    if isinstance(name, nn.Module):
        encoder = name
    elif name in ENCODERS:
        encoder = _build_ours(name, shape, pretrained)
    else:
        encoder = _build_timm(name, shape, pretrained)
    feature_size(encoder, shape)
    return encoder


def default_encoder(input_shape: Sequence[int]) -> str:
    """The name of the encoder for a shape: the paper's, or one that suits small images and tables.

    >>> default_encoder((3, 224, 224)), default_encoder((1, 28, 28))
    ('resnet18', 'small-cnn')
    >>> default_encoder((12, 1000)), default_encoder((8,))
    ('resnet1d24', 'mlp')
    """
    shape = _checked_shape(input_shape)
    if len(shape) == 3:
        return "resnet18" if min(shape[1:]) > 32 else "small-cnn"
    return "resnet1d24" if len(shape) == 2 else "mlp"


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


# ------------------------------------------------------------------------------------ by name


def _build_ours(name: str, shape: tuple[int, ...], pretrained: bool) -> nn.Module:
    dims, build = ENCODERS[name]
    if len(shape) != dims:
        raise ValueError(
            f"encoder {name!r} takes {KINDS[dims]}; got one of shape ({_listed(shape)}). For "
            f"{KINDS[len(shape)]} use {default_encoder(shape)!r}."
        )
    if pretrained:
        raise ValueError(
            f"encoder {name!r} has no pretrained weights; got pretrained=True. Leave it out, or "
            "choose a timm model such as 'resnet18'."
        )
    return build(shape[0])


def _build_timm(name: str, shape: tuple[int, ...], pretrained: bool) -> nn.Module:
    import timm  # takes seconds, and only this function needs it

    if not timm.is_model(name):
        close = difflib.get_close_matches(name, [*ENCODERS, *timm.list_models()], n=5)
        hint = f"Did you mean {', '.join(close)}?" if close else "timm.list_models() has them all."
        raise ValueError(
            f"encoder must be one of {', '.join(ENCODERS)}, a timm image model or an nn.Module; "
            f"got {name!r}. {hint}"
        )
    if len(shape) != 3:
        raise ValueError(
            f"encoder {name!r} takes {KINDS[3]}; got one of shape ({_listed(shape)}). For "
            f"{KINDS[len(shape)]} use {default_encoder(shape)!r}."
        )
    if pretrained and not timm.is_model_pretrained(name):
        raise ValueError(f"timm has no pretrained weights for {name!r}; leave out pretrained.")
    known = timm.get_pretrained_cfg(name)
    settings: dict[str, Any] = {"num_classes": 0, "in_chans": shape[0]}
    if known is not None and known.fixed_input_size:  # transformers; the others take any size
        settings["img_size"] = shape[1:]
    try:
        encoder = timm.create_model(name, pretrained=pretrained, **settings)
    except (OSError, RuntimeError) as error:
        if not pretrained:
            raise
        raise RuntimeError(
            f"the pretrained weights of {name!r} could not be loaded ({type(error).__name__}). "
            "Go online once, so that they are kept in the Hugging Face cache, or copy that cache "
            "here and set HF_HUB_OFFLINE=1, or leave out pretrained."
        ) from error
    if not pretrained and isinstance(encoder, timm.models.ResNet):
        start_as_in_the_paper(encoder)
    return encoder


def _checked_shape(input_shape: Sequence[int]) -> tuple[int, ...]:
    shape = tuple(input_shape)
    if len(shape) not in KINDS or min(shape) < 1:
        raise ValueError(
            f"input_shape must be that of one sample: {', '.join(KINDS.values())}; got {shape}. "
            "Leave out the number of samples."
        )
    return shape


def _listed(shape: tuple[int, ...]) -> str:
    return ", ".join(map(str, shape))
