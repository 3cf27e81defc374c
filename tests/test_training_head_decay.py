"""Weight decay of a head that is trained on a frozen encoder."""

import dataclasses

import pytest
import torch

from rnc.config import FitConfig
from rnc.training.recipes import build_regressor, train
from training_cases import columns, quick

SGD = {"head_solver": "sgd", "optimizer": "sgd", "lr": 0.01}


def head_norm(**changes) -> float:
    """Norm of the trained head's weights."""
    table, config = columns(), quick(**{**SGD, **changes})
    model = build_regressor(table, config)
    list(train(model, table, config))
    return float(torch.cat([p.detach().flatten() for p in model.head.parameters()]).norm())


@pytest.mark.parametrize("scheme", ["probe", "two-stage"])
def test_decay_makes_the_weights_of_a_head_smaller(scheme: str) -> None:
    plain = head_norm(scheme=scheme)
    assert head_norm(scheme=scheme, head_weight_decay=0.0) == plain
    assert head_norm(scheme=scheme, head_weight_decay=3.0) < 0.9 * plain


def test_the_decay_of_the_encoder_is_not_that_of_the_head() -> None:
    table, config = columns(), quick(**SGD)
    encoders = []
    for decay in (0.0, 1.0):
        model = build_regressor(table, config)
        list(train(model, table, dataclasses.replace(config, head_weight_decay=decay)))
        encoders.append(model.encoder.state_dict())
    assert all(torch.equal(encoders[0][name], encoders[1][name]) for name in encoders[0])


@pytest.mark.parametrize("fields", [{"preset": "quick"}, {"preset": "best"}, {"scheme": "auto"}])
def test_an_exact_head_refuses_it(fields) -> None:
    with pytest.raises(ValueError, match=r"^head_weight_decay=0\.1 .*chooses on validation.*'sgd'"):
        FitConfig(**fields, head_weight_decay=0.1)


def test_a_head_by_sgd_takes_it() -> None:
    assert FitConfig(preset="paper", head_weight_decay=1e-4).head_weight_decay == 1e-4
    assert FitConfig(head_solver="sgd", head_weight_decay=1e-4).head_weight_decay == 1e-4
