"""Intervals of a model: from what it kept of its calibration rows, and what it says of new ones."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray

from rnc.data.splits import CALIBRATION
from rnc.data.table import Table
from rnc.files import CALIBRATION_FILE
from rnc.intervals import CalibrationRows, Intervals, Neighbours, Spread
from rnc.intervals.calibration import CHOSEN_AT
from rnc.intervals.choice import with_kinds
from rnc.intervals.reference import Reference
from rnc.json_types import damaged
from rnc.metrics import Columns
from rnc.model.batching import Answers
from rnc.model.neighbours import kept_reference
from rnc.model.regressor import Regressor

# For 10,000 rows the search takes half a second, a tenth of what predicting a table takes.
_MOST_COMPARED, _NEIGHBOURS = 2000, 15


@dataclass(eq=False)
class IntervalMaker:
    """Makes intervals for what a model says of new samples."""

    model: Regressor
    rows: CalibrationRows

    def intervals(
        self, answers: Answers, confidence: float, *, kind: str = "auto", joint: bool = False
    ) -> Intervals:
        """Intervals of samples, (n, t); the arguments of `Regressor.predict_interval`."""
        return self.several(answers, (confidence,), kind=kind, joint=joint)[confidence]

    def several(
        self,
        answers: Answers,
        confidences: tuple[float, ...],
        *,
        kind: str = "auto",
        joint: bool = False,
    ) -> dict[float, Intervals]:
        """The same for several confidences, by one search for neighbours."""
        found = {}
        hard: NDArray[np.float64] | None = None
        for confidence in confidences:
            kinds = self.rows.kinds_for(kind, confidence, joint=joint)
            if "normalised" in kinds and hard is None:
                hard = self.neighbours.difficulty(answers.features)
            new, known = Spread(hard), Spread()
            if "quantiles" in kinds:
                assert self.rows.outputs is not None
                new = Spread(hard, *quantiles_of(self.model, answers.outputs, confidence))
                known = Spread(None, *quantiles_of(self.model, self.rows.outputs, confidence))
            found[confidence] = self.rows.intervals(
                answers.predictions, confidence, new, known, kind=kind, joint=joint
            )
        return found

    @cached_property
    def neighbours(self) -> Neighbours:
        """Of the training samples that the model kept, or of 2,000 spread evenly over them."""
        reference = kept_reference(self.model)
        assert reference is not None, "difficulties of calibration rows come from a reference"
        return compared_with(reference)


def maker_of(model: Regressor) -> IntervalMaker:
    """What makes the intervals of a model; raises if it kept no calibration rows."""
    calibration = kept_calibration(model)
    if calibration is None and model.folder is None:
        raise ValueError(
            "This model has no intervals: it kept no rows to calibrate them on. Fit with more "
            "rows, so that some are left for validation, or with calibration_share=0.2."
        )
    if calibration is None:
        raise FileNotFoundError(
            f"{model.folder} has no {CALIBRATION_FILE}, which intervals rest on: an older version "
            f"made the run, or its training diverged. Where its data are at hand, `rnc resume "
            f"{model.folder}` writes it, without training again."
        )
    return IntervalMaker(model, calibration)


def calibrate(
    model: Regressor, table: Table, *, period: float | None = None
) -> CalibrationRows | None:
    """The calibration rows of a trained model, and the kinds of intervals that suit them.

    They are the rows of the split calibration or, if it has none, of validation. None if there are
    none of either, or if predictions are not finite.

    Args:
        model: with the reference that it keeps, for normalised intervals.
        table: what it was trained on.
        period: of targets on a circle.
    """
    rows = table.rows(CALIBRATION)
    is_reused = len(rows) == 0
    rows = table.rows("val") if is_reused else rows
    if len(rows) == 0:
        return None
    answers = model.steady().answer_prepared(table.x, rows=rows)
    reference = kept_reference(model)
    hard = None if reference is None else compared_with(reference).difficulty(answers.features)
    numbers = [answers.predictions] if hard is None else [answers.predictions, hard]
    if not all(np.isfinite(values).all() for values in numbers):
        return None
    units = table.y[table.rows("train")].std(axis=0)
    units = np.where(units > 0, units, 1.0)
    outputs = answers.outputs if model.head.has_distribution else None
    kept = CalibrationRows(
        answers.predictions, table.y[rows], units, is_reused, period, hard, outputs
    )
    if "quantiles" not in kept.known_kinds:
        return with_kinds(kept)
    return with_kinds(kept, Spread(None, *quantiles_of(model, answers.outputs, CHOSEN_AT)))


def quantiles_of(
    model: Regressor, outputs: NDArray[np.float32], confidence: float
) -> tuple[Columns, Columns]:
    """The quantiles around the middle that the head predicts, (n, t) each."""
    levels = ((1 - confidence) / 2, (1 + confidence) / 2)
    ends = model.head.quantiles(torch.from_numpy(outputs), levels).numpy()
    return ends[:, :, 0], ends[:, :, 1]


def compared_with(reference: Reference) -> Neighbours:
    """The neighbours that say how difficult samples are."""
    if len(reference) <= _MOST_COMPARED:
        return reference.neighbours(_NEIGHBOURS)
    rows = np.linspace(0, len(reference) - 1, _MOST_COMPARED).round().astype(int)
    features = torch.from_numpy(reference.features[rows])
    return Neighbours(features, reference.targets[rows], _NEIGHBOURS)


def kept_calibration(model: Regressor) -> CalibrationRows | None:
    """The calibration rows of a model, read from its folder when they are first needed."""
    folder = model.folder
    if model.calibration is None and folder is not None and (folder / CALIBRATION_FILE).exists():
        with damaged(folder / CALIBRATION_FILE, f"Write it again with `rnc resume {folder}`."):
            targets = len(model.config.target_names)
            model.calibration = CalibrationRows.read(folder, targets)
    return model.calibration
