"""The calibration rows that a model keeps, and the kinds of intervals made from them.

Kinds of intervals (see `rnc.intervals.conformal`):

    plain        one width for all samples
    normalised   wide where the nearest training samples are far away or disagree
    bins         a width for each bin of the predictions
    quantiles    the quantiles that the head predicts, moved to cover: heads with a distribution

`rnc.intervals.choice` chooses among them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray

from rnc.files import CALIBRATION_FILE, read_tensors, write_tensors
from rnc.intervals.conformal import Conformal, Intervals, least_rows, quantile_margin
from rnc.metrics import Columns

INTERVAL_KINDS = ("plain", "normalised", "bins", "quantiles")
CHOSEN_AT = 0.9
"""The confidence at which kinds are compared, and of the intervals in predictions.csv."""

_MOST_BINS, _ROWS_PER_BIN = 5, 25
_ALL = slice(None)


@dataclass(frozen=True, eq=False)
class Spread:
    """Inputs of intervals beside predictions: the difficulty and predicted quantiles of some rows.

    A field is None if it is not known. New rows only need what their kind of intervals uses.
    """

    difficulty: NDArray[np.float64] | None = None
    """(n,) positive, of `Neighbours.difficulty`."""
    lower: Columns | None = None
    """(n, t) the quantile (1 - confidence) / 2 that the head predicts."""
    upper: Columns | None = None
    """(n, t) the quantile (1 + confidence) / 2."""

    def part(self, rows: NDArray[Any] | slice, targets: slice = _ALL) -> "Spread":
        """The values of some of the rows and targets."""
        ends = (None if end is None else end[rows][:, targets] for end in (self.lower, self.upper))
        return Spread(None if self.difficulty is None else self.difficulty[rows], *ends)


@dataclass(frozen=True, eq=False)
class CalibrationRows:
    """Calibration rows: their predictions and targets, and what else intervals of new rows need.

    Args:
        predictions: (m, t).
        targets: (m, t).
        units: (t,) the unit of each target's errors in joint intervals: the standard deviation of
            its training targets.
        is_reused: whether they are the validation rows, which training already used to choose.
        period: the length of the circle that targets are on.
        difficulty: (m,), if neighbours are known.
        outputs: (m, k) outputs of the head, if it predicts a distribution.
        kinds: the kind of intervals of each target, (t,); by default plain.
        joint_kind: the kind of joint intervals.
    """

    predictions: Columns
    targets: Columns
    units: NDArray[np.float64]
    is_reused: bool
    period: float | None = None
    difficulty: NDArray[np.float64] | None = None
    outputs: NDArray[np.float32] | None = None
    kinds: tuple[str, ...] = ()
    joint_kind: str = "plain"

    def __len__(self) -> int:
        return len(self.targets)

    @property
    def bins(self) -> int:
        """How many bins the kind "bins" has; 1 if there are too few rows for two."""
        return max(1, min(_MOST_BINS, len(self) // _ROWS_PER_BIN))

    @property
    def known_kinds(self) -> tuple[str, ...]:
        """The kinds of intervals that this model can have."""
        has = {
            "plain": True,
            "normalised": self.difficulty is not None,
            "bins": self.bins > 1,
            "quantiles": self.outputs is not None and self.period is None,
        }
        return tuple(kind for kind in INTERVAL_KINDS if has[kind])

    def kinds_for(self, kind: str, confidence: float, *, joint: bool = False) -> tuple[str, ...]:
        """The kind of intervals of each target, (t,): the given one or, with "auto", the chosen.

        Raises if the model cannot have this kind, or has too few rows.
        """
        t, needed = self.targets.shape[1], least_rows(confidence)
        if kind == "auto":
            chosen = (self.joint_kind,) * t if joint else self.kinds or ("plain",) * t
            is_fine = len(self) // self.bins >= needed
            chosen = tuple("plain" if one == "bins" and not is_fine else one for one in chosen)
        else:
            self._check_kind(kind, joint=joint)
            chosen = (kind,) * t
        if len(self) < needed:
            raise ValueError(_TOO_FEW.format(confidence, needed, len(self)))
        return chosen

    def intervals(
        self,
        predictions: Columns,
        confidence: float,
        new: Spread = Spread(),  # noqa: B008  # it holds nothing that could change
        known: Spread = Spread(),  # noqa: B008
        *,
        kind: str = "auto",
        joint: bool = False,
    ) -> Intervals:
        """Intervals around predictions (n, t) of new rows.

        Args:
            predictions: of the new rows.
            confidence: the share of new rows whose target is to be inside, above 0 and below 1.
            new: difficulty or quantiles of the new rows, as the kind needs.
            known: quantiles of the calibration rows, for kind "quantiles".
            kind: one of INTERVAL_KINDS, or "auto": the kind that was chosen for each target.
            joint: intervals that hold for all targets at once. The score of a row is the largest of
                the errors of its targets, each in units of the target.
        """
        kinds = self.kinds_for(kind, confidence, joint=joint)
        if joint:
            return self._of_kind(kinds[0], predictions, confidence, new, known, joint=True)
        parts = []
        for i, one in enumerate(kinds):
            own = slice(i, i + 1)
            part, spreads = self.part(_ALL, own), (new.part(_ALL, own), known.part(_ALL, own))
            parts.append(part._of_kind(one, predictions[:, own], confidence, *spreads))
        lower, upper = zip(*parts, strict=True)
        return Intervals(np.concatenate(lower, axis=1), np.concatenate(upper, axis=1))

    def part(self, rows: NDArray[Any] | slice, targets: slice = _ALL) -> "CalibrationRows":
        """Some of the rows and targets, without a choice of kinds."""
        return CalibrationRows(
            self.predictions[rows][:, targets],
            self.targets[rows][:, targets],
            self.units[targets],
            self.is_reused,
            self.period,
            None if self.difficulty is None else self.difficulty[rows],
            None if self.outputs is None else self.outputs[rows],
        )

    def _of_kind(
        self,
        kind: str,
        predictions: Columns,
        confidence: float,
        new: Spread,
        known: Spread,
        *,
        joint: bool = False,
    ) -> Intervals:
        """Intervals of one kind."""
        if kind == "quantiles":
            return self._moved(new, known, confidence)
        is_hard = kind == "normalised"
        conformal = Conformal(
            self.predictions,
            self.targets,
            difficulty=self.difficulty if is_hard else None,
            bins=self.bins if kind == "bins" else 1,
            joint=self.units if joint else None,
            period=self.period,
        )
        if not is_hard or new.difficulty is None:
            return conformal.intervals(predictions, confidence)
        lost = ~np.isfinite(new.difficulty)  # such a sample has no interval
        predictions = np.where(lost[:, None], np.nan, predictions)
        return conformal.intervals(predictions, confidence, np.where(lost, 1.0, new.difficulty))

    def _moved(self, new: Spread, known: Spread, confidence: float) -> Intervals:
        """Predicted quantiles of new rows, moved by the margin that calibration rows need."""
        ends = (known.lower, known.upper, new.lower, new.upper)
        low, high, lower, upper = (end for end in ends if end is not None)
        margin = quantile_margin(low, high, self.targets, confidence)
        lower, upper = lower - margin, upper + margin
        middle = (lower + upper) / 2  # a margin below 0 may move the ends past each other
        return Intervals(np.minimum(lower, middle), np.maximum(upper, middle))

    def _check_kind(self, kind: str, *, joint: bool) -> None:
        if kind not in INTERVAL_KINDS:
            raise ValueError(
                f"intervals must be auto or one of {', '.join(INTERVAL_KINDS)}; got {kind!r}."
            )
        if joint and kind not in ("plain", "normalised"):
            raise ValueError(
                f"Joint intervals are plain or normalised; got {kind!r}, which has widths for each "
                "target by itself."
            )
        if kind not in self.known_kinds:
            raise ValueError(_LACKS[kind].format(2 * _ROWS_PER_BIN, len(self)))

    # --------------------------------------------------------------------------------- files

    def write(self, folder: Path) -> None:
        """Write calibration.safetensors."""
        arrays = {
            name: torch.from_numpy(np.ascontiguousarray(value))
            for name, value in vars(self).items()
            if isinstance(value, np.ndarray)
        }
        facts = ("is_reused", "period", "kinds", "joint_kind")
        write_tensors(folder / CALIBRATION_FILE, arrays, {name: vars(self)[name] for name in facts})

    @classmethod
    def read(cls, folder: Path, targets: int) -> Self:
        """The rows that `write` wrote, for a model with this many targets."""
        tensors, note = read_tensors(folder / CALIBRATION_FILE)
        arrays: dict[str, Any] = {name: tensor.numpy() for name, tensor in tensors.items()}
        _check_arrays(arrays, note, targets)
        return cls(**arrays, **note | {"kinds": tuple(note["kinds"])})


_TOO_FEW = (
    "confidence={} needs at least {} calibration rows; there are {}. Keep more rows for "
    "calibration when fitting (--calibration-share, calibration_share=), or ask for less "
    "confidence."
)
_LACKS = {
    "normalised": "Normalised intervals need features of training samples, which this model did "
    "not keep. Fit again, or use plain intervals.",
    "bins": "Intervals by bins need at least {} calibration rows; there are {}. Keep more rows for "
    "calibration when fitting (--calibration-share, calibration_share=), or use plain intervals.",
    "quantiles": "Intervals from quantiles need a head that predicts a distribution, such as "
    "quantile or gaussian, and targets that are not on a circle. Use another kind of intervals.",
}


def _check_arrays(arrays: Mapping[str, Any], note: Any, targets: int) -> None:
    """Raise ValueError unless these are the parts of a calibration."""
    facts = {"is_reused", "period", "kinds", "joint_kind"}
    needed = ("predictions", "targets", "units")
    if not isinstance(note, dict) or note.keys() != facts or not all(n in arrays for n in needed):
        raise ValueError(f"needed {', '.join((*needed, *facts))}; got {', '.join(arrays)}.")
    known, truth = arrays["predictions"].shape, arrays["targets"].shape
    if known != truth or truth[1:] != (targets,) or arrays["units"].shape != (targets,):
        raise ValueError(f"needed predictions and targets (m, {targets}); got {known} and {truth}.")
    if len(note["kinds"]) != targets or not {*note["kinds"], note["joint_kind"]} <= set(
        INTERVAL_KINDS
    ):
        raise ValueError(
            f"needed {targets} of the kinds {', '.join(INTERVAL_KINDS)}; got {note['kinds']}."
        )
