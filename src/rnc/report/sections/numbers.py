"""Scores as words and numbers, for several sections."""

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

from rnc.metrics.bootstrap import Interval
from rnc.report import page
from rnc.report.runs import ReportRun, SeedScore
from rnc.run.folder import AnalysisResult
from rnc.run.partial import PartialRun


def read_intervals(result: AnalysisResult, run: PartialRun) -> dict[str, Interval]:
    """analyses/intervals.json."""
    return {
        score: Interval(float(ends["low"]), float(ends["high"]))
        for score, ends in result.content.items()
    }


def read_order(result: AnalysisResult, run: PartialRun) -> dict[str, Any]:
    """analyses/order.json."""
    return result.content


def read_readable(result: AnalysisResult, run: PartialRun) -> dict[str, dict[str, Any]]:
    """analyses/readable.json."""
    return {column: dict(probe) for column, probe in result.content.items()}


class ReadableColumn(NamedTuple):
    """How well a probe reads a column from the features."""

    score: object
    kind: str = ""
    """accuracy or r2; empty if it is not known."""
    chance: float | None = None

    @property
    def words(self) -> str:
        """The score in words, for a reader who does not know probes.

        >>> ReadableColumn(0.62, "accuracy", 0.5).words, ReadableColumn(-0.01).words
        ('62 % right, guessing 50 %', 'not readable (no better than guessing)')
        """
        if not isinstance(self.score, float | int):
            return "-"
        if self.score <= (self.chance or 0):
            return "not readable (no better than guessing)"
        if self.kind != "accuracy":
            return f"R² {self.score:.2f}" if self.kind == "r2" else page.number(float(self.score))
        guess = "" if self.chance is None else f", guessing {100 * self.chance:.0f} %"
        return f"{100 * self.score:.0f} % right{guess}"


def readable_columns(run: ReportRun) -> dict[str, ReadableColumn]:
    """How well a probe reads each column, averaged over the seeds."""
    columns = {}
    for column, score in run.scores("readable").items():
        seeds = run.over_seeds("readable", column)
        columns[column] = ReadableColumn(score if seeds is None else seeds.mean)
    for column, probe in (run.scores("guessing") | run.analyses.get("readable", {})).items():
        known = columns.get(column, ReadableColumn(probe.get("score")))
        chance = probe.get("chance")
        chance = float(chance) if isinstance(chance, float | int) else None
        columns[column] = known._replace(kind=str(probe.get("kind") or ""), chance=chance)
    return columns


def with_spread(score: SeedScore | None) -> str:
    """The mean over the seeds, with the spread if there are several; a dash for None.

    >>> with_spread(SeedScore((2.0, 2.2))), with_spread(SeedScore((2.0,))), with_spread(None)
    ('2.10 ± 0.14', '2.000', '-')
    """
    if score is None or not score.spread:
        return page.number(None if score is None else score.mean)
    digits = min(4, max(0, 1 - math.floor(math.log10(score.spread))))
    return f"{score.mean:,.{digits}f} ± {score.spread:,.{digits}f}"


def union(groups: Iterable[Iterable[str]]) -> list[str]:
    """The members of all groups, each once, in the order of their first occurrence."""
    return list(dict.fromkeys(name for group in groups for name in group))
