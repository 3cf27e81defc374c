"""Differences between the errors of methods on the same test samples, with intervals.

The intervals say how much the result depends on the choice of test samples and seeds: the bootstrap
draws both. If the table has groups of samples, such as those of one person, it draws whole groups.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rnc.experiments.plan import Derive, Finished, Outcome, Row
from rnc.experiments.published import ANGULAR, MAE
from rnc.experiments.seeds import by_seed, tested_weights
from rnc.metrics import Columns, angular_error
from rnc.metrics.bootstrap import Interval, repeated_interval
from rnc.run.predictions import Predictions


def difference_name(baseline: str) -> str:
    """The name of the column with differences to a baseline."""
    return f"% to {baseline}"


def with_differences(baseline: str) -> Derive:
    """A function that adds intervals to errors, and differences to all lines but the baseline's.

    A difference is in percent of the baseline's error in the same setting, for the seeds that both
    have.
    """

    def derive(rows: Sequence[Row], outcomes: Sequence[Outcome]) -> list[Row]:
        errors = {(o.line.method, o.line.setting): _errors_of_seeds(o.finished) for o in outcomes}
        groups = _groups(outcomes)
        complete = []
        for row in rows:
            if row.score not in (MAE, ANGULAR):
                complete.append(row)
                continue
            ours = errors[row.method, row.setting]
            complete.append(row._replace(interval=_interval(ours, groups)))
            theirs = errors.get((baseline, row.setting), {})
            if row.method != baseline and ours.keys() & theirs.keys():
                complete.append(_difference(row, ours, theirs, groups, baseline))
        return complete

    return derive


def sample_errors(runs: Sequence[Finished]) -> Columns:
    """The error of every test sample of the runs of one seed, (n,); their mean is the error.

    The test samples of folds follow each other. If samples have weights, it is the error times the
    weight, divided by the mean weight.
    """
    errors = np.concatenate([_errors(one) for one in runs])
    weights = np.concatenate([tested_weights(one) for one in runs])
    return np.asarray(errors * (weights / weights.mean()))


def _errors(finished: Finished) -> Columns:
    """The error of every test sample of a run, (n,)."""
    predictions = _predictions(finished)
    if finished.planned.config.label_distance != "angular":
        return np.asarray(predictions.errors.mean(axis=1))
    pairs = zip(predictions.predicted, predictions.truth, strict=True)
    return np.array([angular_error(guess[None], true[None]) for guess, true in pairs])


def _predictions(finished: Finished) -> Predictions:
    return finished.run.predictions


def _errors_of_seeds(finished: Sequence[Finished]) -> dict[int, Columns]:
    return {seed: sample_errors(runs) for seed, runs in by_seed(finished).items()}


def _groups(outcomes: Sequence[Outcome]) -> NDArray[Any] | None:
    """The group of every test sample, (n,), in the order of `sample_errors`; None without groups.

    The test samples are the same for all seeds and methods.
    """
    complete = [runs for outcome in outcomes for runs in by_seed(outcome.finished).values()]
    tables = [one.planned.table for one in complete[0]] if complete else []
    parts = [table.group[table.rows("test")] for table in tables if table.group is not None]
    return np.concatenate(parts) if parts else None


def _interval(errors: Mapping[int, Columns], groups: NDArray[Any] | None) -> Interval | None:
    return repeated_interval(np.array(list(errors.values())), groups=groups) if errors else None


def _difference(
    row: Row,
    ours: Mapping[int, Columns],
    theirs: Mapping[int, Columns],
    groups: NDArray[Any] | None,
    baseline: str,
) -> Row:
    seeds = [seed for seed in ours if seed in theirs]
    a, b = (np.array([errors[seed] for seed in seeds]) for errors in (ours, theirs))
    changes = 100 * (a - b).mean(axis=1) / b.mean()
    ends = repeated_interval(a, b, groups=groups)
    return Row(
        row.method,
        row.setting,
        difference_name(baseline),
        tuple(changes.tolist()),
        interval=None if ends is None else Interval(100 * ends.low, 100 * ends.high),
    )
