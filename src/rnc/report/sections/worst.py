"""The section of the samples with the worst errors: their pictures, signals or features."""

import base64
import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from rnc.report import figures as draw
from rnc.report import page
from rnc.report.figures import Figure
from rnc.report.runs import ReportRun
from rnc.report.samples import Pictures
from rnc.report.sections.neighbours import (
    DrawPicture,
    SeenSample,
    about_neighbours,
    compare_head,
    compare_targets,
    compared,
    draw_flag,
    draw_nearest,
)
from rnc.run.predictions import numbers_of

_WIDTH, _HEIGHT = 96, 48  # of a sparkline
_SHOWN = 8  # features of a row that are shown; others are folded
_UNUSUAL = 2.5  # standard deviations of the training rows


def draw_worst_errors(runs: Sequence[ReportRun], pictures: Pictures, figures: list[Figure]) -> str:
    """The largest errors of every run: picture, signal or features, true and predicted values."""
    parts = []
    for i, run in enumerate(runs):
        cells = [_cell(run, row, partial(_picture, i, pictures)) for row in run.worst.tolist()]
        if cells:
            title = f"<h3>{page.escape(run.title)}</h3>" if len(runs) > 1 else ""
            seen = any(compared(run, row) for row in run.worst.tolist())
            kind = "gallery compared" if seen else "gallery"
            parts.append(f'{title}<ol class="{kind}">{"".join(cells)}</ol>')
    about = (
        "The test samples with the largest errors, true value → prediction. Often their labels are "
        "wrong or their inputs unusual."
    )
    about += about_neighbours(runs)
    if any(run.folder.worst_inputs for run in runs):
        about += f" Bold: more than {_UNUSUAL} standard deviations from the mean of training."
    return page.section("Worst errors", about, "".join(parts))


def _cell(run: ReportRun, row: int, picture: DrawPicture) -> str:
    values = "<br>".join(
        page.escape(f"{draw.short(target, 24)}: {page.number(float(t))} → {page.number(float(p))}")
        for target, t, p in zip(run.targets, run.true[row], run.predicted[row], strict=True)
    )
    name = page.escape(draw.short(run.sample_names[row], 60))
    return (
        f'<li class="card">{picture(row)}<div><b>{name}</b><br>{values}<br>'
        f"error {page.number(float(run.errors[row]))}{draw_flag(run, row)}</div>"
        f"{_below(run, row, picture)}</li>"
    )


def _below(run: ReportRun, row: int, picture: DrawPicture) -> str:
    """The features and the neighbours of a sample, side by side if both have features."""
    inputs = run.folder.worst_inputs.get(row)
    if inputs and (samples := compared(run, row)):
        return _comparison(run, row, inputs, samples)
    features = f'<div class="seen">{_features(run, inputs)}</div>' if inputs else ""
    return features + draw_nearest(run, row, picture)


def _comparison(
    run: ReportRun, row: int, inputs: dict[str, str], samples: Sequence[SeenSample]
) -> str:
    """The features of a row and of its neighbours, side by side."""

    def lines(names: Sequence[str]) -> str:
        return "".join(_line(run, name, [inputs[name], *cells_of(name)]) for name in names)

    def cells_of(name: str) -> list[str]:
        return [sample["inputs"].get(name, "") for sample in samples]

    shown, rest = _most_unusual(run, inputs)
    head, targets = compare_head(samples), compare_targets(run, row, samples)
    first = f"<table>{head}<tbody>{targets}{lines(shown)}</tbody></table>"
    more = f"<table>{head}<tbody>{lines(rest)}</tbody></table>"
    folded = page.folded(f"{len(rest)} more features", more) if rest else ""
    return f'<div class="seen">{first}{folded}</div>'


def _line(run: ReportRun, name: str, texts: Sequence[str]) -> str:
    cells = "".join(
        f"<td>{_value(text, unusual=_distance(run, name, text) > _UNUSUAL)}</td>" for text in texts
    )
    return f'<tr><th scope="row">{page.escape(draw.short(name, 32))}</th>{cells}</tr>'


def _most_unusual(run: ReportRun, inputs: dict[str, str]) -> tuple[list[str], list[str]]:
    """The names of the features of a row that are shown, and of those that are folded."""
    distances = {name: _distance(run, name, text) for name, text in inputs.items()}
    first = sorted(inputs, key=lambda name: -distances[name])[:_SHOWN]
    return [name for name in inputs if name in first], [n for n in inputs if n not in first]


def _features(run: ReportRun, inputs: dict[str, str]) -> str:
    """The features of a row of a table: the most unusual ones, with the others folded."""
    shown, rest = _most_unusual(run, inputs)
    lists = [
        "".join(_feature(run, name, inputs[name]) for name in names) for names in (shown, rest)
    ]
    more = page.folded(f"{len(rest)} more features", f"<dl>{lists[1]}</dl>") if rest else ""
    return f"<dl>{lists[0]}</dl>{more}"


def _feature(run: ReportRun, name: str, text: str) -> str:
    value = _value(text, unusual=_distance(run, name, text) > _UNUSUAL)
    return f"<dt>{page.escape(draw.short(name, 32))}</dt><dd>{value}</dd>"


def _value(text: str, *, unusual: bool) -> str:
    value = page.escape(_brief(text))
    return f"<strong>{value}</strong>" if unusual else value


def _brief(text: str) -> str:
    """A cell of a table as short text: numbers rounded, long texts cut, "missing" for a gap."""
    (number,) = numbers_of([text])
    if math.isfinite(number) and len(text) > 7:
        return page.number(float(number))
    return draw.short(text, 40) if text else "missing"


def _distance(run: ReportRun, name: str, text: str) -> float:
    """How far a number is from the mean of the training rows, in standard deviations."""
    (number,) = numbers_of([text])
    fitted = _fitted_columns(run).get(name, {})
    if not fitted.get("scale") or fitted.get("mean") is None or not math.isfinite(number):
        return 0.0
    return float(abs(number - fitted["mean"]) / fitted["scale"])


def _fitted_columns(run: ReportRun) -> dict[str, dict[str, Any]]:
    preprocessing = (run.config.get("model") or {}).get("preprocessing") or {}
    return {column["name"]: column for column in preprocessing.get("columns") or []}


def _picture(i: int, pictures: Pictures, row: int) -> str:
    """The picture or sparkline of a sample of run i; "" if it has none."""
    place = pictures.places.get(i, {}).get(row)
    if place is None:
        return ""
    if (sheet := pictures.sheet_of.get(i)) is not None:
        _, columns, lines, _ = pictures.sheets[sheet]
        line, column = divmod(place, columns)
        position = f"{_percent(column, columns)} {_percent(line, lines)}"
        size = f"{100 * columns}% {100 * lines}%"
        return (
            f'<span class="look sheet-{sheet}" role="img" aria-label="the sample" '
            f'style="background-position: {position}; background-size: {size}"></span>'
        )
    return _sparkline(pictures.signals[pictures.signals_of[i]], place)


def _percent(place: int, count: int) -> str:
    """The position of a picture on its sheet in CSS: 0 % is the first, 100 % the last."""
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
