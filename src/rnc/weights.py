"""Weights to start an encoder from: published by timm, or in a file or folder of the user's.

    load_weights       loads all tensors of an encoder from a file or folder
    published_weights  finds timm's published weights; raises at once if they are out of reach
    pixels_of_weights  how pixels were normalised and scaled when the weights were trained
    about_weights      source and licence of weights, for config.json
    named_encoder      the encoder that a folder of weights belongs to

Only .safetensors files are read: a .pth or .bin file is a pickle, which could run code.
"""

import json
import math
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

_NAME = "model.safetensors"  # the name that timm and the Hugging Face hub use
_PREFIXES = ("encoder.", "module.", "backbone.")
"""Prefixes of names in a Regressor, DistributedDataParallel, a Regressor on a frozen encoder."""
_TIMEOUT = 5  # seconds to wait for a server's answer
_ADVICE = (
    "Download them on another machine and give the file or folder with --weights (weights=), or "
    "leave out --pretrained."
)

_RELEASED = ("encoder.conv1.weight", "encoder.module.conv1.weight")
"""Names in checkpoints of the paper's released code, trained on one or on several GPUs."""

UNKNOWN = "unknown"
"""The licence of weights if neither timm nor their folder names one."""
_HARMLESS = (
    "img_size",
    "num_classes",
    "in_chans",
    "drop_rate",
    "drop_path_rate",
    "dynamic_img_size",
)
"""Arguments in a folder's config.json that do not change the network which the name builds."""


@dataclass(frozen=True)
class WeightPixels:
    """How pixels were normalised and scaled when weights were trained. None means unknown."""

    mean: tuple[float, ...] | None = None
    """Mean of pixels in 0..1: one number, or one per channel."""
    std: tuple[float, ...] | None = None
    size: int | None = None
    """Side of the square that the encoder saw."""
    share: float | None = None
    """The share of a picture's short side that it saw: timm's crop_pct."""
    interpolation: str | None = None
    """bilinear or bicubic: how views were scaled."""
    resample: str | None = None
    """bilinear or bicubic: how files were scaled."""

    def short_side(self, size: int) -> int | None:
        """The short side to scale a picture to, before its middle of this size is cut out.

        >>> WeightPixels(share=0.95).short_side(224), WeightPixels(share=1.0).short_side(518)
        (235, 518)
        """
        return None if self.share is None else max(size, math.floor(size / self.share))


def load_weights(encoder: nn.Module, name: str, path: str | Path) -> None:
    """Load the weights in a file or folder into an encoder. Those of a classifier are ignored.

    Args:
        encoder: a network of timm without its classifier, or one of ours.
        name: name of the encoder; timm converts older files by it.
        path: a .safetensors file, a folder as timm and the hub save them, or a run folder.
    """
    file = weights_file(path)
    _check_arguments(file)
    needed = encoder.state_dict()
    given = _read(file)
    classifiers: tuple[str, ...] = ()
    if (known := _timm_config(name)) is not None:
        given = _convert(name)(given, encoder)
        classifiers = _as_tuple(known.classifier)
        for conv in _as_tuple(known.first_conv):
            key = f"{conv}.weight"
            if key in given and key in needed and given[key].shape[1] == 3 != needed[key].shape[1]:
                given[key] = _adapt(needed[key].shape[1], given[key])
    kept = {
        key: value
        for key, value in given.items()
        if key in needed or key.rpartition(".")[0] not in classifiers
    }
    kept = {key: needed[key] for key in needed if key.endswith("num_batches_tracked")} | kept
    missing, unknown = sorted(set(needed) - set(kept)), sorted(set(kept) - set(needed))
    other = [key for key in kept if key in needed and kept[key].shape != needed[key].shape]
    if missing or unknown or other:
        shapes = [f"{k} {tuple(kept[k].shape)}, not {tuple(needed[k].shape)}" for k in other]
        raise ValueError(
            f"{file} does not hold the weights of encoder {name!r}. Missing: {_few(missing)}. "
            f"Unknown: {_few(unknown)}. Other shapes: {_few(shapes)}. {_advice(file, name)}"
        )
    encoder.load_state_dict(kept)


def _advice(file: Path, name: str) -> str:
    """Advice about weights that do not fit."""
    content, named = _folder_config(file.parent), named_encoder(file)
    if named is not None and named != name:
        return f"Its config.json names --encoder {named}."
    if "architectures" in content:  # as the library transformers writes it
        return (
            "They have the names of the library transformers. Take the copy of the model that is "
            "in timm's naming, on the hub under timm/."
        )
    return "Choose the --encoder that they were trained with, in timm's naming."


def _check_arguments(file: Path) -> None:
    """Raise if the folder of a file says that its network was built with further arguments."""
    given = _folder_config(file.parent).get("model_args") or {}
    if other := sorted(set(given) - set(_HARMLESS)):
        shown = ", ".join(f"{key}={given[key]!r}" for key in other)
        raise ValueError(
            f"{file.parent} was built with further arguments ({shown}), and an encoder by name is "
            "not. Build it with timm.create_model, load the weights, and give the module as "
            "encoder= from Python."
        )


def fill_weights(model: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Load weights. If they belong to another model, raise ValueError with the first difference."""
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        line = str(error).splitlines()[1:2] or [str(error)]
        raise ValueError(f"it has the weights of another model: {line[0].strip()}") from error


def weights_file(path: str | Path) -> Path:
    """The file of weights at a path, which may be a folder. Raises if there is none."""
    path = Path(path)
    if path.is_file():
        return path
    folders = [path, *sorted(path.glob("snapshots/*"))]  # the hub's cache has snapshots
    for file in (folder / _NAME for folder in folders):
        if file.is_file():
            return file
    content = sorted(p.name for p in path.iterdir()) if path.is_dir() else "no such file or folder"
    raise FileNotFoundError(
        f"weights must be a .safetensors file, or a folder with {_NAME}; got {path}: {content}."
    )


def published_weights(name: str) -> dict[str, Any]:
    """Settings for timm's create_model to load the published weights. Raises if out of reach.

    Weights in the Hugging Face cache are read without asking the server. For others, the server
    must answer within seconds.
    """
    import timm
    from huggingface_hub import constants, try_to_load_from_cache

    if not timm.is_model_pretrained(name):
        raise ValueError(f"timm has no pretrained weights for {name!r}; leave out pretrained.")
    known = _timm_config(name)
    assert known is not None
    if known.hf_hub_id is None:
        address = known.url
        cached = Path(torch.hub.get_dir()) / "checkpoints" / Path(address).name
        found: list[Any] = [cached] if cached.exists() else []
    else:
        address = f"{constants.ENDPOINT}/{known.hf_hub_id}"
        found = [try_to_load_from_cache(known.hf_hub_id, known.hf_hub_filename or _NAME)]
    files = [str(file) for file in found if isinstance(file, str | Path)]
    if files:
        return {} if known.custom_load else {"pretrained_cfg_overlay": {"file": files[0]}}
    reason = "HF_HUB_OFFLINE is set" if constants.HF_HUB_OFFLINE else _unreachable(address)
    if reason:
        raise RuntimeError(
            f"the pretrained weights of {name!r} are not in the cache, and {address} is out of "
            f"reach ({reason}). {_ADVICE}"
        )
    return {}


def pixels_of_weights(name: str, channels: int, path: str | Path | None = None) -> WeightPixels:
    """How the pixels of an encoder were prepared, as its folder or timm says.

    A file of the paper's released code, known by its tensor names, has mean and std 0.5. If there
    are not 3 channels, mean and std are averages over the three.

    >>> pixels_of_weights("resnet18", 3)  # doctest: +ELLIPSIS
    WeightPixels(mean=(0.485, 0.456, 0.406), ..., size=224, share=0.95, interpolation='bicubic', ...
    """
    content = {} if path is None else _folder_config(weights_file(path).parent)
    if "augment" in (run := content.get("model", {})):
        return _of_run(run, channels)
    said = content.get("pretrained_cfg") or content
    if path is not None and "mean" not in said and _is_released(weights_file(path)):
        return WeightPixels((0.5,), (0.5,))
    known = _timm_config(name)

    def find(what: str) -> Any:
        return said.get(what) or (known and getattr(known, what)) or None

    size, share, by = find("input_size"), find("crop_pct"), find("interpolation")
    by = None if by is None else "bicubic" if by == "bicubic" else "bilinear"
    return WeightPixels(
        _per_channel(find("mean"), channels),
        _per_channel(find("std"), channels),
        None if size is None else int(size[-1]),
        share if share is not None and 0 < share <= 1 else None,
        by,
        by,
    )


def _of_run(model: Mapping[str, Any], channels: int) -> WeightPixels:
    """How the pixels of one of our runs were prepared; None throughout for signals and tables."""
    augment, files = model["augment"], model.get("preprocessing") or {}
    size, short = augment.get("size"), augment.get("short_side")
    return WeightPixels(
        _per_channel(augment.get("mean"), channels),
        _per_channel(augment.get("std"), channels),
        size,
        None if short is None else size / short,
        augment.get("interpolation"),
        files.get("resample"),
    )


def _per_channel(values: Any, channels: int) -> tuple[float, ...] | None:
    if values is None:
        return None
    numbers = tuple(float(x) for x in values)
    return numbers if channels == 3 or len(numbers) == 1 else (sum(numbers) / len(numbers),)


def named_encoder(path: str | Path) -> str | None:
    """The encoder that the config.json beside some weights names, or None."""
    content = _folder_config(weights_file(path).parent)
    name = content.get("architecture") or content.get("model", {}).get("encoder")
    return name if isinstance(name, str) and name != "own" else None


def about_weights(name: str, path: str | Path | None = None) -> dict[str, str]:
    """The source and the licence of weights, as timm or their folder says."""
    if path is None:
        known = _timm_config(name)
        source = f"timm {name}" + (f".{known.tag}" if known is not None and known.tag else "")
        return {"source": source, "license": str((known and known.license) or UNKNOWN)}
    folder = weights_file(path).parent
    content = _folder_config(folder)
    if isinstance(before := content.get("weights"), dict):  # a run that started from other weights
        licence = str(before.get("license", UNKNOWN))
    else:
        licence = (content.get("pretrained_cfg") or {}).get("license") or _card_licence(folder)
    return {"source": str(path), "license": str(licence or UNKNOWN)}


def _card_licence(folder: Path) -> str:
    """The licence in the header of a model card, README.md in the hub's format; "" if none."""
    card = folder / "README.md"
    lines = (
        card.read_text(encoding="utf-8", errors="replace").splitlines() if card.is_file() else []
    )
    if not lines or lines[0].strip() != "---":
        return ""
    for line in lines[1:]:
        if line.strip() == "---":
            return ""
        if line.startswith("license:"):
            return line.removeprefix("license:").strip().strip("'\"")
    return ""


def read_safetensors(file: Path) -> dict[str, Tensor]:
    """All tensors of a .safetensors file by name. Raises for other files."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    if file.suffix != ".safetensors":
        raise ValueError(
            f"weights must be a .safetensors file; {file} may be a pickle, which could run code "
            "when it is read. Where you trust it, save its state_dict with "
            "safetensors.torch.save_file; docs/data.md has the line."
        )
    try:
        tensors: dict[str, Tensor] = load_file(file)
    except SafetensorError as error:
        raise ValueError(f"{file} is no whole .safetensors file ({error}).") from error
    return tensors


def _read(file: Path) -> dict[str, Tensor]:
    """The tensors of an encoder, without the prefixes that a surrounding module added."""
    tensors = read_safetensors(file)
    for prefix in _PREFIXES:
        if any(key.startswith(prefix) for key in tensors):
            inside = ((key, value) for key, value in tensors.items() if key.startswith(prefix))
            tensors = {key.removeprefix(prefix): value for key, value in inside}
    return tensors


def _is_released(file: Path) -> bool:
    """Whether a file has the tensor names of the paper's released code, not those of our models."""
    from safetensors import SafetensorError, safe_open

    if file.suffix != ".safetensors":
        return False
    try:
        with safe_open(file, framework="pt") as opened:
            names = set(opened.keys())
    except SafetensorError:  # loading the file will raise a clear error
        return False
    return any(name in names for name in _RELEASED) and "input_shift" not in names


def _timm_config(name: str) -> Any:
    """Timm's settings for the weights of a model; None if timm does not have the model."""
    import timm

    return timm.get_pretrained_cfg(name) if timm.is_model(name) else None


def _convert(name: str) -> Callable[[dict[str, Tensor], nn.Module], dict[str, Tensor]]:
    """Timm's function that converts weights from older files, and for other input sizes."""
    import timm

    module = sys.modules[timm.models.model_entrypoint(name).__module__]
    convert = vars(module).get("checkpoint_filter_fn")
    return convert if convert is not None else lambda tensors, encoder: tensors


def _adapt(channels: int, weight: Tensor) -> Tensor:
    from timm.models import adapt_input_conv

    adapted: Tensor = adapt_input_conv(channels, weight)
    return adapted


def _folder_config(folder: Path) -> dict[str, Any]:
    file = folder / "config.json"
    content = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    return content if isinstance(content, dict) else {}


def _unreachable(address: str) -> str:
    """Why a server does not answer; "" if it does, even with an error."""
    request = urllib.request.Request(address, method="HEAD")
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT):
            return ""
    except urllib.error.HTTPError:
        return ""
    except OSError as error:
        return str(getattr(error, "reason", "") or error) or type(error).__name__


def _as_tuple(names: str | tuple[str, ...] | None) -> tuple[str, ...]:
    return () if names is None else (names,) if isinstance(names, str) else tuple(names)


def _few(names: list[str]) -> str:
    return (", ".join(names[:3]) + (f" and {len(names) - 3} more" * (len(names) > 3))) or "none"
