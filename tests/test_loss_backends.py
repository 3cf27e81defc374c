"""The choice of the backend of the loss: with a GPU, and without the tools that it needs."""

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from rnc import RnCLoss
from rnc.loss import backends
from rnc.loss.backends import choose_backend, triton_problem

pytest.importorskip("triton", reason="Triton is not installed")


@pytest.fixture(autouse=True)
def _as_with_a_gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    triton_problem.cache_clear()
    monkeypatch.setattr(torch.cuda, "device", lambda _: contextlib.nullcontext())
    monkeypatch.setattr(torch, "zeros", lambda *_, **__: None)
    yield
    triton_problem.cache_clear()


def without_compiler(*_: Any, **__: Any) -> None:
    raise RuntimeError("Failed to find C compiler.\nPlease specify one.")


def on_gpu() -> Any:
    """What is asked of features, without a GPU."""
    return SimpleNamespace(is_cuda=True, dtype=torch.float32, device=torch.device("cuda", 0))


def test_auto_says_once_that_it_takes_the_plain_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rnc.loss.kernels.rows.prepare", without_compiler)
    with pytest.warns(UserWarning, match=r"Failed to find C compiler.*apt install gcc"):
        assert choose_backend(on_gpu(), torch.ones(3), RnCLoss().options) == "torch"
    assert (
        choose_backend(on_gpu(), torch.ones(3), RnCLoss().options) == "torch"
    )  # a warning is an error


def test_triton_that_was_asked_for_raises_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        backends, "triton_problem", lambda device: f"Triton cannot run a kernel on {device} (why)"
    )
    with pytest.raises(ValueError, match=r"cannot run here: .* on cuda:0 \(why\)"):
        choose_backend(on_gpu(), torch.ones(3), RnCLoss(backend="triton").options)


def test_kernels_that_run_are_no_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rnc.loss.kernels.rows.prepare", lambda *_, **__: None)
    assert triton_problem(torch.device("cuda", 0)) is None
