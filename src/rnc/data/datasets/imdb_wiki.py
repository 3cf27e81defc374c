"""IMDB-WIKI: age from photos of celebrities (Rothe et al. 2015); the paper uses it for analysis.

A copy is the folders `imdb_crop` and `wiki_crop`, and beside them `imdb_wiki.csv` (columns age,
path, split) of Yang et al. 2021: a cleaned selection with the split of the paper. Without it, the
same selection is made from the `imdb.mat` and `wiki.mat` inside the folders:

    age = year of the photo - year of birth, less 1 for those born in July or later
    kept: face score >= 1, no second face, age 0 to 200

Many of the ages are wrong: those above 120 are kept, as published, in the train rows.
"""

import re
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
from numpy.typing import NDArray
from scipy.io import loadmat  # type: ignore[import-untyped]

from rnc.data.datasets import reading
from rnc.data.datasets.dataset import Dataset, Finding, count_finding, image_findings, range_finding
from rnc.data.errors import DataError, first_few
from rnc.data.image_cache import Decoding
from rnc.data.inputs import Skipped
from rnc.data.table import Table

_PARTS = {"train": 191_509, "val": 11_022, "test": 11_022}
_COUNTS = {"images": 523_051, "imdb": 460_723, "wiki": 62_328, **_PARTS}
_AGES = (0, 186)
_MOST_PER_AGE, _OLDEST = 150, 120  # in val and in test, as in the published split
_LEAST_FACE_SCORE, _LARGEST_AGE = 1.0, 200
_SPLITS = ("published", "balanced", "person")
_SOURCES = ("imdb", "wiki")
_FIELDS = ("dob", "photo_taken", "full_path", "face_score", "second_face_score")
_PERSON = re.compile(r"^(imdb|wiki)_crop/(?:\d+/)?([^/_]+)_")  # imdb_crop/00/nm0000100_rm46.jpg
_MATLAB_DAYS = 366  # Matlab counts days from the year 0, Python from 1
_ADVICE = (
    "Give the folder that holds imdb_crop/, wiki_crop/ and imdb_wiki.csv (or imdb.mat and wiki.mat "
    "inside the two)."
)


def read(
    root: Path,
    *,
    split: str = "published",
    split_seed: int = 0,
    train_size: int | None = None,
    train_seed: int = 0,
    largest_age: float | None = None,
    image_size: int = 224,
    skip_bad: bool = False,
    cache: str | Path | None = None,
    progress: bool = False,
) -> Table:
    """Read a copy; the target is age, the subgroups are source (imdb, wiki) and person.

    Options:
        split: "published" is the split of imdb_wiki.csv, as in the paper. "balanced": the same rule
            (val and test even over ages 0 to 120), drawn by us. "person": no person is in two
            parts. The last two do not need imdb_wiki.csv.
        split_seed: seed of the last two.
        train_size: keep so many train rows, drawn uniformly, and all of val and test. With the same
            seed, a smaller set is part of a larger one. The paper has 2,000 and 32,000 (among
            others) and does not say which rows.
        train_seed: seed of that draw.
        largest_age: leave out rows above it; None keeps all, as published.
        image_size, skip_bad, cache, progress: as for `rnc.read_table`.
    """
    reading.check_choice("split", split, _SPLITS)
    frame, place = _rows(root)
    skipped = []
    if largest_age is not None:
        older = frame["age"] > largest_age
        skipped = [
            Skipped(path, f"age is {age:g}, above {largest_age:g}")
            for path, age in zip(frame["path"][older], frame["age"][older], strict=True)
        ]
        frame = frame[~older].copy()
    frame["split"] = reading.age_split(
        frame,
        split,
        counts=_PARTS,
        seed=split_seed,
        most=_MOST_PER_AGE,
        up_to=_OLDEST,
        without_published=f"{root} has the .mat files of IMDB-WIKI, but no imdb_wiki.csv, which "
        "holds the published split. Put it beside the folders imdb_crop and wiki_crop, or choose "
        "split='balanced' or split='person' (--dataset-option split=balanced; for the second data "
        "of a transfer --other-option).",
    )
    if train_size is not None:
        frame = frame[_draw(frame, train_size, train_seed)]
    return reading.image_table(
        frame,
        targets=("age",),
        folder=root,
        place=place,
        variant=f"{train_size} {train_seed} {largest_age}",
        subgroup_columns=("source", "person"),
        skipped=skipped,
        decoding=Decoding(image_size, skip_bad, cache, progress),
    )


def _draw(frame: pd.DataFrame, train_size: int, seed: int) -> NDArray[np.bool_]:
    """Which rows to keep: all of val and test, and `train_size` of the train rows."""
    train = np.flatnonzero(frame["split"] == "train")
    if not 1 <= train_size <= len(train):
        raise DataError(
            f"train_size must be 1 to {len(train):,}, the train rows; got {train_size}."
        )
    by_name = train[np.argsort(frame["path"].to_numpy(dtype=str)[train], kind="stable")]
    stays: NDArray[np.bool_] = (frame["split"] != "train").to_numpy(copy=True)
    stays[np.random.default_rng(seed).permutation(by_name)[:train_size]] = True
    return stays


def _findings(root: Path, progress: bool) -> Iterator[Finding]:
    frame, _ = _rows(root)
    for source in _SOURCES:
        if not (root / f"{source}_crop").is_dir():
            yield Finding(
                "error",
                f"{root} has no folder {source}_crop. Download {source}_crop.tar and unpack it "
                "there.",
            )
    for mat in _mat_files(root):
        listed = len(_read_mat(mat)["full_path"])
        yield count_finding(f"images in {mat.name}", listed, _COUNTS[mat.stem])
    if "split" in frame:
        yield from reading.split_findings(frame["split"], _PARTS)
    else:
        kept = sum(_PARTS.values())
        yield count_finding("images with one clear face and an age", len(frame), kept)
        yield Finding(
            "warning",
            f"No imdb_wiki.csv in {root}, so the published split is unknown; read with "
            "split='balanced' or split='person'.",
        )
    yield range_finding("age", frame["age"].to_numpy(), _AGES)
    if older := int((frame["age"] > _OLDEST).sum()):
        yield Finding(
            "warning",
            f"{older:,} ages are above {_OLDEST} and can only be wrong. They train, as published; "
            f"largest_age={_OLDEST} leaves them out.",
        )
    yield from image_findings(root, frame["path"], progress)


def _rows(root: Path) -> tuple[pd.DataFrame, str]:
    """All rows (age, path, source, person, and split where known) and where they come from."""
    csv, mats = root / "imdb_wiki.csv", _mat_files(root)
    if csv.is_file():
        frame, place = reading.published_rows(csv), csv
    elif mats:
        frame, place = pd.concat([_selection(mat) for mat in mats], ignore_index=True), root
    else:
        looked_for = "imdb_wiki.csv, imdb_crop/imdb.mat and wiki_crop/wiki.mat"
        raise reading.not_found("IMDB-WIKI", root, looked_for, _ADVICE)
    for row, path in frame["path"].items():
        if not _PERSON.match(path):
            raise DataError(
                f"{place} row {row}: path is {path!r}, expected imdb_crop/<folder>/<person>_*.jpg "
                "or wiki_crop/*. Get the file of Yang et al. 2021 again."
            )
    frame[["source", "person"]] = frame["path"].str.extract(_PERSON)
    return frame, str(place)


def _mat_files(root: Path) -> list[Path]:
    files = [root / f"{source}_crop" / f"{source}.mat" for source in _SOURCES]
    return [file for file in files if file.is_file()]


def _selection(mat: Path) -> pd.DataFrame:
    """Age and path of the rows with one clear face and a possible age."""
    fields = _read_mat(mat)
    second = fields["second_face_score"].astype(float)
    kept = (fields["face_score"].astype(float) >= _LEAST_FACE_SCORE) & ~(second > 0)
    ages = _ages(fields["dob"], fields["photo_taken"])
    kept &= (ages >= 0) & (ages <= _LARGEST_AGE)
    paths = [f"{mat.parent.name}/{str(path).strip()}" for path in fields["full_path"][kept]]
    return pd.DataFrame({"age": ages[kept], "path": paths})


def _ages(born: NDArray[Any], taken: NDArray[Any]) -> NDArray[np.float64]:
    """Years from birth (Matlab days) to the middle of the photo's year; NaN where unknown."""
    days = np.floor(born.astype(float)) - _MATLAB_DAYS
    known = (days >= 1) & (days <= date.max.toordinal())
    ages = np.full(len(days), np.nan)
    birthdays = [date.fromordinal(int(day)) for day in days[known]]
    years = np.array([day.year + (day.month > 6) for day in birthdays], dtype=float)
    ages[known] = taken.astype(float)[known] - years
    return ages


def _read_mat(mat: Path) -> dict[str, NDArray[Any]]:
    """The fields that we need, one value per image."""
    try:
        struct = loadmat(mat, squeeze_me=True, variable_names=[mat.stem]).get(mat.stem)
    except (OSError, ValueError, TypeError, NotImplementedError, EOFError) as error:
        raise DataError(
            f"{mat} cannot be read as a Matlab file ({error}). Unpack {mat.parent.name}.tar again."
        ) from error
    names = None if struct is None else struct.dtype.names
    if struct is None or not set(_FIELDS) <= set(names or ()):
        raise DataError(
            f"{mat} needs a struct {mat.stem!r} with {', '.join(_FIELDS)}; it has "
            f"{first_few(names or ['no such struct'])}. Download {mat.parent.name}.tar again."
        )
    fields = {name: np.atleast_1d(struct[name].item()) for name in _FIELDS}
    if len({len(values) for values in fields.values()}) > 1:
        sizes = ", ".join(f"{len(values)} {name}" for name, values in fields.items())
        raise DataError(f"{mat} needs the same number of values in each field; it has {sizes}.")
    return fields


IMDB_WIKI = Dataset(
    name="imdb-wiki",
    title="IMDB-WIKI",
    what="age in years from photos of faces",
    access="https://data.vision.ee.ethz.ch/cvl/rrothe/imdb-wiki: open download (imdb_crop.tar, "
    "wiki_crop.tar) for research. imdb_wiki.csv is in the public code of Yang et al. 2021.",
    counts=_COUNTS,
    ranges={"age": _AGES},
    read=read,
    findings=_findings,
)
