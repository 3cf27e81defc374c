"""Regressor: predictions from raw samples, and the same ones after saving and loading."""

import copy
import dataclasses
import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from rnc.data import Table
from rnc.heads import head_config
from rnc.model import Regressor, read_config
from rnc.training.recipes import build_regressor
from training_cases import columns, images, normalised, quick, same, signals, weights

CASES: dict[str, tuple[Callable[[], Table], dict[str, Any]]] = {
    "table": (columns, {"encoder": "mlp"}),
    "two targets": (lambda: columns(targets=2), {"encoder": "mlp", "head": "dldl"}),
    "signal": (signals, {"encoder": "resnet1d10"}),
    "whole signal": (signals, {"encoder": "resnet1d10", "crop": False}),
    "image": (images, {"encoder": "small-cnn", "image_size": 16, "head": "corn"}),
    "grey image": (lambda: images(channels=1), {"encoder": "auto", "color": False}),
}


def model_of(table: Table, own: nn.Module | None = None, **changes: Any) -> Regressor:
    """A model whose running statistics are not those of a new one."""
    model = build_regressor(table, quick(**changes), own)
    model.train()
    for _ in range(3):
        model.features(torch.randn(8, *model.config.input_shape))
    return model


@pytest.mark.parametrize("case", CASES)
def test_a_saved_model_predicts_the_same(case: str, tmp_path: Path) -> None:
    make, changes = CASES[case]
    table = make()
    model = model_of(table, **changes)
    model.save(tmp_path, {"fit": {"seed": 3}})
    torch.manual_seed(99)
    loaded = Regressor.load(tmp_path)
    assert np.array_equal(loaded.predict_prepared(table.x), model.predict_prepared(table.x))
    assert np.array_equal(loaded.embed_prepared(table.x), model.embed_prepared(table.x))
    assert not loaded.training
    assert loaded.augment == model.augment
    assert loaded.head.config == model.head.config
    assert loaded.config.target_names == table.target_names
    assert loaded.config.preprocessing == table.preprocessing
    assert read_config(tmp_path)["fit"] == {"seed": 3}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [({}, (0.2, 1.0)), ({"crop_scale": 0.6}, (0.6, 1.0)), ({"crop": False}, None)],
)
def test_the_config_says_how_small_a_crop_may_be(changes: dict[str, Any], expected: Any) -> None:
    model = build_regressor(images(), quick(encoder="small-cnn", **changes))
    assert model.augment.crop_scale == expected


def test_predictions_have_the_units_and_number_of_the_targets() -> None:
    table = columns(targets=2)
    model = model_of(table)
    assert model.predict_prepared(table.x).shape == (120, 2)
    assert model.embed_prepared(table.x).shape == (120, 256)
    with torch.no_grad():
        model.head.linear.weight.zero_()
        model.head.linear.bias.zero_()
    means = table.y[table.rows("train")].mean(axis=0)
    np.testing.assert_allclose(model.predict_prepared(table.x[:1])[0], means)


def test_bins_are_those_of_the_config() -> None:
    table = columns()
    given = build_regressor(table, quick(head="dex", low=-100.0, high=100.0, step=5.0)).head.config
    assert (given.shift, given.scale, given.bins) == ((-100.0,), (5.0,), (41,))
    usual = build_regressor(table, quick(head="dex")).head.config
    assert usual.shift == (table.y[table.rows("train")].min(),)


def test_predictions_do_not_depend_on_the_batch() -> None:
    table = images()
    model = model_of(table, **CASES["image"][1])
    one_by_one = np.concatenate([model.predict_prepared(table.x[i : i + 1]) for i in range(5)])
    np.testing.assert_allclose(
        model.predict_prepared(table.x[:5], batch_size=2), one_by_one, rtol=1e-5
    )


@pytest.mark.parametrize("method", ["predict_prepared", "embed_prepared"])
def test_predicting_leaves_modes_and_statistics_as_they_are(method: str) -> None:
    table = columns()
    model = model_of(table, normalised())
    model.train()
    model.encoder[1].eval()  # a part that its owner froze
    before, modes = weights(model), [module.training for module in model.modules()]
    getattr(model, method)(table.x)
    with pytest.raises(RuntimeError):
        getattr(model, method)(table.x[:, :3])
    assert [module.training for module in model.modules()] == modes
    assert same(weights(model), before)


def test_dropout_and_noise_are_off_in_predictions() -> None:
    table = columns()
    model = model_of(table, normalised())
    assert np.array_equal(model.predict_prepared(table.x), model.predict_prepared(table.x))
    assert not torch.equal(*(model.features(torch.ones(4, 4)) for _ in range(2)))


def test_nothing_to_predict_is_said() -> None:
    table = columns()
    with pytest.raises(ValueError, match=r"nothing to predict: got 0 samples\."):
        model_of(table).predict_prepared(table.x[:0])


# ----------------------------------------------------------------------------------- signals


def test_signals_are_standardised_by_their_training_rows() -> None:
    table = signals()
    train = table.rows("train")
    x = table.x.copy()
    x[table.rows("test")] = 1e6
    x[:, 1] = np.where(np.isin(np.arange(len(x)), train)[:, None], 7.0, x[:, 1])
    model = build_regressor(dataclasses.replace(table, x=x), quick(encoder="resnet1d10"))
    raw = torch.tensor(x[train])
    first, constant = model.standardise(raw).unbind(1)
    torch.testing.assert_close(first.mean(), torch.tensor(0.0), atol=1e-5, rtol=0)
    torch.testing.assert_close(first.std(), torch.tensor(1.0), atol=1e-3, rtol=0)
    assert not constant.any()


def test_the_unit_of_a_signal_does_not_matter() -> None:
    table = signals()
    factor, offset = np.float32([[1000.0], [0.25]]), np.float32([[2.0], [-40.0]])
    other = dataclasses.replace(table, x=table.x * factor + offset)
    config = quick(encoder="resnet1d10")
    a, b = (build_regressor(t, config).predict_prepared(t.x) for t in (table, other))
    np.testing.assert_allclose(a, b, rtol=1e-3)


@pytest.mark.parametrize("make", [columns, images])
def test_other_inputs_are_not_standardised_again(make: Callable[[], Table]) -> None:
    table = make()
    model = build_regressor(table, quick(encoder="auto"))
    raw = torch.tensor(table.x)
    assert model.standardise(raw) is raw


# ----------------------------------------------------------------------------------- folders


def test_an_encoder_of_your_own_is_passed_again(tmp_path: Path) -> None:
    table = columns()
    model = model_of(table, normalised())
    model.save(tmp_path)
    with pytest.raises(ValueError, match=r"an encoder of your own.*as encoder=\."):
        Regressor.load(tmp_path)
    loaded = Regressor.load(tmp_path, encoder=normalised())
    assert np.array_equal(loaded.predict_prepared(table.x), model.predict_prepared(table.x))


def test_a_new_head_is_saved_as_what_it_is(tmp_path: Path) -> None:
    table = columns()
    model = model_of(table)
    before = model.embed_prepared(table.x)
    model.replace_head(head_config("corn", model.head.config.d, table.y.round()))
    model.save(tmp_path)
    loaded = Regressor.load(tmp_path)
    assert loaded.head.config.name == loaded.config.head["name"] == "corn"
    assert np.array_equal(loaded.predict_prepared(table.x), model.predict_prepared(table.x))
    assert np.array_equal(loaded.embed_prepared(table.x), before)


def test_a_folder_of_another_version_is_refused(tmp_path: Path) -> None:
    model_of(columns()).save(tmp_path)
    path = tmp_path / "config.json"
    for version in (3, None):
        path.write_text(json.dumps(json.loads(path.read_text()) | {"format": version}))
        with pytest.raises(
            ValueError, match=rf"config\.json has format {version}, this .*reads 1 to 2\."
        ):
            Regressor.load(tmp_path)


def test_a_folder_of_the_first_version_is_read(tmp_path: Path) -> None:
    table = columns()
    model = model_of(table, head="huber", head_options={"beta": 0.5})
    model.save(tmp_path)
    path = tmp_path / "config.json"
    content = json.loads(path.read_text())
    head = content["model"]["head"]
    del head["options"]  # each option was a field, also of heads that did not have it
    first = {"beta": 0.5, "sigma": 2.0, "alpha": 1.0, "decode": "mean", "original": False}
    content["model"]["head"] = head | first
    path.write_text(json.dumps(content | {"format": 1}))
    loaded = Regressor.load(tmp_path)
    assert loaded.head.config == model.head.config
    assert np.array_equal(loaded.predict_prepared(table.x), model.predict_prepared(table.x))


def test_an_unfinished_run_says_how_to_go_on(tmp_path: Path) -> None:
    model_of(columns()).save_config(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"no model\.safetensors.*not finished.*rnc resume"):
        Regressor.load(tmp_path)


def test_a_folder_without_a_run_says_what_it_holds(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    with pytest.raises(FileNotFoundError, match=r"needs a config\.json; got \['notes\.txt'\]\."):
        Regressor.load(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"needs a config\.json; got no such folder\."):
        Regressor.load(tmp_path / "typo")


def test_a_full_disk_while_saving_keeps_the_old_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = columns()
    model = model_of(table)
    model.save(tmp_path)
    before = model.predict_prepared(table.x)
    changed = copy.deepcopy(model)
    torch.nn.init.zeros_(changed.head.linear.weight)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(errno.ENOSPC, "full")))
        with pytest.raises(OSError, match="full"):
            changed.save(tmp_path)
    assert np.array_equal(Regressor.load(tmp_path).predict_prepared(table.x), before)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.json", "model.safetensors"]
