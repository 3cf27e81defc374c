"""The values that validation chose for the methods of a table: as data, in Markdown, as CSV."""

import csv
import io
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rnc.files import write_text

if TYPE_CHECKING:
    from rnc.experiments.plan import Line

TunedValues = Mapping[str, float]
"""Tuned fields of FitConfig, and their values."""


class TuningTrial(NamedTuple):
    """One training during a tuning."""

    values: TunedValues
    error: float
    """The validation error; infinite if the training diverged."""


class Chosen(NamedTuple):
    """The values that validation chose for a stage of a method."""

    stage: str
    values: TunedValues
    error: float
    """The lowest validation error of all trials."""
    trials: tuple[TuningTrial, ...]
    """In the order of the search; the first trial has the untuned values of the method."""

    @property
    def changes(self) -> dict[str, float]:
        """The values that differ from those of the untuned method."""
        untuned = self.trials[0].values
        return {name: value for name, value in self.values.items() if value != untuned[name]}

    def to_json(self) -> dict[str, Any]:
        """The entry for config.json of a run."""
        return {**self.values, "validation_error": self.error, "trials": len(self.trials)}


def tuning_lines(lines: Sequence["Line"]) -> list[str]:
    """A Markdown table: the chosen values of each line, and their error with and without tuning."""
    head = ("method", "setting", "stage", "chosen", "validation error", "untuned", "trials")
    rows = [head, ("---",) * len(head)]
    for line in lines:
        for one in line.chosen:
            untuned = one.trials[0].error
            errors = (_number(one.error), _number(untuned), str(len(one.trials)))
            rows.append((line.method, line.setting, one.stage, values_text(one.values), *errors))
    return ["| " + " | ".join(row) + " |" for row in rows]


def write_tuning(path: Path, lines: Sequence["Line"]) -> None:
    """Write a CSV file with a line for every trial of a tuned table."""
    fields = list(dict.fromkeys(name for _, one in _choices(lines) for name in one.values))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["method", "setting", "stage", *fields, "validation_error", "state"])
    for line, one in _choices(lines):
        for trial in one.trials:
            values = [trial.values.get(name, "") for name in fields]
            error = trial.error if math.isfinite(trial.error) else ""
            state = _state(trial, one)
            writer.writerow([line.method, line.setting, one.stage, *values, error, state])
    write_text(path, text.getvalue())


def values_text(values: TunedValues) -> str:
    """The values as text for a reader.

    >>> values_text({"lr": 0.5, "weight_decay": 1e-05})
    'lr 0.5, weight_decay 1e-05'
    """
    return ", ".join(f"{name} {value:g}" for name, value in values.items())


def _choices(lines: Iterable["Line"]) -> Iterator[tuple["Line", Chosen]]:
    return ((line, one) for line in lines for one in line.chosen)


def _state(trial: TuningTrial, one: Chosen) -> str:
    if trial.values == one.values:
        return "chosen"
    return "complete" if math.isfinite(trial.error) else "diverged"


def _number(error: float) -> str:
    return f"{error:.4g}" if math.isfinite(error) else "diverged"
