"""Lines that several tables use."""

from typing import Any

from rnc.experiments import scores
from rnc.experiments.plan import Line, PlannedRun, Setting


def line_of(setting: Setting, method: str, runs: tuple[PlannedRun, ...], how: str = "") -> Line:
    """A line with error and R2."""
    return Line(method, how, runs, scores.errors_and_r2(setting.base.label_distance))


def l1_and_rnc(setting: Setting, columns: Any = None, how: str = "", **changes: Any) -> list[Line]:
    """Lines of L1 and RnC. With preset best, L1 has two stages, so both get a solved head."""
    columns = columns or scores.errors_and_r2(setting.base.label_distance)
    scheme = "two-stage" if setting.base.preset == "best" else "end2end"
    return [
        Line("L1", how, setting.runs(scheme=scheme, **changes), columns),
        Line("RnC(L1)", how, setting.rnc(**changes), columns),
    ]
