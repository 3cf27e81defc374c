"""Rows as text: a CSV file with the numbers, a Markdown table, a section of a report."""

import csv
import io
import math
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, stdev

from rnc.experiments.chosen import tuning_lines
from rnc.experiments.gains import gain_name
from rnc.experiments.plan import Plan, Row
from rnc.experiments.published import R2, SOURCES
from rnc.experiments.scores import COUNTS
from rnc.files import write_text
from rnc.metrics.bootstrap import Interval

COLUMNS = (
    *("method", "setting", "score", "mean", "sd", "seeds"),
    *("low", "high", "paper", "paper_sd", "values"),
)


def write_csv(path: Path, rows: Sequence[Row]) -> None:
    """Write a CSV file with one line per score and line of the table; values has one per seed."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in rows:
        middle, spread = summary(row.values)
        values = " ".join(f"{value:.6g}" for value in row.values)
        ends = row.interval or (None, None)
        cells = (middle, spread, len(row.values), *ends, row.paper, row.paper_sd)
        shown = ["" if cell is None else f"{cell:.6g}" for cell in cells]
        writer.writerow([row.method, row.setting, row.score, *shown, values])
    write_text(path, text.getvalue())


def section(name: str, plan: Plan, rows: Sequence[Row], *, data: str, how: str) -> str:
    """The section of a report about a table, in Markdown."""
    paper = f" Paper: {SOURCES[name]}." if name in SOURCES else ""
    made = ", ".join(words for words in (data, how) if words)
    lines = [f"## {name}: {plan.title}", "", f"{made}.{paper} {plan.about}".rstrip(), ""]
    return "\n".join([*lines, *table(rows, grouped=plan.grouped), *_tuning(name, plan), ""])


def _tuning(name: str, plan: Plan) -> list[str]:
    """The lines about the tuning, which follow the table; none if nothing was tuned."""
    if not any(line.chosen for line in plan.lines):
        return []
    seed = plan.runs[0].config.seed
    about = (
        f"Chosen on validation with seed {seed}, for all seeds; {name}-tuning.csv has every trial. "
        "Encoders are compared by the error of an exact L1 head. Fine-tuning uses a tenth of the "
        "learning rate shown."
    )
    return ["", about, "", *tuning_lines(plan.lines)]


def table(rows: Sequence[Row], *, grouped: bool = False) -> list[str]:
    """The lines of a Markdown table: a column per score, and next to it the paper's if it has any.

    Args:
        rows: the numbers.
        grouped: whether each setting has a heading instead of a cell in a column. The lines below a
            heading are sorted by their first score, lowest first.
    """
    if not rows:
        return []
    scores = list(dict.fromkeys(row.score for row in rows))
    with_paper = [score for score in scores if any(r.score == score and r.paper for r in rows)]
    cells = {(row.method, row.setting, row.score): row for row in rows}
    labels = list(dict.fromkeys((row.method, row.setting) for row in rows))
    has_settings = any(setting for _, setting in labels) and not grouped
    head = ["method", "setting"] if has_settings else ["method"]
    for score in scores:
        head += [score, "paper"] if score in with_paper else [score]
    lines = [head, ["---"] * len(head)]
    if grouped:
        labels = _by_first_score(labels, cells, scores[0])
    previous = ""
    for method, setting in labels:
        if grouped and setting != previous:
            previous = setting
            lines.append([f"*{setting}*", *[""] * (len(head) - 1)])
        line = [method, setting] if has_settings else [method]
        for score in scores:
            line += _cells(cells.get((method, setting, score)), paper=score in with_paper)
        lines.append(line)
    return ["| " + " | ".join(line) + " |" for line in lines]


def _by_first_score(
    labels: Sequence[tuple[str, str]], cells: dict[tuple[str, str, str], Row], score: str
) -> list[tuple[str, str]]:
    """Labels sorted by setting, in order of first appearance, and then by mean score."""
    settings = list(dict.fromkeys(setting for _, setting in labels))

    def place(label: tuple[str, str]) -> tuple[int, float]:
        middle, _ = summary(cells[*label, score].values)
        return settings.index(label[1]), math.inf if middle is None else middle

    return sorted(labels, key=place)


def _cells(row: Row | None, *, paper: bool) -> list[str]:
    """The cell of our number, and that of the paper's if the column has one."""
    ours = "" if row is None else _ours(row)
    if not paper:
        return [ours]
    if row is None or row.paper is None:
        return [ours, ""]
    digits = 4 if row.score == gain_name(R2) else 3
    return [ours, with_spread(row.paper, row.paper_sd, digits=digits)]


def _ours(row: Row) -> str:
    """Mean, standard deviation and interval of a row."""
    middle, spread = summary(row.values)
    if middle is not None and row.score in COUNTS:
        return f"{middle:.0f}"
    note = f" ({row.note})" if row.note else ""
    return with_spread(middle, spread) + _between(row.interval) + note


def _between(interval: Interval | None) -> str:
    """An interval in brackets; an empty text without one."""
    if interval is None:
        return ""
    return f" ({with_spread(interval.low, None, 3)} to {with_spread(interval.high, None, 3)})"


def seed_table(rows: Sequence[Row]) -> list[list[str]]:
    """The cells of a table: a line per method and seed, and one for the mean over several seeds.

    >>> seed_table([Row("L1", "", "MAE", (2.0, 3.0)), Row("L1", "", "R2", (0.5, 0.5))])
    [['L1', '0', '2.000', '0.500'], ['L1', '1', '3.000', '0.500'], \
['L1', 'mean', '2.500 ± 0.707', '0.500 ± 0.000']]
    """
    lines = []
    for method in dict.fromkeys(row.method for row in rows):
        columns = [row.values for row in rows if row.method == method]
        for seed, values in enumerate(zip(*columns, strict=True)):
            lines.append([method, str(seed), *(f"{value:.3f}" for value in values)])
        if len(columns[0]) > 1:
            means = [f"{mean(values):.3f} ± {stdev(values):.3f}" for values in columns]
            lines.append([method, "mean", *means])
    return lines


def summary(values: Sequence[float]) -> tuple[float | None, float | None]:
    """Mean and standard deviation; None for too few values."""
    if not values:
        return None, None
    return mean(values), stdev(values) if len(values) > 1 else None


def with_spread(middle: float | None, spread: float | None, digits: int = 4) -> str:
    """A mean and its standard deviation, with the same number of decimal places.

    >>> with_spread(6.1432, 0.0812), with_spread(6.14, None, 3), with_spread(None, None)
    ('6.143 ± 0.081', '6.14', 'diverged')
    >>> with_spread(math.nan, None)  # such as a correlation with equal features
    'undefined'
    """
    if middle is None:
        return "diverged"
    if math.isnan(middle):
        return "undefined"
    size = math.floor(math.log10(abs(middle))) + 1 if middle else 1
    places = max(0, digits - max(1, size))
    text = f"{middle:.{places}f}"
    return text if spread is None else f"{text} ± {spread:.{places}f}"
