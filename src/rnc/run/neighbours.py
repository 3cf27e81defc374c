"""The training samples that are nearest to the worst errors of an evaluation, for the report.

analyses/neighbours.json, and the pictures in neighbours.safetensors:

    {"kept": number of training samples compared with, "total": number that they were drawn from,
     "limit": distance beyond which a sample is out of range,
     "checked": number of test samples checked, "out_of_range": how many of them are out of range,
     "worst": [{"row": row of predictions.csv, "out_of_range": true or false,
                "neighbours": [{"name": ..., "targets": [...], "distance": ...,
                                "picture": position among the pictures, or null,
                                "inputs": {column: text} for a table, else {}}]}]}

There are pictures and inputs only if the evaluated data are those that the run was fitted on. A
table has no inputs if it has more than 500 columns, or if it is too large to keep its raw training
rows (`rnc.data.originals`).
"""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import torch
from numpy.typing import NDArray

from rnc.data.originals import originals_of
from rnc.data.table import Table
from rnc.intervals.explanation import Explainer, Explanation, out_of_range_note
from rnc.intervals.reference import Reference
from rnc.metrics import Columns, worst_samples
from rnc.model import Regressor
from rnc.model.neighbours import kept_reference
from rnc.run.evaluate import Evaluation
from rnc.run.folder import AnalysisResult, RunFolder
from rnc.run.predictions import predicted_column
from rnc.run.thumbnails import thumbnails

SHOWN_NEIGHBOURS = 3
"""Neighbours of each sample. More would not fit beside it in a report."""

_MOST_INPUTS = 500  # columns of a table: with more, the file would be too large


def with_neighbours(evaluation: Evaluation, model: Regressor, table: Table) -> Evaluation:
    """An evaluation of test rows, with the neighbours of its worst errors added.

    It is unchanged if the model keeps no training samples to compare with.
    """
    if kept_reference(model) is None:
        return evaluation
    frame, targets = evaluation.predictions, list(table.target_names)
    predicted = frame[[predicted_column(target) for target in targets]].to_numpy(np.float64)
    truth = frame[targets].to_numpy(np.float64)
    found = nearest_of_worst(model, table, predicted, truth, evaluation.features)
    keys = ("out_of_range", "checked", "kept")
    scores = evaluation.scores | {"out_of_range": {key: found.content[key] for key in keys}}
    return dataclasses.replace(evaluation, scores=scores, neighbours=found)


def out_of_range_notes(folder: Path) -> tuple[str, ...]:
    """The note for the user if samples of an evaluation are out of range, else ()."""
    found = RunFolder(folder).scores.get("out_of_range")
    if not found:
        return ()
    return out_of_range_note(found["out_of_range"], found["checked"], found["kept"])


def nearest_of_worst(
    model: Regressor,
    table: Table,
    predicted: Columns,
    truth: Columns,
    features: NDArray[np.float32],
) -> AnalysisResult:
    """The neighbours of the worst errors, as in neighbours.json, and their pictures.

    Args:
        model: a model that keeps training samples to compare with.
        table: the table whose test rows were evaluated.
        predicted: predictions for all test rows, (n, t).
        truth: true targets of all test rows, (n, t).
        features: features of the test rows to check for being out of range, (k, d).
    """
    reference = kept_reference(model)
    assert reference is not None
    explain = Explainer(reference, table.target_names, min(SHOWN_NEIGHBOURS, len(reference)))
    worst = worst_samples(predicted, truth)
    far = int(explain(features).out_of_range.sum())
    content: dict[str, Any] = {
        "kept": len(reference),
        "total": reference.total,
        "limit": explain.limit,
        "checked": len(features),
        "out_of_range": far,
        "worst": [],
    }
    if len(worst) == 0:
        return AnalysisResult(content)
    rows = table.rows("test")[worst]
    found = explain(model.steady().embed_prepared(table.x, rows=rows))
    own = table if _is_of(reference, table) else None
    pictured = np.unique(found.rows[found.rows >= 0])
    inputs = None if own is None else originals_of(own.raw, pictured)
    pictures = {} if own is None else thumbnails(own.x, pictured)
    if pictures:
        pictures["rows"] = np.arange(len(pictured))
    content["worst"] = [
        {
            "row": int(row),
            "out_of_range": bool(found.out_of_range[i]),
            "neighbours": _neighbours(found, i, pictured, inputs, has_pictures=bool(pictures)),
        }
        for i, row in enumerate(worst)
        if found.rows[i, 0] >= 0
    ]
    return AnalysisResult(content, {k: torch.from_numpy(v) for k, v in pictures.items()})


def _neighbours(
    found: Explanation,
    i: int,
    pictured: NDArray[np.int64],
    inputs: pd.DataFrame | None,
    *,
    has_pictures: bool,
) -> list[dict[str, Any]]:
    """The neighbours of sample i. Pictures and inputs belong to the rows in `pictured`."""
    return [
        {
            "name": str(found.names[i, j]),
            "targets": found.targets[i, j].tolist(),
            "distance": float(found.distances[i, j]),
            "picture": int(np.searchsorted(pictured, row)) if has_pictures else None,
            "inputs": {} if inputs is None else _inputs(inputs, int(row)),
        }
        for j, row in enumerate(found.rows[i])
    ]


def _inputs(raw: pd.DataFrame, row: int) -> dict[str, str]:
    if raw.shape[1] > _MOST_INPUTS:
        return {}
    cells = {str(name): raw.at[row, name] for name in raw}
    return {name: "" if pd.isna(cell) else str(cell) for name, cell in cells.items()}


def _is_of(reference: Reference, table: Table) -> bool:
    """Whether the samples of a reference are rows of a table."""
    rows = reference.rows
    return (
        0 <= rows.min() <= rows.max() < len(table)
        and np.array_equal(np.asarray(table.names[rows]), reference.names)
        and np.array_equal(table.y[rows], reference.targets)
    )
