"""The files of an evaluation in a run folder."""

import csv
from pathlib import Path
from typing import Any

import torch

from rnc.files import write_json, write_tensors, write_text
from rnc.run.evaluate import Evaluation
from rnc.run.folder import (
    FEATURES_FILE,
    PARTIAL_PREDICTIONS_FILE,
    PREDICTIONS_FILE,
    SCORES_FILE,
    THUMBNAILS_FILE,
    WORST_INPUTS_FILE,
)
from rnc.run.spreadsheet import guarded_frame


def write_evaluation(evaluation: Evaluation, folder: str | Path) -> None:
    """Write the files of an evaluation, scores.json last: a folder that has it is complete."""
    write_samples(evaluation, folder)
    write_json(Path(folder) / SCORES_FILE, evaluation.scores)


def write_samples(evaluation: Evaluation, folder: str | Path) -> None:
    """Write the files with data per sample. An older scores.json is deleted first.

    Text in predictions.csv is in quotes, guarded by `rnc.run.spreadsheet`. To read "007" or "NA"
    unchanged: `pandas.read_csv(file, dtype={"name": str}, keep_default_na=False)`.
    """
    folder = Path(folder)
    (folder / SCORES_FILE).unlink(missing_ok=True)
    tensors = {
        "features": torch.from_numpy(evaluation.features),
        "rows": torch.from_numpy(evaluation.rows),
    }
    write_tensors(folder / FEATURES_FILE, tensors)
    if evaluation.thumbnails:
        pictures = {k: torch.from_numpy(v) for k, v in evaluation.thumbnails.items()}
        write_tensors(folder / THUMBNAILS_FILE, pictures)
    # Without quotes, Python's csv would let a lone carriage return break a row.
    quoted: dict[str, Any] = {"quoting": csv.QUOTE_NONNUMERIC, "lineterminator": "\n"}
    if evaluation.worst_inputs is not None:
        text = guarded_frame(evaluation.worst_inputs).to_csv(index_label="row", **quoted)
        write_text(folder / WORST_INPUTS_FILE, text)
    if evaluation.partial_predictions is not None:
        text = guarded_frame(evaluation.partial_predictions).to_csv(index=False, **quoted)
        write_text(folder / PARTIAL_PREDICTIONS_FILE, text)
    text = guarded_frame(evaluation.predictions).to_csv(index=False, **quoted)
    write_text(folder / PREDICTIONS_FILE, text)
