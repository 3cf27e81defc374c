"""A queue: anchors are contrasted with each other and with samples of earlier batches."""

from typing import Any

import pytest
import torch
from torch import Tensor

from oracle import slow_losses
from rnc import RnCLoss, rnc_loss

BATCH = {"l1": {}, "cosine": {"similarity": "cosine"}, "5 positives": {"positives": 5}}


def sets(rows: int = 7, earlier: int = 9, ties: bool = True) -> tuple[Tensor, ...]:
    targets = torch.randint(0, 5, (rows + earlier,)).double() if ties else torch.randn(16).double()
    features = torch.randn(rows + earlier, 4)
    return features[:rows].requires_grad_(), targets[:rows], features[rows:], targets[rows:]


@pytest.mark.parametrize("ties", [True, False])
@pytest.mark.parametrize("case", BATCH)
def test_equals_the_definition_over_batch_and_queue(case: str, ties: bool) -> None:
    """The anchors of the batch in the loss of both together; only they have a gradient."""
    features, targets, *queue = sets(ties=ties)
    options: dict[str, Any] = BATCH[case]
    both = torch.cat([features, queue[0]]), torch.cat([targets, queue[1]])[:, None]
    expected = slow_losses(*both, **options)[: len(features)]
    weights = torch.randn(len(features))
    losses = rnc_loss(features, targets, queue=tuple(queue), reduction="none", **options)
    torch.testing.assert_close(losses.double(), expected, rtol=1e-6, atol=1e-6)
    wanted, found = (
        torch.autograd.grad((values * weights).sum(), features)[0] for values in (expected, losses)
    )
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-6)
    mean = RnCLoss(**options)(features, targets, queue=tuple(queue))
    torch.testing.assert_close(mean.double(), expected.mean(), rtol=1e-6, atol=1e-6)


@pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")  # of Triton's interpreter
def test_views_fused_kernels_and_chunks_agree() -> None:
    features, targets = torch.randn(6, 2, 4, requires_grad=True), torch.randn(6)
    queue = torch.randn(5, 4), torch.randn(5)
    results = []
    for options in ({"backend": "torch"}, {"backend": "triton"}, {"chunk_size": 5}):
        loss = rnc_loss(features, targets, queue=queue, **options)
        results.append([loss, *torch.autograd.grad(loss, features)])
    for other in results[1:]:
        torch.testing.assert_close(other, results[0], rtol=1e-5, atol=1e-6)


def test_an_empty_queue_changes_nothing() -> None:
    features, targets, *_ = sets()
    empty = torch.empty(0, 4), torch.empty(0)
    assert torch.equal(rnc_loss(features, targets, queue=empty), rnc_loss(features, targets))


def test_a_single_anchor_with_a_queue_has_a_loss() -> None:
    features, targets, *queue = sets(rows=1)
    loss = rnc_loss(features, targets, queue=tuple(queue))
    expected = rnc_loss(features, targets, reference=tuple(queue))
    torch.testing.assert_close(loss, expected)


def test_a_queue_of_another_width_or_with_nan_is_named() -> None:
    features, targets, *_ = sets()
    with pytest.raises(ValueError, match=r"as many features per row in the queue .* got 3 and 4"):
        rnc_loss(features, targets, queue=(torch.randn(2, 3), torch.randn(2)))
    with pytest.raises(ValueError, match="rnc_loss's queue"):
        rnc_loss(features, targets, queue=(torch.full((2, 4), torch.nan), torch.randn(2)))
    with pytest.raises(ValueError, match="got reference= or queue="):
        rnc_loss(features, targets, queue=(features, targets), backend="reference")
