"""Coverage and width of the intervals of a run: overall, by target, by subgroup, by confidence.

All numbers are about the test rows. The ends of their intervals are columns of predictions.csv;
scores.json has the coverage at other confidences (see `rnc.run.coverage`).
"""

from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rnc.analyses.analysis import AnalysisOptions
from rnc.analyses.breakdown import bin_edges, subgroup_columns
from rnc.intervals import Intervals
from rnc.intervals.calibration import CHOSEN_AT
from rnc.metrics import Columns
from rnc.metrics.intervals import (
    IntervalGroup,
    codes_in,
    covers,
    interval_groups,
    interval_scores,
    interval_widths,
)
from rnc.run.folder import AnalysisResult, DoesNotApply, RunFolder
from rnc.run.groups import Groups

BAND_BINS = 20
"""Bins of the predictions for the band in the plot of predictions."""


def coverage(run: RunFolder, _: AnalysisOptions) -> AnalysisResult:
    """Coverage and width of the intervals of each target: by its value, subgroup and confidence."""
    found, period, content = run.predictions.intervals, run.fit.period, {}
    if found is None or not np.isfinite(found).all():
        raise DoesNotApply(
            f"{run.path} has no intervals: predictions.csv has no columns that end in _lower and "
            f"_upper. Where its data are at hand, `rnc resume {run.path}` writes them."
        )
    groups: dict[str, Groups] = {}
    with suppress(DoesNotApply):
        groups = subgroup_columns(run)
    scored = run.scores.get("intervals") or {}
    for i, target in enumerate(run.targets):
        own = Intervals(found.lower[:, [i]], found.upper[:, [i]])
        predicted, truth = run.predictions.predicted[:, [i]], run.truth[:, [i]]
        content[target] = {
            **target_intervals(own, predicted, truth, CHOSEN_AT, period),
            "subgroups": {
                name: subgroup_intervals(own, truth, one, period) for name, one in groups.items()
            },
            "kind": (scored.get("kinds") or {}).get(target, ""),
            "curve": (scored.get("curve") or {}).get(target),
        }
    return AnalysisResult({"confidence": CHOSEN_AT, "targets": content})


def target_intervals(
    found: Intervals,
    predicted: Columns,
    truth: Columns,
    confidence: float,
    period: float | None = None,
) -> dict[str, Any]:
    """Coverage and width of the intervals of one target: over all samples, and in target bins.

    "band" says how far the intervals go below and above predictions, in bins of the prediction.

    Args:
        found: the intervals, (n, 1).
        predicted: (n, 1).
        truth: (n, 1).
        confidence: the confidence of the intervals.
        period: the length of the circle, if the target is on one.

    >>> ends = Intervals(np.array([[1.0], [4.0]]), np.array([[3.0], [6.0]]))
    >>> result = target_intervals(ends, np.array([[2.0], [5.0]]), np.array([[2.0], [8.0]]), 0.5)
    >>> result["all"]["coverage"], result["all"]["width"], result["band"]["below"]
    (0.5, 2.0, [1.0, 1.0])
    """
    scores = interval_scores(*found, truth, confidence, period=period)
    held, widths = _held_and_widths(found, truth, period)
    (total,) = interval_groups(held, widths, np.zeros(len(held), np.int64), 1)
    edges = bin_edges(truth)
    groups = interval_groups(held, widths, codes_in(truth, edges), len(edges) - 1)
    parts = [_group(group) for group in groups]
    return {
        "all": _group(total) | {name: scores[name] for name in ("median_width", "interval_score")},
        "bins": {"edges": edges.tolist()} | {key: [one[key] for one in parts] for key in parts[0]},
        "band": _band(found, predicted[:, 0], widths, period),
    }


def subgroup_intervals(
    found: Intervals, truth: Columns, groups: Groups, period: float | None = None
) -> list[dict[str, Any]]:
    """Coverage and width for each group of a column that has samples; arrays are (n, 1)."""
    held, widths = _held_and_widths(found, truth, period)
    parts = interval_groups(held, widths, groups.codes, len(groups.names))
    return [
        {"value": name, **_group(part)}
        for name, part in zip(groups.names, parts, strict=True)
        if part.n
    ]


def _held_and_widths(
    found: Intervals, truth: Columns, period: float | None
) -> tuple[NDArray[np.bool_], Columns]:
    """Whether each target is within its interval, and the width of the interval: (n,) each."""
    held = covers(*found, truth, period=period)[:, 0]
    return held, interval_widths(*found, period=period)[:, 0]


def _group(group: IntervalGroup) -> dict[str, Any]:
    """The group as JSON types, with None for unknown numbers.

    Widths are rounded to 12 digits. Otherwise, a figure of equal widths would show rounding errors.
    """
    ends = group.coverage_ends
    low, high = group.width_ends or (None, None)
    width, low, high = (
        None if one is None else float(f"{one:.12g}") for one in (group.width, low, high)
    )
    return {
        "n": group.n,
        "coverage": group.coverage if group.n else None,
        "low": ends.low if group.n else None,
        "high": ends.high if group.n else None,
        "width": width if group.n else None,
        "width_low": low,
        "width_high": high,
    }


def _band(
    found: Intervals, predicted: NDArray[np.float64], widths: Columns, period: float | None
) -> dict[str, Any]:
    """How far intervals go below and above predictions: medians in bins of the prediction.

    The first bin is placed at the smallest prediction and the last bin at the largest.
    """
    below = predicted - found.lower[:, 0]
    below = below if period is None else np.where(widths >= period, period / 2, below % period)
    order = np.argsort(predicted, kind="stable")
    parts = np.array_split(order, min(BAND_BINS, len(order)))
    middles = [float(np.median(predicted[part])) for part in parts]
    middles[0], middles[-1] = float(predicted.min()), float(predicted.max())
    return {
        "predicted": middles,
        "below": [float(np.median(below[part])) for part in parts],
        "above": [float(np.median((widths - below)[part])) for part in parts],
    }
