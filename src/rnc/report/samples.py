"""The test samples that a page shows: their pictures, and the values that colour them."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
from numpy.typing import NDArray

from rnc.report.figures import limits_of, rounded, short
from rnc.report.runs import ReportRun
from rnc.report.sheets import PictureSheet, make_sheets, pool_pictures, sparklines
from rnc.run.groups import MOST_VALUES, natural_key

MAX_CATEGORIES = 10
"""Most values of a column that get a colour each."""

REST = "(other)"
EMPTY = "(empty)"


class Pictures(NamedTuple):
    """Pictures and signals of all runs, and by the number of a run the ones that it uses."""

    sheets: list[PictureSheet]
    sheet_of: dict[int, int]
    signals: list[dict[str, Any]]
    signals_of: dict[int, int]
    places: dict[int, dict[int, int]]
    """By run and row of predictions.csv: the position on its sheet or among its signals."""


class ColorScale(NamedTuple):
    """How values of a column become colours: by category, or on a scale between two numbers."""

    categories: tuple[str, ...]
    low: float = 0.0
    high: float = 1.0


class ColorColumn(NamedTuple):
    """A column that colours points."""

    kind: str
    """A key of _KINDS."""
    name: str

    @property
    def title(self) -> str:
        """The name on the page."""
        titles = {"prediction": f"{self.name}, predicted", "error": "absolute error"}
        return titles.get(self.kind, self.name)


_KINDS = ("target", "column", "prediction", "extra", "error")  # in this order on the page


def pictures_of(runs: Sequence[ReportRun]) -> Pictures:
    """The pictures and signals of all runs, shared by runs with the same shape."""
    parts = [run.thumbnails for run in runs]
    images, signals = pool_pictures(parts, "images"), pool_pictures(parts, "signals")
    sheet_of, signals_of = (
        {i: k for k, pool in enumerate(pools) for i in pool.places} for pools in (images, signals)
    )
    places = {i: spots for pool in signals for i, spots in pool.places.items()}
    sheets = make_sheets(images)
    for pool, sheet in zip(images, sheets, strict=True):
        for i, spots in pool.places.items():
            places[i] = {row: spot for row, spot in spots.items() if spot < sheet.pictures}
    lines = [sparklines(pool.content) for pool in signals]
    return Pictures(sheets, sheet_of, lines, signals_of, places)


def color_columns(
    runs: Sequence[ReportRun],
) -> list[tuple[ColorColumn, ColorScale, list[list[Any] | None]]]:
    """Columns that can colour points, each with a scale for all runs and its values in each run."""
    tables = [_columns(run) for run in runs]
    columns = dict.fromkeys(column for table in tables for column in table)
    described = []
    for column in sorted(columns, key=lambda column: _KINDS.index(column.kind)):
        empty = np.empty(0, np.float64 if column.kind != "column" else np.str_)
        parts = [
            table[column][run.rows] if column in table else empty
            for table, run in zip(tables, runs, strict=True)
        ]
        parts = as_one_kind(parts)
        scale = _scale(column, np.concatenate(parts))
        to_json = category_codes if scale.categories else lambda values, _: rounded(values)
        values = [to_json(part, scale) if len(part) else None for part in parts]
        described.append((column, scale, values))
    return described


def _columns(run: ReportRun) -> dict[ColorColumn, NDArray[Any]]:
    """All columns that can colour the points of a run: numbers (n,) or texts (n,)."""
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
        return color_scale(values)
    known = values[np.isfinite(values)]
    # Without this limit, a few large errors would leave only one colour for all others.
    return ColorScale((), 0.0, float(np.quantile(known, 0.98)) if len(known) else 1.0)


def color_scale(values: NDArray[Any]) -> ColorScale:
    """A scale for the values of a column over all runs, numbers or texts.

    Up to ten different texts are categories. If there are more, only the nine most frequent are.

    >>> color_scale(np.array([3.0, 5.0])), color_scale(np.array(["b", "a", "b"])).categories
    (ColorScale(categories=(), low=3.0, high=5.0), ('a', 'b'))
    """
    if values.dtype.kind == "f":
        return ColorScale((), *limits_of(values))
    texts, counts = np.unique(values, return_counts=True)
    if len(texts) <= MAX_CATEGORIES:
        return ColorScale(tuple(sorted(texts.tolist(), key=natural_key)))
    frequent = texts[np.argsort(-counts, kind="stable")[: MAX_CATEGORIES - 1]].tolist()
    return ColorScale((*sorted(frequent, key=natural_key), REST))


def category_codes(values: NDArray[Any], scale: ColorScale) -> list[int]:
    """The number of each text's category; texts that are not listed are in the last one."""
    places = {text: code for code, text in enumerate(scale.categories)}
    return [places.get(value, len(places) - 1) for value in values.tolist()]


def as_one_kind(parts: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
    """A column of several runs, as numbers in all runs or as texts in all runs.

    It is numbers if a run has it as numbers. It is, too, if it has more than ten different values
    and all are numbers that do not look like codes.
    """
    texts = [part for part in parts if part.dtype.kind != "f"]
    distinct = np.unique(np.concatenate([*texts, np.empty(0, np.str_)]))
    numbers = pd.to_numeric(pd.Series(distinct), errors="coerce")
    is_number = len(distinct) > MAX_CATEGORIES and np.isfinite(numbers).all()
    is_number = is_number and not are_codes(numbers.to_numpy(np.float64))
    if len(texts) == len(parts) and not is_number:
        return [np.where(part == "", EMPTY, part) for part in parts]
    return [pd.to_numeric(pd.Series(part), errors="coerce").to_numpy(np.float64) for part in parts]


def are_codes(numbers: NDArray[np.float64]) -> bool:
    """Whether different numbers look like codes, such as numbers of cameras, not like amounts.

    Codes are at most 50 whole numbers, and at least as many numbers in their range are missing.

    >>> are_codes(np.array([65.0, 75, 162, 858])), are_codes(np.arange(2001.0, 2020))
    (True, False)
    """
    if not 0 < len(numbers) <= MOST_VALUES or (numbers != numbers.round()).any():
        return False
    return bool(np.ptp(numbers) + 1 >= 2 * len(numbers))


def page_data(runs: Sequence[ReportRun], pictures: Pictures) -> dict[str, Any]:
    """Samples for the scripts of the page, in JSON types."""
    columns = color_columns(runs)
    return {
        "runs": [
            {
                "name": run.name,
                "names": [short(name, 60) for name in run.sample_names[run.rows]],
                "values": [values[i] for _, _, values in columns],
                "looks": [pictures.places.get(i, {}).get(int(row), -1) for row in run.rows],
                "sheet": pictures.sheet_of.get(i),
                "signals": pictures.signals_of.get(i),
            }
            for i, run in enumerate(runs)
        ],
        "columns": [
            {
                "name": short(column.title),
                "kind": column.kind,
                "categories": [short(text, 24) for text in scale.categories],
                "rest": bool(scale.categories) and scale.categories[-1] == REST,
                "low": scale.low,
                "high": scale.high,
            }
            for column, scale, _ in columns
        ],
        "sheets": [{"columns": s.columns, "lines": s.lines} for s in pictures.sheets],
        "signals": pictures.signals,
    }
