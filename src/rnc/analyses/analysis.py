"""What an analysis is: a function of a run folder and options, which returns what it found."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from rnc.run.folder import AnalysisResult, RunFolder

ShowProgress = Callable[[int, int, str], None]
"""Steps done, steps in all, and what is being done."""

SHARES = (1.0, 0.5, 0.25, 0.125)


class MapOnly(NamedTuple):
    """Which samples a map has: those with one of these values in a column."""

    column: str
    values: tuple[str, ...]


@dataclass(frozen=True)
class AnalysisOptions:
    """What an analysis may be told; each takes what it needs."""

    map_method: str | None = None
    """pca, tsne or umap; None: umap if it is installed, else tsne."""
    map_only: MapOnly | None = None
    """The samples of a map; None: all that have features."""
    corruption_samples: int = 2000
    """Most test images to corrupt."""
    seen: tuple[tuple[float, float], ...] = ()
    """Ranges of the first target that count as seen, ends included."""
    shares: tuple[float, ...] = SHARES
    """Of the training rows, for training again."""
    seeds: int = 1
    """How often to train again per share: with the run's seed and the next ones."""
    data: Path | None = None
    """The table to transfer to."""
    images: Path | None = None
    """The folder of its images."""
    target: tuple[str, ...] = ()
    """Its targets; by default those of the run."""
    show: ShowProgress = lambda done, total, what: None
    """Called now and then by a long analysis."""


Analysis = Callable[[RunFolder, AnalysisOptions], AnalysisResult]
