"""What predictions rest on: the nearest training samples of each, and whether it has any near."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
from numpy.typing import NDArray

from rnc.intervals.difficulty import OUT_OF_RANGE_SHARE
from rnc.intervals.reference import Reference
from rnc.metrics import Columns

EXPLAIN_NEIGHBOURS = 5
"""Neighbours of a prediction, unless more or fewer are asked for."""

OUT_OF_RANGE = "out_of_range"
"""The column of the flag."""


@dataclass(frozen=True, eq=False)
class Explanation:
    """The k nearest training samples of n samples, near ones first.

    A sample whose features are not finite has none: rows of -1, names that are empty, NaN.
    """

    names: NDArray[np.str_]
    """(n, k) of the training samples, as predictions.csv would call them."""
    rows: NDArray[np.int64]
    """(n, k) in the data that the model was fitted on, from 0: for `RnCRegressor`, rows of X."""
    targets: Columns
    """(n, k, t), their true targets."""
    distances: Columns
    """(n, k) in feature space."""
    out_of_range: NDArray[np.bool_]
    """(n,) whether a sample is further from all of them than `limit`."""
    limit: float
    """The distance to the nearest other that 99 of 100 training samples stay within."""
    target_names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.names)

    @property
    def frame(self) -> pd.DataFrame:
        """The columns of `rnc predict --explain`: a row per sample."""
        return pd.DataFrame(self.columns())

    def columns(self, taken: Sequence[str] = ()) -> dict[str, NDArray[Any]]:
        """Columns (n,) by name; one whose name is taken ends with an underscore more."""
        columns: dict[str, NDArray[Any]] = {}

        def add(name: str, values: NDArray[Any]) -> None:
            while name in taken or name in columns:
                name += "_"
            columns[name] = values

        add(OUT_OF_RANGE, self.out_of_range)
        for i in range(self.names.shape[1]):
            add(f"neighbour_{i + 1}", self.names[:, i])
            add(f"neighbour_{i + 1}_distance", self.distances[:, i])
            for j, target in enumerate(self.target_names):
                add(f"neighbour_{i + 1}_{target}", self.targets[:, i, j])
        return columns


class Explainer:
    """Explains features by a reference; made once for all pieces of the data.

    Args:
        reference: the training samples to compare with.
        target_names: t names.
        k: neighbours of each sample.
    """

    def __init__(
        self, reference: Reference, target_names: tuple[str, ...], k: int = EXPLAIN_NEIGHBOURS
    ) -> None:
        if not 1 <= k <= len(reference):
            raise ValueError(
                f"An explanation needs 1 to {len(reference)} neighbours, as many training samples "
                f"as the model keeps; got {k}."
            )
        self.reference, self.target_names, self.k = reference, target_names, k
        self._known = reference.neighbours()
        self.limit = self._known.limit()

    def __call__(self, features: NDArray[np.float32]) -> Explanation:
        """The explanation of features (n, d)."""
        distances, places = self._known.nearest(features, self.k)
        known, lost = self.reference, places < 0
        return Explanation(
            names=np.where(lost, "", known.names[places]),
            rows=np.where(lost, -1, known.rows[places]),
            targets=np.where(lost[:, :, None], np.nan, known.targets[places]),
            distances=distances,
            out_of_range=self._known.exceeds_limit(distances[:, 0]),
            limit=self.limit,
            target_names=self.target_names,
        )

    def note(self, count: int, total: int) -> tuple[str, ...]:
        """What to tell about samples that are out of range; nothing if none is."""
        return out_of_range_note(count, total, len(self.reference))


def out_of_range_note(count: int, total: int, known: int) -> tuple[str, ...]:
    """What to tell if some of so many samples are out of range of so many training samples.

    >>> out_of_range_note(0, 500, 20000)
    ()
    """
    if count == 0:
        return ()
    most = 100 - 100 * OUT_OF_RANGE_SHARE
    return (
        f"Out of range: {count} of {total} samples (about 1 in {1 / OUT_OF_RANGE_SHARE:.0f} is "
        f"usual). They are further from all {known} training samples that the model keeps than "
        f"{most:.0f}% of these are from their nearest: trust these predictions less.",
    )
