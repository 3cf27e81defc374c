"""Which of several runs has the lowest error, and whether that is more than chance.

These are the only statistics that a page computes, since they need more than one run folder.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from rnc.metrics.bootstrap import Interval, mean_interval
from rnc.report import page
from rnc.report.runs import ReportRun, SeedScore
from rnc.run.answer import Answer, number

_ERRORS = ("angular_error", "circular_error", "mae")  # the first one that all runs have counts


class ErrorDifference(NamedTuple):
    """The error of a run minus the error of another run."""

    mean: float
    interval: Interval | None
    """The 95 % interval; None if it cannot be computed."""
    over: str
    """What the interval is over: "seeds", or "samples" of the same test split; "" if None."""

    @property
    def is_clear(self) -> bool:
        """Whether there is an interval and it does not include 0."""
        return self.interval is not None and not self.interval.low <= 0 <= self.interval.high


def error_key(runs: Sequence[ReportRun]) -> str:
    """The score that ranks runs: the error that suits the targets, if all have it; else "mae"."""
    return next((key for key in _ERRORS if all(key in run.scores("test") for run in runs)), "mae")


def error_of(run: ReportRun, key: str) -> SeedScore | None:
    """An error of a run on its test split, for every seed."""
    return run.over_seeds("test", key)


def compare(run: ReportRun, other: ReportRun, key: str = "mae") -> ErrorDifference | None:
    """The difference of two runs: over their seeds, else sample by sample. None if unknown."""
    errors, others = error_of(run, key), error_of(other, key)
    if run.targets != other.targets:
        return None
    if errors and others and min(len(errors.values), len(others.values)) > 1:
        return ErrorDifference(errors.mean - others.mean, welch_interval(errors, others), "seeds")
    differences = _paired(run, other) if key == "mae" else np.empty(0)
    if (interval := mean_interval(differences)) is not None:
        return ErrorDifference(float(differences.mean()), interval, "samples")
    return ErrorDifference(errors.mean - others.mean, None, "") if errors and others else None


def _paired(run: ReportRun, other: ReportRun) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """The differences of the errors on the same samples; (0,) if the samples differ."""
    same = run.true.shape == other.true.shape and np.allclose(run.true, other.true, equal_nan=True)
    differences = run.errors - other.errors if same else np.empty(0)
    return differences[np.isfinite(differences)]


def welch_interval(a: SeedScore, b: SeedScore) -> Interval:
    """The 95 % interval of the difference of two means, by Welch's t. Needs two values of each.

    >>> low, high = welch_interval(SeedScore((1.0, 1.2, 1.1)), SeedScore((2.0, 2.2, 2.1)))
    >>> round(low, 2), round(high, 2)
    (-1.23, -0.77)
    """
    from scipy import stats  # type: ignore[import-untyped]  # slow, and few pages need it

    parts = [np.var(one.values, ddof=1) / len(one.values) for one in (a, b)]
    degrees = [len(one.values) - 1 for one in (a, b)]
    total, difference = sum(parts), a.mean - b.mean
    if total == 0:
        return Interval(difference, difference)
    freedom = total**2 / sum(p**2 / d for p, d in zip(parts, degrees, strict=True))
    room = float(stats.t.ppf(0.975, freedom)) * math.sqrt(total)
    return Interval(difference - room, difference + room)


def verdict(runs: Sequence[ReportRun]) -> Answer:
    """The result of a comparison: the best run, by how much, and whether it may be chance."""
    if len({run.targets for run in runs}) > 1:
        return Answer("The runs predict different targets: their errors do not compare.", ())
    key = error_key(runs)
    scored = [(errors.mean, run) for run in runs if (errors := error_of(run, key)) is not None]
    if len(scored) < 2:
        return Answer("Fewer than two of these runs have scores: there is nothing to compare.", ())
    (least, best), (next_least, second) = sorted(scored, key=lambda pair: pair[0])[:2]
    difference = compare(best, second, key)
    numbers = f"{number(least)} against {number(next_least)}"
    less = f", {100 * (1 - least / next_least):.0f} % less" if next_least > 0 else ""
    headline = f"{best.name} has the lowest error: {numbers} of {second.name}{less}."
    if number(least) == number(next_least):
        headline = f"{best.name} and {second.name} have the same error: {number(least)}."
        return Answer(headline, tuple(_beaten(best, least, key)))
    if difference is None or difference.interval is None:
        chance = "It may be chance: train more seeds of both to tell."
        return Answer(headline, (chance, *_beaten(best, least, key)))
    if not difference.is_clear:
        headline = f"{best.name} and {second.name} are equal within noise: {numbers}."
    return Answer(headline, (_evidence(best, second, difference), *_beaten(best, least, key)))


def _beaten(best: ReportRun, error: float, key: str) -> list[str]:
    """A sentence if gradient boosting has a lower error than the best run, else []."""
    boosted = best.score("baselines", "boosting", key)
    if not isinstance(boosted, float | int) or boosted >= error:
        return []
    return [f"Gradient boosting (scikit-learn) is better than all of them here: {number(boosted)}."]


def _evidence(best: ReportRun, second: ReportRun, difference: ErrorDifference) -> str:
    low, high = sorted(-end for end in difference.interval or ())
    interval = f"95 % interval {page.between(Interval(low, high))}"
    size = number(-difference.mean)
    if difference.over == "seeds":
        counts = dict.fromkeys(len(run.seeds) for run in (best, second))
        judged = "more than chance" if difference.is_clear else "it may be chance; more seeds tell"
        over = " and ".join(str(count) for count in counts)
        return f"Over {over} seeds, the difference is {size} ({interval}): {judged}."
    judged = (
        "more than chance in the choice of samples. Another seed may still change it"
        if difference.is_clear
        else "it may be chance"
    )
    n = len(_paired(best, second))
    return f"On the same {n:,} test samples, the difference is {size} ({interval}): {judged}."
