"""The runs of a page: the content of their folders, and the samples that the page shows."""

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
"""The result of an analysis, and the run -> data that a section draws. Raises if unusable."""

RowNumbers = NDArray[np.int64]
"""Rows of predictions.csv, from 0."""

MAX_POINTS = 4000
"""Most points of a figure, per run. More points overlap and make the page large and slow."""

# What is missing on a page without each of the standard analyses.
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
    """The number of samples before thinning."""


class SeedScore(NamedTuple):
    """A score of a run, for every seed."""

    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        """The mean over all seeds."""
        return math.fsum(self.values) / len(self.values)

    @property
    def spread(self) -> float | None:
        """The standard deviation over the seeds; None for a single seed."""
        return float(np.std(self.values, ddof=1)) if len(self.values) > 1 else None


@dataclass(eq=False)
class ReportRun:
    """A run as a page shows it."""

    folder: PartialRun
    name: str
    color: int
    """The number of the colour of its marks in all figures."""
    analyses: dict[str, Any]
    """The result of each analysis, as the readers of the sections return it."""
    notes: list[str] = field(default_factory=list)
    """A sentence for everything that is missing or cannot be used."""
    other_seeds: list["ReportRun"] = field(default_factory=list)
    """Runs that only differ in the seed. Scores include them, but figures only show this run."""

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
        """How the run was fitted; empty if config.json does not say."""
        return self.config.get("fit") or {}

    @property
    def seeds(self) -> list["ReportRun"]:
        """This run and those of the other seeds."""
        return [self, *self.other_seeds]

    @property
    def title(self) -> str:
        """The title of a figure that shows this run, not the mean over its seeds."""
        return f"{self.name}, seed {self.fit.get('seed')}" if self.other_seeds else self.name

    def over_seeds(self, *keys: str) -> "SeedScore | None":
        """The entry of scores.json below these keys, for all seeds; None if one seed lacks it."""
        values = [run.score(*keys) for run in self.seeds]
        known = [float(v) for v in values if isinstance(v, float | int) and math.isfinite(v)]
        return SeedScore(tuple(known)) if len(known) == len(values) else None

    @property
    def seconds(self) -> float | None:
        """The time that all epochs took."""
        history = self.folder.history
        return None if history is None else float(history["seconds"].sum())

    def score(self, *keys: str) -> object:
        """The entry of scores.json below these keys; None if it is missing."""
        entry: Any = self.folder.scores
        for key in keys:
            entry = entry.get(key) if isinstance(entry, dict) else None
        return entry

    def scores(self, key: str) -> dict[str, Any]:
        """An entry of scores.json; empty if it is missing."""
        entry = self.score(key)
        return entry if isinstance(entry, dict) else {}

    @cached_property
    def true(self) -> Columns:
        """True values (n, t); (0, t) if there are no predictions."""
        predictions = self.folder.predictions
        return np.empty((0, len(self.targets))) if predictions is None else predictions.truth

    @cached_property
    def predicted(self) -> Columns:
        """Predicted values (n, t); (0, t) if there are no predictions."""
        predictions = self.folder.predictions
        return np.empty((0, len(self.targets))) if predictions is None else predictions.predicted

    @cached_property
    def errors(self) -> Columns:
        """The absolute error (n,), averaged over the targets; NaN if it is not known."""
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
        """The map of the features, thinned; the one by PCA if no other was made."""
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
        """Positions of samples in `rows`."""
        return [int(place) for place in np.searchsorted(self.rows, rows)]

    @cached_property
    def thumbnails(self) -> Thumbnails | None:
        """Pictures of samples: first the worst errors, then their neighbours, then others."""
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
    """The runs in these folders, each folder once. Equal names get the folder added to the name.

    Runs that only differ in the seed become one, and figures show the first of them.

    `readers` has a reader for each analysis that the sections draw, by name. Analyses are optional.
    If one is there but cannot be used, the page says so.
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
    """Groups of runs that only differ in the seed, in the order of their first runs."""
    groups: dict[str, list[PartialRun]] = {}
    for run in runs:
        fit = dict(run.config.get("fit") or {})
        seed = fit.pop("seed", None)
        same = [fit, *(run.config.get(key) for key in ("name", "data", "model"))]
        key = json.dumps(same, sort_keys=True, default=str)
        # A second run with the same seed is a group of its own.
        taken = [(other.config.get("fit") or {}).get("seed") for other in groups.get(key, [])]
        if seed is None or seed in taken:
            key = str(run.path)
        groups.setdefault(key, []).append(run)
    return list(groups.values())


def _common_name(group: Sequence[PartialRun]) -> str:
    """The common beginning of the names of a group, such as "rnc" for "rnc-0" and "rnc-1"."""
    if len(group) == 1:
        return group[0].name
    first, names = group[0].name, [run.name for run in group]
    length = next(i for i in range(len(first), -1, -1) if all(n[:i] == first[:i] for n in names))
    return first if length == len(first) else first[:length].rstrip("-_. 0123456789") or first


def thin(n: int, limit: int = MAX_POINTS) -> RowNumbers:
    """At most `limit` of the numbers below n, drawn at random with a fixed seed."""
    if n <= limit:
        return np.arange(n)
    return np.sort(np.random.default_rng(0).choice(n, limit, replace=False))


# ------------------------------------------------------------------------------------- analyses


def _read_analyses(
    run: PartialRun, readers: Mapping[str, AnalysisReader]
) -> tuple[dict[str, Any], list[str]]:
    """The results of analyses by name, and sentences on those that are unusable or missing."""
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
    """A sentence on the standard analyses that a finished run lacks, with a command; else []."""
    if run.predictions is None or not run.scores:
        return []  # unfinished: the page says so already
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
    """Why an analysis by an older version cannot be drawn, and what to do."""
    return f"An older version wrote it. Do it again: rnc evaluate {run} --with {name}"


def read_group(group: Mapping[str, Any], value: object) -> ErrorGroup:
    """The error of a group of samples, NaN if it is not known."""
    low, high = (None if group.get(end) is None else float(group[end]) for end in ("low", "high"))
    mae = math.nan if group["mae"] is None else float(group["mae"])
    return ErrorGroup(str(value), int(group["n"]), mae, low, high)


def float_list(values: Any) -> Columns:
    """A list of a JSON file as numbers, NaN for null."""
    return np.array([math.nan if value is None else float(value) for value in values])
