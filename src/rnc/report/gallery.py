"""The samples that a run gets most wrong, as they look."""

import base64
from collections.abc import Sequence

import numpy as np

from rnc.report import page
from rnc.report.figures import short
from rnc.report.samples import Looks, Shown

_WIDTH, _HEIGHT = 96, 48


def gallery(shown: Sequence[Shown], looks: Looks) -> str:
    """The largest errors of every run: picture or signal, name, true and predicted values."""
    parts = []
    for i, its in enumerate(shown):
        cells = [_cell(its, i, int(row), looks) for row in its.worst]
        if cells:
            list_ = f'<ol class="gallery">{"".join(cells)}</ol>'
            parts.append(f"<h3>{page.escape(its.run.name)}</h3>{list_}")
    about = (
        "The test samples with the largest errors, true value → prediction: often wrong labels or "
        "unusual inputs."
    )
    return page.section("Worst errors", about, "".join(parts))


def _cell(its: Shown, i: int, row: int, looks: Looks) -> str:
    run = its.run
    name = "" if run.predictions is None else str(run.predictions["name"].iloc[row])
    values = "<br>".join(
        page.escape(f"{short(target, 24)}: {page.number(float(t))} → {page.number(float(p))}")
        for target, t, p in zip(run.targets, run.true[row], run.predicted[row], strict=True)
    )
    return (
        f'<li class="card">{_look(i, row, looks)}<div><b>{page.escape(short(name, 60))}'
        f"</b><br>{values}<br>error {page.number(float(run.errors[row]))}</div></li>"
    )


def _look(i: int, row: int, looks: Looks) -> str:
    place, sheet, signals = looks.places[i].get(row), looks.sheet_of[i], looks.signals_of[i]
    if place is None:
        return ""
    if sheet is not None:
        columns, lines = looks.sheets[sheet].columns, looks.sheets[sheet].lines
        line, column = divmod(place, columns)
        spot = f"{_share(column, columns)} {_share(line, lines)}"
        size = f"{100 * columns}% {100 * lines}%"
        return (
            f'<span class="look sheet-{sheet}" role="img" aria-label="the sample" '
            f'style="background-position: {spot}; background-size: {size}"></span>'
        )
    if signals is not None:
        return _sparkline(looks.signals[signals], place)
    return ""


def _share(place: int, count: int) -> str:
    """Where a picture of a sheet is, as style sheets count."""
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
