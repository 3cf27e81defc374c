"""MPIIFaceGaze: the direction of gaze of 15 persons, from photos of faces (Zhang et al. 2017).

A copy is the normalised set (in the raw one, faces are not upright), in one of these layouts:

    mat      p00.mat ... p14.mat, which are HDF5: Data/data (n, 3, 448, 448), Data/label (n, 16)
    h5       MPIIFaceGaze.h5 of common gaze code: p00/image/0000 (448, 448, 3), p00/gaze/0000 (2,)
    gazehub  Image/p00/face/1.jpg ... and Label/p00.label, one line per image

The first two store colours as BGR and gaze as (pitch, yaw) in radians. The third stores JPEG files
and (yaw, pitch). All become RGB and (pitch, yaw) in degrees.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
from numpy.typing import NDArray
from PIL import Image
from rich.console import Console
from rich.progress import track

from rnc.data.datasets import reading
from rnc.data.datasets.dataset import Dataset, Finding, count_finding, image_findings, range_finding
from rnc.data.errors import DataError, first_few
from rnc.data.image_cache import Decoding
from rnc.data.table import Table

_COUNTS = {"images": 45_000, "persons": 15, "train": 33_000, "val": 6_000, "test": 6_000}
_RANGES = {"pitch": (-40.0, 10.0), "yaw": (-45.0, 45.0)}
_PERSONS = tuple(f"p{i:02d}" for i in range(15))
_PER_PERSON = 3_000
_ORDERS = ("bgr", "rgb")
_BLOCK = 64  # images in memory at full size
_SAMPLE = 20  # images per person for guessing the order of the colours
_ADVICE = (
    "Give the folder of the normalised set: of p00.mat ... p14.mat, of MPIIFaceGaze.h5, or of "
    "Image/ and Label/."
)


class _Copy(NamedTuple):
    """Where a copy is, and how it is laid out."""

    layout: str
    path: Path


def read(
    root: Path,
    *,
    val_persons: Sequence[str] = ("p11", "p12"),
    test_persons: Sequence[str] = ("p13", "p14"),
    channel_order: str = "bgr",
    image_size: int = 224,
    skip_bad: bool = False,
    cache: str | Path | None = None,
    progress: bool = False,
) -> Table:
    """Read a copy; the targets are pitch and yaw in degrees, the subgroup is person.

    The paper splits 11 / 2 / 2 persons and does not say which: the last four are our choice.

    Options:
        val_persons: persons of the validation split.
        test_persons: persons of the test split; all others are in the train split.
        channel_order: order of the colours in HDF5 files, "bgr" or "rgb".
        image_size, skip_bad, cache, progress: as for `rnc.read_table`. The HDF5 layouts do not use
            skip_bad and cache: their pixels stay in memory.
    """
    reading.check_choice("channel_order", channel_order, _ORDERS)
    copy = _find(root)
    persons = _persons(copy)
    _check_persons(persons, val_persons, test_persons, root)
    part = dict.fromkeys(persons, "train")
    part |= dict.fromkeys(val_persons, "val") | dict.fromkeys(test_persons, "test")
    frame = pd.concat([_rows(copy, person) for person in persons], ignore_index=True)
    frame["split"] = frame["person"].map(part)
    if copy.layout == "gazehub":
        return reading.image_table(
            frame,
            targets=("pitch", "yaw"),
            folder=copy.path / "Image",
            place=str(copy.path / "Label"),
            variant="all",
            subgroup_columns=("person",),
            decoding=Decoding(image_size, skip_bad, cache, progress),
        )
    return _hdf5_table(copy, frame, image_size, channel_order, progress)


def _hdf5_table(
    copy: _Copy, frame: pd.DataFrame, side: int, channel_order: str, progress: bool
) -> Table:
    x, done = np.empty((len(frame), 3, side, side), np.uint8), 0
    persons = frame["person"].unique()
    bar = track(persons, "Reading persons", console=Console(stderr=True), disable=not progress)
    for person in bar:
        for image in _images(copy, person, range((frame["person"] == person).sum())):
            rgb = image if channel_order == "rgb" else image[:, :, ::-1]
            picture = Image.fromarray(np.ascontiguousarray(rgb))
            if picture.size != (side, side):
                picture = picture.resize((side, side), Image.Resampling.BICUBIC, reducing_gap=3.0)
            x[done] = np.asarray(picture).transpose(2, 0, 1)
            done += 1
    return Table(
        x,
        y=frame[["pitch", "yaw"]].to_numpy(),
        target_names=("pitch", "yaw"),
        kind="image",
        split=frame["split"].to_numpy(str),
        names=frame["path"].to_numpy(str),
        subgroup={"person": frame["person"].to_numpy(str)},
    )


def _check_persons(
    persons: Sequence[str], val: Sequence[str], test: Sequence[str], root: Path
) -> None:
    for option, chosen in (("val_persons", val), ("test_persons", test)):
        absent = [person for person in chosen if person not in persons]
        if absent or not chosen:
            raise DataError(
                f"{option} must name persons of the copy in {root}, which has "
                f"{first_few(persons, 15)}; got {first_few(chosen) or 'none'}."
            )
    if both := set(val) & set(test):
        raise DataError(f"val_persons and test_persons share {', '.join(sorted(both))}.")
    if not set(persons) - set(val) - set(test):
        raise DataError(f"Nobody is left to train: {first_few(persons, 15)} validate or test.")


def _findings(root: Path, progress: bool) -> Iterator[Finding]:
    copy = _find(root)
    persons = _persons(copy)
    yield Finding("ok", f"Layout {copy.layout} in {copy.path}.")
    if absent := [person for person in _PERSONS if person not in persons]:
        yield Finding("error", f"Persons {first_few(absent, 15)} are missing. {_ADVICE}")
    rows = {}
    for person in persons:
        try:
            rows[person] = _rows(copy, person)
        except DataError as error:
            yield Finding("error", str(error))
    if not rows:
        return
    yield count_finding("persons", len(rows), _COUNTS["persons"])
    for person, frame in rows.items():
        if len(frame) != _PER_PERSON:
            yield count_finding(f"images of {person}", len(frame), _PER_PERSON)
    together = pd.concat(rows.values())
    yield count_finding("images", len(together), _COUNTS["images"])
    for name, published in _RANGES.items():
        yield range_finding(name, together[name].to_numpy(), published, " degrees")
    if copy.layout == "gazehub":
        yield from image_findings(copy.path / "Image", together["path"], progress)
    else:
        yield _colour_finding(copy, {person: len(frame) for person, frame in rows.items()})


def _colour_finding(copy: _Copy, counts: dict[str, int]) -> Finding:
    """Whether the order of the colours is BGR: in photos of faces, red is stronger than blue."""
    means = [
        image.mean(axis=(0, 1))
        for person, n in counts.items()
        for image in _images(copy, person, range(min(n, _SAMPLE)))
    ]
    first, _, last = np.mean(means, axis=0)
    if last >= first:
        return Finding("ok", f"Colours are in the order BGR (blue {first:.0f}, red {last:.0f}).")
    return Finding(
        "warning",
        f"Colours look like RGB (first channel {first:.0f}, last {last:.0f} of 255; faces have "
        "more red than blue). Look at some images, and read with channel_order='rgb' if so.",
    )


def _find(root: Path) -> _Copy:
    for folder in (root, root / "MPIIFaceGaze_normalizad", root / "MPIIFaceGaze_normalized"):
        if any((folder / f"{person}.mat").is_file() for person in _PERSONS):
            return _Copy("mat", folder)
    if (root / "MPIIFaceGaze.h5").exists():
        return _Copy("h5", root / "MPIIFaceGaze.h5")
    for folder in (root, root / "MPIIFaceGaze"):
        if (folder / "Image").is_dir() and (folder / "Label").is_dir():
            return _Copy("gazehub", folder)
    if any((root / person / f"{person}.txt").is_file() for person in _PERSONS):
        raise DataError(
            f"{root} is the raw MPIIFaceGaze, whose faces are not normalised. Download "
            "MPIIFaceGaze_normalized.zip instead."
        )
    looked_for = "p00.mat ... p14.mat, MPIIFaceGaze.h5, or Image/ and Label/"
    raise reading.not_found("the normalised MPIIFaceGaze", root, looked_for, _ADVICE)


def _persons(copy: _Copy) -> list[str]:
    if copy.layout == "h5":
        with _hdf5(copy.path) as file:
            found = [person for person in _PERSONS if person in file]
    else:
        place = "{}.mat" if copy.layout == "mat" else "Label/{}.label"
        found = [p for p in _PERSONS if (copy.path / place.format(p)).is_file()]
    if not found:
        raise DataError(f"{copy.path} has none of the persons p00 ... p14. {_ADVICE}")
    return found


def _rows(copy: _Copy, person: str) -> pd.DataFrame:
    """A row per image of a person: path, pitch and yaw in degrees, and person."""
    place = {"mat": f"{person}.mat", "h5": "", "gazehub": f"Label/{person}.label"}
    file = copy.path / place[copy.layout]
    if copy.layout == "gazehub":
        paths, radians = _label_file(file)
    else:
        radians = _mat_gaze(file) if copy.layout == "mat" else _h5_gaze(file, person)
        paths = [f"{person}/{i:04d}" for i in range(len(radians))]
    largest = np.abs(radians).max(initial=0.0)
    if not largest <= np.pi / 2:  # NaN, too
        raise DataError(
            f"{file}: gaze must be in radians, at most pi / 2; got {largest:g}. It may be of "
            "another version, or in degrees."
        )
    frame = pd.DataFrame(np.degrees(radians), columns=["pitch", "yaw"])
    return frame.assign(path=paths, person=person)


def _label_file(file: Path) -> tuple[list[str], NDArray[np.float64]]:
    """The path of every line, and its pitch and yaw: (n, 2)."""
    paths, radians = [], []
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines()[1:], start=2):
        fields = line.split()
        try:
            yaw, pitch = (float(angle) for angle in fields[7].split(","))
        except (IndexError, ValueError) as error:
            raise DataError(
                f"{file} line {number}: expected the path of a face first and 'yaw,pitch' in "
                f"radians as field 8; got {line[:80]!r}."
            ) from error
        paths.append(fields[0])
        radians.append((pitch, yaw))
    return paths, np.array(radians, dtype=float).reshape(-1, 2)


@contextmanager
def _hdf5(file: Path) -> Iterator[Any]:
    h5py = reading.need("h5py", "gaze", f"Reading {file.name}")
    try:
        opened = h5py.File(file, "r")
    except OSError as error:
        with file.open("rb") as stream:
            old = stream.read(10) == b"MATLAB 5.0"
        hint = "It may be cut short: download it again."
        if old:
            hint = "It is an old Matlab file, such as those of MPIIGaze, which has eyes only: "
            hint += "download MPIIFaceGaze_normalized.zip."
        raise DataError(f"{file} cannot be read as HDF5 ({error}). {hint}") from error
    with opened:
        yield opened


def _mat_gaze(file: Path) -> NDArray[np.float64]:
    """Pitch and yaw of all images of a person: (n, 2)."""
    with _hdf5(file) as opened:
        data, label = opened.get("Data/data"), opened.get("Data/label")
        shapes = [None if values is None else values.shape for values in (data, label)]
        if not _fit(*shapes):
            raise DataError(
                f"{file} needs Data/data (n, 3, h, w) and Data/label (n, 4 or more); got "
                f"{shapes[0]} and {shapes[1]}. Download MPIIFaceGaze_normalized.zip again."
            )
        return np.asarray(label[:, :2], dtype=float)


def _h5_gaze(file: Path, person: str) -> NDArray[np.float64]:
    """Pitch and yaw of all images of a person: (n, 2)."""
    with _hdf5(file) as opened:
        group = opened[person]
        image, gaze = (set(group.get(name) or ()) for name in ("image", "gaze"))
        if not image or image != gaze:
            raise DataError(
                f"{file} needs the same names in {person}/image and {person}/gaze; got "
                f"{len(image)} and {len(gaze)} names. Make the file again."
            )
        angles = np.array([group["gaze"][name][()] for name in sorted(gaze)], dtype=float)
    return angles.reshape(len(angles), -1)[:, :2]


def _fit(data: Sequence[int] | None, label: Sequence[int] | None) -> bool:
    if data is None or label is None or len(data) != 4 or len(label) != 2:
        return False
    return data[1] == 3 and data[2] == data[3] and label[0] == data[0] > 0 and label[1] >= 4


def _images(copy: _Copy, person: str, rows: range) -> Iterator[NDArray[np.uint8]]:
    """The pixels in the file, image by image: (h, w, 3)."""
    if copy.layout == "mat":
        file = copy.path / f"{person}.mat"
        with _hdf5(file) as opened:
            for start in range(rows.start, rows.stop, _BLOCK):
                block = opened["Data/data"][start : min(start + _BLOCK, rows.stop)]
                yield from _bytes(block, file).transpose(0, 2, 3, 1)
        return
    with _hdf5(copy.path) as opened:
        group = opened[person]["image"]
        for name in sorted(group)[rows.start : rows.stop]:
            yield _bytes(group[name][()], copy.path)


def _bytes(pixels: NDArray[Any], file: Path) -> NDArray[np.uint8]:
    if pixels.dtype == np.uint8:
        return pixels
    low, high = pixels.min(), pixels.max()
    if not (low >= 0 and 1 < high <= 255):
        raise DataError(f"{file}: pixels must be 0 to 255; got {low:g} to {high:g}.")
    return pixels.round().astype(np.uint8)


MPIIFACEGAZE = Dataset(
    name="mpiifacegaze",
    title="MPIIFaceGaze",
    what="pitch and yaw of the gaze in degrees from photos of faces",
    access="http://datasets.d2.mpi-inf.mpg.de/MPIIGaze/MPIIFaceGaze_normalized.zip: open download, "
    "CC BY-NC-SA 4.0.",
    counts=_COUNTS,
    ranges=_RANGES,
    read=read,
    findings=_findings,
    extra="gaze",
    fit={"label_distance": "angular", "flip": False},
    bins={"low": (-40.0, -45.0), "high": (10.0, 45.0), "step": (0.5, 1.0)},
)
