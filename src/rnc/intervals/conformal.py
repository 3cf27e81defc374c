"""Split conformal intervals: coverage that holds for any model, from rows it was not trained on.

Each of m calibration rows has a score, such as the absolute error of its prediction. The margin for
confidence c is the ceil((m + 1) c)-th smallest score. If a new row is exchangeable with the
calibration rows, its score is within the margin with probability at least c, and at most
c + 1 / (m + 1) if no scores tie (Vovk et al. 2005; Lei et al. 2018).

    plain         |y - p|: intervals of one width
    normalised    |y - p| / difficulty: wide where samples are hard (Papadopoulos et al. 2002)
    by bins       a margin for each bin of the predictions: the coverage holds in each (Mondrian)
    joint         max over the targets of |y - p| / unit of the target: all targets at once

Targets on a circle have arcs: one whose upper end is below the lower one crosses the period's end.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rnc.metrics import Columns

LEAST_IN_BIN = 20
"""Least number of calibration rows in a bin: with fewer, its margin would be too noisy."""


class Intervals(NamedTuple):
    """The ends of closed intervals: (n, t) each."""

    lower: Columns
    upper: Columns


def least_rows(confidence: float) -> int:
    """How many calibration rows a finite margin needs.

    >>> least_rows(0.9), least_rows(0.95), least_rows(0.5)
    (9, 19, 1)
    """
    _check_confidence(confidence)
    rows = max(1, math.floor(confidence / (1 - confidence)) - 1)
    while promised_rank(rows, confidence) > rows:
        rows += 1
    return rows


def conformal_margin(scores: NDArray[np.float64], confidence: float) -> float:
    """The ceil((m + 1) confidence)-th smallest of m scores; infinite if m is below `least_rows`.

    >>> conformal_margin(np.arange(1.0, 10.0), 0.8)
    8.0
    """
    _check_confidence(confidence)
    rank = promised_rank(len(scores), confidence)
    return float(np.partition(scores, rank - 1)[rank - 1]) if rank <= len(scores) else math.inf


def quantile_margin(
    lower: Columns, upper: Columns, targets: Columns, confidence: float
) -> NDArray[np.float64]:
    """How far predicted quantiles must move outwards to cover, for each target: (t,).

    The moved quantiles, such as those of a model trained by the pinball loss, cover with the
    promised confidence (Romano et al. 2019). A margin below 0 moves them inwards. `lower`, `upper`
    and `targets` are (m, t).
    """
    scores = np.maximum(lower - targets, targets - upper)
    return np.array([conformal_margin(column, confidence) for column in scores.T])


@dataclass(frozen=True, eq=False)
class Conformal:
    """Conformal intervals from the errors of calibration rows.

    Args:
        predictions: of the calibration rows, (m, t).
        targets: (m, t).
        difficulty: (m,) positive; intervals of new rows are then proportional to their difficulty.
        bins: how many bins of the predictions have their own margin; each needs LEAST_IN_BIN rows.
            Bins hold equal numbers of calibration rows.
        joint: (t,) units of the targets, such as their standard deviations in training; then the
            intervals of all targets hold at once, not each for itself. One bin only.
        period: the length of the circle that targets are on.

    >>> rows = np.arange(1.0, 10.0)[:, None]
    >>> Conformal(0 * rows, rows).intervals(np.array([[5.0]]), 0.8)
    Intervals(lower=array([[-3.]]), upper=array([[13.]]))
    """

    predictions: Columns
    targets: Columns
    difficulty: NDArray[np.float64] | None = None
    bins: int = 1
    joint: NDArray[np.float64] | None = None
    period: float | None = None

    def __post_init__(self) -> None:
        if self.predictions.ndim != 2 or self.predictions.shape != self.targets.shape:
            raise ValueError(
                "Conformal needs predictions and targets of one shape, (m, t); got "
                f"{self.predictions.shape} and {self.targets.shape}."
            )
        for name in ("predictions", "targets"):
            if not np.isfinite(getattr(self, name)).all():
                raise ValueError(f"Conformal needs finite {name}; some are NaN or infinite.")
        _check_difficulty(self.difficulty, len(self.targets))
        if self.joint is not None and (self.bins > 1 or not (self.joint > 0).all()):
            raise ValueError("joint needs positive units and bins=1: bins differ between targets.")
        if not 1 <= self.bins <= max(1, len(self.targets) // LEAST_IN_BIN):
            raise ValueError(
                f"bins must be from 1 to {max(1, len(self.targets) // LEAST_IN_BIN)}, so that each "
                f"has {LEAST_IN_BIN} of the {len(self.targets)} calibration rows; got {self.bins}."
            )

    @property
    def scores(self) -> Columns:
        """Scores of the calibration rows, (m, t); joint scores are the same for all targets."""
        errors = np.abs(self._gaps())
        if self.difficulty is not None:
            errors = errors / self.difficulty[:, None]
        if self.joint is None:
            return errors
        return np.broadcast_to((errors / self.joint).max(axis=1, keepdims=True), errors.shape)

    def intervals(
        self, predictions: Columns, confidence: float, difficulty: NDArray[np.float64] | None = None
    ) -> Intervals:
        """Intervals around new predictions (n, t).

        Args:
            predictions: of new rows.
            confidence: the share of new rows whose target is to be inside, above 0 and below 1.
            difficulty: (n,) of the new rows, if the calibration rows have one.
        """
        self._check_rows(confidence)
        if (self.difficulty is None) != (difficulty is None):
            which = "new rows" if self.difficulty is None else "calibration rows"
            raise ValueError(
                "difficulty must be given for both calibration rows and new rows, or for neither; "
                f"got it only for {which}."
            )
        _check_difficulty(difficulty, len(predictions))
        widths = self._margins(predictions, confidence)
        widths = widths if self.joint is None else widths * self.joint
        if difficulty is not None:
            widths = widths * difficulty[:, None]
        if self.period is None:
            return Intervals(predictions - widths, predictions + widths)
        return _arcs(predictions, widths, self.period)

    def _check_rows(self, confidence: float) -> None:
        needed, known = least_rows(confidence), len(self.targets) // self.bins
        if known < needed:
            within = "" if self.bins == 1 else f" in each of {self.bins} bins"
            raise ValueError(
                f"confidence={confidence} needs at least {needed} calibration rows{within}; there "
                f"are {known}. Keep more rows for calibration, or ask for less confidence."
            )

    def _margins(self, predictions: Columns, confidence: float) -> Columns:
        """The margin of each prediction, in units of the scores: (n, t)."""
        scores, margins = self.scores, np.empty(predictions.shape)
        for target in range(predictions.shape[1]):
            edges = self._edges(target)
            own, new = (
                np.searchsorted(edges, values[:, target], side="right")
                for values in (self.predictions, predictions)
            )
            for one in range(self.bins):
                margin = conformal_margin(scores[own == one, target], confidence)
                margins[new == one, target] = margin
        return margins

    def _edges(self, target: int) -> NDArray[np.float64]:
        """The edges between the bins of a target's predictions: (bins - 1,)."""
        shares = np.arange(1, self.bins) / self.bins
        return np.quantile(self.predictions[:, target], shares)

    def _gaps(self) -> Columns:
        gaps = self.targets - self.predictions
        if self.period is None:
            return gaps
        return (gaps + self.period / 2) % self.period - self.period / 2


def _arcs(predictions: Columns, widths: Columns, period: float) -> Intervals:
    """The ends of arcs within 0..period; half a circle to each side makes the whole circle."""
    is_all = widths >= period / 2
    lower = np.where(is_all, 0.0, (predictions - widths) % period)
    return Intervals(lower, np.where(is_all, period, (predictions + widths) % period))


def promised_rank(rows: int, confidence: float) -> int:
    """Which of the ordered scores is the margin, counted from 1."""
    wanted = (rows + 1) * confidence
    nearest = round(wanted)
    # Products such as 9.000000000000002 stand for 9; their ceiling would be 10.
    return nearest if math.isclose(wanted, nearest, rel_tol=1e-12) else math.ceil(wanted)


def _check_confidence(confidence: float) -> None:
    if not 0 < confidence < 1:
        percent = (
            f" For {confidence:g}%, give {confidence / 100:g}." if 1 < confidence < 100 else ""
        )
        raise ValueError(
            f"confidence must be above 0 and below 1, as 0.9; got {confidence!r}.{percent}"
        )


def _check_difficulty(difficulty: NDArray[np.float64] | None, rows: int) -> None:
    if difficulty is None:
        return
    if difficulty.shape != (rows,) or not ((difficulty > 0) & np.isfinite(difficulty)).all():
        raise ValueError(
            f"difficulty must be {rows} positive finite numbers, one per row; got an array of "
            f"shape {difficulty.shape}."
        )
