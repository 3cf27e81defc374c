"""Samples with equal labels tie exactly, for every anchor, by every built-in label distance."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from oracle import slow_losses
from rnc import rnc_loss
from rnc.loss import circular
from rnc.loss.pairwise import LABEL_DISTANCES, Pairwise

DISTANCES: dict[str, Pairwise] = {**LABEL_DISTANCES, "circular": circular(24.0)}
CASES = [("l1", 1), ("l1", 3), ("l2", 1), ("l2", 3), ("angular", 2), ("circular", 1)]
CASES += [("circular", 3)]


def repeated_labels(n: int, t: int, times: int) -> tuple[Tensor, Tensor]:
    """Random labels, each occurring several times, in any order; and which label each row has."""
    labels = 300 * torch.rand(n, t, dtype=torch.float64) - 150
    label_of = torch.arange(n).repeat(times)[torch.randperm(n * times)]
    return labels[label_of], label_of


def assert_ties(distances: Tensor, label_of: Tensor) -> None:
    """Columns of one label are the same to the last bit."""
    first = torch.stack([(label_of == label).nonzero()[0, 0] for label in label_of.unique()])
    assert torch.equal(distances, distances[:, first][:, label_of])


@pytest.mark.parametrize(("name", "t"), CASES)
def test_equal_labels_are_equally_far_from_every_anchor(name: str, t: int) -> None:
    torch.manual_seed(0)
    for n in range(2, 301, 1 if name == "angular" else 13):
        targets, label_of = repeated_labels(n, t, times=2)
        distances = DISTANCES[name](targets, targets)
        assert_ties(distances, label_of)
        assert not distances[label_of[:, None] == label_of].any()
        some = targets[: n // 2 + 1]  # as for a chunk, where anchors are some of the rows
        assert_ties(DISTANCES[name](some, targets), label_of)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("backend", ["torch", "reference"])
@pytest.mark.parametrize(("name", "t"), CASES)
def test_two_views_tie_without_a_tolerance(name: str, t: int, backend: Any, device: str) -> None:
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    torch.manual_seed(0)
    for n in (2, 23, 27, 47, 150, 300):
        targets, _ = repeated_labels(n, t, times=1)
        features, targets = torch.randn(n, 2, 4).double().to(device), targets.to(device)
        options: dict[str, Any] = {"label_distance": DISTANCES[name]}
        tolerant = rnc_loss(features, targets, tie_tolerance=1e-9, **options)
        exact = rnc_loss(features, targets, backend=backend, **options)
        torch.testing.assert_close(exact, tolerant, rtol=1e-12, atol=0.0)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_losses_of_repeated_labels_equal_the_definition(data: st.DataObject) -> None:
    torch.manual_seed(data.draw(st.integers(0, 2**31)))
    name, t = data.draw(st.sampled_from(CASES))
    views, n = data.draw(st.integers(1, 3)), data.draw(st.integers(2, 9))
    targets, _ = repeated_labels(n, t, times=data.draw(st.integers(1, 2)))
    dtype = data.draw(st.sampled_from([torch.float32, torch.float64]))
    features = torch.randn(len(targets), views, 4).to(dtype)
    losses = rnc_loss(
        features,
        targets,
        label_distance=DISTANCES[name],
        reduction="none",
        chunk_size=data.draw(st.none() | st.integers(1, 12)),
    )
    slow = slow_losses(features, targets, label_distance=name)
    tolerance = 1e-11 if dtype == torch.float64 else 1e-5
    torch.testing.assert_close(
        losses.flatten().double(), slow, rtol=tolerance, atol=tolerance, check_dtype=False
    )
