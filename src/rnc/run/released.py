"""Convert checkpoints of the paper's released code to run folders.

That code saves a ResNet without a classifier, for photos of AgeDB with 224 pixels, mean 0.5 and std
0.5. First turn a checkpoint into a .safetensors file, as docs/data.md shows. Its tensors are then:

    main_rnc.py     encoder.conv1.weight, ...   on several GPUs: encoder.module.conv1.weight, ...
    main_linear.py  weight, bias                the head for that encoder, in a separate file
    main_l1.py      encoder.conv1.weight, ..., fc.weight, fc.bias
"""

from dataclasses import asdict
from pathlib import Path

import torch
from torch import Tensor

from rnc.config import FitConfig, Scheme
from rnc.data.source import DataSource, stored_side
from rnc.files import MODEL_FILE, write_tensors
from rnc.heads import HeadConfig
from rnc.model import CONVERTED_FROM, ModelConfig, Regressor, without_head
from rnc.run.start import check_folder_state
from rnc.training.checkpoint import ENCODER_FILE, write_stage
from rnc.weights import load_weights, read_safetensors

_SIDE = 224
_OF_RESNET50 = "layer1.0.conv3.weight"  # resnet18 has two convolutions in a block


def convert_release(encoder: Path, out: Path, head: Path | None = None) -> Regressor:
    """Write a run folder with the weights of the paper's released code, and return its model.

    If there is no head, neither in `head` nor in the file of the encoder, the folder holds only an
    encoder, for `rnc fit --encoder-from`.

    Args:
        encoder: the checkpoint of main_rnc.py or main_l1.py, as .safetensors.
        out: the run folder, which must be new or empty.
        head: the checkpoint of main_linear.py, as .safetensors.
    """
    tensors = read_safetensors(encoder)
    name = "resnet50" if any(key.endswith(_OF_RESNET50) for key in tensors) else "resnet18"
    linear = _linear(tensors, "fc.") if head is None else _linear(read_safetensors(head), "")
    if head is not None and linear is None:
        raise ValueError(
            f"{head} is no head of main_linear.py, which has tensors weight and bias; got "
            f"{', '.join(sorted(read_safetensors(head))[:3])}. Convert its 'state_dict'."
        )
    scheme: Scheme = "probe" if head is not None or linear is None else "end2end"
    fit = FitConfig(preset="paper", encoder=name, image_size=_SIDE, scheme=scheme)
    check_folder_state(out, fit, resume=False, overwrite=False)
    model = Regressor(_model_config(fit, 2048 if name == "resnet50" else 512)).eval()
    load_weights(model.encoder, name, encoder)
    if linear is not None:
        _fill_head(model, linear, encoder if head is None else head)
    _save(model, out, fit, [str(file) for file in (encoder, head) if file is not None], linear)
    return model


def _linear(tensors: dict[str, Tensor], prefix: str) -> tuple[Tensor, Tensor] | None:
    """Weight and bias of a linear layer; None if a tensor is missing."""
    names = (f"{prefix}weight", f"{prefix}bias")
    return (tensors[names[0]], tensors[names[1]]) if tensors.keys() >= set(names) else None


def _model_config(fit: FitConfig, features: int) -> ModelConfig:
    # That code predicts plain years, without shift and scale.
    head = HeadConfig("l1", features, shift=(0.0,), scale=(1.0,), bins=(1,))
    return ModelConfig(
        kind="image",
        encoder=fit.encoder,
        input_shape=(3, _SIDE, _SIDE),
        augment=asdict(fit.augmentation("image")),
        head=asdict(head),
        target_names=("age",),
        preprocessing={"channels": 3, "fit": "crop", "side": stored_side(_SIDE)},
    )


def _fill_head(model: Regressor, linear: tuple[Tensor, Tensor], file: Path) -> None:
    layer, (weight, bias) = model.head.linear, linear
    if (weight.shape, bias.shape) != (layer.weight.shape, layer.bias.shape):
        raise ValueError(
            f"the head in {file} must be linear, from the {layer.in_features} features of "
            f"{model.config.encoder} to an age: weight {tuple(layer.weight.shape)} and bias "
            f"{tuple(layer.bias.shape)}; got {tuple(weight.shape)} and {tuple(bias.shape)}. Give "
            "the head of that encoder."
        )
    with torch.no_grad():
        layer.weight.copy_(weight)
        layer.bias.copy_(bias)


def _save(
    model: Regressor,
    out: Path,
    fit: FitConfig,
    files: list[str],
    linear: tuple[Tensor, Tensor] | None,
) -> None:
    data = DataSource("", dataset="agedb", target=model.config.target_names)
    extra = {"fit": fit.to_json(), "data": data.to_json(), CONVERTED_FROM: files}
    if linear is None:
        write_stage(out / ENCODER_FILE, without_head(model.state_dict()), [])
    else:
        write_tensors(out / MODEL_FILE, model.state_dict())
    model.save_config(out, extra)
