"""The range of coverage that chance allows if the promised confidence holds."""

import numpy as np
from numpy.typing import NDArray

from rnc.intervals.conformal import least_rows, promised_rank
from rnc.metrics.bootstrap import Interval


def promised_coverage(
    confidence: float, calibration: int, rows: int, *, level: float = 0.99
) -> Interval:
    """The range in which the coverage of exchangeable rows lies with probability `level`.

    Margins come from m calibration rows, and coverage is counted on other rows. Both are random:
    the number of covered rows is beta-binomial, exactly so if scores do not tie. A coverage below
    the range says that these rows are not like the calibration rows.

    Args:
        confidence: the promised share of covered rows.
        calibration: how many calibration rows the margin comes from.
        rows: how many rows the coverage is counted on.
        level: the probability that the coverage is in the range.

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
    """The probabilities that none, one, two ... of the rows are covered: (rows + 1,)."""
    from scipy import stats  # type: ignore[import-untyped]  # slow, and help texts need none

    rank = promised_rank(calibration, confidence)
    # scipy's own quantiles would step through the numbers one by one: seconds for a million rows.
    chances = stats.betabinom(rows, rank, calibration + 1 - rank).logpmf(np.arange(rows + 1))
    return np.asarray(np.exp(chances))
