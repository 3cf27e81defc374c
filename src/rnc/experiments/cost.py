"""The cost of the runs that are still to train, in epochs and in views of samples."""

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from rnc.experiments.plan import PlannedRun
from rnc.experiments.store import Store, encoder_key, end2end_of, run_key, trains_encoder
from rnc.training.cost import PlannedStage, planned_stages


class Cost(NamedTuple):
    """The number of runs, and the training that is left."""

    runs: int
    finished: int
    encoders: int
    epochs: int
    work: float
    """Views of samples, over all epochs."""

    def __str__(self) -> str:
        done = f", {self.finished} of them finished before" if self.finished else ""
        encoders = f"{self.encoders} encoder{'s' * (self.encoders != 1)}"
        return f"{self.runs} runs{done}; left to train: {encoders} and {self.epochs} epochs in all"


def cost_of(runs: Iterable[PlannedRun], store: Store) -> Cost:
    """The cost of the runs that are not finished. A shared run or encoder counts once."""
    by_key: dict[str, PlannedRun] = {}
    encoders: dict[str, PlannedRun] = {}
    for run in runs:
        _add(run, by_key, encoders)
    left = [run for run in by_key.values() if not store.is_finished(run)]
    needed = {
        encoder_key(one) for run in left for one in (run, run.start) if isinstance(one, PlannedRun)
    }
    missing = [run for key, run in encoders.items() if key in needed and not store.has_encoder(run)]
    stages = [_stages(run)[-1] for run in left] + [_stages(run)[0] for run in missing]
    return Cost(
        len(by_key),
        len(by_key) - len(left),
        len(missing),
        sum(stage.epochs for stage in stages),
        sum(stage.epochs * stage.views for stage in stages),
    )


def epoch_size(run: PlannedRun, stage: str) -> float:
    """Views of samples in one epoch of a stage of a run."""
    trained = run.start if isinstance(run.start, PlannedRun) else run
    contrasts, config = stage in ("encoder", "regularize"), trained.config
    views = config.contrast_views if contrasts else config.head_views
    sizes = config.trained(trained.table.sizes)
    return (sizes.encoder if contrasts else sizes.labelled) * max(1, views)


def _add(run: PlannedRun, by_key: dict[str, PlannedRun], encoders: dict[str, PlannedRun]) -> None:
    """Add a run, and the runs and encoders that it starts from."""
    by_key[run_key(run)] = run
    if trains_encoder(run):
        encoders[encoder_key(run)] = run
    if run.config.scheme == "two-stage":
        _add(end2end_of(run), by_key, encoders)
    if run.start is None or isinstance(run.start, Path):
        return
    if trains_encoder(run.start):
        encoders[encoder_key(run.start)] = run.start
    else:
        _add(run.start, by_key, encoders)


def _stages(run: PlannedRun) -> list[PlannedStage]:
    """The stages of a run. Other runs may share the first stage; the last one is its own."""
    return planned_stages(run.config, run.table.sizes, run.table.kind)
