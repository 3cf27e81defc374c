"""Turn pictures in memory, Pillow images or arrays, into pixels like those of training.

For a model that was trained on image files, a picture is prepared like a file, by `square`. A model
that was trained on arrays takes only pixels of the trained size, unchanged, since it is unknown how
its arrays were made.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFile

from rnc.data import sources
from rnc.data.errors import DataError
from rnc.data.images import Pixels, decode, readable_formats, square, whole
from rnc.data.packed import opened_picture

_MODES = {1: "L", 3: "RGB", 4: "RGBA"}
"""The Pillow mode of an array, by its number of channels."""


def is_picture(item: Any) -> bool:
    """Whether this is one picture: a Pillow image, or an array (h, w), (h, w, c) or (c, h, w)."""
    return isinstance(item, Image.Image) or (hasattr(item, "__array__") and np.ndim(item) in (2, 3))


def pixels_of(
    pictures: Sequence[Any] | NDArray[Any],
    preprocessing: Mapping[str, Any],
    image_size: int,
    place: str,
) -> Pixels:
    """The pixels of pictures as a Table of the model would hold them: (n, c, h, w).

    Args:
        pictures: Pillow images and arrays of one picture each, or an array (n, c, h, w).
        preprocessing: that of the Table.
        image_size: side of the result, if the preprocessing of an older version lacks it.
        place: the name of the pictures in messages.
    """
    if isinstance(pictures, np.ndarray):
        pictures = sources.as_pixels(pictures, place)
        if "fit" not in preprocessing:
            return check_shape(pictures, preprocessing, place)
    parts = []
    for i, picture in enumerate(pictures):
        where = f"{place}: picture {i}"
        if not isinstance(picture, Image.Image):
            picture = _channels_first(np.asarray(picture), where)
            if "fit" in preprocessing:
                picture = _as_picture(picture, where)
        if isinstance(picture, Image.Image):
            parts.append(_pixels_of_one(picture, preprocessing, image_size, where))
        else:
            parts.append(check_shape(picture[None], preprocessing, where)[0])
    if len({part.shape for part in parts}) > 1:
        shapes = ", ".join(sorted({str(part.shape) for part in parts}))
        raise DataError(f"{place}: all pictures must have one size; got {shapes}.")
    return np.stack(parts)


def check_shape(x: Pixels, preprocessing: Mapping[str, Any], place: str) -> Pixels:
    """The given pixels (n, c, h, w). Raises if the model was trained on another shape."""
    trained = f"{place}: the model was trained on"
    channels, shape = preprocessing.get("channels", 3), preprocessing.get("shape")
    if x.shape[1] != channels:
        raise DataError(f"{trained} {channels} channels; x has {x.shape[1]}: {x.shape}.")
    if shape is not None and x.shape[2:] != tuple(shape):
        h, w = shape
        raise DataError(
            f"{trained} arrays of {h} x {w} pixels (height x width); got {x.shape[2]} x "
            f"{x.shape[3]}. Resize or cut them to {h} x {w}, in the same way as the training "
            "arrays."
        )
    return x


def whole_pixels(file: str | Path, preprocessing: Mapping[str, Any]) -> Pixels:
    """The pixels of a file, unscaled, for a model that was trained on arrays: (c, h, w)."""
    with Image.open(opened_picture(file), formats=readable_formats()) as picture:
        return _pixels_of_one(picture, preprocessing, 0, "the picture")


def _pixels_of_one(
    picture: Image.Image, preprocessing: Mapping[str, Any], image_size: int, place: str
) -> Pixels:
    channels = preprocessing.get("channels", 3)
    if channels not in (1, 3):
        raise DataError(
            f"{place}: the model was trained on arrays of {channels} channels, which a picture "
            "does not have. Give an array (n, c, h, w)."
        )
    if "shape" in preprocessing:
        pixels: Pixels = check_shape(whole(picture, channels)[None], preprocessing, place)[0]
        return pixels
    side, fit = preprocessing.get("side", image_size), preprocessing.get("fit", "crop")
    resample = preprocessing.get("resample", "bicubic")
    try:
        # A picture that is not loaded yet is decoded from its file: a large JPEG at reduced size.
        if isinstance(picture, ImageFile.ImageFile) and picture.tile and picture.filename:
            return decode(Path(os.fsdecode(picture.filename)), side, channels, fit, resample)
        return square(picture, side, channels, fit, resample)
    except (OSError, ValueError) as error:
        raise DataError(f"{place} cannot be used: {error}.") from error


def _channels_first(values: NDArray[Any], place: str) -> Pixels:
    """One picture (h, w), (h, w, c) or (c, h, w) as (c, h, w)."""
    if values.ndim == 2:
        values = values[None]
    elif values.ndim == 3:
        first, last = (values.shape[i] in _MODES for i in (0, 2))
        if first and last:
            raise DataError(
                f"{place} is {values.shape}: which side are the channels? Give an array "
                "(n, c, h, w), or a picture of Pillow."
            )
        values = values.transpose(2, 0, 1) if last else values
    if values.ndim != 3 or 0 in values.shape:
        raise DataError(f"{place} must be (h, w), (h, w, c) or (c, h, w); got {values.shape}.")
    pixels: Pixels = sources.as_pixels(values[None], place)[0]
    return pixels


def _as_picture(values: Pixels, place: str) -> Image.Image:
    """An array (c, h, w) as a Pillow image."""
    if values.shape[0] not in _MODES:
        raise DataError(
            f"{place} must have 1 (grey), 3 (RGB) or 4 (RGBA) channels; got {values.shape[0]}: "
            f"{values.shape}."
        )
    last = np.ascontiguousarray(values.transpose(1, 2, 0))
    return Image.fromarray(last[:, :, 0] if values.shape[0] == 1 else last)
