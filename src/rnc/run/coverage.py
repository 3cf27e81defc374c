"""Coverage of the intervals of a model: the entry "intervals" of scores.json.

    {"rows": number of calibration rows, "reused": whether these are the validation rows,
     "cost": only if they are reused: what that costs, in words,
     "kinds": {target: plain, normalised, bins or quantiles},
     "coverage": {"0.9": {target: {"coverage": ..., "low": ..., "high": ..., "width": ...,
                                   "expected": ...}}},
     "curve": {target: {"confidence": [0.1, ...], "coverage": [...], "low": [...], "high": [...],
                        "width": [...]}}}

low and high are the ends of the exact 95 % interval of Clopper and Pearson; width is the mean.
If intervals keep their promise, the coverage is below "expected" in at most one of 200 cases.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rnc.intervals import CalibrationRows, Intervals, least_rows
from rnc.intervals.promise import promised_coverage
from rnc.metrics import Columns
from rnc.metrics.intervals import coverage_interval, covers, interval_widths

CONFIDENCES = (0.8, 0.9, 0.95)
CURVE = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.99)
"""The confidences of the curve, which include CONFIDENCES."""
_CURVE_KEYS = ("coverage", "low", "high", "width")
COST_OF_REUSE = (
    "calibrated on validation rows, which also chose epochs and penalties: coverage can be a "
    "little below the promise; --calibration-share avoids it"
)


def possible_confidences(rows: int, among: Sequence[float] = CONFIDENCES) -> tuple[float, ...]:
    """The confidences for which this number of calibration rows is enough."""
    return tuple(confidence for confidence in among if least_rows(confidence) <= rows)


def joined_intervals(parts: Sequence[Mapping[float, Intervals]]) -> dict[float, Intervals]:
    """Intervals of all rows by confidence, from those of consecutive pieces of the rows."""
    return {
        confidence: Intervals(
            np.concatenate([part[confidence].lower for part in parts]),
            np.concatenate([part[confidence].upper for part in parts]),
        )
        for confidence in parts[0]
    }


def coverage_scores(
    found: Mapping[float, Intervals], truth: Columns, rows: CalibrationRows, targets: Sequence[str]
) -> dict[str, Any]:
    """The entry of scores.json, from intervals by confidence and true targets (n, t)."""
    scores = {
        confidence: {
            target: _scores(
                intervals.lower[:, i], intervals.upper[:, i], truth[:, i], confidence, rows
            )
            for i, target in enumerate(targets)
        }
        for confidence, intervals in found.items()
    }
    return {
        "rows": len(rows),
        "reused": rows.is_reused,
        **({"cost": COST_OF_REUSE} if rows.is_reused else {}),
        "kinds": dict(zip(targets, rows.kinds, strict=True)),
        "coverage": {f"{c:g}": scores[c] for c in CONFIDENCES if c in scores},
        "curve": {
            target: {"confidence": list(scores)}
            | {key: [scores[c][target][key] for c in scores] for key in _CURVE_KEYS}
            for target in targets
        },
    }


def _scores(
    lower: Columns, upper: Columns, truth: Columns, confidence: float, rows: CalibrationRows
) -> dict[str, float]:
    covered = covers(lower, upper, truth, period=rows.period)[:, 0]
    low, high = coverage_interval(covered)
    return {
        "coverage": float(covered.mean()),
        "low": low,
        "high": high,
        "width": float(interval_widths(lower, upper, period=rows.period).mean()),
        "expected": promised_coverage(confidence, len(rows), len(truth)).low,
    }
