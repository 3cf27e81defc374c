"""What a run folder holds, as far as it goes: the only part of the report that reads runs."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
from numpy.typing import NDArray
from safetensors import SafetensorError

from rnc.files import read_tensors
from rnc.model import read_config

MAX_POINTS = 2000
"""Points of a figure, per run; more make the page large and slow, and are not told apart."""


class Samples(NamedTuple):
    """Test samples whose features are kept."""

    features: NDArray[np.float64]
    """(k, d)"""
    names: list[str]
    columns: dict[str, NDArray[Any]]
    """Values (k,): targets as numbers, then the other columns as text."""


@dataclass
class Run:
    """What a run folder holds; None or empty for what it does not hold."""

    name: str
    config: dict[str, Any]
    targets: tuple[str, ...]
    history: pd.DataFrame | None = None
    scores: dict[str, Any] = field(default_factory=dict)
    predictions: pd.DataFrame | None = None
    samples: Samples | None = None
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


def read_runs(folders: Sequence[Path]) -> list[Run]:
    """The runs in these folders, each folder once; where two share a name, their folders tell."""
    folders = list({folder.resolve(): folder for folder in folders}.values())
    runs = [_read_run(folder) for folder in folders]
    names = [run.name for run in runs]
    for run, folder in zip(runs, folders, strict=True):
        if names.count(run.name) > 1:
            run.name = f"{run.name} ({folder.as_posix()})"
    return runs


def thin(n: int) -> NDArray[np.int64]:
    """Positions of at most MAX_POINTS of n, always the same ones."""
    if n <= MAX_POINTS:
        return np.arange(n)
    return np.sort(np.random.default_rng(0).choice(n, MAX_POINTS, replace=False))


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
            run.missing.append(f"{file} is missing: {loses}.")
            continue
        try:
            read(path, run)
        except (ValueError, KeyError, OSError, SafetensorError) as error:
            run.missing.append(f"{file} cannot be used: {loses}. Reason: {error}")
    return run


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
    usable = np.isfinite(features).all(axis=1)
    usable &= np.isfinite(run.predictions[run.targets[0]].to_numpy()[rows])
    if usable.sum() < 2:
        raise ValueError(f"needed two samples with finite features; got {usable.sum()}.")
    kept = np.flatnonzero(usable)[thin(int(usable.sum()))]
    table = run.predictions.iloc[rows[kept]]
    predicted = {f"{target}_predicted" for target in run.targets}
    others = [name for name in table if name not in {"name", *run.targets, *predicted}]
    columns = {name: table[name].to_numpy(np.float64) for name in run.targets}
    columns |= {name: table[name].to_numpy(np.str_) for name in others}
    run.samples = Samples(features[kept], table["name"].tolist(), columns)


_PARTS: dict[str, tuple[Callable[[Path, Run], None], str]] = {
    "history.csv": (_read_history, "no training curves and no time"),
    "scores.json": (_read_scores, "no scores"),
    "predictions.csv": (_read_predictions, "no predicted against true values"),
    "features.safetensors": (_read_features, "no map and no similarities of the features"),
}


def _check_columns(table: Any, needed: Sequence[str]) -> None:
    if absent := [name for name in needed if name not in table]:
        raise ValueError(f"needed {', '.join(needed)}; there is no {', '.join(absent)}.")


def _with_numbers(table: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """The table with these columns as numbers, NaN where there is none."""
    numbers = {name: pd.to_numeric(table[name], errors="coerce") for name in columns}
    return table.assign(**{name: values.astype(np.float64) for name, values in numbers.items()})
