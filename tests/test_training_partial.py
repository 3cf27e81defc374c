"""Encoders that train on rows whose targets are missing or known in part."""

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch

from rnc.config.sizes import Sizes
from rnc.data import Table
from rnc.data.splits import PARTIAL
from rnc.methods.registry import OBJECTIVES
from rnc.run.enough import updates_per_epoch
from rnc.training.advice import data_warnings
from rnc.training.batches import Batches
from rnc.training.cost import planned_stages
from rnc.training.partial_rows import head_batches, partial_batches
from rnc.training.recipes import build_regressor, check_training
from training_cases import columns, fit, partly, quick, same, unnormalised


def without_partial(table: Table) -> Table:
    """The same with rows that are known in part in no split."""
    split = np.where(table.split == PARTIAL, "", table.split)
    return dataclasses.replace(table, split=split)


def trained(table: Table, **changes: Any) -> dict[str, torch.Tensor]:
    model, _ = fit(table, quick(**changes), unnormalised())
    return dict(model.state_dict())


def test_exact_ends_change_no_bit() -> None:
    table = columns()
    ends = dataclasses.replace(table, ends=np.stack([table.y, table.y], axis=-1))
    assert same(trained(table), trained(ends))


@pytest.mark.parametrize("objective", ["rnc", "simclr", "dino"])
def test_rows_known_in_part_train_the_encoder(objective: str) -> None:
    table = partly(columns())
    alone = trained(without_partial(table), objective=objective)
    assert not same(alone, trained(table, objective=objective))


USED_BY_HEADS: list[dict[str, Any]] = [
    {"scheme": "end2end", "head": head}
    for head in ("l1", "mse", "huber", "dex", "dldl", "or", "corn", "quantile", "gaussian")
]
USED_BY_HEADS += [
    {"scheme": "two-stage"},
    {"scheme": "regularize"},
    {"scheme": "finetune", "objective": "supcon", "step": 20.0},
    {"head_solver": "sgd", "objective": "simclr"},
    {"head_solver": "exact", "objective": "supcon", "step": 20.0},
]


@pytest.mark.parametrize("options", USED_BY_HEADS, ids=str)
def test_intervals_and_censored_targets_train_heads(options: dict[str, Any]) -> None:
    table = partly(columns())
    alone = without_partial(table)
    only_missing = np.where(np.isin(np.arange(len(table)), table.ranged_rows), "", table.split)
    missing = dataclasses.replace(table, split=only_missing)
    assert 0 < len(table.ranged_rows) < len(table.rows(PARTIAL))
    assert not same(trained(alone, **options), trained(table, **options))
    if options.get("objective") != "simclr":  # whose encoder sees the views of all rows
        assert same(trained(alone, **options), trained(missing, **options))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"lds": True, "step": 10.0}, "lds needs exact targets"),
        ({"c_mixup": True}, "c_mixup needs exact targets"),
        ({"regularizer": "ranksim"}, "regularizer ranksim needs exact targets"),
        ({"label_distance": "circular", "period": 360.0}, "label distance circular needs exact"),
    ],
)
def test_what_needs_exact_targets_leaves_them_out(options: dict[str, Any], words: str) -> None:
    table, options = partly(columns()), {"scheme": "end2end", **options}
    alone = without_partial(table)
    assert same(trained(alone, **options), trained(table, **options))
    (note,) = data_warnings(table, quick(**options))
    count = (table.split == PARTIAL).sum()
    assert note.startswith(f"{count} rows whose targets are missing or known in part are not used")
    assert words in note
    assert config_sizes(table, **options) == (len(table.rows("train")),) * 2


def test_a_user_hears_what_rows_known_in_part_do() -> None:
    table = partly(columns())
    partial, ranged = len(table.rows(PARTIAL)), len(table.ranged_rows)
    alone = without_partial(table)
    assert data_warnings(table, quick()) == data_warnings(alone, quick(scheme="end2end")) == []
    (note,) = data_warnings(table, quick(scheme="end2end"))
    assert note.startswith(f"{partial - ranged} rows without a target are not used")
    assert "auto with objective rnc, simclr, dino, without c_mixup" in note
    (note,) = data_warnings(table, quick(objective="supcon", step=20.0))
    assert note.startswith(f"{partial} rows whose targets are missing or known in part do not")
    assert f"objective supcon needs exact targets. {ranged} of them train the head" in note


def config_sizes(table: Table, **options: Any) -> tuple[int, int]:
    return quick(**options).trained(table.sizes)[:2]


def test_heads_and_encoders_count_their_own_rows() -> None:
    table = partly(columns())
    exact, partial = len(table.rows("train")), len(table.rows(PARTIAL))
    heads = exact + len(table.ranged_rows)
    assert config_sizes(table) == (heads, exact + partial)
    assert config_sizes(table, scheme="end2end") == (heads, heads)
    assert config_sizes(table, objective="supcon", step=20.0) == (heads, exact)


def test_a_head_learns_from_where_targets_are_censored() -> None:
    """Rows above 60 are censored: an exact head that sees them predicts more there."""
    table = columns(rows=200)
    train, low = table.rows("train"), np.quantile(table.y, 0.5)
    cut = train[table.y[train, 0] > low]
    ends = np.stack([table.y, table.y], axis=-1)
    ends[cut] = (low, np.inf)
    split, y = table.split.astype("<U11"), table.y.copy()
    split[cut], y[cut] = PARTIAL, np.nan
    censored = dataclasses.replace(table, split=split, y=y, ends=ends)
    errors = []
    for data in (without_partial(censored), censored):
        model, _ = fit(data, quick(scheme="end2end", epochs=15), unnormalised())
        errors.append(np.abs(model.predict_prepared(table.x[cut]) - table.y[cut]).mean())
    assert errors[1] < 0.9 * errors[0]


def test_auto_shares_one_encoder_and_fits_heads_on_labelled_rows() -> None:
    table = partly(columns())
    config = quick(scheme="auto", batch_size=None)
    _, records = fit(table, config, unnormalised())
    stages = planned_stages(config, table.sizes, "table")
    assert [(s.name, s.epochs) for s in stages] == [
        (r.stage, r.epochs) for r in records if r.epoch == r.epochs
    ]


def test_half_of_a_batch_or_more_has_exact_targets() -> None:
    table = partly(columns(rows=800))
    model = build_regressor(table, quick(), unnormalised())
    sizes, device = table.sizes, torch.device("cpu")
    batches = partial_batches(table, model, None, device=device)
    drawn = [0, 0]
    for picked in batches.epoch("encoder", 1, batch_size=64, views=1, drop_last=True):
        batch = batches.make(picked)
        assert batch.upper is not None
        drawn[0] += int((batch.targets == batch.upper).all(dim=1).sum())
        drawn[1] += len(batch.targets)
    assert len(batches) == sizes.encoder
    assert sizes.labelled / sizes.encoder < 0.45
    assert 0.48 < drawn[0] / drawn[1] < 0.52


def test_fewer_rows_known_in_part_than_exact_ones_come_once() -> None:
    table = partly(columns())
    kept = table.split.copy()
    kept[table.rows(PARTIAL)[5:]] = ""
    table = dataclasses.replace(table, split=kept)
    batches = partial_batches(
        table, build_regressor(table, quick()), None, device=torch.device("cpu")
    )
    (picked,) = batches.epoch("encoder", 1, batch_size=len(batches), views=1, drop_last=True)
    assert sorted(picked.rows.tolist()) == list(range(table.sizes.encoder))


def test_a_batch_has_the_ends_of_its_rows() -> None:
    table = partly(columns())
    model = build_regressor(table, quick(), unnormalised())
    batches = partial_batches(table, model, None, device=torch.device("cpu"))
    assert table.ends is not None
    for picked in batches.epoch("encoder", 1, batch_size=16, views=1, drop_last=False):
        batch, rows = batches.make(picked), batches.rows[picked.rows]
        assert batch.upper is not None
        np.testing.assert_array_equal(batch.targets, table.ends[rows, :, 0])
        np.testing.assert_array_equal(batch.upper, table.ends[rows, :, 1])
    assert Batches(table, model, device=torch.device("cpu")).upper is None


@pytest.mark.parametrize("option", [{"queue": 8}, {"positives": 3}, {"c_mixup": True}])
def test_options_that_need_exact_targets_keep_the_encoder_from_others(
    option: dict[str, Any],
) -> None:
    table, config = partly(columns()), quick(**option)
    (note,) = data_warnings(table, config)
    assert f": {next(iter(option))} needs exact targets." in note
    assert config.trained(table.sizes).encoder == table.sizes.labelled
    encoders = [
        {name: value for name, value in trained(rows, **option).items() if "encoder" in name}
        for rows in (table, without_partial(table))
    ]
    assert same(*encoders)


def test_intervals_on_a_circle_are_refused() -> None:
    table, config = partly(columns()), quick(label_distance="circular", period=360.0)
    assert table.ends is not None
    lower, upper = table.ends[:, 0].T
    first = table.names[(lower < upper) & (np.isfinite(lower) | np.isfinite(upper))][0]
    match = rf"takes exact or missing labels; got an interval in row {first}\."
    with pytest.raises(ValueError, match=match):
        check_training(build_regressor(table, config), table, config, None, None)
    check_training(build_regressor(table, config), without_partial(table), config, None, None)


def test_missing_targets_go_with_a_circle() -> None:
    table, config = partly(columns()), quick(label_distance="circular", period=360.0)
    assert table.ends is not None
    ends = np.where(np.isnan(table.y)[..., None], [-np.inf, np.inf], table.ends)
    table = dataclasses.replace(table, ends=ends)
    check_training(build_regressor(table, config), table, config, None, None)


def test_sizes_count_what_a_stage_sees() -> None:
    sizes, config = Sizes(labelled=250, encoder=12_208), quick(batch_size=None, scheme="finetune")
    resolved = config.resolve(sizes)
    assert resolved.batch_size == 256
    assert config.resolve(250) == quick(batch_size=16, scheme="finetune").resolve()
    encoder, finetune = planned_stages(config, sizes, "image")
    assert (encoder.steps, encoder.views) == (12_208 // 256, 2 * 12_208)
    assert (finetune.steps, finetune.views) == (8, 250)  # of 32
    assert updates_per_epoch(resolved, sizes, "encoder") == encoder.steps
    assert updates_per_epoch(resolved, sizes, "finetune") == finetune.steps
    supcon = quick(batch_size=None, objective="supcon")
    assert supcon.resolve(sizes) == supcon.resolve(250)
    assert [name for name, spec in OBJECTIVES.items() if spec.takes_partial] == [
        "rnc",
        "simclr",
        "dino",
    ]


def test_a_row_with_some_of_its_targets_trains_the_head_on_these() -> None:
    table = columns(targets=2)
    rows, ends, y = table.rows("train"), np.stack([table.y, table.y], axis=-1), table.y.copy()
    rest = rows[::2]
    split = table.split.astype("<U11")
    split[rest], y[rest, 1], ends[rest, 1] = PARTIAL, np.nan, (-np.inf, np.inf)
    table = dataclasses.replace(table, split=split, y=y, ends=ends)
    model = build_regressor(table, quick(), unnormalised())
    exact = Batches(table, model, device=torch.device("cpu"))
    batches = head_batches(table, model, quick(), exact, device=torch.device("cpu"))
    assert sorted(batches.rows) == sorted(rows)
    outputs = model.head(torch.randn(len(rows), model.head.config.d)).detach().requires_grad_()
    losses = model.head.loss(outputs, batches.targets, batches.upper)
    losses.sum().backward()
    assert outputs.grad is not None
    is_missing = torch.tensor(np.isin(batches.rows, rest))
    assert (outputs.grad[is_missing, 1] == 0).all()
    assert (outputs.grad[is_missing, 0] != 0).all()
    assert (outputs.grad[~is_missing] != 0).all()
