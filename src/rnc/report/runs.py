"""The runs of a page: what their folders hold, and which of their samples the page shows."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rnc.analyses.standard import STANDARD
from rnc.metrics import Columns, worst_samples
from rnc.report.figures import ErrorGroup
from rnc.run.folder import AnalysisResult, RunFolder
from rnc.run.partial import PartialRun, read_partial
from rnc.run.thumbnails import Thumbnails

AnalysisReader = Callable[[AnalysisResult, PartialRun], Any]
"""What an analysis wrote, and the run -> what a section draws; raises if that cannot be drawn."""

RowNumbers = NDArray[np.int64]
"""Rows of predictions.csv, from 0."""

MAX_POINTS = 4000
"""Points of a figure, per run. More make the page large and slow, and overlap."""

# What a page lacks without each of the standard analyses.
_LOST = {
    "coverage": "coverage of the intervals",
    "intervals": "intervals of the scores",
    "pca": "map of the features",
    "similarity": "similarities of the features",
    "subgroups": "intervals of the subgroups",
    "targets": "errors by target",
}


class FeatureMap(NamedTuple):
    """Features in two dimensions: rows (k,), points (k, 2), and the titles of the two axes."""

    method: str
    rows: RowNumbers
    points: Columns
    axes: tuple[str, str]
    total: int
    """Samples before thinning."""


class SeedScore(NamedTuple):
    """A score of every seed of a run."""

    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Of all seeds."""
        return math.fsum(self.values) / len(self.values)

    @property
    def spread(self) -> float | None:
        """Their standard deviation; None for a single seed."""
        return float(np.std(self.values, ddof=1)) if len(self.values) > 1 else None


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
    other_seeds: list["ReportRun"] = field(default_factory=list)
    """Runs that differ in nothing but the seed: they count in the scores, figures show this one."""

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
    def seeds(self) -> list["ReportRun"]:
        """This run and those of the other seeds."""
        return [self, *self.other_seeds]

    @property
    def title(self) -> str:
        """Of a figure that shows this run, not the mean over its seeds."""
        return f"{self.name}, seed {self.fit.get('seed')}" if self.other_seeds else self.name

    def over_seeds(self, *keys: str) -> "SeedScore | None":
        """The entry of scores.json below these keys, of all seeds; None where one has none."""
        values = [run.score(*keys) for run in self.seeds]
        known = [float(v) for v in values if isinstance(v, float | int) and math.isfinite(v)]
        return SeedScore(tuple(known)) if len(known) == len(values) else None

    @property
    def seconds(self) -> float | None:
        """Time that all epochs took."""
        history = self.folder.history
        return None if history is None else float(history["seconds"].sum())

    def score(self, *keys: str) -> object:
        """The entry of scores.json below these keys; None where it is not there."""
        entry: Any = self.folder.scores
        for key in keys:
            entry = entry.get(key) if isinstance(entry, dict) else None
        return entry

    def scores(self, key: str) -> dict[str, Any]:
        """An entry of scores.json; empty where it is not there."""
        entry = self.score(key)
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
        """Pictures of samples: those with the largest errors, what is near them, all others."""
        pictures = self.folder.thumbnails
        if pictures is None or not len(pictures.rows):
            return None
        is_worst = np.isin(pictures.rows, self.worst)
        rest = np.flatnonzero(~is_worst)
        shown, others = pictures.at(np.flatnonzero(is_worst)), pictures.at(rest[thin(len(rest))])
        seen = self.analyses.get("neighbours")
        if seen is not None and seen.pictures is not None:
            shown = shown.and_then(seen.pictures)
        return shown.and_then(others)


def read_runs(folders: Sequence[Path], readers: Mapping[str, AnalysisReader]) -> list[ReportRun]:
    """The runs in these folders, each folder once. Runs that share a name get their folders' too.

    Runs that differ in nothing but the seed become one, which is drawn by the first.

    The readers, by name, are those of the analyses that the sections draw. An analysis is optional:
    if its reader cannot use what it wrote, the page says so and goes on.
    """
    folders = list({folder.resolve(): folder for folder in folders}.values())
    groups = group_by_seed([read_partial(folder) for folder in folders])
    names = [_common_name(group) for group in groups]
    runs = []
    for color, (run, *others) in enumerate(groups):
        name = names[color]
        name = f"{name} ({run.path.as_posix()})" if names.count(name) > 1 else name
        analyses, notes = _read_analyses(run, readers)
        seeds = [ReportRun(other, name, color, {}, other.missing) for other in others]
        runs.append(ReportRun(run, name, color, analyses, run.missing + notes, seeds))
    return runs


def group_by_seed(runs: Sequence[PartialRun]) -> list[list[PartialRun]]:
    """Runs that differ in nothing but the seed together, in the order in which they first come."""
    groups: dict[str, list[PartialRun]] = {}
    for run in runs:
        fit = dict(run.config.get("fit") or {})
        seed = fit.pop("seed", None)
        same = [fit, *(run.config.get(key) for key in ("name", "data", "model"))]
        key = json.dumps(same, sort_keys=True, default=str)
        # The same seed twice is another run, whatever makes it one.
        taken = [(other.config.get("fit") or {}).get("seed") for other in groups.get(key, [])]
        if seed is None or seed in taken:
            key = str(run.path)
        groups.setdefault(key, []).append(run)
    return list(groups.values())


def _common_name(group: Sequence[PartialRun]) -> str:
    """What the names of a group begin with, as "rnc" for "rnc-0" and "rnc-1"."""
    if len(group) == 1:
        return group[0].name
    first, names = group[0].name, [run.name for run in group]
    length = next(i for i in range(len(first), -1, -1) if all(n[:i] == first[:i] for n in names))
    return first if length == len(first) else first[:length].rstrip("-_. 0123456789") or first


def thin(n: int, limit: int = MAX_POINTS) -> RowNumbers:
    """At most `limit` of the numbers below n, drawn at random, always the same ones."""
    if n <= limit:
        return np.arange(n)
    return np.sort(np.random.default_rng(0).choice(n, limit, replace=False))


# ------------------------------------------------------------------------------------- analyses


def _read_analyses(
    run: PartialRun, readers: Mapping[str, AnalysisReader]
) -> tuple[dict[str, Any], list[str]]:
    """What the analyses of a run found, by name, and a sentence for each that cannot be used."""
    folder, content, notes = RunFolder(run.path), {}, []
    done = [name for name in readers if folder.has_analysis(name)]
    for name in done:
        try:
            content[name] = readers[name](folder.analysis(name), run)
        except KeyError as error:
            notes.append(f"analyses/{name}.json cannot be used: there is no {error}.")
        except (ValueError, TypeError, AttributeError, OSError) as error:
            notes.append(f"analyses/{name}.json cannot be used. Reason: {error}")
    return content, notes + _missing(run, done)


def _missing(run: PartialRun, done: list[str]) -> list[str]:
    """A sentence about the standard analyses that a finished run lacks, and what writes them."""
    if run.predictions is None or not run.scores:
        return []  # not finished: the page says so already
    needed = set(STANDARD) - set(done)
    if "map" in done:
        needed.discard("pca")
    if not run.scores.get("subgroups"):
        needed.discard("subgroups")
    if run.predictions.intervals is None:
        needed.discard("coverage")
    names = [name for name in STANDARD if name in needed]
    if not names:
        return []
    lost = ", ".join(f"no {_LOST[name]}" for name in names)
    command = " ".join(["rnc evaluate", str(run.path), *(f"--with {name}" for name in names)])
    return [f"This run lacks analyses that `rnc fit` writes today: {lost}. Add them: {command}"]


def older_version(run: Path, name: str) -> str:
    """Why an analysis without all its parts cannot be drawn, and what to do."""
    return f"An older version wrote it. Do it again: rnc evaluate {run} --with {name}"


def read_group(group: Mapping[str, Any], value: object) -> ErrorGroup:
    """The error of a group of samples, NaN where it is not known."""
    low, high = (None if group.get(end) is None else float(group[end]) for end in ("low", "high"))
    mae = math.nan if group["mae"] is None else float(group["mae"])
    return ErrorGroup(str(value), int(group["n"]), mae, low, high)


def float_list(values: Any) -> Columns:
    """A list of a JSON file as numbers, NaN for null."""
    return np.array([math.nan if value is None else float(value) for value in values])
