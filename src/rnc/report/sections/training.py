"""The section about the training: its curves."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from rnc.metrics import Columns
from rnc.report import figures as draw
from rnc.report import page
from rnc.report.figures import Figure
from rnc.report.runs import ReportRun
from rnc.report.samples import Pictures

_LOSSES = {"loss": "train_loss", "loss above its minimum": "gap"}
_STAGES = {
    "end2end": "end to end",
    "finetune": "fine-tuning",
    "regularize": "regularized",
    "head": "head",
    "encoder": "encoder",
}


def draw_training(runs: Sequence[ReportRun], pictures: Pictures, figures: list[Figure]) -> str:
    """Validation error and losses over the epochs of every run."""
    slots = []
    for run in runs:
        history = run.folder.history
        if history is not None and len(history):
            losses = {title: history[key].to_numpy() for title, key in _LOSSES.items()}
            kept = run.folder.scores.get("kept")
            stages = [stage_words(stage, kept) for stage in history["stage"]]
            figure = draw.training_figure(
                stages, _epochs(history), history["val_error"].to_numpy(), losses
            )
            if figure["panels"]:
                slots.append(page.slot(figures, figure, run.title, file=f"training {run.name}"))
    about = (
        "The error on the validation samples, and what each stage minimizes. Losses of different "
        "stages do not compare: each has its own axis, which need not start at 0."
    )
    if any(
        run.folder.history is not None and run.folder.history["gap"].notna().any() for run in runs
    ):
        about += (
            " Loss above its minimum: the distance of the loss from the lowest value possible, "
            "which only features in the order of the targets come near. While an encoder is "
            "trained alone, the validation error is that of a quick probe."
        )
    return page.section("Training", about, page.grid(slots, columns=1))


def stage_words(stage: str, kept: object = None) -> str:
    """A stage of history.csv in words. With scheme auto, its name begins with the tried scheme.

    >>> stage_words("finetune/finetune", "finetune"), stage_words("probe/head"), stage_words("own")
    ('fine-tuning (kept)', 'head', 'own')
    """
    scheme, _, last = stage.rpartition("/")
    words = _STAGES.get(last, last)
    return f"{words} (kept)" if scheme and scheme == kept else words


def _epochs(history: Any) -> Columns:
    """The number of each epoch in its stage."""
    if "epoch" in history:
        return np.asarray(history["epoch"], dtype=np.float64)
    return np.asarray(history.groupby("stage").cumcount() + 1, dtype=np.float64)
