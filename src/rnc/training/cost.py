"""The cost of a training before it is done: epochs, steps and views of each stage.

The time left is estimated from the pace of the steps so far. A step is assumed to cost as much as
its views. A view costs more for a larger network or larger images, but all stages share these.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from rnc.config import FitConfig
from rnc.config.sizes import Sizes, labelled_batch_size
from rnc.training.recipes import AUTO
from rnc.training.record import Step
from rnc.training.stages import auto_epochs

LONG = 20 * 60
"""If more seconds of training are left on a CPU, a user may want to make it shorter."""


class PlannedStage(NamedTuple):
    """A stage that is planned, and its size."""

    name: str
    epochs: int
    steps: int
    """Steps in an epoch."""
    views: int
    """Views of samples in an epoch."""


def planned_stages(
    config: FitConfig, rows: Sizes | int, kind: str, *, takes_encoder: bool = False
) -> list[PlannedStage]:
    """The stages of a config in their order, for a number of training rows and a kind of data.

    A head that is solved counts as one epoch of one step. With `takes_encoder`, schemes probe and
    finetune take the encoder of another run, so that their first stage is left out.
    """
    config, sizes = config.resolve(rows, kind), config.trained(rows)
    if config.scheme != "auto":
        return _of_scheme(config, config.scheme, sizes, takes_encoder)
    stages: list[PlannedStage] = []
    for scheme in AUTO:
        for stage in _of_scheme(config, scheme, sizes, scheme == "finetune"):
            prefix = "" if stage.name == "encoder" else f"{scheme}/"
            epochs = auto_epochs(stage.epochs) if scheme == "end2end" else stage.epochs
            stages.append(stage._replace(name=f"{prefix}{stage.name}", epochs=epochs))
    return stages


def _of_scheme(
    config: FitConfig, scheme: str, sizes: Sizes, takes_encoder: bool
) -> list[PlannedStage]:
    assert config.epochs is not None
    assert config.head_epochs is not None
    assert config.batch_size is not None
    size, several = config.batch_size, max(1, config.contrast_views)
    rows, drawn, _ = sizes
    encoder = PlannedStage("encoder", config.epochs, drawn // size, drawn * several)
    size = labelled_batch_size(size, sizes)
    passes = max(1, config.head_views)
    end2end = PlannedStage("end2end", config.epochs, math.ceil(rows / size), rows * passes)
    solved = PlannedStage("head", 1, 1, rows)
    if config.head_solver != "exact":
        steps = math.ceil(rows / config.head_batch_size)
        solved = PlannedStage("head", config.head_epochs, steps, rows)
    first = [] if takes_encoder else [encoder]
    return {
        "probe": [*first, solved],
        "finetune": [*first, end2end._replace(name="finetune", epochs=config.head_epochs)],
        "two-stage": [end2end, solved],
        "end2end": [end2end],
        "regularize": [encoder._replace(name="regularize")],
    }[scheme]


def stage_words(stages: Sequence[PlannedStage]) -> str:
    """A text about the stages, for a user who is about to wait for them.

    >>> stage_words([PlannedStage("encoder", 400, 48, 24576), PlannedStage("head", 1, 1, 12288)])
    'encoder 400 epochs x 48 steps, head solved at once'
    >>> stage_words([PlannedStage("encoder", 1, 1, 32)])
    'encoder 1 epochs x 1 steps'
    """
    return ", ".join(
        f"{stage.name} solved at once"
        if stage.name.endswith("head") and stage.epochs * stage.steps == 1
        else f"{stage.name} {stage.epochs} epochs x {stage.steps} steps"
        for stage in stages
    )


def seconds_left(stages: Sequence[PlannedStage], first: Step, now: Step) -> float:
    """Seconds until all stages are done, at the pace between two steps of the current stage."""
    names = [stage.name for stage in stages]
    place = names.index(now.stage)
    pace = (now.at - first.at) / ((now.epochs_done - first.epochs_done) * stages[place].views)
    left = (now.epochs - now.epochs_done) * stages[place].views
    return pace * (left + sum(stage.epochs * stage.views for stage in stages[place + 1 :]))


def duration(seconds: float) -> str:
    """A duration as a short text.

    >>> [duration(seconds) for seconds in (0.4, 42, 600, 12000, 300000)]
    ['1 s', '42 s', '10 min', '3 h 20 min', '3 days 11 h']
    """
    minutes = round(seconds / 60)
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    if minutes < 100:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min"
    return f"{hours // 24} days {hours % 24} h"


def faster_choices(config: FitConfig, kind: str) -> list[str]:
    """Flags that would make this training shorter."""
    choices = []
    if kind == "image" and config.image_size > 112:
        choices.append("--image-size 112 (a quarter of the pixels)")
    if kind == "image" and config.encoder not in ("small-cnn", "resnet10t"):
        choices.append("--encoder small-cnn or resnet10t")
    if kind == "volume" and config.encoder != "resnet3d10":
        choices.append("--encoder resnet3d10")
    if config.preset != "quick":
        choices.append("--preset quick (a first look)")
    return choices
