"""Which trackers there are, and what each needs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

from rnc.data.errors import did_you_mean
from rnc.trackers.mlflow import MLflowWriter
from rnc.trackers.tensorboard import TensorBoardWriter
from rnc.trackers.wandb import WandbWriter


class TrackerWriter(Protocol):
    """A run at a tracker, open for writing. Whatever it raises ends the tracking, not the run."""

    @property
    def id(self) -> str | None:
        """What a resumed run finds it by; None where the run folder is enough."""

    def parameters(self, values: dict[str, str]) -> None:
        """Write what the run was started with."""

    def numbers(self, stage: str, epoch: int, values: dict[str, float]) -> None:
        """Write the numbers of an epoch."""

    def scores(self, values: dict[str, float]) -> None:
        """Write what the evaluation found."""

    def close(self, *, finished: bool) -> None:
        """Send what is left, and say whether the run came to its end."""


@dataclass(frozen=True)
class TrackerSpec:
    """A tracker: the package that it needs, and how a run there is opened."""

    package: str
    open: Callable[[Path, str, str | None], TrackerWriter]
    """From the run folder, the name of the run, and the id of one to go on with."""


TRACKERS: dict[str, TrackerSpec] = {
    "tensorboard": TrackerSpec("tensorboard", TensorBoardWriter),
    "mlflow": TrackerSpec("mlflow", MLflowWriter),
    "wandb": TrackerSpec("wandb", WandbWriter),
}
"""Every name has an extra of the same name."""


def check_trackers(names: Sequence[str]) -> None:
    """Raise unless each is a tracker whose package is installed: before anything is trained."""
    for name in names:
        if name not in TRACKERS:
            raise ValueError(
                f"There is no tracker {name!r}; known are {', '.join(TRACKERS)}."
                f"{did_you_mean(name, TRACKERS)}"
            )
        if missing := missing_package(name):
            raise ModuleNotFoundError(missing)


def missing_package(name: str) -> str:
    """What to install for a tracker; empty if it is there."""
    if find_spec(TRACKERS[name].package) is not None:
        return ""
    return (
        f"The tracker {name} needs a package that is not installed: pip install "
        f"'rank-n-contrast[{name}]'."
    )
