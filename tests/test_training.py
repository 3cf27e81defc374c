"""Recipes: what each scheme trains, keeps, leaves unchanged and refuses."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from golden import golden_cases
from rnc import rnc_loss
from rnc.data import Table
from rnc.heads.registry import HEADS
from rnc.loss.theory import lower_bound
from rnc.metrics import angular_error, mae
from rnc.model import Regressor
from rnc.training import loop
from rnc.training.optimizers import learning_rate, make_optimizer
from rnc.training.recipes import AUTO, build_regressor, train
from rnc.training.record import Record
from training_cases import (
    Overflowing,
    columns,
    fit,
    images,
    normalised,
    quick,
    same,
    signals,
    unnormalised,
    weights,
)

SCHEMES: dict[str, dict[str, Any]] = {
    "probe, exact head": {"scheme": "probe"},
    "probe, head by steps": {"scheme": "probe", "head_solver": "sgd", "head_epochs": 8},
    "probe by momentum": {"optimizer": "sgd", "lr": 0.05, "head_lr": 0.2, "head_solver": "sgd"},
    "finetune": {"scheme": "finetune"},
    "regularize": {"scheme": "regularize"},
    "end2end": {"scheme": "end2end"},
    "auto": {"scheme": "auto"},
}


def val_error(model: Regressor, table: Table, measure: Callable[..., float] = mae) -> float:
    rows = table.rows("val")
    return measure(model.predict_prepared(table.x[rows]), table.y[rows])


def with_split(train_rows: int, val_rows: int) -> Table:
    split = np.array(["train"] * train_rows + ["val"] * val_rows + ["test"] * 4)
    return dataclasses.replace(columns(rows=len(split)), split=split)


def test_learning_rates_are_those_of_the_released_code() -> None:
    cases = golden_cases("rnc_lr_schedule")
    assert len(cases) >= 3
    for case in cases:
        rates = [
            learning_rate(epoch, case["epochs"], case["learning_rate"], case["lr_decay_rate"])
            for epoch in range(1, case["epochs"] + 1)
        ]
        np.testing.assert_allclose(rates, case["lr_at_epoch_1_to_E"], rtol=1e-9)


@pytest.mark.parametrize("name", SCHEMES)
def test_every_scheme_learns(name: str) -> None:
    table = columns(rows=300)
    model, _ = fit(table, quick(epochs=4, **SCHEMES[name]))
    test, median = table.rows("test"), np.median(table.y[table.rows("train")])
    assert (
        mae(model.predict_prepared(table.x[test]), table.y[test])
        < 0.5 * np.abs(table.y[test] - median).mean()
    )


@pytest.mark.parametrize("head", HEADS)
def test_every_head_trains(head: str) -> None:
    table = columns(rows=40)
    table = dataclasses.replace(table, y=table.y.round())
    for scheme in ("end2end", "probe"):
        model, records = fit(table, quick(scheme=scheme, head=head, epochs=1), unnormalised())
        assert np.isfinite(records[-1].train_loss)
        assert records[-1].val_error == pytest.approx(val_error(model, table), rel=1e-4)


# --------------------------------------------------------------------- what is minimised


@pytest.mark.parametrize("scheme", ["probe", "end2end", "regularize"])
def test_the_loss_is_what_the_scheme_says(scheme: str) -> None:
    """One step over all rows, so that the loss of the epoch is that of the first weights."""
    table = columns(rows=40)
    train_rows = table.rows("train")
    config = quick(scheme=scheme, epochs=1, batch_size=len(train_rows), views=0, rnc_weight=0.3)
    model = build_regressor(table, config)
    features = torch.tensor(model.embed_prepared(table.x[train_rows]))
    targets = torch.tensor(table.y[train_rows])
    with torch.no_grad():
        supervised = float(model.head.loss(model.head(features), targets).mean())
    contrast = float(rnc_loss(features, targets, temperature=2.0))
    record = next(iter(train(model, table, config)))
    expected = {"probe": contrast, "end2end": supervised, "regularize": supervised + 0.3 * contrast}
    assert record.train_loss == pytest.approx(expected[scheme], rel=1e-5)
    if scheme == "probe":
        assert record.gap == pytest.approx(contrast - float(lower_bound(targets)), rel=1e-5)
    else:
        assert record.gap is None


def test_the_loss_of_an_epoch_is_the_mean_over_its_samples() -> None:
    table = columns(rows=40)  # 28 to train: batches of 16 and 12
    config = quick(scheme="end2end", epochs=1, views=0, lr=1e-12)
    model, records = fit(table, config)
    rows = table.rows("train")
    with torch.no_grad():
        outputs = model.head(torch.tensor(model.embed_prepared(table.x[rows])))
        expected = float(model.head.loss(outputs, torch.tensor(table.y[rows])).mean())
    assert records[0].train_loss == pytest.approx(expected, rel=1e-5)


def test_two_small_steps_accumulate_to_one_large_step() -> None:
    table = with_split(64, 8)
    config = quick(scheme="end2end", optimizer="sgd", lr=0.1, views=0)
    large, _ = fit(table, dataclasses.replace(config, batch_size=32))
    small, _ = fit(table, dataclasses.replace(config, batch_size=16, accumulate=2))
    other, _ = fit(table, dataclasses.replace(config, batch_size=16))
    a, b, c = (torch.cat([p.flatten() for p in m.parameters()]) for m in (large, small, other))
    torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
    assert (a - c).abs().max() > 1e-3


def test_clip_bounds_the_step() -> None:
    table = columns(rows=40)
    n = len(table.rows("train"))
    moved = []
    for clip in (None, 1e-3):
        config = quick(
            scheme="end2end",
            optimizer="sgd",
            epochs=1,
            batch_size=n,
            lr=0.1,
            lr_decay=1.0,
            weight_decay=0.0,
            clip=clip,
        )
        model = build_regressor(table, config)
        before = torch.cat([p.detach().flatten().clone() for p in model.parameters()])
        list(train(model, table, config))
        after = torch.cat([p.detach().flatten() for p in model.parameters()])
        moved.append(float((after - before).norm()))
    assert moved[0] > 1e-2
    assert moved[1] == pytest.approx(0.1 * 1e-3, rel=1e-2)


def test_sgd_has_the_momentum_of_the_released_code() -> None:
    weight = torch.nn.Parameter(torch.zeros(1, dtype=torch.float64))
    optimizer, places = make_optimizer("sgd", [weight], 0.1, 0.0), []
    for _ in range(3):
        weight.grad = torch.ones_like(weight)
        optimizer.step()
        places.append(weight.item())
    assert places == pytest.approx([-0.1, -0.1 - 0.19, -0.1 - 0.19 - 0.271])


def test_records_say_where_training_is() -> None:
    table = columns(rows=40)
    _, records = fit(table, quick(head_solver="sgd", epochs=3, lr=0.01, head_lr=0.02))
    assert [(r.stage, r.epoch, r.epochs) for r in records] == [
        *(("encoder", i, 3) for i in (1, 2, 3)),
        *(("head", i, 2) for i in (1, 2)),
    ]
    assert [r.lr for r in records] == [
        *(learning_rate(i, 3, 0.01, 0.1) for i in (1, 2, 3)),
        *(learning_rate(i, 2, 0.02, 0.2) for i in (1, 2)),
    ]
    assert not any(r.val_error is None for r in records)
    assert all(r.seconds > 0 for r in records)


# -------------------------------------------------------------- what moves and what stays


@pytest.mark.parametrize("solver", ["exact", "sgd"])
def test_the_head_stage_leaves_the_encoder_alone(solver: str) -> None:
    table = columns()
    config = quick(head_solver=solver)
    model = build_regressor(table, config, normalised())
    first = weights(model)
    encoders, heads = [weights(model.encoder)], [weights(model.head)]
    for record in train(model, table, config):
        if (record.stage, record.epoch) == ("encoder", config.epochs):
            assert not same(weights(model.encoder), encoders[0])
            assert same(weights(model.head), heads[0])
            encoders.append(weights(model.encoder))
    assert len(encoders) == 2
    assert same(weights(model.encoder), encoders[1])
    assert not same(weights(model.head), heads[0])
    assert first["encoder.1.num_batches_tracked"] == 0 < encoders[1]["1.num_batches_tracked"]
    assert all(parameter.requires_grad for parameter in model.parameters())


@pytest.mark.parametrize("scheme", ["finetune", "end2end", "regularize"])
def test_other_schemes_train_all_of_it(scheme: str) -> None:
    table = columns()
    model = build_regressor(table, quick(scheme=scheme), normalised())
    seen = [weights(model) for r in train(model, table, quick(scheme=scheme)) if r.stage == scheme]
    assert len(seen) == 2 + (scheme == "finetune")  # with its start
    moved = {name for name in seen[-1] if not torch.equal(seen[-2][name], seen[-1][name])}
    assert moved == {name for name in seen[-1] if not name.startswith("input_")}
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_the_best_validation_weights_remain() -> None:
    table = columns()
    for scheme in ("end2end", "regularize"):
        config = quick(scheme=scheme, epochs=6, lr=0.02, lr_decay=1.0)
        model, records = fit(table, config)
        errors = [record.val_error for record in records]
        assert min(errors) < 0.99 * errors[-1]
        assert val_error(model, table) == pytest.approx(min(errors), rel=1e-9)


def test_auto_keeps_the_best_scheme_and_shares_one_encoder() -> None:
    table = columns()
    config = quick(scheme="auto", epochs=3)
    model, records = fit(table, config)
    stages = list(dict.fromkeys(record.stage for record in records))
    assert stages == ["end2end/end2end", "encoder", "probe/head", "finetune/finetune"]
    assert [r.epoch for r in records if r.stage == "encoder"] == [1, 2, 3]
    got = {
        scheme: min(r.val_error for r in records if r.stage.startswith(f"{scheme}/"))
        for scheme in AUTO
    }
    assert max(got.values()) > 1.1 * min(got.values())
    assert val_error(model, table) == pytest.approx(min(got.values()), rel=1e-4)
    _, alone = fit(table, dataclasses.replace(config, scheme="probe"))
    shared = [r for r in records if r.stage in ("encoder", "probe/head")]
    assert [timeless(r) | {"stage": ""} for r in shared] == [
        timeless(r) | {"stage": ""} for r in alone
    ]


def timeless(record: Record) -> dict[str, Any]:
    return dataclasses.asdict(record) | {"seconds": 0}


TOUCHED: dict[str, tuple[Callable[[], Table], dict[str, Any]]] = {
    "table": (columns, {"scheme": "auto"}),
    "signal": (signals, {"encoder": "resnet1d10", "epochs": 1}),
    "image": (images, {"encoder": "small-cnn", "epochs": 1}),
}


@pytest.mark.parametrize("kind", TOUCHED)
def test_the_test_rows_are_not_touched(kind: str) -> None:
    make, changes = TOUCHED[kind]
    own = unnormalised if kind == "table" else lambda: None
    table = make()
    x, y, test = table.x.copy(), table.y.copy(), table.rows("test")
    x[test] = 255 if kind == "image" else np.nan
    y[test] = np.nan
    model, records = fit(table, quick(**changes), own())
    other, other_records = fit(dataclasses.replace(table, x=x, y=y), quick(**changes), own())
    assert same(weights(model), weights(other))
    assert [timeless(r) for r in records] == [timeless(r) for r in other_records]


def test_the_seed_decides_everything() -> None:
    table = columns()
    config = quick(scheme="regularize")
    once, twice = fit(table, config)[0], fit(table, config)[0]
    torch.manual_seed(5)
    other = fit(table, dataclasses.replace(config, seed=1))[0]
    assert same(weights(once), weights(twice))
    assert not same(weights(once), weights(other))


# ------------------------------------------------------------------------ what people bring


class Recorder(nn.Module):
    """An encoder that keeps the shapes of what it was trained on."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)
        self.seen: list[Tensor] = []

    def forward(self, rows: Tensor) -> Tensor:
        if self.training:
            self.seen.append(rows)
        return self.linear(rows)


@pytest.mark.parametrize("views", [0, 1, 2])
def test_views_are_what_the_encoder_sees(views: int) -> None:
    table = columns(rows=40)  # 28 to train, 16 at a time
    encoder = Recorder()
    fit(table, quick(views=views, epochs=1, head_epochs=0), encoder)
    (seen,) = encoder.seen  # the rest is dropped
    assert len(seen) == 16 * max(1, views)
    raw = torch.tensor(table.x[table.rows("train")])
    distance = torch.cdist(seen, raw, compute_mode="donot_use_mm_for_euclid_dist").min(dim=1)
    assert distance.values.max() < 0.5
    if views == 0:
        assert distance.values.max() < 1e-5
    else:
        assert distance.values.min() > 1e-4
        pairs = distance.indices.unflatten(0, (16, views))
        assert (pairs == pairs[:, :1]).all()
        assert len(seen.unique(dim=0)) == len(seen)
    encoder.seen.clear()
    fit(table, quick(scheme="end2end", views=views, epochs=1), encoder)
    more = max(1, views)  # times as many samples in a step, each of them as often in an epoch
    assert [len(batch) for batch in encoder.seen] == [16 * more, 12 * more]


@pytest.mark.parametrize("scheme", ["end2end", "probe"])
def test_gaze_is_validated_by_its_angle(scheme: str) -> None:
    table = columns(targets=2)
    model, records = fit(table, quick(scheme=scheme, label_distance="angular"))
    angle = val_error(model, table, angular_error)
    assert angle != pytest.approx(val_error(model, table), rel=0.05)
    errors = [r.val_error for r in records if r.val_error and r.stage != "encoder"]
    assert min(errors) == pytest.approx(angle, rel=1e-4)


@pytest.mark.parametrize("rows", [17, 18])
def test_a_last_batch_of_one_does_not_break_batch_normalisation(rows: int) -> None:
    table, config = with_split(rows, 8), quick(scheme="end2end", batch_size=8)
    model = build_regressor(table, config, normalised())
    steps = [int(model.encoder[1].num_batches_tracked) for _ in train(model, table, config)]
    assert steps == ([2, 4] if rows == 17 else [3, 6])  # two samples do have a variance


# ------------------------------------------------------------------------------- refusals


def test_fewer_rows_than_a_batch_are_refused() -> None:
    table = columns(rows=40)
    message = r"batch_size = 256 training rows; got 28\. Leave --batch-size out: it then follows"
    with pytest.raises(ValueError, match=message):
        fit(table, quick(batch_size=256))


def test_a_split_without_validation_rows_is_refused_before_training() -> None:
    table = columns(rows=40)
    table = dataclasses.replace(table, split=np.where(table.split == "val", "test", table.split))
    model = build_regressor(table, quick())
    with pytest.raises(ValueError, match=r"validation rows.*got 28 train, 0 val, 12 test"):
        next(iter(train(model, table, quick())))


def test_a_gpu_that_is_not_there_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(RuntimeError, match=r"device='cuda' .* no GPU\. Use --device cpu"):
        fit(columns(rows=40), quick(device="cuda"))


@pytest.mark.parametrize("scheme", ["probe", "end2end", "regularize"])
def test_a_loss_that_diverges_is_said_with_a_remedy(scheme: str) -> None:
    config = quick(scheme=scheme, optimizer="sgd", lr=1e38, epochs=3)
    with pytest.raises(
        FloatingPointError, match=r"loss of .* became nan in epoch .*--lr.*--clip 1"
    ):
        fit(columns(), config, unnormalised())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"scheme": "end2end"}, "validation error of stage 'end2end' became inf in epoch 1"),
        ({"head_solver": "exact"}, "loss of stage 'head' became inf in epoch 1"),
        ({"scheme": "finetune"}, "loss of stage 'finetune' became inf in epoch 1"),
    ],
)
def test_predictions_that_diverge_are_said_with_a_remedy(
    changes: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "QUICK_PROBES", 0.1)
    with pytest.raises(FloatingPointError, match=rf"{message}\..*--lr.*--clip 1"):
        fit(columns(rows=40), quick(**changes), Overflowing())
