"""The datasets of the paper by name."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rnc.data.datasets.agedb import AGEDB
from rnc.data.datasets.dataset import Dataset, Finding
from rnc.data.datasets.imdb_wiki import IMDB_WIKI
from rnc.data.datasets.mpiifacegaze import MPIIFACEGAZE
from rnc.data.datasets.skyfinder import SKYFINDER
from rnc.data.datasets.tuab import TUAB
from rnc.data.errors import DataError, did_you_mean
from rnc.data.table import Table

DATASETS = {dataset.name: dataset for dataset in (AGEDB, IMDB_WIKI, TUAB, MPIIFACEGAZE, SKYFINDER)}
"""All datasets by name."""


def find_dataset(name: str) -> Dataset:
    """A dataset by its name, in any case and with - or _.

    >>> find_dataset("IMDB_WIKI").title
    'IMDB-WIKI'
    """
    key = name.strip().lower().replace("_", "-")
    if key not in DATASETS:
        raise DataError(f"There is no dataset {name!r}; known are {', '.join(DATASETS)}.")
    return DATASETS[key]


def read_dataset(name: str, root: str | Path, options: Mapping[str, Any] | None = None) -> Table:
    """Read the copy in a folder; `Dataset.options` lists the options."""
    dataset = find_dataset(name)
    for option in options or {}:
        if option not in dataset.options:
            raise DataError(
                f"{dataset.name} has no option {option!r}; its options: "
                f"{', '.join(dataset.options)}.{did_you_mean(option, dataset.options)}"
            )
    return dataset.read(Path(root), **(options or {}))


def check_dataset(name: str, root: str | Path, *, progress: bool = False) -> Iterator[Finding]:
    """Compare a copy with the published set. A broken copy gives a finding, not an exception."""
    return find_dataset(name).check(Path(root), progress)
