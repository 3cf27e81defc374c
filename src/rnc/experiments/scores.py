"""The scores in a table, each a function of a finished run."""

import math
from collections.abc import Mapping
from statistics import median

import numpy as np

from rnc.analyses.analysis import AnalysisOptions
from rnc.analyses.registry import analyse
from rnc.experiments.plan import BY_HEAD, Finished, Score
from rnc.experiments.published import ANGULAR, MAE, R2
from rnc.experiments.subsets import Ranges, inside
from rnc.run.folder import RunFolder

SECONDS = "seconds per epoch"
VALIDATION = "validation error"
EPOCHS = "epochs"
SAMPLES = "samples per step"
"""Every view of a sample counts."""
UPDATES = "updates"
COUNTS = (EPOCHS, SAMPLES, UPDATES, "negatives")
"""Scores that are whole numbers."""


def errors(label_distance: str) -> Mapping[str, Score]:
    """The error of the paper: the angular error for gaze, else the mean absolute error."""
    return {ANGULAR if label_distance == "angular" else MAE: error}


def errors_and_r2(label_distance: str) -> Mapping[str, Score]:
    """Error and R2, the columns of most tables."""
    return {**errors(label_distance), R2: r2}


def error(finished: Finished) -> float:
    """The error on the test split: angular if the run has one, else mean absolute."""
    test = finished.run.scores["test"]
    return float(test["angular_error" if "angular_error" in test else "mae"])


def r2(finished: Finished) -> float:
    """R2 against the mean of the training targets, as in the paper."""
    return float(finished.run.scores["test"]["r2"])


def spearman(finished: Finished) -> float:
    """Spearman correlation of feature and label similarities; NaN if undefined."""
    return float(finished.run.scores["test"].get("spearman", np.nan))


def kendall(finished: Finished) -> float:
    """Kendall's tau of feature and label similarities; NaN if undefined."""
    return float(finished.run.scores["test"].get("kendall", np.nan))


def seconds(finished: Finished) -> float:
    """Median time per epoch of the first stage. The first epoch, which may compile, is left out."""
    records = finished.run.records
    epochs = [record.seconds for record in records if record.stage == records[0].stage]
    return float(median(epochs[1:] or epochs))


def validation(finished: Finished) -> float:
    """The validation error in scores.json, usually that of the best epoch."""
    return float(finished.run.scores["validation_error"])


def epochs(finished: Finished) -> float:
    """Epochs of the first stage."""
    count = finished.planned.config.epochs
    assert count is not None  # a planned run has every default filled in
    return float(count)


def samples(finished: Finished) -> float:
    """Number of samples per step of the first stage, times their views."""
    config = finished.planned.config
    views = config.head_views if config.scheme in BY_HEAD else config.contrast_views
    return float((config.batch_size or 1) * max(1, views))


def updates(finished: Finished) -> float:
    """Number of updates of a first stage that trains by an objective."""
    config, table = finished.planned.config, finished.planned.table
    rows = config.trained(table.sizes).encoder
    assert config.epochs is not None
    assert config.batch_size is not None
    return float(config.epochs * math.ceil(rows // config.batch_size / config.accumulate))


def readable(column: str) -> Score:
    """How well a linear probe predicts a column from the features; NaN if no probe was possible."""

    def score(finished: Finished) -> float:
        return float(finished.run.scores["readable"].get(column, np.nan))

    return score


def error_inside(ranges: Ranges, *, seen: bool) -> Score:
    """Absolute error on test samples whose first target is, or is not, in the ranges."""

    def score(finished: Finished) -> float:
        folder = finished.run
        chosen = inside(folder.truth[:, 0], ranges) == seen
        return float(folder.errors[chosen].mean())

    return score


def corrupted(severity: int) -> Score:
    """Error on all test images with a severity of corruption, averaged over types; 0 is clean."""

    def score(finished: Finished) -> float:
        folder = finished.run
        every = len(finished.planned.table.rows("test"))
        if not folder.has_analysis("corruption") or _corrupted_images(folder) < every:
            analyse(folder, "corruption", AnalysisOptions(corruption_samples=every))
        content = folder.analysis("corruption").content
        if severity == 0:
            return float(content["clean"])
        return float(np.mean([m["error"] for m in content["mean"] if m["severity"] == severity]))

    return score


def _corrupted_images(folder: RunFolder) -> int:
    """Number of images in the corruption sweep of a run."""
    return int(folder.analysis("corruption").content["n"])


def has_collapsed(finished: Finished) -> bool:
    """Whether the features of all test samples are the same."""
    features = finished.run.features
    return bool(len(features) > 1 and (features == features[0]).all())
