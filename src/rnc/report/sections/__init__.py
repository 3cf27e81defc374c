"""The sections of a page, in their order. A new one is a module here and a line of SECTIONS."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from rnc.report.analyses import AnalysisReader
from rnc.report.figures import Figure
from rnc.report.runs import ReportRun
from rnc.report.samples import Pictures
from rnc.report.sections import corruption, errors, features, gallery, numbers, other_data, training

DrawSection = Callable[[Sequence[ReportRun], Pictures, list[Figure]], str]
"""Runs, their pictures, and the figures of the page, which it adds to -> HTML, "" for nothing."""


class Section(NamedTuple):
    """A section, and the readers of the analyses that it draws."""

    draw: DrawSection
    readers: dict[str, AnalysisReader]


SECTIONS = (
    Section(
        numbers.draw_scores,
        {
            "intervals": numbers.read_intervals,
            "order": numbers.read_order,
            "readable": numbers.read_readable,
        },
    ),
    Section(features.draw_maps, {"map": features.read_map, "pca": features.read_pca}),
    Section(features.draw_similarities, {"similarity": features.read_similarity}),
    Section(errors.draw_predictions, {}),
    Section(errors.draw_target_errors, {"targets": errors.read_targets}),
    Section(errors.draw_subgroup_errors, {"subgroups": errors.read_subgroups}),
    Section(gallery.draw_worst_errors, {}),
    Section(corruption.draw_corruption, {"corruption": corruption.read_corruption}),
    Section(
        other_data.draw_other_data,
        {
            "unseen": other_data.read_unseen,
            "reduced": other_data.read_reduced,
            "transfer": other_data.read_transfer,
        },
    ),
    Section(training.draw_training, {}),
    Section(numbers.draw_configuration, {}),
)
