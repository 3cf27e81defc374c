"""The plan of a table: the runs to train, one per seed and line, and the scores of each line.

PlannedRun  one training: data, config, and the source of its encoder
Line        a line of a table: a method, its runs, its scores
Outcome     a line and its finished runs
Plan        a table
Setting     data, config and seeds that all runs of a plan share; makes planned runs
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from rnc.analyses.analysis import MapOnly
from rnc.config import FitConfig, Preset
from rnc.config.checks import is_changed_by_original
from rnc.data.table import Table
from rnc.experiments.chosen import Chosen
from rnc.experiments.data import Data
from rnc.heads.registry import HEADS
from rnc.methods.objective import PairLoss
from rnc.metrics.bootstrap import Interval
from rnc.run.folder import DoesNotApply, RunFolder
from rnc.training.balance import chosen_oversample

HEAD_FIELDS = (
    *("head_epochs", "head_batch_size", "head_lr", "head_weight_decay"),
    *("head_solver", "balance"),
)
"""Fields that only the stage of the head uses."""
BIN_FIELDS = ("low", "high", "step")
_REPRESENTATION = (
    "objective",
    "temperature",
    "contrast_temperature",
    "projection_size",
    "prototypes",
    "queue",
    "teacher",
    "teacher_margin",
)
_UNUSED: dict[str, tuple[str, ...]] = {
    "end2end": (*_REPRESENTATION, "rnc_weight", "keep", "finetune_keep", *HEAD_FIELDS),
    "two-stage": (*_REPRESENTATION, "rnc_weight", "keep", "finetune_keep"),
    "regularize": ("keep", "finetune_keep", *HEAD_FIELDS),
    "probe": ("rnc_weight", "finetune_keep"),
    "finetune": ("rnc_weight", "head_solver", "head_lr", "head_weight_decay", "head_batch_size"),
}
"""Fields that a scheme does not use: runs that differ only in them are the same run."""

OF_LINES = (
    "head_options", "regularizer_weight", "original", "temperature", "contrast_temperature",
    "queue", "chunk",
)  # fmt: skip
"""Fields that only reach the lines of a table whose head, regularizer or objective uses them."""

BY_HEAD = ("end2end", "two-stage")
"""Schemes whose first stage trains by a head's loss alone."""
_DEFAULTS = {f.name: f.default for f in dataclasses.fields(FitConfig)}
_UNUSED_VALUES = _DEFAULTS | {
    **{"head_solver": "exact", "balance": 0.0, "keep": "last", "temperature": 2.0}
}
"""Values of unused fields: the default, or a fixed value if the default depends on the preset."""


class OwnObjective(NamedTuple):
    """An objective of the caller's own, and its name in the key of its runs."""

    name: str
    loss: PairLoss


@dataclass(frozen=True, eq=False)
class PlannedRun:
    """One training. Two with the same data, config, start and own objective are the same run."""

    table: Table
    config: FitConfig
    start: "PlannedRun | Path | None" = None
    """The source of its encoder: another planned run, or a run folder; None: train one."""
    own: OwnObjective | None = None
    """For config.objective "own": the loss that trains the encoder."""
    fold: str | None = None
    """The fold of a cross-validation that the table is split for, such as "2/5"."""

    @property
    def label(self) -> str:
        """Words that tell the runs of a line apart."""
        seed = f"seed {self.config.seed}"
        return seed if self.fold is None else f"{seed}, fold {self.fold}"


class Finished(NamedTuple):
    """A planned run after training, and its run folder."""

    planned: PlannedRun
    folder: Path

    @property
    def run(self) -> RunFolder:
        """The run folder, with the data of the plan."""
        return RunFolder(self.folder, self.planned.table)


Score = Callable[[Finished], float]


@dataclass(frozen=True)
class Line:
    """One line of a table."""

    method: str
    setting: str
    runs: tuple[PlannedRun, ...]
    """One per seed; in a cross-validation, one per seed and fold."""
    scores: Mapping[str, Score]
    chosen: tuple[Chosen, ...] = ()
    """The values that validation chose for its runs, if the plan was tuned."""


class Outcome(NamedTuple):
    """A line and its finished runs; runs that diverged are missing."""

    line: Line
    finished: Sequence[Finished]


class Row(NamedTuple):
    """The values of one score of one line, and the paper's number for it."""

    method: str
    setting: str
    score: str
    values: tuple[float, ...]
    """One per seed, the mean over its folds; fewer if a training diverged."""
    paper: float | None = None
    paper_sd: float | None = None
    interval: Interval | None = None
    """95 % interval of the mean over the seeds, from resamples of test samples and seeds."""
    note: str = ""
    """Why a number is missing."""


Derive = Callable[[Sequence[Row], Sequence[Outcome]], list[Row]]
"""Makes all rows of a table from the rows of its lines, and the runs behind them."""


@dataclass(frozen=True)
class Plan:
    """A table of results for some data: its runs and their scores."""

    title: str
    about: str
    """Notes for the reader of the numbers, such as choices of ours."""
    lines: Sequence[Line]
    analyses: tuple[str, ...] = ()
    """Analyses of the first run of each line. If there are any, a report of all runs is written."""
    map_method: str | None = None
    """For the analysis map: pca, tsne or umap; None: that of `default_method`."""
    map_only: MapOnly | None = None
    """For the analysis map: the samples; None: all."""
    picture: str = ""
    """A key of PICTURES in pictures.py; empty for none."""
    report: str = ""
    """File name of that report; by default the name of the table with .html."""
    grouped: bool = False
    """Whether each setting has a heading, with the lines below it sorted by their first score."""
    derive: Derive = field(default=lambda rows, outcomes: list(rows))
    """Makes all rows from those of the lines, such as rows with gains."""

    @property
    def runs(self) -> list[PlannedRun]:
        """The runs of all lines, in the order in which they are trained."""
        return [run for line in self.lines for run in line.runs]


@dataclass(frozen=True, eq=False)
class Setting:
    """Data, common config and number of seeds of the runs of a plan."""

    data: Data
    base: FitConfig
    seeds: int
    """Number of seeds; the first one is base.seed."""
    end2end_lr: float | None = None
    """Learning rate for schemes end2end, two-stage and regularize; None: that of base."""
    given: Mapping[str, Any] = field(default_factory=dict)
    """Fields of FitConfig that the caller chose for all runs."""

    def with_preset(self, preset: Preset, *, without: Sequence[str] = ()) -> "Setting":
        """The same data and seeds with another preset.

        Args:
            preset: chooses the fields that the caller did not choose.
            without: fields that the preset chooses even if the caller chose them.
        """
        given = {k: v for k, v in self.given.items() if k != "preset" and k not in without}
        rate = None if "lr" in without else self.end2end_lr
        base = base_config(self.data, preset, None, given)
        return dataclasses.replace(self, base=base, end2end_lr=rate, given=given)

    def runs(
        self,
        *,
        table: Callable[[int], Table] | None = None,
        part: Callable[[Table, int], Table] | None = None,
        start: Sequence[PlannedRun] | None = None,
        own: OwnObjective | None = None,
        **changes: Any,
    ) -> tuple[PlannedRun, ...]:
        """A run for every seed; in a cross-validation, for every seed and fold.

        Args:
            table: gives other data for a seed. They have no folds.
            part: gives a part of the data for a seed, such as fewer training rows.
            start: for every seed, the run that provides the encoder.
            own: an objective of the caller's own.
            changes: fields of FitConfig that differ from the common config.
        """
        if own is not None:
            changes = {**changes, "objective": "own"}
        planned: list[PlannedRun] = []
        for seed in range(self.base.seed, self.base.seed + self.seeds):
            for fold, whole in self._tables(table, seed):
                data = whole if part is None else part(whole, seed)
                config = dataclasses.replace(self.base, **{"seed": seed, **changes})
                config = dataclasses.replace(config, **fields_of_line(config, self.given))
                if config.scheme in ("end2end", "two-stage", "regularize") and self.end2end_lr:
                    config = dataclasses.replace(config, lr=self.end2end_lr)
                first = None if start is None else start[len(planned)]
                planned.append(PlannedRun(data, canonical(config, data), first, own, fold))
        return tuple(planned)

    def _tables(
        self, table: Callable[[int], Table] | None, seed: int
    ) -> Sequence[tuple[str | None, Table]]:
        """The folds and data of the runs with a seed; the fold is None without folds."""
        if not self.data.folds:
            return [(None, self.data.table if table is None else table(seed))]
        if table is not None:
            raise DoesNotApply(
                "This result has test rows of its own, which a cross-validation would change. "
                "Leave out the folds."
            )
        return [*self.data.folds.items()]

    def end2end(self, **changes: Any) -> tuple[PlannedRun, ...]:
        """Runs that train encoder and head by the head's loss."""
        return self.runs(**{"scheme": "end2end", **changes})

    def rnc(self, **changes: Any) -> tuple[PlannedRun, ...]:
        """Runs that train a head on a frozen encoder of RnC."""
        return self.runs(**{"scheme": "probe", **changes})


MakePlan = Callable[[Setting], Plan]


def base_config(
    data: Data, preset: Preset, epochs: int | None, fit: Mapping[str, Any]
) -> FitConfig:
    """The config that all runs on some data share.

    The epochs of heads and of fine-tuning keep their ratio to those of the encoder.

    Args:
        data: the data; its `fit` and `quick` have fields of FitConfig.
        preset: best, paper or quick.
        epochs: of the encoder; None: from `fit`, the data or the preset.
        fit: further fields of FitConfig, which override those of the data and the preset. Fields
            in OF_LINES are left out here; lines take them from `Setting.given`.
    """
    _check_head_options(fit.get("head_options") or {})
    fields = {"preset": preset, **data.fit}
    if preset == "quick":
        fields |= data.quick
    fields |= without_line_fields(fit)
    if epochs is not None:
        fields["epochs"] = epochs
    if "epochs" in fields and "head_epochs" not in fit:
        usual = FitConfig(preset=preset).resolve(kind=data.table.kind)
        assert usual.epochs is not None
        assert usual.head_epochs is not None
        fields["head_epochs"] = max(1, round(fields["epochs"] * usual.head_epochs / usual.epochs))
    if unknown := sorted(set(fields) - set(_DEFAULTS)):
        raise ValueError(
            f"fit takes fields of FitConfig; got {', '.join(unknown)}. Known are "
            f"{', '.join(sorted(_DEFAULTS))}."
        )
    return FitConfig(**fields)


def without_line_fields(fit: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that apply to every line of a table."""
    return {name: value for name, value in fit.items() if name not in OF_LINES}


def fields_of_line(config: FitConfig, given: Mapping[str, Any]) -> dict[str, Any]:
    """The given fields of OF_LINES that a run with this config uses.

    >>> given = {"regularizer_weight": 1.0, "head_options": {"decode": "class", "beta": 0.5}}
    >>> fields_of_line(FitConfig(head="or"), given)
    {'head_options': {'decode': 'class'}}
    >>> fields_of_line(FitConfig(scheme="end2end", regularizer="ranksim"), given)
    {'regularizer_weight': 1.0}
    """
    spec = config.regularizer_spec
    own = config.objective_spec.temperature if config.uses_objective else None
    has_use = {
        "regularizer_weight": spec is not None and spec.term is not None,
        "original": is_changed_by_original(config),
        "temperature": own == "temperature",
        "contrast_temperature": own == "contrast_temperature",
        "queue": config.uses_objective and config.objective_spec.queued,
        "chunk": not (config.uses_objective and config.objective_spec.whole),
    }
    fields = {name: given[name] for name, used in has_use.items() if used and name in given}
    known, options = HEADS[config.head].options, given.get("head_options") or {}
    if chosen := {name: value for name, value in options.items() if name in known}:
        fields["head_options"] = chosen
    return fields


def check_line_fields(plan: Plan, given: Mapping[str, Any]) -> None:
    """Raise if no line of a table uses one of the given fields of OF_LINES."""
    asked = {f"{name}={given[name]}": {name: given[name]} for name in OF_LINES if name in given}
    asked.pop(f"head_options={given.get('head_options')}", None)
    for name, value in (given.get("head_options") or {}).items():
        asked[f"head option {name}={value}"] = {"head_options": {name: value}}
    for words, one in asked.items():
        if not any(fields_of_line(run.config, one) for run in plan.runs):
            raise ValueError(
                f"{words} has no use in the table {plan.title!r}: none of its lines has a head, "
                "regularizer or objective with it. Leave it out."
            )


def _check_head_options(options: Mapping[str, Any]) -> None:
    known = dict.fromkeys(option for head in HEADS.values() for option in head.options)
    if unknown := [name for name in options if name not in known]:
        raise ValueError(
            f"No head has the option {', '.join(unknown)}; known are {', '.join(known)}."
        )


def canonical(config: FitConfig, table: Table) -> FitConfig:
    """The same config with all defaults filled in, and with fixed values in unused fields.

    >>> table = Data.of_digits().table
    >>> a = canonical(FitConfig(scheme="end2end", temperature=1.0), table)
    >>> a == canonical(FitConfig(scheme="end2end", optimizer="sgd"), table), a.batch_size
    (True, 256)
    """
    config = config.resolve(table.sizes, table.kind)
    rows = config.trained(table.sizes).encoder
    assert config.batch_size is not None
    unused = _UNUSED.get(config.scheme, ())
    changes: dict[str, Any] = {name: _UNUSED_VALUES[name] for name in unused}
    changes["batch_size"] = min(config.batch_size, rows)
    changes["oversample"] = chosen_oversample(config, table)
    config = dataclasses.replace(config, **changes)
    if not config.uses_bins:
        config = dataclasses.replace(config, **dict.fromkeys(BIN_FIELDS))  # type: ignore[arg-type]
    return config
