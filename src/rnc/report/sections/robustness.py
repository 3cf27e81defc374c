"""Sections about other data than the run's own.

One is about corrupted inputs; the other about unseen targets, less training data and transfer.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from rnc.metrics import score_words
from rnc.report import figures as draw
from rnc.report import page
from rnc.report.figures import ErrorGroup, Figure
from rnc.report.runs import ReportRun, older_version, read_group
from rnc.report.samples import Pictures
from rnc.report.sections.numbers import union
from rnc.run.folder import AnalysisResult
from rnc.run.partial import PartialRun

Curve = list[tuple[int, float]]
"""(severity, error); severity 0 is the clean input."""


class CorruptionErrors(NamedTuple):
    """Errors on corrupted inputs."""

    measure: str
    n: int
    curves: dict[str, Curve]
    """By type of corruption."""
    mean: Curve
    """The mean over all types."""
    types: dict[str, float]
    """The mean error over the severities, by type."""


def read_corruption(result: AnalysisResult, run: PartialRun) -> CorruptionErrors:
    """analyses/corruption.json."""
    content = result.content
    clean = [] if content.get("clean") is None else [(0, float(content["clean"]))]
    curves: dict[str, Curve] = {}
    for row in content["rows"]:
        curve = curves.setdefault(str(row["name"]), list(clean))
        curve.append((int(row["severity"]), float(row["error"])))
    mean = clean + [(int(row["severity"]), float(row["error"])) for row in content["mean"]]
    if "types" not in content:
        raise ValueError(older_version(run.path, "corruption"))
    types = {str(row["name"]): float(row["error"]) for row in content["types"]}
    measure = str(content.get("measure") or "error")
    n = int(content.get("n") or 0)
    return CorruptionErrors(score_words(measure), n, curves, mean, types)


def draw_corruption(runs: Sequence[ReportRun], pictures: Pictures, figures: list[Figure]) -> str:
    """The error by severity and by type of corruption."""
    errors: list[tuple[ReportRun, CorruptionErrors]] = [
        (run, run.analyses["corruption"]) for run in runs if "corruption" in run.analyses
    ]
    if not errors:
        return ""
    lines = []
    for run, of_run in errors:
        severity, error = np.array(of_run.mean, dtype=np.float64).reshape(-1, 2).T
        lines.append(draw.line(severity, error, run.name, color=run.color, dots=True))
    bars = {
        kind: [
            (run.name, run.color, ErrorGroup(kind, of_run.n, of_run.types[kind]))
            for run, of_run in errors
            if kind in of_run.types
        ]
        for kind in union(of_run.types for _, of_run in errors)
    }
    measure = errors[0][1].measure
    panel = {"title": measure, "marks": lines, "zero": True, "height": 1.4}
    mean = draw.curves("severity, 0 is clean", [panel], whole_numbers=True)
    kinds = draw.rows(measure, bars)
    slots = [
        page.slot(figures, mean, "Mean over all corruptions", file="corruption-mean"),
        page.slot(figures, kinds, "Mean over the severities", file="corruption-kinds"),
    ]
    about = "Error on corrupted test samples, at severities 1 to 5."
    return page.section("Corruption", about, page.grid(slots) + _table(errors))


def _table(errors: Sequence[tuple[ReportRun, CorruptionErrors]]) -> str:
    curves = {
        f"{run.name}: {kind}": dict(curve)
        for run, of_run in errors
        for kind, curve in of_run.curves.items()
    }
    severities = sorted({severity for curve in curves.values() for severity in curve})
    rows = [
        [name, *(page.number(curve.get(severity)) for severity in severities)]
        for name, curve in curves.items()
    ]
    head = ["Corruption", *(f"severity {s}" if s else "clean" for s in severities)]
    return page.folded("All corruptions and severities", page.table(head, rows))


# ----------------------------------------------------------------------------------- other data


def draw_other_data(runs: Sequence[ReportRun], pictures: Pictures, figures: list[Figure]) -> str:
    """The results of the analyses unseen, reduced and transfer, for runs that have them."""
    slots = [*_unseen(runs, figures), *_reduced(runs, figures)]
    about = (
        "Unseen: targets outside the ranges that training has seen. Less data: models trained anew "
        "on a share of the training samples. Transfer: the encoder on other data."
    )
    return page.section("Other data", about, page.grid(slots) + _transfer(runs))


UnseenErrors = tuple[str, dict[str, ErrorGroup]]
"""The target ranges that training has seen, and the errors on "seen" and "unseen" targets."""


def read_unseen(result: AnalysisResult, run: PartialRun) -> UnseenErrors:
    """analyses/unseen.json."""
    groups = {name: read_group(result.content[name], name) for name in ("seen", "unseen")}
    ranges = [f"{low:g} to {high:g}" for low, high in result.content.get("ranges") or []]
    return ", ".join(ranges), groups


def _unseen(runs: Sequence[ReportRun], figures: list[Figure]) -> list[str]:
    errors: list[tuple[ReportRun, UnseenErrors]] = [
        (run, run.analyses["unseen"]) for run in runs if "unseen" in run.analyses
    ]
    if not errors:
        return []
    bars = {
        f"{part} targets": [(run.name, run.color, groups[part]) for run, (_, groups) in errors]
        for part in ("seen", "unseen")
    }
    ranges = union([[seen for _, (seen, _) in errors]])
    note = f"Targets that training has seen: {draw.short('; '.join(ranges), 120)}."
    figure = draw.rows("mean absolute error", bars)
    return [page.slot(figures, figure, "Unseen targets", note=note, file="unseen-targets")]


def read_reduced(result: AnalysisResult, run: PartialRun) -> list[dict[str, Any]]:
    """analyses/reduced.json."""
    if "mean" not in result.content:
        raise ValueError(older_version(run.path, "reduced"))
    return [dict(row) for row in result.content["mean"]]


def _reduced(runs: Sequence[ReportRun], figures: list[Figure]) -> list[str]:
    marks = []
    for run in runs:
        curves: dict[str, list[tuple[float, float]]] = {}
        for row in run.analyses.get("reduced", []):
            if isinstance(row.get("mae"), float):
                curve = curves.setdefault(str(row.get("scheme") or ""), [])
                curve.append((float(row["n"]), row["mae"]))
        for dash, (scheme, curve) in enumerate(curves.items()):
            n, mae = np.array(sorted(curve)).T
            name = f"{run.name}, {scheme}"
            marks.append(draw.line(n, mae, name, color=run.color, dash=dash, dots=True))
    if not marks:
        return []
    panel = {
        "title": "mean absolute error, over the seeds",
        "marks": marks,
        "zero": True,
        "height": 1.4,
    }
    figure = draw.curves("training samples", [panel])
    return [page.slot(figures, figure, "Less training data", file="less-data")]


def read_transfer(result: AnalysisResult, run: PartialRun) -> list[dict[str, Any]]:
    """analyses/transfer.json."""
    data = str(result.content.get("data") or "other data")
    return [dict(row) | {"data": data} for row in result.content["rows"]]


def _transfer(runs: Sequence[ReportRun]) -> str:
    rows = [
        [run.name, row["data"], str(row.get("scheme") or "-")]
        + [page.number(row.get(key)) for key in ("mae", "r2", "spearman")]
        for run in runs
        for row in run.analyses.get("transfer", [])
    ]
    if not rows:
        return ""
    keys = ("mae", "r2", "spearman")
    head = ["Run", "Data", "Scheme", *(page.capital(score_words(key)) for key in keys)]
    return f"<h3>Transfer</h3>{page.table(head, rows)}"
