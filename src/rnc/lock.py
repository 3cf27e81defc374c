"""Locks on folders, so that only one process at a time writes to a run folder.

The operating system locks a file in the folder. It releases the lock when the process ends, even if
that is killed. The file, which says who holds the folder, may stay then and does no harm.
"""

import errno
import json
import os
import socket
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rnc.files import LOCK_FILE
from rnc.loss.distributed import is_first_process

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

_WITHOUT_LOCKS = (errno.ENOTSUP, errno.ENOSYS, errno.ENOLCK, errno.EINVAL)
_WAIT = 0.05  # seconds between two attempts
_held: set[Path] = set()  # folders that this process has locked


class FolderInUseError(OSError):
    """Another process writes to the folder. The message says which process."""


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """A context that locks a folder, and creates it if needed. Raises if another process has it.

    The same process may lock it again. Under torchrun the first process locks it for all.
    """
    key = folder.resolve()
    if not is_first_process() or key in _held:
        yield
        return
    with _hold(folder):
        _held.add(key)
        try:
            yield
        finally:
            _held.remove(key)


@contextmanager
def one_at_a_time(file: Path) -> Iterator[None]:
    """A context that only one process at a time can enter; others wait until it has left.

    It creates the lock file and its folder, and deletes the file afterwards. If the file cannot be
    created or locked, nobody waits.
    """
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(file, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError:
        yield
        return
    try:
        while not _is_ours(handle):
            time.sleep(_WAIT)
        yield
    finally:
        with suppress(OSError):
            file.unlink()
        os.close(handle)


def _is_ours(handle: int) -> bool:
    """Whether this process has the lock now, or the file system has no locks."""
    try:
        _lock(handle)
    except OSError as error:
        return error.errno in _WITHOUT_LOCKS
    return True


def check_free(folder: Path) -> None:
    """Raise if another process has locked a folder."""
    if (folder / LOCK_FILE).exists():
        with locked(folder):
            pass


@contextmanager
def _hold(folder: Path) -> Iterator[None]:
    is_new, process = not folder.exists(), os.getpid()
    folder.mkdir(parents=True, exist_ok=True)
    handle = _acquire(folder)
    try:
        yield
    finally:
        if os.getpid() == process:  # a forked child must not release its parent's lock
            with suppress(OSError):
                (folder / LOCK_FILE).unlink()
            with suppress(OSError):
                if is_new:
                    folder.rmdir()  # only an empty folder goes; otherwise this raises
        os.close(handle)


def _acquire(folder: Path) -> int:
    """Lock the folder's lock file, and return its handle. Raises if another process has it."""
    path = folder / LOCK_FILE
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            _lock(handle)
        except OSError as error:
            if error.errno in _WITHOUT_LOCKS:
                text = f"{folder}: its file system has no locks. Let one process alone write there."
                warnings.warn(text, stacklevel=2)
                return handle
            os.close(handle)
            raise FolderInUseError(
                f"{folder} is in use by {_owner(path)}. Wait until that ends or stop it, or choose "
                "another folder for --out."
            ) from error
        with suppress(FileNotFoundError):
            if path.stat().st_ino == os.fstat(handle).st_ino:  # else its holder just deleted it
                os.truncate(handle, 0)
                os.write(handle, json.dumps(_about_us()).encode())
                return handle
        os.close(handle)


def _lock(handle: int) -> None:
    """Lock an open file, or raise OSError at once."""
    if sys.platform == "win32":
        os.lseek(handle, 2**20, os.SEEK_SET)  # a locked byte is unreadable: lock one after the text
        msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        os.lseek(handle, 0, os.SEEK_SET)
    else:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _about_us() -> dict[str, str | int]:
    started = time.strftime("%Y-%m-%d %H:%M:%S %z")
    return {"process": os.getpid(), "host": socket.gethostname(), "since": started}


def _owner(path: Path) -> str:
    """The process that holds a folder, for a message."""
    try:
        about = json.loads(path.read_text(encoding="utf-8"))
        return f"process {about['process']} on {about['host']} since {about['since']}"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"
