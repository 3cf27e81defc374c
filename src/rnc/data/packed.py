"""Read pictures inside larger files: tar shards, and columns of Parquet and Arrow files.

In place of a file name, such a picture has a text that says where it is:

    shard-000.tar!5632+20480!0001.jpg      20,480 bytes of a tar file, from byte 5,632 on
    train-0.parquet!image@17!              row 17 of the column "image"

The larger file is never read into memory as a whole. Parquet is read one row group at a time, so
pictures are read fastest in their order.
"""

import re
import threading
from bisect import bisect_right
from functools import lru_cache
from io import BytesIO
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

_MEMBER = re.compile(r"(?P<pack>.+\.(?:tar|parquet|arrow))!(?P<where>\d+\+\d+|.+@\d+)!(?P<name>.*)")
_MOST_GROUPS = 4  # row groups in memory at once
_MOST_FILES = 64
_lock = threading.Lock()


class Member(NamedTuple):
    """A picture inside a larger file."""

    pack: str
    where: str
    name: str

    @property
    def shown(self) -> str:
        """The name of the picture for people: the larger file, and the name or row in it."""
        return f"{self.pack}/{self.name or self.where.rpartition('@')[2]}"


def member_of(file: str) -> Member | None:
    """The picture inside a larger file that a text names; None for the name of a plain file.

    >>> member_of("a/shard-0.tar!512+10!cat.jpg").shown
    'a/shard-0.tar/cat.jpg'
    >>> member_of("a/cat!.jpg")
    """
    found = _MEMBER.fullmatch(file) if "!" in file else None
    return None if found is None else Member(*found.group("pack", "where", "name"))


def in_tar(name: str, offset: int, size: int, member: str) -> str:
    """The name of a picture in a tar file."""
    return f"{name}!{offset}+{size}!{member.replace('!', '_')}"


def in_column(name: str, column: str, row: int) -> str:
    """The name of a picture in a column of a Parquet or Arrow file."""
    return f"{name}!{column}@{row}!"


def opened_picture(file: str | Path) -> Path | BytesIO:
    """What Pillow opens: the path of a file, or the bytes of a picture inside a larger one.

    Raises OSError if these bytes cannot be found.
    """
    member = member_of(str(file))
    return Path(file) if member is None else BytesIO(member_bytes(member))


def member_bytes(member: Member) -> bytes:
    """The bytes of a picture inside a larger file."""
    if not member.pack.endswith(".tar"):
        column, _, row = member.where.rpartition("@")
        return _bytes_in_column(member.pack, column, int(row))
    offset, size = map(int, member.where.split("+"))
    with Path(member.pack).open("rb") as file:
        file.seek(offset)
        content = file.read(size)
    if len(content) < size:
        raise OSError(f"{member.pack} ends within {member.name}")
    return content


def _bytes_in_column(pack: str, column: str, row: int) -> bytes:
    import pyarrow as pa  # type: ignore[import-untyped]

    try:
        changed = Path(pack).stat().st_mtime_ns
        with _lock:  # else several threads could read the same row group at once
            value = _value(pack, changed, column, row)
    except (pa.ArrowException, IndexError, KeyError) as error:
        raise OSError(f"{pack} has no row {row} of {column} ({error})") from error
    content = value.get("bytes") if isinstance(value, dict) else value
    if not isinstance(content, bytes):
        path = value.get("path") if isinstance(value, dict) else None
        raise OSError("no bytes in this row" + (f", only the name {path}" if path else ""))
    return content


def _value(pack: str, changed: int, column: str, row: int) -> Any:
    if pack.endswith(".arrow"):
        return mapped_arrow(pack, changed)[column][row].as_py()
    firsts = _first_rows(pack, changed)
    group = bisect_right(firsts, row) - 1
    return _row_group(pack, changed, column, group)[row - firsts[group]].as_py()


@lru_cache(maxsize=_MOST_GROUPS)
def _row_group(pack: str, changed: int, column: str, group: int) -> Any:
    import pyarrow.parquet as pq  # type: ignore[import-untyped]

    with pq.ParquetFile(pack) as file:
        return file.read_row_group(group, columns=[column])[column]


@lru_cache(maxsize=_MOST_FILES)
def _first_rows(pack: str, changed: int) -> list[int]:
    import pyarrow.parquet as pq

    found = pq.read_metadata(pack)
    return [0, *accumulate(found.row_group(i).num_rows for i in range(found.num_row_groups))]


@lru_cache(maxsize=_MOST_FILES)
def mapped_arrow(pack: str, changed: int) -> Any:
    """An Arrow file or stream as a memory-mapped table."""
    import pyarrow as pa

    file = pa.memory_map(pack)
    start = file.read(6)
    file.seek(0)
    kind = pa.ipc.open_file if start == b"ARROW1" else pa.ipc.open_stream
    return kind(file).read_all()
