"""The section about intervals of predictions: whether they keep their promise, and their width."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from rnc.metrics import Columns
from rnc.metrics.bootstrap import Interval
from rnc.report import figures as draw
from rnc.report import page
from rnc.report.figures import ErrorGroup, Figure
from rnc.report.runs import ReportRun, float_list
from rnc.report.samples import Pictures
from rnc.report.sections.numbers import union
from rnc.run.folder import AnalysisResult
from rnc.run.partial import PartialRun

_CURVE = ("confidence", "coverage", "low", "high")


class HeldShares(NamedTuple):
    """Shares of samples (b,) that are within their intervals, and widths; NaN if not known."""

    n: Columns
    coverage: Columns
    low: Columns
    high: Columns
    width: Columns
    width_low: Columns
    width_high: Columns


class TargetIntervals(NamedTuple):
    """The intervals of one target of a run."""

    confidence: float
    kind: str
    """The kind of the intervals, such as "plain"; empty if it is not known."""
    total: HeldShares
    """The shares and widths of all samples, (1,)."""
    edges: Columns
    """The edges of bins of the target, (b + 1,)."""
    bins: HeldShares
    band: dict[str, Columns]
    """predicted, below and above: how far intervals go beyond predictions, (k,) each."""
    subgroups: dict[str, list[ErrorGroup]]
    """Coverage of the groups of each column."""
    confidences: Columns
    """The confidences of the curve, (c,); empty if there is no curve."""
    curve: Columns
    """The coverage at these confidences, and the ends of its interval: (3, c)."""


def read_coverage(result: AnalysisResult, run: PartialRun) -> dict[str, TargetIntervals]:
    """analyses/coverage.json."""
    confidence = float(result.content["confidence"])
    return {
        target: _read_target(found, confidence)
        for target, found in result.content["targets"].items()
    }


def _read_target(found: Mapping[str, Any], confidence: float) -> TargetIntervals:
    edges = float_list(found["bins"]["edges"])
    band = {key: float_list(found["band"][key]) for key in ("predicted", "below", "above")}
    bins = _held(found["bins"], len(edges) - 1)
    if len({len(part) for part in band.values()}) > 1:
        raise ValueError("needed predicted, below and above of one length for the band.")
    return TargetIntervals(
        confidence,
        str(found.get("kind") or ""),
        _held({key: [value] for key, value in found["all"].items()}, 1),
        edges,
        bins,
        band,
        {
            column: [_group(group) for group in groups]
            for column, groups in found["subgroups"].items()
        },
        *_read_curve(found.get("curve") or {key: [] for key in _CURVE}),
    )


def _read_curve(curve: Mapping[str, Any]) -> tuple[Columns, Columns]:
    confidences, *parts = (float_list(curve[key]) for key in _CURVE)
    if any(len(part) != len(confidences) for part in parts):
        raise ValueError(f"needed {len(confidences)} values of the curve each.")
    return confidences, np.array(parts)


def _held(parts: Mapping[str, Any], count: int) -> HeldShares:
    columns = [float_list(parts[key] if count else []) for key in HeldShares._fields]
    for column in columns:
        if len(column) != count:
            raise ValueError(f"needed {count} values each; got {len(column)}.")
    return HeldShares(*columns)


def _group(group: Mapping[str, Any]) -> ErrorGroup:
    share, low, high = (float(group[key]) for key in ("coverage", "low", "high"))
    return ErrorGroup(str(group["value"]), int(group["n"]), share, low, high)


def draw_intervals(runs: Sequence[ReportRun], pictures: Pictures, figures: list[Figure]) -> str:
    """Coverage against confidence, width along the target, and coverage of the subgroups."""
    slots = []
    for target in union(run.targets for run in runs):
        found = [(run, of_run) for run in runs if (of_run := intervals_of(run, target))]
        if not found:
            continue
        note = " ".join(_sentence(run, of_run, len(runs) > 1) for run, of_run in found)
        if any(len(of_run.confidences) for _, of_run in found):
            title = f"Coverage of {target}"
            slots.append(page.slot(figures, curve_figure(found), title, note=note, file=title))
            note = ""
        title = f"Width of intervals by {target}"
        slots.append(page.slot(figures, width_figure(target, found), title, note=note, file=title))
        slots += _subgroup_slots(target, found, figures, several=_are_several(runs))
    about = (
        "An interval is a range in which the true value is expected. Coverage is the share of test "
        "samples whose true value is inside. The dashed line is the promised coverage. Bands are "
        "95 % intervals. If coverage is below the line for some values or groups, intervals are "
        "too narrow there, and too wide elsewhere."
    )
    return page.section("Intervals", about, page.grid(slots))


def _are_several(runs: Sequence[ReportRun]) -> bool:
    return len(union(run.targets for run in runs)) > 1


def intervals_of(run: ReportRun, target: str) -> TargetIntervals | None:
    """The intervals of a target, if the run has some."""
    of_run: dict[str, TargetIntervals] = run.analyses.get("coverage", {})
    return of_run.get(target)


def coverage_words(found: TargetIntervals) -> tuple[str, str]:
    """The coverage of all test samples as text, and a text with its interval and the mean width.

    >>> one = HeldShares(*(np.array([x]) for x in (50.0, 0.9, 0.78, 0.97, 12.5, 12.0, 13.0)))
    >>> none = HeldShares(*[np.empty(0)] * 7)
    >>> coverage_words(TargetIntervals(0.9, "", one, none.n, none, {}, {}, none.n, none))
    ('90 %', '95 % interval 78 to 97 %; mean width 12.50')
    """
    total = found.total
    ends = Interval(100 * total.low[0], 100 * total.high[0])
    interval = f"95 % interval {ends.low:.0f} to {ends.high:.0f} %"
    return _percent(total.coverage[0]), f"{interval}; mean width {page.number(total.width[0])}"


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"


def _sentence(run: ReportRun, found: TargetIntervals, several: bool) -> str:
    share, beside = coverage_words(found)
    who = f"{run.name}: intervals" if several else "Intervals"
    kind = f" ({found.kind})" if found.kind else ""
    return f"{who} of {_percent(found.confidence)}{kind} hold {share} ({beside})."


# ----------------------------------------------------------------------------------- figures


def curve_figure(found: Sequence[tuple[ReportRun, TargetIntervals]]) -> Figure:
    """Coverage against confidence, with a dashed line on which both are equal."""
    promised = np.linspace(0.0, 1.0, 11)
    marks = [draw.line(promised, promised, "promised", color="soft", dash=1)]
    for run, of_run in found:
        if len(of_run.confidences):
            marks += _with_band(of_run.confidences, *of_run.curve, run=run)
    panel = {"title": "share of test samples covered", "marks": marks, "zero": True, "height": 2}
    return draw.curves("confidence", [panel])


def width_figure(target: str, found: Sequence[tuple[ReportRun, TargetIntervals]]) -> Figure:
    """Mean width and coverage by the value of a target."""
    widths, shares = [], []
    for run, of_run in found:
        middles, bins = (of_run.edges[:-1] + of_run.edges[1:]) / 2, of_run.bins
        widths += _with_band(middles, bins.width, bins.width_low, bins.width_high, run=run)
        shares += _with_band(middles, bins.coverage, bins.low, bins.high, run=run)
        promised = np.full(len(of_run.edges), of_run.confidence)
        shares.append(draw.line(of_run.edges, promised, "promised", color="soft", dash=1))
    panels = [
        {"title": "mean width", "marks": widths, "zero": True, "height": 1.1},
        {"title": "share covered", "marks": shares, "zero": True, "height": 0.8},
    ]
    return draw.curves(draw.short(target), panels)


def _with_band(
    x: Columns, values: Columns, low: Columns, high: Columns, *, run: ReportRun
) -> list[Figure]:
    """A line, with a band of its intervals where they are known."""
    line = draw.line(x, values, run.name, color=run.color, dots=True)
    known = np.isfinite(low) & np.isfinite(high)
    if not known.any():
        return [line]
    ends = zip(("x", "low", "high"), (x, low, high), strict=True)
    band = {name: draw.rounded(part[known]) for name, part in ends}
    return [{"mark": "band", "color": run.color, **band}, line]


def _subgroup_slots(
    target: str,
    found: Sequence[tuple[ReportRun, TargetIntervals]],
    figures: list[Figure],
    *,
    several: bool,
) -> list[str]:
    slots = []
    for column in union(of_run.subgroups for _, of_run in found):
        groups = [(run.name, run.color, of_run.subgroups.get(column, [])) for run, of_run in found]
        of_target = f" of {target}" if several else ""
        title = f"Coverage{of_target} by {column}"
        figure = draw.subgroup_figure(groups) | {"axis": "share of test samples covered"}
        slots.append(page.slot(figures, figure, title, file=title))
    return slots


def band_of(found: TargetIntervals, limits: tuple[float, float]) -> Figure | None:
    """The band of intervals in a plot of predictions: lower and upper ends for predicted values.

    Ends are cut off at the limits of the plot.
    """
    predicted = found.band["predicted"]
    if len(predicted) < 2:
        return None
    ends = predicted - found.band["below"], predicted + found.band["above"]
    low, high = (np.clip(end, *limits) for end in ends)
    parts = {"predicted": predicted, "low": low, "high": high}
    return {name: draw.rounded(part) for name, part in parts.items()}
