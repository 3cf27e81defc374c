"""A finished run on new data: its predictions."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
from numpy.typing import NDArray

from rnc.data.errors import not_finite
from rnc.data.inputs import Skipped
from rnc.data.raw import expand
from rnc.model import Regressor
from rnc.run.outputs import FEATURES, FRAMES, STDOUT, check_output, write_features, write_frame
from rnc.run.predictions import EXTRAS, NAME, extra_columns, given_columns


class NewPredictions(NamedTuple):
    """Predictions of a run for new samples."""

    frame: pd.DataFrame
    """A row per sample: its name; the columns of its table that the model does not use; its
    prediction for every target T in column T; its extras (see `rnc.run.predictions`)."""
    features: NDArray[np.float32] | None
    """(n, d), if they were asked for."""
    skipped: tuple[Skipped, ...]
    """Samples that were left out."""
    notes: tuple[str, ...] = ()
    """What a user should know, such as categories that training has not seen."""
    not_finite: int = 0
    """Samples without a finite prediction; their cells are empty."""


def predict_run(
    folder: Path,
    data: Any,
    *,
    images: Path | None = None,
    image_column: str = "auto",
    skip_bad: bool = False,
    features: bool = False,
    progress: bool = True,
) -> NewPredictions:
    """Predictions of a run for new samples.

    A column of the data with the name of a column that is written, such as the true target, gets
    the ending `_given`.

    Args:
        folder: a finished run.
        data: whatever `Regressor.predict` takes.
        images: the folder that file names in a table are relative to.
        image_column: the column of these names; "auto" finds it.
        skip_bad: leave out broken images instead of raising.
        features: compute features, too.
        progress: show a bar while images are decoded.
    """
    model = Regressor.load(folder)
    inputs = model.prepare(
        data, images=images, image_column=image_column, skip_bad=skip_bad, progress=progress
    )
    steady = model.steady()
    predictions = steady.predict_prepared(inputs.x)
    columns = {target: predictions[:, i] for i, target in enumerate(model.config.target_names)}
    embedding = steady.embed_prepared(inputs.x) if features or EXTRAS else None
    if EXTRAS and embedding is not None:
        columns |= extra_columns(model, embedding)
    given = given_columns(inputs.columns, [NAME, *columns])
    frame = pd.DataFrame({NAME: inputs.names, **given, **columns})
    bad = int((~np.isfinite(predictions)).any(axis=1).sum())
    notes = inputs.notes + not_finite(predictions, inputs.names)
    return NewPredictions(frame, embedding if features else None, inputs.skipped, notes, bad)


def predict_to_files(
    folder: Path,
    sources: Sequence[str],
    output: str,
    *,
    embeddings: Path | None = None,
    overwrite: bool = False,
    images: Path | None = None,
    image_column: str = "auto",
    skip_bad: bool = False,
) -> NewPredictions:
    """Predict and write the predictions and, on request, features; all names are checked first.

    Args:
        folder: a finished run.
        sources: files, folders and patterns.
        output: the file of the predictions, or "-" for the standard output.
        embeddings: the file of the features; None: they are not computed.
        overwrite: replace files of these names.
        images: as for `predict_run`.
        image_column: as for `predict_run`.
        skip_bad: as for `predict_run`.
    """
    paths = [path for source in sources for path in expand(source)]
    files: dict[Path, tuple[str, ...]] = {} if output == STDOUT else {Path(output): FRAMES}
    if embeddings is not None:
        if output != STDOUT and embeddings.resolve() == Path(output).resolve():
            raise ValueError(f"--output and --embeddings are the same file: {embeddings}.")
        files[embeddings] = FEATURES
    for file, known in files.items():
        check_output(file, known, run=folder, sources=paths, overwrite=overwrite)
    made = predict_run(
        folder,
        paths,
        images=images,
        image_column=image_column,
        skip_bad=skip_bad,
        features=embeddings is not None,
    )
    if embeddings is not None and made.features is not None:
        write_features(made.frame[NAME].to_numpy(np.str_), made.features, embeddings)
    write_frame(made.frame, output)
    return made
