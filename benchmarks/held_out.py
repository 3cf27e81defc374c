"""The held-out rows of a run or of a feature file: predictions, targets and difficulty."""

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
        """The run folder."""
        return RunFolder(self.path)

    @cached_property
    def difficulty(self) -> NDArray[np.float64]:
        """How hard each row is by its neighbours in this run's features, (n,)."""
        if (self.path / REFERENCE_FILE).exists():
            return compared_with(read_reference(self.path)).difficulty(self.run.features)
        known = reference_of(self.run.model, self.run.table)  # for an older run without that file
        return compared_with(known).difficulty(self.run.features)

    @property
    def predictions(self) -> Columns:
        """The predictions, (n, t)."""
        return self.run.predictions.predicted[self.run.rows]

    @property
    def targets(self) -> Columns:
        """The targets, (n, t)."""
        return self.run.truth[self.run.rows]

    @property
    def target_names(self) -> Sequence[str]:
        """The names of the t targets."""
        return self.run.targets

    @property
    def period(self) -> float | None:
        """The period of targets on a circle; None for other targets."""
        return self.run.fit.period if self.run.fit.label_distance == "circular" else None

    def groups(self, column: str | None) -> NDArray[np.str_] | None:
        """The values of a subgroup column, (n,); None if the run does not have it."""
        found = self.run.subgroups.get(column or "")
        return None if found is None else found[self.run.rows]


class FeatureFile(HeldOut):
    """The held-out rows of a feature file, without a run."""

    @cached_property
    def arrays(self) -> dict[str, Tensor]:
        """Features and targets by split."""
        with np.load(self.path, allow_pickle=False) as file:
            return {name: torch.from_numpy(file[name].astype(np.float64)) for name in file.files}

    @cached_property
    def difficulty(self) -> NDArray[np.float64]:
        """How hard each row is by its neighbours in these features, (n,)."""
        known = Neighbours(self.arrays["train"].float(), self.arrays["train_y"])
        return known.difficulty(self.arrays["test"].float())

    @cached_property
    def predictions(self) -> Columns:
        """The predictions of a solved l1 head, (n, t)."""
        arrays = {name: values.float() for name, values in self.arrays.items()}
        head = make_head("l1", arrays["train"].shape[1], self.arrays["train_y"])
        rows = (arrays["train"], self.arrays["train_y"], arrays["val"], self.arrays["val_y"])
        solve_head(head, *rows)
        with torch.no_grad():
            return head.decode(head(arrays["test"])).numpy()

    @property
    def targets(self) -> Columns:
        """The targets, (n, t)."""
        return self.arrays["test_y"].numpy()

    @property
    def target_names(self) -> Sequence[str]:
        """The names of the t targets: y, or y, y1, ..."""
        return [f"y{i}" if i else "y" for i in range(self.arrays["test_y"].shape[1])]

    @property
    def period(self) -> float | None:
        """None: targets of feature files are not on a circle."""
        return None

    def groups(self, column: str | None) -> NDArray[np.str_] | None:
        """None: feature files have no subgroups."""
        return None


def held_out(path: Path) -> HeldOut:
    """The held-out rows of a run folder or of an .npz feature file."""
    return FeatureFile(path) if path.suffix == ".npz" else HeldOut(path)
