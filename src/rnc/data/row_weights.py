"""Row weights: how much each row counts in training, in choosing the epoch and in scores."""

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
from numpy.typing import NDArray

from rnc.data.columns import finite_numbers
from rnc.data.errors import DataError, first_few

WEIGHT = "weight"
"""The name of the array of weights in an .npz file."""


def read_weights(frame: pd.DataFrame, name: str, place: str) -> NDArray[np.float64]:
    """The weights in a column, finite and at least 0: (n,)."""
    weights = finite_numbers(frame[name], place)
    gaps = np.isnan(weights)
    if gaps.any():
        raise DataError(
            f"{place}: {name} is missing in {gaps.sum()} of {len(weights)} rows (rows "
            f"{first_few(frame.index[gaps])}), so it is unknown what they weigh. Fill it in; 0 "
            "leaves a row out of the losses and scores."
        )
    negative = weights < 0
    if negative.any():
        first = int(negative.argmax())
        more = f" {negative.sum() - 1} more rows are like it." if negative.sum() > 1 else ""
        raise DataError(
            f"{place} row {frame.index[first]}: {name} is {weights[first]:g}, expected a weight of "
            f"0 or more.{more}"
        )
    return weights


def check_weights(
    weights: NDArray[np.float64], split: NDArray[np.str_], name: str, place: str
) -> None:
    """Raise if all rows of a split have weight 0: the split would have no loss or no score."""
    for part in dict.fromkeys(split.tolist()):
        chosen = weights[split == part]
        if not chosen.any():
            whole = "all rows" if len(chosen) == len(weights) else f"all {part} rows"
            raise DataError(
                f"{place}: {name} is zero in {whole} ({len(chosen)}), so that none of them counts. "
                "Give some of them a weight above 0, or leave the weights out."
            )
