"""Data as a run's config.json describes them: a file with its options, or a dataset with its own.

{"source": "faces.csv", "images": "faces", "target": ["age"], ...}           options of read_table
{"source": "data", "dataset": "agedb", "dataset_options": {...}, "target": ...}   of read_dataset
"""

from pathlib import Path
from typing import Any

from rnc.data.datasets.registry import find_dataset, read_dataset
from rnc.data.images import default_cache
from rnc.data.sources import ARRAYS, TABLES
from rnc.data.table import Table, read_table

_NOT_FOR_TABLES = ("source", "dataset", "dataset_options")


def read_data(
    data: dict[str, Any], image_size: int, preprocessing: dict[str, Any] | None = None
) -> Table:
    """Read a table as a description says.

    A description of a dataset may have a file as its source: other data are evaluated that way,
    with the targets of the dataset.

    Args:
        data: the source, and the options of `read_table`; or the name of a dataset, its options,
            and as the source the folder of a copy.
        image_size: side of what the encoder sees, in pixels.
        preprocessing: of the fitted model, for other data than those it was fitted on.
    """
    ours: dict[str, Any] = {
        "image_size": stored_side(image_size),
        "cache": default_cache(),
        "progress": True,
    }
    if "dataset" in data and Path(data["source"]).suffix.lower() not in TABLES + ARRAYS:
        known = find_dataset(data["dataset"]).options
        ours = {name: value for name, value in ours.items() if name in known}
        return read_dataset(data["dataset"], data["source"], ours | data["dataset_options"])
    options = {name: value for name, value in data.items() if name not in _NOT_FOR_TABLES}
    return read_table(data["source"], **options, **ours, preprocessing=preprocessing)


def stored_side(image_size: int) -> int:
    """Side of decoded images: 8/7 of what the encoder sees, as the paper's 256 for 224."""
    return round(image_size * 8 / 7)
