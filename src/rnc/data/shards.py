"""Data sets as others keep them: folders, shards and packed pictures -> one data frame.

    photos/metadata.csv, photos/train/metadata.csv     images beside a table of their file names
    data/train-00000-of-00002.parquet                  shards of a table, its pictures inside
    train/data-00000-of-00001.arrow                    what `save_to_disk` of Hugging Face writes
    shard-000.tar                                      WebDataset: 0001.jpg, 0001.json, ...

Pictures inside larger files become a column of names that `rnc.data.packed` reads. Where the
names of folders or files say train, validation or test, and no column is called split, one is
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
_PICTURE = "picture"  # the column of tar shards

FileReader = Callable[[Path], pd.DataFrame]


def is_data_folder(folder: Path) -> bool:
    """Whether a folder holds a data set in one of the forms above."""
    return folder.is_dir() and bool(_tables(folder) or _packs(folder))


def is_image_folder(folder: Path) -> bool:
    """Whether a folder holds image files, and tables of their names."""
    return folder.is_dir() and bool(_tables(folder))


def names_pictures(source: Path, frame: pd.DataFrame) -> bool:
    """Whether the rows of a source are pictures by its form, whatever is asked for."""
    return is_image_folder(source) or bool(picture_columns(frame))


def _tables(folder: Path) -> list[Path]:
    """Tables of image names in a folder, or in the folders of its splits."""
    places = [folder, *sorted(path for path in folder.iterdir() if _is_open_folder(path))]
    return [place / name for place in places for name in _METADATA if (place / name).is_file()]


def _packs(folder: Path) -> list[Path]:
    """Shards of the first type that there is any of, up to two folders down, by name."""
    for suffix in _SHARDS:
        found = (path for depth in ("*", "*/*", "*/*/*") for path in folder.glob(depth + suffix))
        if shards := sorted(path for path in found if path.is_file() and _is_shard(path, folder)):
            return shards
    return []


def _is_shard(path: Path, folder: Path) -> bool:
    """Whether a file is part of the data: not hidden, and not what `map` of Hugging Face keeps."""
    if path.suffix == ".arrow" and path.name.startswith("cache-"):
        return False
    return not any(part.startswith(".") for part in path.relative_to(folder).parts)


def _is_open_folder(path: Path) -> bool:
    return path.is_dir() and not path.name.startswith(".")


def read_folder(folder: Path, read: FileReader) -> pd.DataFrame:
    """All rows of a folder; names of files and pictures are relative to it."""
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
            f"{folder}: some names say train, validation or test, and others do not ({lacking}). "
            "Let all of them say it, or none."
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
    """The frame with a column split, if the names of folders or of the file say it."""
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
    """A Parquet or Arrow file; `plain` reads one without pictures inside."""
    import pyarrow as pa  # type: ignore[import-untyped]
    import pyarrow.parquet as pq  # type: ignore[import-untyped]

    if source.suffix.lower() == ".feather":  # of data frames, which hold no pictures
        return plain(source)
    if source.suffix.lower() == ".parquet":
        schema, rows = pq.read_schema(source), pq.read_metadata(source).num_rows
        table = None
    else:
        try:
            table = mapped_arrow(str(source), source.stat().st_mtime_ns)
        except pa.ArrowException:  # an older kind, or damaged
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
    """Whether the first cell of a column that is not empty begins like a picture."""
    cells = (cell for batch in batches for cell in batch.column(0) if cell.is_valid)
    first = next(cells, None)
    return first is not None and first.as_py().startswith(_MAGIC)


# ------------------------------------------------------------------------------ WebDataset


def read_tar(source: Path) -> pd.DataFrame:
    """A WebDataset shard: files that share a name up to its first dot are a sample.

    Each needs one picture. The keys of its .json are columns; any other small text, such as .cls
    or .txt, is a column called by its suffix.
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
    """The columns that a file of a sample stands for; none if it is no text."""
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
    """A column of numbers where all texts are numbers, as in .cls files."""
    if values.dtype.kind != "O" or values.name == _PICTURE:
        return values
    try:
        return pd.to_numeric(values)
    except (ValueError, TypeError):
        return values
