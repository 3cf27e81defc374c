"""The type of an analysis: a function that takes a run folder and options, and returns a result."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from rnc.run.folder import AnalysisResult, RunFolder

ShowProgress = Callable[[int, int, str], None]
"""Takes the number of steps done, the number of all steps, and a text about the current step."""

SHARES = (1.0, 0.5, 0.25, 0.125)


class MapOnly(NamedTuple):
    """Limits a map to the samples that have one of these values in a column."""

    column: str
    values: tuple[str, ...]


@dataclass(frozen=True)
class AnalysisOptions:
    """The options of all analyses; each analysis uses some of them."""

    map_method: str | None = None
    """pca, tsne or umap; None: umap if it is installed, else tsne."""
    map_only: MapOnly | None = None
    """The samples of a map; None: all samples with features."""
    corruption_samples: int = 2000
    """The largest number of test images to corrupt."""
    seen: tuple[tuple[float, float], ...] = ()
    """Ranges of the first target that training has seen, ends included."""
    shares: tuple[float, ...] = SHARES
    """Shares of the training rows to train again on."""
    seeds: int = 1
    """Number of trainings per share: with the run's seed and the seeds after it."""
    data: Path | None = None
    """The table to transfer to."""
    images: Path | None = None
    """The folder with the images of that table."""
    target: tuple[str, ...] = ()
    """The targets in that table; empty: the targets of the run."""
    show: ShowProgress = lambda done, total, what: None
    """Called by a long analysis to report its progress."""


Analysis = Callable[[RunFolder, AnalysisOptions], AnalysisResult]
