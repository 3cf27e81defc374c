"""Memory that training on a CPU keeps between steps."""

import resource
import subprocess
import sys

import pytest

from rnc.config import FitConfig
from rnc.training import memory
from rnc.training.memory import kept_memory

CHECK = """
import resource, sys
import torch
from rnc.config import FitConfig
from rnc.training.memory import kept_memory

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        torch.ones(5_000_000)  # 20 MB
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

with kept_memory(FitConfig(device="cpu")):
    torch.ones(5_000_000)
    inside = faults()
print(inside)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="glibc")
def test_a_buffer_that_is_freed_is_used_again_without_a_page_fault():
    found = subprocess.run([sys.executable, "-c", CHECK], check=True, capture_output=True)
    pages = 20 * 20e6 / resource.getpagesize()
    assert int(found.stdout) < 0.1 * pages


TEAR = """
import numpy as np, resource, torch
from rnc.config import FitConfig
from rnc.training import blocks
from rnc.training.memory import kept_memory
from rnc.training.solver import _with_one

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

blocks.BLOCK_VALUES = 2**16
n, d = 60_000, 256
half = torch.full((d,), 0.5, dtype=torch.float64)
batches = (np.ones((1000, d), np.float32) for _ in range(n // 1000))
with kept_memory(FitConfig(device="cpu")):
    rows = blocks.Spilled.write(batches, (n, d)).map(lambda rows: (rows - half) / 2)
    rows, before = rows.map(_with_one), peak()
    product = blocks.times(rows, torch.ones(d + 1, dtype=torch.float64))
assert torch.equal(product, torch.full((n,), d / 4 + 1, dtype=torch.float64))
print(peak() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="glibc")
def test_results_of_blocks_do_not_tear_the_heap():
    found = subprocess.run([sys.executable, "-c", TEAR], check=True, capture_output=True)
    assert float(found.stdout) < 30  # MB; torn, it was 69


def test_it_does_nothing_without_glibc_or_against_the_users_own_settings(monkeypatch):
    called = []
    monkeypatch.setattr(memory.ctypes, "CDLL", lambda name: called.append(name))
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "1000")
    with kept_memory(FitConfig(device="cpu")):
        pass
    monkeypatch.delenv("MALLOC_TRIM_THRESHOLD_")
    monkeypatch.setattr(memory.sys, "platform", "darwin")
    with kept_memory(FitConfig(device="cpu")):
        pass
    assert called == []


def test_memory_is_given_back_even_after_an_error(monkeypatch):
    asked = []
    monkeypatch.setattr(memory, "_function", lambda name: lambda *args: asked.append((name, *args)))
    with pytest.raises(KeyError), kept_memory(FitConfig(device="cpu")):
        raise KeyError
    assert asked[-2:] == [("mallopt", -1, 2**27), ("malloc_trim", 0)]
