"""The data of an experiment: the demo digits, a dataset of the paper, or any table.

Data.of_digits()                     scikit-learn's digits, turned by known angles
Data.of_dataset("agedb", root)       your copy of a dataset of the paper
Data.of_table(table)                 a table of your own
"""

import dataclasses
import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from rnc.analyses.corruption import LEAST_SIDE
from rnc.data.archive import read_npz
from rnc.data.datasets.registry import find_dataset
from rnc.data.demo import balls_table, digits_table
from rnc.data.errors import DataError, first_few
from rnc.data.folds import all_folds, fold_split
from rnc.data.numerals import Cells
from rnc.data.opened import open_data
from rnc.data.source import DataSource
from rnc.data.sources import ARRAYS, existing, read_frame
from rnc.data.splits import FRACTIONS, holds_splits, make_split
from rnc.data.table import Table
from rnc.experiments.subsets import only

DIGITS, BALLS = "digits", "balls"
DIGIT_SIDE = 16

_PAPER_BATCH = 256
"""The paper's batch size for its datasets, for any number of rows."""
_NUISANCE = {"skyfinder": "camera", DIGITS: "digit", BALLS: "scanner"}


@dataclass(frozen=True, eq=False)
class Data:
    """A table, with the fields and further tables that experiments on it need."""

    name: str
    table: Table
    fit: Mapping[str, Any] = field(default_factory=dict)
    """Fields of FitConfig for these data."""
    quick: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of FitConfig for these data with preset quick."""
    pair: tuple[tuple[str, Table], tuple[str, Table]] | None = None
    """The names of two tables with the same kind and targets, and the tables, for transfer."""
    nuisance: str | None = None
    """The column that a good representation should not encode."""
    nuisance_values: tuple[str, ...] = ()
    """The values of that column that a map shows. Empty: all, or the ten most frequent of many."""
    large: Table | None = None
    """The same samples as larger images, if the images of the table are too small to corrupt."""
    source: DataSource | None = None
    """Where and how the table was read, for config.json of the runs."""
    folds: Mapping[str, Table] = field(default_factory=dict)
    """The tables of a cross-validation, by the names of their folds; `table` is the first one."""

    @classmethod
    def of_table(cls, table: Table, name: str = "own", **more: Any) -> "Data":
        """Data of a table of your own; `more` has further fields of this class."""
        return cls(name, table, **{"nuisance": _only_subgroup(table), **more})

    @classmethod
    def of_source(cls, table: Table, source: DataSource) -> "Data":
        """Data of a table and its source; a dataset of the paper gets the paper's settings."""
        name = source.dataset
        if name is None:
            return cls.of_table(table, Path(source.source).name, source=source)
        dataset = find_dataset(name)
        fit = {"batch_size": _PAPER_BATCH, **dataset.fit, **dataset.bins}
        fit |= {"encoder": "resnet18"} if table.kind == "image" else {}
        return cls(name, table, fit=fit, nuisance=_NUISANCE.get(name), source=source)

    @classmethod
    def of_folds(
        cls, source: DataSource, count: int, image_size: int = 224, **decoding: Any
    ) -> "Data":
        """Data for a cross-validation: a file that is read once for each fold.

        So the preprocessing of each fold is learned from its own training rows.

        Args:
            source: the file.
            count: number of folds.
            image_size: side of the images for the encoder, in pixels.
            decoding: further arguments of `DataSource.read`.
        """
        if source.is_copy:
            raise DataError(
                f"Folds are for files and the digits; {source.dataset} has splits of its own. "
                "Leave out the folds, or name a file."
            )
        sources = [dataclasses.replace(source, fold=fold) for fold in all_folds(count)]
        opened = open_data(source.source, decimal=source.decimal, progress=True)
        tables = [one.read(image_size, opened=opened, **decoding) for one in sources]
        data = cls.of_source(tables[0], sources[0].decided(tables[0]))
        folds = {str(one.fold): table for one, table in zip(sources, tables, strict=True)}
        return dataclasses.replace(data, folds=folds)

    @classmethod
    def of_digits(cls, folds: int = 0) -> "Data":
        """The data of the demo: real digits; the angle is the target, the digit is the nuisance.

        Crops and mirror images would change how an angle looks, so views differ in brightness and
        contrast only.

        Args:
            folds: number of folds for a cross-validation; 0: none.
        """
        table = digits_table(side=DIGIT_SIDE)
        low = np.asarray(table.subgroup["digit"]) < 5
        tables = {
            fold: dataclasses.replace(table, split=fold_split(fold, table.y, table.names))
            for fold in (all_folds(folds) if folds else ())
        }
        return cls(
            DIGITS,
            next(iter(tables.values()), table),
            folds=tables,
            fit={"encoder": "small-cnn", "batch_size": 64, "image_size": DIGIT_SIDE}
            | {"crop": False, "flip": False, "grayscale": False},
            quick={"lr": 2e-3, "epochs": 12},
            pair=(("digits 0 to 4", only(table, low)), ("digits 5 to 9", only(table, ~low))),
            nuisance=_NUISANCE[DIGITS],
            large=digits_table(side=LEAST_SIDE),
        )

    @classmethod
    def of_balls(cls) -> "Data":
        """The demo of volumes: the radius of a ball is the target, the scanner is the nuisance."""
        return cls(
            BALLS,
            balls_table(),
            fit={"encoder": "resnet3d10", "batch_size": 32, "crop": False},
            quick={"epochs": 12},
            nuisance=_NUISANCE[BALLS],
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
        """Your copy of a dataset of the paper.

        Args:
            name: one of `rnc.data.datasets.registry.DATASETS`.
            root: the folder of the copy.
            options: options of the dataset's reader.
            image_size: side of the images for the encoder, in pixels.
        """
        name, options = find_dataset(name).name, dict(options or {})
        source = DataSource(str(root), dataset=name, dataset_options=options)
        data = cls.of_source(source.read(image_size), source)
        return dataclasses.replace(data, fit={**data.fit, "image_size": image_size})

    @property
    def own_split(self) -> str:
        """The split of a dataset if it differs from the default, which the paper uses; else "".

        >>> source = DataSource("data", dataset="agedb", dataset_options={"split": "person"})
        >>> Data.of_source(digits_table(), source).own_split
        'person'
        """
        if self.source is None or self.source.dataset is None:
            return ""
        usual = inspect.signature(find_dataset(self.source.dataset).read).parameters.get("split")
        chosen = self.source.dataset_options.get("split")
        return "" if chosen is None or usual is None or chosen == usual.default else str(chosen)

    def with_other(self, other: "Data") -> "Data":
        """The same data, with a second table to transfer to and from."""
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


def read_other(source: DataSource, image_size: int, preprocessing: dict[str, Any]) -> Table:
    """The table of a file to transfer to, with the preprocessing of the first table, and a split.

    The split is that of the source's split column, or of a column "split" with train, val and test.
    Without such a column, a seeded split is made. It keeps groups together if the file has the
    group column.

    Args:
        source: the file. It may lack the split_column, group_column and weight_column.
        image_size: side of the images for the encoder, in pixels.
        preprocessing: the preprocessing of the first table.
    """
    columns, splits = _columns(Path(source.source), source.split_column, source.decimal)
    group = source.group_column if source.group_column in columns else None
    weight = source.weight_column if source.weight_column in columns else None
    source = dataclasses.replace(
        source,
        split_column=splits[0] if splits else "none",
        group_column=None,
        subgroup_columns=() if group is None else (group,),
        weight_column=weight,
    ).for_columns(columns)
    table = source.read(image_size, preprocessing)
    if splits:
        return table
    together = None if group is None else table.subgroup[group]
    return dataclasses.replace(
        table,
        split=make_split(
            table.y,
            table.names,
            group=together,
            fractions=source.fractions or FRACTIONS,
            seed=source.split_seed,
        ),
    )


def _columns(source: Path, split: str | None, decimal: str | None) -> tuple[list[str], list[str]]:
    """The columns of a file, and which of them hold splits: train, val and test."""
    path = existing(source)
    names = [] if split == "none" else [name for name in (split, "split") if name is not None]
    if path.suffix.lower() in ARRAYS:
        arrays = list(read_npz(path))
        return arrays, [name for name in arrays if name in names]
    frame = read_frame(path, Cells(decimal=decimal))
    return list(frame), [name for name in names if name in frame and holds_splits(frame[name])]


def _only_subgroup(table: Table) -> str | None:
    return next(iter(table.subgroup)) if len(table.subgroup) == 1 else None
