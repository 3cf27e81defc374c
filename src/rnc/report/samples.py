"""The test samples that a page shows: which ones, their values, and how they look."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rnc.metrics import worst_samples
from rnc.report import features as space
from rnc.report.figures import rounded, short
from rnc.report.runs import Key, Run, thin
from rnc.report.thumbnails import Sheet, Thumbnails, make_sheets, pool, sparklines

Array = NDArray[np.float64]
Rows = NDArray[np.int64]


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
    """Those of the largest errors first."""

    def places(self, rows: Rows) -> list[int]:
        """Places of rows among all that are shown."""
        return [int(place) for place in np.searchsorted(self.rows, rows)]


class Looks(NamedTuple):
    """Pictures of all runs: the sheets and signals, and what each run uses of them."""

    sheets: list[Sheet]
    sheet_of: list[int | None]
    signals: list[dict[str, Any]]
    signals_of: list[int | None]
    places: list[dict[int, int]]
    """For each run, place on its sheet or among its signals by row."""


def show(run: Run, color: int) -> Shown:
    """Choose what to show of a run."""
    known = np.flatnonzero(np.isfinite(run.errors))
    worst = worst_samples(run.predicted, run.true)
    drawn = known[thin(len(known))]
    placed = _placed(run)
    parts = [drawn, worst, np.empty(0, np.int64) if placed is None else placed.rows]
    rows = np.unique(np.concatenate(parts))
    return Shown(run, color, rows, drawn, worst, placed, _pictures(run, worst))


def _pictures(run: Run, worst: Rows) -> Thumbnails | None:
    if run.thumbnails is None or not len(run.thumbnails.rows):
        return None
    first = np.isin(run.thumbnails.rows, worst)
    rest = np.flatnonzero(~first)
    return run.thumbnails.at(np.concatenate([np.flatnonzero(first), rest[thin(len(rest))]]))


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
    """The pictures and signals of all runs; runs with those of one shape share them."""
    parts = [its.thumbnails for its in shown]
    images, signals = pool(parts, "images"), pool(parts, "signals")
    sheets = make_sheets(images)
    sheet_of: list[int | None] = [None] * len(shown)
    signals_of: list[int | None] = [None] * len(shown)
    places: list[dict[int, int]] = [{} for _ in shown]
    for k, (pictures, sheet) in enumerate(zip(images, sheets, strict=True)):
        for i, spots in pictures.places.items():
            sheet_of[i] = k
            places[i] = {row: spot for row, spot in spots.items() if spot < sheet.pictures}
    for k, lines in enumerate(signals):
        for i, spots in lines.places.items():
            signals_of[i], places[i] = k, spots
    return Looks(sheets, sheet_of, [sparklines(its.content) for its in signals], signals_of, places)


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
        runs.append(
            {
                "name": its.run.name,
                "names": [short(name, 60) for name in names],
                "values": [values[i] for _, _, values in columns],
                "looks": [looks.places[i].get(int(row), -1) for row in its.rows],
                "sheet": looks.sheet_of[i],
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
