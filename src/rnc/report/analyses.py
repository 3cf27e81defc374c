"""The analyses of a run: RUN/analyses/*.json as `rnc evaluate --with` leaves them, checked.

Each one is optional. One that is not as described here raises, and the page says so in its place.
"""

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError

from rnc.files import read_tensors

Array = NDArray[np.float64]


class Group(NamedTuple):
    """Test samples that share something, and their error, NaN where it is not known."""

    value: str
    n: int
    mae: float
    low: float | None
    high: float | None


class Bins(NamedTuple):
    """Error by the value of the target; NaN in a bin without samples."""

    edges: Array
    """(b + 1,)"""
    n: Array
    """(b,)"""
    mae: Array
    low: Array
    high: Array
    n_train: Array | None
    """Training samples; None where they are not known."""


class Map(NamedTuple):
    """Features in two dimensions."""

    method: str
    rows: NDArray[np.int64]
    """(k,) places in predictions.csv."""
    points: Array
    """(k, 2)"""


class Similarity(NamedTuple):
    """Similarities of features, rows and columns in the order of the labels."""

    target: str
    labels: Array
    """(k,)"""
    matrix: Array
    """(k, k)"""


class Corruption(NamedTuple):
    """Error on corrupted inputs."""

    measure: str
    n: int
    curves: dict[str, list[tuple[int, float]]]
    """(severity, error) by the name of the corruption; severity 0 is the clean input."""
    mean: list[tuple[int, float]]


Rows = list[dict[str, Any]]


def read_analyses(folder: Path) -> tuple[dict[str, Any], list[str]]:
    """What the folder holds, by name, and a sentence for each file that cannot be used."""
    found, notes = {}, []
    for name, read in _READERS.items():
        path = folder / f"{name}.json"
        if not path.exists():
            continue
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            if not isinstance(content, Mapping):
                raise ValueError(f"needed an object; got {type(content).__name__}")
            found[name] = read(content, folder)
        except KeyError as error:
            notes.append(f"analyses/{path.name} cannot be used: there is no {error}.")
        except (ValueError, TypeError, AttributeError, OSError, SafetensorError) as error:
            notes.append(f"analyses/{path.name} cannot be used. Reason: {error}")
    return found, notes


def _map(content: Mapping[str, Any], folder: Path) -> Map:
    points = np.column_stack([_numbers(content["x"]), _numbers(content["y"])])
    rows = np.array(content["rows"], dtype=np.int64)
    if rows.shape != points.shape[:1] or len(rows) < 2:
        raise ValueError(f"needed two or more rows, x and y; got {rows.shape} and {points.shape}.")
    kept = np.isfinite(points).all(axis=1)
    return Map(str(content.get("method") or "map"), rows[kept], points[kept])


def _similarity(content: Mapping[str, Any], folder: Path) -> Similarity:
    labels = _numbers(content["labels"])
    tensors, _ = read_tensors(folder / "similarity.safetensors")
    matrix = tensors["matrix"].double().numpy()
    if matrix.shape != (len(labels), len(labels)) or not len(labels):
        raise ValueError(f"needed a matrix ({len(labels)}, {len(labels)}); got {matrix.shape}.")
    if not np.isfinite(matrix).all():
        raise ValueError("needed finite similarities; some are not.")
    return Similarity(str(content.get("target") or "target"), labels, matrix)


def _subgroups(content: Mapping[str, Any], folder: Path) -> dict[str, list[Group]]:
    return {name: [_group(group) for group in its["groups"]] for name, its in content.items()}


def _group(group: Mapping[str, Any]) -> Group:
    low, high = _optional(group.get("low")), _optional(group.get("high"))
    mae = math.nan if group["mae"] is None else float(group["mae"])
    return Group(str(group.get("value", "")), int(group["n"]), mae, low, high)


def _targets(content: Mapping[str, Any], folder: Path) -> dict[str, Bins]:
    return {str(target): bins_of(its) for target, its in content.items()}


def bins_of(its: Mapping[str, Any]) -> Bins:
    """The bins of one target, as `rnc.analyses.breakdown.target_errors` gives them."""
    edges = _numbers(its["edges"])
    n, mae, low, high = (_numbers(its[key]) for key in ("n", "mae", "low", "high"))
    train = None if its.get("n_train") is None else _numbers(its["n_train"])
    for part in (n, mae, low, high, *([] if train is None else [train])):
        if len(part) != len(edges) - 1 or len(part) == 0:
            raise ValueError(f"needed {len(edges) - 1} bins; got {len(part)}.")
    return Bins(edges, n, mae, low, high, train)


def _corruption(content: Mapping[str, Any], folder: Path) -> Corruption:
    clean = _optional(content.get("clean"))
    start = [] if clean is None else [(0, clean)]
    curves: dict[str, list[tuple[int, float]]] = {}
    for row in content["rows"]:
        curve = curves.setdefault(str(row["name"]), list(start))
        curve.append((int(row["severity"]), float(row["error"])))
    mean = [*start, *((int(row["severity"]), float(row["error"])) for row in content["mean"])]
    measure = str(content.get("measure") or "error")
    measure = {"mae": "MAE", "angular_error": "angular error"}.get(measure, measure)
    return Corruption(measure, int(content.get("n") or 0), curves, mean)


def _unseen(content: Mapping[str, Any], folder: Path) -> tuple[str, list[Group]]:
    groups = [_group({"value": name, **content[name]}) for name in ("seen", "unseen")]
    ranges = [f"{float(low):g} to {float(high):g}" for low, high in content.get("ranges") or []]
    return ", ".join(ranges), groups


def _table(content: Mapping[str, Any], folder: Path) -> Rows:
    return [dict(row) for row in content["rows"]]


def _transfer(content: Mapping[str, Any], folder: Path) -> tuple[str, Rows]:
    return str(content.get("data") or "other data"), _table(content, folder)


def _whole(content: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    return dict(content)


def _readable(content: Mapping[str, Any], folder: Path) -> dict[str, dict[str, Any]]:
    return {str(name): dict(its) for name, its in content.items()}


_READERS: dict[str, Callable[[Mapping[str, Any], Path], Any]] = {
    "map": _map,
    "similarity": _similarity,
    "subgroups": _subgroups,
    "targets": _targets,
    "order": _whole,
    "readable": _readable,
    "corruption": _corruption,
    "unseen": _unseen,
    "reduced": _table,
    "transfer": _transfer,
}


def _numbers(values: Any) -> Array:
    """A list of numbers, NaN for null."""
    return np.array([math.nan if value is None else float(value) for value in values])


def _optional(value: Any) -> float | None:
    return None if value is None else float(value)
