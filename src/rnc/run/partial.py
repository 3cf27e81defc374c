"""Read a run folder that may be damaged, with a note for each missing part, for reports."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd  # type: ignore[import-untyped]

from rnc.files import CONFIG_FILE
from rnc.model import read_config
from rnc.run.folder import (
    HISTORY_FILE,
    PREDICTIONS_FILE,
    SCORES_FILE,
    THUMBNAILS_FILE,
    WORST_INPUTS_FILE,
)
from rnc.run.parts import (
    read_history,
    read_predictions,
    read_scores,
    read_thumbnails,
    read_worst_inputs,
)
from rnc.run.predictions import Predictions
from rnc.run.thumbnails import Thumbnails


@dataclass(eq=False)
class PartialRun:
    """The content of a run folder. A part that is missing or cannot be used is None or empty."""

    path: Path
    name: str
    """The name of the run in reports."""
    config: dict[str, Any]
    targets: tuple[str, ...]
    history: pd.DataFrame | None = None
    """A row per epoch, NaN where a number is not known."""
    scores: dict[str, Any] = field(default_factory=dict)
    predictions: Predictions | None = None
    thumbnails: Thumbnails | None = None
    worst_inputs: dict[int, dict[str, str]] = field(default_factory=dict)
    """For a table: the features of the samples with the worst errors, by row of predictions."""
    missing: list[str] = field(default_factory=list)
    """A sentence for each file that is missing or cannot be used."""


def read_partial(folder: Path) -> PartialRun:
    """The content of a run folder. Raises only if config.json is unusable or names no targets."""
    config = read_config(folder)
    targets = (config.get("model") or {}).get("target_names")
    if not targets:
        raise ValueError(f"{folder / CONFIG_FILE} names no targets: needs model.target_names.")
    name = config.get("name") or folder.resolve().name
    run = PartialRun(folder, str(name), config, tuple(targets))
    for file, (read, loses) in _PARTS.items():
        path = folder / file
        if not path.exists():
            if file not in _OPTIONAL:
                run.missing.append(f"{file} is missing: {loses}.")
            continue
        try:
            read(path, run)
        except (ValueError, KeyError, OSError) as error:
            run.missing.append(f"{file} cannot be used: {loses}. Reason: {error}")
    return run


def _history(path: Path, run: PartialRun) -> None:
    run.history = read_history(path)


def _scores(path: Path, run: PartialRun) -> None:
    run.scores = read_scores(path)


def _predictions(path: Path, run: PartialRun) -> None:
    recorded = run.scores.get("columns")
    run.predictions = read_predictions(
        path, run.targets, recorded if isinstance(recorded, dict) else None
    )


def _thumbnails(path: Path, run: PartialRun) -> None:
    run.thumbnails = read_thumbnails(path, 0 if run.predictions is None else len(run.predictions))


def _worst_inputs(path: Path, run: PartialRun) -> None:
    samples = 0 if run.predictions is None else len(run.predictions)
    run.worst_inputs = read_worst_inputs(path, samples)


_OPTIONAL = {THUMBNAILS_FILE, WORST_INPUTS_FILE}
_PARTS: dict[str, tuple[Callable[[Path, PartialRun], None], str]] = {
    HISTORY_FILE: (_history, "no training curves and no time"),
    SCORES_FILE: (_scores, "no scores"),  # before predictions, which need its roles
    PREDICTIONS_FILE: (_predictions, "no predicted against true values and no map"),
    THUMBNAILS_FILE: (_thumbnails, "no pictures of the samples"),
    WORST_INPUTS_FILE: (_worst_inputs, "no features of the worst errors"),
}
