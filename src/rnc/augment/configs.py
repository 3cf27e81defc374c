"""How samples of each kind become views: one config per kind, checked when it is made."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor


def check_value(legal: bool, name: str, needed: str, got: object) -> None:
    """Raise for a value that is not legal."""
    if not legal:
        raise ValueError(f"{name} must be {needed}; got {got!r}.")


def _with_tuples(config: object) -> None:
    """Turn the lists that JSON gives into tuples."""
    for name, value in vars(config).items():
        if isinstance(value, list):
            object.__setattr__(config, name, tuple(value))


def _check_erasing(share: float, name: str, sizes: tuple[float, ...]) -> None:
    check_value(0 <= share <= 1, "erase", "a share in 0..1", share)
    legal = isinstance(sizes, tuple) and len(sizes) == 2 and 0 < sizes[0] <= sizes[1] <= 1
    check_value(legal, name, "low and high, above 0 and up to 1", sizes)


@dataclass(frozen=True)
class ImageAugment:
    """How uint8 images become views (c, size, size); None, False or 0 switches a part off.

    Args:
        size: side of the square views in pixels.
        crop_scale: smallest and largest share of the image that a random crop covers. None: the
            view of `eval_view` instead of a crop.
        crop_ratio: smallest and largest width / height of a crop.
        flip: mirror half of the views. Turn it off where left and right change the target (gaze,
            head pose, steering angle).
        jitter: strength of brightness, contrast, saturation and hue. The last two, and greyscale,
            are for images with three channels.
        jitter_p: share of the views whose colours are jittered.
        grayscale_p: share of the views that lose their colours.
        erase: share of the views of which a rectangle is set to 0, the mean of the pixels.
        erase_sides: smallest and largest share of the view's side that a side of it covers.
        mean: subtracted from pixels in 0..1; one number, or one per channel.
        std: divides them after that.
        short_side: of the image in `eval_view`, before the middle is cut out. None: 8/7 of size.
        interpolation: bilinear or bicubic, both with antialiasing as Pillow's.
    """

    size: int
    crop_scale: tuple[float, float] | None = (0.2, 1.0)
    crop_ratio: tuple[float, float] = (3 / 4, 4 / 3)
    flip: bool = True
    jitter: tuple[float, float, float, float] | None = (0.4, 0.4, 0.4, 0.1)
    jitter_p: float = 0.8
    grayscale_p: float = 0.2
    mean: tuple[float, ...] = (0.5,)
    std: tuple[float, ...] = (0.5,)
    erase: float = 0.0
    erase_sides: tuple[float, float] = (0.15, 0.5)
    short_side: int | None = None
    interpolation: str = "bilinear"

    def __post_init__(self) -> None:
        for name in ("mean", "std"):
            if isinstance(getattr(self, name), int | float):
                object.__setattr__(self, name, (getattr(self, name),))
        _with_tuples(self)
        check_value(self.size >= 1, "size", "a number of pixels >= 1", self.size)
        if self.crop_scale is not None:
            low, high = self.crop_scale
            check_value(0 < low <= high <= 1, "crop_scale", "low and high in 0..1", self.crop_scale)
        low, high = self.crop_ratio
        check_value(0 < low <= high, "crop_ratio", "low and high > 0", self.crop_ratio)
        if self.jitter is not None:
            *blends, hue = self.jitter
            legal = len(blends) == 3 and all(0 <= x <= 1 for x in blends) and 0 <= hue <= 0.5
            check_value(legal, "jitter", "three strengths in 0..1 and hue in 0..0.5", self.jitter)
        check_value(0 <= self.jitter_p <= 1, "jitter_p", "a share in 0..1", self.jitter_p)
        check_value(0 <= self.grayscale_p <= 1, "grayscale_p", "a share in 0..1", self.grayscale_p)
        check_value(min(self.std) > 0, "std", "numbers > 0", self.std)
        if self.short_side is not None:
            needed = f"None or at least the size, {self.size}"
            check_value(self.short_side >= self.size, "short_side", needed, self.short_side)
        known = self.interpolation in ("bilinear", "bicubic")
        check_value(known, "interpolation", "bilinear or bicubic", self.interpolation)
        _check_erasing(self.erase, "erase_sides", self.erase_sides)


@dataclass(frozen=True)
class SignalAugment:
    """How signals become views (c, round(crop * l)).

    A view is a window of the signal. It is not stretched, so frequencies keep their meaning.
    `eval_view` takes the middle window, so that the encoder sees one length only.

    Args:
        crop: share of the signal in a view; 1 for all of it.
        erase: share of the views of which a block of time is set to 0, the mean, in all channels.
        erase_length: smallest and largest share of the view that the block covers.
    """

    crop: float = 0.9
    erase: float = 0.0
    erase_length: tuple[float, float] = (0.05, 0.25)

    def __post_init__(self) -> None:
        _with_tuples(self)
        check_value(0 < self.crop <= 1, "crop", "a share with 0 < crop <= 1", self.crop)
        _check_erasing(self.erase, "erase_length", self.erase_length)

    def length(self, total: int) -> int:
        """The length of a view of a signal of this length."""
        return max(1, round(self.crop * total))

    def totals(self, length: int) -> str:
        """The lengths of signals whose views have this length, in words.

        >>> SignalAugment(crop=0.9).totals(225), SignalAugment(crop=0.5).totals(50)
        ('250', '99 to 101')
        """
        known = range(1, int((length + 1) / self.crop) + 2)
        fit = [total for total in known if self.length(total) == length]
        return " to ".join(str(total) for total in dict.fromkeys((fit[0], fit[-1])))


@dataclass(frozen=True)
class VolumeAugment:
    """How volumes become views (c, round(crop * d), round(crop * h), round(crop * w)).

    A view is a window of the volume. It is not stretched, so sizes keep their meaning. `eval_view`
    takes the middle window, so that the encoder sees one size only.

    Args:
        crop: share of each side in a view; 1 for all of it.
        flip: mirror half of the views along w, which is left and right in a scan read from NIfTI.
            Turn it off where the side of the body changes the target.
        intensity: largest change of contrast, by a factor in 1 - intensity to 1 + intensity, and of
            brightness, in standard deviations of the training volumes. 0 where the values of the
            voxels carry the target, as in a map of densities.
        erase: share of the views of which a block is set to 0, the mean, in all channels.
        erase_sides: smallest and largest share of the view's side that a side of it covers.
    """

    crop: float = 0.9
    flip: bool = True
    intensity: float = 0.1
    erase: float = 0.0
    erase_sides: tuple[float, float] = (0.15, 0.5)

    def __post_init__(self) -> None:
        _with_tuples(self)
        check_value(0 < self.crop <= 1, "crop", "a share with 0 < crop <= 1", self.crop)
        check_value(0 <= self.intensity < 1, "intensity", "in 0 <= x < 1", self.intensity)
        _check_erasing(self.erase, "erase_sides", self.erase_sides)

    def sides(self, total: Sequence[int]) -> tuple[int, ...]:
        """The sides of a view of a volume with these sides."""
        return tuple(max(1, round(self.crop * side)) for side in total)


@dataclass(frozen=True)
class TableAugment:
    """How rows of a standardised table become views (p,).

    Args:
        noise: standard deviation of Gaussian noise added to every feature.
        mask: share of the features set to 0, the mean of a standardised column. 0 by default,
            since the target may depend on any feature.
    """

    noise: float = 0.05
    mask: float = 0.0

    def __post_init__(self) -> None:
        check_value(0 <= self.noise < math.inf, "noise", "a number >= 0", self.noise)
        check_value(0 <= self.mask < 1, "mask", "a share with 0 <= mask < 1", self.mask)


@dataclass(frozen=True)
class CachedViews:
    """How the cached features of a sample (t + k, d) become views (d,): see `rnc.training.frozen`.

    Args:
        tests: t, how many of them are features of test views; they come first.
        views: k, how many of them are features of random views.
    """

    tests: int
    views: int

    def __post_init__(self) -> None:
        check_value(self.tests >= 1, "tests", "a number of views >= 1", self.tests)
        check_value(self.views >= 0, "views", "a number of views >= 0", self.views)


Augment = ImageAugment | SignalAugment | VolumeAugment | TableAugment | CachedViews
AUGMENTS: dict[str, type[Augment]] = {
    "image": ImageAugment,
    "signal": SignalAugment,
    "volume": VolumeAugment,
    "table": TableAugment,
}
"""The config for each kind of data."""

MEASURED_SIDES = {"signal": 1, "volume": 3}
"""Number of sides of a sample, for kinds of data whose channels have units and are standardised."""


def standardised(x: Tensor, shift: Tensor, scale: Tensor, kind: str) -> Tensor:
    """Samples standardised by channel if their kind is in `MEASURED_SIDES`, else unchanged."""
    return (x - shift) / scale if kind in MEASURED_SIDES else x


def unit_shape(kind: str, channels: int) -> tuple[int, ...]:
    """The shape of the shift and the scale that `standardised` takes: (c, 1, ...)."""
    return (channels if kind in MEASURED_SIDES else 1, *[1] * MEASURED_SIDES.get(kind, 1))
