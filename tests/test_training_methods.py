"""The methods that the paper compares with, trained by the recipes."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from rnc import RnCRegressor
from rnc.data import Table
from rnc.files import read_tensors
from rnc.methods.lds_fds import lds_weights
from rnc.metrics import circular_error, mae
from rnc.model import Regressor
from rnc.training.recipes import build_regressor, train
from training_cases import END2END, KINDS, columns, fit, quick, same, unnormalised, weights, whole

METHODS: dict[str, dict[str, Any]] = {
    "supcon": {"objective": "supcon"},
    "simclr": {"objective": "simclr"},
    "dino": {"objective": "dino"},
    "dino, finetuned": {"objective": "dino", "scheme": "finetune"},
    "ranksim": END2END | {"regularizer": "ranksim"},
    "ordinal entropy": END2END | {"regularizer": "ordinal-entropy"},
    "fds, lds": END2END | {"regularizer": "fds", "lds": True},
    "lds, exact head": {"lds": True},
    "lds, head by steps": {"lds": True, "head_solver": "sgd"},
    "c-mixup": END2END | {"c_mixup": True},
    "c-mixup, rnc": {"c_mixup": True},
    "two-stage": {"scheme": "two-stage", "head": "dex"},
    "two-stage, head by steps": {"scheme": "two-stage", "head": "dex", "head_solver": "sgd"},
}
ORIGINAL: dict[str, dict[str, Any]] = {
    "ranksim": END2END | {"regularizer": "ranksim"},
    "ordinal entropy": END2END | {"regularizer": "ordinal-entropy"},
    "fds": END2END | {"regularizer": "fds"},
    "lds": END2END | {"lds": True},
    "dldl": END2END | {"head": "dldl"},
    "l2cs": END2END | {"head": "l2cs"},
    "dino": {"objective": "dino"},
}


def val_error(model: Regressor, table: Table, measure: Any = mae) -> float:
    rows = table.rows("val")
    return float(measure(model.predict_prepared(table.x[rows]), table.y[rows]))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", METHODS)
def test_every_method_trains_on_every_kind_of_data(name: str, kind: str) -> None:
    make, encoder = KINDS[kind]
    table = make()
    model, records = fit(table, quick(encoder=encoder, **METHODS[name]))
    assert all(np.isfinite(record.train_loss) for record in records)
    errors = [record.val_error for record in records if record.stage == records[-1].stage]
    assert min(errors) == pytest.approx(val_error(model, table), rel=1e-4)
    plain = build_regressor(table, quick(encoder=encoder, head=model.head.config.name))
    assert model.state_dict().keys() == plain.state_dict().keys()  # nothing else is left in it


@pytest.mark.parametrize("name", ORIGINAL)
def test_every_method_trains_as_published_and_differs(name: str) -> None:
    table = columns() if name == "l2cs" else whole(columns())  # whose edges are whole numbers
    config = quick(epochs=4, batch_size=84, **ORIGINAL[name])
    ends = [
        fit(table, dataclasses.replace(config, original=original), unnormalised())[0]
        for original in (False, True)
    ]
    # Ordinal Entropy's differs where no label repeats, and only there: it is NaN.
    assert same(weights(ends[0]), weights(ends[1])) == (name == "ordinal entropy")
    assert all(np.isfinite(val_error(model, table)) for model in ends)


@pytest.mark.parametrize("name", [name for name in METHODS if "fds" not in name])
def test_angles_of_two_targets_train(name: str) -> None:
    table = columns(targets=2)
    config = quick(label_distance="angular", **METHODS[name])
    _, records = fit(table, config, unnormalised())
    assert all(np.isfinite(record.train_loss) for record in records)


def test_targets_on_a_circle_are_validated_on_it() -> None:
    table = columns()
    table = dataclasses.replace(table, y=table.y.round() % 24)
    model, records = fit(table, quick(label_distance="circular", period=24.0))
    error = val_error(model, table, lambda a, b: circular_error(a, b, period=24))
    assert error != pytest.approx(val_error(model, table), rel=0.02)
    assert records[-1].val_error == pytest.approx(error, rel=1e-4)
    _, records = fit(table, quick(label_distance="circular", period=24.0, c_mixup=True, **END2END))
    assert all(np.isfinite(record.train_loss) for record in records)


@pytest.mark.parametrize("solver", ["exact", "sgd", "end2end"])
def test_lds_weighs_the_samples_of_the_head(solver: str) -> None:
    """Rare targets are far off, and a large weight pulls the head towards them."""
    table = columns(rows=200)
    changes: dict[str, Any] = {"head_solver": solver, "head_epochs": 30}
    if solver == "end2end":
        changes = END2END | {"epochs": 3}
    train_rows = table.rows("train")
    rows = torch.tensor(table.y[train_rows])
    w = lds_weights(rows)
    rare = train_rows[(w > 1.5).numpy()]
    assert 3 < len(rare) < len(train_rows) / 4
    ends = [fit(table, quick(lds=lds, **changes), unnormalised())[0] for lds in (False, True)]
    plain, weighed = (mae(model.predict_prepared(table.x[rare]), table.y[rare]) for model in ends)
    assert weighed < plain


# -------------------------------------------------------------- what moves and what stays


def test_the_loop_moves_the_teacher_and_ends_an_epoch_of_fds() -> None:
    table = columns()
    model, _ = fit(table, quick(objective="dino", head_epochs=0), unnormalised())
    assert not same(weights(model.encoder), weights(unnormalised()))  # the teacher's, in the end
    config = quick(regularizer="fds", epochs=3, **END2END)
    _, calibrated = fit(table, config, unnormalised())
    _, plain = fit(table, dataclasses.replace(config, regularizer="none"), unnormalised())
    assert calibrated[0].train_loss == plain[0].train_loss
    assert calibrated[1].train_loss != pytest.approx(plain[1].train_loss, rel=1e-4)


def test_projections_are_in_checkpoints_and_not_in_the_model(tmp_path: Path) -> None:
    table, config = columns(), quick(objective="supcon", projection_size=5)
    model = build_regressor(table, config, unnormalised())
    run = train(model, table, config, tmp_path)
    next(run)
    run.close()
    kept = read_tensors(tmp_path / "checkpoint" / "last.safetensors")[0]
    assert kept["objective/projection.layers.2.weight"].shape == (5, 8)
    assert not any("projection" in name for name in model.state_dict())


def test_two_stage_refits_an_l1_head_on_the_encoder_of_end2end(tmp_path: Path) -> None:
    table = whole(columns())
    config = quick(scheme="end2end", head="dex", regularizer="ranksim", lds=True)
    first, _ = fit(table, config, unnormalised())
    two_stage = dataclasses.replace(config, scheme="two-stage")
    model, records = fit(table, two_stage, unnormalised())
    assert [record.stage for record in records] == ["end2end", "end2end", "head"]
    assert same(weights(model.encoder), weights(first.encoder))
    assert (first.head.config.name, model.head.config.name) == ("dex", "l1")
    model.save(tmp_path)
    loaded = Regressor.load(tmp_path, unnormalised())
    assert np.array_equal(loaded.predict_prepared(table.x), model.predict_prepared(table.x))
    # Samples count the same in the new head, whatever they did before.
    other = build_regressor(table, quick(), unnormalised())
    probe = quick(head_solver="exact", epochs=1, lr=1e-12)
    other.encoder.load_state_dict(first.encoder.state_dict())
    list(train(other, table, probe))
    np.testing.assert_allclose(
        other.predict_prepared(table.x), model.predict_prepared(table.x), atol=0.05
    )


def partly_frozen() -> nn.Module:
    encoder = unnormalised()
    encoder[0].requires_grad_(False)
    return encoder


@pytest.mark.parametrize("name", ["c-mixup, rnc", "dino, finetuned", "ranksim", "two-stage"])
def test_what_the_caller_froze_stays_frozen(name: str) -> None:
    table = columns()
    model, _ = fit(table, quick(**METHODS[name]), partly_frozen())
    assert same(weights(model.encoder[0]), weights(partly_frozen()[0]))
    assert not same(weights(model.encoder[2]), weights(partly_frozen()[2]))
    assert [p.requires_grad for p in model.encoder.parameters()] == [False, False, True]


def test_an_encoder_that_is_all_frozen_is_said() -> None:
    message = r"'encoder' has nothing to train: .*requires_grad=False\. Let some learn"
    with pytest.raises(ValueError, match=message):
        fit(columns(), quick(), unnormalised().requires_grad_(False))


# ------------------------------------------------------------------------------ bad input


def test_labels_that_are_all_distinct_leave_finite_losses() -> None:
    table = columns()  # as many labels as samples
    for changes in (
        {"objective": "supcon", "views": 1, "step": 0.02},  # no positive pair
        END2END | {"regularizer": "ranksim"},
        END2END | {"regularizer": "ordinal-entropy"},
        END2END | {"regularizer": "fds"},
        {"lds": True},
    ):
        _, records = fit(table, quick(**changes), unnormalised())
        assert all(np.isfinite(record.train_loss) for record in records), changes


def test_two_labels_leave_finite_losses_or_a_clear_error() -> None:
    table = columns()
    table = dataclasses.replace(table, y=(table.y > 0).astype(float) * 10)
    for changes in (
        {"objective": "supcon"},
        END2END | {"regularizer": "ranksim"},
        END2END | {"regularizer": "ordinal-entropy"},
        END2END | {"c_mixup": True},
        {"lds": True},  # nine bins in between are empty
        END2END | {"regularizer": "fds"},
    ):
        _, records = fit(table, quick(**changes), unnormalised())
        assert all(np.isfinite(record.train_loss) for record in records), changes
    with pytest.raises(ValueError, match=r"FDS needs one target and more bins than half of size=5"):
        fit(table, quick(regularizer="fds", step=10.0, **END2END), unnormalised())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"regularizer": "fds"},
            r"fds keeps .* one target.*got 2 targets\. Use regularizer ranksim",
        ),
        (
            {"regularizer": "ranksim", "original": True},
            r"ranksim as published has one target; got 2",
        ),
        ({"lds": True, "original": True}, r"lds .* one target; got 2 targets\. Leave --original"),
    ],
)
def test_what_takes_one_target_says_so_before_training(
    changes: dict[str, Any], message: str
) -> None:
    table = columns(targets=2)
    with pytest.raises(ValueError, match=message):
        fit(table, quick(**END2END, **changes))


def test_ordinal_entropy_as_published_needs_labels_that_repeat() -> None:
    config = quick(regularizer="ordinal-entropy", original=True, **END2END)
    with pytest.raises(
        ValueError, match=r"84 training targets that all differ.*Leave --original out"
    ):
        fit(columns(), config)


def test_ordinal_entropy_as_published_says_why_a_batch_has_no_value() -> None:
    table = columns()
    y = table.y.copy()
    y[table.rows("train")[:2]] = 1.0  # few batches will have both
    config = quick(regularizer="ordinal-entropy", original=True, batch_size=4, **END2END)
    message = (
        r"became nan in epoch 1\..*--lr.* Or leave --original out: .* without repeated targets"
    )
    with pytest.raises(FloatingPointError, match=message):
        fit(dataclasses.replace(table, y=y), config)


def test_lds_as_published_says_what_it_cannot_do_before_training() -> None:
    with pytest.raises(ValueError, match=r"one target >= 0; got 1 targets with minimum -"):
        fit(columns(), quick(lds=True, original=True, **END2END))


@pytest.mark.parametrize(
    "choice",
    [
        {"objective": "supcon"},
        {"objective": "dino", "prototypes": 16},
        {"scheme": "end2end", "regularizer": "fds", "lds": True, "c_mixup": True},
        {"scheme": "two-stage", "head": "dex"},
    ],
    ids=str,
)
def test_every_method_is_a_parameter_of_the_estimator(choice: dict[str, Any]) -> None:
    x = np.random.default_rng(0).normal(size=(60, 3))
    model = RnCRegressor(epochs=2, head_epochs=1, device="cpu", **choice)
    assert np.isfinite(model.fit(x, 5 * x[:, 0]).predict(x)).all()
