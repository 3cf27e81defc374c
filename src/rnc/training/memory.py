"""Memory that training on a CPU frees in one step and needs again in the next.

glibc returns large freed buffers to the system at once. The next step gets them back page by page,
each page cleared by the kernel: 100,000 page faults in an epoch of four steps of a small network,
and a tenth of its processor time (benchmarks/results/cpu_training.csv). While a CPU trains, glibc
is told to keep them. Other systems, other allocators and whoever set MALLOC_ variables are left
alone.
"""

import contextlib
import ctypes
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch

from rnc.config import FitConfig

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # options of mallopt, from malloc.h
_NEVER, _LARGEST, _AFTERWARDS = -1, 2**30, 2**27  # bytes
_MAPPED = 2**22  # from here on buffers are returned at once again, and do not tear the heap
_OWN_SETTINGS = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")


@contextlib.contextmanager
def kept_memory(config: FitConfig) -> Iterator[None]:
    """Keep freed memory for the next step while a CPU trains; give it back in the end."""
    on_cpu = config.device == "cpu" or not torch.cuda.is_available()
    mallopt = _function("mallopt") if on_cpu else None
    if mallopt is None:
        yield
        return
    trim = _function("malloc_trim") or (lambda kept: None)
    trim(0)  # what reading the data left
    mallopt(_MMAP_THRESHOLD, _LARGEST)
    mallopt(_TRIM_THRESHOLD, _NEVER)
    try:
        yield
    finally:
        mallopt(_MMAP_THRESHOLD, _MAPPED)
        mallopt(_TRIM_THRESHOLD, _AFTERWARDS)
        trim(0)


def _function(name: str) -> Callable[..., Any] | None:
    """A function of glibc; None where there is none, or where the user chose for it."""
    if sys.platform != "linux" or any(name in os.environ for name in _OWN_SETTINGS):
        return None
    try:
        found: Callable[..., Any] = ctypes.CDLL(None)[name]
    except (OSError, AttributeError):  # another C library
        return None
    return found
