"""AgeDB: age from photos of 567 celebrities (Moschoglou et al. 2017).

A copy is the folder `AgeDB` with images `<number>_<name>_<age>_<m or f>.jpg`, and beside it
`agedb.csv` (columns age, path, split) of Yang et al. 2021, whose split the paper uses. In that
split every person of the test rows is in the train rows, too, and 64% of the test images have a
train image of the same person within a year. So it measures the error on known faces.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pandas as pd  # type: ignore[import-untyped]

from rnc.data.datasets import reading
from rnc.data.datasets.dataset import Dataset, Finding, count_finding, image_findings, range_finding
from rnc.data.errors import DataError, first_few
from rnc.data.image_cache import Decoding
from rnc.data.images import image_files
from rnc.data.splits import SPLITS
from rnc.data.table import Table

_COUNTS = {"images": 16_488, "persons": 567, "train": 12_208, "val": 2_140, "test": 2_140}
_AGES = (0, 101)
_MOST_PER_AGE = 30  # in val and in test, as in the published split
_SPLITS = ("published", "person", "image", "balanced")
_NAME = re.compile(r"(?:AgeDB/)?(?i:\d+_(?P<person>.+)_(?P<age>\d+)_(?P<sex>[mf])\.jpg)")
_ADVICE = "Give the folder that holds AgeDB/ with the images and agedb.csv."


def read(
    root: Path,
    *,
    split: str = "published",
    split_seed: int = 0,
    image_size: int = 224,
    skip_bad: bool = False,
    cache: str | Path | None = None,
    progress: bool = False,
) -> Table:
    """Read a copy; the target is age, the subgroups are person and sex.

    Options:
        split: "published" is the split of agedb.csv, as in the paper. "person": no person is in two
            parts. "image": parts have the same ages, whoever is on the images; the control for
            "person". "balanced": the published rule (val and test even over ages), drawn by us.
            The last three do not need agedb.csv.
        split_seed: seed of the last three.
        image_size, skip_bad, cache, progress: as for `rnc.read_table`.
    """
    reading.check_choice("split", split, _SPLITS)
    frame, folder, place = _rows(root)
    frame["split"] = reading.age_split(
        frame,
        split,
        counts=_COUNTS,
        seed=split_seed,
        most=_MOST_PER_AGE,
        without_published=f"{root} has the images of AgeDB, but no agedb.csv, which holds the "
        "published split. Put it beside the folder AgeDB, or choose split='person', "
        "split='image' or split='balanced' (--dataset-option split=person).",
    )
    return reading.image_table(
        frame,
        targets=("age",),
        folder=folder,
        place=str(place),
        variant="all",
        subgroup_columns=("person", "sex"),
        decoding=Decoding(image_size, skip_bad, cache, progress),
    )


def _findings(root: Path, progress: bool) -> Iterator[Finding]:
    frame, folder, place = _rows(root)
    yield count_finding(f"images in {place.name}", len(frame), _COUNTS["images"])
    yield count_finding("persons", frame["person"].nunique(), _COUNTS["persons"])
    yield range_finding("age", frame["age"].to_numpy(), _AGES)
    if "split" in frame:
        yield from reading.split_findings(frame["split"], _COUNTS)
        yield from _label_findings(frame)
        if unlisted := {*_images(folder)} - {*frame["path"]}:
            yield Finding(
                "warning",
                f"{len(unlisted):,} images are not in {place} and are left out: "
                f"{first_few(sorted(unlisted), 3)}.",
            )
    else:
        yield Finding(
            "warning",
            f"No agedb.csv in {root}, so the published split is unknown. Put it beside the folder "
            "AgeDB, or read with split='person', split='image' or split='balanced'.",
        )
    yield from image_findings(folder, frame["path"], progress)


def _label_findings(frame: pd.DataFrame) -> Iterator[Finding]:
    """Whether no person is in two parts of the split, and ages agree with the file names."""
    train, test = (set(frame["person"][frame["split"] == part]) for part in ("train", "test"))
    if shared := train & test:
        yield Finding(
            "warning",
            f"{len(shared)} of {len(test)} persons of the test images are in the train images, "
            "too, as in the published split; of the test images, "
            f"{_familiar_share(frame):.0%} have a train image of the same person within a year. "
            "split='person' keeps persons apart.",
        )
    wrong = frame[frame["age in name"] != frame["age"]]
    if len(wrong):
        first = wrong.iloc[0]
        yield Finding(
            "error",
            f"{len(wrong):,} ages are not those of the file names, such as row {wrong.index[0]}: "
            f"age {first['age']:g} for {first['path']}. Get agedb.csv again.",
        )


def _familiar_share(frame: pd.DataFrame) -> float:
    """The share of test images with a train image of the same person at most a year apart."""
    parts = {part: frame.loc[frame["split"] == part, ["person", "age"]] for part in SPLITS}
    known = set(parts["train"].itertuples(index=False, name=None))
    near = [
        any((person, age + years) in known for years in (-1, 0, 1))
        for person, age in parts["test"].itertuples(index=False, name=None)
    ]
    return sum(near) / len(near)


def _rows(root: Path) -> tuple[pd.DataFrame, Path, Path]:
    """All rows, the folder that paths are relative to, and the file or folder that lists them.

    Columns are age, path, person, sex, age in name, and split where it is known.
    """
    folder = root.parent if root.name == "AgeDB" and not (root / "AgeDB").is_dir() else root
    if not (folder / "AgeDB").is_dir():
        raise reading.not_found("AgeDB", root, "the folder AgeDB", _ADVICE)
    csv = reading.first_existing(folder, ("agedb.csv", "data/agedb.csv", "AgeDB/agedb.csv"))
    if csv is None:
        frame = pd.DataFrame({"path": filter(_NAME.fullmatch, _images(folder))})
        if frame.empty:
            looked_for = "images <number>_<name>_<age>_<m or f>.jpg"
            raise reading.not_found("AgeDB", folder / "AgeDB", looked_for, _ADVICE)
    else:
        frame = reading.published_rows(csv)
        for row, path in frame["path"].items():
            if not _NAME.fullmatch(path):
                raise DataError(
                    f"{csv} row {row}: path is {path!r}, expected AgeDB/<number>_<name>_<age>_<m "
                    "or f>.jpg. Get the agedb.csv of Yang et al. 2021."
                )
    parts = frame["path"].str.extract(_NAME)
    frame["person"], frame["sex"] = parts["person"], parts["sex"].str.lower()
    frame["age in name"] = parts["age"].astype(float)
    if csv is None:
        frame["age"] = frame["age in name"]
    return frame, folder, csv or folder / "AgeDB"


def _images(folder: Path) -> list[str]:
    return [path.relative_to(folder).as_posix() for path in image_files(folder / "AgeDB")]


AGEDB = Dataset(
    name="agedb",
    title="AgeDB",
    what="age in years from photos of faces",
    access="https://ibug.doc.ic.ac.uk/resources/agedb: a zip file whose password the authors give "
    "to academics. agedb.csv is in the public code of Yang et al. 2021 (imbalanced regression).",
    counts=_COUNTS,
    ranges={"age": _AGES},
    read=read,
    findings=_findings,
    bins={"low": 0.0, "high": 101.0, "step": 1.0},
)
