"""Explanations of predictions: the nearest training samples of each, and whether any is near."""

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
"""Default number of neighbours of a prediction."""

OUT_OF_RANGE = "out_of_range"
"""The name of the column that flags samples far from all training samples."""


@dataclass(frozen=True, eq=False)
class Explanation:
    """The k nearest training samples of n samples, near ones first.

    A sample whose features are not finite has none: its rows are -1, its names empty, the rest NaN.
    """

    names: NDArray[np.str_]
    """(n, k) names of the training samples, as predictions.csv would call them."""
    rows: NDArray[np.int64]
    """(n, k) their rows in the data of the fit, from 0: for `RnCRegressor`, rows of X."""
    targets: Columns
    """(n, k, t) their true targets."""
    distances: Columns
    """(n, k) in feature space."""
    out_of_range: NDArray[np.bool_]
    """(n,) whether a sample is further from all training samples than `limit`."""
    limit: float
    """99 of 100 training samples are at most this far from their nearest other one."""
    target_names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.names)

    @property
    def frame(self) -> pd.DataFrame:
        """The columns of `rnc predict --explain`: a row per sample."""
        return pd.DataFrame(self.columns())

    def columns(self, taken: Sequence[str] = ()) -> dict[str, NDArray[Any]]:
        """Columns (n,) by name; underscores are added to names that are in `taken`."""
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
    """Explains features by a reference. Make one and use it for all pieces of the data.

    Args:
        reference: the training samples to compare with.
        target_names: t names.
        k: number of neighbours of each sample.
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
        """The note for the user about samples that are out of range; empty if there are none."""
        return out_of_range_note(count, total, len(self.reference))


def out_of_range_note(count: int, total: int, known: int) -> tuple[str, ...]:
    """The note for the user if `count` of `total` samples are out of range of `known` ones.

    >>> out_of_range_note(0, 500, 20000)
    ()
    """
    if count == 0:
        return ()
    most = 100 - 100 * OUT_OF_RANGE_SHARE
    return (
        f"Out of range: {count} of {total} samples (about 1 in {1 / OUT_OF_RANGE_SHARE:.0f} is "
        f"usual). They are far from all {known} training samples that the model keeps: {most:.0f}% "
        "of those have a closer neighbour. Trust these predictions less.",
    )
