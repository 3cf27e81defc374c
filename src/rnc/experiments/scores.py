"""What a line of a table is scored by: functions of a finished run."""

import json
from collections.abc import Mapping
from statistics import median
from typing import Any

import numpy as np

from rnc.analyses.registry import analyse
from rnc.data.table import Table
from rnc.experiments.plan import Finished, Score
from rnc.experiments.published import ANGULAR, MAE, R2
from rnc.experiments.store import read_history
from rnc.experiments.subsets import Ranges, inside
from rnc.run.folder import RunFolder

SECONDS = "seconds per epoch"


def errors(label_distance: str) -> Mapping[str, Score]:
    """The error of the paper: of angles for gaze, absolute for everything else."""
    return {ANGULAR if label_distance == "angular" else MAE: error}


def errors_and_r2(label_distance: str) -> Mapping[str, Score]:
    """Error and R2, the columns of most tables."""
    return {**errors(label_distance), R2: r2}


def error(run: Finished) -> float:
    """The error on the test split: of angles if the run is about them, else absolute."""
    test = _scores(run)["test"]
    return float(test["angular_error" if "angular_error" in test else "mae"])


def r2(run: Finished) -> float:
    """R2 against the mean of the training targets, as in the paper."""
    return float(_scores(run)["test"]["r2"])


def spearman(run: Finished) -> float:
    """Correlation of feature similarities with label similarities."""
    return float(_scores(run)["test"]["spearman"])


def kendall(run: Finished) -> float:
    """The same, by Kendall's tau."""
    return float(_scores(run)["test"]["kendall"])


def seconds(run: Finished) -> float:
    """Median time of an epoch of the encoder, without the first, which may compile."""
    epochs = [r["seconds"] for r in read_history(run.folder) if r["stage"] == "encoder"]
    return float(median(epochs[1:] or epochs))


def readable(column: str) -> Score:
    """How well a linear probe reads a column from the features."""

    def score(run: Finished) -> float:
        return float(_scores(run)["readable"][column])

    return score


def error_inside(ranges: Ranges, *, seen: bool) -> Score:
    """Absolute error on test samples whose first target is, or is not, in the ranges."""

    def score(run: Finished) -> float:
        folder = RunFolder(run.folder)
        chosen = inside(folder.truth[:, 0], ranges) == seen
        return float(folder.errors[chosen].mean())

    return score


def corrupted(severity: int) -> Score:
    """Error on the corrupted test images of a severity, mean over the types; 0 is clean."""

    def score(run: Finished) -> float:
        found = _analysis(run, "corruption", run.job.table)
        if severity == 0:
            return float(found["clean"])
        return float(np.mean([m["error"] for m in found["mean"] if m["severity"] == severity]))

    return score


def _scores(run: Finished) -> dict[str, Any]:
    scores: dict[str, Any] = json.loads((run.folder / "scores.json").read_text(encoding="utf-8"))
    return scores


def _analysis(run: Finished, name: str, table: Table) -> dict[str, Any]:
    """An analysis of a run, done now unless it was before."""
    path = run.folder / "analyses" / f"{name}.json"
    if not path.exists():
        analyse(RunFolder(run.folder, table), name)
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found
