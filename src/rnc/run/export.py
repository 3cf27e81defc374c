"""ONNX: a trained model as one file, which runs without this package and without PyTorch.

    inputs       (n, *input_shape)  float32, prepared samples, one view of each; any n
    predictions  (n, t)             float64, in the units of the targets
    features     (n, d)             float32
    quantiles    (n, t, q)          float64, for the heads quantile and gaussian; their levels are
                                    in the metadata
    std          (n, t)             float64, for the head gaussian: standard deviations
    E            (n, t)             float64, for every extra E of `rnc.run.predictions`

Predictions are float64, like those of `Regressor`, since in float32 a date loses its minutes.
The metadata of the model says how to prepare raw samples, as JSON under "rank-n-contrast": `kind`,
`input_shape`, `target_names`, the constants in `prepare`, and in `steps` how to use them, in words.
`levels` are the levels of the quantiles. `test_views` names the views over which the graph averages
features; it makes them from its inputs itself. If the model has calibration rows, `intervals` has
the margins of plain intervals for each confidence in `rnc.run.coverage` that they allow.
"""

import copy
import dataclasses
import importlib
import json
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from rnc.augment.configs import ImageAugment
from rnc.augment.images import eval_side
from rnc.files import write_file
from rnc.heads import LEVELS, Head, HeadConfig
from rnc.intervals import Conformal, conformal_margin
from rnc.model import FORMAT, Regressor
from rnc.model.intervals import kept_calibration
from rnc.run.coverage import COST_OF_REUSE, possible_confidences
from rnc.run.predictions import extras_of

METADATA = "rank-n-contrast"
LARGEST_DIFFERENCE = 1e-4
MOST_BYTES = (
    2**31 - 2**24
)  # a protobuf file ends at 2 GiB; the rest is for everything except the weights

_CHECKED_SIZES = (1, 7)  # not 2, which the graph is traced with


def export_onnx(model: Regressor, path: str | Path) -> None:
    """Write a model as ONNX, after a check that onnxruntime gives the same results as PyTorch.

    The results for random inputs may differ by 1e-4 of the largest value at most. If they differ
    more, or if anything else fails, it raises and leaves an existing file unchanged.
    """
    runtime = _needed_packages()["onnxruntime"]
    weights = sum(tensor.nbytes for tensor in model.state_dict().values())
    if weights > MOST_BYTES:
        raise ValueError(
            f"One ONNX file holds {MOST_BYTES / 1e9:.2f} GB of weights at most; got "
            f"{weights / 1e9:.2f} GB. Choose a smaller encoder."
        )
    reference = copy.deepcopy(model).cpu().float().eval()
    content = _traced(reference)

    def write(temporary: Path) -> None:
        temporary.write_bytes(content)
        session = runtime.InferenceSession(temporary, providers=["CPUExecutionProvider"])
        _check_same(reference, session)

    write_file(Path(path), write)


class _Graph(nn.Module):
    """The computation that the file contains."""

    def __init__(self, model: Regressor) -> None:
        super().__init__()
        self.model = copy.deepcopy(model)
        head = model.head.config
        self.shift = torch.tensor(head.shift, dtype=torch.float64)
        self.scale = torch.tensor(head.scale, dtype=torch.float64)
        # The units of targets are applied here as tensors: the head would use Python numbers,
        # which torch writes as float32. The copy of the head shares all weights. It is in a tuple,
        # so that torch does not register it as a second module.
        t = len(head.shift)
        without_units = copy.copy(self.model.head)
        without_units.config = dataclasses.replace(head, shift=(0.0,) * t, scale=(1.0,) * t)
        self.without_units = (without_units,)

    def forward(self, inputs: Tensor) -> tuple[Tensor, ...]:
        features, outputs = self.model(inputs)
        predictions = self.without_units[0].decode(outputs) * self.scale + self.shift
        spread = _spread(self.without_units[0], outputs, self.shift, self.scale)
        return predictions, features, *spread.values(), *extras_of(self.model, features).values()


def _levels(head: Head) -> tuple[float, ...]:
    """The levels of the quantiles in the file: those that the head learned, or the default."""
    if head.spec.quantiles is None:
        return ()
    return tuple(head.config.options.get("levels", LEVELS))


def _spread(head: Head, outputs: Tensor, shift: Tensor, scale: Tensor) -> dict[str, Tensor]:
    """Quantiles and standard deviations, if the head has them, after scale and shift."""
    spread = {}
    if levels := _levels(head):
        spread["quantiles"] = head.quantiles(outputs, levels) * scale[:, None] + shift[:, None]
    if head.spec.deviation is not None:
        spread["std"] = head.deviations(outputs) * scale
    return spread


def _traced(model: Regressor) -> bytes:
    """The content of an ONNX file, for any number of samples."""
    graph = _Graph(model).eval()
    example = (torch.zeros(2, *model.config.input_shape),)
    names = list(_torch_results(model, example[0]))
    shapes = ({0: torch.export.Dim("n")},)
    try:
        traced = torch.export.export(graph, example, dynamic_shapes=shapes)
        own = {torch.ops.aten.cumprod.default: _cumprod, torch.ops.aten.softplus.default: _softplus}
        traced = traced.run_decompositions(own)
        program = torch.onnx.export(
            traced,
            example,
            dynamo=True,
            dynamic_shapes=shapes,
            # The name "view" would clash with a node that torch gives this name.
            input_names=["inputs"],
            output_names=names,
            verbose=False,
        )
    except Exception as error:  # a user's encoder can make torch raise many types of errors
        raise RuntimeError(
            f"The encoder {model.config.encoder!r} cannot be written as ONNX for any number of "
            f"samples: {error}"
        ) from error
    assert program is not None
    program.model.metadata_props[METADATA] = json.dumps(_metadata(model), allow_nan=False)
    content: bytes = program.model_proto.SerializeToString()
    return content


def _cumprod(x: Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Tensor:
    """torch.cumprod, which ONNX does not have, in log2(length) products; the corn head needs it."""
    x, length, reach = x.to(dtype or x.dtype), x.shape[dim], 1
    while reach < length:
        rest = length - reach
        products = x.narrow(dim, reach, rest) * x.narrow(dim, 0, rest)
        x, reach = torch.cat([x.narrow(dim, 0, reach), products], dim), 2 * reach
    return x


def _softplus(x: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """torch.softplus, which onnxruntime does not have in float64; the gaussian head needs it."""
    x = x * beta
    return (x.relu() + (-x.abs()).exp().log1p()) / beta


def _needed_packages() -> dict[str, ModuleType]:
    names = ("onnx", "onnxscript", "onnxruntime")
    try:
        return {name: importlib.import_module(name) for name in names}
    except ImportError as error:
        raise ImportError(
            f"Writing ONNX needs {', '.join(names)}; {error.name or error} is missing. Get them "
            "with: pip install 'rank-n-contrast[export]'",
            name=error.name,
        ) from error


# ------------------------------------------------------------------------------------- check


def _check_same(model: Regressor, session: Any) -> None:
    """Raise if the file and PyTorch differ on random samples."""
    generator = torch.Generator().manual_seed(0)
    for n in _CHECKED_SIZES:
        inputs = torch.randn(n, *model.config.input_shape, generator=generator)
        results = _torch_results(model, inputs)
        theirs = session.run(list(results), {"inputs": inputs.numpy()})
        for (what, ours), their in zip(results.items(), theirs, strict=True):
            difference = _difference_of(what, their, ours.numpy(), model.head.config)
            if not difference <= LARGEST_DIFFERENCE:  # NaN, too
                raise RuntimeError(
                    f"onnxruntime and PyTorch give different {what} for {n} random samples: the "
                    f"difference is {difference:.1e} of the largest value, and "
                    f"{LARGEST_DIFFERENCE:.0e} is allowed. Nothing was written, because encoder "
                    f"{model.config.encoder!r} was not converted correctly."
                )


@torch.no_grad()
def _torch_results(model: Regressor, inputs: Tensor) -> dict[str, Tensor]:
    """The outputs that the file should give, computed by PyTorch, in the same order."""
    features, outputs = model(inputs)
    t = len(model.head.config.shift)
    # This head applies the units of the targets itself.
    spread = _spread(model.head, outputs, torch.zeros(t), torch.ones(t))
    predictions = model.head.decode(outputs)
    extras = extras_of(model, features)
    return {"predictions": predictions, "features": features, **spread, **extras}


def _difference_of(what: str, their: NDArray[Any], our: NDArray[Any], head: HeadConfig) -> float:
    """The relative difference of one output.

    Predictions and quantiles are compared in the units of the head, where 1 is a standard deviation
    or a bin, so that the units of the targets do not matter.
    """
    if what not in ("predictions", "quantiles"):
        return _difference(their, our, least=1e-30)
    shape = (-1,) if our.ndim == 2 else (-1, 1)
    shift, scale = (np.array(axis).reshape(shape) for axis in (head.shift, head.scale))
    return _difference((their - shift) / scale, (our - shift) / scale, least=1.0)


def _difference(their: NDArray[Any], our: NDArray[Any], *, least: float) -> float:
    """The largest difference, divided by the largest value or by `least` if that is larger."""
    if their.shape != our.shape:
        return float("nan")
    return float(np.abs(their - our).max() / max(np.abs(our).max(), least))


# ---------------------------------------------------------------------------------- metadata


def _metadata(model: Regressor) -> dict[str, Any]:
    """The metadata, which say how to prepare inputs for the graph without this package."""
    config = model.config
    constants, steps = _STEPS[config.kind](model)
    return {
        "format": FORMAT,
        "kind": config.kind,
        "input_shape": list(config.input_shape),
        "target_names": list(config.target_names),
        "test_views": config.test_views,
        "levels": list(_levels(model.head)),
        "prepare": {**config.preprocessing, **constants},
        "steps": steps,
        **_margins(model),
    }


def _margins(model: Regressor) -> dict[str, Any]:
    """The margins of plain intervals, {} without calibration rows. Other kinds need more."""
    rows = kept_calibration(model)
    if rows is None:
        return {}
    plain = Conformal(rows.predictions, rows.targets, period=rows.period).scores
    margins = {
        f"{confidence:g}": [conformal_margin(scores, confidence) for scores in plain.T]
        for confidence in possible_confidences(len(rows))
    }
    use = "The interval of a confidence goes from prediction - margin to prediction + margin, with "
    use += "a margin for each target, in its units"
    use += "." if rows.period is None else "; both ends are modulo period, and it is an arc."
    reuse = {"cost": COST_OF_REUSE} if rows.is_reused else {}
    period = {} if rows.period is None else {"period": rows.period}
    return {"intervals": {"margins": margins, **period, "steps": [use], **reuse}}


def _image(model: Regressor) -> tuple[dict[str, Any], list[str]]:
    augment, channels = model.augment, model.config.input_shape[0]
    assert isinstance(augment, ImageAugment)
    constants = {
        "channels": channels,
        "size": augment.size,
        "short_side": eval_side(augment),
        "mean": list(augment.mean) * (channels if len(augment.mean) == 1 else 1),
        "std": list(augment.std) * (channels if len(augment.std) == 1 else 1),
    }
    steps = [
        "Start from pixels from 0 to 255, (channels, height, width), turned upright as the EXIF "
        "orientation says; 3 channels are RGB, 1 is grey.",
        _first_step(model.config.preprocessing),
        f"Pixels of exactly size x size are used whole. Scale any others, {augment.interpolation} "
        "with antialiasing, so that the short side is short_side and the long side "
        "floor(short_side * long / short), and cut out size x size from row "
        "round((height - size) / 2) and column round((width - size) / 2) on, halves to even.",
        "Divide by 255; of every channel, subtract mean and divide by std.",
    ]
    if model.config.test_views == "mirror":
        steps.append(
            "That is all: the graph mirrors its inputs itself, and features are the mean of those "
            "of an image and of its mirror image."
        )
    return constants, steps


def _first_step(preprocessing: Mapping[str, Any]) -> str:
    """A sentence on how a picture becomes the pixels of a Table."""
    if "shape" in preprocessing:
        return "They must have the height and width in shape, as the arrays in training."
    files = _FILES[preprocessing.get("fit", "crop")]
    name = preprocessing.get("resample", "bicubic").upper()
    return f"Of an image file, {files} (in training, by Pillow's {name}). Go on as with an array:"


_FILES = {
    "crop": "scale the middle square to short_side x short_side",
    "pad": "scale the long side to side, and put the picture in the middle of side x side pixels "
    "of the value 128",
    "stretch": "scale all of it to side x side",
}


def _signal(model: Regressor) -> tuple[dict[str, Any], list[str]]:
    constants = {
        "shift": model.input_shift[:, 0].tolist(),
        "scale": model.input_scale[:, 0].tolist(),
        "length": model.config.input_shape[1],
    }
    return constants, [
        "Start from signals (channels, l), as long as those in training.",
        "Of every channel, subtract shift and divide by scale.",
        "Keep length samples from floor((l - length) / 2) on.",
    ]


def _table(model: Regressor) -> tuple[dict[str, Any], list[str]]:
    return {}, [
        "Every entry of columns, in order, makes inputs as follows.",
        "A number whose scale is not null: (value - mean) / scale, with median for a gap.",
        "A category: for each of categories, 1 where the value is this text, otherwise 0; a gap "
        "has 0 everywhere.",
        "A boolean whose mean is not null: 1 for yes, y, true, t, on or 1 in any case, 0 for no, "
        "n, false, f, off or 0, with mean for a gap.",
        "A date whose scale is not null: (days - mean) / scale, where days are those since first, "
        "with fractions, and median for a gap; then for each of parts sin(a) and cos(a), both 0 "
        "for a gap: season, a = 2 pi d / 365.25 with d = 0 for January 1; weekday, a = 2 pi d / 7 "
        "with d = 0 for Monday; hour, a = 2 pi s / 86400 with the seconds s since midnight. Text "
        "is read by format, of Python's strptime or ISO 8601; an offset from UTC is dropped.",
        "Where a column has gap_words, these texts are gaps.",
        "Then, where gaps is true: 1 for a gap, otherwise 0.",
    ]


def _volume(model: Regressor) -> tuple[dict[str, Any], list[str]]:
    constants = {
        "shift": model.input_shift.flatten().tolist(),
        "scale": model.input_scale.flatten().tolist(),
        "size": list(model.config.input_shape[1:]),
    }
    return constants, [
        "Start from volumes (channels, d, h, w), of a scan in NIfTI turned so that w goes from "
        "left to right, h from back to front and d from feet to head.",
        _of_scans(model.config.preprocessing),
        "Of every channel, subtract shift and divide by scale.",
        "Of every side, keep as many voxels as size says, from floor((side - size) / 2) on.",
    ]


def _of_scans(preprocessing: Mapping[str, Any]) -> str:
    """A sentence on how a volume gets the size of the training volumes."""
    if "fit" not in preprocessing:
        return "They must have the sides in shape, as the arrays in training."
    units = {
        "keep": "",
        "scan": "Of every channel of a volume, subtract the mean and divide by the deviation. ",
    }[preprocessing["intensity"]]
    return f"{units}{_SCANS[preprocessing['fit']]} (linear, with antialiasing)."


_SCANS = {
    "crop": "Scale the middle cube, by the size of voxels in mm, to side x side x side voxels",
    "pad": "By the size of voxels in mm, scale the longest side to side voxels, and put the volume "
    "in the middle of a cube of its lowest value",
    "stretch": "Scale all of it to side x side x side voxels",
}
_STEPS = {"image": _image, "signal": _signal, "table": _table, "volume": _volume}
