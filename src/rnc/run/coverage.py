"""How many targets the intervals of a model hold: the entry "intervals" of scores.json.

    {"rows": calibration rows, "reused": whether they are those of validation, which chose epochs,
     "cost": what that costs, in words,
     "kinds": {target: plain, normalised, bins or quantiles},
     "coverage": {"0.9": {target: {"coverage": ..., "low": ..., "high": ..., "width": ...,
                                   "expected": ...}}},
     "curve": {target: {"confidence": [0.1, ...], "coverage": [...], "low": [...], "high": [...],
                        "width": [...]}}}

low and high are the ends of the exact 95 % band of Clopper and Pearson, width is the mean.
Where intervals keep their promise, chance brings the coverage below "expected" in one of 200 cases.
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
"""The confidences of the curve, CONFIDENCES among them."""
_CURVE_KEYS = ("coverage", "low", "high", "width")
COST_OF_REUSE = (
    "calibrated on validation rows, which also chose epochs and penalties: coverage can be a "
    "little below the promise; --calibration-share avoids it"
)


def possible_confidences(rows: int, among: Sequence[float] = CONFIDENCES) -> tuple[float, ...]:
    """Those confidences that so many calibration rows are enough for."""
    return tuple(confidence for confidence in among if least_rows(confidence) <= rows)


def joined_intervals(parts: Sequence[Mapping[float, Intervals]]) -> dict[float, Intervals]:
    """Intervals of several pieces of the rows, as those of all."""
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
    """The entry of scores.json for intervals by confidence, of rows with these targets (n, t)."""
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
