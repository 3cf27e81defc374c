"""The section about the training: its curves."""

from collections.abc import Sequence

from rnc.report import figures as draw
from rnc.report import page
from rnc.report.figures import Figure
from rnc.report.runs import ReportRun
from rnc.report.samples import Pictures

_PANELS = {"loss": "train_loss", "gap to L*": "gap", "validation error": "val_error"}


def draw_training(runs: Sequence[ReportRun], pictures: Pictures, figures: list[Figure]) -> str:
    """Loss, gap and validation error over the epochs of every run."""
    slots = []
    for run in runs:
        history = run.folder.history
        if history is not None and len(history):
            panels = {title: history[key].to_numpy() for title, key in _PANELS.items()}
            figure = draw.training_figure(history["stage"].tolist(), panels, color=run.color)
            if figure["panels"]:
                slots.append(page.slot(figures, figure, run.name, file=f"training {run.name}"))
    about = (
        "Gap to L*: how far the loss is above its lower bound. Only features in the order of the "
        "targets come near that bound. While an encoder is trained alone, the validation error is "
        "that of a quick probe."
    )
    return page.section("Training", about, page.grid(slots))
