"""Scores of predictions, and of how well features keep the order of the labels.

Predictions and targets are (n,) or (n, t), in the units of the targets. Errors are pooled: every
one of the n * t errors counts the same, or by the weight of its row: weights are (n,), at least 0.
Labels that are known in part have their own scores: see `rnc.metrics.partial_labels`.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from rnc.loss import pairwise
from rnc.metrics.arrays import Columns as Columns
from rnc.metrics.arrays import Values as Values
from rnc.metrics.arrays import as_columns as as_columns
from rnc.metrics.arrays import float_rows as float_rows
from rnc.metrics.arrays import row_weights, weighted_mean
from rnc.metrics.partial_labels import concordance_index as concordance_index
from rnc.metrics.partial_labels import hit_share as hit_share
from rnc.metrics.words import score_words as score_words

SHOTS = ("many", "medium", "few")
WORST = 12
"""How many samples with the largest errors a report shows and an evaluation keeps pictures of."""


def regression_scores(
    prediction: Values,
    target: Values,
    train_target: Values,
    *,
    angles: bool = False,
    shot_step: float | None = None,
    weights: Values | None = None,
) -> dict[str, float]:
    """The standard scores by name: mae, mse, rmse, gmean, r2, r2_test_mean, and more on request.

    r2 compares with predicting the mean of the training targets, as in the paper; r2_test_mean is
    the usual one. A score that is not defined (r2 where the target does not vary, a shot group
    without samples) is left out.

    Args:
        prediction: (n,) or (n, t).
        target: the same shape.
        train_target: the targets that the model was trained on, (m,) or (m, t).
        angles: the two targets are pitch and yaw in degrees: adds angular_error.
        shot_step: adds `shot_scores` with this step, as many_mae and so on. None adds them, with
            step 1, for a single target whose training values are whole numbers.
        weights: of the samples, (n,); r2 still compares with the plain mean of the training
            targets, and the n of a shot group counts samples.

    >>> ages, seen = np.array([20.0, 30.0, 40.0]), np.array([10.0, 20.0, 30.5])
    >>> scores = regression_scores(np.array([21.0, 31.0, 38.0]), ages, seen)
    >>> {name: round(score, 3) for name, score in scores.items()}
    {'mae': 1.333, 'mse': 2.0, 'rmse': 1.414, 'gmean': 1.26, 'r2': 0.988, 'r2_test_mean': 0.97}
    """
    truth, train = as_columns(target, "target"), as_columns(train_target, "train_target")
    if truth.shape[1] != train.shape[1]:
        raise ValueError(
            "target and train_target must have the same number of targets; got "
            f"{truth.shape} and {train.shape}."
        )
    scores = {
        "mae": mae(prediction, target, weights=weights),
        "mse": mse(prediction, target, weights=weights),
        "rmse": rmse(prediction, target, weights=weights),
        "gmean": geometric_mean_error(prediction, target, weights=weights),
        "r2": r2(prediction, target, mean=train.mean(axis=0), weights=weights),
        "r2_test_mean": r2(prediction, target, weights=weights),
    }
    if angles:
        scores["angular_error"] = angular_error(prediction, target, weights=weights)
    if shot_step is None and train.shape[1] == 1 and (train == np.floor(train)).all():
        shot_step = 1.0
    if shot_step is not None:
        shots = shot_scores(prediction, target, train, step=shot_step, weights=weights)
        for shot, group in shots.items():
            scores |= {f"{shot}_{name}": score for name, score in group.items()}
    return {name: score for name, score in scores.items() if not math.isnan(score)}


# ------------------------------------------------------------------------------------ errors


def mae(prediction: Values, target: Values, *, weights: Values | None = None) -> float:
    """Mean absolute error.

    >>> mae(np.array([1.0, 5.0]), np.zeros(2), weights=np.array([3.0, 1.0]))
    2.0
    """
    return weighted_mean(np.abs(_errors(prediction, target)), weights)


def mse(prediction: Values, target: Values, *, weights: Values | None = None) -> float:
    """Mean squared error."""
    return weighted_mean(np.square(_errors(prediction, target)), weights)


def rmse(prediction: Values, target: Values, *, weights: Values | None = None) -> float:
    """Square root of the mean squared error."""
    return math.sqrt(mse(prediction, target, weights=weights))


def geometric_mean_error(
    prediction: Values, target: Values, *, weights: Values | None = None
) -> float:
    """Geometric mean of the absolute errors; 0 if any of them is 0 and has a weight.

    >>> geometric_mean_error(np.array([1.0, 4.0]), np.array([0.0, 0.0]))
    2.0
    """
    errors = np.abs(_errors(prediction, target))
    if weights is not None:  # an error that weighs nothing may be 0
        mass = row_weights(weights, len(errors))
        errors, weights = errors[mass[:, 0] > 0], mass[mass > 0]
    return float(np.exp(weighted_mean(np.log(errors), weights))) if errors.all() else 0.0


def r2(
    prediction: Values,
    target: Values,
    *,
    mean: float | Sequence[float] | Values | None = None,
    weights: Values | None = None,
) -> float:
    """R2 = 1 - squared error / squared error of a constant; nan if the latter is 0.

    The constant is `mean`, one number per target. The paper takes the mean of the training targets.
    None takes the mean of the targets given here, weighted if there are weights: the usual R2. Both
    sums of squares run over all targets, so one with a larger variance weighs more.

    >>> round(r2(np.array([1.0, 2.0, 4.0]), np.array([1.0, 2.0, 3.0])), 3)
    0.5
    >>> round(r2(np.array([1.0, 2.0, 4.0]), np.array([1.0, 2.0, 3.0]), mean=0.0), 3)
    0.929
    """
    errors, truth = _errors(prediction, target), as_columns(target, "target")
    mass = None if weights is None else row_weights(weights, len(truth))
    usual = truth.mean(axis=0) if mass is None else (mass * truth).sum(axis=0) / mass.sum()
    constant = usual if mean is None else np.asarray(mean, dtype=np.float64)
    if constant.shape not in ((), (truth.shape[1],)) or not np.isfinite(constant).all():
        raise ValueError(
            f"r2 needs one finite mean per target, {truth.shape[1]} in all; got {mean}."
        )
    squares, spreads = np.square(errors), np.square(truth - constant)
    if mass is not None:
        squares, spreads = mass * squares, mass * spreads
    spread = spreads.sum()
    return float(1 - squares.sum() / spread) if spread > 0 else math.nan


def circular_error(
    prediction: Values, target: Values, *, period: float, weights: Values | None = None
) -> float:
    """Mean of the shorter way round a circle between prediction and target.

    >>> circular_error(np.array([23.5, 7.0]), np.array([0.5, 6.0]), period=24)
    1.0
    """
    pairwise.circular(period)  # raises if the period is not valid
    gaps = np.abs(_errors(prediction, target)) % period
    return weighted_mean(np.minimum(gaps, period - gaps), weights)


def error_measure(label_distance: str | pairwise.Pairwise) -> Callable[..., float]:
    """The error that suits a label distance: angular, circular, or mean absolute.

    It takes predictions, targets and `weights`.
    """
    distance = pairwise.resolve_label_distance(label_distance)
    if isinstance(distance, pairwise.circular):
        return partial(circular_error, period=distance.period)
    return angular_error if distance is pairwise.angular_distance else mae


def worst_samples(prediction: Columns, target: Columns) -> NDArray[np.int64]:
    """Rows with the largest absolute errors, averaged over the targets, the largest first.

    There are at most WORST; rows whose error is not finite are left out.

    >>> worst_samples(np.array([[1.0], [math.nan], [9.0]]), np.array([[2.0], [0.0], [0.0]]))
    array([2, 0])
    """
    errors = np.abs(prediction - target).mean(axis=1)
    known = np.flatnonzero(np.isfinite(errors))
    return known[np.argsort(-errors[known], kind="stable")[:WORST]]


def angular_error(prediction: Values, target: Values, *, weights: Values | None = None) -> float:
    """Mean angle in degrees between gaze directions, each given as pitch and yaw in degrees.

    >>> round(angular_error(np.array([[0.0, 0.0]]), np.array([[0.0, 30.0]])), 6)
    30.0
    """
    pairs = [as_columns(prediction, "prediction"), as_columns(target, "target")]
    if any(angles.shape != (len(pairs[0]), 2) for angles in pairs):
        raise ValueError(
            "angular_error needs prediction and target (n, 2), pitch and yaw in degrees; got "
            f"{pairs[0].shape} and {pairs[1].shape}."
        )
    u, v = (pairwise.gaze_direction(torch.tensor(angles)).numpy() for angles in pairs)
    # acos of a rounded cosine is nan, or far from 0, where the directions are the same.
    sine = np.linalg.norm(np.cross(u, v), axis=1)
    angles = np.rad2deg(np.arctan2(sine, (u * v).sum(axis=1)))
    return weighted_mean(angles[:, None], weights)


# ------------------------------------------------------------------------------------- shots


def shot_groups(
    target: Values, train_target: Values, *, step: float = 1.0, many: int = 100, few: int = 20
) -> NDArray[np.str_]:
    """Whether each label is a many, medium or few shot label: (n,), (m,) -> (n,) of names.

    A label is its target rounded to a multiple of step. It is "many" if more than `many` training
    samples have it, "few" if less than `few` do, "medium" otherwise.

    >>> shot_groups(np.array([7.0, 8.0, 9.0]), np.repeat([7, 8], [101, 20])).tolist()
    ['many', 'medium', 'few']
    """
    if not 0 < step < math.inf or not 0 <= few <= many + 1:
        raise ValueError(
            "shot_groups needs step > 0 and 0 <= few <= many + 1; got "
            f"step={step}, few={few} and many={many}."
        )
    columns = as_columns(target, "target"), as_columns(train_target, "train_target")
    if any(values.shape[1] != 1 for values in columns):
        raise ValueError(
            "shot groups need a single target, (n,) or (n, 1); got "
            f"{columns[0].shape} and {columns[1].shape}. Score one column at a time."
        )
    labels, train_labels = (np.floor(values[:, 0] / step + 0.5) for values in columns)
    seen, seen_counts = np.unique(train_labels, return_counts=True)
    place = np.searchsorted(seen, labels).clip(max=len(seen) - 1)
    counts = np.where(seen[place] == labels, seen_counts[place], 0)
    return np.select([counts > many, counts < few], ["many", "few"], "medium")


def shot_scores(
    prediction: Values,
    target: Values,
    train_target: Values,
    *,
    step: float = 1.0,
    many: int = 100,
    few: int = 20,
    weights: Values | None = None,
) -> dict[str, dict[str, float]]:
    """n, mae, mse and gmean of each shot group; a group without samples is left out.

    The arguments are explained at `shot_groups`. With weights (n,), a group of weight 0 is left
    out, too.

    >>> truth = np.array([7.0, 9.0])
    >>> shot_scores(truth + 2, truth, np.repeat([7, 8], [101, 20]))["few"]
    {'n': 1.0, 'mae': 2.0, 'mse': 4.0, 'gmean': 2.0}
    """
    errors = _errors(prediction, target)
    groups = shot_groups(target, train_target, step=step, many=many, few=few)
    mass = None if weights is None else row_weights(weights, len(errors))[:, 0]
    scores = {}
    for shot in SHOTS:
        chosen = errors[groups == shot]
        of_group = None if mass is None else mass[groups == shot]
        if len(chosen) > 0 and (of_group is None or of_group.any()):
            scores[shot] = {"n": float(len(chosen))} | {
                name: measure(chosen, 0 * chosen, weights=of_group)
                for name, measure in (("mae", mae), ("mse", mse), ("gmean", geometric_mean_error))
            }
    return scores


# -------------------------------------------------------------------------------------- order


class Ordinality(NamedTuple):
    """How well the similarities of features follow those of labels, from -1 to 1."""

    spearman: float
    kendall: float
    """tau-b, which corrects for ties."""


def ordinality(
    features: Values,
    target: Values,
    *,
    similarity: str | pairwise.Pairwise = "l2",
    label_distance: str | pairwise.Pairwise = "l1",
    points: int = 2000,
    seed: int = 0,
) -> Ordinality:
    """Rank correlations, over all pairs of samples, of label similarity and feature similarity.

    Label similarity is minus the label distance. Both correlations are exact for the samples
    used, and nan if all labels, or all features, are equally far apart. The similarity and the
    label distance are those of `rnc_loss`. If there are more samples than `points`, that many are
    drawn with the seed. Time grows with the square of `points`: 2,000 are 2 million pairs, 2 to 3
    seconds.

    >>> ages = np.array([20.0, 30.0, 45.0, 70.0])
    >>> ordinality(2 * ages[:, None], ages)
    Ordinality(spearman=1.0, kendall=1.0)
    """
    from scipy import stats  # type: ignore[import-untyped]  # slow, and help texts need none

    if points < 3:
        raise ValueError(f"ordinality needs points >= 3; got {points}.")
    labels, rows = as_columns(target, "target"), float_rows(features)
    if len(rows) != len(labels) or len(rows) < 3:
        raise ValueError(
            "ordinality needs features (n, d) and target (n, t) with the same n >= 3; got "
            f"{rows.shape} and {labels.shape}."
        )
    n = len(rows)
    chosen = np.random.default_rng(seed).permutation(n)[:points] if n > points else np.arange(n)
    y, z = torch.from_numpy(labels[chosen]), torch.from_numpy(rows[chosen])
    distances = pairwise.resolve_label_distance(label_distance)(y, y)
    similarities = pairwise.resolve_similarity(similarity)(z, z)
    above = np.triu(np.ones(distances.shape, dtype=bool), k=1)
    a, b = -distances.numpy()[above], similarities.numpy()[above]
    del distances, similarities, above  # kendalltau needs room
    if a.min() == a.max() or b.min() == b.max():
        return Ordinality(math.nan, math.nan)
    spearman = np.corrcoef(stats.rankdata(a), stats.rankdata(b))[0, 1]
    return Ordinality(float(spearman), float(stats.kendalltau(a, b).statistic))


# ------------------------------------------------------------------------------------- arrays


def _errors(prediction: Values, target: Values) -> Columns:
    guess, truth = as_columns(prediction, "prediction"), as_columns(target, "target")
    if guess.shape != truth.shape:
        raise ValueError(
            "prediction and target must have the same shape (n, t); got "
            f"{guess.shape} and {truth.shape}."
        )
    return guess - truth
