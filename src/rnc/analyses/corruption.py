"""Corrupted images, and the errors of a model on them: 19 types at 5 severities.

    corrupt(images, "fog", 3)           uint8 images -> uint8 images
    corruption_scores(model, x, y)      yields the error for every type and severity
    mean_over_types(scores)             one number per severity, as in the paper

The types and constants are those of ImageNet-C (Hendrycks and Dietterich, 2019,
https://arxiv.org/abs/1903.12261) in its version for images of any size. Here they work on a whole
batch, on its device. The corruption of an image does not depend on its batch or on the device.

ImageNet-C was tuned on images of 224 pixels. Its lengths (radii, shifts, drops) are pixels here
too, for images of any size, so the same severity hides more of a small image. Only the field of
elastic_transform and the clouds of fog scale with the image. So compare scores only between models
with images of the same size. Two things differ from the original: the ice of frost is computed, not
photographed, and results are rounded to the nearest grey level, not rounded down.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rnc.analyses.corruption_blur import (
    defocus_blur,
    gaussian_blur,
    glass_blur,
    motion_blur,
    zoom_blur,
)
from rnc.analyses.corruption_digital import (
    brightness,
    contrast,
    elastic_transform,
    jpeg_compression,
    pixelate,
    saturate,
)
from rnc.analyses.corruption_draws import Draws
from rnc.analyses.corruption_noise import gaussian_noise, impulse_noise, shot_noise, speckle_noise
from rnc.analyses.corruption_weather import fog, frost, snow, spatter
from rnc.metrics import Values, as_columns, mae
from rnc.model import Regressor

CorruptionFunction = Callable[[Tensor, int, Draws], Tensor]
"""Images in 0..1 (n, c, h, w), severity 1..5, random numbers -> images, clipped to 0..1 later."""

CORRUPTIONS: dict[str, CorruptionFunction] = {
    "gaussian_noise": gaussian_noise,
    "shot_noise": shot_noise,
    "impulse_noise": impulse_noise,
    "speckle_noise": speckle_noise,
    "defocus_blur": defocus_blur,
    "glass_blur": glass_blur,
    "motion_blur": motion_blur,
    "zoom_blur": zoom_blur,
    "gaussian_blur": gaussian_blur,
    "snow": snow,
    "frost": frost,
    "fog": fog,
    "spatter": spatter,
    "brightness": brightness,
    "contrast": contrast,
    "saturate": saturate,
    "elastic_transform": elastic_transform,
    "pixelate": pixelate,
    "jpeg_compression": jpeg_compression,
}
SEVERITIES = (1, 2, 3, 4, 5)
LEAST_SIDE = 32
NEEDS_COLOUR = "saturate"

CHUNK_ON_CPU = 2**20  # values per chunk: they fit into the cache of a CPU
CHUNK_ON_GPU = 2**24  # keeps a GPU busy, and leaves its memory to the model


@torch.no_grad()
def corrupt(images: Tensor, name: str, severity: int, *, seed: int = 0, start: int = 0) -> Tensor:
    """Corrupted images: uint8 (n, c, h, w) -> uint8 (n, c, h, w), on the same device.

    An image has the same random numbers at every severity.

    Args:
        images: with 1 or 3 channels, at least 32 pixels high and wide. saturate needs 3 channels.
        name: a key of CORRUPTIONS.
        severity: 1 to 5.
        seed: seed of the random numbers.
        start: index of the first image in the dataset. With it, a chunk of a dataset is corrupted
            in the same way as inside the whole dataset.

    >>> faces = torch.randint(0, 256, (8, 3, 64, 48), dtype=torch.uint8)
    >>> foggy = corrupt(faces, "fog", 3)
    >>> foggy.shape, foggy.dtype
    (torch.Size([8, 3, 64, 48]), torch.uint8)
    >>> torch.equal(corrupt(faces[5:], "fog", 3, start=5), foggy[5:])
    True
    """
    _check_names([name])
    _check_severities([severity])
    _check_images(tuple(images.shape), str(images.dtype).removeprefix("torch."), [name])
    if start < 0:
        raise ValueError(f"start must be the place of the first image, 0 or more; got {start}.")
    chunk = CHUNK_ON_CPU if images.device.type == "cpu" else CHUNK_ON_GPU
    chunk = max(1, chunk // images.shape[1:].numel())
    corrupted = torch.empty_like(images)
    for i in range(0, len(images), chunk):
        part = images[i : i + chunk]
        places = range(start + i, start + i + len(part))
        with torch.autocast(images.device.type, enabled=False):
            x = CORRUPTIONS[name](
                part.float() / 255, severity, Draws(name, seed, places, part.device)
            )
        # Many exact results are halfway between two levels. All devices must round them alike.
        corrupted[i : i + chunk] = (255 * x + 0.501).clamp(0, 255).byte()
    return corrupted


class CorruptionScore(NamedTuple):
    """The error of a model on corrupted images."""

    name: str
    severity: int
    error: float


def corruption_scores(
    model: Regressor,
    x: NDArray[np.uint8],
    targets: Values,
    *,
    names: Sequence[str] = tuple(CORRUPTIONS),
    severities: Sequence[int] = SEVERITIES,
    seed: int = 0,
    measure: Callable[[Values, Values], float] = mae,
    batch_size: int = 256,
) -> Iterator[CorruptionScore]:
    """Yields the error of a model for every type and severity; types are the outer loop.

    Args:
        model: a trained model; images are corrupted on its device.
        x: uint8 images (n, c, h, w), as for `Regressor.predict_prepared`.
        targets: (n,) or (n, t).
        names: keys of CORRUPTIONS; all by default. Leave out saturate for grey images.
        severities: some of 1 to 5.
        seed: seed of the random numbers of the corruptions.
        measure: the error as a function of predictions and targets, both (n, t).
        batch_size: images at a time.
    """
    truth = as_columns(targets, "targets")
    _check_names(names)
    _check_severities(severities)
    _check_images(x.shape, str(x.dtype), names)
    if len(x) != len(truth) or len(x) == 0:
        raise ValueError(
            "corruption_scores needs images (n, c, h, w) and targets (n, t) with the same n >= 1; "
            f"got {x.shape} and {truth.shape}."
        )
    if batch_size < 1:
        raise ValueError(f"batch_size must be 1 or more; got {batch_size}.")

    def predictions(name: str, severity: int) -> NDArray[Any]:
        parts = []
        for start in range(0, len(x), batch_size):
            images = torch.tensor(x[start : start + batch_size], device=model.input_shift.device)
            images = corrupt(images, name, severity, seed=seed, start=start)
            parts.append(model.predict_prepared(images.cpu().numpy(), batch_size=batch_size))
        return np.concatenate(parts)

    return (
        CorruptionScore(name, severity, measure(predictions(name, severity), truth))
        for name in names
        for severity in severities
    )


def mean_over_types(scores: Iterable[CorruptionScore]) -> dict[int, float]:
    """The mean error over the types for each severity.

    >>> mean_over_types([CorruptionScore("fog", 1, 4.0), CorruptionScore("snow", 1, 5.0)])
    {1: 4.5}
    """
    errors: dict[int, dict[str, float]] = {}
    for name, severity, error in scores:
        errors.setdefault(severity, {})[name] = error
    names = {name for of_severity in errors.values() for name in of_severity}
    for severity, of_severity in errors.items():
        if missing := sorted(names - set(of_severity)):
            raise ValueError(
                "A mean over types needs the same types at every severity; at severity "
                f"{severity} there is no {', '.join(missing)}. Wait for all scores."
            )
    return {key: float(np.mean(list(errors[key].values()))) for key in sorted(errors)}


# ------------------------------------------------------------------------------------ checks


def _check_names(names: Iterable[str]) -> None:
    for name in names:
        if name not in CORRUPTIONS:
            raise ValueError(f"Unknown corruption {name!r}; known are {', '.join(CORRUPTIONS)}.")


def _check_severities(severities: Iterable[int]) -> None:
    for severity in severities:
        if severity not in SEVERITIES:
            raise ValueError(
                f"severity must be 1, 2, 3, 4 or 5; got {severity!r}. Images without corruption "
                "are scored by `evaluate`."
            )


def _check_images(shape: tuple[int, ...], dtype: str, names: Iterable[str]) -> None:
    if dtype != "uint8" or len(shape) != 4 or shape[1] not in (1, 3):
        raise ValueError(
            "Corruptions need uint8 images (n, c, h, w) with 1 or 3 channels; got "
            f"{dtype} of shape {shape}. Images in 0..1 become uint8 by "
            "(255 * x).round().to(torch.uint8)."
        )
    if min(shape[2:]) < LEAST_SIDE:
        raise ValueError(
            f"Corruptions need images of at least {LEAST_SIDE} x {LEAST_SIDE} pixels, which their "
            f"blurs and drops span; got {shape[2]} x {shape[3]}. Enlarge the images first."
        )
    if shape[1] == 1 and NEEDS_COLOUR in names:
        raise ValueError(
            f"{NEEDS_COLOUR} needs images with 3 channels; got 1. Leave it out for grey images: "
            f"names=[name for name in CORRUPTIONS if name != {NEEDS_COLOUR!r}]."
        )
