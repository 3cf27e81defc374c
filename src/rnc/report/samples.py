"""The test samples that a page shows: which ones, their values, and how they look."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rnc.report import features as space
from rnc.report.figures import rounded, short
from rnc.report.runs import Key, Run, thin
from rnc.report.thumbnails import Sheet, Thumbnails, make_sheets, sparklines

Array = NDArray[np.float64]
Rows = NDArray[np.int64]

WORST = 12
"""Samples of a run in the gallery."""


class Placed(NamedTuple):
    """A run's features in two dimensions, thinned."""

    rows: Rows
    points: Array
    titles: tuple[str, str]
    method: str
    total: int
    """Samples before thinning."""


class Shown(NamedTuple):
    """What a page shows of one run. Rows are places in predictions.csv."""

    run: Run
    color: int
    rows: Rows
    """Every row that some figure shows, ascending."""
    drawn: Rows
    """Rows of the figures of predictions."""
    worst: Rows
    """The largest errors first."""
    placed: Placed | None
    thumbnails: Thumbnails | None
    looks: dict[int, int]
    """Place among the pictures or signals by row."""

    def places(self, rows: Rows) -> list[int]:
        """Places of rows among all that are shown."""
        return [int(place) for place in np.searchsorted(self.rows, rows)]


class Looks(NamedTuple):
    """Pictures of all runs: the sheets and signals, and which of them each run uses."""

    sheets: list[Sheet]
    sheet_of: list[int | None]
    signals: list[dict[str, Any]]
    signals_of: list[int | None]


def show(run: Run, color: int) -> Shown:
    """Choose what to show of a run."""
    known = np.flatnonzero(np.isfinite(run.errors))
    worst = known[np.argsort(-run.errors[known], kind="stable")[:WORST]]
    drawn = known[thin(len(known))]
    placed = _placed(run)
    parts = [drawn, worst, np.empty(0, np.int64) if placed is None else placed.rows]
    pictures = run.thumbnails
    if pictures is not None:
        pictures = pictures.at(thin(len(pictures.rows)))
    looks = {} if pictures is None else {int(row): i for i, row in enumerate(pictures.rows)}
    rows = np.unique(np.concatenate(parts))
    return Shown(run, color, rows, drawn, worst, placed, pictures, looks)


def _placed(run: Run) -> Placed | None:
    if "map" in run.analyses:
        method, rows, points = run.analyses["map"]
        kept = thin(len(rows))
        method = {"pca": "PCA", "tsne": "t-SNE", "umap": "UMAP"}.get(method, method)
        titles = (f"{method} 1", f"{method} 2")
        return Placed(rows[kept], points[kept], titles, method, len(rows))
    if run.features is None:
        return None
    rows = run.features.rows
    points, shares = space.project(run.features.values, run.true[rows, 0])
    first, second = (f"component {i + 1} ({share:.0%})" for i, share in enumerate(shares))
    return Placed(rows, points, (first, second), "PCA", len(rows))


def looks_of(shown: Sequence[Shown]) -> Looks:
    """The pictures and signals of all runs; runs that have the same ones share them."""
    sheets, sheet_of = make_sheets([its.thumbnails for its in shown])
    signals: list[dict[str, Any]] = []
    signals_of: list[int | None] = []
    for its in shown:
        if its.thumbnails is None or its.thumbnails.signals is None:
            signals_of.append(None)
            continue
        lines = sparklines(its.thumbnails.signals)
        if lines not in signals:
            signals.append(lines)
        signals_of.append(signals.index(lines))
    return Looks(sheets, sheet_of, signals, signals_of)


def color_columns(shown: Sequence[Shown]) -> list[tuple[Key, space.Scale, list[list[Any] | None]]]:
    """Columns that colour points: each with its scale over all runs, and its values in each."""
    tables = [its.run.columns() for its in shown]
    keys = list(dict.fromkeys(key for table in tables for key in table))
    keys.sort(key=lambda key: ("target", "column", "prediction", "error").index(key.kind))
    found = []
    for key in keys:
        empty = np.empty(0, np.float64 if key.kind != "column" else np.str_)
        parts = [
            table.get(key, empty)[its.rows if key in table else slice(0)]
            for table, its in zip(tables, shown, strict=True)
        ]
        values = space.alike(parts)
        scale = _scale(key, np.concatenate(values))
        codes = [
            (space.codes(its, scale) if scale.categories else rounded(its)) if len(its) else None
            for its in values
        ]
        found.append((key, scale, codes))
    return found


def _scale(key: Key, values: NDArray[Any]) -> space.Scale:
    if key.kind != "error":
        return space.color_scale(values)
    known = values[np.isfinite(values)]
    # A few large errors would leave one colour for all the others.
    return space.Scale((), 0.0, float(np.quantile(known, 0.98)) if len(known) else 1.0)


def page_data(shown: Sequence[Shown], looks: Looks) -> dict[str, Any]:
    """Samples for the scripts of the page, in JSON types."""
    columns = color_columns(shown)
    runs = []
    for i, its in enumerate(shown):
        table = its.run.predictions
        names = [] if table is None else table["name"].iloc[its.rows]
        sheet = looks.sheet_of[i]
        count = looks.sheets[sheet].pictures if sheet is not None else len(its.looks)
        found = [its.looks.get(int(row), -1) for row in its.rows]
        runs.append(
            {
                "name": its.run.name,
                "names": [short(name, 60) for name in names],
                "values": [values[i] for _, _, values in columns],
                "looks": [place if place < count else -1 for place in found],
                "sheet": sheet,
                "signals": looks.signals_of[i],
            }
        )
    return {
        "runs": runs,
        "columns": [
            {
                "name": short(key.title),
                "kind": key.kind,
                "categories": [short(text, 24) for text in scale.categories],
                "rest": bool(scale.categories) and scale.categories[-1] == space.REST,
                "low": scale.low,
                "high": scale.high,
            }
            for key, scale, _ in columns
        ],
        "sheets": [{"columns": s.columns, "lines": s.lines} for s in looks.sheets],
        "signals": looks.signals,
    }
