"""A finished run on other data: predictions, and scores where there are labels."""

import dataclasses
from pathlib import Path

import pandas as pd  # type: ignore[import-untyped]

from rnc.data.inputs import Skipped, read_inputs
from rnc.data.source import stored_side
from rnc.model import ModelConfig, Regressor
from rnc.run.baselines import guess_errors
from rnc.run.evaluate import evaluate_run
from rnc.run.folder import RunFolder, write_evaluation
from rnc.run.predictions import EXTRAS, NAME, extra_columns


def predict_run(
    folder: Path, source: Path, *, images: Path | None = None, skip_bad: bool = False
) -> tuple[pd.DataFrame, list[Skipped]]:
    """Predictions of a run for new samples, and the samples that were left out.

    Each row has the name of a sample, its prediction for every target T in column T, and its
    extras (see `rnc.run.predictions`).

    Args:
        folder: a finished run.
        source: an image, a folder of images, a table or an .npz file.
        images: the folder that file names in a table are relative to.
        skip_bad: leave out broken images instead of raising.
    """
    model = Regressor.load(folder)
    config = model.config
    inputs = read_inputs(
        source,
        config.preprocessing,
        config.kind,
        images=images,
        image_size=stored_side(_view_size(config)),
        skip_bad=skip_bad,
        progress=True,
    )
    predictions = pd.DataFrame(model.predict_prepared(inputs.x), columns=list(config.target_names))
    predictions.insert(0, NAME, inputs.names)
    if EXTRAS:
        predictions = predictions.assign(**extra_columns(model, model.embed_prepared(inputs.x)))
    return predictions, list(inputs.skipped)


def evaluate_other(
    folder: Path, data: Path, images: Path | None = None, out: Path | None = None
) -> Path:
    """Evaluate a run on other data with the same columns; the folder of its scores.

    Args:
        folder: a run folder.
        data: a labelled table.
        images: the folder of its images; by default that of the run's.
        out: where the scores go; by default into the run folder, by the name of the data.
    """
    run = RunFolder(folder)
    source = dataclasses.replace(
        run.source,
        source=str(data),
        images=run.source.images if images is None else str(images),
        split_column=None,
        group_column=None,
    )
    config = run.model.config
    table = source.read(_view_size(config), config.preprocessing)
    evaluation = evaluate_run(run.model, table, run.fit, run.train_targets)
    if run.train_targets is not None:
        truth = table.y[table.rows("test")]
        guess = guess_errors(run.train_targets, truth, table.target_names, run.fit)
        evaluation.scores["baselines"] = {"median": guess}
    out = out or folder / f"evaluation-{data.stem}"
    write_evaluation(evaluation, out)
    return out


def _view_size(config: ModelConfig) -> int:
    """Side of what the encoder sees, in pixels; not used for tables and signals."""
    size: int = config.augment.get("size", 224)
    return size
