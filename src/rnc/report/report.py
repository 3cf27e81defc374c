"""A report, from run folders to one page that opens without a network.

folders -> runs.read_runs -> [Run] -> samples.show -> sections (HTML and figures) -> page.fill
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from rnc.files import write_text
from rnc.report import figures as draw
from rnc.report import numbers, page
from rnc.report.figures import Figure
from rnc.report.runs import read_runs
from rnc.report.samples import Looks, Shown, looks_of, page_data, show
from rnc.report.sections import SECTIONS


class Content(NamedTuple):
    """What a report holds."""

    shown: list[Shown]
    looks: Looks
    figures: list[Figure]
    body: str


def write_report(runs: Sequence[Path], out: Path | None = None) -> Path:
    """Write one self-contained HTML page about runs, side by side; returns its path.

    A run may be unfinished: the page shows what there is and says what is missing.

    Args:
        runs: run folders.
        out: the file to write; by default report.html in the first run folder.
    """
    content = _content(runs)
    read = [its.run for its in content.shown]
    data = page_data(content.shown, content.looks)
    data["figures"] = content.figures
    data["colors"] = {"number": draw.NUMBER_COLORS, "category": draw.CATEGORY_COLORS}
    sheets = [sheet.uri for sheet in content.looks.sheets]
    targets = ", ".join(numbers.union(run.targets for run in read))
    names = ", ".join(run.name for run in read)
    out = Path(runs[0]) / "report.html" if out is None else Path(out)
    title = f"Regression of {targets}"
    layout = "single" if len(read) == 1 else "several"
    subtitle = f"Runs: {names}"
    write_text(out, page.fill(title, subtitle, content.body, data, sheets, layout=layout))
    return out


def write_figures(runs: Sequence[Path], folder: Path) -> list[Path]:
    """Write the figures of a report as PNG and SVG files for papers (extra: figures).

    Args:
        runs: run folders.
        folder: where the files go; made if it is not there.
    """
    from rnc.report.paper import draw_figures  # needs matplotlib

    content = _content(runs)
    return draw_figures(content.figures, page_data(content.shown, content.looks), Path(folder))


def _content(runs: Sequence[Path]) -> Content:
    if not runs:
        raise ValueError("A report needs at least one run folder; got none.")
    read = read_runs([Path(run) for run in runs])
    shown = [show(run, color) for color, run in enumerate(read)]
    looks = looks_of(shown)
    figures: list[Figure] = []
    parts = [
        numbers.comparison(read),
        *(section(shown, looks, figures) for section in SECTIONS),
        numbers.configuration(read),
    ]
    titles = re.findall(r'<section id="([^"]*)"><h2>([^<]*)</h2>', "".join(parts))
    links = "".join(f'<a href="#{name}">{title}</a>' for name, title in titles)
    body = f'<nav aria-label="Sections">{links}</nav>{numbers.cards(read)}' + "\n".join(parts)
    return Content(shown, looks, figures, body)
