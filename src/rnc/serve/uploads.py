"""Uploaded bytes -> rows for the model. Nothing is written, and no path is ever opened.

A name of an upload is a label in messages and replies, nothing more. A table is read for a model of
tables only: for a model of photos, its cells would name files, and this module opens none.
What an upload would cost is found out from its header, before it is unpacked.
"""

import csv
import io
import json
import re
import zipfile
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
from PIL import Image, UnidentifiedImageError

from rnc.data.csv_text import open_text, separator_of
from rnc.data.errors import DataError
from rnc.data.images import readable_formats
from rnc.data.in_memory import NamedBytes
from rnc.data.inputs import Inputs, Skipped
from rnc.data.names import named_once
from rnc.data.raw import InputReader, joined_inputs
from rnc.serve.limits import Refused, ServeLimits, invalid, too_large

# Without formats that Pillow reads by other programs, or that nobody takes photos in.
_PHOTOS = {"JPEG", "MPO", "PNG", "WEBP", "GIF", "BMP", "TIFF", "AVIF", "JPEG2000", "PPM"}
_TEXT_TABLES = (".csv", ".tsv", ".txt")
_MOST_MEMBERS = 1000  # of an .npz file
_DIRECTORY_ENTRY = b"PK\x01\x02"
_MOST_COLUMNS = 1_000  # of a table, unless the model has more: pandas takes time for each
_SURROGATE = re.compile(r"\\u[dD]")
_ROW_WORDS = '{"rows": [{"area": 81.5, "town": "Oslo"}, ...]}, or lists of numbers'


class UploadReader(NamedTuple):
    """Reads what clients send, for one model."""

    reader: InputReader
    limits: ServeLimits

    @property
    def kind(self) -> str:
        """Of the data that the model was trained on."""
        return self.reader.kind

    def files(self, files: Sequence[NamedBytes]) -> Inputs:
        """Uploaded files; photos that cannot be used are skipped, if others can."""
        if not files:
            raise invalid(f"There is no file in the request. Send {self.wanted} as field `files`.")
        if len(files) > self.limits.files:
            raise too_large("The request", len(files), self.limits.files, "files")
        arrays = [file for file in files if file.suffix.lower() == ".npz"]
        if self.kind == "image" and not arrays:
            return self._photos(files)
        if arrays and len(arrays) < len(files) and self.kind == "image":
            raise invalid("Send photos or .npz files, not both in one request.")
        parts = [self._data(file) for file in files]
        if len(parts) > 1:
            named = zip(parts, files, strict=True)
            parts = [p._replace(names=np.char.add(f"{f}:", p.names)) for p, f in named]
        self._check_rows(sum(len(part.x) for part in parts))
        return parts[0] if len(parts) == 1 else joined_inputs(parts)

    @property
    def wanted(self) -> str:
        """What kind of files the model takes."""
        words = {"image": "photos", "table": "a CSV (.csv, .tsv, .txt) or an .npz file"}
        return words.get(self.kind, "an .npz file with an array x")

    def rows(self, body: bytes) -> Inputs:
        """Rows of a JSON body."""
        if len(body) > self.limits.json_bytes:
            got, most = len(body) / 2**20, self.limits.json_bytes / 2**20
            raise too_large("The JSON", got, most, "MiB")
        rows = _parsed_rows(body)
        self._check_rows(len(rows))
        if all(isinstance(row, dict) for row in rows):
            return self._objects(rows)
        if not all(isinstance(row, list) for row in rows):
            raise invalid(f"Rows must be objects, or lists of numbers: {_ROW_WORDS}.")
        return self.reader.array(rows)

    def _objects(self, rows: list[dict[str, Any]]) -> Inputs:
        if self.kind != "table":
            raise invalid(
                f"The model was trained on data of kind {self.kind!r}; rows with names are for "
                f"tables. Send {self.wanted}."
            )
        names = dict.fromkeys(name for row in rows for name in row)
        self._check_cells("The JSON", len(rows), len(names))
        return self.reader.frame(pd.DataFrame(rows), "The JSON")

    # ---------------------------------------------------------------------------------- files

    def _photos(self, files: Sequence[NamedBytes]) -> Inputs:
        good: list[Inputs] = []
        bad: list[Skipped] = []
        for file in files:
            try:
                made = self._photo(file)
            except Refused:
                if len(files) == 1:
                    raise
                bad.append(Skipped(file.name, self._too_many_pixels))
            except _BadPhotoError as error:
                bad.append(Skipped(file.name, str(error)))
            else:
                good.append(made._replace(names=np.array([file.name])))
        if not good:
            reasons = "; ".join(f"{name}: {reason}" for name, reason in bad[:10])
            raise invalid(f"No file of {len(files)} is a photo that can be used: {reasons}.")
        return joined_inputs(good)._replace(skipped=tuple(bad))

    def _photo(self, file: NamedBytes) -> Inputs:
        """One photo as the model sees its file on disk."""
        try:
            with Image.open(io.BytesIO(file.content), formats=_formats()) as image:
                pixels = image.width * image.height
                if pixels > self.limits.pixels:
                    most = self.limits.megapixels
                    raise too_large(f"Photo {file}", pixels / 1e6, most, "megapixels")
                if "shape" not in self.reader.preprocessing:
                    side = self.reader.preprocessing.get("side", self.reader.decoding.image_size)
                    image.draft(None, (2 * side, 2 * side))  # as for a file on disk
                return self.reader.pictures([image])
        except Refused:
            raise
        except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
            raise Refused(413, "too_large", f"Photo {file}: {self._too_many_pixels}") from error
        except UnidentifiedImageError as error:
            reason = "not an image" if file.content else "an empty file"
            if file.suffix.lower() in _TEXT_TABLES:
                reason = "a table; this server opens no files, so send the photos themselves"
            raise _BadPhotoError(reason) from error
        except DataError as error:
            reason = str(error).removeprefix("The data: picture 0 ").rstrip(".")
            raise _BadPhotoError(reason) from error
        except Exception as error:  # what a broken file makes Pillow raise is not limited to a few
            raise _BadPhotoError(str(error) or type(error).__name__) from error

    @property
    def _too_many_pixels(self) -> str:
        return f"more than {self.limits.megapixels:g} megapixels, refused"

    def _data(self, file: NamedBytes) -> Inputs:
        suffix = file.suffix.lower()
        if suffix == ".npz":
            self._check_archive(file)
            return self.reader.archive(file)
        if self.kind != "table" or suffix not in _TEXT_TABLES:
            raise invalid(
                f"{file}: this model takes {self.wanted}. Tables that name files are not read: "
                "this server opens no files."
            )
        self._check_table(file)
        return self.reader.csv(file)

    def _check_table(self, file: NamedBytes) -> None:
        """Raise for a table that would take too much memory, by its header and its lines."""
        lines = file.content.count(b"\n") + file.content.count(b"\r") + 1
        with open_text(file) as text:
            try:
                fields = len(next(csv.reader(text, delimiter=separator_of(file)), []))
            except csv.Error as error:
                raise invalid(f"{file}: its first row cannot be read ({error}).") from error
        self._check_cells(str(file), lines, fields)

    def _check_archive(self, file: NamedBytes) -> None:
        """Raise for arrays that would take too much memory, by the headers in the archive."""
        if file.content.count(_DIRECTORY_ENTRY) > _MOST_MEMBERS:
            raise too_large(str(file), file.content.count(_DIRECTORY_ENTRY), _MOST_MEMBERS, "parts")
        try:
            with zipfile.ZipFile(io.BytesIO(file.content)) as archive:
                unpacked = sum(member.file_size for member in archive.infolist())
                sizes = {m.filename: _array_size(archive, m) for m in archive.infolist()}
        except Refused:
            raise
        except Exception as error:  # zipfile, zlib and numpy have many types for a damaged file
            raise invalid(f"{file} cannot be read as NPZ ({error}).") from error
        largest = max([unpacked, *(size.bytes for size in sizes.values())])
        if largest > self.limits.body_bytes:
            raise too_large(f"{file}, unpacked,", largest / 2**20, self.limits.megabytes, "MiB")
        self._check_rows(sizes["x.npy"].rows if "x.npy" in sizes else 0)

    # --------------------------------------------------------------------------------- limits

    def _check_rows(self, rows: int) -> None:
        if rows > self.limits.rows:
            raise too_large("The request", rows, self.limits.rows, "rows")

    def _check_cells(self, what: str, rows: int, columns: int) -> None:
        most = max(_MOST_COLUMNS, 2 * len(self.reader.preprocessing["columns"]))
        if columns > most:
            raise too_large(what, columns, most, "columns")
        if (cells := rows * columns) > self.limits.cells:
            raise too_large(what, cells, self.limits.cells, "cells")


def _formats() -> list[str]:
    return [name for name in readable_formats() if name in _PHOTOS]


class _BadPhotoError(Exception):
    """A photo that cannot be used; the message says why."""


class _ArraySize(NamedTuple):
    rows: int
    bytes: int


def _array_size(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> _ArraySize:
    """Rows and bytes of an array in an archive, as its header says; zero of what is no array."""
    with archive.open(member) as file:
        try:
            version = np.lib.format.read_magic(file)
        except ValueError:
            return _ArraySize(0, 0)
        if version not in _HEADERS:
            raise invalid(f"{member.filename} has version {version} of the format NPY.")
        shape, _, dtype = _HEADERS[version](file)
    size = 1
    for side in shape:
        size *= int(side)
    return _ArraySize(int(shape[0]) if shape else 0, size * dtype.itemsize)


_HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


def _parsed_rows(body: bytes) -> list[Any]:
    """The rows of a JSON body; strict, as NaN and two values for one name are mistakes."""
    try:
        text = body.decode(json.detect_encoding(body))
        content = json.loads(
            text,
            object_pairs_hook=lambda pairs: named_once(pairs, "The JSON"),
            parse_constant=_no_constant,
        )
        if _SURROGATE.search(text):  # half of a pair is no text, and nothing could be done with it
            json.dumps(content, ensure_ascii=False).encode()
    except Refused:
        raise
    except DataError as error:
        raise invalid(str(error)) from error
    except (ValueError, RecursionError) as error:  # also no UTF-8, and numbers without end
        words = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise invalid(f"The body is no JSON ({words}). Send {_ROW_WORDS}.") from error
    if not isinstance(content, dict) or content.keys() != {"rows"}:
        raise invalid(f"The JSON must have the one entry `rows`: {_ROW_WORDS}.")
    rows = content["rows"]
    if not isinstance(rows, list) or not rows:
        raise invalid(f"`rows` must be a list that is not empty: {_ROW_WORDS}.")
    return rows


def _no_constant(name: str) -> None:
    raise invalid(f"The JSON holds {name}; JSON has no such number. A gap is null.")
