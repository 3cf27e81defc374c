"""Stops a process at its n-th change of a file: kills it, cuts a write in half, or sends Ctrl-C.

The process is a fork that traces itself. A filter of system calls has the kernel stop it before
every one that changes a file, whoever makes it: Python, SQLite, or a library of another language.
Rights and syncs are none: a killed process leaves the same files without them. Changes below one
folder are counted. Needs Linux on x86-64, and leave to trace a child.
"""

import ctypes
import os
import platform
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Literal, NamedTuple

Blow = Literal["kill", "half", "interrupt"]

_WITH_FILE = {
    **{1: "write", 18: "pwrite", 20: "writev", 296: "pwritev", 40: "sendfile", 326: "copy"},
    **{77: "ftruncate", 285: "fallocate"},
}
"""Calls whose first argument is an open file."""
_WITH_PATH = {
    **{2: "open", 76: "truncate", 82: "rename", 83: "mkdir", 84: "rmdir", 85: "creat"},
    **{86: "link", 87: "unlink"},
}
_WITH_FOLDER = {
    **{257: "openat", 258: "mkdirat", 263: "unlinkat", 264: "renameat", 265: "linkat"},
    **{316: "renameat2"},
}
"""Calls whose first argument is an open folder, and the second a path from there."""
_NAMES = _WITH_FILE | _WITH_PATH | _WITH_FOLDER
_LINK, _COPY = 265, 326
_OPENS = {2: 1, 257: 2}
"""Which argument has the flags: a file that is opened for reading is not changed."""
_HALVED = (1, 18)
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC

_TRACE_ME, _CONTINUE, _GET_REGISTERS, _SET_REGISTERS, _TO_EXIT, _SET_OPTIONS = (
    *(0, 7, 12, 13, 24),
    0x4200,
)
_OPTIONS = 0x01 | 0x02 | 0x04 | 0x08 | 0x80 | 0x100000  # exits of calls, forks, threads, filters
_AT_FILTER, _WALL = signal.SIGTRAP | 7 << 8, 0x40000000
# fmt: off
_REGISTERS = (
    "r15", "r14", "r13", "r12", "rbp", "rbx", "r11", "r10", "r9", "r8", "rax", "rcx", "rdx", "rsi",
    "rdi", "orig_rax", "rip", "cs", "eflags", "rsp", "ss", "fs_base", "gs_base", "ds", "es", "fs",
    "gs",
)
# fmt: on


class _Registers(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_ulonglong) for name in _REGISTERS)


class _Instruction(ctypes.Structure):
    _fields_ = (
        ("code", ctypes.c_ushort),
        ("if_true", ctypes.c_ubyte),
        ("if_false", ctypes.c_ubyte),
        ("value", ctypes.c_uint),
    )


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.POINTER(_Instruction)))


class Outcome(NamedTuple):
    """How a traced process ended."""

    code: int
    """Its exit code; a negative one is the number of the signal that killed it."""
    output: str
    """What it printed."""
    changes: tuple[str, ...]
    """Every change of a file that it came to, in order: the call and the file."""


def run(
    act: Callable[[], int], folder: Path, at: int | None = None, blow: Blow = "kill"
) -> Outcome:
    """Run a function in a fork and strike at a change of a file below a folder.

    Args:
        act: what to do; returns an exit code.
        folder: changes below it count; what is printed goes to a file beside it.
        at: the number of the change, from 0; None for none.
        blow: die before the change, die in the middle of it, or get Ctrl-C there.
    """
    output = folder.with_name(f"{folder.name}.output")
    child = os.fork()
    if child == 0:
        _be_traced(act, output)
    tracer = _Tracer(child, folder, at, blow)
    code = tracer.follow()
    return Outcome(code, output.read_text(errors="replace"), tuple(tracer.changes))


# ------------------------------------------------------------------------------- in the child


def _be_traced(act: Callable[[], int], output: Path) -> None:
    """Do something under the eyes of the parent, and exit."""
    code = 1
    try:
        file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for stream in (1, 2):
            os.dup2(file, stream)
        _ptrace(_TRACE_ME, 0, 0, 0)
        os.kill(os.getpid(), signal.SIGSTOP)  # until the parent has set its options
        _install_filter()
        code = act()
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _install_filter() -> None:
    """Have the kernel stop this process before calls that change files."""
    load, equal, bits, finish, mask = 0x20, 0x15, 0x45, 0x06, 0x54
    allow, trace = 0x7FFF0000, 0x7FF00000
    steps: list[tuple[int, int, int, int]] = []
    for number in _NAMES:
        if number in _OPENS:
            place = 16 + 8 * _OPENS[number]
            checks = [(load, 0, 0, place), (bits, 0, 1, _WRITING)]
        elif number in _WITH_FILE:  # but what is printed
            checks = [(load, 0, 0, 16), (mask, 0, 0, 0xFFFFFFFC), (equal, 1, 0, 0)]
        else:
            checks = []
        body = [*checks, (finish, 0, 0, trace), (finish, 0, 0, allow)]
        steps += [(load, 0, 0, 0), (equal, 0, len(body), number), *body]
    steps.append((finish, 0, 0, allow))
    program = (_Instruction * len(steps))(*(_Instruction(*step) for step in steps))
    libc = ctypes.CDLL(None, use_errno=True)
    no_new_privileges, set_filter, filter_mode = 38, 22, 2
    if libc.prctl(no_new_privileges, 1, 0, 0, 0) or libc.prctl(
        set_filter, filter_mode, ctypes.byref(_Program(len(steps), program)), 0, 0
    ):
        raise OSError(ctypes.get_errno(), "the filter of system calls was not taken")


# ------------------------------------------------------------------------------ in the parent


class _Tracer:
    """Follows a process and its threads to their end."""

    def __init__(self, child: int, folder: Path, at: int | None, blow: Blow) -> None:
        self.child, self.folder, self.at, self.blow = child, str(folder), at, blow
        self.changes: list[str] = []

    def follow(self) -> int:
        """The exit code of the process."""
        os.waitpid(self.child, 0)
        _ptrace(_SET_OPTIONS, self.child, 0, _OPTIONS)
        _ptrace(_CONTINUE, self.child, 0, 0)
        while True:
            thread, status = os.waitpid(-1, _WALL)
            if not os.WIFSTOPPED(status):
                if thread == self.child:
                    return os.waitstatus_to_exitcode(status)
                continue
            passed_on = 0
            if status >> 8 == _AT_FILTER:
                self._look(thread)
            elif status >> 16 == 0 and os.WSTOPSIG(status) not in (signal.SIGSTOP, signal.SIGTRAP):
                passed_on = os.WSTOPSIG(status)
            _ptrace(_CONTINUE, thread, 0, passed_on)

    def _look(self, thread: int) -> None:
        """Count a change, and strike if it is the one."""
        registers = _Registers()
        _ptrace(_GET_REGISTERS, thread, 0, ctypes.addressof(registers))
        path = _path_of(thread, registers)
        change = f"{_NAMES[registers.orig_rax]} {path[len(self.folder) + 1 :]}"
        if not path.startswith(self.folder) or self._is_none(change, path):
            return
        self.changes.append(change)
        if len(self.changes) - 1 != self.at:
            return
        if self.blow == "interrupt":
            os.kill(self.child, signal.SIGINT)
            return
        if self.blow == "half" and registers.orig_rax in _HALVED:
            registers.rdx //= 2
            _ptrace(_SET_REGISTERS, thread, 0, ctypes.addressof(registers))
            _ptrace(_TO_EXIT, thread, 0, 0)
            os.waitpid(thread, _WALL)
        os.kill(self.child, signal.SIGKILL)

    def _is_none(self, change: str, path: str) -> bool:
        """Whether a call leaves everything as it is."""
        is_made = change.startswith("mkdir") and os.path.lexists(path)
        is_gone = change.startswith(("unlink", "rmdir")) and not os.path.lexists(path)
        is_open = change.startswith("open") and self.changes[-1:] == [change]
        return is_made or is_gone or is_open


def _path_of(thread: int, registers: _Registers) -> str:
    """The file that a call is about to change; of a rename, the old one."""
    first, second, third = registers.rdi, registers.rsi, registers.rdx
    call = registers.orig_rax
    if call in _WITH_FILE:
        return _open_file(thread, third if call == _COPY else first)
    if call in _WITH_PATH:
        return _absolute(thread, "cwd", _text(thread, second if call == 86 else first))
    if call == _LINK:
        first, second = third, registers.r10
    start = first & 0xFFFFFFFF
    here = "cwd" if start == 2**32 - 100 else f"fd/{start}"
    return _absolute(thread, here, _text(thread, second))


def _absolute(thread: int, start: str, path: str) -> str:
    if path.startswith("/"):
        return path
    return f"{Path(f'/proc/{thread}/{start}').readlink()}/{path}"


def _open_file(thread: int, number: int) -> str:
    try:
        return str(Path(f"/proc/{thread}/fd/{number & 0xFFFFFFFF}").readlink())
    except OSError:
        return ""


def _text(thread: int, address: int) -> str:
    with open(f"/proc/{thread}/mem", "rb", buffering=0) as memory:  # noqa: PTH123
        memory.seek(address)
        return memory.read(4096).split(b"\0", 1)[0].decode()


def _ptrace(request: int, process: int, address: int, data: int) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.restype = ctypes.c_long
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    return int(libc.ptrace(request, process, address, data))


def can_trace() -> bool:
    """Whether a process may be traced here."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return False
    child = os.fork()
    if child == 0:
        os._exit(int(_ptrace(_TRACE_ME, 0, 0, 0) != 0))
    return os.waitpid(child, 0)[1] == 0
