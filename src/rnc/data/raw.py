"""Read new data for a fitted model in any form: files, tables, arrays, pictures.

`read_inputs` detects the form. Every form ends in `apply_features`, `inputs_from_arrays`,
`ImageRows` or `pixels_of`, which prepare the data like the training data. Data that do not fit the
model raise.
"""

import glob
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
from numpy.typing import NDArray
from PIL import Image

from rnc.data import sources
from rnc.data.archive import read_npz, row_arrays
from rnc.data.csv_text import csv_names, read_csv
from rnc.data.errors import DataError
from rnc.data.features import apply_features, cells_of
from rnc.data.formats import CSV_SUFFIXES, suffix_of
from rnc.data.image_cache import Decoding
from rnc.data.in_memory import AnyFile, NamedBytes
from rnc.data.inputs import ImageRows, Inputs, inputs_from_arrays
from rnc.data.names import check_names
from rnc.data.numerals import read_decimals
from rnc.data.pictures import is_picture, pixels_of
from rnc.data.unseen import unseen_categories

_PLACE = "The data"
FILE_KINDS: dict[str, Literal["image", "volume"]] = {"image": "image", "volume": "volume"}
"""Kinds of data with one file per sample."""
_FORMS = {
    "table": "a DataFrame, rows (n, p), or a file of a table",
    "signal": "signals (n, c, l), or an .npz file of them",
    "volume": "files of scans, a folder, volumes (n, c, d, h, w) or a table of files",
    "image": "image files, a folder, pictures, whole numbers (n, c, h, w) or a table of files",
}


def read_inputs(
    data: Any,
    preprocessing: dict[str, Any],
    kind: str,
    *,
    images: str | Path | None = None,
    image_column: str = "auto",
    image_size: int = 224,
    skip_bad: bool = False,
    cache: str | Path | None = None,
    progress: bool = False,
) -> Inputs:
    """New data, prepared as the train rows of a Table were.

    Args:
        data: a file as `read_table` takes it, with or without targets. Or a DataFrame, a dict with
            a value for each column, or a list of such dicts. Or an array (n, p), (n, c, l),
            (n, c, h, w) of whole numbers from 0 to 255, or (n, c, d, h, w). For images and volumes
            also a file or a folder; for images also a Pillow image or an array (h, w, c). A list
            of files, folders, patterns such as "photos/*.jpg", or pictures is possible, too.
        preprocessing: that of the Table.
        kind: that of the Table.
        images: the folder that file names in a table are relative to; by default the folder of the
            table, and for a DataFrame the working directory.
        image_column: as for `read_table`.
        image_size: side of the images in pixels, as for `read_table`, if the preprocessing of an
            older version lacks it.
        skip_bad: leave out image files that cannot be used, instead of raising.
        cache: as for `read_table`.
        progress: show a bar while images are decoded.
    """
    decoding = Decoding(image_size, skip_bad, cache, progress)
    reader = InputReader(preprocessing, kind, images, image_column, decoding)
    if hasattr(data, "to_pandas") and hasattr(data, "columns"):  # a table of Arrow or Polars
        data = data.to_pandas()
    if isinstance(data, pd.Series | np.ndarray) and data.ndim == 1 and data.dtype.kind in "OUT":
        data = list(data)
    if _is_path(data) or isinstance(data, Image.Image | Mapping):
        data = [data]
    if not isinstance(data, list | tuple):
        return reader.frame(data) if isinstance(data, pd.DataFrame) else reader.array(data)
    if not data:
        raise DataError("There is nothing to predict: the list is empty.")
    if all(map(_is_path, data)):
        return reader.paths([path for source in data for path in expand(source)])
    if all(isinstance(row, Mapping) for row in data):
        return reader.frame(pd.DataFrame(list(data)))
    if kind == "image" and all(map(is_picture, data)):
        return reader.pictures(data)
    return reader.array(data)


def expand(source: str | os.PathLike[str]) -> list[Path]:
    """The files and folders that match a pattern, sorted by name; any other path as it is."""
    if Path(source).exists() or not glob.has_magic(str(source)):
        return [Path(source)]
    found = sorted(glob.glob(str(source), recursive=True))  # noqa: PTH207
    if not found:
        raise DataError(f"{source}: no file has a name like this. Check the path.")
    return [Path(path) for path in found]


def _is_path(item: Any) -> bool:
    return isinstance(item, str | os.PathLike)


@dataclass(frozen=True)
class InputReader:
    """Reads data of every form for one model."""

    preprocessing: dict[str, Any]
    kind: str
    images: str | Path | None
    image_column: str
    decoding: Decoding

    def paths(self, paths: Sequence[Path]) -> Inputs:
        """Files and folders in the given order; consecutive image files are read together."""
        parts: list[Inputs] = []
        for is_data, some in groupby(paths, sources.holds_rows):
            files = list(some)
            if not is_data and (kind := FILE_KINDS.get(self.kind)) is not None:
                alone = len(paths) == 1
                parts.append(self._decoded(ImageRows.listed(files, relative=alone, kind=kind)))
            else:
                parts += [self._data_file(file, is_alone=len(paths) == 1) for file in files]
        return parts[0] if len(parts) == 1 else joined_inputs(parts)

    def _data_file(self, file: Path, *, is_alone: bool) -> Inputs:
        known = sources.ARRAYS if self.kind == "signal" else sources.TABLES + sources.ARRAYS
        path = sources.existing(file, known)
        if path.suffix.lower() in sources.ARRAYS:
            inputs = self.archive(path)
        else:
            frame, columns = self.read_table(path)
            inputs = self.frame(frame, str(path), sources.folder_of(path), columns)
            if self.kind in FILE_KINDS:
                return inputs
        names = inputs.names if is_alone else np.char.add(f"{path}:", inputs.names)
        return inputs._replace(names=names)

    def archive(self, file: AnyFile) -> Inputs:
        """The inputs of an .npz file."""
        arrays = read_npz(file)
        x, names = arrays.pop("x"), arrays.pop("feature_names", None)
        inputs = self._array(x, str(file), names)
        given, unused = row_arrays(arrays, len(inputs.x))
        notes = inputs.notes + unused_notes(unused)
        return inputs._replace(columns=pd.DataFrame(given), notes=notes)

    def csv(self, file: NamedBytes) -> Inputs:
        """The inputs of a CSV in memory, the same as those of a file on disk."""
        cells = cells_of(self.preprocessing)
        others = self.others(csv_names(file))
        frame = read_csv(file, cells._replace(text=[*cells.text, *others]))
        frame = read_decimals(sources.named_columns(frame, str(file)), cells)
        return self.frame(frame, str(file), columns=frame[others])

    def read_table(self, path: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
        """A file of a table, and its columns that the model does not use, as text: 007 is no 7."""
        cells = cells_of(self.preprocessing)
        if suffix_of(path) in CSV_SUFFIXES:
            others = self.others(csv_names(path))
            frame = sources.read_frame(path, cells._replace(text=[*cells.text, *others]))
            return frame, frame[others]
        frame = sources.read_frame(path, cells)
        others = self.others(frame.columns)
        if not any(frame[name].dtype.kind in "iuf" for name in others):
            return frame, frame[others]
        return frame, sources.read_frame(path, cells._replace(text=[*cells.text, *others]))[others]

    def others(self, names: Iterable[str]) -> list[str]:
        """The columns that the model does not use."""
        used = {column["name"] for column in self.preprocessing.get("columns", [])}
        return [name for name in names if name not in used]

    def frame(
        self,
        frame: pd.DataFrame,
        place: str = "The DataFrame",
        folder: Path = Path(),
        columns: pd.DataFrame | None = None,
    ) -> Inputs:
        """The inputs of the rows of a table, or of the files that they name."""
        if self.kind == "signal":
            raise self._misfit("a table")
        if frame.empty:
            raise DataError(f"{place} has no rows, or no columns: {frame.shape}.")
        frame = frame.set_axis([str(name) for name in frame.columns], axis=1)
        check_names(frame.columns, place)
        frame = read_decimals(frame, cells_of(self.preprocessing))
        columns = frame[self.others(frame.columns)] if columns is None else columns
        if self.kind in FILE_KINDS:
            rows, used = self.image_rows(frame, place, folder)
            inputs = self._decoded(rows)
            skipped = {name for name, _ in inputs.skipped}
            kept = np.array([name not in skipped for name in rows.names])
            columns = columns.drop(columns=used)[kept]
        else:
            known = _with_known_categories(frame, self.preprocessing)
            x = apply_features(known, self.preprocessing, place)
            notes = unseen_categories(known, self.preprocessing)
            inputs = Inputs(x, frame.index.to_numpy().astype(str), notes=notes)
        return inputs._replace(columns=columns.reset_index(drop=True))

    def image_rows(self, frame: pd.DataFrame, place: str, folder: Path) -> tuple[ImageRows, str]:
        """The files that a table names, and the name of the column that holds their names."""
        folder = folder if self.images is None else Path(self.images)
        rows = ImageRows.of(frame, self.image_column, (), folder, place)
        if rows.kind != self.kind:
            raise self._misfit(f"files such as {rows.names[0]}")
        return rows, sources.image_column(frame, self.image_column, (), place)

    def _decoded(self, rows: ImageRows) -> Inputs:
        pixels, bad, _ = rows.load(self.decoding, self.preprocessing)
        names = np.array([name for i, name in enumerate(rows.names) if i not in bad], dtype=str)
        return Inputs(pixels, names, rows.skipped(bad))

    def pictures(self, pictures: Sequence[Any] | NDArray[Any]) -> Inputs:
        """The inputs of pictures in memory."""
        x = pixels_of(pictures, self.preprocessing, self.decoding.image_size, _PLACE)
        return Inputs(x, np.arange(len(x)).astype(str))

    def array(self, data: Any) -> Inputs:
        """The inputs of an array: rows, signals, pixels or volumes."""
        rows = self.kind == "table" and isinstance(data, list | tuple)
        try:  # a list of rows may hold texts beside numbers
            x = np.array(data, dtype=object) if rows else np.asarray(data)
        except (TypeError, ValueError) as error:
            raise self._misfit(f"{type(data).__name__} ({error})") from error
        if x.ndim == 0 or (x.dtype.kind not in "biuf" and self.kind != "table"):
            raise self._misfit(f"{type(data).__name__} of {x.dtype}" if x.ndim else repr(data)[:80])
        return self._array(x, _PLACE)

    def _array(
        self, x: NDArray[Any], place: str, feature_names: NDArray[Any] | None = None
    ) -> Inputs:
        if self.kind == "image" and x.ndim == 3:
            # One picture, unless it may be a stack of grey ones.
            if x.shape[0] == self.preprocessing.get("channels", 3) or x.shape[2] in (3, 4):
                return self.pictures([x])
            raise self._misfit(f"an array {x.shape}; one channel is x[:, None]")
        if self.kind == "table" and x.ndim == 2:
            known = [column["name"] for column in self.preprocessing["columns"]]
            if feature_names is not None or len(known) == x.shape[1]:
                frame = sources.as_columns(
                    x, known if feature_names is None else feature_names, place
                )
                return self.frame(frame, place)
        return inputs_from_arrays(x, self.preprocessing, self.kind, place=place)

    def _misfit(self, got: str) -> DataError:
        needed = _FORMS[self.kind]
        return DataError(
            f"The model was trained on data of kind {self.kind!r}: it needs {needed}; got {got}."
        )


def unused_notes(unused: Mapping[str, tuple[int, ...]]) -> tuple[str, ...]:
    """Notes for the user about arrays that cannot be columns, from their shapes by name."""
    return tuple(f"Array {name} {shape} has no value per row." for name, shape in unused.items())


def _with_known_categories(frame: pd.DataFrame, preprocessing: Mapping[str, Any]) -> pd.DataFrame:
    """The frame with texts of training for numbers in columns of categories: "007" for 7.

    pandas reads such texts as numbers if a column holds no others.
    """
    changed = {}
    for column in preprocessing["columns"]:
        name = column["name"]
        if column["type"] == "category" and name in frame and frame[name].dtype.kind in "iuf":
            texts = _texts_by_number(column["categories"])
            changed[name] = frame[name].map(
                lambda value, texts=texts: texts.get(value, str(value)), na_action="ignore"
            )
    return frame.assign(**changed)


def _texts_by_number(categories: Sequence[str]) -> dict[float, str]:
    """The categories that are numbers, by number."""
    texts: dict[float, str] = {}
    for text in sorted(categories, key=len, reverse=True):  # the shortest text comes last and wins
        with suppress(ValueError):
            texts[float(text)] = text
    return texts


def joined_inputs(parts: Sequence[Inputs]) -> Inputs:
    """Inputs from several files, one after the other."""
    shapes = {part.x.shape[1:] for part in parts}
    if len(shapes) > 1:
        raise DataError(f"All files must hold samples of one shape; got {sorted(shapes)}.")
    columns = [part.columns.astype(object).reindex(range(len(part.x))) for part in parts]
    return Inputs(
        np.concatenate([part.x for part in parts]),
        np.concatenate([part.names for part in parts]),
        tuple(row for part in parts for row in part.skipped),
        pd.concat(columns, ignore_index=True),
        tuple(dict.fromkeys(note for part in parts for note in part.notes)),
    )
