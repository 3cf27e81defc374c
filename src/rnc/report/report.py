"""Make a report from run folders: one page that opens without a network.

folders -> runs.read_runs -> [ReportRun] -> sections (HTML and figures) -> page.fill
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from rnc.files import write_text
from rnc.report import figures as draw
from rnc.report import page
from rnc.report.figures import Figure
from rnc.report.runs import ReportRun, read_runs
from rnc.report.samples import Pictures, page_data, pictures_of
from rnc.report.sections import READERS, SECTIONS, SIDE_BY_SIDE
from rnc.report.sections.numbers import union
from rnc.report.sections.top import draw_answer
from rnc.run.folder import REPORT_FILE


class ReportContent(NamedTuple):
    """The content of a report."""

    runs: list[ReportRun]
    pictures: Pictures
    figures: list[Figure]
    body: str


def write_report(runs: Sequence[Path], out: Path | None = None) -> Path:
    """Write one self-contained HTML page about runs, side by side; returns its path.

    `runs` are run folders. A run may be unfinished: the page shows what is there and says what is
    missing. Without `out`, the page is report.html in the first run folder.
    """
    content = _content(runs)
    data = page_data(content.runs, content.pictures)
    data["figures"] = content.figures
    data["colors"] = {"number": draw.NUMBER_COLORS, "category": draw.CATEGORY_COLORS}
    sheets = [sheet.uri for sheet in content.pictures.sheets]
    title = f"Regression of {', '.join(union(run.targets for run in content.runs))}"
    names = ", ".join(run.name for run in content.runs)
    subtitle = f"Run: {names}" if len(content.runs) == 1 else f"Runs: {names}"
    layout = "single" if len(content.runs) == 1 else "several"
    out = Path(runs[0]) / REPORT_FILE if out is None else Path(out)
    write_text(out, page.fill(title, subtitle, content.body, data, sheets, layout=layout))
    return out


def write_figures(runs: Sequence[Path], folder: Path) -> list[Path]:
    """Write the figures of a report on run folders, for papers, as PNG and SVG (extra: figures)."""
    from rnc.report.paper import draw_figures  # needs matplotlib

    content = _content(runs)
    return draw_figures(content.figures, page_data(content.runs, content.pictures), Path(folder))


def _content(folders: Sequence[Path]) -> ReportContent:
    if not folders:
        raise ValueError("A report needs at least one run folder; got none.")
    runs = read_runs([Path(folder) for folder in folders], READERS)
    pictures = pictures_of(runs)
    figures: list[Figure] = []
    top = draw_answer(runs, figures)
    parts = [draw_section(runs, pictures, figures) for draw_section in SECTIONS]
    titles = re.findall(r'<section id="([^"]*)"><h2>([^<]*)</h2>', "".join(parts))
    links = "".join(f'<a href="#{name}">{title}</a>' for name, title in titles)
    nav = f'<nav aria-label="Sections">{links}</nav>'
    sections = _in_pairs(parts) if len(runs) == 1 else parts
    return ReportContent(runs, pictures, figures, top + nav + "\n".join(sections))


def _in_pairs(parts: Sequence[str]) -> list[str]:
    """Sections of one run. A section with a single figure shares a row with its partner."""
    drawn = dict(zip(SECTIONS, parts, strict=True))
    for left, right in SIDE_BY_SIDE:
        if drawn[left].count("<figure") == 1 and drawn[right]:
            drawn[left] = f'<div class="two">{drawn[left]}{drawn[right]}</div>'
            drawn[right] = ""
    return list(drawn.values())
