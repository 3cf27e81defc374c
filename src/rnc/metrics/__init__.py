"""Scores of predictions and of features: arrays or tensors in, plain numbers out."""

from rnc.metrics.bootstrap import Interval, mean_interval, r2_interval
from rnc.metrics.columns import Columns, Values, as_columns
from rnc.metrics.order import Ordinality, ordinality
from rnc.metrics.scores import (
    SHOTS,
    WORST,
    angular_error,
    circular_error,
    error_measure,
    geometric_mean_error,
    mae,
    mse,
    r2,
    regression_scores,
    rmse,
    shot_groups,
    shot_scores,
    worst_samples,
)

__all__ = [
    "SHOTS",
    "WORST",
    "Columns",
    "Interval",
    "Ordinality",
    "Values",
    "angular_error",
    "as_columns",
    "circular_error",
    "error_measure",
    "geometric_mean_error",
    "mae",
    "mean_interval",
    "mse",
    "ordinality",
    "r2",
    "r2_interval",
    "regression_scores",
    "rmse",
    "shot_groups",
    "shot_scores",
    "worst_samples",
]
