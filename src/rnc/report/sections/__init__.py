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
    Section(numbers.comparison, numbers.READERS),
    Section(features.maps, {"map": features.read_map, "pca": features.read_pca}),
    Section(features.similarities, {"similarity": features.read_similarity}),
    Section(errors.predictions, {}),
    Section(errors.error_by_target, {"targets": errors.read_targets}),
    Section(errors.error_by_subgroup, {"subgroups": errors.read_subgroups}),
    Section(gallery.worst_errors, {}),
    Section(corruption.corruption, {"corruption": corruption.read_corruption}),
    Section(other_data.other_data, other_data.READERS),
    Section(training.training, {}),
    Section(numbers.configuration, {}),
)
