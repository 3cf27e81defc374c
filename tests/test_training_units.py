"""The units of heads by optimizer: SGD's rates were chosen for ages in years."""

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch

from rnc.heads import HeadConfig
from rnc.heads.registry import HEADS
from rnc.training.objectives import AGE_DEVIATION
from rnc.training.recipes import build_regressor, train
from training_cases import columns, fit, quick, unnormalised, whole


def config_of_head(**changes: Any) -> HeadConfig:
    return build_regressor(whole(columns(targets=2)), quick(**changes)).head.config


@pytest.mark.parametrize("head", HEADS)
def test_sgd_trains_linear_losses_in_twentieths_of_a_deviation(head: str) -> None:
    adamw, sgd = (config_of_head(head=head, optimizer=name) for name in ("adamw", "sgd"))
    size = 20 if head in ("l1", "huber", "quantile") else 1
    assert [size * scale for scale in sgd.scale] == pytest.approx(list(adamw.scale), rel=1e-15)
    assert dataclasses.replace(sgd, scale=adamw.scale) == adamw
    if not HEADS[head].binned:
        table = whole(columns(targets=2))
        assert adamw.scale == pytest.approx(table.y[table.rows("train")].std(axis=0), rel=1e-12)


def test_a_preset_decides_like_the_optimizer_that_it_stands_for() -> None:
    assert config_of_head(preset="paper") == config_of_head(optimizer="sgd")
    assert config_of_head(preset="quick") == config_of_head(optimizer="adamw")
    assert config_of_head(preset="paper") != config_of_head(preset="quick")


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
@pytest.mark.parametrize("solver", ["sgd", "exact"])
def test_the_second_head_of_two_stage_has_the_units_of_a_first_one(
    optimizer: str, solver: str
) -> None:
    table = whole(columns())
    changes: dict[str, Any] = {"optimizer": optimizer, "lr": 0.01, "head_solver": solver}
    model, _ = fit(table, quick(scheme="two-stage", head="dex", **changes), unnormalised())
    assert model.head.config == build_regressor(table, quick(**changes), unnormalised()).head.config


def test_ages_train_by_sgd_as_in_years() -> None:
    """With the deviation that the paper's rates are for, the loss is that of raw targets."""
    table = columns(rows=40)
    rows = table.rows("train")
    y = table.y * AGE_DEVIATION / table.y[rows].std()
    table = dataclasses.replace(table, y=y)
    n = len(rows)
    config = quick(scheme="end2end", optimizer="sgd", epochs=1, batch_size=n, views=0, lr=1e-9)
    model = build_regressor(table, config)
    assert model.head.config.scale == pytest.approx((1.0,), rel=1e-12)
    (record,) = train(model, table, config)
    assert record.train_loss == pytest.approx(
        np.abs(model.predict_prepared(table.x[rows]) - y[rows]).mean()
    )


def test_a_step_of_sgd_does_not_depend_on_the_units_of_targets() -> None:
    table = columns()
    config = quick(scheme="end2end", optimizer="sgd", lr=0.05)
    plain, _ = fit(table, config, unnormalised())
    other, _ = fit(dataclasses.replace(table, y=1000 * table.y + 5e4), config, unnormalised())
    for name, value in plain.state_dict().items():
        torch.testing.assert_close(other.state_dict()[name], value, rtol=1e-3, atol=1e-4)


def test_the_exact_head_is_the_same_whatever_the_optimizer_trains() -> None:
    """The encoder stands still, at a rate of nearly nothing."""
    table = columns()
    models = [
        fit(table, quick(optimizer=name, lr=1e-12, epochs=1), unnormalised())[0]
        for name in ("sgd", "adamw")
    ]
    one, other = (model.predict_prepared(table.x) for model in models)
    np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-3)
