"""Errors of a run: by subgroup, by value of the target, inside and outside of ranges.

Errors are absolute, and averaged over the targets; only `targets` takes each target by itself.
Every mean has a 95 % interval if there are two samples or more; see `mean_interval`. If samples
have weights, means are weighted, but n counts samples. If all weights of a group are 0, its samples
count equally.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rnc.analyses.analysis import AnalysisOptions
from rnc.metrics import SHOTS, Columns, r2, shot_groups
from rnc.metrics.arrays import weighted_mean
from rnc.metrics.bootstrap import Interval, mean_interval, r2_interval
from rnc.run.folder import AnalysisResult, DoesNotApply, RunFolder
from rnc.run.groups import Groups, groups_named, readable
from rnc.run.predictions import SUBGROUP_SUFFIX

TARGET_BINS = 20
RESAMPLES_OF_GROUPS = 2000
"""More than for a score of all samples, since a small group has a wide interval."""
LARGE_GROUP = 20
"""Samples that a group needs to count for the worst group and the gap."""


def mean_error(errors: NDArray[Any], weights: Columns | None = None) -> dict[str, Any]:
    """Number and mean of absolute errors (n,), and ends of the mean's interval, None if undefined.

    Weights are (n,).

    >>> mean_error(np.array([2.0, 2.0, 2.0]))
    {'n': 3, 'mae': 2.0, 'low': 2.0, 'high': 2.0}
    >>> mean_error(np.array([5.0]))
    {'n': 1, 'mae': 5.0, 'low': None, 'high': None}
    """
    weights = None if weights is None or not weights.any() else weights
    ends = mean_interval(errors, resamples=RESAMPLES_OF_GROUPS, weights=weights)
    low, high = ends or (None, None)
    mae = weighted_mean(errors[:, None], weights) if len(errors) else None
    return {"n": len(errors), "mae": mae, "low": low, "high": high}


# --------------------------------------------------------------------------------- intervals


def score_intervals(run: RunFolder, _: AnalysisOptions) -> AnalysisResult:
    """Intervals of the scores of the test split: mae, r2, and mae of the shot groups."""
    scores, errors = run.scores["test"], run.errors.mean(axis=1)
    prediction, weights = run.predictions.predicted, run.predictions.weights
    intervals = {"mae": mean_interval(errors, weights=weights)}
    usual = r2_interval(prediction, run.truth, weights=weights)
    if usual is not None and "r2" in scores:
        # The paper's R2 divides by the spread around the training mean. Its interval is taken to be
        # that of the usual R2, shifted by the difference of the two values.
        shift = scores["r2"] - r2(prediction, run.truth, weights=weights)
        intervals["r2"] = Interval(usual.low + shift, usual.high + shift)
    if run.train_targets is not None and len(run.targets) == 1:
        shots = shot_groups(run.truth, run.train_targets)
        for name in SHOTS:
            if f"{name}_mae" in scores:
                intervals[f"{name}_mae"] = mean_interval(
                    errors[shots == name], weights=_part(weights, shots == name)
                )
    return AnalysisResult(
        {name: span._asdict() for name, span in intervals.items() if span is not None}
    )


def _part(weights: Columns | None, chosen: NDArray[np.bool_]) -> Columns | None:
    return None if weights is None else weights[chosen]


# --------------------------------------------------------------------------------- subgroups


def subgroups(run: RunFolder, _: AnalysisOptions) -> AnalysisResult:
    """The error of every group of each subgroup column, the worst group, and worst minus best."""
    errors, weights = run.errors.mean(axis=1), run.predictions.weights
    return AnalysisResult(
        {
            name: group_errors(errors, groups.codes, groups.names, weights)
            for name, groups in subgroup_columns(run).items()
        }
    )


def group_errors(
    errors: NDArray[Any], codes: NDArray[np.int64], names: list[str], weights: Columns | None = None
) -> dict[str, Any]:
    """The errors of all groups, the worst group, and its gap to the best group.

    "worst" and "gap" are about groups of at least 20 samples, or about all groups if none has 20.

    >>> result = group_errors(np.array([1.0, 3.0, 7.0]), np.array([0, 0, 1]), ["a", "b"])
    >>> result["worst"], result["gap"], result["groups"][1]
    ('b', 5.0, {'value': 'b', 'n': 1, 'mae': 7.0, 'low': None, 'high': None})
    """
    groups = [
        {"value": name, **mean_error(errors[codes == code], _part(weights, codes == code))}
        for code, name in enumerate(names)
        if (codes == code).any()
    ]
    large = [group for group in groups if group["n"] >= LARGE_GROUP] or groups
    ordered = sorted(large, key=lambda group: group["mae"])
    gap = ordered[-1]["mae"] - ordered[0]["mae"]
    return {"groups": groups, "worst": ordered[-1]["value"], "gap": gap}


def readable_columns(run: RunFolder, _: AnalysisOptions) -> AnalysisResult:
    """How well a linear probe predicts each subgroup column from the features."""
    scores = {}
    for name, groups in subgroup_columns(run).items():
        score = readable(run.features, groups.at(run.rows))
        if score is not None:
            scores[name] = score._asdict()
    if not scores:
        raise DoesNotApply(
            f"No subgroup column of {run.path} can be read back: a probe needs two values with "
            "five samples each, or ten numbers. Fit with --subgroup-column for such a column."
        )
    return AnalysisResult(scores)


def subgroup_columns(run: RunFolder) -> dict[str, Groups]:
    """The subgroup columns for which scores.json has groups."""
    scored, columns = run.scores["subgroups"], {}
    for name, texts in run.subgroups.items():
        key = name
        while key not in scored and key.endswith(
            SUBGROUP_SUFFIX
        ):  # `predictions_frame` adds it if the name is taken
            key = key.removesuffix(SUBGROUP_SUFFIX)
        if key in scored:
            columns[name] = groups_named(texts, list(scored[key]))
    if not columns:
        raise DoesNotApply(
            f"{run.path} has no subgroup column with scores; its columns: "
            f"{', '.join(run.subgroups) or 'none'}. Fit with --subgroup-column for a column of "
            "numbers, or of at most 50 texts."
        )
    return columns


# ----------------------------------------------------------------------------------- targets


def targets(run: RunFolder, _: AnalysisOptions) -> AnalysisResult:
    """The error in bins of each target, with the number of training labels in each bin."""
    return AnalysisResult(
        {
            name: target_errors(
                run.errors[:, i],
                run.truth[:, i],
                None if run.train_targets is None else run.train_targets[:, i],
                run.predictions.weights,
            )
            for i, name in enumerate(run.targets)
        }
    )


def target_errors(
    errors: NDArray[Any],
    truth: NDArray[Any],
    train: NDArray[Any] | None,
    weights: Columns | None = None,
) -> dict[str, Any]:
    """The error in at most 20 bins of a target, by name: edges, n, mae, low, high, n_train.

    Args:
        errors: one absolute error per sample, (n,).
        truth: the target of each, (n,).
        train: targets of the training samples, (m,); if None, n_train is None.
        weights: the weight of each sample, (n,).

    >>> bins = target_errors(np.array([1.0, 3.0]), np.array([4.0, 5.0]), np.array([4, 4, 6]))
    >>> bins["edges"], bins["mae"], bins["n_train"]
    ([3.5, 4.5, 5.5, 6.5], [1.0, 3.0, None], [2, 0, 1])
    """
    edges = bin_edges(truth if train is None else np.concatenate([truth, train]))
    places = _bins(truth, edges)
    chosen = [places == i for i in range(len(edges) - 1)]
    bins = [mean_error(errors[rows], _part(weights, rows)) for rows in chosen]
    columns = {name: [one[name] for one in bins] for name in ("n", "mae", "low", "high")}
    counts = None if train is None else np.bincount(_bins(train, edges), minlength=len(bins))
    n_train = None if counts is None else counts.tolist()
    return {"edges": edges.tolist(), **columns, "n_train": n_train}


def bin_edges(values: NDArray[Any]) -> Columns:
    """Edges of at most 20 bins of one width over the values: (n,) -> (b + 1,).

    If all values are whole numbers, every bin covers the same number of them. Otherwise the counts
    of a target such as age would look uneven.

    >>> bin_edges(np.array([0.0, 1.5, 2.0])).tolist()[:3]
    [0.0, 0.1, 0.2]
    """
    low, high = float(values.min()), float(values.max())
    if (values == np.floor(values)).all():
        width = math.ceil((high - low + 1) / TARGET_BINS)
        bins = math.ceil((high - low + 1) / width)
        return low - 0.5 + width * np.arange(bins + 1.0)
    if low == high:
        return np.array([low - 0.5, low + 0.5])
    return np.linspace(low, high, TARGET_BINS + 1)


def _bins(values: NDArray[Any], edges: Columns) -> NDArray[np.int64]:
    """The bin of each value; the last bin holds its upper edge."""
    return (np.searchsorted(edges, values, side="right") - 1).clip(0, len(edges) - 2)


# ------------------------------------------------------------------------------------ unseen


def unseen(run: RunFolder, options: AnalysisOptions) -> AnalysisResult:
    """The error inside and outside the ranges of the first target that training has seen."""
    name, values = run.targets[0], run.truth[:, 0]
    if not options.seen:
        raise DoesNotApply(
            f"unseen needs the ranges of {name} that training has seen: --seen LOW:HIGH, "
            "as often as needed."
        )
    inside = np.zeros(len(values), bool)
    for low, high in options.seen:
        inside |= (values >= low) & (values <= high)
    if inside.all() or not inside.any():
        which = "inside" if inside.all() else "outside"
        ranges = ", ".join(f"{low:g}:{high:g}" for low, high in options.seen)
        raise ValueError(
            f"unseen compares samples inside and outside of --seen; all {len(values)} are {which} "
            f"{ranges}. {name} runs from {values.min():g} to {values.max():g}: choose other ranges."
        )
    errors, weights = run.errors.mean(axis=1), run.predictions.weights
    return AnalysisResult(
        {
            "ranges": [list(one) for one in options.seen],
            "seen": mean_error(errors[inside], _part(weights, inside)),
            "unseen": mean_error(errors[~inside], _part(weights, ~inside)),
        }
    )


def parse_range(text: str) -> tuple[float, float]:
    """LOW:HIGH as two numbers.

    >>> parse_range("-5:20")
    (-5.0, 20.0)
    """
    parts = text.split(":")
    try:
        low, high = (float(part) for part in parts)
    except ValueError:
        low, high = math.nan, math.nan
    if not (math.isfinite(low) and math.isfinite(high) and low <= high):
        raise ValueError(f"--seen needs LOW:HIGH, two numbers such as 20:50; got {text!r}.")
    return low, high
