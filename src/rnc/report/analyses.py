"""The analyses of a run, as the page reads them.

Each is optional. If a reader cannot use what an analysis wrote, the page says so and goes on.
"""

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rnc.analyses.standard import STANDARD
from rnc.metrics import Columns
from rnc.report.figures import ErrorGroup
from rnc.run.folder import AnalysisResult, RunFolder
from rnc.run.partial import PartialRun

AnalysisReader = Callable[[AnalysisResult, PartialRun], Any]
"""What an analysis wrote, and the run -> what a section draws; raises if that cannot be drawn."""

# What a page lacks without each of the standard analyses.
_LOST = {
    "intervals": "intervals of the scores",
    "pca": "map of the features",
    "similarity": "similarities of the features",
    "subgroups": "intervals of the subgroups",
    "targets": "errors by target",
}


def read_analyses(
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
