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
from rnc.training.partial_rows import partial_batches
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


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"objective": "supcon", "step": 20.0}, "objective supcon needs exact targets"),
        ({"scheme": "end2end"}, "a head's loss needs exact targets"),
        ({"scheme": "two-stage"}, "a head's loss needs exact targets"),
        ({"scheme": "regularize"}, "scheme regularize needs exact targets"),
    ],
)
def test_other_methods_leave_them_out_and_say_so(options: dict[str, Any], words: str) -> None:
    table = partly(columns())
    alone = without_partial(table)
    assert same(trained(alone, **options), trained(table, **options))
    (note,) = data_warnings(table, quick(**options))
    count = (table.split == PARTIAL).sum()
    assert note.startswith(f"{count} rows whose targets are missing or known in part are not used")
    assert words in note
    assert "objective rnc, simclr, dino trains its encoder on them" in note
    assert data_warnings(table, quick()) == data_warnings(alone, quick(**options)) == []


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


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"queue": 8}, "queue=8 keeps exact targets of earlier samples, and"),
        ({"positives": 3}, "positives=3 takes the nearest samples, and"),
        ({"c_mixup": True}, "c_mixup mixes targets, and"),
        (
            {"label_distance": "circular", "period": 360.0},
            "takes exact or missing labels; got an interval",
        ),
    ],
)
def test_what_needs_exact_targets_refuses_them(options: dict[str, Any], words: str) -> None:
    table, config = partly(columns()), quick(**options)
    with pytest.raises(ValueError, match=words):
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
