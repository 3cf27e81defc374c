"""The gradient that a replayed loss hands on; graphs themselves need a GPU: test_replay_gpu.py."""

import pytest
import torch
from torch import Tensor

from rnc.loss.replay import _Replayed


class Recorded:
    """What a graph gives back: a gradient that is 0 as a float16."""

    def replay(self, features: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        return torch.zeros(()), torch.full(features.shape, 1e-9)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_a_scale_reaches_the_gradient_before_it_is_rounded(dtype: torch.dtype) -> None:
    features = torch.zeros(3, 2, dtype=dtype, requires_grad=True)
    (2.0**16 * _Replayed.apply(features, torch.ones(3), Recorded())).backward()
    assert features.grad is not None
    assert torch.equal(features.grad, torch.full((3, 2), 2.0**16 * 1e-9).to(dtype))
    assert features.grad.all()


def test_has_no_second_derivative() -> None:
    features = torch.ones(3, 2, requires_grad=True)
    loss = _Replayed.apply(features, torch.ones(3), Recorded())
    with pytest.raises(RuntimeError, match="no second derivative"):
        torch.autograd.grad(loss, features, create_graph=True)
