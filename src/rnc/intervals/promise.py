"""What coverage chance allows where the promise holds."""

import numpy as np
from numpy.typing import NDArray

from rnc.intervals.conformal import least_rows, promised_rank
from rnc.metrics.bootstrap import Interval


def promised_coverage(
    confidence: float, calibration: int, rows: int, *, level: float = 0.99
) -> Interval:
    """Between which ends the coverage of exchangeable rows lies, with a probability of `level`.

    Margins come from m calibration rows, and coverage is counted on other rows. Both are chance:
    the number of rows covered is beta-binomial, exactly where scores do not tie. A coverage below
    the lower end says that these rows are not like those of the calibration.

    Args:
        confidence: what was promised.
        calibration: how many rows the margin is from.
        rows: how many are counted.
        level: how often the coverage is to be within the ends.

    >>> low, high = promised_coverage(0.9, 200, 100)
    >>> round(low, 2), round(high, 2)
    (0.79, 0.98)
    """
    if calibration < least_rows(confidence) or rows < 1 or not 0 < level < 1:
        raise ValueError(
            f"promised_coverage needs {least_rows(confidence)} or more calibration rows, 1 or more "
            f"rows, and a level between 0 and 1; got {calibration}, {rows} and {level}."
        )
    reached = np.cumsum(covered_chances(confidence, calibration, rows))
    tail = (1 - level) / 2
    low, high = np.searchsorted(reached, [tail, 1 - tail]).clip(max=rows)
    return Interval(float(low / rows), float(high / rows))


def covered_chances(confidence: float, calibration: int, rows: int) -> NDArray[np.float64]:
    """The chances that none, one, two ... of the rows are covered: (rows + 1,)."""
    from scipy import stats  # type: ignore[import-untyped]  # slow, and help texts need none

    rank = promised_rank(calibration, confidence)
    # The quantiles of scipy go through the numbers one by one: seconds for a million rows.
    chances = stats.betabinom(rows, rank, calibration + 1 - rank).logpmf(np.arange(rows + 1))
    return np.asarray(np.exp(chances))
