"""Readers of the files of a run folder, one for each file, which check the content.

A file with wrong content raises ValueError, which says what was needed and what came. The caller
decides what happens then: `rnc.run.folder` raises with advice, `rnc.run.partial` makes a note.
"""

import csv
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NotRequired, TypedDict

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
from numpy.typing import NDArray
from torch import Tensor

from rnc.files import read_tensors
from rnc.json_types import check_json
from rnc.metrics import Columns
from rnc.run.predictions import Predictions, numbers_of, parse_predictions
from rnc.run.spreadsheet import plain, plain_frame
from rnc.run.thumbnails import Thumbnails, parse_thumbnails
from rnc.training.record import NEEDED_FIELDS, RECORD_FIELDS, Record

_NUMBERS = [name for name in RECORD_FIELDS if name != "stage"]


class Features(NamedTuple):
    """Features of test samples."""

    values: NDArray[np.float32]
    """(k, d)"""
    rows: NDArray[np.int64]
    """(k,) their rows in predictions.csv."""


def read_object(path: Path) -> dict[str, Any]:
    """A JSON file that holds an object, such as scores.json."""
    content = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(content, dict):
        raise ValueError(f"needed an object; got {type(content).__name__}.")
    return content


class _Probe(TypedDict):
    kind: str
    chance: float


class _SolvedHead(TypedDict):
    penalty: float
    balance: NotRequired[float | None]


class _ScoresFile(TypedDict, total=False):
    """The fields of scores.json. `rnc.run.evaluate` describes them."""

    test: dict[str, float | None]
    n: dict[str, int]
    per_target: dict[str, dict[str, float]]
    subgroups: dict[str, dict[str, dict[str, float]]]
    readable: dict[str, float]
    guessing: dict[str, _Probe]
    intervals: dict[str, Any]
    distribution: dict[str, dict[str, float]]
    columns: dict[str, str]
    out_of_range: dict[str, int]
    validation_error: float
    auto: dict[str, float]
    kept: str
    head: _SolvedHead
    training: dict[str, float | bool | str | None]
    baselines: dict[str, dict[str, float | int | dict[str, float]]]


def read_scores(path: Path) -> dict[str, Any]:
    """The content of scores.json, checked."""
    scores = read_object(path)
    check_json(scores, _ScoresFile, "")
    return scores


def read_arrays(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file, by name."""
    return read_tensors(path)[0]


def read_history(path: Path) -> pd.DataFrame:
    """history.csv: a row per epoch, NaN where a number is not known."""
    frame = pd.read_csv(path, dtype=str, keep_default_na=False)
    _check_names(frame, ["stage", "train_loss", "gap", "val_error", "seconds"])
    columns = [name for name in _NUMBERS if name in frame]
    return frame.assign(**{name: numbers_of(frame[name]) for name in columns})


def records_of(history: pd.DataFrame) -> list[Record]:
    """The rows of `read_history` as records."""
    _check_names(history, NEEDED_FIELDS)
    history = history.reindex(columns=RECORD_FIELDS)
    return [
        Record(
            stage=row.stage,
            epoch=int(row.epoch),
            epochs=int(row.epochs),
            lr=row.lr,
            train_loss=row.train_loss,
            gap=_known(row.gap),
            val_error=_known(row.val_error),
            seconds=row.seconds,
            penalty=_known(row.penalty),
            balance=_known(row.balance),
        )
        for row in history.itertuples()
    ]


def _known(number: float) -> float | None:
    return None if math.isnan(number) else number


def read_predictions(
    path: Path, targets: Sequence[str], recorded: Mapping[str, str] | None
) -> Predictions:
    """predictions.csv of a run with these targets."""
    # Read as text, since NA in a column of countries is Namibia.
    frame = plain_frame(pd.read_csv(path, dtype=str, keep_default_na=False))
    return parse_predictions(frame, targets, recorded)


def read_features(path: Path) -> Features:
    """features.safetensors."""
    tensors = read_arrays(path)
    _check_names(tensors, ["features", "rows"])
    values, rows = tensors["features"].numpy(), tensors["rows"].numpy()
    if values.ndim != 2 or rows.shape != values.shape[:1]:
        raise ValueError(
            f"needed features (k, d) and rows (k,); got {values.shape} and {rows.shape}."
        )
    return Features(values, rows)


def read_thumbnails(path: Path, samples: int) -> Thumbnails:
    """thumbnails.safetensors of a run with this many predictions."""
    return parse_thumbnails(read_arrays(path), samples)


def read_worst_inputs(path: Path, samples: int) -> dict[int, dict[str, str]]:
    """worst_inputs.csv: features by name, for rows of predictions.csv, which has `samples` rows."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = ([plain(cell) for cell in row] for row in csv.reader(file))
        _, *names = next(rows, [""])
        inputs = {int(row): dict(zip(names, cells, strict=True)) for row, *cells in rows}
    if outside := [row for row in inputs if not 0 <= row < samples]:
        raise ValueError(f"row {outside[0]} is not among the {samples}.")
    return inputs


def read_train_targets(path: Path, targets: int) -> Columns:
    """train_targets.safetensors of a run with this many targets: (m, t)."""
    tensors = read_arrays(path)
    _check_names(tensors, ["targets"])
    values = np.asarray(tensors["targets"].double().numpy())
    if values.ndim != 2 or values.shape[1] != targets or not np.isfinite(values).all():
        raise ValueError(f"needed finite targets (m, {targets}); got {values.shape}.")
    return values


def _check_names(names: Any, needed: Sequence[str]) -> None:
    if absent := [name for name in needed if name not in names]:
        raise ValueError(f"needed {', '.join(needed)}; there is no {', '.join(absent)}.")
