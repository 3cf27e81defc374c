"""The test samples that a page shows: their pictures, and the values that colour them."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rnc.report import colors
from rnc.report.colors import ColorScale
from rnc.report.figures import rounded, short
from rnc.report.runs import ReportRun
from rnc.report.sheets import PictureSheet, make_sheets, pool_pictures, sparklines


class Pictures(NamedTuple):
    """Pictures and signals of all runs, and which of them each run uses."""

    sheets: list[PictureSheet]
    sheet_of: list[int | None]
    """For each run, the number of its sheet."""
    signals: list[dict[str, Any]]
    signals_of: list[int | None]
    """For each run, the number of its signals."""
    places: list[dict[int, int]]
    """For each run, by row of predictions.csv: place on its sheet or among its signals."""


class ColorColumn(NamedTuple):
    """A column that colours points."""

    kind: str
    """A key of _KINDS."""
    name: str

    @property
    def title(self) -> str:
        """What the page calls it."""
        titles = {"prediction": f"{self.name}, predicted", "error": "absolute error"}
        return titles.get(self.kind, self.name)


_KINDS = ("target", "column", "prediction", "extra", "error")  # in the order of the choice


def pictures_of(runs: Sequence[ReportRun]) -> Pictures:
    """The pictures and signals of all runs; runs with those of one shape share them."""
    parts = [run.thumbnails for run in runs]
    images, signals = pool_pictures(parts, "images"), pool_pictures(parts, "signals")
    sheets = make_sheets(images)
    sheet_of: list[int | None] = [None] * len(runs)
    signals_of: list[int | None] = [None] * len(runs)
    places: list[dict[int, int]] = [{} for _ in runs]
    for k, (pictures, sheet) in enumerate(zip(images, sheets, strict=True)):
        for i, spots in pictures.places.items():
            sheet_of[i] = k
            places[i] = {row: spot for row, spot in spots.items() if spot < sheet.pictures}
    for k, lines in enumerate(signals):
        for i, spots in lines.places.items():
            signals_of[i], places[i] = k, spots
    lines_of_signals = [sparklines(pool.content) for pool in signals]
    return Pictures(sheets, sheet_of, lines_of_signals, signals_of, places)


def color_columns(
    runs: Sequence[ReportRun],
) -> list[tuple[ColorColumn, ColorScale, list[list[Any] | None]]]:
    """Columns that colour points: each with its scale over all runs, and its values in each."""
    tables = [_columns(run) for run in runs]
    columns = sorted(
        dict.fromkeys(column for table in tables for column in table),
        key=lambda column: _KINDS.index(column.kind),
    )
    described = []
    for column in columns:
        empty = np.empty(0, np.float64 if column.kind != "column" else np.str_)
        parts = [
            table[column][run.rows] if column in table else empty
            for table, run in zip(tables, runs, strict=True)
        ]
        parts = colors.as_one_kind(parts)
        scale = _scale(column, np.concatenate(parts))
        to_json = colors.category_codes if scale.categories else lambda values, _: rounded(values)
        values = [to_json(part, scale) if len(part) else None for part in parts]
        described.append((column, scale, values))
    return described


def _columns(run: ReportRun) -> dict[ColorColumn, NDArray[Any]]:
    """Everything that can colour the points of a run: numbers (n,), or texts (n,)."""
    predictions = run.folder.predictions
    if predictions is None:
        return {}
    columns: dict[ColorColumn, NDArray[Any]] = {}
    for j, target in enumerate(run.targets):
        columns[ColorColumn("target", target)] = run.true[:, j]
        columns[ColorColumn("prediction", target)] = run.predicted[:, j]
    columns[ColorColumn("error", "")] = run.errors
    for name, values in predictions.extras.items():
        columns[ColorColumn("extra", name)] = values
    for name, texts in predictions.subgroups.items():
        columns[ColorColumn("column", name)] = texts
    return columns


def _scale(column: ColorColumn, values: NDArray[Any]) -> ColorScale:
    if column.kind != "error":
        return colors.color_scale(values)
    known = values[np.isfinite(values)]
    # Without the cut, a few large errors would leave one colour for all the others.
    return ColorScale((), 0.0, float(np.quantile(known, 0.98)) if len(known) else 1.0)


def page_data(runs: Sequence[ReportRun], pictures: Pictures) -> dict[str, Any]:
    """Samples for the scripts of the page, in JSON types."""
    columns = color_columns(runs)
    return {
        "runs": [
            {
                "name": run.name,
                "names": [short(name, 60) for name in run.sample_names[run.rows]],
                "values": [values[i] for _, _, values in columns],
                "looks": [pictures.places[i].get(int(row), -1) for row in run.rows],
                "sheet": pictures.sheet_of[i],
                "signals": pictures.signals_of[i],
            }
            for i, run in enumerate(runs)
        ],
        "columns": [
            {
                "name": short(column.title),
                "kind": column.kind,
                "categories": [short(text, 24) for text in scale.categories],
                "rest": bool(scale.categories) and scale.categories[-1] == colors.REST,
                "low": scale.low,
                "high": scale.high,
            }
            for column, scale, _ in columns
        ],
        "sheets": [{"columns": s.columns, "lines": s.lines} for s in pictures.sheets],
        "signals": pictures.signals,
    }
