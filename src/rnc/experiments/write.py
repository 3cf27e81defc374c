"""Rows as text: a CSV file of numbers, and a section of a report in Markdown."""

import csv
import io
import math
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, stdev

from rnc.experiments.plan import Plan, Row
from rnc.experiments.published import SOURCES
from rnc.files import write_text

COLUMNS = ("method", "setting", "score", "mean", "sd", "seeds", "paper", "paper_sd", "values")


def write_csv(path: Path, rows: Sequence[Row]) -> None:
    """One line per score of a line of the table; values are those of the seeds."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in rows:
        middle, spread = summary(row.values)
        values = " ".join(f"{value:.6g}" for value in row.values)
        cells = (middle, spread, len(row.values), row.paper, row.paper_sd)
        shown = ["" if cell is None else f"{cell:.6g}" for cell in cells]
        writer.writerow([row.method, row.setting, row.score, *shown, values])
    write_text(path, text.getvalue())


def section(name: str, plan: Plan, rows: Sequence[Row], *, data: str, how: str) -> str:
    """A section of a report, in Markdown.

    Args:
        name: of the result.
        plan: its title and what is our choice.
        rows: the numbers.
        data: the name of the data.
        how: seeds and epochs, in words.
    """
    lines = [f"## {name}: {plan.title}", "", f"{data}, {how}. Paper: {SOURCES[name]}. {plan.about}"]
    return "\n".join([line.rstrip() for line in lines] + ["", *table(rows), ""])


def table(rows: Sequence[Row]) -> list[str]:
    """The lines of a table: a column per score, and one for the paper's where it has numbers."""
    scores = list(dict.fromkeys(row.score for row in rows))
    known = [score for score in scores if any(r.score == score and r.paper for r in rows)]
    settings = any(row.setting for row in rows)
    head = ["method", "setting"] if settings else ["method"]
    for score in scores:
        head += [score, "paper"] if score in known else [score]
    found = {(row.method, row.setting, row.score): row for row in rows}
    lines = [head, ["---"] * len(head)]
    for method, setting in dict.fromkeys((row.method, row.setting) for row in rows):
        cells = [method, setting] if settings else [method]
        for score in scores:
            row = found.get((method, setting, score))
            cells.append("" if row is None else with_spread(*summary(row.values)))
            if score in known:
                paper = (None, None) if row is None else (row.paper, row.paper_sd)
                cells.append(with_spread(*paper, digits=3) if paper[0] is not None else "")
        lines.append(cells)
    return ["| " + " | ".join(cells) + " |" for cells in lines]


def summary(values: Sequence[float]) -> tuple[float | None, float | None]:
    """Mean and standard deviation; None where there are too few values."""
    if not values:
        return None, None
    return mean(values), stdev(values) if len(values) > 1 else None


def with_spread(middle: float | None, spread: float | None, digits: int = 4) -> str:
    """A mean and its standard deviation in as many places.

    >>> with_spread(6.1432, 0.0812), with_spread(6.14, None, 3), with_spread(None, None)
    ('6.143 ± 0.081', '6.14', 'diverged')
    """
    if middle is None:
        return "diverged"
    size = math.floor(math.log10(abs(middle))) + 1 if middle else 1
    places = max(0, digits - max(1, size))
    text = f"{middle:.{places}f}"
    return text if spread is None else f"{text} ± {spread:.{places}f}"
