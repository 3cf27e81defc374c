"""Sections about the errors: all predictions, by target and by subgroup."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from rnc.metrics import SHOTS, Columns
from rnc.report import figures as draw
from rnc.report import page
from rnc.report.figures import ErrorGroup, Figure, TargetBins
from rnc.report.runs import ReportRun, float_list, read_group
from rnc.report.samples import Pictures
from rnc.report.sections.intervals import band_of, intervals_of
from rnc.report.sections.numbers import union
from rnc.run.folder import AnalysisResult
from rnc.run.partial import PartialRun

# ---------------------------------------------------------------------------------- predictions


def draw_predictions(runs: Sequence[ReportRun], pictures: Pictures, figures: list[Figure]) -> str:
    """Predicted against true values, a figure for each run and target."""
    grids, has_band = [], False
    for target in union(run.targets for run in runs):
        columns = {
            i: [values[:, run.targets.index(target)] for values in (run.true, run.predicted)]
            for i, run in enumerate(runs)
            if target in run.targets
        }
        limits = _limits([part for parts in columns.values() for part in parts])
        slots = []
        for i, (true, predicted) in columns.items():
            run, shown = runs[i], runs[i].scattered
            if len(shown):
                figure = draw.scatter(true[shown], predicted[shown], target=target, limits=limits)
                figure |= {"run": i, "points": run.places(shown), "color": run.color}
                if (found := intervals_of(run, target)) is not None:
                    figure["band"], has_band = band_of(found, limits), True
                title, file = f"{run.title}: {target}", f"predicted {run.name} {target}"
                slots.append(page.slot(figures, figure, title, file=file))
        grids.append(slots)
    if len(runs) == 1:  # all targets side by side; for several runs, a grid per target
        grids = [[slot for slots in grids for slot in slots]]
    about = "Each point is a test sample. On the dashed line, the prediction is right."
    if has_band:
        about += (
            " The band shows the intervals: at the height of a prediction, it reaches from the "
            "lower to the upper end."
        )
    thinned = [
        f"{len(run.scattered):,} of {total:,} points of {run.name}"
        for run in runs
        if len(run.scattered) < (total := int(np.isfinite(run.errors).sum()))
    ]
    if thinned:
        about += f" Drawn: {', '.join(thinned)}, chosen at random. The scores count all samples."
    return page.section("Predictions", about, "".join(page.grid(s, "pairs") for s in grids))


def _limits(parts: Sequence[Columns]) -> tuple[float, float]:
    """Axis limits around all numbers, with a margin."""
    low, high = draw.limits_of(np.concatenate(parts))
    margin = 0.03 * ((high - low) or 1.0)
    return low - margin, high + margin


# ------------------------------------------------------------------------------------ by target


def read_targets(result: AnalysisResult, run: PartialRun) -> dict[str, TargetBins]:
    """analyses/targets.json."""
    return {target: _read_bins(bins) for target, bins in result.content.items()}


def _read_bins(bins: Mapping[str, Any]) -> TargetBins:
    edges = float_list(bins["edges"])
    n, mae, low, high = (float_list(bins[key]) for key in ("n", "mae", "low", "high"))
    n_train = None if bins.get("n_train") is None else float_list(bins["n_train"])
    for part in (n, mae, low, high, n if n_train is None else n_train):
        if len(part) != len(edges) - 1 or len(part) == 0:
            raise ValueError(f"needed {len(edges) - 1} bins; got {len(part)}.")
    return TargetBins(edges, n, mae, low, high, n_train)


def draw_target_errors(runs: Sequence[ReportRun], pictures: Pictures, figures: list[Figure]) -> str:
    """The error by the value of each target, and by how often the label occurs in training."""
    slots = []
    shots = {f"{shot} shot": bars for shot in SHOTS if (bars := _shot_bars(runs, shot))}
    if len(shots) == 1:  # it has all samples: the scores show the same
        shots = {}
    for target in union(run.targets for run in runs):
        bins = [
            (run.name, run.color, run.analyses["targets"][target])
            for run in runs
            if target in run.analyses.get("targets", {})
        ]
        if bins:
            figure = draw.bins_figure(
                target, bins, tall=len(runs) == 1 and len(runs[0].targets) == 1 and not shots
            )
            title = f"Error by {target}"
            slots.append(page.slot(figures, figure, title, file=title))
    about = (
        "Mean absolute error of test samples by their true value, with 95 % intervals as bands. "
        "Below it, the number of samples: errors often grow where training had few."
    )
    if shots:
        figure = draw.rows("mean absolute error", shots)
        slots.append(page.slot(figures, figure, "Error by shot group", file="error-by-shots"))
        about += (
            " Many, medium and few shot: labels with more than 100, 20 to 100, and fewer than 20 "
            "training samples."
        )
    return page.section("Error by target", about, page.grid(slots))


def _shot_bars(runs: Sequence[ReportRun], shot: str) -> list[tuple[str, int, ErrorGroup]]:
    """The error of a shot group in every run, with its interval if the run has one."""
    bars = []
    for run in runs:
        scores, key = run.scores("test"), f"{shot}_mae"
        if isinstance(mae := scores.get(key), float):
            ends = run.analyses.get("intervals", {}).get(key, (None, None))
            n = int(scores.get(f"{shot}_n") or 0)
            bars.append((run.name, run.color, ErrorGroup(shot, n, mae, *ends)))
    return bars


# ---------------------------------------------------------------------------------- by subgroup


class SubgroupErrors(NamedTuple):
    """The errors of the groups of a column."""

    groups: list[ErrorGroup]
    worst: str = ""
    """The group with the largest error among those with enough samples; "" if not known."""
    gap: float | None = None
    """The error of the worst group minus that of the best."""


def read_subgroups(result: AnalysisResult, run: PartialRun) -> dict[str, SubgroupErrors]:
    """analyses/subgroups.json."""
    return {
        column: SubgroupErrors(
            [read_group(group, group.get("value", "")) for group in errors["groups"]],
            str(errors["worst"]),
            float(errors["gap"]),
        )
        for column, errors in result.content.items()
    }


def draw_subgroup_errors(
    runs: Sequence[ReportRun], pictures: Pictures, figures: list[Figure]
) -> str:
    """The error for each value of the subgroup columns."""
    columns = {run.name: _subgroups(run) for run in runs}
    slots = []
    for column in union(columns.values()):
        errors = [(run, columns[run.name].get(column, SubgroupErrors([]))) for run in runs]
        total = len({group.value for _, of_run in errors for group in of_run.groups})
        part = f", the {draw.MAX_BARS} largest of {total}" if total > draw.MAX_BARS else ""
        figure = draw.subgroup_figure(
            [(run.name, run.color, of_run.groups) for run, of_run in errors]
        )
        notes = [
            f"{run.name}: the worst is {draw.short(of_run.worst)}, {page.number(of_run.gap)} above "
            "the best."
            for run, of_run in errors
            if of_run.gap is not None
        ]
        title, file = f"Error by {column}{part}", f"subgroups {column}"
        slots.append(page.slot(figures, figure, title, note=" ".join(notes), file=file))
    about = (
        "Mean absolute error of the test samples that share a value of a column. Lines are 95 % "
        "intervals: where those of two bars overlap widely, the difference may be chance."
    )
    return page.section("Subgroups", about, page.grid(slots))


def _subgroups(run: ReportRun) -> dict[str, SubgroupErrors]:
    """The subgroups of the analysis. Other columns come from scores.json, without intervals."""
    scored = {
        column: [
            ErrorGroup(value, int(group.get("n") or 0), group["mae"])
            for value, group in groups.items()
            if isinstance(group.get("mae"), float)
        ]
        for column, groups in run.scores("subgroups").items()
    }
    of_scores = {column: SubgroupErrors(groups) for column, groups in scored.items() if groups}
    analysed: dict[str, SubgroupErrors] = run.analyses.get("subgroups", {})
    return analysed | {k: v for k, v in of_scores.items() if k not in analysed}
