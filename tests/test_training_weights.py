"""Weights of rows in training: in every loss, in validation, and methods that refuse them."""

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from rnc import rnc_loss
from rnc.config import FitConfig
from rnc.data import Table
from rnc.heads import make_head
from rnc.heads.registry import HEADS
from rnc.methods.lds_fds import lds_weights
from rnc.methods.objective import BatchLabels, FeatureObjective, HeadObjective
from rnc.methods.simclr import ntxent_loss
from rnc.methods.supcon import supcon_loss
from rnc.metrics import mae
from rnc.model import Regressor
from rnc.training.batches import Batches
from rnc.training.probe import probe_error, solve_head
from rnc.training.recipes import build_regressor, train
from rnc.training.stages import SchemeRunner
from rnc.training.validation import Validation
from training_cases import END2END, columns, fit, quick, same, unnormalised, weights, whole


def weighted(table: Table, seed: int = 0, value: float | None = None) -> Table:
    drawn = np.random.default_rng(seed).exponential(size=len(table))
    return dataclasses.replace(table, weight=drawn if value is None else np.full(len(table), value))


def runner(table: Table, config: FitConfig) -> SchemeRunner:
    config = config.resolve(len(table.rows("train")), table.kind)
    return SchemeRunner(build_regressor(table, config, unnormalised()), table, config, None)


@pytest.mark.parametrize(
    "changes",
    [{}, END2END, {"scheme": "regularize", "rnc_weight": 0.5}, {"head_solver": "sgd"}],
    ids=str,
)
def test_equal_weights_are_no_weights_to_the_bit_and_others_are_not(changes: Any) -> None:
    table, config = columns(60), quick(epochs=1, head_epochs=1, **changes)
    plain, equal, other = (
        fit(one, config) for one in (table, weighted(table, value=0.3), weighted(table))
    )
    assert same(weights(plain[0]), weights(equal[0]))
    losses = [[r.train_loss for r in records] for _, records in (plain, equal)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)  # a head sums weighted losses in float64
    assert [r.gap for r in plain[1]] == [r.gap for r in equal[1]]
    assert not same(weights(plain[0].encoder), weights(other[0].encoder))
    assert [r.val_error for r in plain[1]] != [r.val_error for r in other[1]]


# ---------------------------------------------------------------------------------- losses


def test_a_batch_has_the_weights_of_its_rows() -> None:
    table = weighted(columns(60))
    assert table.weight is not None
    batches: Batches = runner(table, quick(lds=True, **END2END)).batches
    given = torch.tensor(table.weight[table.rows("train")])
    lds = lds_weights(torch.tensor(table.y[table.rows("train")]))
    picked = next(batches.epoch("end2end", 1, batch_size=16, views=0, drop_last=True))
    batch = batches.make(picked)
    assert batch.sample_weights is not None
    assert batch.weights is not None
    rows = picked.rows
    torch.testing.assert_close(batch.sample_weights, (given / given.mean())[rows])
    both = given * lds
    torch.testing.assert_close(batch.weights, (both / both.mean())[rows])
    torch.testing.assert_close(batch.all_weights, batch.sample_weights)


@pytest.mark.parametrize("loss", [rnc_loss, supcon_loss])
def test_objectives_hand_weights_to_their_loss(loss: Any) -> None:
    views, targets = torch.randn(8, 2, 4), torch.randint(0, 3, (8, 1)).double()
    given = torch.rand(8)
    objective = FeatureObjective(unnormalised(), loss)
    features = objective.features(views)
    found = objective(views, BatchLabels(targets, None, given))
    each = loss(features, targets, reduction="none")
    torch.testing.assert_close(found, ((given[:, None] * each).sum() / (2 * given.sum())).float())


def test_simclr_weighs_its_anchors() -> None:
    features = torch.randn(5, 2, 4)
    given = torch.tensor([0.0, 1, 2, 3, 4])
    first = [ntxent_loss(features, weights=one) for one in torch.eye(5)]
    expected = (given * torch.stack(first)).sum() / given.sum()
    torch.testing.assert_close(ntxent_loss(features, weights=given), expected)


@pytest.mark.parametrize("name", HEADS)
def test_the_loss_of_every_head_is_weighted(name: str) -> None:
    torch.manual_seed(0)
    targets = torch.arange(12.0).double()[:, None] + 1
    head, views = make_head(name, 4, targets), torch.randn(12, 1, 4)
    given = torch.rand(12).double()
    losses = head.loss(head(views[:, 0]), targets)
    for is_weighted in (True, False):
        objective = HeadObjective(nn.Identity(), head, weighted=is_weighted)
        other = None if is_weighted else torch.full((12,), 9.0)  # that of LDS, which does not count
        found = objective(views, BatchLabels(targets, given if is_weighted else other, given))
        torch.testing.assert_close(found.double(), (given * losses).mean().double())


# ------------------------------------------------------------------------------ validation


def test_validation_errors_are_weighted() -> None:
    table = weighted(columns(60))
    assert table.weight is not None
    model = build_regressor(table, quick(), unnormalised())
    rows = table.rows("val")
    validation: Validation = runner(table, quick()).validation
    predicted = validation.model.predict_prepared(table.x, rows=rows)
    expected = mae(predicted, table.y[rows], weights=table.weight[rows])
    assert validation.model_error() == pytest.approx(expected)
    features, targets = validation.embedded(rows)
    assert validation.head_error(features, targets) == pytest.approx(expected, rel=1e-5)
    assert isinstance(model, Regressor)


def noisy(n: int = 60) -> tuple[Tensor, Tensor]:
    features = torch.randn(n, 20)
    return features, (features[:, :1] + torch.randn(n, 1)).double()


def test_a_solved_head_is_chosen_by_the_weighted_error() -> None:
    (features, targets), (val, val_targets) = noisy(), noisy()
    first = torch.arange(60) < 30  # the others weigh nothing
    found = []
    for rows, given in ((first, None), (first | True, first.double())):
        head = make_head("mse", 20, targets)
        options: Any = {"val_weights": given, "balance": None}
        fitted = solve_head(head, features, targets, val[rows], val_targets[rows], **options)
        found.append((fitted.error, fitted.penalty))
    assert found[0] == pytest.approx(found[1])


def test_a_quick_probe_counts_whole_weights_as_repeated_rows() -> None:
    (features, targets), (val, val_targets) = noisy(), noisy()
    counts, val_counts = torch.randint(0, 3, (60,)), torch.randint(0, 3, (60,))
    again = [rows.repeat_interleave(counts, 0) for rows in (features, targets)]
    again += [rows.repeat_interleave(val_counts, 0) for rows in (val, val_targets)]
    expected = probe_error(*again)
    given = (counts.double(), val_counts.double())
    assert probe_error(features, targets, val, val_targets, mae, *given) == pytest.approx(expected)


# -------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("changes", "who"),
    [
        ({"objective": "dino", "views": 2}, "objective dino"),
        ({"regularizer": "ranksim", **END2END}, "regularizer ranksim"),
        ({"regularizer": "ordinal-entropy", **END2END}, "regularizer ordinal-entropy"),
        ({"regularizer": "fds", **END2END}, "regularizer fds"),
        ({"c_mixup": True, **END2END}, "c_mixup"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_methods_without_a_place_for_weights_say_so(changes: Any, who: str) -> None:
    table = weighted(whole(columns(60)))
    model = build_regressor(table, quick(), unnormalised())
    with pytest.raises(ValueError, match=rf"^{who} cannot weigh samples.*objective rnc, supcon"):
        next(train(model, table, quick(**changes)))


def test_a_function_of_ones_own_cannot_weigh() -> None:
    table = weighted(columns(60))
    config = quick(objective="own")
    model = build_regressor(table, config, unnormalised())
    with pytest.raises(ValueError, match="objective own cannot weigh samples"):
        next(train(model, table, config, own=lambda features, targets: features.sum()))
