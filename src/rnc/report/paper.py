"""The figures of a report for print: PNG and SVG files, as wide as a column of a paper.

This file, plates.py and experiments/pictures.py are the only ones that import matplotlib (extra:
figures). Text is shown as it is: a dollar sign does not start a formula.
"""

import base64
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rnc.files import write_file
from rnc.report.figures import CATEGORY_COLORS, RUN_COLORS, STAGE_COLORS, Figure, file_name, short

try:
    import matplotlib as mpl
    from matplotlib.axes import Axes
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.colors import ListedColormap
    from matplotlib.figure import Figure as Drawing
    from matplotlib.lines import Line2D
except ImportError as error:
    raise ImportError(
        "Figures for papers need matplotlib: pip install 'rank-n-contrast[figures]'."
    ) from error

WIDTH = 3.3
"""In inches: one of two columns."""

STYLE: dict[Any, Any] = {
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "lines.linewidth": 1.2,
    "svg.fonttype": "path",  # looks the same without the font
    "svg.hashsalt": "rnc",  # equal numbers give equal files
    "text.parse_math": False,
    "savefig.dpi": 300,
}
_GREY = "#9aa3ad"
DASHES: tuple[Any, ...] = ("-", "--", ":", "-.")
"""Dashes of the lines of a figure."""


def draw_figures(figures: Sequence[Figure], data: dict[str, Any], folder: Path) -> list[Path]:
    """Write each figure as PNG and SVG. A map is written once for every column that colours it.

    `data` are the samples that the figures show, from `samples.page_data`.
    """
    written: list[Path] = []
    taken: dict[str, int] = {}
    for figure in figures:
        for name, drawing in _drawings(figure, data):
            taken[name] = taken.get(name, 0) + 1
            stem = name if taken[name] == 1 else f"{name}-{taken[name]}"
            for ending in ("png", "svg"):
                path = folder / f"{stem}.{ending}"
                with mpl.rc_context(STYLE):
                    write_drawing(drawing, path, ending)
                written.append(path)
    return written


def write_drawing(drawing: Drawing, path: Path, ending: str) -> None:
    """Write a drawing as png or svg. The same drawing gives the same file."""
    dated: dict[str, Any] = {"metadata": {"Date": None}} if ending == "svg" else {}
    write_file(path, lambda file: drawing.savefig(file, format=ending, **dated))


def _drawings(figure: Figure, data: dict[str, Any]) -> list[tuple[str, Drawing]]:
    with mpl.rc_context(STYLE):
        if figure["kind"] != "map":
            return [(figure["file"], _DRAWERS[figure["kind"]](figure))]
        values = data["runs"][figure["run"]]["values"]
        return [
            (file_name(figure["file"], "by", column["name"]), _map(figure, column, values[number]))
            for number, column in enumerate(data["columns"])
            if values[number] is not None
        ]


def _sheet(height: float, rows: int = 1, shares: Sequence[float] = (1,)) -> tuple[Drawing, Any]:
    drawing = Drawing(figsize=(WIDTH, height), layout="constrained")
    FigureCanvasAgg(drawing)
    axes = drawing.subplots(rows, 1, sharex=True, squeeze=False, height_ratios=list(shares))
    return drawing, axes[:, 0]


def _color(color: int | str) -> str:
    if isinstance(color, int):
        return RUN_COLORS[color % len(RUN_COLORS)]
    kind, _, number = color.partition("-")
    return STAGE_COLORS[int(number) % len(STAGE_COLORS)] if kind == "stage" else _GREY


def _floats(values: Sequence[float | None]) -> NDArray[np.float64]:
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)


def _legend(drawing: Drawing, entries: Sequence[Figure]) -> None:
    if entries:
        lines = [
            Line2D([], [], color=_color(e["color"]), linestyle=DASHES[e["dash"] % 4])
            for e in entries
        ]
        names = [e["name"] for e in entries]
        drawing.legend(lines, names, loc="outside upper center", ncols=2, frameon=False)


def _curves(figure: Figure) -> Drawing:
    shares = [panel.get("height", 1) for panel in figure["panels"]]
    drawing, axes = _sheet(0.7 + 1.15 * sum(shares), len(shares), shares)
    for ax, panel in zip(axes, figure["panels"], strict=True):
        _panel(ax, panel)
        ax.set_ylabel(panel["title"])
    _x_axis(axes[-1], figure)
    _legend(drawing, figure["legend"])
    return drawing


def _panels(figure: Figure) -> Drawing:
    count = len(figure["panels"])
    drawing = Drawing(figsize=(WIDTH, 0.4 + 1.5 * count), layout="constrained")
    FigureCanvasAgg(drawing)
    axes = drawing.subplots(count, 1, squeeze=False)[:, 0]
    for ax, curves in zip(axes, figure["panels"], strict=True):
        _panel(ax, curves["panels"][0])
        ax.set_title(curves["title"], loc="left")
        _x_axis(ax, curves)
    _legend(drawing, figure["legend"])
    return drawing


def _panel(ax: Axes, panel: Figure) -> None:
    for mark in panel["marks"]:
        _MARKS[mark["mark"]](ax, mark)
    if panel.get("zero"):
        ax.set_ylim(bottom=0)
    if panel.get("log"):
        ax.set_yscale("log")


def _x_axis(ax: Any, figure: Figure) -> None:
    ax.set_xlabel(figure["x"]["title"])
    if figure["x"]["whole"]:
        ax.xaxis.get_major_locator().set_params(integer=True)


def _line(ax: Axes, mark: Figure) -> None:
    style: dict[str, Any] = {"linestyle": DASHES[mark["dash"] % 4], "color": _color(mark["color"])}
    style |= {"marker": "o", "markersize": 2.5} if mark["dots"] else {}
    ax.plot(_floats(mark["x"]), _floats(mark["y"]), **style)


def _band(ax: Axes, mark: Figure) -> None:
    low, high = _floats(mark["low"]), _floats(mark["high"])
    ax.fill_between(_floats(mark["x"]), low, high, color=_color(mark["color"]), alpha=0.18, lw=0)


def _steps(ax: Axes, mark: Figure) -> None:
    counts, edges = _floats(mark["y"]), _floats(mark["edges"])
    ax.stairs(np.nan_to_num(counts), edges, fill=True, color=_color(mark["color"]))


_MARKS: dict[str, Callable[[Axes, Figure], None]] = {"line": _line, "band": _band, "steps": _steps}


def _rows(figure: Figure) -> Drawing:
    groups, y = figure["groups"], 0.0
    count = sum(len(group["bars"]) + 0.6 for group in groups)
    drawing, (ax,) = _sheet(0.7 + 0.13 * count)
    middles = []
    for group in groups:
        middles.append(y + (len(group["bars"]) - 1) / 2)
        for bar in group["bars"]:
            ax.barh(y, bar["value"] or 0, height=0.9, color=_color(bar["color"]))
            if bar["low"] is not None and bar["high"] is not None:
                ax.plot([bar["low"], bar["high"]], [y, y], color="black", lw=0.8)
            y += 1
        y += 0.6
    ax.set_yticks(middles, [short(group["name"], 24) for group in groups])
    ax.set_ylim(y - 0.6, -1)
    ax.set_xlabel(figure["axis"])
    _legend(drawing, figure["legend"])
    return drawing


def _heat(figure: Figure) -> Drawing:
    drawing, (ax,) = _sheet(3.3)
    labels = _floats(figure["labels"])
    levels = np.frombuffer(base64.b64decode(figure["levels"]), np.uint8) / 255
    values = figure["low"] + levels * (figure["high"] - figure["low"])
    picture = ax.imshow(values.reshape(len(labels), -1), cmap="viridis", interpolation="nearest")
    places = np.unique(np.linspace(0, len(labels) - 1, 5).round().astype(int))
    texts = [f"{labels[place]:.3g}" for place in places]
    ax.set_xticks(places, texts)
    ax.set_yticks(places, texts)
    ax.set_xlabel(figure["target"])
    drawing.colorbar(picture, ax=ax, label=figure["name"], shrink=0.8).outline.set_visible(False)
    return drawing


def _scatter(figure: Figure) -> Drawing:
    drawing, (ax,) = _sheet(3.1)
    color = _color(figure["color"])
    points = (_floats(figure["x"]), _floats(figure["y"]))
    ax.scatter(*points, s=4, color=color, alpha=0.5, linewidths=0, rasterized=True)
    if band := figure.get("band"):
        predicted, low, high = (_floats(band[key]) for key in ("predicted", "low", "high"))
        ax.fill_betweenx(predicted, low, high, color=color, alpha=0.16, lw=0)
    ax.plot(figure["limits"], figure["limits"], color="black", lw=0.8, ls="--")
    x_title, y_title = figure["titles"]
    ax.set(xlim=figure["limits"], ylim=figure["limits"], aspect="equal")
    ax.set(xlabel=x_title, ylabel=y_title)
    return drawing


def _map(figure: Figure, column: Figure, values: Sequence[Any]) -> Drawing:
    drawing, (ax,) = _sheet(2.7)
    shown = _floats([values[place] for place in figure["points"]])
    count = len(column["categories"])
    colors = [*CATEGORY_COLORS[: count - 1], CATEGORY_COLORS[-1 if column["rest"] else count - 1]]
    scale: dict[str, Any] = {"cmap": "viridis", "vmin": column["low"], "vmax": column["high"]}
    if count:
        scale = {"cmap": ListedColormap(colors), "vmin": -0.5, "vmax": count - 0.5}
    dots = {"s": 6, "edgecolors": "#00000055", "linewidths": 0.2, "rasterized": True}
    picture = ax.scatter(_floats(figure["x"]), _floats(figure["y"]), c=shown, **scale, **dots)
    bar = drawing.colorbar(picture, ax=ax, label=column["name"])
    if count:
        bar.set_ticks(range(count), labels=column["categories"])
    bar.outline.set_visible(False)
    x_title, y_title = figure["titles"]
    ax.set(xticks=[], yticks=[], xlabel=x_title, ylabel=y_title)
    return drawing


_DRAWERS: dict[str, Callable[[Figure], Drawing]] = {
    "curves": _curves,
    "panels": _panels,
    "rows": _rows,
    "heat": _heat,
    "scatter": _scatter,
}
