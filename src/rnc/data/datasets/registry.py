"""The datasets of the paper by name: what each is, how to read a copy, how to check one.

A dataset is one file beside this one with two functions and its facts:

    read(root, ...) -> Table       the copy in a folder, ready for a network
    check(root) -> list[Finding]   what was found there, and what differs from the published figures
    DATASET                        title, access, published figures, the two functions

The rest of this file is what the readers have in common.
"""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
from numpy.typing import NDArray

from rnc.data.errors import DataError, some
from rnc.data.image_cache import load_images
from rnc.data.inputs import ImageRows, Skipped
from rnc.data.labels import Use, make_labels, read_targets
from rnc.data.sources import column, read_frame
from rnc.data.splits import check_filled, check_split
from rnc.data.table import Table

Level = Literal["ok", "warning", "error"]

_LOOK = 8  # side of the images that a check decodes: small is fast, and reads the file to its end


@dataclass(frozen=True)
class Finding:
    """One thing that a check found: as it should be, unlike the published set, or unusable."""

    level: Level
    text: str


@dataclass(frozen=True)
class Dataset:
    """What is known about a dataset before a file of it is opened."""

    name: str
    title: str
    what: str
    """The inputs and the target."""
    access: str
    """Where it comes from, and on what terms."""
    counts: Mapping[str, int]
    """Published numbers of rows, by what they count."""
    ranges: Mapping[str, tuple[float, float]]
    """Published lowest and highest value of each target."""
    read: Callable[..., Table]
    check: Callable[[Path, bool], Iterator[Finding]]
    extra: str | None = None
    """The extra of this package that reading needs."""
    options: tuple[str, ...] = field(init=False)
    """Names of the options of `read`."""

    def __post_init__(self) -> None:
        names = tuple(inspect.signature(self.read).parameters)[1:]
        object.__setattr__(self, "options", names)


# -------------------------------------------------------------------------------------- registry


def datasets() -> dict[str, Dataset]:
    """All datasets by name."""
    # Here, not above: each of these files imports this one.
    from rnc.data.datasets import agedb, imdb_wiki, mpiifacegaze, skyfinder, tuab

    known = (
        agedb.DATASET,
        imdb_wiki.DATASET,
        tuab.DATASET,
        mpiifacegaze.DATASET,
        skyfinder.DATASET,
    )
    return {dataset.name: dataset for dataset in known}


def dataset_names() -> tuple[str, ...]:
    """The names that `find_dataset` knows.

    >>> dataset_names()
    ('agedb', 'imdb-wiki', 'tuab', 'mpiifacegaze', 'skyfinder')
    """
    return tuple(datasets())


def find_dataset(name: str) -> Dataset:
    """A dataset by its name, in any case and with - or _."""
    wanted = name.strip().lower().replace("_", "-")
    known = datasets()
    if wanted not in known:
        raise DataError(f"There is no dataset {name!r}; known are {', '.join(known)}.")
    return known[wanted]


def read_dataset(name: str, root: str | Path, options: Mapping[str, Any] | None = None) -> Table:
    """Read a copy of a dataset.

    Args:
        name: one of `dataset_names`.
        root: the folder of the copy.
        options: those of the dataset's `read`, by name; `Dataset.options` lists them.
    """
    dataset = find_dataset(name)
    for option in options or {}:
        if option not in dataset.options:
            close = get_close_matches(option, dataset.options, n=1)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            raise DataError(
                f"{dataset.name} has no option {option!r}; its options: "
                f"{', '.join(dataset.options)}.{hint}"
            )
    return dataset.read(Path(root), **(options or {}))


def check_dataset(name: str, root: str | Path, *, progress: bool = False) -> Iterator[Finding]:
    """Compare a copy with the published set; a broken copy is a finding, not an exception.

    Args:
        name: one of `dataset_names`.
        root: the folder of the copy.
        progress: show a bar on stderr while images are opened.
    """
    return find_dataset(name).check(Path(root), progress)


# ----------------------------------------------------------------------- for readers: the folder


def need(package: str, extra: str, what: str) -> Any:
    """A package that only an extra brings, or an error that names the extra."""
    try:
        return import_module(package)
    except ImportError as error:
        raise ImportError(
            f"{what} needs the package {package} ({error}). Get it with: "
            f'pip install "rank-n-contrast[{extra}]"',
            name=package,
        ) from error


def have(package: str) -> bool:
    """Whether a package is installed, without the cost of importing it."""
    return find_spec(package) is not None


def first_existing(root: Path, places: Sequence[str]) -> Path | None:
    """The first of some places below a folder that is there."""
    return next((root / place for place in places if (root / place).exists()), None)


def not_found(title: str, root: Path, looked_for: str, advice: str) -> DataError:
    """The error for a folder that holds no copy, with what it does hold."""
    if not root.is_dir():
        what = "is a file, not a folder" if root.exists() else "does not exist"
        return DataError(f"{root} {what}. {advice}")
    inside = sorted(p.name + "/" * p.is_dir() for p in root.iterdir() if p.name[0] != ".")
    found = some(inside) if inside else "nothing"
    return DataError(
        f"{root} holds no copy of {title}: looked for {looked_for}; found {found}. {advice}"
    )


def check_choice(option: str, value: str, known: Sequence[str]) -> None:
    """Raise if an option is none of the known words."""
    if value not in known:
        raise DataError(f"{option} must be one of {', '.join(known)}; got {value!r}.")


# ------------------------------------------------------------------------ for readers: the table


def image_table(
    frame: pd.DataFrame,
    *,
    targets: Sequence[str],
    folder: Path,
    place: str,
    variant: str,
    split_column: str | None = "split",
    group_column: str | None = None,
    subgroup_columns: Sequence[str] = (),
    fractions: Sequence[float] | None = None,
    split_seed: int = 0,
    skipped: Sequence[Skipped] = (),
    image_size: int,
    skip_bad: bool,
    cache: str | Path | None,
    progress: bool,
) -> Table:
    """The table of rows that name an image file each; as `read_table`, for rows in memory.

    Args:
        frame: columns "path" and those named below; its index holds row numbers.
        targets: the columns to predict.
        folder: what paths are relative to.
        place: the file that the rows come from, for messages.
        variant: which rows of it these are; each variant has a cache of its own.
        split_column: the column of train, val, test; None makes a seeded split.
        group_column: rows that share a value stay in one part of a seeded split.
        subgroup_columns: further columns to keep.
        fractions: shares of a seeded split.
        split_seed: its seed.
        skipped: rows that are left out already.
        image_size: as for `read_table`; so are the following.
        skip_bad: leave out images that cannot be used, instead of raising.
        cache: folder for decoded images; None keeps them in memory.
        progress: show a bar while images are decoded.
    """
    use = Use(tuple(targets), split_column, group_column, tuple(subgroup_columns))
    y, _, _ = read_targets(frame, use.targets, place, drop_missing=False)
    names = [str(path) for path in frame["path"]]
    identity = f"{folder.resolve()}\n{Path(place).name}\n{variant}"
    rows = ImageRows(
        place, names, [folder / name for name in names], frame.index.tolist(), identity
    )
    if split_column is not None:
        fractions, split_seed = None, 0
    labels = make_labels(
        frame, y, use, names, tuple(skipped), place, fractions=fractions, seed=split_seed
    )
    pixels, bad = rows.load(image_size, {}, skip_bad, cache, progress)
    labels = labels.without(bad, rows.skipped(bad))
    if bad:
        check_filled(labels.split, f"{place} without the {len(bad)} bad images")
    return Table(pixels, kind="image", **vars(labels))


def published_rows(csv: Path) -> pd.DataFrame:
    """The columns age, path and split of a csv of Yang et al. 2021, every value checked."""
    frame, place = read_frame(csv), str(csv)
    for name in ("age", "path", "split"):
        column(frame, name, place)
    frame = frame[["age", "path", "split"]].copy()
    frame["age"] = read_targets(frame, ["age"], place, drop_missing=False)[0][:, 0]
    frame["split"] = check_split(frame["split"].tolist(), frame.index, place, needed=())
    frame["path"] = [str(path).strip() for path in frame["path"]]
    twice = frame["path"].duplicated(keep=False)
    if twice.any():
        raise DataError(
            f"{place} rows {some(frame.index[twice], 4)} name the same images, such as "
            f"{frame['path'][twice].iloc[0]!r}. Get the file of Yang et al. 2021 again."
        )
    return frame


def balanced_split(
    values: NDArray[Any],
    names: Sequence[str],
    *,
    most: int,
    seed: int,
    up_to: float = np.inf,
) -> NDArray[np.str_]:
    """A split whose val and test are alike and as even as can be over a whole-number target.

    Of the rows that share a value, a third goes to val and as many to test, but at most `most`;
    the rest trains. This is the rule behind the published splits of AgeDB and IMDB-WIKI; which
    rows it takes depends on the seed and the names, not on the order of the rows.

    Args:
        values: the target of every row.
        names: what identifies each row.
        most: largest number of rows per value in val, and in test.
        seed: another seed, another split.
        up_to: rows with a larger value all train.

    >>> split = balanced_split(np.array([7] * 7 + [8] * 2), list("abcdefghi"), most=2, seed=0)
    >>> sorted(split[:7].tolist()), split[7:].tolist()
    (['test', 'test', 'train', 'train', 'train', 'val', 'val'], ['train', 'train'])
    """
    rng, split = np.random.default_rng(seed), np.full(len(values), "train", dtype="<U5")
    by_name = np.argsort(np.asarray(names), kind="stable")
    for value in np.unique(values):
        rows = rng.permutation(by_name[values[by_name] == value])
        k = min(len(rows) // 3, most) if value <= up_to else 0
        split[rows[:k]], split[rows[k : 2 * k]] = "val", "test"
    return split


# ------------------------------------------------------------------------ for readers: the check


def collect(findings: Iterator[Finding]) -> Iterator[Finding]:
    """All findings; what makes it impossible to look further is the last of them."""
    try:
        yield from findings
    except (DataError, ImportError) as error:
        yield Finding("error", str(error))


def count_finding(what: str, found: int, published: int) -> Finding:
    """Whether a number is the published one.

    >>> count_finding("test images", 2140, 2140).text
    '2,140 test images, as published.'
    >>> count_finding("test images", 12, 2140)
    Finding(level='warning', text='12 test images; published: 2,140.')
    """
    if found == published:
        return Finding("ok", f"{found:,} {what}, as published.")
    return Finding("warning", f"{found:,} {what}; published: {published:,}.")


def range_finding(
    what: str, values: NDArray[np.float64], published: tuple[float, float], unit: str = ""
) -> Finding:
    """Whether all values lie in the published range.

    >>> range_finding("age", np.array([3.0, 186.0]), (0, 101))
    Finding(level='warning', text='age is 3 to 186; published: 0 to 101. 1 of 2 rows lie outside.')
    """
    low, high = published
    outside = int(((values < low) | (values > high)).sum())
    here = f"{what} is {values.min():.5g} to {values.max():.5g}{unit}"
    if not outside:
        return Finding("ok", f"{here}, within the published {low:g} to {high:g}.")
    return Finding(
        "warning",
        f"{here}; published: {low:g} to {high:g}. {outside:,} of {len(values):,} rows lie outside.",
    )


def image_findings(folder: Path, paths: Iterable[str], progress: bool) -> Iterator[Finding]:
    """Whether every image is there and can be read to its end."""
    names = list(paths)
    _, bad = load_images([folder / name for name in names], _LOOK, progress=progress)
    missing = [names[i] for i, reason in bad.items() if reason == "no such file"]
    broken = [f"{names[i]} ({why})" for i, why in bad.items() if why != "no such file"]
    if missing:
        yield Finding(
            "error",
            f"{len(missing):,} of {len(names):,} images are missing below {folder}: "
            f"{some(missing, 3)}. Unpack the archive again, or download it again if that is no "
            "help; skip_bad=True reads the rest.",
        )
    if broken:
        yield Finding(
            "error",
            f"{len(broken):,} of {len(names):,} images are broken: {some(broken, 3)}. Download "
            "them again; skip_bad=True reads the rest.",
        )
    if not bad:
        yield Finding("ok", f"All {len(names):,} images can be read.")
