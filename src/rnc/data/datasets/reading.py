"""Code that the readers of datasets share: find the files of a copy, and make its table."""

from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
from numpy.typing import NDArray

from rnc.data.datasets.dataset import Finding, count_finding
from rnc.data.errors import DataError, first_few
from rnc.data.image_cache import Decoding
from rnc.data.inputs import ImageRows, Skipped
from rnc.data.labels import ColumnRoles, read_labels, read_targets
from rnc.data.sources import column, read_frame
from rnc.data.splits import SPLITS, check_split, make_split
from rnc.data.table import Table, decoded_table


def need(package: str, extra: str, what: str) -> Any:
    """A package that belongs to an extra. Raises an error that names the extra if it is missing."""
    try:
        return import_module(package)
    except ImportError as error:
        raise ImportError(
            f"{what} needs the package {package} ({error}). Get it with: "
            f'pip install "rank-n-contrast[{extra}]"',
            name=package,
        ) from error


def first_existing(root: Path, places: Sequence[str]) -> Path | None:
    """The first of these places below a folder that exists, or None."""
    return next((root / place for place in places if (root / place).exists()), None)


def not_found(title: str, root: Path, looked_for: str, advice: str) -> DataError:
    """The error for a folder that holds no copy. It says what was looked for and what was found."""
    if not root.is_dir():
        what = "is a file, not a folder" if root.exists() else "does not exist"
        return DataError(f"{root} {what}. {advice}")
    inside = sorted(p.name + "/" * p.is_dir() for p in root.iterdir() if p.name[0] != ".")
    found = first_few(inside) if inside else "nothing"
    return DataError(
        f"{root} holds no copy of {title}: looked for {looked_for}; found {found}. {advice}"
    )


def check_choice(option: str, value: str, known: Sequence[str]) -> None:
    """Raise unless an option has one of the known values."""
    if value not in known:
        raise DataError(f"{option} must be one of {', '.join(known)}; got {value!r}.")


def image_table(
    frame: pd.DataFrame,
    *,
    targets: Sequence[str],
    folder: Path,
    place: str,
    variant: str,
    subgroup_columns: Sequence[str],
    skipped: Sequence[Skipped] = (),
    decoding: Decoding,
) -> Table:
    """The table of a frame whose rows name an image file each: `read_table` for a frame.

    The frame has columns path (relative to the folder), split, targets and subgroups. Its index
    holds row numbers of the file `place`. `variant` identifies the selection of rows: each variant
    has its own cache. `skipped` lists rows that were left out before.
    """
    roles = ColumnRoles(tuple(targets), "split", subgroup=tuple(subgroup_columns))
    names = [str(path) for path in frame["path"]]
    labels, _ = read_labels(frame, roles, place, names=names, skipped=skipped)
    identity = f"{folder.resolve()}\n{Path(place).name}\n{variant}"
    rows = ImageRows(place, names, [folder / n for n in names], frame.index.tolist(), identity)
    return decoded_table(rows, labels, decoding)


def published_rows(csv: Path) -> pd.DataFrame:
    """The columns age, path and split of a csv of Yang et al. 2021. Raises for a bad value."""
    frame, place = read_frame(csv), str(csv)
    for name in ("age", "path", "split"):
        column(frame, name, place)
    frame = frame[["age", "path", "split"]].copy()
    frame["age"] = read_targets(frame, ["age"], place)[:, 0]
    frame["split"] = check_split(frame["split"].tolist(), frame.index, place, needed=())
    frame["path"] = [str(path).strip() for path in frame["path"]]
    twice = frame["path"].duplicated(keep=False)
    if twice.any():
        raise DataError(
            f"{place} rows {first_few(frame.index[twice], 4)} name the same images, such as "
            f"{frame['path'][twice].iloc[0]!r}. Get the file of Yang et al. 2021 again."
        )
    return frame


def age_split(
    frame: pd.DataFrame,
    split: str,
    *,
    counts: Mapping[str, int],
    seed: int,
    most: int,
    up_to: float = np.inf,
    without_published: str,
) -> Any:
    """The chosen split of AgeDB or IMDB-WIKI: published, balanced, person or image.

    The frame has columns age, path and person, and the column split if the published split is
    known. `without_published` is the error message if it is not. `most` and `up_to` are options of
    `balanced_split`.
    """
    if split == "published":
        if "split" not in frame:
            raise DataError(without_published)
        return frame["split"]
    if split == "balanced":
        ages, names = frame["age"].to_numpy(), frame["path"].to_numpy(dtype=str)
        return balanced_split(ages, names, most=most, seed=seed, up_to=up_to)
    group = "person" if split == "person" else None
    return drawn_split(frame, "age", group, counts=counts, seed=seed)


def drawn_split(
    frame: pd.DataFrame, target: str, group: str | None, *, counts: Mapping[str, int], seed: int
) -> NDArray[np.str_]:
    """A seeded split with the published shares; rows of the same group stay together."""
    total = sum(counts[part] for part in SPLITS)
    return make_split(
        frame[[target]].to_numpy(),
        frame["path"].tolist(),
        group=None if group is None else frame[group].to_numpy(),
        fractions=[counts[part] / total for part in SPLITS],
        seed=seed,
    )


def split_findings(split: pd.Series, counts: Mapping[str, int]) -> Iterator[Finding]:
    """Whether train, val and test have as many images as published."""
    for part in SPLITS:
        yield count_finding(f"{part} images", int((split == part).sum()), counts[part])


def balanced_split(
    values: NDArray[Any], names: NDArray[Any], *, most: int, seed: int, up_to: float = np.inf
) -> NDArray[np.str_]:
    """A split whose val and test are as even as possible over the values of a target.

    Of the rows that share a value, a third goes to val and a third to test, but at most `most`
    each. The rest trains, and so do all rows with a value above `up_to`. This is the rule behind
    the published splits of AgeDB and IMDB-WIKI. The draw depends on the seed and the names, not on
    the order of the rows.

    >>> names = np.array(list("abcdefghi"))
    >>> split = balanced_split(np.array([7] * 7 + [8] * 2), names, most=2, seed=0)
    >>> sorted(split[:7].tolist()), split[7:].tolist()
    (['test', 'test', 'train', 'train', 'train', 'val', 'val'], ['train', 'train'])
    """
    rng, split = np.random.default_rng(seed), np.full(len(values), "train", dtype="<U5")
    by_name = np.argsort(names, kind="stable")
    for value in np.unique(values):
        rows = rng.permutation(by_name[values[by_name] == value])
        k = min(len(rows) // 3, most) if value <= up_to else 0
        split[rows[:k]], split[rows[k : 2 * k]] = "val", "test"
    return split
