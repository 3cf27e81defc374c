"""Figures of a report: pure functions from arrays to what plotly.js draws, as JSON types.

Colours of text and grid come from the page's style sheet, which knows light, dark and paper.
Plotly reads some HTML in text, so every text that comes from a file goes through `plain`.
"""

import base64
import html
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh  # type: ignore[import-untyped]

Figure = dict[str, Any]
Array = NDArray[np.float64]

MAX_SIDE = 300
"""Rows of a similarity matrix; more are finer than a screen."""
MAX_BARS = 20
"""Values of a column that get a bar."""

MAX_CATEGORIES = 10
"""Values of a column that get a colour each."""

# Okabe and Ito's colours that stand out on white and on black, for lines and bars.
_LINES = ("#0072b2", "#e69f00", "#009e73", "#d55e00", "#56b4e9", "#cc79a7")
# Paul Tol's muted colours, for categories; the last one is for the rest.
_CATEGORIES = (
    *("#cc6677", "#332288", "#ddcc77", "#117733", "#88ccee"),
    *("#882255", "#44aa99", "#999933", "#aa4499", "#999999"),
)
_GREY = "#888888"
_REST = "(other)"
_AXIS = {"automargin": True, "zeroline": False}
_LEGEND = {"orientation": "h", "x": 0, "y": 1.0, "yanchor": "bottom"}


def plain(text: object, limit: int = 40) -> str:
    """Text that plotly shows letter by letter, its middle cut out if it is long.

    >>> plain("<b>bold</b>"), plain("a long file name.png", limit=11)
    ('&lt;b&gt;bold&lt;/b&gt;', 'a lon…e.png')
    """
    letters = str(text)
    if len(letters) > limit:
        half = limit // 2
        letters = f"{letters[:half]}…{letters[half - limit + 1 :]}"
    return html.escape(letters, quote=False)


def rounded(values: NDArray[Any]) -> list[float | None]:
    """Numbers to a thousandth or less of their range; what is not finite becomes None.

    >>> rounded(np.array([0.0, 12.34567, 60.0, np.nan]))
    [0.0, 12.35, 60.0, None]
    """
    finite = values[np.isfinite(values)]
    span = float(np.ptp(finite)) if len(finite) else 0.0
    span = span or float(np.abs(finite).max(initial=0.0)) or 1.0
    near = np.round(values.astype(np.float64), 3 - math.floor(math.log10(span)))
    return [float(value) if math.isfinite(value) else None for value in near]


def limits_of(values: NDArray[Any]) -> tuple[float, float]:
    """Least and largest finite number; 0 and 1 where there is none.

    >>> limits_of(np.array([3.0, np.nan, 5.0]))
    (3.0, 5.0)
    """
    finite = values[np.isfinite(values)]
    return (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 1.0)


# ------------------------------------------------------------------------------------- the curves


def training_figure(stages: Sequence[str], panels: Mapping[str, Array]) -> Figure:
    """Curves over the epochs of all stages, one panel below the other, a colour per stage.

    Args:
        stages: name of the stage of each epoch (n,).
        panels: values (n,) by the title of the panel; a panel without a value is left out.
    """
    shown = {title: values for title, values in panels.items() if np.isfinite(values).any()}
    names = list(dict.fromkeys(stages))
    of_stage = np.array(stages)
    epochs = np.arange(1, len(of_stage) + 1)
    data: list[Figure] = []
    layout = _layout(height=60 + 170 * len(shown))
    epoch = "epoch, all stages" if len(names) > 1 else "epoch"
    layout["xaxis"] = {"title": {"text": epoch}, "anchor": _axis(len(shown))}
    if len(epochs) <= 10:
        layout["xaxis"]["dtick"] = 1  # no half epochs
    layout |= {"showlegend": len(names) > 1, "legend": _LEGEND}
    for row, (title, values) in enumerate(shown.items(), start=1):
        layout[_axis(row, "yaxis")] = {"title": {"text": title}, "domain": _domain(row, len(shown))}
        for color, stage in enumerate(names):
            here = (of_stage == stage) & np.isfinite(values)
            if here.any():
                line = _line(epochs[here], values[here], plain(stage), color)
                line["showlegend"] = line["name"] not in {other["name"] for other in data}
                data.append(line | {"yaxis": _axis(row)})
    return {"data": data, "layout": layout}


def _axis(row: int, kind: str = "y") -> str:
    """Plotly's name of the vertical axis of a row, counted from 1 at the top."""
    return kind if row == 1 else f"{kind}{row}"


def _domain(row: int, rows: int) -> list[float]:
    """From where to where a row goes, in shares of the height, with a space below."""
    top, height = 1 - (row - 1) / rows, 1 / rows
    return [round(top - (height if rows == 1 else 0.86 * height), 4), round(top, 4)]


def _line(x: NDArray[Any], y: Array, name: str, color: int) -> Figure:
    return {
        "type": "scatter",
        "mode": "lines+markers" if len(x) < 3 else "lines",
        "x": x.tolist(),
        "y": rounded(y),
        "name": name,
        "legendgroup": name,
        "line": {"color": _LINES[color % len(_LINES)], "width": 2},
        "hovertemplate": "epoch %{x}: %{y}<extra>%{fullData.name}</extra>",
    }


# -------------------------------------------------------------------------------- the predictions


def prediction_figure(
    true: Array,
    predicted: Array,
    names: Sequence[str],
    *,
    target: str,
    limits: tuple[float, float],
) -> Figure:
    """Predicted against true values (n,), with the diagonal on which they agree.

    Args:
        true: (n,).
        predicted: (n,).
        names: what to call each sample.
        target: name of the target.
        limits: both axes; the same for all runs, so that they compare.
    """
    points = {
        "type": "scatter",
        "mode": "markers",
        "x": rounded(true),
        "y": rounded(predicted),
        "customdata": [plain(name) for name in names],
        "hovertemplate": "%{customdata}<br>true %{x}<br>predicted %{y}<extra></extra>",
        "marker": {"size": 5, "color": _LINES[0], "opacity": 0.55},
    }
    ends = list(limits)
    diagonal = {
        "type": "scatter",
        "mode": "lines",
        "x": ends,
        "y": ends,
        "hoverinfo": "skip",
        "line": {"color": _GREY, "dash": "dash", "width": 1.5},
    }
    layout = _layout(height=380)
    layout["xaxis"] = {"title": {"text": f"true {plain(target)}"}, "range": ends}
    layout["yaxis"] = {"title": {"text": f"predicted {plain(target)}"}, "range": ends}
    return {"data": [points, diagonal], "layout": layout}


def subgroup_figure(column: str, errors: Mapping[str, Mapping[str, tuple[int, float]]]) -> Figure:
    """Mean absolute error for each value of a column, a bar per run.

    Args:
        column: name of the column.
        errors: for each run, (number of samples, error) by value; nothing for a run without the
            column. Values are ordered as numbers
            where they are numbers; of more than 20, those with most samples are shown.
    """
    sizes: dict[str, int] = {}
    for of_run in errors.values():
        for value, (n, _) in of_run.items():
            sizes[value] = max(n, sizes.get(value, 0))
    largest = sorted(sizes, key=lambda value: -sizes[value])[:MAX_BARS]
    values = _in_order(largest)
    data = []
    for color, (run, of_run) in enumerate(errors.items()):
        here = [value for value in values if value in of_run]
        if not here:
            continue
        bars = {
            "type": "bar",
            "name": plain(run),
            "x": [values.index(value) for value in here],
            "y": rounded(np.array([of_run[value][1] for value in here], dtype=np.float64)),
            "customdata": [f"n = {of_run[value][0]:,}" for value in here],
            "hovertemplate": "%{x}: %{y}, %{customdata}<extra>%{fullData.name}</extra>",
            "marker": {"color": _LINES[color % len(_LINES)]},
        }
        data.append(bars)
    layout = _layout(height=320)
    # Positions with texts: values that look alike when cut short stay apart.
    layout["xaxis"] = {"title": {"text": plain(column)}, "tickvals": list(range(len(values)))}
    layout["xaxis"]["ticktext"] = [plain(value, 16) for value in values]
    layout["yaxis"] = {"title": {"text": "MAE"}, "rangemode": "tozero"}
    layout |= {"showlegend": len(errors) > 1, "legend": _LEGEND}
    return {"data": data, "layout": layout}


# ----------------------------------------------------------------------------------- the features


def project(features: Array, labels: Array) -> tuple[Array, tuple[float, float]]:
    """First two principal components (n, 2) of features (n, d), and their shares of the variance.

    Each component points to where the labels (n,) grow, so that maps of several runs compare.
    """
    centred = features - features.mean(axis=0)
    # The smaller of the two square matrices has the same leading eigenvalues.
    wide = centred.shape[1] > centred.shape[0]
    square = centred @ centred.T if wide else centred.T @ centred
    last = len(square) - 1
    values, vectors = eigh(square, subset_by_index=(max(0, last - 1), last))
    values, vectors = values[::-1].clip(0), vectors[:, ::-1]
    points = vectors * np.sqrt(values) if wide else centred @ vectors
    if points.shape[1] == 1:
        points, values = np.hstack([points, np.zeros_like(points)]), np.append(values, 0.0)
    for column in points.T:
        if (column * (labels - labels.mean())).sum() < 0:
            column *= -1
    shares = values / (np.trace(square) or 1.0)
    return points, (float(shares[0]), float(shares[1]))


class Scale(NamedTuple):
    """How a column becomes a colour: by its category, or between two numbers."""

    categories: tuple[str, ...]
    low: float = 0.0
    high: float = 1.0


def color_scale(values: NDArray[Any]) -> Scale:
    """A scale for the values of a column over all runs: numbers, or texts of any kind.

    Up to ten different texts are categories; of more, the nine most frequent ones are.

    >>> color_scale(np.array([3.0, 5.0])), color_scale(np.array(["b", "a", "b"])).categories
    (Scale(categories=(), low=3.0, high=5.0), ('a', 'b'))
    """
    if values.dtype.kind == "f":
        return Scale((), *limits_of(values))
    texts, counts = np.unique(values, return_counts=True)
    if len(texts) <= MAX_CATEGORIES:
        return Scale(tuple(_in_order(texts.tolist())))
    frequent = texts[np.argsort(-counts, kind="stable")[: MAX_CATEGORIES - 1]].tolist()
    return Scale((*_in_order(frequent), _REST))


def coloring(values: NDArray[Any], scale: Scale, title: str) -> Figure:
    """Marker and hover texts for the points of a map, from their values (n,) of a column."""
    bar: dict[str, Any] = {"title": {"text": plain(title, 18)}, "thickness": 12}
    bar |= {"outlinewidth": 0, "x": 1.0, "xpad": 4}
    marker: dict[str, Any] = {"size": 6, "line": {"width": 0.5, "color": _GREY}, "colorbar": bar}
    if not scale.categories:
        marker |= {"color": rounded(values), "colorscale": "Viridis"}
        marker |= {"cmin": scale.low, "cmax": scale.high}
        texts = ["-" if value is None else value for value in marker["color"]]
        return {"marker": marker, "text": [f"{plain(title)}: {text}" for text in texts]}
    codes = {text: code for code, text in enumerate(scale.categories)}
    count = len(codes)
    colors = _CATEGORIES[:count]
    if scale.categories[-1] == _REST:
        colors = (*_CATEGORIES[: count - 1], _CATEGORIES[-1])
    steps = [[(i + end) / count, color] for i, color in enumerate(colors) for end in (0, 1)]
    bar |= {"tickvals": list(range(count)), "ticktext": [plain(c, 14) for c in codes]}
    marker |= {"color": [codes.get(value, count - 1) for value in values.tolist()]}
    marker |= {"colorscale": steps, "cmin": -0.5, "cmax": count - 0.5}
    return {"marker": marker, "text": [f"{plain(title)}: {plain(v)}" for v in values.tolist()]}


def map_figure(
    points: Array,
    shares: tuple[float, float],
    names: Sequence[str],
    colorings: Sequence[Figure | None],
) -> Figure:
    """The features in two dimensions (n, 2), with the colourings between which the page switches.

    Args:
        points: from `project`.
        shares: from `project`.
        names: what to call each sample.
        colorings: from `coloring`; None where the run has no such column.
    """
    trace = {
        "type": "scatter",
        "mode": "markers",
        "x": rounded(points[:, 0]),
        "y": rounded(points[:, 1]),
        "customdata": [plain(name) for name in names],
        "hovertemplate": "%{customdata}<br>%{text}<extra></extra>",
    }
    no_column = {"marker": {"size": 6, "color": _GREY}, "text": ["no such column"] * len(points)}
    ways = [way or no_column for way in colorings]
    layout = _layout(height=400)
    layout["margin"] |= {"l": 32, "r": 8}  # no ticks: more room for the map
    for axis, number, share in (("xaxis", 1, shares[0]), ("yaxis", 2, shares[1])):
        title = f"component {number} ({share:.0%})"
        layout[axis] = {"title": {"text": title}, "showticklabels": False}
        layout[axis]["showgrid"] = False
    return {"data": [trace], "layout": layout, "colorings": ways}


def similarity_figure(features: Array, labels: Array, target: str) -> Figure:
    """Minus the L2 distance between features (n, d), rows and columns in the order of labels (n,).

    More than 300 samples are thinned evenly in that order.
    """
    order = np.argsort(labels, kind="stable")
    order = order[np.linspace(0, len(order) - 1, min(len(order), MAX_SIDE)).round().astype(int)]
    chosen = features[order]
    squares = (chosen**2).sum(axis=1)
    distances = np.sqrt((squares[:, None] + squares - 2 * chosen @ chosen.T).clip(0))
    np.fill_diagonal(distances, 0)
    largest = float(distances.max()) or 1.0
    # A byte per cell: finer steps are not seen, and the page stays small.
    levels = (255 - 255 * distances / largest).round().astype(np.uint8)
    side = len(order)
    ticks = np.unique(np.linspace(0, side - 1, min(side, 5)).round().astype(int))
    texts = [f"{value:.3g}" for value in labels[order][ticks]]
    axis = {"tickvals": ticks.tolist(), "ticktext": texts, "constrain": "domain"}
    bar = {"tickvals": [0, 127.5, 255], "ticktext": [f"{-largest:.3g}", f"{-largest / 2:.3g}", "0"]}
    below = {"orientation": "h", "yref": "container", "y": 0, "yanchor": "bottom"}
    below |= {"thickness": 12, "outlinewidth": 0}
    heatmap = {
        "type": "heatmap",
        "z": {
            "dtype": "u1",
            "bdata": base64.b64encode(levels.tobytes()).decode(),
            "shape": f"{side}, {side}",
        },
        "zmin": 0,
        "zmax": 255,
        "colorscale": "Viridis",
        "hoverinfo": "skip",
        "colorbar": bar | below,
    }
    layout = _layout(height=440)
    layout["margin"]["b"] = 100  # for the colours below
    layout["xaxis"] = axis | {"title": {"text": plain(target)}}
    layout["yaxis"] = axis | {"autorange": "reversed", "scaleanchor": "x"}
    return {"data": [heatmap], "layout": layout}


# --------------------------------------------------------------------------------- what they share


def _layout(height: int) -> dict[str, Any]:
    return {
        "height": height,
        "margin": {"l": 56, "r": 12, "t": 28, "b": 48},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": "system-ui, sans-serif", "size": 12},
        "showlegend": False,
        "template": {"layout": {"xaxis": _AXIS, "yaxis": _AXIS}},
    }


def _in_order(values: Sequence[str]) -> list[str]:
    """Values by number if all are numbers, by letter otherwise."""
    try:
        return sorted(values, key=float)
    except ValueError:
        return sorted(values)
