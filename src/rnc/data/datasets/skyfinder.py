"""SkyFinder: air temperature from photos of outdoor webcams (Mihail et al. 2016).

A copy is `complete_table_with_mcr.csv` (columns Filename, CamId, Year, Month, Day, Hour, Min,
TempM in degrees Celsius, and more) and the images `images/<CamId>/<Filename>`. Like Chu et al.
2018, whom the paper follows, we take the image nearest to 11 o'clock of each camera and day. A
TempM of -9999 or -999 means that the temperature is unknown.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
from numpy.typing import NDArray

from rnc.data.datasets import reading
from rnc.data.datasets.dataset import Dataset, Finding, count_finding, image_findings, range_finding
from rnc.data.errors import DataError, first_few
from rnc.data.image_cache import Decoding
from rnc.data.inputs import Skipped
from rnc.data.labels import read_targets
from rnc.data.sources import column, read_frame
from rnc.data.table import Table

_PARTS = {"train": 28_373, "val": 3_522, "test": 3_522}
_COUNTS = {"images": 35_417, "cameras": 44, **_PARTS, "rows with a temperature": 94_468}
_TEMPERATURES = (-20, 49)
_CSV = "complete_table_with_mcr.csv"
_TIME = ("Year", "Month", "Day", "Hour", "Min")
_UNKNOWN = -900  # TempM below it is no temperature
_SPLITS = ("image", "camera")
_CLOCKS = ("table", "solar")
_ADVICE = f"Give the folder that holds {_CSV} and images/<CamId>/<Filename>."


def read(
    root: Path,
    *,
    hour: float | None = 11.0,
    clock: str = "table",
    within_minutes: float | None = None,
    cameras: Sequence[int] | None = None,
    split: str = "image",
    split_seed: int = 0,
    image_size: int = 224,
    skip_bad: bool = False,
    cache: str | Path | None = None,
    progress: bool = False,
) -> Table:
    """Read a copy; the target is temperature in degrees Celsius, the subgroup is camera.

    The paper's files and split are not published. So the clock, the split and which of two equally
    near images counts (the earlier one) are our choice. Cameras without a folder of images are left
    out and listed in `skipped`.

    Options:
        hour: take the image nearest to this hour of each camera and day; None takes all images.
        clock: "table" uses Hour and Min unchanged; "solar" takes them for UTC and adds Longitude /
            15 hours. It is not documented which of the two the table holds.
        within_minutes: leave out days whose nearest image is further from the hour.
        cameras: the CamId of the cameras to read; None reads all.
        split: "image" splits by image, so that cameras are in all parts; "camera" keeps the images
            of a camera together.
        split_seed: seed of the split.
        image_size, skip_bad, cache, progress: as for `rnc.read_table`.
    """
    reading.check_choice("split", split, _SPLITS)
    reading.check_choice("clock", clock, _CLOCKS)
    frame, folder, csv, skipped = _rows(root)
    if cameras is not None:
        known = frame["camera"].unique().tolist()
        if absent := [camera for camera in cameras if camera not in known]:
            raise DataError(
                f"{csv} and the image folders have no camera {first_few(absent)}; they have "
                f"{first_few(sorted(known), 60)}."
            )
        frame = frame[frame["camera"].isin(list(cameras))]
    if hour is not None:
        frame = frame[_nearest(frame, hour, clock, within_minutes)]
    if frame.empty:
        raise DataError(
            f"{csv}: no images are left within {within_minutes:g} minutes of {hour:g} o'clock. "
            "Choose more minutes: --dataset-option within_minutes=."
        )
    group = "camera" if split == "camera" else None
    parts = reading.drawn_split(frame, "temperature", group, counts=_PARTS, seed=split_seed)
    return reading.image_table(
        frame.assign(split=parts),
        targets=("temperature",),
        folder=folder,
        place=str(csv),
        variant=f"{hour} {clock} {within_minutes} {cameras}",
        subgroup_columns=("camera",),
        skipped=skipped,
        decoding=Decoding(image_size, skip_bad, cache, progress),
    )


def _nearest(
    frame: pd.DataFrame, hour: float, clock: str, within_minutes: float | None
) -> NDArray[np.bool_]:
    """Whether each row is the nearest to an hour among those of its camera and day."""
    if not 0 <= hour < 24:
        raise DataError(f"hour must be 0 or more and less than 24; got {hour}.")
    minutes = frame["minutes"].to_numpy()
    if clock == "solar":
        minutes = minutes + 4 * frame["longitude"].to_numpy()  # the sun takes 4 minutes a degree
    away = np.abs(minutes % 1440 - 60 * hour)
    days = pd.DataFrame({"camera": frame["camera"].to_numpy(), "day": minutes // 1440})
    days = days.assign(away=away, minutes=minutes, name=frame["path"].to_numpy())
    best = days.sort_values(["away", "minutes", "name"]).drop_duplicates(["camera", "day"])
    stays: NDArray[np.bool_] = away <= (np.inf if within_minutes is None else within_minutes)
    stays &= np.isin(np.arange(len(frame)), best.index)
    return stays


def _findings(root: Path, progress: bool) -> Iterator[Finding]:
    frame, folder, csv, skipped = _rows(root)
    unknown = [one for one in skipped if not one.name.startswith("camera ")]
    absent = [one.name for one in skipped if one.name.startswith("camera ")]
    yield Finding(
        "warning" if unknown else "ok",
        f"{len(unknown):,} rows of {csv.name} have no temperature and are left out.",
    )
    if absent:
        yield Finding("warning", f"No images below {folder} for {first_few(absent, 20)}: left out.")
    what = "rows with a temperature and a camera folder"
    yield count_finding(what, len(frame), _COUNTS["rows with a temperature"])
    chosen = frame[_nearest(frame, 11.0, "table", None)]
    yield count_finding("images nearest to 11 o'clock", len(chosen), _COUNTS["images"])
    yield count_finding("cameras", frame["camera"].nunique(), _COUNTS["cameras"])
    yield range_finding("temperature", chosen["temperature"].to_numpy(), _TEMPERATURES, " C")
    yield _clock_finding(frame)
    yield from image_findings(folder, frame["path"], progress)


def _clock_finding(frame: pd.DataFrame) -> Finding:
    """Whether the table's time agrees with that in the file names (YYYYMMDD_HHMMSS.jpg)."""
    stem = frame["path"].str.extract(r"/\d{8}_(\d{2})(\d{2})\d{2}\.", expand=True)
    known = stem.notna().all(axis=1)
    named = 60 * stem[0][known].astype(int) + stem[1][known].astype(int)
    away = (frame["minutes"][known] % 1440 - named).abs()
    same = int((np.minimum(away, 1440 - away) <= 30).sum())
    if known.any() and same < 0.9 * len(away):
        return Finding(
            "warning",
            f"Hour and Min differ from the time in the file name in {len(away) - same:,} of "
            f"{len(away):,} rows: the two are of different clocks. See the option clock.",
        )
    return Finding("ok", "Hour and Min are of the same clock as the file names.")


def _rows(root: Path) -> tuple[pd.DataFrame, Path, Path, list[Skipped]]:
    """The rows with a temperature and a camera folder, the image folder, the csv, skipped rows."""
    csv = reading.first_existing(root, (_CSV, f"images/{_CSV}"))
    if csv is None:
        raise reading.not_found("SkyFinder", root, _CSV, _ADVICE)
    table, place = read_frame(csv), str(csv)
    for name in ("Filename", "CamId", "TempM", "Longitude", *_TIME):
        column(table, name, place)
    folder = root / "images" if (root / "images").is_dir() else root
    temperature = read_targets(table.fillna({"TempM": -9999}), ["TempM"], place)[:, 0]
    when = read_targets(table, ["CamId", "Longitude", *_TIME], place)
    frame = pd.DataFrame({"temperature": temperature, "longitude": when[:, 1]}, table.index)
    frame["camera"] = when[:, 0].astype(int)
    frame["minutes"] = _minutes(when[:, 2:], table.index, place)
    names = zip(frame["camera"], table["Filename"], strict=True)
    frame["path"] = [f"{camera}/{str(name).strip()}" for camera, name in names]
    known = (frame["temperature"] > _UNKNOWN).to_numpy()
    cameras = [camera for camera in frame["camera"].unique() if (folder / str(camera)).is_dir()]
    there = frame["camera"].isin(cameras)
    if not (known & there).any():
        raise reading.not_found("SkyFinder", folder, "a folder of images per CamId", _ADVICE)
    skipped = [
        Skipped(path, f"TempM is {value:g}, which means unknown")
        for path, value in zip(frame["path"][~known], temperature[~known], strict=True)
    ]
    skipped += [
        Skipped(f"camera {camera}", f"no folder {folder / str(camera)}; {count:,} rows left out")
        for camera, count in frame["camera"][~there].value_counts().sort_index().items()
    ]
    return frame[known & there], folder, csv, skipped


def _minutes(when: NDArray[np.float64], rows: pd.Index, place: str) -> NDArray[np.int64]:
    """Minutes since 1970 by the clock of the table."""
    parts = dict(zip(("year", "month", "day", "hour", "minute"), when.T.astype(int), strict=True))
    times = pd.to_datetime(pd.DataFrame(parts), errors="coerce")
    if times.isna().any():
        first = int(times.isna().to_numpy().argmax())
        values = " ".join(f"{value:g}" for value in when[first])
        raise DataError(
            f"{place} row {rows[first]}: {' '.join(_TIME)} is {values}, which is no time."
        )
    minutes: NDArray[np.int64] = times.to_numpy().astype("datetime64[m]").astype(np.int64)
    return minutes


SKYFINDER = Dataset(
    name="skyfinder",
    title="SkyFinder",
    what="air temperature in degrees Celsius from photos of webcams",
    access="https://mvrl.cse.wustl.edu/datasets/skyfinder: open download, a table and one archive "
    "of images per camera (six cameras are known to have none).",
    counts=_COUNTS,
    ranges={"temperature": _TEMPERATURES},
    read=read,
    findings=_findings,
    bins={"low": -20.0, "high": 49.0, "step": 1.0},
)
