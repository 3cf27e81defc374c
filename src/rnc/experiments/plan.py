"""What a result of the paper needs: trainings, one per seed and line, and how each is scored.

Job      one training: data, config, and where its encoder comes from
Line     a line of a table: a method, its jobs, its scores
Plan     a table
Setting  what the trainings of all tables have in common; makes jobs
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from rnc.config import FitConfig
from rnc.data.table import Table
from rnc.experiments.data import Data
from rnc.heads import HEADS

HEAD_STAGE = ("head_epochs", "head_batch_size", "head_lr", "head_solver")
BINS = ("low", "high", "step")
_REPRESENTATION = (
    "objective",
    "temperature",
    "contrast_temperature",
    "projection_size",
    "prototypes",
)
UNUSED: dict[str, tuple[str, ...]] = {
    "end2end": (*_REPRESENTATION, "rnc_weight", *HEAD_STAGE),
    "two-stage": (*_REPRESENTATION, "rnc_weight"),
    "regularize": HEAD_STAGE,
    "probe": ("rnc_weight",),
    "finetune": ("rnc_weight", "head_solver", "head_lr", "head_batch_size"),
}
"""Fields that a scheme does not look at: runs that differ in them alone are the same run."""

_DEFAULTS = {f.name: f.default for f in dataclasses.fields(FitConfig)}


@dataclass(frozen=True, eq=False)
class Job:
    """One training. Two jobs on the same data with the same config are the same run."""

    table: Table
    config: FitConfig
    start: "Job | None" = None
    """The job whose encoder it starts from, instead of training one on its own table."""


class Finished(NamedTuple):
    """A job and the run folder that it left."""

    job: Job
    folder: Path


Score = Callable[[Finished], float]


@dataclass(frozen=True)
class Line:
    """One line of a table."""

    method: str
    setting: str
    jobs: tuple[Job, ...]
    """One per seed."""
    scores: Mapping[str, Score]


class Row(NamedTuple):
    """What came out for one score of one line, and what the paper says."""

    method: str
    setting: str
    score: str
    values: tuple[float, ...]
    """One per seed; fewer where a training diverged."""
    paper: float | None = None
    paper_sd: float | None = None


@dataclass(frozen=True)
class Plan:
    """A table of the paper on some data."""

    title: str
    about: str
    """What is our choice, for the reader of the numbers."""
    lines: Sequence[Line]
    analyses: tuple[str, ...] = ()
    """Of the first seed's runs, for a report of their own."""
    derive: Callable[[Sequence[Row]], list[Row]] = field(default=lambda rows: [])
    """Further rows, from those of the lines."""

    @property
    def jobs(self) -> list[Job]:
        """The jobs of all lines, in the order in which they are done."""
        return [job for line in self.lines for job in line.jobs]


@dataclass(frozen=True, eq=False)
class Setting:
    """Data, common config and number of seeds."""

    data: Data
    base: FitConfig
    seeds: int
    end2end_lr: float | None = None
    """Learning rate where a head's loss trains the encoder, if not that of base."""

    def jobs(
        self,
        *,
        table: Callable[[int], Table] | None = None,
        start: Sequence[Job] | None = None,
        **changes: Any,
    ) -> tuple[Job, ...]:
        """A job for every seed.

        Args:
            table: the data for a seed; by default the same for all.
            start: a job for every seed, whose encoder to start from.
            changes: fields of FitConfig that differ from the common ones.
        """
        found = []
        for seed in range(self.seeds):
            data = self.data.table if table is None else table(seed)
            config = dataclasses.replace(self.base, **{"seed": seed, **changes})
            if config.scheme in ("end2end", "two-stage", "regularize") and self.end2end_lr:
                config = dataclasses.replace(config, lr=self.end2end_lr)
            before = None if start is None else start[seed]
            found.append(Job(data, canonical(config, data), before))
        return tuple(found)

    def end2end(self, **changes: Any) -> tuple[Job, ...]:
        """Jobs that train encoder and head by the head's loss."""
        return self.jobs(**{"scheme": "end2end", **changes})

    def rnc(self, **changes: Any) -> tuple[Job, ...]:
        """Jobs that train a head on a frozen encoder of RnC."""
        return self.jobs(**{"scheme": "probe", **changes})


def canonical(config: FitConfig, table: Table) -> FitConfig:
    """The config that says the same with every default filled in and nothing that is not used.

    >>> table = Data.of_digits().table
    >>> a = canonical(FitConfig(scheme="end2end", temperature=1.0), table)
    >>> a == canonical(FitConfig(scheme="end2end", epochs=400), table), a.views
    (True, 1)
    """
    config = config.resolve()
    changes: dict[str, Any] = {name: _DEFAULTS[name] for name in UNUSED.get(config.scheme, ())}
    if config.scheme in ("end2end", "two-stage"):
        changes["views"] = min(1, config.views)
    changes["batch_size"] = min(config.batch_size, len(table.rows("train")))
    config = dataclasses.replace(config, **changes)
    if not (HEADS[config.head].binned or config.counts_in_bins):
        config = dataclasses.replace(config, **dict.fromkeys(BINS))  # type: ignore[arg-type]
    return config
