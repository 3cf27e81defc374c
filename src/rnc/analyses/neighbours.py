"""The training samples nearest to the test samples with the worst errors."""

from rnc.analyses.analysis import AnalysisOptions
from rnc.run.folder import AnalysisResult, DoesNotApply, RunFolder
from rnc.run.neighbours import nearest_of_worst
from rnc.run.other import EVALUATION_OF
from rnc.run.reference import reference_of


def neighbours(run: RunFolder, options: AnalysisOptions) -> AnalysisResult:
    """The neighbours of the worst errors. Also writes the reference of the run anew."""
    if EVALUATION_OF in run.config:
        raise DoesNotApply(
            f"{run.path} is an evaluation, which has neighbours if its run keeps training samples: "
            f"`rnc evaluate {run.config[EVALUATION_OF]} --with neighbours`, then evaluate again."
        )
    model, table, found = run.model, run.table, run.predictions
    options.show(0, 1, "features of training samples")
    model.reference = reference_of(model, table)
    if model.reference is None:
        raise DoesNotApply(f"{run.path} has fewer than two training samples with finite features.")
    model.reference.save(run.path)
    return nearest_of_worst(model, table, found.predicted, found.truth, run.features)
