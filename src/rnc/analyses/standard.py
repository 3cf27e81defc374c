"""The analyses of every run: `rnc fit` writes them for the report, and they take seconds."""

from contextlib import suppress
from pathlib import Path

from rnc.analyses.analysis import Analysis, AnalysisOptions
from rnc.analyses.breakdown import score_intervals, subgroups, targets
from rnc.analyses.coverage import coverage
from rnc.analyses.maps import pca, similarity
from rnc.files import write_json
from rnc.run.evaluate import Evaluation
from rnc.run.folder import SCORES_FILE, DoesNotApply, RunFolder
from rnc.run.write import write_samples

STANDARD: dict[str, Analysis] = {
    "coverage": coverage,
    "intervals": score_intervals,
    "pca": pca,
    "similarity": similarity,
    "subgroups": subgroups,
    "targets": targets,
}


def finish_folder(evaluation: Evaluation, folder: Path) -> None:
    """Write an evaluation and its standard analyses; scores.json comes last and marks the end."""
    write_samples(evaluation, folder)
    if evaluation.neighbours is not None:
        RunFolder(folder).write_analysis("neighbours", evaluation.neighbours)
    write_standard_analyses(RunFolder(folder, given_scores=evaluation.scores))
    write_json(folder / SCORES_FILE, evaluation.scores)


def write_standard_analyses(run: RunFolder) -> None:
    """Write the standard analyses that apply to a run."""
    for name, analysis in STANDARD.items():
        with suppress(DoesNotApply):
            run.write_analysis(name, analysis(run, AnalysisOptions()))
