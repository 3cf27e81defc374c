"""No baseline reads values of the data in a training step, so none of them makes a GPU wait.

Fake tensors have shapes but no values: reading a value, or a shape that depends on one, raises.
"""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from rnc.loss import rnc_loss
from rnc.loss.theory import lower_bound
from rnc.methods.c_mixup import partners
from rnc.methods.dino import DinoLoss
from rnc.methods.lds_fds import FDS
from rnc.methods.ordinal_entropy import ordinal_entropy_loss
from rnc.methods.ranksim import ranksim_loss
from rnc.methods.simclr import ntxent_loss
from rnc.methods.supcon import supcon_loss, to_classes


def supcon(features: Tensor, targets: Tensor) -> Tensor:
    classes = to_classes(targets, 0, 9, validate=False)
    return supcon_loss(features, classes, validate=False)


STEPS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "simclr": lambda x, y: ntxent_loss(x, validate=False),
    "supcon": supcon,
    "dino": lambda x, y: DinoLoss(6, validate=False)(x, x.detach()),
    "ranksim": lambda x, y: ranksim_loss(x, y, validate=False),
    "original ranksim": lambda x, y: ranksim_loss(x, y, validate=False, original=True),
    "ordinal entropy": lambda x, y: ordinal_entropy_loss(x, y, validate=False),
    "c-mixup": lambda x, y: x[partners(y, validate=False)].sum(),
    "fds": lambda x, y: FDS(6, low=0, high=9, validate=False)(x, y).sum(),
    "original fds": lambda x, y: FDS(6, low=0, high=9, validate=False, original=True)(x, y).sum(),
}


@pytest.mark.parametrize("name", STEPS)
def test_a_step_looks_at_no_value(name: str) -> None:
    with FakeTensorMode():
        features = torch.randn(8, 2, 6, requires_grad=True)
        STEPS[name](features, torch.rand(8)).backward()


def test_labels_known_in_part_are_not_looked_at_on_a_gpu() -> None:
    with FakeTensorMode():
        features, weights = torch.randn(8, 2, 6, device="cuda"), torch.rand(8, device="cuda")
        lower = torch.rand(8, 1, device="cuda", dtype=torch.float64)
        more = {"upper": lower + 1, "weights": weights}
        rnc_loss(features, lower, **more, validate=False, backend="torch")
        lower_bound(lower, views=2, **more)
        with pytest.raises(Exception, match="_local_scalar_dense"):
            rnc_loss(features, lower, **more, backend="torch")


def test_a_look_would_be_seen() -> None:
    with FakeTensorMode(), pytest.raises(Exception, match="_local_scalar_dense"):
        ntxent_loss(torch.randn(8, 2, 6))
