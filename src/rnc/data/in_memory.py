"""Files that are in memory only, such as uploads: a name for messages, and the bytes."""

import io
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import IO


@dataclass(frozen=True)
class NamedBytes:
    """A file of this name that is not on any disk."""

    name: str
    content: bytes

    def __str__(self) -> str:
        return self.name

    @property
    def suffix(self) -> str:
        """The end of its name, as of a path."""
        return PurePath(self.name).suffix


AnyFile = Path | NamedBytes
"""A file on disk or in memory."""


def open_bytes(file: AnyFile) -> IO[bytes]:
    """A file to read, as bytes."""
    return io.BytesIO(file.content) if isinstance(file, NamedBytes) else file.open("rb")
