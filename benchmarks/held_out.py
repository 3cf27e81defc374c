"""The held-out rows of a run, or of a file of features: predictions, targets, how hard they are."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rnc.files import REFERENCE_FILE
from rnc.heads import make_head
from rnc.intervals import Neighbours
from rnc.intervals.reference import read_reference
from rnc.metrics import Columns
from rnc.model.intervals import compared_with
from rnc.run.folder import RunFolder
from rnc.run.reference import reference_of
from rnc.training.probe import solve_head


@dataclass(eq=False)
class HeldOut:
    """The held-out rows of a run that have features."""

    path: Path

    @property
    def key(self) -> tuple[str, str, int]:
        """Set, method and seed, from the name of the folder."""
        parts = self.path.stem.rsplit("-", 2)
        if len(parts) != 3 or not parts[2].isdigit():
            raise SystemExit(f"{self.path} must be called SET-METHOD-SEED, as utkface-rnc-0.")
        return parts[0], parts[1], int(parts[2])

    @cached_property
    def run(self) -> RunFolder:
        """The folder."""
        return RunFolder(self.path)

    @cached_property
    def difficulty(self) -> NDArray[np.float64]:
        """(n,) by the neighbours of this run's features."""
        if (self.path / REFERENCE_FILE).exists():
            return compared_with(read_reference(self.path)).difficulty(self.run.features)
        known = reference_of(self.run.model, self.run.table)  # an older run
        return compared_with(known).difficulty(self.run.features)

    @property
    def predictions(self) -> Columns:
        """(n, t)."""
        return self.run.predictions.predicted[self.run.rows]

    @property
    def targets(self) -> Columns:
        """(n, t)."""
        return self.run.truth[self.run.rows]

    @property
    def target_names(self) -> Sequence[str]:
        """By column."""
        return self.run.targets

    @property
    def period(self) -> float | None:
        """Of targets on a circle."""
        return self.run.fit.period if self.run.fit.label_distance == "circular" else None

    def groups(self, column: str | None) -> NDArray[np.str_] | None:
        """(n,) of a column of predictions.csv, if it has it."""
        found = self.run.subgroups.get(column or "")
        return None if found is None else found[self.run.rows]


class FeatureFile(HeldOut):
    """The same for features without a run."""

    @cached_property
    def arrays(self) -> dict[str, Tensor]:
        """Features and targets by split."""
        with np.load(self.path, allow_pickle=False) as file:
            return {name: torch.from_numpy(file[name].astype(np.float64)) for name in file.files}

    @cached_property
    def difficulty(self) -> NDArray[np.float64]:
        """(n,) by the neighbours of these features."""
        known = Neighbours(self.arrays["train"].float(), self.arrays["train_y"])
        return known.difficulty(self.arrays["test"].float())

    @cached_property
    def predictions(self) -> Columns:
        """(n, t) of a solved head."""
        arrays = {name: values.float() for name, values in self.arrays.items()}
        head = make_head("l1", arrays["train"].shape[1], self.arrays["train_y"])
        rows = (arrays["train"], self.arrays["train_y"], arrays["val"], self.arrays["val_y"])
        solve_head(head, *rows)
        with torch.no_grad():
            return head.decode(head(arrays["test"])).numpy()

    @property
    def targets(self) -> Columns:
        """(n, t)."""
        return self.arrays["test_y"].numpy()

    @property
    def target_names(self) -> Sequence[str]:
        """By column."""
        return [f"y{i}" if i else "y" for i in range(self.arrays["test_y"].shape[1])]

    @property
    def period(self) -> float | None:
        """None is on a circle."""
        return None

    def groups(self, column: str | None) -> NDArray[np.str_] | None:
        """None is known."""
        return None


def held_out(path: Path) -> HeldOut:
    """The rows of a folder or of a file."""
    return FeatureFile(path) if path.suffix == ".npz" else HeldOut(path)
