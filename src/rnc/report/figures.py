"""Figures of a report: pure functions from arrays to a description of JSON types.

charts.js or points.js draws a description in the page, and paper.py draws the same one for print.
A kind of figure has one function here, one in a script and one in paper.py, and a line in the table
of each of the two.

curves   panels of lines above one another, with a shared x axis
panels   several such figures side by side, each with its own axes
rows     bars with intervals, one row each, in groups
heat     a square matrix
scatter  predicted against true values
map      features in two dimensions, coloured by a column that the reader chooses

Text in a description is plain text. Code that draws it must not interpret markup in it. A colour is
the number of a run, "stage-0" and so on for a stage, or "soft" for the background.
"""

import base64
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rnc.metrics import Columns
from rnc.run.answer import number
from rnc.run.groups import natural_key

Figure = dict[str, Any]

MAX_BARS = 20
"""Most values of a column that get a bar."""

LOG_FROM = 30
"""Curves get a logarithmic axis if their largest value is this many times the smallest."""

# One for each run: those of Okabe and Ito's colours that stand out on white and on black.
RUN_COLORS = ("#0072b2", "#e69f00", "#009e73", "#d55e00", "#56b4e9", "#cc79a7")
# Colours of the stages of a training. None is the colour of a run.
STAGE_COLORS = ("#5a4fcf", "#b0413e", "#2e7d32", "#8d6e00", "#00838f", "#a0408f")
# Paul Tol's muted colours, with the darkest one lightened for dark pages; grey is for the rest.
CATEGORY_COLORS = (
    *("#cc6677", "#5a4fcf", "#ddcc77", "#117733", "#88ccee"),
    *("#882255", "#44aa99", "#999933", "#aa4499", "#999999"),
)
# viridis in equal steps: they look even, and colour-blind readers see the same order.
NUMBER_COLORS = (
    *("#440154", "#482475", "#414487", "#355f8d", "#2a788e", "#21918c"),
    *("#22a884", "#44bf70", "#7ad151", "#bddf26", "#fde725"),
)


class ErrorGroup(NamedTuple):
    """Test samples that share a value, and their mean absolute error, NaN if it is not known."""

    value: str
    n: int
    mae: float
    low: float | None = None
    high: float | None = None


class TargetBins(NamedTuple):
    """Error by the value of the target, in b bins with b + 1 edges; NaN for an empty bin."""

    edges: Columns
    n: Columns
    mae: Columns
    low: Columns
    high: Columns
    n_train: Columns | None
    """Training samples in each bin; None if they are not known."""


class SimilarityMatrix(NamedTuple):
    """Similarities (k, k) of features, rows and columns in the order of the labels (k,)."""

    target: str
    labels: Columns
    values: Columns


def short(text: object, limit: int = 40) -> str:
    """Text with its middle cut out if it is long.

    >>> short("a long file name.png", limit=11)
    'a lon…e.png'
    """
    letters, half = str(text), limit // 2
    return letters if len(letters) <= limit else f"{letters[:half]}…{letters[half - limit + 1 :]}"


def file_name(*words: str) -> str:
    """A file name from any words.

    >>> file_name("map", "RnC(L1)", "../x")
    'map-rnc-l1-x'
    """
    letters = re.sub(r"[^a-z0-9]+", "-", "-".join(words).lower())
    return letters.strip("-")[:80]


def rounded(values: NDArray[Any]) -> list[float | None]:
    """Numbers, rounded to a thousandth of their range or finer. NaN and infinity become None.

    >>> rounded(np.array([0.0, 12.34567, 60.0, np.nan]))
    [0.0, 12.35, 60.0, None]
    """
    finite = values[np.isfinite(values)]
    span = float(np.ptp(finite)) if len(finite) else 0.0
    span = span or float(np.abs(finite).max(initial=0.0)) or 1.0
    near = np.round(values.astype(np.float64), 3 - math.floor(math.log10(span)))
    return [float(value) if math.isfinite(value) else None for value in near]


def limits_of(values: NDArray[Any]) -> tuple[float, float]:
    """The least and the largest finite number; 0 and 1 if there is none.

    >>> limits_of(np.array([3.0, np.nan, 5.0]))
    (3.0, 5.0)
    """
    finite = values[np.isfinite(values)]
    return (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 1.0)


# --------------------------------------------------------------------------------------- curves


def line(
    x: NDArray[Any], y: Columns, name: str, *, color: int | str, dash: int = 0, dots: bool = False
) -> Figure:
    """A line through points (n,). Points with a y that is not finite are left out."""
    kept = np.isfinite(y)
    return {
        "mark": "line",
        "name": short(name),
        "x": rounded(x[kept].astype(np.float64)),
        "y": rounded(y[kept]),
        "color": color,
        "dash": dash,
        "dots": dots or int(kept.sum()) < 3,
    }


def curves(x_title: str, panels: Sequence[Figure], *, whole_numbers: bool = False) -> Figure:
    """Panels that share their x axis, on request with ticks at whole numbers only.

    A panel is {"title", "marks", "zero": whether the y axis starts at 0, "height": relative,
    "log": whether the y axis is logarithmic}.
    """
    lines = [mark for panel in panels for mark in panel["marks"] if mark["mark"] == "line"]
    return {
        "kind": "curves",
        "x": {"title": x_title, "whole": whole_numbers},
        "panels": list(panels),
        "legend": _legend((mark["name"], mark["color"], mark["dash"]) for mark in lines),
    }


def _legend(entries: Iterable[tuple[str, int | str, int]]) -> list[Figure]:
    """A legend of (name, colour, dash), each once; [] if there is only one."""
    legend = [{"name": n, "color": c, "dash": d} for n, c, d in dict.fromkeys(entries)]
    return legend if len(legend) > 1 else []


def training_figure(
    stages: Sequence[str], epochs: Columns, errors: Columns, losses: Mapping[str, Columns]
) -> Figure:
    """The validation error over all stages, then the losses of each stage, a colour per stage.

    Losses of different stages cannot be compared, so each has its own panel and axis. All arguments
    have a value per epoch: the name of its stage, its number in the stage, the error, and by title
    the losses. Curves without a value are left out. So are single points, unless there is nothing
    else.
    """
    names = list(dict.fromkeys(stages))
    here = {stage: np.array(stages) == stage for stage in names}
    colors = {stage: f"stage-{number}" for number, stage in enumerate(names)}
    count = np.arange(1, len(stages) + 1)
    over_all = "epoch, all stages" if len(names) > 1 else "epoch"
    known = [stage for stage in names if np.isfinite(errors[here[stage]]).any()]
    lines = [line(count[here[s]], errors[here[s]], s, color=colors[s]) for s in known]
    panels = [_small_panel("validation error", over_all, lines)] if known else []
    for stage in names:
        for title, values in losses.items():
            x, y = epochs[here[stage]], values[here[stage]]
            if np.isfinite(y).any():
                name = f"{stage}: {title}" if len(names) > 1 else title
                marks = [line(x, y, stage, color=colors[stage])]
                panels.append(_small_panel(name, "epoch", marks))
    curved = [
        panel for panel in panels if any(len(m["x"]) > 1 for m in panel["panels"][0]["marks"])
    ]
    legend = _legend((stage, colors[stage], 0) for stage in names)
    return {"kind": "panels", "panels": curved or panels, "legend": legend}


def _small_panel(title: str, x_title: str, marks: Sequence[Figure]) -> Figure:
    """One panel as a separate figure, with a logarithmic axis if values differ much."""
    values = [value for mark in marks for value in mark["y"]]
    log = min(values) > 0 and max(values) >= LOG_FROM * min(values)
    panel = {"title": title, "marks": list(marks), "zero": False, "log": log}
    return curves(x_title, [panel], whole_numbers=True) | {"title": title, "legend": []}


def bins_figure(
    target: str, runs: Sequence[tuple[str, int, TargetBins]], *, tall: bool = False
) -> Figure:
    """The error by the value of a target, and in a panel below it the number of samples.

    `runs` are the name, colour and bins of each run. A tall figure is as high as a scatter plot.
    """
    above = []
    for name, color, bins in runs:
        centres = (bins.edges[:-1] + bins.edges[1:]) / 2
        known = np.isfinite(bins.low) & np.isfinite(bins.high)
        if known.any():
            x, low, high = (rounded(part[known]) for part in (centres, bins.low, bins.high))
            above.append({"mark": "band", "color": color, "x": x, "low": low, "high": high})
        above.append(line(centres, bins.mae, name, color=color, dots=True))
    # Runs on the same data have the same counts, so only those of the first run are drawn.
    bins = runs[0][2]
    counts, what = (bins.n, "test") if bins.n_train is None else (bins.n_train, "training")
    steps = {"mark": "steps", "edges": rounded(bins.edges), "y": rounded(counts), "color": "soft"}
    panels = [
        {"title": "mean absolute error", "marks": above, "zero": True, "height": 2 if tall else 1},
        {
            "title": f"{what} samples",
            "marks": [steps],
            "zero": True,
            "height": 0.9 if tall else 0.45,
        },
    ]
    return curves(short(target), panels)


# ----------------------------------------------------------------------------------------- rows


def rows(
    axis: str,
    groups: Mapping[str, Sequence[tuple[str, int | str, ErrorGroup]]],
    *,
    labels: bool = False,
) -> Figure:
    """Bars with intervals: for each group, (name, colour, values) of every bar.

    With `labels`, the value is written at the end of each bar.
    """
    drawn = []
    for title, bars in groups.items():
        shown = []
        for name, color, group in bars:
            value, low, high = (
                None if one is None else rounded(np.array([one]))[0] for one in group[2:]
            )
            bar = {"name": short(name), "color": color, "value": value, "n": group.n}
            bar |= {"low": low, "high": high}
            shown.append(bar | ({"label": number(group.mae)} if labels else {}))
        drawn.append({"name": short(title, 60), "bars": shown})
    legend = _legend((short(name), color, 0) for bars in groups.values() for name, color, _ in bars)
    return {"kind": "rows", "axis": axis, "groups": drawn, "legend": legend}


def subgroup_figure(runs: Sequence[tuple[str, int, Sequence[ErrorGroup]]]) -> Figure:
    """Mean absolute error for each value of a column, a bar per run.

    `runs` are the name, colour and groups of each run. Values that are numbers are sorted as
    numbers. If there are more than 20, those with the most samples are shown.
    """
    sizes: dict[str, int] = {}
    for _, _, groups in runs:
        for group in groups:
            sizes[group.value] = max(group.n, sizes.get(group.value, 0))
    largest = sorted(sizes, key=lambda value: -sizes[value])[:MAX_BARS]
    bars = {
        value: [
            (name, color, group)
            for name, color, groups in runs
            for group in groups
            if group.value == value
        ]
        for value in sorted(largest, key=natural_key)
    }
    # Values that look the same when shortened stay separate, since the figure has a list of groups.
    return rows(
        "mean absolute error", {value or "(empty)": of_value for value, of_value in bars.items()}
    )


# ------------------------------------------------------------------------------- points and pairs


def scatter(
    true: Columns, predicted: Columns, *, target: str, limits: tuple[float, float]
) -> Figure:
    """Predicted against true values (n,), with the diagonal on which they agree.

    Both axes have these limits. They are the same for all runs, so that figures can be compared.
    """
    return {
        "kind": "scatter",
        "x": rounded(true),
        "y": rounded(predicted),
        "limits": list(limits),
        "titles": [f"true {short(target)}", f"predicted {short(target)}"],
    }


def point_map(points: Columns, titles: tuple[str, str]) -> Figure:
    """Features in two dimensions (n, 2), with the titles of the axes."""
    x, y = points.T
    return {"kind": "map", "titles": list(titles), "x": rounded(x), "y": rounded(y)}


def heat(
    matrix: SimilarityMatrix, *, name: str, limits: tuple[float, float] | None = None
) -> Figure:
    """A similarity matrix. `name` is that of the similarity, `limits` the ends of the colours."""
    low, high = limits or limits_of(matrix.values)
    span = (high - low) or 1.0
    low, high = low + 0.0, high + 0.0  # no minus zero
    # A byte per cell keeps the page small, and nobody would see finer steps.
    levels = ((matrix.values - low) / span * 255).round().clip(0, 255).astype(np.uint8)
    return {
        "kind": "heat",
        "name": name,
        "target": short(matrix.target),
        "labels": rounded(matrix.labels),
        "low": low,
        "high": high,
        "levels": base64.b64encode(levels.tobytes()).decode(),
    }
