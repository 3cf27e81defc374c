"""The section about corrupted inputs."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from rnc.report import figures as draw
from rnc.report import page
from rnc.report.analyses import older_version
from rnc.report.figures import ErrorGroup, Figure
from rnc.report.runs import ReportRun
from rnc.report.samples import Pictures
from rnc.report.sections.numbers import union
from rnc.run.folder import AnalysisResult
from rnc.run.partial import PartialRun

_MEASURES = {"mae": "MAE", "angular_error": "angular error"}

Curve = list[tuple[int, float]]
"""(severity, error); severity 0 is the clean input."""


class CorruptionErrors(NamedTuple):
    """Errors on corrupted inputs."""

    measure: str
    n: int
    curves: dict[str, Curve]
    """By the type of the corruption."""
    mean: Curve
    """Over all types."""
    types: dict[str, float]
    """Mean error over the severities, by the type."""


def read_corruption(result: AnalysisResult, run: PartialRun) -> CorruptionErrors:
    """analyses/corruption.json."""
    content = result.content
    clean = [] if content.get("clean") is None else [(0, float(content["clean"]))]
    curves: dict[str, Curve] = {}
    for row in content["rows"]:
        curve = curves.setdefault(str(row["name"]), list(clean))
        curve.append((int(row["severity"]), float(row["error"])))
    mean = [*clean, *((int(row["severity"]), float(row["error"])) for row in content["mean"])]
    measure = str(content.get("measure") or "error")
    if "types" not in content:
        raise ValueError(older_version(run.path, "corruption"))
    types = {str(row["name"]): float(row["error"]) for row in content["types"]}
    n = int(content.get("n") or 0)
    return CorruptionErrors(_MEASURES.get(measure, measure), n, curves, mean, types)


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
            (run.name, run.color, ErrorGroup(kind, of_run.n, of_run.types[kind], None, None))
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
