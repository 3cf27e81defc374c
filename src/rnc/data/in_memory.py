"""Files that exist in memory only, such as uploads."""

import io
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import IO


@dataclass(frozen=True)
class NamedBytes:
    """A file in memory: its bytes, and a name for messages."""

    name: str
    content: bytes

    def __str__(self) -> str:
        return self.name

    @property
    def suffix(self) -> str:
        """The suffix of the name, as of a path."""
        return PurePath(self.name).suffix


AnyFile = Path | NamedBytes
"""A file on disk or in memory."""


def open_bytes(file: AnyFile) -> IO[bytes]:
    """The file, open for reading bytes."""
    return io.BytesIO(file.content) if isinstance(file, NamedBytes) else file.open("rb")
