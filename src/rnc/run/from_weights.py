"""Runs whose encoder starts from weights: options that suit these, and entries of config.json."""

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

from rnc.config import FitConfig
from rnc.encoders import default_encoder
from rnc.encoders.projection import ProjectedEncoder
from rnc.files import hash_tensors
from rnc.model import Regressor
from rnc.run.folder import RunFolder
from rnc.weights import WeightPixels, about_weights, named_encoder, pixels_of_weights


def has_weights(config: FitConfig) -> bool:
    """Whether an encoder by name starts from weights."""
    return config.pretrained or config.weights is not None


def suit_weights(
    config: FitConfig, given: Collection[str] = (), resumed: Path | None = None
) -> FitConfig:
    """The config with the encoder and the image size that suit its weights.

    Args:
        config: the config of the run.
        given: fields that the user chose, which are not changed.
        resumed: the folder of a run to resume; if it has a run, the fields come from there.
    """
    if not has_weights(config):
        return config
    left = [name for name in ("encoder", "image_size") if name not in given]
    if resumed is not None and (run := RunFolder(resumed)).exists:
        return replace(config, **{name: getattr(run.fit, name) for name in left})
    fields: dict[str, Any] = {}
    if "encoder" in left and config.weights is not None:
        fields["encoder"] = named_encoder(config.weights) or config.encoder
    config = replace(config, **fields)
    size = _pixels(config).size
    return replace(config, image_size=size) if "image_size" in left and size else config


def stored_pixels(config: FitConfig, fit: str) -> dict[str, Any]:
    """Arguments of `DataSource.read` for decoding image files; {} for its defaults.

    `fit` says how a picture becomes a square. Only with "crop" is the decoded square larger than
    the view that the encoder sees, so only then a side is set.
    """
    chosen = (config.augment_options or {}).get("short_side")
    if not has_weights(config):
        return {"side": chosen} if chosen and fit == "crop" else {}
    pixels = _pixels(config)
    side = chosen or pixels.short_side(config.image_size)
    return {"side": side if fit == "crop" else None, "resample": pixels.resample or "bicubic"}


def _pixels(config: FitConfig) -> WeightPixels:
    return pixels_of_weights(_name(config), 3, config.weights)


def _name(config: FitConfig) -> str:
    if config.encoder != "auto":
        return config.encoder
    return default_encoder((3, config.image_size, config.image_size))


def weight_entries(config: FitConfig, model: Regressor) -> dict[str, Any]:
    """Entries of config.json about the weights that an encoder starts from; {} without weights."""
    entry: dict[str, str] = {}
    if has_weights(config) and model.config.encoder != "own":
        entry = about_weights(model.config.encoder, config.weights)
    if isinstance(model.encoder, ProjectedEncoder):
        entry["hash"] = hash_tensors(model.encoder.backbone.state_dict())
    return {"weights": entry} if entry else {}


def check_same_weights(run: RunFolder, entries: dict[str, Any]) -> None:
    """Raise if the frozen encoder of a resumed run has other weights than when it was started."""
    before = (run.config.get("weights") or {}).get("hash")
    if before is not None and before != (entries.get("weights") or {}).get("hash"):
        raise ValueError(
            f"The weights of the frozen encoder of {run.path} have changed since it was started. "
            "Use them as they were, or another --out."
        )


def weight_words(config: FitConfig) -> str | None:
    """A line about the weights that a run starts from; None if there are none.

    The licence is the one that timm or the folder names. The user must comply with it.
    """
    if not has_weights(config):
        return None
    about = about_weights(_name(config), config.weights)
    return f"Weights: {about['source']}, licence: {about['license']}."
