"""Predictions of a finished run for new data."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
from numpy.typing import NDArray

from rnc.data.errors import DataError, not_finite_note
from rnc.data.image_cache import Decoding
from rnc.data.inputs import Inputs, Skipped
from rnc.data.raw import InputReader, expand
from rnc.data.source import stored_side
from rnc.data.stream import NeedsWhole, Piece, stream_inputs
from rnc.intervals import CalibrationRows
from rnc.intervals.explanation import Explanation
from rnc.model import Regressor
from rnc.model.asked import check_asked, read_array
from rnc.model.intervals import maker_of
from rnc.model.neighbours import explainer_of
from rnc.run.outputs import FEATURES, FRAMES, STDOUT, check_output, open_features, open_rows
from rnc.run.predictions import (
    NAME,
    extra_columns,
    given_columns,
    interval_columns,
    quantile_columns,
)

ShowRows = Callable[[int, int, str], None]
"""Called with how many rows are done, how many there are, and what is being done."""


class AskedIntervals(NamedTuple):
    """The intervals to add to predictions, see `Regressor.predict_interval`."""

    confidence: float = 0.9
    kind: str = "auto"
    joint: bool = False


class NewPredictions(NamedTuple):
    """Predictions of a run for new samples."""

    frame: pd.DataFrame
    """A row per sample: its name, the columns of its table that the model does not use, and its
    prediction for each target T in column T. If asked for, the ends of its interval are in T_lower
    and T_upper, and quantiles in T_q0.1. Then come its extras (see `rnc.run.predictions`)."""
    features: NDArray[np.float32] | None
    """(n, d), if they were asked for."""
    skipped: tuple[Skipped, ...]
    """Samples that were left out."""
    notes: tuple[str, ...] = ()
    """Notes for the user, such as on categories that training has not seen."""
    not_finite: int = 0
    """Samples without a finite prediction; their cells are empty."""
    explanation: Explanation | None = None
    """The nearest training samples, if they were asked for. The frame has these columns, too."""


def predict_run(
    folder: Path,
    data: Any,
    *,
    images: Path | None = None,
    image_column: str = "auto",
    skip_bad: bool = False,
    features: bool = False,
    explain: int | None = None,
    intervals: AskedIntervals | None = None,
    quantiles: Sequence[float] = (),
    progress: bool = True,
) -> NewPredictions:
    """Predictions of a run for new samples.

    If a column of the data has the same name as a new column, such as the true target, its name
    gets the ending `_given`.

    Args:
        folder: a finished run.
        data: any data that `Regressor.predict` takes.
        images: the folder that file names in a table are relative to.
        image_column: the column of these names; "auto" finds it.
        skip_bad: leave out broken images instead of raising.
        features: return features, too.
        explain: how many nearest training samples to add for each sample; None adds none.
        intervals: which intervals to add; None adds none.
        quantiles: levels of quantiles to add; the head must predict a distribution.
        progress: show a bar while images are decoded.
    """
    model = Regressor.load(folder)
    predictor = _Predictor(model, intervals, explain, quantiles)
    inputs = model.prepare(
        data, images=images, image_column=image_column, skip_bad=skip_bad, progress=progress
    )
    made = predictor(inputs)
    notes = inputs.notes + predictor.notes + not_finite_note(made.bad, len(made.frame))
    if predictor.explainer is not None and made.explanation is not None:
        notes += predictor.explainer.note(int(made.explanation.out_of_range.sum()), len(made.frame))
    embedding = made.embedding if features else None
    return NewPredictions(
        made.frame, embedding, inputs.skipped, notes, len(made.bad), made.explanation
    )


class _Predicted(NamedTuple):
    frame: pd.DataFrame
    embedding: NDArray[np.float32]
    bad: list[str]
    """Samples without a finite prediction."""
    explanation: Explanation | None


class _Predictor:
    """Makes tables of predictions with all that was asked for. Raises early if it cannot."""

    def __init__(
        self,
        model: Regressor,
        asked: AskedIntervals | None,
        explain: int | None,
        levels: Sequence[float],
    ) -> None:
        self.model, self.asked, self.steady, self.levels = model, asked, model.steady(), levels
        if levels:
            check_asked(model.head, "quantiles", levels)
        self.explainer = None if explain is None else explainer_of(model, explain)
        self.maker = None if asked is None else maker_of(model)
        self.notes: tuple[str, ...] = ()
        if self.maker is not None and asked is not None:
            kinds = self.maker.rows.kinds_for(asked.kind, asked.confidence, joint=asked.joint)
            self.notes = interval_notes(self.maker.rows, kinds, asked.confidence)

    def __call__(self, inputs: Inputs) -> _Predicted:
        answers, targets = self.steady.answer_prepared(inputs.x), self.model.config.target_names
        columns: dict[str, NDArray[Any]] = {
            target: answers.predictions[:, i] for i, target in enumerate(targets)
        }
        if self.maker is not None and self.asked is not None:
            confidence, kind, joint = self.asked
            found = self.maker.intervals(answers, confidence, kind=kind, joint=joint)
            columns |= interval_columns(found, targets)
        if self.levels:
            values = read_array(self.model.head, answers.outputs, "quantiles", self.levels)
            columns |= quantile_columns(values, self.levels, targets)
        columns |= extra_columns(self.model, answers.features)
        explanation = None if self.explainer is None else self.explainer(answers.features)
        if explanation is not None:
            columns |= explanation.columns([NAME, *columns])
        given = given_columns(inputs.columns, [NAME, *columns])
        frame = pd.DataFrame({NAME: inputs.names, **given, **columns})
        bad = inputs.names[(~np.isfinite(answers.predictions)).any(axis=1)].tolist()
        return _Predicted(frame, answers.features, bad, explanation)


def interval_notes(
    rows: CalibrationRows, kinds: Sequence[str], confidence: float
) -> tuple[str, ...]:
    """Notes for the user about intervals of these kinds."""
    shown = f"{100 * confidence:.4g}% intervals ({', '.join(dict.fromkeys(kinds))})"
    notes = [f"{shown} by {len(rows)} calibration rows."]
    if rows.is_reused:
        notes = [
            f"{shown} by {len(rows)} validation rows, which also chose epochs and penalties: "
            "coverage can be a little below the promise."
        ]
    if rows.period is not None:
        notes.append(
            "Targets are on a circle: where the upper end is below the lower one, the interval "
            f"goes across {rows.period:g}."
        )
    return tuple(notes)


class WrittenPredictions(NamedTuple):
    """The result of `predict_to_files`."""

    rows: int
    skipped: tuple[Skipped, ...]
    """Samples that were left out."""
    notes: tuple[str, ...] = ()
    """Notes for the user."""
    not_finite: int = 0
    """Samples without a finite prediction; their cells are empty."""


def predict_to_files(
    folder: Path,
    sources: Sequence[str],
    output: str,
    *,
    embeddings: Path | None = None,
    explain: int | None = None,
    overwrite: bool = False,
    images: Path | None = None,
    image_column: str = "auto",
    skip_bad: bool = False,
    intervals: AskedIntervals | None = None,
    quantiles: Sequence[float] = (),
    show: ShowRows = lambda done, total, what: None,
) -> WrittenPredictions:
    """Predict, and write the predictions and, if asked for, features to files.

    The names of the files are checked first. Data are read and written in pieces, so that memory
    does not grow with them, unless they must be read as a whole (see `rnc.data.stream`). The files
    appear only when all rows are done.

    Args:
        folder: a finished run.
        sources: files, folders and patterns.
        output: the file of the predictions, or "-" for the standard output.
        embeddings: the file of the features; None writes none.
        explain: as for `predict_run`.
        overwrite: replace files of these names.
        images: as for `predict_run`.
        image_column: as for `predict_run`.
        skip_bad: as for `predict_run`.
        intervals: as for `predict_run`.
        quantiles: as for `predict_run`.
        show: called after each piece, see ShowRows.
    """
    paths = [path for source in sources for path in expand(source)]
    files: dict[Path, tuple[str, ...]] = {} if output == STDOUT else {Path(output): FRAMES}
    if embeddings is not None:
        if output != STDOUT and embeddings.resolve() == Path(output).resolve():
            raise ValueError(f"--output and --embeddings are the same file: {embeddings}.")
        files[embeddings] = FEATURES
    for file, known in files.items():
        check_output(file, known, run=folder, sources=paths, overwrite=overwrite)
    model = Regressor.load(folder)
    predictor, config = _Predictor(model, intervals, explain, quantiles), model.config
    size = stored_side(config.augment.get("size", 224))
    decoding = Decoding(size, skip_bad, None, progress=False)
    reader = InputReader(config.preprocessing, config.kind, images, image_column, decoding)
    for whole in (False, True):
        pieces = stream_inputs(paths, reader, whole=whole)
        with suppress(NeedsWhole):
            return _write(predictor, pieces, output, embeddings, show)
    raise AssertionError("data that are read whole do not need it again")


def _write(
    predictor: _Predictor,
    pieces: Iterator[Piece],
    output: str,
    embeddings: Path | None,
    show: ShowRows,
) -> WrittenPredictions:
    """Predict the pieces, and write each one right away."""
    rows, far, explainer = 0, 0, predictor.explainer
    bad: list[str] = []
    skipped: list[Skipped] = []
    notes = list(predictor.notes)
    with ExitStack() as files:
        write = files.enter_context(open_rows(output))
        keep = None if embeddings is None else files.enter_context(open_features(embeddings))
        for inputs, done, total in _readable(pieces):
            predictor.model.check_shape(inputs)
            made = predictor(inputs)
            write(made.frame)
            if keep is not None:
                keep(inputs.names, made.embedding)
            rows, bad = rows + len(made.frame), bad + made.bad
            far += 0 if made.explanation is None else int(made.explanation.out_of_range.sum())
            skipped += inputs.skipped
            notes += inputs.notes
            show(done, total, "predicting")
    notes += not_finite_note(bad, rows) + (() if explainer is None else explainer.note(far, rows))
    return WrittenPredictions(rows, tuple(skipped), tuple(notes), len(bad))


def _readable(pieces: Iterator[Piece]) -> Iterator[Piece]:
    """The pieces. An OSError of reading becomes a DataError, so that no output is blamed."""
    try:
        yield from pieces
    except OSError as error:
        raise DataError(f"The data cannot be read ({error}). Are they whole?") from error
