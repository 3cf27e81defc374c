"""Tuning: chooses options of every method of a table on validation, as the paper does.

The paper searches rate, weight decay and temperature for each method and dataset, and for the
predictor of two-stage methods rate and weight decay (Appendix F). Here, each stage is tuned on its
own with the first seed, and the chosen values apply to all seeds:

    end to end, regularization   lr, weight_decay, and the temperature if the objective has one
    encoder                      the same, by the error of an exact L1 head on the encoder, so that
                                 all heads and fine-tuning share one encoder
    head                         head_lr, head_weight_decay, if it is trained by steps
    fine-tuning                  lr, weight_decay of the fine-tuning, on the chosen encoder

Fields that the caller set are not tuned. Trials are runs of the store (`trials.py`).
"""

import dataclasses
import itertools
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rnc.config.grid import TuningGrid, head_grid, stage_grid
from rnc.experiments.chosen import Chosen, TunedValues, TuningTrial, values_text
from rnc.experiments.cost import cost_of
from rnc.experiments.plan import Line, Plan, PlannedRun, Setting, canonical
from rnc.experiments.run import Say, Watch, one_thread_for_digits
from rnc.experiments.store import Store, end2end_of, trains_encoder
from rnc.experiments.trials import (
    NotTrained,
    PlannedTrial,
    PlannedTrials,
    TrainedTrials,
    TrialRecords,
    Trials,
)
from rnc.training.record import ShowRecord

ENCODER, HEAD, FINETUNING = "encoder", "head", "fine-tuning"
_LAST = {"end2end": "end to end", "regularize": "regularization", "finetune": FINETUNING}


@dataclass(frozen=True)
class Tuning:
    """How to tune a table on validation before it is trained."""

    trials: int | None = None
    """Combinations to try for each stage: the untuned one, then random ones of the grid. None: tune
    one option after the other, each with the best values of the options before."""
    epochs: int | None = None
    """Epochs of a trial; None: those of the table, so the best trial is the table's own run."""

    def __post_init__(self) -> None:
        for name in ("trials", "epochs"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"Tuning needs {name} of at least 1; got {value}.")


@dataclass(frozen=True, eq=False)
class TunedStage:
    """A stage whose options are tuned together."""

    name: str
    run: PlannedRun
    """The run of a trial, with the untuned values of the method."""
    grid: TuningGrid

    @property
    def untuned(self) -> dict[str, float]:
        """The untuned values of the method, which are tried first."""
        config = self.run.config
        rate = config.rate(contrast=self.name == ENCODER)
        return {name: rate if name == "lr" else getattr(config, name) for name in self.grid}


def tuned_plan(
    name: str,
    plan: Plan,
    setting: Setting,
    store: Store,
    tuning: Tuning,
    *,
    train: bool = True,
    show: ShowRecord,
    say: Say,
) -> Plan:
    """The plan with the values that validation chose for each line.

    With `train` False, lines with missing trials are left out.
    """
    records = TrialRecords(store)
    planned = PlannedTrials(records)
    for line in plan.lines:
        _Tuner(setting, tuning, planned).line(line)
    cost = cost_of(planned.missing.values(), store)
    if train:
        done = f"{len(planned.done)} trials were trained before, " if planned.done else ""
        left = f"at most {len(planned.missing)} to train, {cost.epochs} epochs in all"
        say(f"{name}, tuning: {done}{left}.")
    tuner = _Tuner(
        setting, tuning, TrainedTrials(records, Watch(cost, show, say), say, train=train)
    )
    lines = []
    with one_thread_for_digits(setting.data):
        for line in plan.lines:
            try:
                lines.append(tuner.line(line))
            except NotTrained as error:
                say(f"  {line.method} left out, since it is not tuned yet: {error}")
    return dataclasses.replace(plan, lines=lines)


class _Tuner:
    """Tunes the stages of runs, in the order in which they are trained."""

    def __init__(self, setting: Setting, tuning: Tuning, trials: Trials) -> None:
        self.setting, self.tuning, self.trials = setting, tuning, trials
        self.of = Line("", "", (), {})
        """The line that is being tuned."""

    def line(self, line: Line) -> Line:
        """The line with the chosen values in all its runs."""
        self.of = line
        runs, chosen = self._all(line.runs)
        return dataclasses.replace(line, runs=runs, chosen=tuple(chosen))

    def _all(self, runs: tuple[PlannedRun, ...]) -> tuple[tuple[PlannedRun, ...], list[Chosen]]:
        """Runs, one per seed, with the values chosen for all their stages, and the choices."""
        runs, chosen = self._before_last(runs)
        first = runs[0]
        if first.config.scheme in ("probe", "two-stage"):
            name, grid = HEAD, head_grid(first.config, first.table.kind)
        else:
            name, grid = _LAST[first.config.scheme], stage_grid(first.config, first.table.kind)
        if name == FINETUNING:  # the temperature belongs to the encoder
            grid = {field: grid[field] for field in ("lr", "weight_decay")}
        if last := self._choose(name, first, grid):
            runs = tuple(with_values(run, last.changes) for run in runs)
            chosen = [*chosen, last]
        return runs, chosen

    def _before_last(
        self, runs: tuple[PlannedRun, ...]
    ) -> tuple[tuple[PlannedRun, ...], list[Chosen]]:
        """Runs with the values chosen for all stages but the last, and the choices."""
        first, config = runs[0], runs[0].config
        if isinstance(first.start, PlannedRun):
            starts = tuple(run.start for run in runs if isinstance(run.start, PlannedRun))
            tune = self._before_last if trains_encoder(first.start) else self._all
            starts, chosen = tune(starts)
            return _started(runs, starts), chosen
        if trains_encoder(first):
            trial = encoder_trial(first)
            found = self._choose(ENCODER, trial, stage_grid(trial.config, trial.table.kind))
        elif config.scheme == "two-stage":
            trial = end2end_of(first)
            grid = stage_grid(trial.config, trial.table.kind)
            found = self._choose(_LAST["end2end"], trial, grid)
        else:
            return runs, []
        if found is None:
            return runs, []
        tuned = tuple(with_values(run, found.changes) for run in runs)
        # Fine-tuning has its own learning rate, so the tuned encoder comes from a separate run.
        return _started(runs, tuned) if config.scheme == "finetune" else tuned, [found]

    def _choose(self, name: str, run: PlannedRun, grid: TuningGrid) -> Chosen | None:
        """The choice on validation for a stage; None if there is nothing to choose."""
        fixed = set(self.setting.given)
        if self.setting.end2end_lr and run.config.scheme in ("end2end", "regularize"):
            fixed.add("lr")
        stage = TunedStage(name, run, {k: v for k, v in grid.items() if k not in fixed})
        if not stage.grid:
            return None
        search = _Search(self, stage)
        if self.tuning.trials is None:
            one_by_one(stage.untuned, stage.grid, search.error)
        else:
            draws = drawn(stage.untuned, stage.grid, self.tuning.trials, run.config.seed)
            for values in draws:
                search.error(values)
        return search.chosen


class _Search:
    """The trials of one stage of a line so far."""

    def __init__(self, tuner: _Tuner, stage: TunedStage) -> None:
        self.trials, self.stage, self.untuned = tuner.trials, stage, stage.untuned
        self.run = shorter(stage.run, tuner.tuning.epochs)
        line = tuner.of
        self.label = f"{f'{line.method} {line.setting}'.strip()}, {stage.name}"
        self.name = line.method
        if stage.name == ENCODER:  # its trial has an L1 head, whatever head the line has
            objective = stage.run.config.objective
            self.name = "RnC(L1)" if objective == "rnc" else stage.run.config.objective_spec.title
        self.seen: list[TuningTrial] = []

    def error(self, values: TunedValues) -> float:
        """The error of a trial. Deletes the folders of all but the best and the untuned trial."""
        label = f"{self.label}: {values_text(values)}"
        error = self.trials.error(PlannedTrial(self._run(values), label, self.name))
        maybe = [values, self.chosen.values] if self.seen else [values]
        self.seen.append(TuningTrial(dict(values), error))
        for loser in maybe:
            if loser not in (self.untuned, self.chosen.values):
                self.trials.tidy(self._run(loser))
        return error

    @property
    def chosen(self) -> Chosen:
        """The best trial so far; of equal trials, the first."""
        best = min(self.seen, key=lambda trial: trial.error)
        return Chosen(self.stage.name, best.values, best.error, tuple(self.seen))

    def _run(self, values: TunedValues) -> PlannedRun:
        changes = {name: value for name, value in values.items() if value != self.untuned[name]}
        return with_values(self.run, changes)


# ---------------------------------------------------------------------------------------- search


def one_by_one(
    untuned: TunedValues, grid: TuningGrid, error: Callable[[TunedValues], float]
) -> None:
    """Try the values of one field after the other, with the best values of the fields before.

    >>> tried = []
    >>> def error(values):
    ...     tried.append(tuple(values.values()))
    ...     return abs(values["a"] - 2) + abs(values["b"] - 5)
    >>> one_by_one({"a": 1, "b": 4}, {"a": (1, 2, 3), "b": (4, 5)}, error)
    >>> tried
    [(1, 4), (2, 4), (3, 4), (2, 5)]
    """
    best = dict(untuned)
    lowest = error(best)
    for name, values in grid.items():
        before = dict(best)
        for value in values:
            if value == before[name]:
                continue
            tried = {**before, name: value}
            if (found := error(tried)) < lowest:
                best, lowest = tried, found


def drawn(untuned: TunedValues, grid: TuningGrid, trials: int, seed: int) -> list[TunedValues]:
    """The untuned values, followed by different combinations of the grid in random order.

    >>> drawn({"a": 1, "b": 4}, {"a": (1, 2), "b": (4, 5)}, 3, seed=0)
    [{'a': 1, 'b': 4}, {'a': 1, 'b': 5}, {'a': 2, 'b': 5}]
    """
    every = [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
    others: list[TunedValues] = [values for values in every if values != untuned]
    random.Random(seed).shuffle(others)
    return [dict(untuned), *others][:trials]


# ----------------------------------------------------------------------------------------- runs


def encoder_trial(run: PlannedRun) -> PlannedRun:
    """The run that measures how good the encoder of a run is, by an exact L1 head on it."""
    config = run.config
    plain: Mapping[str, Any] = {
        "scheme": "probe",
        "head": "l1",
        "head_options": None,
        "head_solver": "exact",
        "head_weight_decay": 0.0,
        "regularizer": "none",
        "regularizer_weight": None,
        "lds": False,
        "original": config.original and config.objective_spec.original is not None,
    }
    config = dataclasses.replace(config, **plain)
    return dataclasses.replace(run, config=canonical(config, run.table))


def with_values(run: PlannedRun, changes: TunedValues) -> PlannedRun:
    """A run with these values in its config."""
    if not changes:
        return run
    fields: dict[str, Any] = dict(changes)
    return dataclasses.replace(run, config=dataclasses.replace(run.config, **fields))


def shorter(run: PlannedRun, epochs: int | None) -> PlannedRun:
    """A run, and the one it starts from, with at most these epochs; head and warm-up follow."""
    config, start = run.config, run.start
    assert config.epochs is not None
    if epochs is None or epochs >= config.epochs:
        return run
    share = epochs / config.epochs
    changes: dict[str, Any] = {"epochs": epochs}
    if config.head_epochs is not None:
        changes["head_epochs"] = max(1, round(config.head_epochs * share))
    if config.warm_up is not None:
        changes["warm_up"] = round(config.warm_up * share)
    if isinstance(start, PlannedRun):
        start = shorter(start, epochs)
    return PlannedRun(run.table, dataclasses.replace(config, **changes), start, run.own)


def _started(runs: Sequence[PlannedRun], starts: Sequence[PlannedRun]) -> tuple[PlannedRun, ...]:
    pairs = zip(runs, starts, strict=True)
    return tuple(dataclasses.replace(run, start=start) for run, start in pairs)
