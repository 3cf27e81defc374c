"""Gains as in the paper: how much better a line is than its baseline. Above 0 is better.

with_gains           RnC(X) against X in the same setting: the green numbers of the paper
with_average         also the reductions of the error in percent, and their mean: Section 5.1
with_best_other      RnC(L1) against the best of all other lines: the last line of Table 3
"""

from collections.abc import Sequence
from statistics import fmean

from rnc.experiments.plan import Outcome, Row
from rnc.experiments.published import ANGULAR, MAE, R2
from rnc.experiments.seeds import by_seed

RNC = "RnC(L1)"
LOWER = "error lower by, %"
AVERAGE = "RnC, average"
BEST_OTHER = "RnC(L1), gain on the best other"


def gain_name(score: str) -> str:
    """The name of the column with the gains in a score."""
    return f"gain in {score}"


def with_gains(rows: Sequence[Row], outcomes: Sequence[Outcome]) -> list[Row]:
    """The rows; after each row of RnC(X) follows its gain over X."""
    found = _Scores(rows, outcomes)
    complete = []
    for row in rows:
        complete.append(row)
        base = found.baseline(row)
        if base is not None:
            complete.append(found.gain(row, base, row.method, row.setting))
    return complete


def with_average(rows: Sequence[Row], outcomes: Sequence[Outcome]) -> list[Row]:
    """The rows with gains, reductions of the error in percent, and their mean over the heads."""
    found = _Scores(rows, outcomes)
    pairs = [(row, found.baseline(row)) for row in rows if row.score in (MAE, ANGULAR)]
    parts = [found.reduction(row, base) for row, base in pairs if base is not None]
    complete = [*with_gains(rows, outcomes), *parts]
    if len(parts) < 2 or len({len(part.values) for part in parts}) > 1:  # a run diverged
        return complete
    values = tuple(fmean(of_seed) for of_seed in zip(*(p.values for p in parts), strict=True))
    known = [part.paper for part in parts if part.paper is not None]
    paper = fmean(known) if len(known) == len(parts) else None
    return [*complete, Row(AVERAGE, "", LOWER, values, paper)]


def with_best_other(rows: Sequence[Row], outcomes: Sequence[Outcome]) -> list[Row]:
    """The rows, and the gain of RnC(L1) over the best other line, that with the lowest error.

    Our best other line and the paper's may be different ones: each gain is over its own best line.
    """
    found = _Scores(rows, outcomes)
    ours = next((row for row in rows if row.method == RNC and row.values), None)
    others = [row for row in rows if row.method != RNC and row.values]
    if ours is None or not others:
        return list(rows)
    best = min(others, key=lambda row: fmean(row.values))
    name = f"{best.method} {best.setting}".strip()
    gain = found.gain(ours, best, BEST_OTHER, name)
    published = [row.paper for row in others if row.paper is not None]
    paper = None if ours.paper is None or not published else min(published) - ours.paper
    return [*rows, gain._replace(paper=paper)]


class _Scores:
    """The rows of a table, and the seeds of their values."""

    def __init__(self, rows: Sequence[Row], outcomes: Sequence[Outcome]) -> None:
        self.rows = {(row.method, row.setting, row.score): row for row in rows}
        self.seeds = {
            (line.method, line.setting): [*by_seed(finished)] for line, finished in outcomes
        }

    def baseline(self, row: Row) -> Row | None:
        """The row of X for a row of RnC(X); None for any other row."""
        if not row.method.startswith("RnC(") or not row.method.endswith(")"):
            return None
        return self.rows.get((row.method[4:-1], row.setting, row.score))

    def gain(self, row: Row, base: Row, method: str, setting: str) -> Row:
        """How much better a row is than `base`, for the seeds that both have."""
        sign = -1 if row.score == R2 else 1
        ours, theirs = self._by_seed(row), self._by_seed(base)
        values = tuple(sign * (theirs[seed] - ours[seed]) for seed in ours if seed in theirs)
        paper = None
        if row.paper is not None and base.paper is not None:
            paper = round(sign * (base.paper - row.paper), 6)  # without rounding errors
        return Row(method, setting, gain_name(row.score), values, paper)

    def reduction(self, row: Row, base: Row) -> Row:
        """The reduction of an error from `base` in percent."""
        ours, theirs = self._by_seed(row), self._by_seed(base)
        values = tuple(_percent(ours[seed], theirs[seed]) for seed in ours if seed in theirs)
        has_paper = row.paper is not None and base.paper is not None
        paper = _percent(row.paper or 0.0, base.paper or 0.0) if has_paper else None
        return Row(row.method, row.setting, LOWER, values, paper)

    def _by_seed(self, row: Row) -> dict[int, float]:
        return dict(zip(self.seeds[row.method, row.setting], row.values, strict=True))


def _percent(ours: float, theirs: float) -> float:
    return 100 * (1 - ours / theirs) if theirs else float("nan")
