"""Check a `Table.preprocessing` that comes from a file.

`rnc.data.features` explains the columns of a table.
"""

from typing import Any, Literal, NotRequired, TypedDict

from rnc.json_types import check_json


class _Column(TypedDict):
    name: str
    gaps: bool
    gap_words: NotRequired[list[str]]


class _Scaled(_Column):
    mean: float | None
    scale: float | None
    median: float | None


class _Number(_Scaled):
    type: Literal["number"]


class _Category(_Column):
    type: Literal["category"]
    categories: list[str]


class _Boolean(_Column):
    type: Literal["boolean"]
    mean: float | None


class _Date(_Scaled):
    type: Literal["date"]
    format: str
    first: str | None
    parts: list[Literal["season", "weekday", "hour"]]


_COLUMNS = {"number": _Number, "category": _Category, "boolean": _Boolean, "date": _Date}


class _Preprocessing(TypedDict, total=False):
    channels: int
    fit: Literal["crop", "pad", "stretch"]
    side: int
    resample: Literal["bicubic", "bilinear"]
    intensity: Literal["keep", "scan"]
    shape: list[int]
    decimal: str | None
    columns: list[dict[str, Any]]
    left_out: dict[str, str]


def check_preprocessing(content: Any, kind: str, where: str) -> None:
    """Raise ValueError unless this is a valid preprocessing for a kind of data."""
    check_json(content, _Preprocessing, where)
    if kind == "table" and content and "columns" not in content:
        raise ValueError(f"{where} needs columns.")
    for i, column in enumerate(content.get("columns", [])):
        place = f"{where}.columns[{i}]"
        check_json(column.get("type"), Literal["number", "category", "boolean", "date"], place)
        check_json(column, _COLUMNS[column["type"]], place)
