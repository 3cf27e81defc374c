"""Where labelled data are and how to read them: a file, or a copy of one of the datasets.

A `DataSource` is made from the flags of a command and kept in the config.json of a run. Later
commands on the run use it to read the data again.
"""

import dataclasses
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from rnc.data.cache_entries import default_cache
from rnc.data.datasets.registry import find_dataset, read_dataset
from rnc.data.opened import OpenedData
from rnc.data.partial_labels import Unlabelled
from rnc.data.sources import is_data_file
from rnc.data.splits import take_calibration
from rnc.data.table import Table, read_table

_OF_COPIES = ("source", "dataset", "dataset_options", "target", "calibration_share")
_LEFT_OUT = (
    "fold",
    "calibration_share",
    "unlabelled",
    "partial_labels",
    "upper_column",
    "event_column",
    "volume_size",
    "intensity",
)
"""Fields that config.json omits if they have their default: older versions do not know them."""
_NOT_FOR_TABLES = ("source", "dataset", "dataset_options")


@dataclass(frozen=True)
class DataSource:
    """A labelled file with the options of `read_table`, or a copy of a dataset with its own ones.

    The source may be a file although `dataset` is set. Then a model that was fitted to the dataset
    is evaluated on other data.
    """

    source: str
    """The file, or the folder of the copy."""
    target: tuple[str, ...] = ()
    images: str | None = None
    image_column: str = "auto"
    feature_columns: tuple[str, ...] | None = None
    exclude_columns: tuple[str, ...] = ()
    split_column: str | None = None
    group_column: str | None = None
    subgroup_columns: tuple[str, ...] = ()
    weight_column: str | None = None
    fractions: tuple[float, ...] | None = None
    split_seed: int = 0
    fold: str | None = None
    calibration_share: float = 0.0
    decimal: str | None = None
    drop_missing: bool = False
    unlabelled: Unlabelled | None = None
    partial_labels: bool = False
    upper_column: tuple[str, ...] = ()
    event_column: tuple[str, ...] = ()
    skip_bad: bool = False
    fit: str = "crop"
    channels: int | None = None
    volume_size: int = 64
    intensity: str = "keep"
    dataset: str | None = None
    """The name of the dataset, if there is one."""
    dataset_options: Mapping[str, Any] = field(default_factory=dict)
    """Options of the dataset's reader."""

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "DataSource":
        """The source that config.json describes. Fields that are not there get their default.

        The exception is `channels` of a file: older versions read all image files as RGB.
        """
        fields: Any = {k: tuple(v) if isinstance(v, list) else v for k, v in content.items()}
        return cls(**({} if fields.get("dataset") else {"channels": 3}) | fields)

    def to_json(self) -> dict[str, Any]:
        """The fields that this source uses, as config.json keeps them."""
        fields = dataclasses.asdict(self)
        for name in _LEFT_OUT:
            if fields[name] == getattr(DataSource, name):
                del fields[name]
        if self.is_copy:
            return {name: fields[name] for name in _OF_COPIES if name in fields}
        return {k: v for k, v in fields.items() if not k.startswith("dataset")}

    @property
    def end_columns(self) -> tuple[str, ...]:
        """The columns of upper ends or events of the targets."""
        return (*self.upper_column, *self.event_column)

    def for_columns(self, columns: Collection[str]) -> "DataSource":
        """This source for a file with these columns. Without `end_columns`, targets are exact."""
        if set(self.end_columns) & set(columns):
            return self
        return dataclasses.replace(self, upper_column=(), event_column=())

    @property
    def is_copy(self) -> bool:
        """Whether the source is a copy of a dataset, not a file."""
        return self.dataset is not None and not is_data_file(self.source)

    def read(
        self,
        image_size: int,
        preprocessing: dict[str, Any] | None = None,
        *,
        same_rows: bool = False,
        opened: OpenedData | None = None,
        side: int | None = None,
        resample: str = "bicubic",
    ) -> Table:
        """Read the table for an encoder that takes images of `image_size` pixels.

        Decoded images are kept in the user's cache. `preprocessing` is that of a fitted model, for
        new data or, with `same_rows`, for the data that it was fitted to. `opened` is the file, if
        it has been read already. `side` is the side of decoded images, by default `stored_side`.
        `resample` says how image files of a table are scaled.
        """
        fit = self.fit if preprocessing is None else preprocessing.get("fit", "crop")
        decoding: dict[str, Any] = {
            "image_size": stored_side(image_size, fit) if side is None else side,
            "resample": resample,
            "cache": default_cache(),
            "progress": True,
        }
        if self.dataset is not None and self.is_copy:
            options = find_dataset(self.dataset).options
            decoding = {name: value for name, value in decoding.items() if name in options}
            table = read_dataset(self.dataset, self.source, decoding | dict(self.dataset_options))
            return self._calibrated(table)
        fields = {k: v for k, v in vars(self).items() if k not in _NOT_FOR_TABLES}
        source = self.source if opened is None else opened
        return read_table(
            source, **fields, **decoding, preprocessing=preprocessing, same_rows=same_rows
        )

    def _calibrated(self, table: Table) -> Table:
        """The table of a dataset, with its share of calibration rows."""
        split = take_calibration(
            table.split, table.y, table.names, share=self.calibration_share, group=table.group
        )
        return dataclasses.replace(table, split=split)

    def decided(self, table: Table) -> "DataSource":
        """The source for config.json, with the targets or channels found on reading the table."""
        if self.is_copy:  # the names by which other files are evaluated
            return dataclasses.replace(self, target=table.target_names)
        if "fit" in table.preprocessing:  # later files do not change them
            return dataclasses.replace(self, channels=table.preprocessing["channels"])
        return self


def stored_side(image_size: int, fit: str = "crop") -> int:
    """Side of decoded images: 8/7 of the encoder's image size, like the paper's 256 for 224.

    With fit "pad" or "stretch" it is the encoder's image size, so `eval_view` cuts nothing off.
    """
    return round(image_size * 8 / 7) if fit == "crop" else image_size
