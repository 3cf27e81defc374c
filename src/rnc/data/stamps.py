"""Hash the contents of files. A file is hashed again only if it may have changed.

Size, mtime (last change of the content) and ctime (last change of any kind) are compared first. If
all three are unchanged, the content is assumed to be unchanged. Programs cannot set ctime. So a
file is noticed that was replaced by one of the same size and mtime, as by `cp -p`, `rsync` or an
archive. On Windows, ctime is the time of creation, and such a file is not noticed.
"""

import hashlib
import os
import stat
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from rnc.data.images import reader_threads
from rnc.data.packed import member_bytes, member_of

_TASK = 64  # files per task of a thread
_COARSE = 2 * 10**9  # nanoseconds: a file may change again within one tick of its clock


class Stamp(NamedTuple):
    """A file as it was when its content was hashed. Size -1 means that it cannot be read."""

    file: str
    size: int
    mtime_ns: int
    ctime_ns: int = -1
    """-1 if the file had changed just before: then equal times do not prove equal content."""
    digest: str = ""


def stamps_of(files: Sequence[str | Path], known: Mapping[str, Stamp]) -> list[Stamp]:
    """Stamps of all files in order. Files that match their known stamp are not read."""
    stamps = [_status(file) for file in files]
    for i, stamp in enumerate(stamps):
        old = known.get(stamp.file)
        if old is not None and stamp.ctime_ns >= 0 and stamp == old._replace(digest=""):
            stamps[i] = old
    missing = [i for i, stamp in enumerate(stamps) if stamp.size >= 0 and not stamp.digest]
    for i, digest in zip(missing, digests_of([stamps[i].file for i in missing]), strict=True):
        stamps[i] = stamps[i]._replace(digest=digest)
    return stamps


def digests_of(files: Sequence[str | Path]) -> list[str]:
    """A hash of the content of every file, "" for one that cannot be read."""
    tasks = (files[i : i + _TASK] for i in range(0, len(files), _TASK))  # a task takes 1 KB
    with ThreadPoolExecutor(reader_threads()) as pool:  # reading and hashing release the GIL
        parts = pool.map(lambda names: [_digest(name) for name in names], tasks)
        return [digest for part in parts for digest in part]


def copies(digests: Sequence[str]) -> list[list[int]]:
    """Positions of files with the same content, one list for each content that is repeated.

    >>> copies(["a", "b", "a", "", ""])
    [[0, 2]]
    """
    places: dict[str, list[int]] = defaultdict(list)
    for i, digest in enumerate(digests):
        if digest:
            places[digest].append(i)
    return [rows for rows in places.values() if len(rows) > 1]


def _status(file: str | Path) -> Stamp:
    # This runs for every file at every start; pathlib takes several times as long.
    path = os.path.abspath(file)  # noqa: PTH100
    with suppress(OSError, ValueError):
        member = member_of(path)
        place = path if member is None else member.pack
        status = os.stat(place)  # noqa: PTH116
        if stat.S_ISREG(status.st_mode) and os.access(place, os.R_OK):
            is_new = abs(time.time_ns() - status.st_ctime_ns) < _COARSE
            ctime = -1 if is_new else status.st_ctime_ns
            return Stamp(path, status.st_size, status.st_mtime_ns, ctime)
    return Stamp(path, -1, -1)


def _digest(file: str | Path) -> str:
    with suppress(OSError, ValueError):
        if (member := member_of(str(file))) is not None:
            return hashlib.blake2b(member_bytes(member), digest_size=16).hexdigest()
    with suppress(OSError, ValueError), Path(file).open("rb") as content:
        return hashlib.file_digest(content, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
    return ""
