"""Evaluate a model on one split of a table.

The scores, as in scores.json:

    {"test": {"mae": ..., "r2": ..., "spearman": ..., "many_mae": ..., ...},
     "n": {"train": ..., "val": ..., "test": ...},
     "per_target": {target: {"mae": ..., ...}},  if there are several targets
     "subgroups": {column: {value or range: {"n": ..., "mae": ..., ...}}},  see `rnc.run.groups`
     "readable": {column: accuracy or R2},                                  see `rnc.run.groups`
     "guessing": {column: {"kind": "accuracy" or "r2", "chance": the score of a guess}},
     "intervals": {...},          if the model has calibration rows: see `rnc.run.coverage`
     "out_of_range": {"out_of_range": n, "checked": n, "kept": number of training samples}
                                  added by `rnc.run.neighbours`
     "test": {"concordance": ..., "hit_share": ...}  beside the other scores, if some targets are
                                  known in part: see `rnc.run.partial_scores`
     "distribution": {target: {"crps": ...}},  for some heads: see `rnc.run.distribution`
     "columns": {column of predictions.csv: its role}}                 see `rnc.run.predictions`

The first key is the name of the split. A score that is not defined is left out. If rows have
weights, errors and R2 are weighted, also for shot groups and subgroups. n counts rows. spearman,
kendall, "readable", "intervals" and "distribution" ignore weights. `rnc fit` adds

     "validation_error": that of the weights that were kept,
     "auto": {scheme: its validation error}, "kept": scheme            with scheme auto
     "head": {"penalty": ..., "balance": ...}                          if the head was solved
     "oversample": exponent                                            if it is not 0
     "training": {"updates": ..., "enough": ..., "why": ...}           see `rnc.run.enough`
     "baselines": {"median": {"mae": ...}, "boosting": {"mae": ...}}   see `rnc.run.baselines`
"""

import math
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import torch
from numpy.typing import NDArray

from rnc.config import FitConfig
from rnc.data.errors import DataError, first_few
from rnc.data.inputs import essential
from rnc.data.originals import originals_of
from rnc.data.splits import ALL_SPLITS, EXACT_SPLITS, SPLITS
from rnc.data.table import Table
from rnc.intervals import Intervals
from rnc.intervals.calibration import CHOSEN_AT
from rnc.loss.pairwise import Pairwise, circular, resolve_label_distance, resolve_similarity
from rnc.metrics import (
    SHOTS,
    Columns,
    Values,
    as_columns,
    circular_error,
    ordinality,
    regression_scores,
    worst_samples,
)
from rnc.model import Regressor, input_shape_of
from rnc.model.batching import Answers
from rnc.model.intervals import IntervalMaker, kept_calibration
from rnc.run.coverage import CURVE, coverage_scores, joined_intervals, possible_confidences
from rnc.run.distribution import head_scores
from rnc.run.folder import AnalysisResult
from rnc.run.groups import Groups, groups_of, readable
from rnc.run.partial_scores import score_partial_test
from rnc.run.predictions import check_target_names, extra_columns, predictions_frame
from rnc.run.thumbnails import thumbnails
from rnc.training.record import told

MOST_POINTS = 2000

_BATCH, _TOGETHER = 256, 64  # samples per batch of an encoder, batches per call of a head


@dataclass(frozen=True, eq=False)
class Evaluation:
    """The result of `evaluate`. `rnc.run.write.write_evaluation` writes it to files."""

    scores: dict[str, Any]
    """JSON types, as in scores.json."""
    predictions: pd.DataFrame
    """One row per evaluated sample, as in predictions.csv."""
    features: NDArray[np.float32]
    """(k, d), of up to 2,000 samples."""
    rows: NDArray[np.int64]
    """(k,) the rows of `predictions` that have these features, ascending."""
    thumbnails: dict[str, NDArray[Any]] = field(default_factory=dict)
    """Small pictures by kind (see `rnc.run.thumbnails`), and in "rows" (m,) the rows of
    `predictions` that they show, ascending: those with features and those with the worst errors."""
    worst_inputs: pd.DataFrame | None = None
    """For a table: the raw columns of the samples with the worst errors. The index holds their rows
    in `predictions`."""
    neighbours: AnalysisResult | None = None
    """The training samples nearest to the worst errors, see `rnc.run.neighbours`."""
    partial_predictions: pd.DataFrame | None = None
    """Predictions for test rows whose targets are known in part, see `rnc.run.partial_scores`."""


def evaluate(
    model: Regressor,
    table: Table,
    *,
    split: str = "test",
    angles: bool = False,
    seed: int = 0,
    train_targets: Values | None = None,
    label_distance: str | Pairwise = "l1",
    similarity: str | Pairwise = "l2",
) -> Evaluation:
    """Scores, predictions and features of a model on one split.

    Args:
        model: the model, which stays on its device.
        table: the data, prepared as the model's training data were.
        split: train, val, test or calibration.
        angles: whether the two targets are pitch and yaw in degrees.
        seed: the seed of the draw of 2,000 samples, if there are more, and of the probes' folds.
        train_targets: the targets that the model was trained on, (m,) or (m, t); by default those
            of the table's train rows. If there are none, r2 and the shot scores are left out.
        label_distance: as for `rnc_loss`; for spearman, kendall and circular_error.
        similarity: as for `rnc_loss`; for spearman and kendall.

    >>> from rnc.data import table_from_arrays
    >>> from rnc.heads import head_config
    >>> from rnc.model import ModelConfig
    >>> table = table_from_arrays(np.random.rand(50, 3), np.arange(50))
    >>> head = vars(head_config("l1", 256, table.y))
    >>> config = ModelConfig("table", "mlp", (3,), {}, head, table.target_names)
    >>> evaluation = evaluate(Regressor(config), table)
    >>> evaluation.scores["n"], evaluation.features.shape
    ({'train': 35, 'val': 5, 'test': 10}, (10, 256))
    >>> list(evaluation.predictions)
    ['name', 'y', 'y_predicted']
    """
    distance = resolve_label_distance(label_distance)
    feature_similarity = resolve_similarity(similarity)
    samples = _samples(model, table, split)
    truth, rows = table.y[samples], draw(len(samples), MOST_POINTS, seed)
    weights = None if table.weight is None else table.weight[samples]
    calibration = kept_calibration(model)
    maker = None if calibration is None else IntervalMaker(model, calibration)
    features, prediction, extras, found = _predict(model, table.x, samples, rows, maker)
    train = _train_targets(table, train_targets)
    scores: dict[str, Any] = {
        split: {
            **_scores(prediction, truth, train, weights, angles=angles),
            **_circular_score(prediction, truth, distance, weights),
            **_order(features, truth[rows], feature_similarity, distance),
        },
        "n": {name: n for name in ALL_SPLITS if (n := len(table.rows(name))) or name in SPLITS},
    }
    if calibration is not None:
        scores["intervals"] = coverage_scores(found, truth, calibration, table.target_names)
    if model.head.has_distribution:
        period = distance.period if isinstance(distance, circular) else None
        scores["distribution"] = head_scores(
            model.head, features, truth[rows], table.target_names, period
        )
    if truth.shape[1] > 1:
        scores["per_target"] = _per_target(prediction, truth, train, table.target_names, weights)
    partial = score_partial_test(model, table, samples, prediction, scores)
    scores |= {"subgroups": {}, "readable": {}, "guessing": {}}
    for name, values in table.subgroup.items():
        groups = groups_of(values, samples)
        if groups is not None:
            of_groups = _per_group(prediction, truth, train, groups, angles, weights)
            scores["subgroups"][name] = of_groups
            probe = readable(features, groups.at(rows), seed)
            if probe is not None:
                scores["readable"][name] = probe.score
                scores["guessing"][name] = {"kind": probe.kind, "chance": probe.chance}
    worst = worst_samples(prediction, truth)
    pictured = np.union1d(rows, worst)
    pictures = thumbnails(table.x, samples[pictured])
    if pictures:
        pictures["rows"] = pictured
    ends = found.get(CHOSEN_AT)
    frame, scores["columns"] = predictions_frame(table, samples, prediction, extras, ends)
    raw = originals_of(table.raw, samples[worst])
    raw = None if raw is None else raw.set_axis(worst)
    return Evaluation(scores, frame, features, rows, pictures, raw, partial_predictions=partial)


def evaluate_run(
    model: Regressor, table: Table, config: FitConfig, train_targets: Values | None = None
) -> Evaluation:
    """Evaluate a model with the label distance and the similarity that it was trained with."""
    return evaluate(
        model,
        table,
        angles=config.label_distance == "angular",
        train_targets=train_targets,
        label_distance=config.distance,
        similarity=config.similarity,
    )


# ------------------------------------------------------------------------------- predictions


def _predict(
    model: Regressor,
    x: NDArray[Any],
    samples: NDArray[np.int64],
    rows: NDArray[np.int64],
    maker: IntervalMaker | None,
) -> tuple[NDArray[np.float32], Columns, dict[str, Columns], dict[float, Intervals]]:
    """Features (k, d) of some samples; predictions (n, t), extras (n,) and intervals of all.

    `rows` are the positions of the samples with features. Intervals are by confidence, and only
    if there is a `maker`. The encoder runs once, and the features of all samples are never in
    memory at the same time.
    """
    batches = told(
        "evaluating",
        model.embed_batches(x, rows=samples, batch_size=_BATCH),
        math.ceil(len(samples) / _BATCH),
    )
    kept, predictions, extras, done = [], [], [], 0
    found, confidences = [], possible_confidences(0 if maker is None else len(maker.rows), CURVE)
    while several := list(islice(batches, _TOGETHER)):
        features = np.concatenate(several)
        with torch.no_grad():
            outputs = model.head(torch.from_numpy(features).to(model.input_shift.device))
            predictions.append(model.head.decode(outputs).cpu().numpy())
        if maker is not None:
            answers = Answers(features, outputs.cpu().numpy(), predictions[-1])
            found.append(maker.several(answers, confidences))
        extras.append(extra_columns(model, features))
        here = rows[(rows >= done) & (rows < done + len(features))] - done
        kept.append(features[here])
        done += len(features)
    joined = {name: np.concatenate([part[name] for part in extras]) for name in extras[0]}
    intervals = joined_intervals(found) if found else {}
    return np.concatenate(kept), np.concatenate(predictions), joined, intervals


def draw(n: int, limit: int, seed: int = 0) -> NDArray[np.int64]:
    """Positions of at most `limit` of n samples, drawn at random with a seed, ascending."""
    if n <= limit:
        return np.arange(n)
    return np.sort(np.random.default_rng(seed).permutation(n)[:limit])


# ------------------------------------------------------------------------------------ scores


def _scores(
    prediction: Columns,
    truth: Columns,
    train: Columns | None,
    weights: Columns | None,
    *,
    angles: bool = False,
) -> dict[str, float]:
    scores = regression_scores(
        prediction, truth, truth if train is None else train, angles=angles, weights=weights
    )
    return scores if train is not None else _without_shots(scores, "r2")


def _circular_score(
    prediction: Columns, truth: Columns, distance: Pairwise, weights: Columns | None
) -> dict[str, float]:
    if not isinstance(distance, circular):
        return {}
    period = distance.period
    return {"circular_error": circular_error(prediction, truth, period=period, weights=weights)}


def _without_shots(scores: dict[str, float], *also: str) -> dict[str, float]:
    return {k: v for k, v in scores.items() if not k.startswith(SHOTS) and k not in also}


def _order(
    features: NDArray[np.float32], truth: Columns, similarity: Pairwise, distance: Pairwise
) -> dict[str, float]:
    if len(truth) < 3:
        return {}
    order = ordinality(features, truth, similarity=similarity, label_distance=distance)
    return {name: score for name, score in order._asdict().items() if not math.isnan(score)}


def _per_target(
    prediction: Columns,
    truth: Columns,
    train: Columns | None,
    names: tuple[str, ...],
    weights: Columns | None,
) -> dict[str, dict[str, float]]:
    scores = {}
    for i, name in enumerate(names):
        seen = None if train is None else train[:, [i]]
        scores[name] = _scores(prediction[:, [i]], truth[:, [i]], seen, weights)
    return scores


def _train_targets(table: Table, given: Values | None) -> Columns | None:
    if given is not None:
        return as_columns(given, "train_targets")
    rows = table.rows("train")
    return table.y[rows] if len(rows) else None


# --------------------------------------------------------------------------------- subgroups


def _per_group(
    prediction: Columns,
    truth: Columns,
    train: Columns | None,
    groups: Groups,
    angles: bool,
    weights: Columns | None,
) -> dict[str, dict[str, float]]:
    scores: dict[str, dict[str, float]] = {}
    for code, name in enumerate(groups.names):
        rows = np.flatnonzero(groups.codes == code)
        if len(rows):
            # If all weights in a group are 0, its rows count equally.
            mass = None if weights is None or not weights[rows].any() else weights[rows]
            of_group = _scores(prediction[rows], truth[rows], train, mass, angles=angles)
            scores[name] = {"n": len(rows), **_without_shots(of_group)}
    return scores


# ------------------------------------------------------------------------------------ checks


def _samples(model: Regressor, table: Table, split: str) -> NDArray[np.int64]:
    """Positions of the rows to evaluate. Raises if the model does not fit the table."""
    if split not in EXACT_SPLITS:
        raise DataError(f"split must be one of {', '.join(EXACT_SPLITS)}; got {split!r}.")
    config, samples = model.config, table.rows(split)
    if config.kind != table.kind:
        raise DataError(
            f"The model was trained on data of kind {config.kind!r}; the table is of kind "
            f"{table.kind!r}."
        )
    if config.target_names != table.target_names:
        raise DataError(
            f"The model predicts {first_few(config.target_names)}; the table was read with targets "
            f"{first_few(table.target_names)}. Read the table again with target= set to the "
            "model's targets, in the same order."
        )
    if len(samples) == 0:
        counts = ", ".join(f"{len(table.rows(name))} {name}" for name in SPLITS)
        raise DataError(
            f"There are no {split} rows to evaluate: the table has {counts}. Choose another split."
        )
    check_target_names(config.target_names)
    _check_inputs(model, table)
    return samples


def _check_inputs(model: Regressor, table: Table) -> None:
    config = model.config
    shape = input_shape_of(table.x, model.augment)
    if shape != config.input_shape:
        raise DataError(
            f"The model needs samples of shape {config.input_shape}; those of the table have "
            f"shape {shape} ({table.x.shape[1:]} before preparation). Give samples like those of "
            "the training."
        )
    before, now = (essential(p, table.kind) for p in (config.preprocessing, table.preprocessing))
    if before and now and before != now:
        raise DataError(
            "The table was not prepared as the model's training data were: read it with "
            "preprocessing=model.config.preprocessing."
        )
