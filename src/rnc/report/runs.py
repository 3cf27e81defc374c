"""The runs of a page: what their folders hold, and which of their samples the page shows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rnc.metrics import Columns, worst_samples
from rnc.report.analyses import AnalysisReader, read_analyses
from rnc.run.partial import PartialRun, read_partial
from rnc.run.thumbnails import Thumbnails

RowNumbers = NDArray[np.int64]
"""Rows of predictions.csv, from 0."""

MAX_POINTS = 4000
"""Points of a figure, per run. More make the page large and slow, and overlap."""


class FeatureMap(NamedTuple):
    """Features in two dimensions."""

    method: str
    rows: RowNumbers
    """(k,)"""
    points: Columns
    """(k, 2)"""
    axes: tuple[str, str]
    """Titles of the two axes."""
    total: int
    """Samples before thinning."""


@dataclass(eq=False)
class ReportRun:
    """A run as a page shows it."""

    folder: PartialRun
    name: str
    color: int
    """Of its marks in all figures."""
    analyses: dict[str, Any]
    """What the readers of the sections made of each analysis."""
    notes: list[str] = field(default_factory=list)
    """A sentence for everything that is missing or cannot be used."""

    @property
    def targets(self) -> tuple[str, ...]:
        """Names of the targets."""
        return self.folder.targets

    @property
    def config(self) -> dict[str, Any]:
        """config.json."""
        return self.folder.config

    @property
    def fit(self) -> dict[str, Any]:
        """How the run was fitted; empty where config.json does not say."""
        return self.config.get("fit") or {}

    @property
    def seconds(self) -> float | None:
        """Time that all epochs took."""
        history = self.folder.history
        return None if history is None else float(history["seconds"].sum())

    def scores(self, key: str) -> dict[str, Any]:
        """An entry of scores.json; empty where it is not there."""
        entry = self.folder.scores.get(key)
        return entry if isinstance(entry, dict) else {}

    @cached_property
    def true(self) -> Columns:
        """True values (n, t); no rows without predictions."""
        predictions = self.folder.predictions
        return np.empty((0, len(self.targets))) if predictions is None else predictions.truth

    @cached_property
    def predicted(self) -> Columns:
        """Predicted values (n, t)."""
        predictions = self.folder.predictions
        return np.empty((0, len(self.targets))) if predictions is None else predictions.predicted

    @cached_property
    def errors(self) -> Columns:
        """Absolute error (n,), the mean over the targets; NaN where it is not known."""
        errors = np.abs(self.predicted - self.true).mean(axis=1)
        return np.where(np.isfinite(errors), errors, np.nan)

    @cached_property
    def sample_names(self) -> NDArray[np.str_]:
        """Names of the samples, (n,)."""
        predictions = self.folder.predictions
        return np.empty(0, np.str_) if predictions is None else predictions.names

    # ------------------------------------------------------------------- which samples to show

    @cached_property
    def scattered(self) -> RowNumbers:
        """Samples in the figures of predictions."""
        known = np.flatnonzero(np.isfinite(self.errors))
        return known[thin(len(known))]

    @cached_property
    def worst(self) -> RowNumbers:
        """Samples with the largest errors, the largest first."""
        return worst_samples(self.predicted, self.true)

    @cached_property
    def map(self) -> FeatureMap | None:
        """The map of the features, thinned; the plain one where no other was made."""
        full: FeatureMap | None = self.analyses.get("map", self.analyses.get("pca"))
        if full is None:
            return None
        kept = thin(len(full.rows))
        return full._replace(rows=full.rows[kept], points=full.points[kept])

    @cached_property
    def rows(self) -> RowNumbers:
        """Samples that are in any figure, ascending."""
        mapped = np.empty(0, np.int64) if self.map is None else self.map.rows
        return np.unique(np.concatenate([self.scattered, self.worst, mapped]))

    def places(self, rows: RowNumbers) -> list[int]:
        """Places of samples among all that are shown."""
        return [int(place) for place in np.searchsorted(self.rows, rows)]

    @cached_property
    def thumbnails(self) -> Thumbnails | None:
        """Pictures of samples, those with the largest errors first."""
        pictures = self.folder.thumbnails
        if pictures is None or not len(pictures.rows):
            return None
        is_worst = np.isin(pictures.rows, self.worst)
        rest = np.flatnonzero(~is_worst)
        return pictures.at(np.concatenate([np.flatnonzero(is_worst), rest[thin(len(rest))]]))


def read_runs(folders: Sequence[Path], readers: Mapping[str, AnalysisReader]) -> list[ReportRun]:
    """The runs in these folders, each folder once. Runs that share a name get their folders' too.

    Args:
        folders: run folders.
        readers: of the analyses that the sections draw, by name.
    """
    folders = list({folder.resolve(): folder for folder in folders}.values())
    partial = [read_partial(folder) for folder in folders]
    names = [run.name for run in partial]
    runs = []
    for color, run in enumerate(partial):
        name = f"{run.name} ({run.path.as_posix()})" if names.count(run.name) > 1 else run.name
        analyses, notes = read_analyses(run, readers)
        runs.append(ReportRun(run, name, color, analyses, run.missing + notes))
    return runs


def thin(n: int, limit: int = MAX_POINTS) -> RowNumbers:
    """At most `limit` of the numbers below n, drawn at random, always the same ones."""
    if n <= limit:
        return np.arange(n)
    return np.sort(np.random.default_rng(0).choice(n, limit, replace=False))
