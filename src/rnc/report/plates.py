"""Pictures of several panels, such as the figures of the paper, as PNG and SVG (extra: figures).

Each function draws one panel on axes; `sheet` makes the axes and `write_plate` the files. Call all
of them within `mpl.rc_context(STYLE)`, as `experiments/pictures.py` does.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.cm import ScalarMappable
from matplotlib.colors import ListedColormap, Normalize
from matplotlib.figure import Figure as Drawing
from matplotlib.lines import Line2D
from matplotlib.ticker import NullFormatter, NullLocator
from numpy.typing import NDArray

from rnc.metrics import Columns
from rnc.report.figures import CATEGORY_COLORS, RUN_COLORS, short
from rnc.report.paper import DASHES, write_drawing

WIDE = 6.8
"""In inches: both columns of a page."""
SEEN, UNSEEN = "#cfe3f5", "#f7d4d9"
DOT = 7
"""The size of a point in a map."""
POINT: dict[str, Any] = {"linewidths": 0.2, "edgecolors": "#00000055", "rasterized": True}


def sheet(rows: int, columns: int, *, side: float, wide: float = 1.0) -> tuple[Drawing, Any]:
    """A drawing and its axes (rows, columns). A panel is `side` high and `side * wide` wide."""
    size = (min(WIDE, columns * side * wide), rows * side)
    drawing = Drawing(figsize=size, layout="constrained")
    FigureCanvasAgg(drawing)
    return drawing, drawing.subplots(rows, columns, squeeze=False)


def write_plate(drawing: Drawing, path: Path) -> list[Path]:
    """Write PATH.png and PATH.svg."""
    paths = [path.with_name(f"{path.name}.{ending}") for ending in ("png", "svg")]
    for one in paths:
        write_drawing(drawing, one, one.suffix[1:])
    return paths


def say_instead(ax: Axes, words: str) -> None:
    """Show words instead of a panel, such as why there is nothing to draw."""
    ax.set_axis_off()
    ax.text(0.5, 0.5, words, ha="center", va="center", wrap=True, transform=ax.transAxes)


# ----------------------------------------------------------------------------------------- maps


def draw_numbers(ax: Axes, points: Columns, values: Columns, limits: tuple[float, float]) -> Any:
    """Draw a map (k, 2) coloured by numbers (k,); returns the mappable for `add_scale`."""
    ax.set(xticks=[], yticks=[])
    low, high = limits
    style: dict[str, Any] = {"cmap": "viridis", "vmin": low, "vmax": high, **POINT}
    return ax.scatter(points[:, 0], points[:, 1], DOT, values, **style)


def add_scale(drawing: Drawing, mappable: Any, axes: Any, label: str) -> None:
    """Add a bar of colours beside some axes."""
    bar = drawing.colorbar(mappable, ax=axes, label=short(label), shrink=0.85, pad=0.02)
    bar.outline.set_visible(False)


def scale_of(limits: tuple[float, float]) -> ScalarMappable:
    """A mappable for `add_scale` if no panel has a map."""
    return ScalarMappable(Normalize(*limits), "viridis")


def draw_classes(ax: Axes, points: Columns, classes: NDArray[np.str_], names: Sequence[str]) -> Any:
    """Draw a map (k, 2) coloured by the class of each point, with ten colours at most."""
    ax.set(xticks=[], yticks=[])
    codes = np.array([names.index(name) for name in classes.tolist()])
    # Draw points in random order: class by class, the last class would cover the others.
    order = np.random.default_rng(0).permutation(len(codes))
    colors = ListedColormap(list(CATEGORY_COLORS))
    style: dict[str, Any] = {"cmap": colors, "vmin": -0.5, "vmax": len(CATEGORY_COLORS) - 0.5}
    x, y = points[order].T
    return ax.scatter(x, y, DOT, codes[order], **style, **POINT)


def add_names(drawing: Drawing, axes: Any, names: Sequence[str], title: str) -> None:
    """Add a legend of classes beside some axes."""
    marks = [
        Line2D([], [], marker="o", ls="", color=CATEGORY_COLORS[i], markersize=4)
        for i in range(len(names))
    ]
    axes.legend(
        marks,
        [short(name, 14) for name in names],
        title=short(title),
        loc="center left",
        bbox_to_anchor=(1.0, 0.5),
        frameon=False,
    )


# ------------------------------------------------------------------------------ curves and bars


def draw_curve(
    ax: Axes, x: Columns, middles: Columns, spreads: Columns, name: str, number: int
) -> None:
    """Draw a line with dots, and a band of one standard deviation where it is known."""
    color = RUN_COLORS[number % len(RUN_COLORS)]
    dash = DASHES[number % len(DASHES)]
    ax.plot(x, middles, color=color, linestyle=dash, marker="o", markersize=3, label=short(name))
    known = np.isfinite(spreads)
    if known.any():
        low, high = (middles - spreads)[known], (middles + spreads)[known]
        ax.fill_between(x[known], low, high, color=color, alpha=0.18, lw=0)


def use_sizes(ax: Axes, sizes: Sequence[int]) -> None:
    """Give the x axis a logarithmic scale with these numbers of samples as ticks."""
    ax.set_xscale("log")
    ax.set_xticks(list(sizes), [f"{size:,}" for size in sizes])
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_minor_formatter(NullFormatter())


def draw_labels(
    ax: Axes, values: Columns, seen: Sequence[tuple[float, float]], span: tuple[float, float]
) -> None:
    """Draw how often each value occurs. Seen and unseen ranges have different shades."""
    ax.axvspan(*span, color=UNSEEN, lw=0)
    for low, high in seen:
        ax.axvspan(low, high, color=SEEN, lw=0)
    ax.hist(values, bins=40, range=span, color=RUN_COLORS[0])
    ax.set_xlim(*span)


# ------------------------------------------------------------------------------ matrices, samples


def draw_matrix(ax: Axes, values: NDArray[Any], labels: Columns) -> Any:
    """Draw a similarity matrix (k, k) in the order of labels (k,); returns the mappable."""
    shown = ax.imshow(values, cmap="viridis", interpolation="nearest", rasterized=True)
    places = np.unique(np.linspace(0, len(labels) - 1, 4).round().astype(int))
    texts = [f"{labels[place]:.3g}" for place in places]
    ax.set_xticks(places, texts)
    ax.set_yticks(places, texts)
    return shown


def draw_sample(ax: Axes, sample: NDArray[Any] | None, label: str) -> None:
    """Draw an image (c, h, w) in 0..1, a signal (c, l), or only the label if there is neither."""
    ax.set(xticks=[], yticks=[])
    if sample is None:
        ax.set_aspect("equal", adjustable="box")
        ax.text(0.5, 0.5, label, ha="center", va="center", fontsize=13, transform=ax.transAxes)
    elif sample.ndim == 3:
        pixels = np.clip(sample, 0, 1).transpose(1, 2, 0)
        grey: dict[str, Any] = {"cmap": "gray", "vmin": 0, "vmax": 1}
        flat = pixels if pixels.shape[2] == 3 else pixels[:, :, 0]
        ax.imshow(flat, interpolation="nearest", rasterized=True, **grey)
    else:
        for channel, values in enumerate(sample[:3]):
            ax.plot(values, color=RUN_COLORS[channel], lw=0.7)
        ax.set_box_aspect(1)


def frame(ax: Axes, color: str) -> None:
    """Draw a border in a colour."""
    for spine in ax.spines.values():
        spine.set(visible=True, color=color, linewidth=2)
