"""The sections of a page, in order. A new one is a function in a module and a line of SECTIONS."""

from collections.abc import Callable, Sequence

from rnc.report.figures import Figure
from rnc.report.runs import AnalysisReader, ReportRun
from rnc.report.samples import Pictures
from rnc.report.sections import (
    comparison,
    configuration,
    errors,
    features,
    intervals,
    neighbours,
    numbers,
    robustness,
    training,
    worst,
)

DrawSection = Callable[[Sequence[ReportRun], Pictures, list[Figure]], str]
"""Runs, their pictures, and the figures, to which it adds -> HTML, "" without content."""

SECTIONS: tuple[DrawSection, ...] = (
    comparison.draw_scores,
    features.draw_maps,
    features.draw_similarities,
    errors.draw_predictions,
    errors.draw_target_errors,
    errors.draw_subgroup_errors,
    intervals.draw_intervals,
    worst.draw_worst_errors,
    robustness.draw_corruption,
    robustness.draw_other_data,
    training.draw_training,
    configuration.draw_configuration,
)

SIDE_BY_SIDE: tuple[tuple[DrawSection, DrawSection], ...] = (
    (features.draw_maps, features.draw_similarities),
    (errors.draw_predictions, errors.draw_target_errors),
)
"""Pairs that share a row on a page about one run. Each pair is consecutive in SECTIONS."""

# The readers of the analyses that the sections draw. The page lists unusable ones in this order.
READERS: dict[str, AnalysisReader] = {
    "intervals": numbers.read_intervals,
    "order": numbers.read_order,
    "readable": numbers.read_readable,
    "map": features.read_map,
    "pca": features.read_pca,
    "similarity": features.read_similarity,
    "targets": errors.read_targets,
    "subgroups": errors.read_subgroups,
    "neighbours": neighbours.read_neighbours,
    "coverage": intervals.read_coverage,
    "corruption": robustness.read_corruption,
    "unseen": robustness.read_unseen,
    "reduced": robustness.read_reduced,
    "transfer": robustness.read_transfer,
}
