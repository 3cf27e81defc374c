"""Parts of a table: smaller training sets, training sets with gaps, and balanced test sets.

Rows that are left out stay in the arrays, which may be mapped from disk, but belong to no split.
"""

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rnc.data.table import Table
from rnc.experiments.published import BIMODAL, TRIMODAL
from rnc.run.folder import DoesNotApply

Ranges = tuple[tuple[float, float], ...]

UNSEEN_MODES = ((BIMODAL, 2, 0.225), (TRIMODAL, 3, 1 / 3))
"""Training sets with unseen targets: name, number of ranges, and share of the gaps."""

TEST_BINS = 10
LEAST_PER_BIN = 3
_DENSITY_BINS = 50


def only(table: Table, kept: NDArray[np.bool_]) -> Table:
    """The table with only the kept rows in splits; kept is (n,)."""
    split = table.split.copy()
    split[~kept] = ""
    return dataclasses.replace(table, split=split)


def with_size(table: Table, n: int, seed: int) -> Table:
    """The table with n random training rows. For a seed, smaller sets are part of larger ones."""
    rows = table.rows("train")
    kept = np.ones(len(table), bool)
    kept[np.random.default_rng(seed).permutation(rows)[n:]] = False
    return only(table, kept)


def with_share(table: Table, share: float, seed: int) -> Table:
    """The table with a share of its training rows, drawn by `with_size`."""
    return with_size(table, max(1, round(share * len(table.rows("train")))), seed)


def modes(table: Table, count: int, unseen: float) -> Ranges:
    """Equal ranges of the first target with equal gaps between them, from end to end.

    The ends are the 1st and the 99th percentile of the training targets.

    Args:
        table: data with splits.
        count: number of ranges.
        unseen: share of the distance between the ends that the gaps take.
    """
    low, high = np.quantile(table.y[table.rows("train"), 0], (0.01, 0.99))
    width = (1 - unseen) / count
    gap = unseen / (count - 1)
    starts = [i * (width + gap) for i in range(count)]
    return tuple(
        (float(low + (high - low) * start), float(low + (high - low) * (start + width)))
        for start in starts
    )


def inside(values: NDArray[Any], ranges: Ranges) -> NDArray[np.bool_]:
    """Whether each value lies in one of the ranges, ends included.

    >>> inside(np.array([1.0, 2.5, 9.0]), ((0, 2), (8, 9))).tolist()
    [True, False, True]
    """
    found = np.zeros(len(values), bool)
    for low, high in ranges:
        found |= (values >= low) & (values <= high)
    return found


def with_modes(table: Table, ranges: Ranges, seed: int) -> Table:
    """Training rows drawn from a Gaussian in each range, and a test set balanced over the target.

    Half of the training rows inside the ranges are kept. They are drawn so that targets follow
    Gaussians, with the middle of each range as the mean and a quarter of its width as the standard
    deviation. Validation rows outside the ranges are left out, since unseen targets must not affect
    training. Of the test rows, the same number is kept in each of ten bins, from the start of the
    first range to the end of the last.
    """
    rng = np.random.default_rng(seed)
    target = table.y[:, 0]
    kept = np.zeros(len(table), bool)
    seen = inside(target, ranges)
    train = table.rows("train")
    train = train[seen[train]]
    weights = _gaussians(target[train], ranges) / _density(target[train])
    drawn = rng.choice(len(train), len(train) // 2, replace=False, p=weights / weights.sum())
    kept[train[drawn]] = True
    kept[table.rows("val")] = seen[table.rows("val")]
    kept[_even(target, table.rows("test"), (ranges[0][0], ranges[-1][1]), rng)] = True
    return only(table, kept)


def _gaussians(values: NDArray[Any], ranges: Ranges) -> NDArray[Any]:
    total = np.zeros(len(values))
    for low, high in ranges:
        total += np.exp(-0.5 * ((values - (low + high) / 2) / ((high - low) / 4)) ** 2)
    return total


def _density(values: NDArray[Any]) -> NDArray[Any]:
    """The number of values near each value, (n,), at least 1."""
    counts, edges = np.histogram(values, _DENSITY_BINS)
    places = (np.searchsorted(edges, values, side="right") - 1).clip(0, _DENSITY_BINS - 1)
    around: NDArray[Any] = np.maximum(counts[places], 1)
    return around


def _even(
    target: NDArray[Any],
    rows: NDArray[np.int64],
    span: tuple[float, float],
    rng: np.random.Generator,
) -> NDArray[np.int64]:
    """Random rows, the same number in every bin of the span."""
    edges = np.linspace(*span, TEST_BINS + 1)
    rows = rng.permutation(rows[inside(target[rows], (span,))])
    places = (np.searchsorted(edges, target[rows], side="right") - 1).clip(0, TEST_BINS - 1)
    fewest = int(np.bincount(places, minlength=TEST_BINS).min())
    if fewest < LEAST_PER_BIN:
        i = int(np.bincount(places, minlength=TEST_BINS).argmin())
        raise DoesNotApply(
            f"unseen needs at least {LEAST_PER_BIN} test rows in each of {TEST_BINS} bins of the "
            f"target from {span[0]:g} to {span[1]:g}; the bin from {edges[i]:g} to "
            f"{edges[i + 1]:g} has {fewest}. Mark more rows as test."
        )
    return np.concatenate([rows[places == i][:fewest] for i in range(TEST_BINS)])
