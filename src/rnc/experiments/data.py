"""The data of a reproduction: the demo digits, a dataset of the paper, or any table.

Data.of_digits()                     scikit-learn's digits, turned by a known angle
Data.of_dataset("agedb", root)       a copy of one of the paper's
Data.of_table(table)                 an own table
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from rnc.analyses.corruption import LEAST_SIDE
from rnc.data.datasets.registry import find_dataset
from rnc.data.demo import digits_table
from rnc.data.errors import DataError, first_few
from rnc.data.source import DataSource
from rnc.data.table import Table
from rnc.experiments.subsets import only

DIGITS = "digits"
SIDE = 16

_FIT: dict[str, dict[str, Any]] = {
    "agedb": {"low": 0.0, "high": 101.0, "step": 1.0},
    "imdb-wiki": {},
    "tuab": {"low": 0.0, "high": 95.0, "step": 1.0},
    "mpiifacegaze": {"label_distance": "angular", "flip": False},
    "skyfinder": {"low": -20.0, "high": 49.0, "step": 1.0},
}
"""What the paper says of each dataset. Its bins of gaze, 0.5 and 1 degree, are two steps, and a
config has one: gaze takes the heads' own, a hundredth of each range."""

_NUISANCE = {"skyfinder": "camera", DIGITS: "digit"}


@dataclass(frozen=True, eq=False)
class Data:
    """A table, and what belongs to it."""

    name: str
    table: Table
    fit: Mapping[str, Any] = field(default_factory=dict)
    """Fields of FitConfig that these data need."""
    quick: Mapping[str, Any] = field(default_factory=dict)
    """Further ones, with the preset quick."""
    pair: tuple[tuple[str, Table], tuple[str, Table]] | None = None
    """Two tables of one kind and target, by name, to transfer between."""
    nuisance: str | None = None
    """The column that a good representation leaves out."""
    large: Table | None = None
    """The same samples as larger images, where those of the table are too small to corrupt."""
    source: DataSource | None = None
    """How the table was read, for config.json of the runs."""

    @classmethod
    def of_table(cls, table: Table, name: str = "own", **more: Any) -> "Data":
        """Data of the caller's own; `more` are fields of this class."""
        return cls(name, table, **{"nuisance": _only_subgroup(table), **more})

    @classmethod
    def of_digits(cls) -> "Data":
        """The demo: real digits, the angle is the target, the digit the nuisance.

        Crops and mirror images would change what an angle looks like: views differ in brightness
        and contrast only. The encoder and its rate are those of `rnc demo`.
        """
        table = digits_table(side=SIDE)
        low = np.asarray(table.subgroup["digit"]) < 5
        return cls(
            DIGITS,
            table,
            fit={"encoder": "small-cnn", "batch_size": 64, "image_size": SIDE}
            | {"crop": False, "flip": False, "grayscale": False},
            quick={"lr": 2e-3, "epochs": 12},
            pair=(("digits 0 to 4", only(table, low)), ("digits 5 to 9", only(table, ~low))),
            nuisance=_NUISANCE[DIGITS],
            large=digits_table(side=LEAST_SIDE),
        )

    @classmethod
    def of_dataset(
        cls,
        name: str,
        root: str | Path,
        options: Mapping[str, Any] | None = None,
        *,
        image_size: int = 224,
    ) -> "Data":
        """A copy of a dataset of the paper.

        Args:
            name: one of `rnc.data.datasets.registry.DATASETS`.
            root: the folder of the copy.
            options: those of the dataset's reader.
            image_size: side of what the encoder sees, in pixels.
        """
        name = find_dataset(name).name
        source = DataSource(str(root), dataset=name, dataset_options=dict(options or {}))
        table = source.read(image_size)
        encoder = {"encoder": "resnet18"} if table.kind == "image" else {}
        fit = _FIT[name] | encoder | {"image_size": image_size}
        return cls(name, table, fit=fit, nuisance=_NUISANCE.get(name), source=source)

    def with_other(self, other: "Data") -> "Data":
        """The same, with a second table to transfer to and from."""
        here, there = self.table, other.table
        if (here.kind, here.x.shape[1:]) != (there.kind, there.x.shape[1:]):
            raise DataError(
                "Transfer needs two tables whose samples have one kind and shape; "
                f"{self.name} has {here.kind} {here.x.shape[1:]}, {other.name} has {there.kind} "
                f"{there.x.shape[1:]}. Read both with the same image size or columns."
            )
        if here.y.shape[1] != there.y.shape[1]:
            raise DataError(
                f"Transfer needs the same targets; {self.name} has {first_few(here.target_names)}, "
                f"{other.name} has {first_few(there.target_names)}."
            )
        return dataclasses.replace(self, pair=((self.name, here), (other.name, there)))


def _only_subgroup(table: Table) -> str | None:
    return next(iter(table.subgroup)) if len(table.subgroup) == 1 else None
