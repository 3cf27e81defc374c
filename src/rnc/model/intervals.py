"""Intervals of a model, from its calibration rows and its predictions for new rows."""

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
    """Makes intervals around a model's predictions for new samples."""

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
        """Intervals for each of several confidences, with one search for neighbours."""
        found = {}
        difficulty: NDArray[np.float64] | None = None
        for confidence in confidences:
            kinds = self.rows.kinds_for(kind, confidence, joint=joint)
            if "normalised" in kinds and difficulty is None:
                difficulty = self.neighbours.difficulty(answers.features)
            new, known = Spread(difficulty), Spread()
            if "quantiles" in kinds:
                assert self.rows.outputs is not None
                new = Spread(difficulty, *quantiles_of(self.model, answers.outputs, confidence))
                known = Spread(None, *quantiles_of(self.model, self.rows.outputs, confidence))
            found[confidence] = self.rows.intervals(
                answers.predictions, confidence, new, known, kind=kind, joint=joint
            )
        return found

    @cached_property
    def neighbours(self) -> Neighbours:
        """Neighbours among the training samples that the model kept, or among 2,000 of them."""
        reference = kept_reference(self.model)
        assert reference is not None, "difficulties of calibration rows come from a reference"
        return compared_with(reference)


def maker_of(model: Regressor) -> IntervalMaker:
    """The IntervalMaker of a model; raises if the model kept no calibration rows."""
    calibration = kept_calibration(model)
    if calibration is None and model.folder is None:
        raise ValueError(
            "This model has no intervals: it kept no rows to calibrate them on. Fit with more "
            "rows, so that some are left for validation, or with calibration_share=0.2."
        )
    if calibration is None:
        raise FileNotFoundError(
            f"{model.folder} has no {CALIBRATION_FILE}, which intervals need: an older version "
            "made the run, or its training diverged. For a run of an older version whose data are "
            f"still there, `rnc resume {model.folder}` writes it without training again."
        )
    return IntervalMaker(model, calibration)


def calibrate(
    model: Regressor, table: Table, *, period: float | None = None
) -> CalibrationRows | None:
    """The calibration rows of a trained model, with a chosen kind of intervals.

    They are the rows of the split "calibration" or, if it is empty, of validation. None if both are
    empty, or if predictions are not finite.

    Args:
        model: the trained model; normalised intervals need its reference.
        table: the table that it was trained on.
        period: the length of the circle that targets are on.
    """
    rows = table.rows(CALIBRATION)
    is_reused = len(rows) == 0
    rows = table.rows("val") if is_reused else rows
    if len(rows) == 0:
        return None
    answers = model.steady().answer_prepared(table.x, rows=rows)
    reference = kept_reference(model)
    difficulty = None
    if reference is not None:
        difficulty = compared_with(reference).difficulty(answers.features)
    numbers = [answers.predictions] if difficulty is None else [answers.predictions, difficulty]
    if not all(np.isfinite(values).all() for values in numbers):
        return None
    units = table.y[table.rows("train")].std(axis=0)
    units = np.where(units > 0, units, 1.0)
    outputs = answers.outputs if model.head.has_distribution else None
    kept = CalibrationRows(
        answers.predictions, table.y[rows], units, is_reused, period, difficulty, outputs
    )
    if "quantiles" not in kept.known_kinds:
        return with_kinds(kept)
    return with_kinds(kept, Spread(None, *quantiles_of(model, answers.outputs, CHOSEN_AT)))


def quantiles_of(
    model: Regressor, outputs: NDArray[np.float32], confidence: float
) -> tuple[Columns, Columns]:
    """The predicted quantiles (1 - confidence) / 2 and (1 + confidence) / 2: (n, t) each."""
    levels = ((1 - confidence) / 2, (1 + confidence) / 2)
    ends = model.head.quantiles(torch.from_numpy(outputs), levels).numpy()
    return ends[:, :, 0], ends[:, :, 1]


def compared_with(reference: Reference) -> Neighbours:
    """The search for neighbours that say how difficult samples are, among up to 2,000 samples."""
    if len(reference) <= _MOST_COMPARED:
        return reference.neighbours(_NEIGHBOURS)
    rows = np.linspace(0, len(reference) - 1, _MOST_COMPARED).round().astype(int)
    features = torch.from_numpy(reference.features[rows])
    return Neighbours(features, reference.targets[rows], _NEIGHBOURS)


def kept_calibration(model: Regressor) -> CalibrationRows | None:
    """The calibration rows of a model, or None; read from its folder when first needed."""
    folder = model.folder
    if model.calibration is None and folder is not None and (folder / CALIBRATION_FILE).exists():
        with damaged(folder / CALIBRATION_FILE, f"Write it again with `rnc resume {folder}`."):
            targets = len(model.config.target_names)
            model.calibration = CalibrationRows.read(folder, targets)
    return model.calibration
