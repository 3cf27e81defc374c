"""Cross-validation: divide rows into folds, each of which is the test split once.

A fold is written as "2/5", the second of five. Its rows are the test split, and an eighth of all
other rows is the validation split. So five folds have the shares of a default split, 0.7, 0.1 and
0.2. Folds are stratified on the target and keep groups together, like the splits of
`rnc.data.splits`.
"""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rnc.data.errors import DataError
from rnc.data.names import NumberedRows
from rnc.data.splits import FRACTIONS, make_split, share_out

FEWEST_FOLDS = 2
VALIDATION_SHARE = FRACTIONS[1] / (FRACTIONS[0] + FRACTIONS[1])
"""The share of the rows outside a fold that is its validation split."""


def parse_fold(fold: str) -> tuple[int, int]:
    """The number of a fold, counted from 1, and the number of folds.

    >>> parse_fold("2/5")
    (2, 5)
    """
    match = re.fullmatch(r"\s*(\d{1,6})\s*/\s*(\d{1,6})\s*", str(fold))
    number, count = (int(part) for part in match.groups()) if match else (0, 0)
    if not 1 <= number <= count or count < FEWEST_FOLDS:
        raise DataError(
            f"fold must be K/N, fold K of N folds, such as 2/5, with N >= {FEWEST_FOLDS}; got "
            f"{fold!r}."
        )
    return number, count


def all_folds(count: int) -> list[str]:
    """The names of a number of folds.

    >>> all_folds(3)
    ['1/3', '2/3', '3/3']
    """
    if count < FEWEST_FOLDS:
        raise DataError(f"Cross-validation needs {FEWEST_FOLDS} folds or more; got {count}.")
    return [f"{number}/{count}" for number in range(1, count + 1)]


def fold_split(
    fold: str,
    y: NDArray[np.float64],
    names: Sequence[Any] | NDArray[Any] | NumberedRows,
    *,
    group: NDArray[Any] | None = None,
    seed: int = 0,
) -> NDArray[np.str_]:
    """The split for one fold: "test" for its rows, "train" or "val" for all others, (n,).

    With the same seed, every row is in exactly one of the N folds.

    Args:
        fold: such as "2/5".
        y: targets (n, t).
        names: an identifier of each row.
        group: rows that share a value stay in one fold, and in one split.
        seed: the seed of the draw.

    >>> split = fold_split("1/5", np.arange(100.0)[:, None], range(100))
    >>> [int((split == name).sum()) for name in ("train", "val", "test")]
    [70, 10, 20]
    """
    number, count = parse_fold(fold)
    unit, found = ("rows", len(y)) if group is None else ("groups", len(np.unique(group)))
    if found < max(count, 3):
        raise DataError(
            f"{count} folds need at least {max(count, 3)} {unit}; got {found}. Ask for fewer "
            "folds, or add data."
        )
    of_row = share_out(y, names, np.full(count, 1 / count), group=group, seed=seed)
    rest = np.flatnonzero(of_row != number - 1)
    if group is not None and len(np.unique(group[rest])) < 2:
        raise DataError(
            f"Fold {fold} leaves 1 of {found} groups for train and val, which need one each. Ask "
            "for more folds, or add data."
        )
    split = np.full(len(y), "test", dtype="<U5")
    split[rest] = make_split(
        y[rest],
        [f"fold {name}" for name in np.asarray(names)[rest]],
        group=None if group is None else np.array([f"fold {name}" for name in group[rest]]),
        fractions=(1 - VALIDATION_SHARE, VALIDATION_SHARE, 0),
        seed=seed,
    )
    return split
