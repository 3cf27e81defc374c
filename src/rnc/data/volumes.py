"""Turn scans from files, and arrays of volumes, into cubes (c, side, side, side) for a Table.

    .nii, .nii.gz   NIfTI, read by nibabel (extra: volumes); a fourth axis is the channels
    .npy            (d, h, w) or (c, d, h, w), whose voxels are cubes

A NIfTI scan is turned to the orientation RAS, without interpolation, and read as (z, y, x): w goes
from left to right, h from back to front, d from feet to head. An oblique scan keeps its angle.
`SCAN_FITS` says which part of a scan becomes the cube, by its size in mm. It is resampled by
trilinear interpolation with antialiasing along each axis. Values are unchanged (float32), or each
channel of a scan gets mean 0 and deviation 1 (float16, in which such values do not overflow).
"""

import errno
import math
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rnc.data import sources
from rnc.data.errors import DataError
from rnc.data.formats import suffix_of
from rnc.data.image_cache import Decoded, StoredForm, load_files
from rnc.data.images import by_threads, files_below, reader_threads
from rnc.data.sources import NIFTI_SUFFIXES, VOLUME_SUFFIXES

INTENSITIES: dict[str, type[np.generic]] = {"keep": np.float32, "scan": np.float16}
"""How the values of voxels from files are stored: "keep" leaves them unchanged, "scan" gives each
channel of a scan mean 0 and deviation 1."""
SCAN_FITS = {"crop": min, "pad": max, "stretch": None}
"""The side of the cube in mm. "crop" takes the shortest side of the scan and keeps its middle.
"pad" takes the longest side and fills the rest with the lowest value. "stretch" fits every side by
itself, which changes the proportions."""
MOST_VOXELS = 10**9
_SURVEYED = 1000  # headers that are read as a sample of all
_OTHER_UNITS = 3  # from this ratio of their spreads on, scans seem to have different units
_DIFFERENT = 0.1  # smaller shares of a side, a volume or the scans need no note


class Scan(NamedTuple):
    """The volume of a file, turned to RAS if it is NIfTI."""

    values: NDArray[np.float32]
    """(c, d, h, w), finite."""
    spacing: tuple[float, float, float] = (1.0, 1.0, 1.0)
    """Size of a voxel along d, h and w, in mm."""


class ScanForm(NamedTuple):
    """The form to which every scan of a table is brought."""

    side: int
    channels: int
    fit: str = "crop"
    intensity: str = "keep"

    def check(self) -> None:
        """Raise for an invalid form."""
        if not isinstance(self.side, int) or self.side < 1:
            raise DataError(f"volume_size must be a whole number >= 1; got {self.side!r}.")
        for name, known in (("fit", SCAN_FITS), ("intensity", INTENSITIES)):
            if (value := getattr(self, name)) not in known:
                raise DataError(f"{name} must be one of {', '.join(known)}; got {value!r}.")


def read_scan(file: Path) -> Scan:
    """The scan in a file. Raises a ValueError that says what is wrong with an unusable file."""
    suffix = suffix_of(file)
    if suffix not in VOLUME_SUFFIXES:
        raise ValueError(f"not a file of type {', '.join(VOLUME_SUFFIXES)}")
    scan = _read_npy(file) if suffix == ".npy" else _read_nifti(file)
    bad = int(np.count_nonzero(~np.isfinite(scan.values)))
    if bad:
        raise ValueError(
            f"{bad} voxels are NaN, infinite or too large; save it with numbers in their place"
        )
    return scan


def _read_npy(file: Path) -> Scan:
    mapped = np.load(file, mmap_mode="r", allow_pickle=False)
    _check_voxels(mapped.shape, mapped.dtype, "(d, h, w) or (c, d, h, w)")
    with np.errstate(over="ignore"):
        values = np.array(mapped, dtype=np.float32)
    return Scan(values[None] if values.ndim == 3 else values)


def _read_nifti(file: Path) -> Scan:
    nibabel = needed_package()
    loaded = nibabel.load(file)
    _check_voxels(_without_time(loaded.shape), loaded.get_data_dtype(), "(x, y, z) or (x, y, z, c)")
    turned = nibabel.as_closest_canonical(loaded)
    x, y, z = (float(size) for size in nibabel.affines.voxel_sizes(turned.affine))
    if not all(0 < size < math.inf for size in (x, y, z)):
        raise ValueError(f"its voxels measure {x:g} x {y:g} x {z:g} mm; repair its header")
    with np.errstate(over="ignore"):
        values = turned.get_fdata(dtype=np.float32, caching="unchanged")
    values = values.reshape(_without_time(values.shape))
    values = values[..., None] if values.ndim == 3 else values
    return Scan(np.ascontiguousarray(values.transpose(3, 2, 1, 0)), (z, y, x))


def _without_time(shape: Sequence[int]) -> tuple[int, ...]:
    """The shape without a time axis: (x, y, z, 1, c), as NIfTI stores vectors, -> (x, y, z, c)."""
    return (*shape[:3], shape[4]) if len(shape) == 5 and shape[3] == 1 else tuple(shape)


def _check_voxels(shape: Sequence[int], dtype: Any, needed: str) -> None:
    if len(shape) not in (3, 4) or 0 in shape:
        raise ValueError(f"it must hold a volume {needed}; it holds {tuple(shape)}")
    if np.dtype(dtype).kind not in "biuf":
        raise ValueError(f"its voxels must be real numbers; they are {np.dtype(dtype)}")
    if math.prod(shape) > MOST_VOXELS:
        raise ValueError(f"more than {MOST_VOXELS:,} voxels; save a smaller copy")


def needed_package() -> Any:
    """The package nibabel. Raises if it is not installed."""
    try:
        import nibabel  # type: ignore[import-not-found, import-untyped, unused-ignore]
    except ImportError as error:
        raise DataError(
            "Files of type .nii and .nii.gz need the package nibabel: pip install "
            "'rank-n-contrast[volumes]'."
        ) from error
    return nibabel


# ------------------------------------------------------------------------------------ to a cube


def cube(scan: Scan, form: ScanForm) -> NDArray[Any]:
    """A scan as a Table holds it: (c, side, side, side).

    >>> slab = Scan(np.ones((1, 4, 8, 8), np.float32), (2.0, 1.0, 1.0))
    >>> cube(slab, ScanForm(side=6, channels=1)).shape
    (1, 6, 6, 6)
    """
    values = scan.values
    if len(values) != form.channels:
        raise ValueError(f"it has {len(values)} channels, and {form.channels} are needed")
    if form.intensity == "scan":
        values = _own_units(values)
    around = values.min(axis=(1, 2, 3))
    extents = [n * mm for n, mm in zip(values.shape[1:], scan.spacing, strict=True)]
    common = SCAN_FITS[form.fit]
    steps = [
        (extent if common is None else common(extents)) / form.side / mm
        for extent, mm in zip(extents, scan.spacing, strict=True)
    ]
    shares = np.ones((1, 1, 1))
    for axis, step in enumerate(steps):
        weights, inside = _weights(values.shape[1 + axis], form.side, step)
        values = np.moveaxis(np.moveaxis(values, 1 + axis, -1) @ weights.T, -1, 1 + axis)
        shares = shares * inside.reshape([-1 if i == axis else 1 for i in range(3)])
    cubes = np.where(shares, values, around[:, None, None, None])
    return np.ascontiguousarray(cubes, dtype=INTENSITIES[form.intensity])


def _weights(length: int, side: int, step: float) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """Weights of scan voxels in cube voxels, (side, length), and a mask of those inside, (side,).

    A voxel of the cube is as wide as `step` voxels of the scan. It averages all that it spans.
    """
    centres = length / 2 + (np.arange(side) + 0.5 - side / 2) * step
    sources_at = np.arange(length) + 0.5
    places = centres.clip(0.5, length - 0.5)  # beyond the border, the last voxel is repeated
    away = np.abs(sources_at - places[:, None])
    weights = (1 - away / max(step, 1.0)).clip(0)
    weights /= weights.sum(axis=1, keepdims=True)
    return weights.astype(np.float32), (centres > 0) & (centres < length)


def _own_units(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """The values with mean 0 and deviation 1 in each channel; a constant channel becomes 0."""
    wide = values.astype(np.float64)
    wide -= wide.mean(axis=(1, 2, 3), keepdims=True)
    deviation = wide.std(axis=(1, 2, 3), keepdims=True)
    return (wide / np.where(deviation > 0, deviation, 1.0)).astype(np.float32)


def volumes_of(x: NDArray[Any], preprocessing: Mapping[str, Any], place: str) -> NDArray[Any]:
    """Arrays (n, c, d, h, w) as a Table of the model would hold them.

    For a model that was trained on files, each volume is prepared like a .npy file. A model that
    was trained on arrays takes only volumes of the same size.
    """
    channels = preprocessing.get("channels", 1)
    if x.shape[1] != channels:
        raise DataError(
            f"{place}: the model was trained on {channels} channels; x has {x.shape[1]}: {x.shape}."
        )
    volumes = sources.as_volumes(x, place)
    if "fit" in preprocessing:
        form = form_of(preprocessing)
        return np.stack([cube(Scan(one.astype(np.float32)), form) for one in volumes])
    check_sides(volumes.shape[2:], preprocessing, place)
    return volumes


def check_sides(sides: Sequence[int], preprocessing: Mapping[str, Any], place: str) -> None:
    """Raise if the sides differ from those of the arrays that the model was trained on."""
    if list(sides) != list(preprocessing.get("shape", sides)):
        needed, got = (" x ".join(map(str, s)) for s in (preprocessing["shape"], sides))
        raise DataError(
            f"{place}: the model was trained on arrays of {needed} voxels; got {got}. Resize or "
            "cut them to that size, in the same way as the training arrays."
        )


def form_of(preprocessing: Mapping[str, Any]) -> ScanForm:
    """The form of the scans that a model was trained on."""
    return ScanForm(
        preprocessing["side"],
        preprocessing["channels"],
        preprocessing["fit"],
        preprocessing["intensity"],
    )


def whole_volume(file: str | Path, preprocessing: Mapping[str, Any]) -> NDArray[np.float32]:
    """The volume of a file, unscaled, for a model that was trained on arrays: (c, d, h, w)."""
    values = read_scan(Path(file)).values
    channels = preprocessing["channels"]
    if len(values) != channels:
        raise ValueError(f"it has {len(values)} channels, and {channels} are needed")
    check_sides(values.shape[1:], preprocessing, str(file))
    return values


# ---------------------------------------------------------------------------------------- files


def load_scans(
    files: Sequence[str | Path],
    form: ScanForm,
    *,
    cache: Path | None = None,
    progress: bool = False,
) -> Decoded:
    """The volumes of all files in one form, from the cache if the files have not changed."""
    form.check()
    if any(suffix_of(Path(file)) in NIFTI_SUFFIXES for file in files):
        needed_package()  # raises once here, not for every file

    def decode(names: Sequence[str], show: bool) -> Generator[NDArray[Any] | str]:
        def read(name: str) -> NDArray[Any] | str:
            return _cube_or_reason(Path(name), form)

        return by_threads(names, read, "Reading volumes", show, in_flight=32, task=1)

    shape = (form.channels, form.side, form.side, form.side)
    stored = StoredForm(shape, INTENSITIES[form.intensity], decode, "volume")
    return load_files(files, stored, cache=cache, progress=progress)


def _cube_or_reason(path: Path, form: ScanForm) -> NDArray[Any] | str:
    try:
        if not path.is_file():
            return "no such file" if not path.exists() else "not a file"
        return cube(read_scan(path), form)
    except MemoryError:
        raise
    except Exception as error:  # nibabel raises many types of errors for broken files
        if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
            raise  # the machine's fault, not the file's
        return str(error) or type(error).__name__


def scans_below(folder: Path) -> list[Path]:
    """All volumes in a folder and below, sorted by name, without hidden files."""
    return files_below(folder, "volume", VOLUME_SUFFIXES)


def units_note(x: NDArray[Any]) -> tuple[str, ...]:
    """A note if the units of scans seem to differ, by the spread of up to 100 scans; else ()."""
    rows = np.unique(np.linspace(0, max(0, len(x) - 1), 100).astype(int))[: len(x)]
    spread = np.array([x[i].std(dtype=np.float64) for i in rows])
    spread = spread[spread > 0]
    if len(spread) < 10 or np.quantile(spread, 0.9) < _OTHER_UNITS * np.quantile(spread, 0.1):
        return ()
    low, high = np.quantile(spread, [0.1, 0.9])
    return (
        f"The standard deviation of the voxels of a scan goes from {low:.3g} to {high:.3g}: if "
        "scanners use different units, --intensity scan standardises each scan.",
    )


# --------------------------------------------------------------------------------------- survey


class _Header(NamedTuple):
    channels: int
    extents: tuple[float, float, float]


def survey_scans(files: Sequence[str | Path], fit: str) -> tuple[int, tuple[str, ...]]:
    """The number of channels of most scans, and notes for the user, from up to 1,000 headers."""
    chosen = np.unique(np.linspace(0, len(files) - 1, _SURVEYED).astype(int))
    if any(suffix_of(Path(file)) in NIFTI_SUFFIXES for file in files):
        needed_package()  # raises once here, not for every file
    with ThreadPoolExecutor(reader_threads()) as pool:
        found = [
            one for one in pool.map(_header, (Path(files[i]) for i in chosen)) if one is not None
        ]
    if not found:
        return 1, ()
    counts = np.bincount([header.channels for header in found])
    extents = np.array([header.extents for header in found])
    return int(counts.argmax()), _notes(extents, fit)


def _header(file: Path) -> _Header | None:
    try:
        if suffix_of(file) == ".npy":
            shape = np.load(file, mmap_mode="r", allow_pickle=False).shape
            d, h, w = map(float, shape[-3:])
            return _Header(1 if len(shape) == 3 else shape[0], (d, h, w))
        nibabel = needed_package()
        turned = nibabel.as_closest_canonical(nibabel.load(file))
        shape = _without_time(turned.shape)
        sizes = nibabel.affines.voxel_sizes(turned.affine)
        x, y, z = (float(n * mm) for n, mm in zip(shape[:3], sizes, strict=True))
        return _Header(1 if len(shape) == 3 else shape[3], (z, y, x))
    except Exception:  # reading will report what is wrong; a broken file fails in many ways
        return None


def _notes(extents: NDArray[np.float64], fit: str) -> tuple[str, ...]:
    """Notes about scans that lose much in a cube, and about scans of different sizes."""
    notes = []
    lost = 1 - extents.min(axis=1) ** 3 / extents.prod(axis=1)
    if fit == "crop" and (lost > _DIFFERENT).mean() > _DIFFERENT:
        notes.append(
            f"{(lost > _DIFFERENT).mean():.0%} of the scans are not cubes: --fit crop keeps the "
            f"middle cube and cuts off {lost[lost > _DIFFERENT].mean():.0%} of them, on average. "
            "--fit pad or --fit stretch keeps all of it."
        )
    sides = extents.min(axis=1) if fit == "crop" else extents.max(axis=1)
    low, high = sides.min(), sides.max()
    if high > (1 + _DIFFERENT) * low:
        notes.append(
            f"The scans measure between {low:g} and {high:g} mm, and each is scaled to the same "
            "cube, so a voxel is a different number of millimetres in each scan. If the target is "
            "a size, first cut or pad all scans to the same size in mm."
        )
    return tuple(notes)
