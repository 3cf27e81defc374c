"""Keep the memory that training on a CPU frees in one step and needs again in the next.

glibc returns large freed buffers to the system at once. The next step gets them back page by page,
and the kernel clears each page. For a small network, this is 100,000 page faults in an epoch of
four steps, and a tenth of its processor time (benchmarks/results/cpu_training.csv). So while a CPU
trains, glibc is told to keep these buffers. Nothing is changed on other systems, with other C
libraries, or if the user has configured glibc's malloc by environment variables.
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
_MAPPED = 2**22  # after training, larger buffers are returned at once and do not fragment the heap
_OWN_SETTINGS = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")


@contextlib.contextmanager
def kept_memory(config: FitConfig) -> Iterator[None]:
    """Keep freed memory for the next step while a CPU trains; give it back at the end."""
    on_cpu = config.device == "cpu" or not torch.cuda.is_available()
    mallopt = _function("mallopt") if on_cpu else None
    if mallopt is None:
        yield
        return
    trim = _function("malloc_trim") or (lambda kept: None)
    trim(0)  # gives back what reading the data has freed
    mallopt(_MMAP_THRESHOLD, _LARGEST)
    mallopt(_TRIM_THRESHOLD, _NEVER)
    try:
        yield
    finally:
        mallopt(_MMAP_THRESHOLD, _MAPPED)
        mallopt(_TRIM_THRESHOLD, _AFTERWARDS)
        trim(0)


def _function(name: str) -> Callable[..., Any] | None:
    """A function of glibc; None without glibc, or if the user has set one of _OWN_SETTINGS."""
    if sys.platform != "linux" or any(name in os.environ for name in _OWN_SETTINGS):
        return None
    try:
        found: Callable[..., Any] = ctypes.CDLL(None)[name]
    except (OSError, AttributeError):  # another C library
        return None
    return found
