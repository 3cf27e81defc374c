"""Find test rows whose targets are known in part. They form the split "test-part"."""

from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
from numpy.typing import NDArray

from rnc.data.errors import DataError
from rnc.data.splits import split_word


def tested_in_part(
    frame: pd.DataFrame, split_column: str | None, ends: NDArray[np.float64]
) -> NDArray[np.bool_]:
    """A mask (n,) of rows that the split column puts into test with a partly known target.

    Ends are (n, t, 2). Rows without any target are not included, since they cannot be scored.
    """
    if split_column is None:
        return np.zeros(len(frame), bool)
    words = frame[split_column].map(split_word).to_numpy()
    exact = (ends[..., 0] == ends[..., 1]).all(axis=1)
    found: NDArray[np.bool_] = (words == "test") & ~exact & np.isfinite(ends).any(axis=(1, 2))
    return found


def check_tested_groups(
    group: NDArray[Any] | None, tested: NDArray[np.bool_], learned: NDArray[np.bool_], place: str
) -> None:
    """Raise if a tested row shares its group with a row for training, validation or calibration.

    `tested` and `learned` are masks of these rows, (n,), like `group`.
    """
    if group is None or not tested.any():
        return
    shared = tested & np.isin(group, group[learned])
    if shared.any():
        raise DataError(
            f"{place}: {shared.sum()} test rows with targets known in part have a group that is "
            f"in train or val, too, as {group[int(shared.argmax())]!r}. Move each group into one "
            "split."
        )
