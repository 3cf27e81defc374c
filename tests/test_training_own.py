"""An objective of the user's own: a function of features and targets."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from sklearn.base import clone
from torch import Tensor

from rnc import RnCRegressor, rnc_loss
from rnc.config import FitConfig
from rnc.run.fit import fit_run
from rnc.training.recipes import build_regressor, train
from training_cases import columns, quick, same, weights

SAME_LOSS = partial(rnc_loss, validate=False)


def centred(features: Tensor, targets: Tensor) -> Tensor:
    """Means of views that lie on a line, where the targets say."""
    return (features.mean(dim=(1, 2)) - targets[:, 0].float() / 20).square().mean()


@pytest.mark.parametrize("scheme", ["probe", "finetune"])
def test_the_rnc_loss_as_a_function_is_the_objective_rnc(scheme: str) -> None:
    table, ends = columns(), []
    for objective, own in (("rnc", None), ("own", SAME_LOSS)):
        config = quick(scheme=scheme, objective=objective)
        model = build_regressor(table, config)
        records = list(train(model, table, config, own=own))
        ends.append((weights(model), [record.train_loss for record in records]))
    assert same(ends[0][0], ends[1][0])
    assert ends[0][1] == ends[1][1]


def test_it_sees_views_and_targets_in_their_own_units() -> None:
    table, seen = columns(targets=2), []

    def look(features: Tensor, targets: Tensor) -> Tensor:
        seen.append((features.shape, targets))
        return features.square().mean()

    config = quick(objective="own", views=3)
    list(train(build_regressor(table, config), table, config, own=look))
    shape, targets = seen[0]
    assert (shape[:2], targets.shape) == ((16, 3), (16, 2))
    known = {tuple(row) for row in table.y[table.rows("train")].tolist()}
    assert {tuple(row) for row in targets.tolist()} <= known


@pytest.mark.parametrize(
    ("bad", "got"),
    [
        (lambda f, t: f.square().mean(dim=(1, 2)), r"got shape \(16,\)"),
        (lambda f, t: f.square().mean().item(), "got float"),
        (lambda f, t: t.mean(), r"got shape \(\)"),
    ],
    ids=["many", "no tensor", "no gradient"],
)
def test_what_it_returns_must_be_a_loss(bad: Any, got: str) -> None:
    config = quick(objective="own")
    with pytest.raises(ValueError, match=f"must return the number to minimise.*{got}"):
        list(train(build_regressor(columns(), config), columns(), config, own=bad))


def test_the_name_needs_the_function_and_the_function_the_name() -> None:
    for objective, own in (("own", None), ("rnc", centred)):
        config = quick(objective=objective)
        with pytest.raises(ValueError, match=r"RnCRegressor\(objective=function\)"):
            list(train(build_regressor(columns(), config), columns(), config, own=own))
    with pytest.raises(ValueError, match=r"own has no temperature.*yours to set\."):
        FitConfig(objective="own", temperature=0.5)


def test_a_run_remembers_that_it_had_one(tmp_path: Path) -> None:
    table = columns()
    list(fit_run(table, quick(), tmp_path, objective=centred))
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["fit"]["objective"] == "own"
    assert list(fit_run(table, quick(), tmp_path, objective=centred, resume=True))
    with pytest.raises(ValueError, match="objective: 'own' then, 'rnc' now"):
        list(fit_run(table, quick(), tmp_path, resume=True))


def test_the_estimator_takes_one() -> None:
    table = columns()
    estimator = clone(RnCRegressor(objective=centred, epochs=2, encoder="mlp", random_state=0))
    estimator.fit(table.x, table.y[:, 0])
    assert [record.stage for record in estimator.history_] == ["encoder", "encoder", "head"]
    assert estimator.history_[1].train_loss < estimator.history_[0].train_loss


def test_it_may_have_weights_of_its_own_elsewhere() -> None:
    """Only the encoder is trained: what else the function uses stays as it is."""
    scale = torch.ones((), requires_grad=True)

    def scaled(features: Tensor, targets: Tensor) -> Tensor:
        return scale * centred(features, targets)

    config = quick(objective="own")
    list(train(build_regressor(columns(), config), columns(), config, own=scaled))
    assert scale.item() == 1
