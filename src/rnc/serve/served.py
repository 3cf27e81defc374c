"""The model of a run, ready to answer, with all that it says beside a prediction."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from rnc.data.image_cache import Decoding
from rnc.data.raw import InputReader
from rnc.data.source import stored_side
from rnc.hub import is_hub_address, local_folder
from rnc.intervals.explanation import EXPLAIN_NEIGHBOURS, Explainer, Explanation
from rnc.metrics import Columns
from rnc.model import Regressor
from rnc.model.batching import Answers
from rnc.model.intervals import IntervalMaker, kept_calibration
from rnc.model.neighbours import kept_reference
from rnc.run.folder import RunFolder
from rnc.run.predict import interval_notes
from rnc.run.predictions import extra_columns

_CONFIDENCES = (0.9, 0.8, 0.95)


class Question(NamedTuple):
    """Rows that a model is asked about."""

    x: NDArray[Any]
    """As a Table holds them."""
    confidence: float | None
    """Of the intervals; None: without."""


class Said(NamedTuple):
    """What a model says of n rows."""

    predictions: Columns
    """(n, t)"""
    lower: Columns | None
    """(n, t), the ends of intervals, if they were asked for."""
    upper: Columns | None
    explanation: Explanation | None
    """The nearest training samples, if the run keeps some."""
    extras: dict[str, Columns]
    """Further columns (n,) of `rnc.run.predictions.EXTRAS`."""


@dataclass(eq=False)
class ServedModel:
    """A finished run that answers questions.

    Args:
        folder: the run.
        model: its model.
        network: the same on the device that computes; None: where the model is.
        neighbours: how many training samples are shown beside a prediction; 0: none.
    """

    folder: Path
    model: Regressor
    network: Regressor | None = None
    neighbours: int = EXPLAIN_NEIGHBOURS
    name: str = ""
    """What the run is called; default: as its folder."""

    def __post_init__(self) -> None:
        self.name = self.name or self.folder.resolve().name
        self.config, self.targets = self.model.config, self.model.config.target_names
        self._steady = self.model.steady() if self.network is None else self.network
        reference = kept_reference(self.model)
        self.explainer: Explainer | None = None
        if reference is not None and self.neighbours:
            self.explainer = Explainer(
                reference, self.targets, min(self.neighbours, len(reference))
            )
        calibration = kept_calibration(self.model)
        self.maker = None if calibration is None else IntervalMaker(self.model, calibration)

    @classmethod
    def load(
        cls, folder: str | Path, *, device: str | None = None, neighbours: int = EXPLAIN_NEIGHBOURS
    ) -> "ServedModel":
        """The model of a run, also of one on the hub; by default on a GPU, where there is one."""
        if neighbours < 0:
            raise ValueError(f"--neighbours must be 0 or more; got {neighbours}.")
        device = device or ("cuda" if torch.cuda.is_available() else "cpu")
        name = str(folder) if is_hub_address(folder) else ""
        folder = local_folder(folder)
        network = None if device == "cpu" else Regressor.load(folder).steady().to(device)
        return cls(folder, Regressor.load(folder), network, neighbours, name)

    @cached_property
    def reader(self) -> InputReader:
        """What prepares raw data as those of the training; without a cache on disk."""
        side = stored_side(self.config.augment.get("size", 224))
        decoding = Decoding(side, skip_bad=True, cache=None, progress=False)
        return InputReader(self.config.preprocessing, self.config.kind, None, "auto", decoding)

    def check_confidence(self, confidence: float) -> tuple[str, ...]:
        """What to know about intervals of this confidence; raises if there can be none."""
        if self.maker is None:
            raise ValueError(
                "This run has no calibration rows, which intervals rest on. `rnc resume` adds them "
                "to a run of an older version; leave out `confidence`."
            )
        kinds = self.maker.rows.kinds_for("auto", confidence, joint=False)
        return interval_notes(self.maker.rows, kinds, confidence)

    @cached_property
    def confidences(self) -> list[float]:
        """Confidences of intervals to choose from; the usual one first."""
        possible = []
        for confidence in _CONFIDENCES:
            with suppress(ValueError):
                self.check_confidence(confidence)
                possible.append(confidence)
        return possible

    def answer(self, questions: Sequence[Question]) -> list[Said]:
        """Answers to several questions, by one pass of all their rows through the encoder."""
        x = np.concatenate([question.x for question in questions])
        answers = self._steady.answer_prepared(x)
        explanation = None if self.explainer is None else self.explainer(answers.features)
        extras = extra_columns(self.model, answers.features)
        said, start = [], 0
        for question in questions:
            rows = slice(start, start + len(question.x))
            start = rows.stop
            own = Answers(answers.features[rows], answers.outputs[rows], answers.predictions[rows])
            lower = upper = None
            if question.confidence is not None and self.maker is not None:
                lower, upper = self.maker.intervals(own, question.confidence)
            shown = None if explanation is None else _rows_of(explanation, rows)
            columns = {name: values[rows] for name, values in extras.items()}
            said.append(Said(own.predictions, lower, upper, shown, columns))
        return said

    @property
    def run(self) -> RunFolder:
        """The files of the run."""
        return RunFolder(self.folder)


def _rows_of(found: Explanation, rows: slice) -> Explanation:
    return Explanation(
        names=found.names[rows],
        rows=found.rows[rows],
        targets=found.targets[rows],
        distances=found.distances[rows],
        out_of_range=found.out_of_range[rows],
        limit=found.limit,
        target_names=found.target_names,
    )
