"""The analyses of every run: `rnc fit` writes them, a report needs them, and they take seconds."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from rnc.analyses.breakdown import score_intervals, subgroups, targets
from rnc.analyses.maps import pca, similarity
from rnc.files import write_json, write_tensors
from rnc.run.folder import DoesNotApply, Options, Result, RunFolder

Analysis = Callable[[RunFolder, Options], Result]

STANDARD: dict[str, Analysis] = {
    "intervals": score_intervals,
    "pca": pca,
    "similarity": similarity,
    "subgroups": subgroups,
    "targets": targets,
}


def write_standard_analyses(run: RunFolder) -> None:
    """Write the standard analyses of a finished run, all but those that do not apply to it."""
    for name, analysis in STANDARD.items():
        with suppress(DoesNotApply):
            write_analysis(run, name, analysis(run, Options()))


def write_analysis(run: RunFolder, name: str, result: Result) -> Path:
    """Write what an analysis found; the JSON file that it is in."""
    path = run.path / "analyses" / f"{name}.json"
    if result.tensors:
        write_tensors(path.with_suffix(".safetensors"), result.tensors)
    write_json(path, result.content)
    return path
