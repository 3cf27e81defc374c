"""Read data sets in common layouts (folders, shards, packed pictures) as one data frame.

    photos/metadata.csv, photos/train/metadata.csv     images beside a table of their file names
    data/train-00000-of-00002.parquet                  shards of a table, its pictures inside
    train/data-00000-of-00001.arrow                    what `save_to_disk` of Hugging Face writes
    shard-000.tar                                      WebDataset: 0001.jpg, 0001.json, ...

Pictures inside larger files become a column of names that `rnc.data.packed` reads. If no column is
called split, but the names of folders or files say train, validation or test, such a column is
added.
"""

import json
import re
from collections.abc import Callable, Iterable
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any

import pandas as pd  # type: ignore[import-untyped]

from rnc.data.errors import DataError, first_few
from rnc.data.images import IMAGE_SUFFIXES
from rnc.data.names import check_names, named_once
from rnc.data.packed import in_column, in_tar, mapped_arrow, member_of
from rnc.data.splits import split_word
from rnc.data.tar import TarMember, tar_members

_METADATA = ("metadata.csv", "metadata.jsonl", "metadata.parquet")
_SHARDS = (".tar", ".parquet", ".arrow")
_MAGIC = (b"\xff\xd8\xff", b"\x89PNG", b"GIF8", b"RIFF", b"II*\0", b"MM\0*", b"BM")
_PICTURE = "picture"  # the name of the column of pictures in tar shards

FileReader = Callable[[Path], pd.DataFrame]


def is_data_folder(folder: Path) -> bool:
    """Whether a folder holds a data set in one of the forms above."""
    return folder.is_dir() and bool(_tables(folder) or _packs(folder))


def is_image_folder(folder: Path) -> bool:
    """Whether a folder has tables of image names, such as metadata.csv."""
    return folder.is_dir() and bool(_tables(folder))


def names_images(
    images: str | Path | None,
    image_column: str,
    preprocessing: dict[str, Any] | None,
    path: Path,
    frame: pd.DataFrame,
) -> bool:
    """Whether rows name images: the user or the fitted model asks for it, or the layout tells."""
    asked = images is not None or image_column != "auto"
    asked = asked or _shows_pictures(path, frame)
    if preprocessing is None:
        return asked
    if asked and "columns" in preprocessing:
        raise DataError(
            "The model was trained on the columns of a table, not on images. Leave out --images "
            "(images=) and --image-column (image_column=)."
        )
    return "columns" not in preprocessing


def _shows_pictures(source: Path, frame: pd.DataFrame) -> bool:
    """Whether the layout of a source shows that its rows are pictures."""
    return is_image_folder(source) or bool(picture_columns(frame))


def _tables(folder: Path) -> list[Path]:
    """The tables of image names in a folder and in its direct subfolders."""
    places = [folder, *sorted(path for path in folder.iterdir() if _is_open_folder(path))]
    return [place / name for place in places for name in _METADATA if (place / name).is_file()]


def _packs(folder: Path) -> list[Path]:
    """The shards of the first type that a folder has, up to two levels below, sorted by name."""
    for suffix in _SHARDS:
        found = (path for depth in ("*", "*/*", "*/*/*") for path in folder.glob(depth + suffix))
        if shards := sorted(path for path in found if path.is_file() and _is_shard(path, folder)):
            return shards
    return []


def _is_shard(path: Path, folder: Path) -> bool:
    """Whether a file is part of the data: not hidden, and no cache of Hugging Face's `map`."""
    if path.suffix == ".arrow" and path.name.startswith("cache-"):
        return False
    return not any(part.startswith(".") for part in path.relative_to(folder).parts)


def _is_open_folder(path: Path) -> bool:
    return path.is_dir() and not path.name.startswith(".")


def read_folder(folder: Path, read: FileReader) -> pd.DataFrame:
    """All rows of a data folder. The names of files and pictures are relative to the folder."""
    tables = _tables(folder)
    files = tables or _packs(folder)
    frames = []
    for file in files:
        frame = read(file)
        inside = file.parent.relative_to(folder)
        for name in picture_columns(frame) if not tables else _file_names(frame, file):
            frame[name] = [_below(inside, value) for value in frame[name]]
        frames.append(_with_split(frame, file.relative_to(folder)))
    if any("split" in frame for frame in frames) and not all("split" in one for one in frames):
        lacking = first_few(
            [f"{f}" for f, one in zip(files, frames, strict=True) if "split" not in one]
        )
        raise DataError(
            f"{folder}: some files have a split (a column, or a name with train, validation or "
            f"test), and others do not ({lacking}). Give a split for all of them, or for none."
        )
    return pd.concat(frames, ignore_index=True)


def _below(folder: Path, name: Any) -> Any:
    return (folder / name).as_posix() if isinstance(name, str) else name


def _file_names(frame: pd.DataFrame, table: Path) -> list[str]:
    if "file_name" not in frame:
        raise DataError(
            f"{table} needs a column file_name, with the name of an image beside it in each row; "
            f"its columns: {first_few(frame.columns, 30)}."
        )
    return ["file_name"]


def _with_split(frame: pd.DataFrame, file: Path) -> pd.DataFrame:
    """The frame with a column split, if the name of the file or of its folders tells the split."""
    if "split" in frame:
        return frame
    words = [*file.parent.parts, re.split(r"[-_.]", file.name)[0]]
    found = [split for word in words if (split := split_word(word)) is not None]
    return frame.assign(split=found[-1]) if found else frame


def picture_columns(frame: pd.DataFrame) -> list[str]:
    """The columns that name pictures inside larger files."""
    return [
        name
        for name in frame
        if len(frame) and isinstance(frame[name].iloc[0], str) and member_of(frame[name].iloc[0])
    ]


# --------------------------------------------------------------------- columns of pictures


def read_arrow(source: Path, plain: FileReader) -> pd.DataFrame:
    """The rows of a Parquet or Arrow file; `plain` reads files without pictures inside."""
    import pyarrow as pa  # type: ignore[import-untyped]
    import pyarrow.parquet as pq  # type: ignore[import-untyped]

    if source.suffix.lower() == ".feather":  # holds data frames without pictures
        return plain(source)
    if source.suffix.lower() == ".parquet":
        schema, rows = pq.read_schema(source), pq.read_metadata(source).num_rows
        table = None
    else:
        try:
            table = mapped_arrow(str(source), source.stat().st_mtime_ns)
        except pa.ArrowException:  # an older format, or damaged
            return plain(source)
        schema, rows = table.schema, len(table)
    pictures = [field.name for field in schema if _holds_pictures(source, field, table)]
    if not pictures:
        return plain(source)
    check_names(schema.names, str(source))
    others = [name for name in schema.names if name not in pictures]
    cells = pq.read_table(source, columns=others) if table is None else table.select(others)
    frame = cells.to_pandas() if others else pd.DataFrame(index=pd.RangeIndex(rows))
    for name in pictures:
        frame[name] = [in_column(source.name, name, row) for row in range(rows)]
    return frame[list(schema.names)]


def _holds_pictures(source: Path, field: Any, table: Any) -> bool:
    """Whether a column has pictures: a struct with bytes, or bytes that begin like a picture."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    binary = (pa.types.is_binary, pa.types.is_large_binary)
    if pa.types.is_struct(field.type):
        names = [field.type.field(i).name for i in range(field.type.num_fields)]
        if "bytes" not in names:
            return False
        kind = field.type.field(names.index("bytes")).type
        return any(check(kind) for check in binary)
    if not any(check(field.type) for check in binary):
        return False
    if table is None:
        with pq.ParquetFile(source) as file:
            return _begins_with_picture(file.iter_batches(16, columns=[field.name]))
    return _begins_with_picture(table.select([field.name]).to_batches())


def _begins_with_picture(batches: Iterable[Any]) -> bool:
    """Whether the first non-empty cell of a column begins with the magic bytes of a picture."""
    cells = (cell for batch in batches for cell in batch.column(0) if cell.is_valid)
    first = next(cells, None)
    return first is not None and first.as_py().startswith(_MAGIC)


# ------------------------------------------------------------------------------ WebDataset


def read_tar(source: Path) -> pd.DataFrame:
    """The samples of a WebDataset shard. Files with the same name up to the first dot are a sample.

    Each sample needs one picture. The keys of its .json become columns. Any other small text, such
    as .cls or .txt, becomes a column that is named after its suffix.
    """
    samples: dict[str, dict[str, Any]] = {}
    try:
        with source.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as content:
            for member in tar_members(content):
                _take(samples, source, content, member)
    except DataError:
        raise
    except (OSError, ValueError) as error:
        raise DataError(
            f"{source} cannot be read as a tar file ({error}). Is it whole, and not compressed?"
        ) from error
    if not samples:
        raise DataError(f"{source} holds no samples.")
    lacking = [key for key, row in samples.items() if _PICTURE not in row]
    if lacking:
        raise DataError(
            f"{source}: {len(lacking)} of {len(samples)} samples have no picture "
            f"({first_few(lacking)}); expected KEY.jpg, KEY.png or the like beside KEY.json."
        )
    frame = pd.DataFrame(list(samples.values()))
    return frame.apply(_numbers_of_texts)


def _take(
    samples: dict[str, dict[str, Any]], source: Path, archive: mmap, member: TarMember
) -> None:
    folder, _, file = member.name.rpartition("/")
    stem, _, suffix = file.partition(".")
    if not stem:  # a hidden file
        return
    key = f"{folder}/{stem}" if folder else stem
    row = samples.setdefault(key, {"key": key})
    if f".{suffix.lower().rpartition('.')[2]}" in IMAGE_SUFFIXES:
        if _PICTURE in row:
            raise DataError(f"{source}: sample {key} has two pictures; expected one.")
        row[_PICTURE] = in_tar(source.name, member.offset, member.size, member.name)
        return
    content = archive[member.offset : member.offset + member.size]
    for name, value in _columns(suffix.lower(), content, f"{source}: {member.name}"):
        if name in row:
            raise DataError(f"{source}: sample {key} has {name} twice.")
        row[name] = value


def _columns(suffix: str, content: bytes, place: str) -> Iterable[tuple[str, Any]]:
    """Names and values of the columns from a file of a sample; none for large or binary files."""
    if suffix == "json":
        try:
            found = json.loads(content, object_pairs_hook=lambda pairs: named_once(pairs, place))
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise DataError(f"{place} is no JSON ({error}).") from error
        return found.items() if isinstance(found, dict) else [("json", found)]
    try:
        text = content.decode() if len(content) <= 1000 else None
    except UnicodeDecodeError:
        text = None
    return [] if text is None else [(suffix, text.strip())]


def _numbers_of_texts(values: pd.Series) -> pd.Series:
    """The column as numbers if all its texts are numbers, as in .cls files; else unchanged."""
    if values.dtype.kind != "O" or values.name == _PICTURE:
        return values
    try:
        return pd.to_numeric(values)
    except (ValueError, TypeError):
        return values
