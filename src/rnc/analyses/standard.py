"""The analyses of every run: `rnc fit` writes them, a report needs them, and they take seconds."""

from contextlib import suppress

from rnc.analyses.analysis import Analysis, AnalysisOptions
from rnc.analyses.breakdown import score_intervals, subgroups, targets
from rnc.analyses.maps import pca, similarity
from rnc.run.folder import DoesNotApply, RunFolder

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
            run.write_analysis(name, analysis(run, AnalysisOptions()))
