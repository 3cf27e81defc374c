"""Turn labelled data of any kind into a Table: every row checked, split and ready for a network.

    read_table         from a file: a table (with or without images) or an .npz file
    table_from_arrays  from numpy arrays or a DataFrame

Both turn a source into named columns, one row per sample, and into an array x if the inputs are
not columns. Then they check targets, split and inputs, in this order.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
from numpy.typing import NDArray

from rnc.config.sizes import Sizes
from rnc.data import sources
from rnc.data.array_labels import label_frame
from rnc.data.errors import DataError
from rnc.data.features import apply_features, choose_array_columns, choose_columns, fit_features
from rnc.data.fingerprint import digest_of, fingerprint_of
from rnc.data.image_cache import Decoding
from rnc.data.inputs import ImageRows, Skipped, prepared_arrays
from rnc.data.labels import ColumnRoles, LabelColumns, find_columns, several
from rnc.data.names import NumberedRows
from rnc.data.numerals import check_disguised
from rnc.data.opened import OpenedData, columns_frame, open_data
from rnc.data.originals import gap_cells, kept_originals
from rnc.data.partial_labels import Unlabelled, label_reader
from rnc.data.shards import names_images
from rnc.data.splits import ALL_SPLITS, PARTIAL, check_filled, check_shares
from rnc.data.unseen import unseen_categories

Kind = Literal["image", "signal", "table", "volume"]


@dataclass(frozen=True, eq=False)
class Table:
    """n labelled samples. Treat the arrays as read-only: they may be shared or mapped from disk."""

    x: NDArray[Any]
    """(n, c, h, w) uint8, (n, c, d, h, w) uint8 or floats, (n, c, l) float32, (n, p) float32."""
    y: NDArray[np.float64]
    """Targets (n, t)."""
    target_names: tuple[str, ...]
    kind: Kind
    split: NDArray[np.str_]
    """"train", "val", "test", "calibration", "partial" or "test-part" for every row."""
    names: NDArray[np.str_] | NumberedRows
    """An identifier of each row: its file name or number."""
    subgroup: dict[str, NDArray[Any]] = field(default_factory=dict)
    """Further columns, for scores per value and for colours in figures."""
    preprocessing: dict[str, Any] = field(default_factory=dict)
    """What `read_inputs` needs to prepare new data, as JSON types."""
    skipped: tuple[Skipped, ...] = ()
    """Rows that were left out, with the reasons."""
    raw: pd.DataFrame | None = None
    """The feature columns before preprocessing; None for other kinds. The index holds positions of
    rows. Large tables lack their train rows: see `rnc.data.originals`."""
    notes: tuple[str, ...] = ()
    """Notes for the user about how the data were read."""
    group: NDArray[Any] | None = None
    """The group of each row, such as a person; None if every row stands alone."""
    gap_cells: dict[str, list[str]] = field(default_factory=dict)
    """Texts that were read as gaps and where they are, by column of numbers or dates."""
    weight: NDArray[np.float64] | None = None
    """The weight of each row, (n,), at least 0; None if all count equally."""
    ends: NDArray[np.float64] | None = None
    """Lower and upper ends of the targets, (n, t, 2), equal for exact ones. Others are NaN in y, in
    rows of the splits "partial" and "test-part". None if all targets are exact."""

    def __post_init__(self) -> None:
        columns = {"y": self.y, "split": self.split, "names": self.names, **self.subgroup}
        columns |= {} if self.group is None else {"group": self.group}
        columns |= {} if self.weight is None else {"weight": self.weight}
        columns |= {} if self.ends is None else {"ends": self.ends}
        for name, values in columns.items():
            if len(values) != len(self.x):
                raise DataError(
                    f"A Table needs the same number of rows in x and {name}; got {len(self.x)} and "
                    f"{len(values)}."
                )
        if self.y.ndim != 2 or self.y.shape[1] != len(self.target_names):
            raise DataError(
                f"A Table needs y (n, t) and t target names; got {self.y.shape} and "
                f"{self.target_names}."
            )

    def __len__(self) -> int:
        return len(self.x)

    def rows(self, split: str) -> NDArray[np.int64]:
        """Positions of the rows of one split."""
        if split not in ALL_SPLITS:
            raise DataError(f"split must be one of {', '.join(ALL_SPLITS)}; got {split!r}.")
        return np.flatnonzero(self.split == split)

    @property
    def sizes(self) -> Sizes:
        """The numbers of training rows: with exact targets, for an encoder, and known in part."""
        labelled = len(self.rows("train"))
        return Sizes(labelled, labelled + len(self.rows(PARTIAL)), len(self.ranged_rows))

    @property
    def ranged_rows(self) -> NDArray[np.int64]:
        """Positions of the training rows with an interval or a censored target, ascending."""
        if self.ends is None:
            return np.flatnonzero(np.zeros(0))
        rows = self.rows(PARTIAL)
        return rows[np.isfinite(self.ends[rows]).any(axis=(1, 2))]

    @cached_property
    def digest(self) -> str:
        """A hash that names run folders and studies; see `rnc.data.fingerprint`."""
        return digest_of(self)

    @cached_property
    def fingerprint(self) -> dict[str, Any]:
        """Hashes of all inputs, targets, names, splits and subgroups, as a run keeps them."""
        return fingerprint_of(self)


def read_table(
    source: "str | Path | pd.DataFrame | OpenedData",
    *,
    target: str | Sequence[str] = (),
    images: str | Path | None = None,
    image_column: str = "auto",
    feature_columns: Sequence[str] | None = None,
    exclude_columns: Sequence[str] = (),
    split_column: str | None = None,
    group_column: str | None = None,
    subgroup_columns: Sequence[str] = (),
    weight_column: str | None = None,
    split_seed: int = 0,
    fractions: Sequence[float] | None = None,
    fold: str | None = None,
    calibration_share: float = 0.0,
    decimal: str | None = None,
    drop_missing: bool = False,
    unlabelled: Unlabelled | None = None,
    partial_labels: bool = False,
    upper_column: str | Sequence[str] = (),
    event_column: str | Sequence[str] = (),
    skip_bad: bool = False,
    image_size: int = 224,
    fit: str = "crop",
    channels: int | None = None,
    resample: str = "bicubic",
    volume_size: int = 64,
    intensity: str = "keep",
    cache: str | Path | None = None,
    progress: bool = False,
    preprocessing: dict[str, Any] | None = None,
    same_rows: bool = False,
) -> Table:
    """Read labelled data from a file.

    An .npz file holds x, y (n,) or (n, t), and may hold group, split, weight, target_names,
    feature_names and further arrays of n values, each a column with its name. The columns of y are
    called as target_names says; by default y, or y0, y1, ... if there are several.

    Args:
        source: a .csv, .tsv or .txt file, the first two also as .gz; .parquet, .feather, .arrow,
            .json, .jsonl, .xlsx (extra: excel) or .npz, a DataFrame, or what `open_data` returns.
        target: one or several columns to predict; by default the y of an .npz file.
        images: the folder of the images, or of the scans (`rnc.data.volumes`), that a table names.
        image_column: the column of file names; "auto" takes the first whose values look like image
            files, or that is called image, file or path. If a column is named and `images` is
            left out, the files are looked for beside the table.
        feature_columns: columns to predict from; by default all that have no other use. How each is
            encoded is in docs/data.md. An unusable column raises if it is named here; by default it
            is left out and listed in `Table.preprocessing["left_out"]`.
        exclude_columns: columns not to predict from.
        split_column: the column of train, val, test; None takes one called "split" that holds such
            words. "none" always makes a seeded split.
        group_column: rows that share a value (person, patient, camera) stay in one split; None
            takes the array "group" of an .npz file.
        subgroup_columns: columns to keep for scores per value. They stay features, too, unless
            `feature_columns` leaves them out.
        weight_column: the weight of each row, at least 0, in losses, model choice and scores; never
            a feature. None takes the array "weight" of an .npz file.
        split_seed: seed of the split.
        fractions: shares of train, val and test in a seeded split; 0.7, 0.1 and 0.2 by default.
        fold: "2/5" tests on the second of five folds instead; see `rnc.data.folds`.
        calibration_share: share of the training rows that is set aside to calibrate intervals.
        decimal: the decimal sign of numbers that are texts, "," or "."; inferred by default.
        drop_missing: leave out rows without a target, instead of raising.
        unlabelled: "use" trains encoders on rows without a target, "drop" leaves them out.
        partial_labels: cells of targets may be >90, <5 or 20-29, and are used in training, too.
        upper_column: upper ends of the targets, whose own columns then have the lower ones; an
            empty cell is an open end.
        event_column: for each target, a time: 1 if the event was seen then, 0 if it was not seen
            until then. docs/labels.md explains these last four.
        skip_bad: leave out images that cannot be used, instead of raising.
        image_size: side of the square that every image file becomes, in pixels. Arrays keep theirs.
        fit: how an image file becomes a square: "crop" keeps its middle, "pad" adds mid-grey bars,
            "stretch" changes its proportions.
        channels: 3 makes image files RGB, 1 grey; None makes them grey if all of them are.
        resample: bicubic or bilinear: how image files are scaled.
        volume_size: side of the cube that every volume file becomes, in voxels.
        intensity: for volume files: "keep" or "scan", which gives each scan mean 0 and deviation 1.
        cache: folder for decoded images; None keeps them in memory.
        progress: show a bar while a large CSV is read and while images are decoded.
        preprocessing: that of a fitted Table, to evaluate a model on other data: nothing is
            learned from the rows, and all are "test" unless `split_column` is given.
        same_rows: the preprocessing was learned from these rows, which get the same split as then.
    """
    check_shares(fractions)
    opened = source if isinstance(source, OpenedData) else None
    if opened is None:
        opened = open_data(source, preprocessing or {}, decimal, progress=progress)
    path, place, frame, archive = opened
    x: NDArray[Any] | pd.DataFrame | ImageRows | None = None if archive is None else archive.x
    targets = several(target) or (() if archive is None else archive.targets)
    fitted = preprocessing is not None and not same_rows
    if fitted and split_column is None:
        split_column = "none"
    subgroup, of_ends = tuple(subgroup_columns), (several(upper_column), several(event_column))
    asked = ColumnRoles(targets, split_column, group_column, subgroup, weight_column, *of_ends)
    roles = find_columns(frame, asked, place, arrays=x is not None)
    if x is None and names_images(images, image_column, preprocessing, path, frame):
        folder = sources.folder_of(path) if images is None else Path(images)
        x = ImageRows.of(frame, image_column, roles.reserved(), folder, place)
    left_out, asked_for = None, (feature_columns, exclude_columns)
    if preprocessing is not None:  # a fitted model has chosen its columns already
        x = frame if x is None else x
    elif x is None:
        names, left_out = choose_columns(frame, *asked_for, roles.reserved(), place)
        x = frame[names]
    elif isinstance(x, pd.DataFrame):
        x = x[choose_array_columns(x, *asked_for, place)]
    read = label_reader(roles, partial_labels, unlabelled, drop_missing, decimal)
    labels, usable = read(
        frame,
        roles,
        place,
        names=x.names if isinstance(x, ImageRows) else None,
        fractions=fractions,
        split_seed=split_seed,
        fold=fold,
        calibration_share=calibration_share,
        fitted=fitted,
    )
    x = x if usable.all() else x[usable]
    if isinstance(x, ImageRows):
        of_images = (image_size, skip_bad, cache, progress, fit, channels, resample)
        decoding = Decoding(*of_images, volume_size, intensity)
        decoding, notes = x.survey(decoding) if preprocessing is None else (decoding, ())
        return decoded_table(x, labels, decoding, preprocessing, notes)
    table = _prepared(x, labels, preprocessing, place, left_out, decimal)
    used = (*roles.reserved(), *roles.subgroup)
    return table if archive is None else replace(table, notes=table.notes + archive.notes(used))


def table_from_arrays(
    x: NDArray[Any] | pd.DataFrame,
    y: NDArray[Any] | pd.DataFrame | pd.Series | Sequence[Any],
    *,
    target_names: Sequence[str] | None = None,
    feature_names: Sequence[str] | None = None,
    names: Sequence[Any] | NDArray[Any] | None = None,
    split: Sequence[str] | NDArray[Any] | None = None,
    group: Sequence[Any] | NDArray[Any] | None = None,
    subgroup: Mapping[str, NDArray[Any]] | None = None,
    weight: Sequence[float] | NDArray[Any] | None = None,
    split_seed: int = 0,
    fractions: Sequence[float] | None = None,
    fold: str | None = None,
    calibration_share: float = 0.0,
    drop_missing: bool = False,
    unlabelled: Unlabelled | None = None,
    partial_labels: bool = False,
    upper: NDArray[Any] | pd.DataFrame | pd.Series | Sequence[Any] | None = None,
    event: NDArray[Any] | pd.DataFrame | pd.Series | Sequence[Any] | None = None,
) -> Table:
    """Make a Table from arrays. Where `read_table` takes names of columns, this takes values.

    Args:
        x: columns (n, p) or a DataFrame, signals (n, c, l), volumes (n, c, d, h, w), or images
            (n, c, h, w) of whole numbers from 0 to 255.
        y: targets (n,) or (n, t).
        target_names: names of the t targets; y, or y0, y1, ..., by default.
        feature_names: names of the p columns; x0, x1, ... by default.
        names: an identifier of each row; its number by default.
        split: train, val, test or calibration for each row; by default a seeded split is made.
        group: rows that share a value stay in one split.
        subgroup: further columns, for scores per value.
        weight: the weight of each row, at least 0.
        split_seed: seed of the split.
        fractions: as for `read_table`; a share may be 0.
        fold: as for `read_table`.
        calibration_share: as for `read_table`.
        drop_missing: leave out rows without a target, instead of raising.
        unlabelled: as for `read_table`.
        partial_labels: as for `read_table`.
        upper: upper ends of the targets, in the shape of y, which then has the lower ones.
        event: whether the event of each time was seen, in the shape of y.

    >>> table = table_from_arrays(np.random.rand(50, 3), np.arange(50))
    >>> table.kind, table.x.shape, table.y.shape, len(table.rows("train"))
    ('table', (50, 3), (50, 1), 35)
    """
    place = "arrays"
    x = x if isinstance(x, pd.DataFrame) else np.asarray(x)
    x = sources.as_columns(x, feature_names, place)
    frame, roles = label_frame(
        y,
        len(x),
        place,
        target_names=target_names,
        upper=upper,
        event=event,
        subgroup=subgroup,
        split=split,
        group=group,
        weight=weight,
    )
    if names is not None:
        frame.index = pd.Index(columns_frame({"names": names}, len(x), place)["names"].astype(str))
    read = label_reader(roles, partial_labels, unlabelled, drop_missing)
    labels, usable = read(
        frame,
        roles,
        place,
        fractions=fractions,
        split_seed=split_seed,
        fold=fold,
        calibration_share=calibration_share,
    )
    return _prepared(x if usable.all() else x[usable], labels, None, place)


def decoded_table(
    rows: ImageRows,
    labels: LabelColumns,
    decoding: Decoding,
    preprocessing: dict[str, Any] | None = None,
    notes: tuple[str, ...] = (),
) -> Table:
    """The table of rows that name a file each, without those that cannot be read."""
    pixels, bad, digests = rows.load(decoding, preprocessing)
    if preprocessing is None:
        notes += rows.copies_across(labels.split, bad, digests) + rows.units_note(pixels, decoding)
    labels = labels.without(bad, rows.skipped(bad))
    if bad and preprocessing is None:
        check_filled(labels.split, f"{rows.place} without the {len(bad)} bad {rows.kind}s")
    prepared = rows.preprocessing(decoding) if preprocessing is None else preprocessing
    return Table(pixels, kind=rows.kind, preprocessing=prepared, notes=notes, **vars(labels))


def _prepared(
    x: NDArray[Any] | pd.DataFrame,
    labels: LabelColumns,
    preprocessing: dict[str, Any] | None,
    place: str,
    left_out: dict[str, str] | None = None,
    decimal: str | None = None,
) -> Table:
    """The table of inputs that are columns, signals, volumes or images in memory."""
    kind: Kind = "table" if isinstance(x, pd.DataFrame) else cast(Kind, sources.kind_of(x, place))
    raw = x if isinstance(x, pd.DataFrame) else None
    notes: tuple[str, ...] = ()
    if preprocessing is not None:
        notes = () if raw is None else unseen_categories(raw, preprocessing)
        x = prepared_arrays(x, preprocessing, kind, place=place)
    elif kind == "table":
        notes = check_disguised(x, place)
        train = np.flatnonzero(labels.split == "train")
        preprocessing = fit_features(x, train, place, left_out=left_out)
        preprocessing |= {} if decimal is None else {"decimal": decimal}
        x = apply_features(x, preprocessing, place)
    else:
        x = sources.AS_ARRAYS[kind](x, place)
        preprocessing = {"channels": int(x.shape[1])}
        if kind != "signal":
            preprocessing["shape"] = list(x.shape[2:])
    known: dict[str, Any] = {}
    if raw is not None:
        known["gap_cells"] = gap_cells(raw, preprocessing)
        known["raw"] = kept_originals(raw, preprocessing, labels.split)
    return Table(x, kind=kind, preprocessing=preprocessing, notes=notes, **known, **vars(labels))
