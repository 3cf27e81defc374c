"""The corruption sweep of a run: its error on test images at 19 types and 5 severities."""

from statistics import fmean

from rnc.analyses.analysis import AnalysisOptions
from rnc.analyses.corruption import (
    CORRUPTIONS,
    NEEDS_COLOUR,
    SEVERITIES,
    CorruptionScore,
    corruption_scores,
    mean_over_types,
)
from rnc.metrics import error_measure
from rnc.run.evaluate import draw
from rnc.run.folder import AnalysisResult, DoesNotApply, RunFolder

MEASURES = {"angular": "angular_error", "circular": "circular_error"}
"""Label distance -> the name of its error; all others have mae."""


def corruption(run: RunFolder, options: AnalysisOptions) -> AnalysisResult:
    """Error on random test images, clean and corrupted; grey images are not saturated."""
    kind = run.config["model"]["kind"]
    if kind != "image":
        raise DoesNotApply(f"corruption needs a run on images; {run.path} is one on {kind}s.")
    if options.corruption_samples < 1:
        raise ValueError(
            f"--corruption-samples must be 1 or more; got {options.corruption_samples}."
        )
    table = run.table
    test = table.rows("test")
    chosen = test[draw(len(test), options.corruption_samples)]
    x, y = table.x[chosen], table.y[chosen]
    names = [name for name in CORRUPTIONS if name != NEEDS_COLOUR or x.shape[1] == 3]
    measure = error_measure(run.fit.distance)
    try:
        scores = corruption_scores(run.model, x, y, names=names, measure=measure)
    except ValueError as error:
        raise DoesNotApply(str(error)) from error
    total, rows = len(names) * len(SEVERITIES), list[CorruptionScore]()
    for name, severity in ((name, severity) for name in names for severity in SEVERITIES):
        options.show(len(rows), total, f"{name} {severity}")
        rows.append(next(scores))
    options.show(total, total, "done")
    means = mean_over_types(rows)
    return AnalysisResult(
        {
            "measure": MEASURES.get(run.fit.label_distance, "mae"),
            "n": len(x),
            "clean": measure(run.model.predict_prepared(x), y),
            "rows": [score._asdict() for score in rows],
            "mean": [{"severity": key, "error": value} for key, value in means.items()],
            "types": [
                {"name": name, "error": fmean(one.error for one in rows if one.name == name)}
                for name in names
            ],
        }
    )
