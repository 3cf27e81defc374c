"""Splits into train, val and test: drawn with a seed, or given and checked.

A fourth split, calibration, is used neither for training nor for choosing a model. Prediction
intervals are made from its errors.

A seeded split is stratified on the target: rows are sorted by the target, cut into bins of equal
size, and every bin is divided by the same fractions. Several targets are sorted by the sum of their
ranks; a target that falls while the first one rises is reversed. The draw hashes the seed and the
name of each row. So the order of the rows does not matter if their names do not depend on it: file
names, for example.
"""

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
from numpy.typing import NDArray

from rnc.data.errors import DataError
from rnc.data.names import NumberedRows

SPLITS = ("train", "val", "test")
"""The splits that every run needs."""
CALIBRATION = "calibration"
PARTIAL = "partial"
"""Training rows whose targets are missing or known in part; docs/labels.md says what uses them."""
PARTIAL_TEST = "test-part"
"""Test rows whose targets are known in part. They are scored by `rnc.run.partial_scores`."""
EXACT_SPLITS = (*SPLITS, CALIBRATION)
"""The splits whose rows have exact targets, so that errors can be computed."""
ALL_SPLITS = (*EXACT_SPLITS, PARTIAL, PARTIAL_TEST)

FRACTIONS = (0.7, 0.1, 0.2)
"""The default shares of train, val and test in a seeded split."""

_SYNONYMS = {
    "train": ("train", "training"),
    "val": ("val", "valid", "validation", "dev", "development"),
    "test": ("test", "testing"),
    CALIBRATION: (CALIBRATION, "cal"),
}
_WORDS = {word: name for name, words in _SYNONYMS.items() for word in words}

_MOST_BINS = 50  # with finer bins, another seed would hardly change the split
_GROUP_BINS = 10


def make_split(
    y: NDArray[np.float64],
    names: Sequence[Any] | NDArray[Any] | NumberedRows | None = None,
    *,
    group: NDArray[Any] | None = None,
    fractions: Sequence[float] = FRACTIONS,
    seed: int = 0,
) -> NDArray[np.str_]:
    """One of "train", "val" and "test" for every row, balanced over the target: (n, t) -> (n,).

    Args:
        y: targets (n, t).
        names: an identifier of each row; by default its number.
        group: one value per row (a person, a patient, a camera): rows that share it stay together.
            Fractions and balance are then only as exact as whole groups allow.
        fractions: shares of train, val and test; a share of 0 leaves that split empty.
        seed: the seed of the draw.

    >>> split = make_split(np.arange(100.0)[:, None])
    >>> [int((split == name).sum()) for name in SPLITS]
    [70, 10, 20]
    """
    shares = _checked_fractions(fractions)
    return np.array(SPLITS)[share_out(y, names, shares, group=group, seed=seed)]


def share_out(
    y: NDArray[np.float64],
    names: Sequence[Any] | NDArray[Any] | NumberedRows | None,
    shares: NDArray[np.float64],
    *,
    group: NDArray[Any] | None = None,
    seed: int = 0,
) -> NDArray[np.int64]:
    """The part of every row, 0 to k - 1, for k shares that add up to 1: (n, t), (k,) -> (n,).

    The other arguments are those of `make_split`.
    """
    if not isinstance(seed, int | np.integer):
        raise DataError(f"The seed of a split must be a whole number; got {seed!r}.")
    draws = _draws(names if names is not None else range(len(y)), seed)
    groups, group_of = np.arange(len(y)), np.arange(0)
    if group is not None:
        groups, group_of = np.unique(np.asarray(group).astype(str), return_inverse=True)
    needed, found = int((shares > 0).sum()), len(groups)
    if found < needed:
        unit = "rows" if group is None else "groups"
        raise DataError(
            f"A split into {needed} parts needs at least {needed} {unit}; got {found}. Add data, "
            "or give a split column."
        )
    order = np.lexsort((draws, _ordering(y)))
    if group is None:
        return _by_row(order, draws, shares)
    return _by_group(order, group_of, _draws(groups, seed), shares)


def take_calibration(
    split: NDArray[np.str_],
    y: NDArray[np.float64],
    names: Sequence[Any] | NDArray[Any] | NumberedRows,
    *,
    share: float,
    group: NDArray[Any] | None = None,
    seed: int = 0,
) -> NDArray[np.str_]:
    """The split with a share of its training rows moved to "calibration", drawn by `make_split`.

    Args:
        split: the split of every row, (n,).
        y: targets (n, t).
        names: an identifier of each row.
        share: the share of the training rows; 0 leaves the split as it is.
        group: rows that share a value stay together.
        seed: the seed of the draw.

    >>> split, y = np.repeat(["train", "val"], [50, 10]), np.arange(60.0)[:, None]
    >>> split = take_calibration(split, y, range(60), share=0.2)
    >>> [int((split == name).sum()) for name in ("train", "val", "calibration")]
    [40, 10, 10]
    """
    if not 0 <= share < 1:
        raise DataError(
            "calibration_share must be a share of the training rows, from 0 to below 1, as 0.2; "
            f"got {share!r}."
        )
    if share == 0:
        return split
    if (split == CALIBRATION).any():
        raise DataError(
            f"calibration_share={share:g} takes rows from training, and the split column has "
            f"{(split == CALIBRATION).sum()} calibration rows already. Use one of the two."
        )
    rows = np.flatnonzero(split == "train")
    parts = None if group is None else [f"calibration {value}" for value in group[rows]]
    units = len(rows) if parts is None else len(set(parts))
    if units < 2 or len(rows) * (1 - share) < 2:
        what = "rows" if parts is None else "groups"
        raise DataError(
            f"calibration_share={share:g} leaves nothing to train on: there are {len(rows)} "
            f"training rows{'' if parts is None else f' in {units} {what}'}. Give a smaller share, "
            "or more data."
        )
    drawn = make_split(
        y[rows],
        [f"calibration {name}" for name in np.asarray(names)[rows]],
        group=None if parts is None else np.array(parts),
        fractions=(1 - share, share, 0),
        seed=seed,
    )
    taken = split.astype(f"<U{len(CALIBRATION)}")
    taken[rows[drawn == "val"]] = CALIBRATION
    return taken


def _by_row(
    order: NDArray[Any], draws: NDArray[np.uint64], shares: NDArray[np.float64]
) -> NDArray[np.int64]:
    """Share out bins of rows with similar targets, each in a random order."""
    n = len(order)
    bins = np.empty(n, int)
    # The largest number of bins that each get a row of the smallest part.
    count = int(np.clip(n * shares[shares > 0].min(), 1, _MOST_BINS))
    bins[order] = np.arange(n) * count // n
    counts = _counts(n, shares)
    labels = np.repeat(np.arange(len(shares)), counts)
    # The labels of each part lie evenly along 0..1, so every bin gets its share of each part.
    along = np.concatenate([(np.arange(k) + 0.5) / k for k in counts if k])
    part = np.empty(n, int)
    part[np.lexsort((draws, bins))] = labels[np.argsort(along, kind="stable")]
    return part


def _by_group(
    order: NDArray[Any],
    group_of: NDArray[Any],
    draws: NDArray[np.uint64],
    shares: NDArray[np.float64],
) -> NDArray[np.int64]:
    """Give each group, large ones first, to the part whose bins need it most."""
    n, n_groups = len(order), len(draws)
    bins = np.empty(n, int)
    bins[order] = np.arange(n) * _GROUP_BINS // n
    held = np.zeros((n_groups, _GROUP_BINS))
    np.add.at(held, (group_of, bins), 1)
    used = np.flatnonzero(shares)
    due = shares[used, None] * held.sum(axis=0)
    given = np.zeros_like(due)
    # Sizes within a factor of two count as equal, so that the seed decides among them.
    size = np.floor(np.log2(held.sum(axis=1)))
    owner = np.empty(n_groups, int)
    for done, g in enumerate(np.lexsort((draws, -size))):
        excess = ((2 * (given - due) + held[g]) * held[g]).sum(axis=1) / shares[used]
        empty = given.sum(axis=1) == 0
        if n_groups - done <= empty.sum():  # only as many groups left as empty parts
            excess[~empty] = np.inf
        choice = int(excess.argmin())
        given[choice] += held[g]
        owner[g] = used[choice]
    part: NDArray[np.int64] = owner[group_of]
    return part


def _ordering(y: NDArray[np.float64]) -> NDArray[np.float64]:
    """One number per row by which rows are sorted: (n, t) -> (n,)."""
    ranks = 2 * pd.DataFrame(y).rank().to_numpy() - (len(y) + 1)  # whole numbers: sums are exact
    is_reversed = ranks.T @ ranks[:, 0] < 0
    total: NDArray[np.float64] = np.where(is_reversed, -ranks, ranks).sum(axis=1)
    return total


def _draws(names: Sequence[Any] | NDArray[Any] | NumberedRows, seed: int) -> NDArray[np.uint64]:
    """A pseudorandom number for every name, which depends only on the name and the seed."""
    salt = f"{seed}:"
    text = ((salt + str(name)).encode() for name in names)
    drawn = (int.from_bytes(blake2b(t, digest_size=8).digest()) for t in text)
    return np.fromiter(drawn, dtype=np.uint64, count=len(names))


def _counts(n: int, shares: NDArray[np.float64]) -> NDArray[np.int64]:
    """The number of rows of each part, by its share of n; at least one unless the share is 0."""
    counts = np.maximum(np.floor(n * shares), shares > 0).astype(np.int64)
    while counts.sum() < n:
        counts[np.argmax(n * shares - counts)] += 1
    while counts.sum() > n:
        counts[np.argmax(counts)] -= 1
    return counts


def _checked_fractions(fractions: Sequence[float]) -> NDArray[np.float64]:
    shares = np.array(fractions, dtype=float)
    if shares.shape != (3,) or not (shares >= 0).all() or shares[0] == 0 or shares.sum() <= 0:
        raise DataError(
            "fractions must be three numbers >= 0 for train, val and test, with some for train; "
            f"got {fractions}."
        )
    if abs(shares.sum() - 1) > 1e-6:
        raise DataError(f"fractions must add up to 1; got {fractions}, which is {shares.sum():g}.")
    return np.asarray(shares / shares.sum())


def check_shares(fractions: Sequence[float] | None) -> None:
    """Raise if a share is 0: a run on a file needs rows in train, val and test."""
    if fractions is not None and 0 in fractions:
        raise DataError(
            f"fractions must be above 0 for train, val and test: a run needs rows of each; got "
            f"{tuple(fractions)}. From Python, table_from_arrays takes a share of 0."
        )


def check_split(
    values: Sequence[Any] | NDArray[Any],
    rows: Sequence[Any] | NDArray[Any],
    place: str,
    *,
    column: str = "split",
    needed: Sequence[str] = SPLITS,
) -> NDArray[np.str_]:
    """A given split in the words of EXACT_SPLITS. Raises for other values.

    The values are train, val, test, calibration or a synonym (training; valid, validation, dev,
    development; testing; cal). Raises, too, if a needed split has no rows. Row numbers `rows`, the
    file `place` and the name `column` are for messages.

    >>> check_split(["Train", "dev", "test"], [2, 3, 4], "t.csv").tolist()
    ['train', 'val', 'test']
    """
    for row, value in zip(rows, values, strict=True):
        if split_word(value) is None:
            raise DataError(
                f"{place} row {row}: {column} is {value!r}, expected one of {', '.join(_WORDS)}."
            )
    split = np.array([split_word(value) for value in values], dtype=str)
    check_filled(split, place, column=column, needed=needed)
    return split


def split_word(value: Any) -> str | None:
    """train, val, test or calibration for a word that means one of them; else None."""
    return _WORDS.get(str(value).strip().lower())


def holds_splits(values: pd.Series) -> bool:
    """Whether a column says train, val, test or calibration in every row."""
    return all(split_word(value) for value in values.unique())


def check_filled(
    split: NDArray[np.str_], place: str, *, column: str = "split", needed: Sequence[str] = SPLITS
) -> None:
    """Raise if a needed split has no rows."""
    empty = [name for name in needed if not (split == name).any()]
    if empty:
        counts = ", ".join(f"{(split == name).sum()} {name}" for name in SPLITS)
        raise DataError(
            f"{place}: {column} has no rows for {' and '.join(empty)} (it has {counts}). Mark some "
            f"rows as {' and '.join(empty)}, or draw a seeded split with --split-column none."
        )


def check_groups(
    split: NDArray[np.str_],
    group: NDArray[Any],
    rows: Sequence[Any] | NDArray[Any],
    place: str,
    *,
    column: str = "group",
) -> None:
    """Raise if rows of one group are in several splits, with the first such groups and rows."""
    frame = pd.DataFrame({"group": np.asarray(group).astype(str), "row": list(rows)})
    frame["split"] = pd.Categorical(split, ALL_SPLITS)
    first = frame.drop_duplicates(["group", "split"]).sort_values(["group", "split"])
    first["where"] = [f"row {one.row} {one.split}" for one in first.itertuples()]
    crossing = first[first.duplicated("group", keep=False)].groupby("group")["where"].agg(", ".join)
    if crossing.empty:
        return
    examples = "; ".join(f"{name} ({where})" for name, where in crossing.head(3).items())
    raise DataError(
        f"{place}: {len(crossing)} of {frame['group'].nunique()} values of {column} are in more "
        f"than one split: {examples}{'; ...' if len(crossing) > 3 else ''}. Move each into one "
        "split, or draw a seeded split with --split-column none."
    )
