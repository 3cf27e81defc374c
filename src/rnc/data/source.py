"""Where labelled data are, and how they are read: a file, or a copy of one of the datasets.

A `DataSource` is made from the flags of a command, kept in a run's config.json, and read again by
whatever works on the run later.
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
    "calibration_share",
    "unlabelled",
    "partial_labels",
    "upper_column",
    "event_column",
    "volume_size",
    "intensity",
)
"""Fields that config.json has only where they are used: older versions do not know them."""
_NOT_FOR_TABLES = ("source", "dataset", "dataset_options")


@dataclass(frozen=True)
class DataSource:
    """A labelled file with the options of `read_table`, or a copy of a dataset with its own.

    A file may be the source although `dataset` is named: a model that was fitted to a dataset is
    evaluated on other data in this way.
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
        """The source that config.json describes; what an older version left out is the default.

        Older versions read all image files as RGB.
        """
        fields: Any = {k: tuple(v) if isinstance(v, list) else v for k, v in content.items()}
        return cls(**({} if fields.get("dataset") else {"channels": 3}) | fields)

    def to_json(self) -> dict[str, Any]:
        """The fields that matter for this source, as config.json keeps them."""
        fields = dataclasses.asdict(self)
        for name in _LEFT_OUT:
            if fields[name] == getattr(DataSource, name):
                del fields[name]
        if self.is_copy:
            return {name: fields[name] for name in _OF_COPIES if name in fields}
        return {k: v for k, v in fields.items() if not k.startswith("dataset")}

    @property
    def end_columns(self) -> tuple[str, ...]:
        """The columns that say between what the targets lie, beside their own."""
        return (*self.upper_column, *self.event_column)

    def for_columns(self, columns: Collection[str]) -> "DataSource":
        """The same for a file with these columns: targets are exact where it has none of ends."""
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
        """Read the table for an encoder that sees images of `image_size` pixels.

        Decoded images are kept in the user's cache.
        `preprocessing` is that of the fitted model, for other data than those it was fitted on
        or, with `same_rows`, for these. `opened` is the file, if it has been read already.
        `side` is that of decoded images, if not as `stored_side` says, and `resample` how image
        files of a table are scaled.
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
        """A dataset with calibration rows, as `read_table` takes them from files."""
        split = take_calibration(
            table.split, table.y, table.names, share=self.calibration_share, group=table.group
        )
        return dataclasses.replace(table, split=split)

    def decided(self, table: Table) -> "DataSource":
        """The source as config.json keeps it, with what reading this table of it decided."""
        if self.is_copy:  # other files are evaluated by these names
            return dataclasses.replace(self, target=table.target_names)
        if "fit" in table.preprocessing:  # files that come later do not change it
            return dataclasses.replace(self, channels=table.preprocessing["channels"])
        return self


def stored_side(image_size: int, fit: str = "crop") -> int:
    """Side of decoded images: 8/7 of what the encoder sees, as the paper's 256 for 224.

    With fit "pad" or "stretch" it is what the encoder sees, so that `eval_view` cuts off nothing.
    """
    return round(image_size * 8 / 7) if fit == "crop" else image_size
