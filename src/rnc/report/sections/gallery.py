"""The section about the samples that a run gets most wrong."""

import base64
from collections.abc import Sequence

import numpy as np

from rnc.report import page
from rnc.report.figures import Figure, short
from rnc.report.runs import ReportRun
from rnc.report.samples import Pictures

_WIDTH, _HEIGHT = 96, 48


def draw_worst_errors(runs: Sequence[ReportRun], pictures: Pictures, figures: list[Figure]) -> str:
    """The largest errors of every run: picture or signal, name, true and predicted values."""
    parts = []
    for i, run in enumerate(runs):
        cells = [_cell(run, row, _picture(i, row, pictures)) for row in run.worst.tolist()]
        if cells:
            gallery = f'<ol class="gallery">{"".join(cells)}</ol>'
            parts.append(f"<h3>{page.escape(run.name)}</h3>{gallery}")
    about = (
        "The test samples with the largest errors, true value → prediction. Often their labels are "
        "wrong or their inputs unusual."
    )
    return page.section("Worst errors", about, "".join(parts))


def _cell(run: ReportRun, row: int, picture: str) -> str:
    values = "<br>".join(
        page.escape(f"{short(target, 24)}: {page.number(float(t))} → {page.number(float(p))}")
        for target, t, p in zip(run.targets, run.true[row], run.predicted[row], strict=True)
    )
    return (
        f'<li class="card">{picture}<div><b>{page.escape(short(run.sample_names[row], 60))}'
        f"</b><br>{values}<br>error {page.number(float(run.errors[row]))}</div></li>"
    )


def _picture(i: int, row: int, pictures: Pictures) -> str:
    """The picture or sparkline of a sample of run i; nothing where it has none."""
    place, sheet, signals = (
        pictures.places[i].get(row),
        pictures.sheet_of[i],
        pictures.signals_of[i],
    )
    if place is None:
        return ""
    if sheet is not None:
        columns, lines = pictures.sheets[sheet].columns, pictures.sheets[sheet].lines
        line, column = divmod(place, columns)
        position = f"{_percent(column, columns)} {_percent(line, lines)}"
        size = f"{100 * columns}% {100 * lines}%"
        return (
            f'<span class="look sheet-{sheet}" role="img" aria-label="the sample" '
            f'style="background-position: {position}; background-size: {size}"></span>'
        )
    return "" if signals is None else _sparkline(pictures.signals[signals], place)


def _percent(place: int, count: int) -> str:
    """Where a picture is on its sheet, as CSS counts: 0 % is the first, 100 % the last."""
    return f"{100 * place / max(1, count - 1):.4f}%"


def _sparkline(signals: dict[str, int | str], place: int) -> str:
    channels, length = int(signals["channels"]), int(signals["length"])
    levels = np.frombuffer(base64.b64decode(str(signals["bytes"])), np.uint8)
    lines = []
    for channel, values in enumerate(levels.reshape(-1, channels, length)[place]):
        x = np.linspace(1, _WIDTH - 1, length)
        y = 1 + (channel + 1 - values / 255) * (_HEIGHT - 2) / channels
        points = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True))
        lines.append(f'<polyline points="{points}"/>')
    return (
        f'<svg class="look spark" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        f'aria-label="the signal">{"".join(lines)}</svg>'
    )
