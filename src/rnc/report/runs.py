"""What a run folder holds, as far as it goes: the only part of the report that reads runs."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
from numpy.typing import NDArray
from safetensors import SafetensorError

from rnc.files import read_tensors
from rnc.model import read_config
from rnc.report.analyses import read_analyses
from rnc.report.thumbnails import Thumbnails, read_thumbnails

Array = NDArray[np.float64]

MAX_POINTS = 4000
"""Points of a figure, per run; more make the page large and slow, and are not told apart."""


class Features(NamedTuple):
    """Features of test samples."""

    values: Array
    """(k, d)"""
    rows: NDArray[np.int64]
    """(k,) places in predictions.csv."""


class Key(NamedTuple):
    """A column that colours points."""

    kind: str
    """target, prediction, error or column"""
    name: str

    @property
    def title(self) -> str:
        """How the page calls it."""
        words = {"prediction": f"{self.name}, predicted", "error": "absolute error"}
        return words.get(self.kind, self.name)


@dataclass
class Run:
    """What a run folder holds; None or empty for what it does not hold."""

    name: str
    config: dict[str, Any]
    targets: tuple[str, ...]
    history: pd.DataFrame | None = None
    scores: dict[str, Any] = field(default_factory=dict)
    predictions: pd.DataFrame | None = None
    features: Features | None = None
    thumbnails: Thumbnails | None = None
    train: Array | None = None
    """Targets (m, t) of the training samples."""
    analyses: dict[str, Any] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    """A sentence for each file that is not there or cannot be read."""

    def part(self, key: str) -> dict[str, Any]:
        """An entry of scores.json; empty where it is not there."""
        entry = self.scores.get(key)
        return entry if isinstance(entry, dict) else {}

    @property
    def seconds(self) -> float | None:
        """Time that all epochs took."""
        return None if self.history is None else float(self.history["seconds"].sum())

    @cached_property
    def true(self) -> Array:
        """True values (n, t) of the predictions; none without predictions."""
        return self._numbers(self.targets)

    @cached_property
    def predicted(self) -> Array:
        """Predicted values (n, t)."""
        return self._numbers([f"{target}_predicted" for target in self.targets])

    @cached_property
    def errors(self) -> Array:
        """Absolute error (n,), the mean over the targets; NaN where it is not known."""
        errors: Array = np.abs(self.predicted - self.true).mean(axis=1)
        return np.where(np.isfinite(errors), errors, np.nan)

    def subgroup_columns(self) -> list[str]:
        """Columns of predictions.csv besides the name and the targets."""
        if self.predictions is None:
            return []
        own = {"name", *self.targets, *(f"{target}_predicted" for target in self.targets)}
        return [name for name in self.predictions if name not in own]

    def columns(self) -> dict[Key, NDArray[Any]]:
        """Everything that can colour points: numbers (n,), or texts (n,)."""
        if self.predictions is None:
            return {}
        columns: dict[Key, NDArray[Any]] = {}
        for j, target in enumerate(self.targets):
            columns[Key("target", target)] = self.true[:, j]
            columns[Key("prediction", target)] = self.predicted[:, j]
        columns[Key("error", "")] = self.errors
        for name in self.subgroup_columns():
            columns[Key("column", name)] = self.predictions[name].to_numpy(np.str_)
        return columns

    def _numbers(self, names: Sequence[str]) -> Array:
        if self.predictions is None:
            return np.empty((0, len(names)))
        return np.asarray(self.predictions[list(names)].to_numpy(np.float64))


def read_runs(folders: Sequence[Path]) -> list[Run]:
    """The runs in these folders, each folder once; where two share a name, their folders tell."""
    folders = list({folder.resolve(): folder for folder in folders}.values())
    runs = [_read_run(folder) for folder in folders]
    names = [run.name for run in runs]
    for run, folder in zip(runs, folders, strict=True):
        if names.count(run.name) > 1:
            run.name = f"{run.name} ({folder.as_posix()})"
    return runs


def thin(n: int, most: int = MAX_POINTS) -> NDArray[np.int64]:
    """Positions of at most so many of n, always the same ones."""
    if n <= most:
        return np.arange(n)
    return np.sort(np.random.default_rng(0).choice(n, most, replace=False))


def _read_run(folder: Path) -> Run:
    config = read_config(folder)
    targets = (config.get("model") or {}).get("target_names")
    if not targets:
        raise ValueError(f"{folder / 'config.json'} names no targets: needs model.target_names.")
    name = config.get("name") or folder.resolve().name
    run = Run(name=str(name), config=config, targets=tuple(targets))
    for file, (read, loses) in _PARTS.items():
        path = folder / file
        if not path.exists():
            if file not in _OPTIONAL:
                run.missing.append(f"{file} is missing: {loses}.")
            continue
        try:
            read(path, run)
        except (ValueError, KeyError, OSError, SafetensorError) as error:
            run.missing.append(f"{file} cannot be used: {loses}. Reason: {error}")
    run.analyses, notes = read_analyses(folder / "analyses")
    _drop_foreign_map(run, notes)
    run.missing += notes
    return run


def _drop_foreign_map(run: Run, notes: list[str]) -> None:
    places = run.analyses.get("map")
    if places is None:
        return
    n = len(run.true)
    if len(places.rows) < 2 or not 0 <= places.rows.min() <= places.rows.max() < n:
        del run.analyses["map"]
        notes.append(f"analyses/map.json cannot be used: its rows are not among the {n}.")


def _read_history(path: Path, run: Run) -> None:
    history = pd.read_csv(path, dtype={"stage": str}, keep_default_na=False)
    _check_columns(history, ["stage", "train_loss", "gap", "val_error", "seconds"])
    run.history = _with_numbers(history, ["train_loss", "gap", "val_error", "seconds"])


def _read_scores(path: Path, run: Run) -> None:
    scores = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(scores, dict):
        raise ValueError(f"needed an object; got {type(scores).__name__}.")
    run.scores = scores


def _read_predictions(path: Path, run: Run) -> None:
    # As text: in a column of countries, NA is Namibia.
    table = pd.read_csv(path, dtype=str, keep_default_na=False)
    numbers = [column for name in run.targets for column in (name, f"{name}_predicted")]
    _check_columns(table, ["name", *numbers])
    run.predictions = _with_numbers(table, numbers)


def _read_features(path: Path, run: Run) -> None:
    if run.predictions is None:
        raise ValueError("predictions.csv is needed to say whose they are.")
    tensors, _ = read_tensors(path)
    _check_columns(tensors, ["features", "rows"])
    features, rows = tensors["features"].double().numpy(), tensors["rows"].numpy()
    if features.ndim != 2 or rows.shape != features.shape[:1]:
        raise ValueError(
            f"needed features (k, d) and rows (k,); got {features.shape} and {rows.shape}."
        )
    if len(rows) and not 0 <= rows.min() <= rows.max() < len(run.predictions):
        raise ValueError(
            f"rows {rows.min()} to {rows.max()} are not all among the {len(run.predictions)} "
            "of predictions.csv."
        )
    usable = np.isfinite(features).all(axis=1) & np.isfinite(run.true[rows, 0])
    if usable.sum() < 2:
        raise ValueError(f"needed two samples with finite features; got {usable.sum()}.")
    kept = np.flatnonzero(usable)[thin(int(usable.sum()))]
    run.features = Features(features[kept], rows[kept])


def _read_thumbnails(path: Path, run: Run) -> None:
    run.thumbnails = read_thumbnails(path, len(run.true))


def _read_train(path: Path, run: Run) -> None:
    tensors, _ = read_tensors(path)
    targets = tensors["targets"].double().numpy()
    if targets.ndim != 2 or targets.shape[1] != len(run.targets) or not np.isfinite(targets).all():
        raise ValueError(f"needed finite targets (m, {len(run.targets)}); got {targets.shape}.")
    run.train = targets if len(targets) else None


_OPTIONAL = {"thumbnails.safetensors", "train_targets.safetensors"}
_PARTS: dict[str, tuple[Callable[[Path, Run], None], str]] = {
    "history.csv": (_read_history, "no training curves and no time"),
    "scores.json": (_read_scores, "no scores"),
    "predictions.csv": (_read_predictions, "no predicted against true values"),
    "features.safetensors": (_read_features, "no map and no similarities of the features"),
    "train_targets.safetensors": (_read_train, "no density of the training labels"),
    "thumbnails.safetensors": (_read_thumbnails, "no pictures of the samples"),
}


def _check_columns(table: Any, needed: Sequence[str]) -> None:
    if absent := [name for name in needed if name not in table]:
        raise ValueError(f"needed {', '.join(needed)}; there is no {', '.join(absent)}.")


def _with_numbers(table: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """The table with these columns as numbers, NaN where there is none."""
    numbers = {name: pd.to_numeric(table[name], errors="coerce") for name in columns}
    return table.assign(**{name: values.astype(np.float64) for name, values in numbers.items()})
