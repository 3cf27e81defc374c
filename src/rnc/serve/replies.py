"""The JSON that the server answers with, and its schema.

Replies are built as plain dicts: to check 10,000 rows again would take longer than to predict them.
Tests check them against the classes, which are the schema of the endpoint.
"""

import math
from typing import Annotated, Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

import rnc
from rnc.data.inputs import Inputs
from rnc.serve.limits import ServeLimits
from rnc.serve.pictures import NeighbourPictures
from rnc.serve.served import Said, ServedModel

Number = Annotated[float | None, Field(description="null if it is not finite")]


class _Reply(BaseModel):
    model_config = ConfigDict(extra="forbid")


class NeighbourReply(_Reply):
    """A training sample that is near a row in feature space."""

    name: str
    distance: Number
    targets: dict[str, Number]
    picture: str | None = Field(None, description="a small picture, as a data URI")
    signal: list[list[Number]] | None = Field(None, description="a sketch, channel by channel")


class RowReply(_Reply):
    """What the model says of one row."""

    name: str
    predictions: dict[str, Number]
    intervals: dict[str, tuple[Number, Number]] | None = Field(
        description="lower and upper end by target; on a circle, an upper end below the lower one "
        "goes across 0"
    )
    out_of_range: bool | None = Field(
        description="further from all training samples than 99 of 100 of these from their nearest"
    )
    neighbours: list[NeighbourReply] | None
    given: dict[str, str | None] = Field(description="columns that the model does not use")
    extras: dict[str, Number]


class SkippedReply(_Reply):
    """A file that could not be used."""

    name: str
    reason: str


class PredictReply(_Reply):
    """Predictions, a row each, in the order of what was sent."""

    targets: list[str]
    confidence: float | None = Field(description="of the intervals")
    rows: list[RowReply]
    skipped: list[SkippedReply]
    notes: list[str]


class ErrorDetail(_Reply):
    """Why a request was refused."""

    code: str
    message: str


class ErrorReply(_Reply):
    """The reply to a request that was refused."""

    error: ErrorDetail


class HealthReply(_Reply):
    """Whether the server answers."""

    status: str
    version: str


class ModelReply(_Reply):
    """What the run is, what it takes and what it answers."""

    name: str
    kind: str
    targets: list[str]
    encoder: str
    takes: str = Field(description="what to send")
    columns: list[dict[str, Any]] | None = Field(description="of a model of tables")
    shape: list[int] = Field(description="of one sample, as the encoder sees it")
    confidences: list[float] = Field(description="that intervals can have; empty: no intervals")
    neighbours: int
    score: str | None = Field(description="the test error of the run, in words")
    limits: dict[str, float]
    version: str


def predict_reply(
    served: ServedModel,
    inputs: Inputs,
    said: Said,
    confidence: float | None,
    notes: tuple[str, ...],
    neighbours: int,
    pictures: NeighbourPictures | None,
) -> dict[str, Any]:
    """A `PredictReply`; `neighbours` is how many are shown of each row."""
    given = {str(name): list(map(_text, inputs.columns[name].tolist())) for name in inputs.columns}
    rows = [
        _row(served, str(inputs.names[i]), said, i, neighbours, pictures)
        | {"given": {name: texts[i] for name, texts in given.items()}}
        for i in range(len(said.predictions))
    ]
    if served.explainer is not None and said.explanation is not None:
        notes += served.explainer.note(int(said.explanation.out_of_range.sum()), len(rows))
    return {
        "targets": list(served.targets),
        "confidence": confidence,
        "rows": rows,
        "skipped": [row._asdict() for row in inputs.skipped],
        "notes": [*inputs.notes, *notes],
    }


def _row(
    served: ServedModel,
    name: str,
    said: Said,
    i: int,
    neighbours: int,
    pictures: NeighbourPictures | None,
) -> dict[str, Any]:
    targets, found = served.targets, said.explanation
    intervals = None
    if said.lower is not None and said.upper is not None:
        ends = zip(targets, said.lower[i], said.upper[i], strict=True)
        intervals = {target: [finite(low), finite(high)] for target, low, high in ends}
    near = None
    if found is not None:
        near = [
            {
                "name": str(found.names[i, j]),
                "distance": finite(found.distances[i, j]),
                "targets": by_target(targets, found.targets[i, j]),
                **({} if pictures is None else pictures.of(int(found.rows[i, j]))),
            }
            for j in range(min(neighbours, found.names.shape[1]))
            if found.rows[i, j] >= 0
        ]
    return {
        "name": name,
        "predictions": by_target(targets, said.predictions[i]),
        "intervals": intervals,
        "out_of_range": None if found is None else bool(found.out_of_range[i]),
        "neighbours": near,
        "extras": {name: finite(values[i]) for name, values in said.extras.items()},
    }


def by_target(targets: tuple[str, ...], values: Any) -> dict[str, float | None]:
    """Numbers by the names of targets."""
    return {target: finite(value) for target, value in zip(targets, values, strict=True)}


def finite(value: Any) -> float | None:
    """A number for JSON, which has no NaN.

    >>> finite(np.float64(0.5)), finite(np.inf)
    (0.5, None)
    """
    number = float(value)
    return number if math.isfinite(number) else None


def _text(cell: Any) -> str | None:
    is_gap = cell is None or (isinstance(cell, float | np.floating) and math.isnan(cell))
    return None if is_gap or str(cell) in ("nan", "<NA>", "NaT") else str(cell)


def model_reply(served: ServedModel, takes: str, limits: ServeLimits) -> dict[str, Any]:
    """A `ModelReply`."""
    config = served.config
    columns = None
    if config.kind == "table":
        keys = ("name", "type", "categories")
        columns = [
            {key: column[key] for key in keys if key in column}
            for column in config.preprocessing.get("columns", [])
        ]
    run = served.run
    return {
        "name": served.name,
        "kind": config.kind,
        "targets": list(served.targets),
        "encoder": config.encoder,
        "takes": takes,
        "columns": columns,
        "shape": list(config.input_shape),
        "confidences": served.confidences,
        "neighbours": 0 if served.explainer is None else served.explainer.k,
        "score": run.answer.headline if run.is_finished else None,
        "limits": {name: float(value) for name, value in vars(limits).items()},
        "version": rnc.__version__,
    }
