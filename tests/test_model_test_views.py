"""Test views: every way to predict takes the mean features of an image and its mirror image."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rnc.augment import eval_view
from rnc.data import Table
from rnc.metrics import mae
from rnc.model import Regressor
from rnc.run.export import export_onnx
from rnc.training.recipes import build_regressor, train
from test_run_export import metadata_of, needs_onnx, session_of
from training_cases import columns, images, quick, signals

SMALL: dict[str, Any] = {"encoder": "small-cnn", "image_size": 16, "head": "dldl"}


def slanted() -> Table:
    """Images that differ from their mirror images."""
    table = images()
    slope = np.linspace(0, 30, table.x.shape[-1]).astype(np.uint8)
    return dataclasses.replace(table, x=table.x // 2 + slope)


def with_views(model: Regressor, test_views: str) -> Regressor:
    """The same model with other test views."""
    model.config = dataclasses.replace(model.config, test_views=test_views)
    return model


def mirror_model(table: Table) -> Regressor:
    model = build_regressor(table, quick(**SMALL, test_views="mirror"))
    with torch.no_grad():
        model.head.linear.weight.mul_(10)  # so that predictions differ
    return model.eval()


def test_the_head_sees_the_mean_of_an_image_and_its_mirror_image() -> None:
    table = slanted()
    model = mirror_model(table)
    embedded = model.embed_prepared(table.x[:9], batch_size=4)
    predicted = model.predict_prepared(table.x[:9], batch_size=4)
    for i in range(9):
        view = eval_view(torch.tensor(table.x[i : i + 1]), model.augment)
        backwards = torch.tensor(view.numpy()[..., ::-1].copy())
        with torch.no_grad():
            one, other = model.encoder(view), model.encoder(backwards)
            expected = model.head.decode(model.head((one + other) / 2))
        np.testing.assert_allclose(embedded[i], ((one + other) / 2)[0], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(predicted[i], expected[0], rtol=1e-5)
        assert (one - other).abs().max() > 1e-3


def test_a_mirror_image_has_the_same_prediction_only_with_mirror() -> None:
    table = slanted()
    model, mirrored = mirror_model(table), table.x[..., ::-1].copy()
    here, there = model.predict_prepared(table.x), model.predict_prepared(mirrored)
    np.testing.assert_allclose(here, there, rtol=1e-5)
    with_views(model, "plain")
    assert np.abs(model.predict_prepared(table.x) - model.predict_prepared(mirrored)).max() > 1e-3


def test_plain_is_the_encoder_and_the_head_to_the_last_bit() -> None:
    table = slanted()
    model = with_views(mirror_model(table), "plain")
    with torch.no_grad():
        features = model.encoder(eval_view(torch.tensor(table.x), model.augment))
        predictions = model.head.decode(model.head(features))
    assert np.array_equal(model.embed_prepared(table.x), features.numpy())
    assert np.array_equal(model.predict_prepared(table.x), predictions.numpy())


def test_test_views_are_saved_and_an_older_folder_has_plain_ones(tmp_path: Path) -> None:
    table = slanted()
    model = mirror_model(table)
    model.save(tmp_path)
    loaded = Regressor.load(tmp_path)
    assert loaded.config.test_views == "mirror"
    assert np.array_equal(loaded.predict_prepared(table.x), model.predict_prepared(table.x))
    path = tmp_path / "config.json"
    content = json.loads(path.read_text())
    del content["model"]["test_views"]
    for name in ("erase", "erase_sides"):
        del content["model"]["augment"][name]
    path.write_text(json.dumps(content))
    older = Regressor.load(tmp_path)
    assert older.config.test_views == "plain"
    plain = with_views(model, "plain").predict_prepared(table.x)
    assert np.array_equal(older.predict_prepared(table.x), plain)


@pytest.mark.parametrize("make", [columns, signals])
def test_only_images_have_mirror_images(make: Any) -> None:
    table = make()
    advice = rf"got data of kind {table.kind}\. Use test_views='plain', or leave it out"
    with pytest.raises(ValueError, match=advice):
        build_regressor(table, quick(encoder="auto", test_views="mirror"))
    config = build_regressor(table, quick(encoder="auto", preset="best")).config
    assert config.test_views == "plain"
    with pytest.raises(ValueError, match=r"test_views must be one of plain, mirror; got 'five'"):
        dataclasses.replace(config, test_views="five")


def trained(solver: str, test_views: str) -> tuple[list[tuple[float, float | None]], Regressor]:
    """Losses and validation errors of the head, and the model."""
    table, changes = slanted(), {"head": "mse", "head_solver": solver, "test_views": test_views}
    config = quick(**SMALL | changes)
    model = build_regressor(table, config)
    records = [record for record in train(model, table, config) if record.stage == "head"]
    return [(record.train_loss, record.val_error) for record in records], model


def test_a_head_by_sgd_trains_on_single_views_and_is_chosen_by_their_mean() -> None:
    (plain, _), (mirror, _) = trained("sgd", "plain"), trained("sgd", "mirror")
    assert [loss for loss, _ in plain] == [loss for loss, _ in mirror]
    assert all(a != b for (_, a), (_, b) in zip(plain, mirror, strict=True))


def test_a_solved_head_is_solved_on_the_mean_of_the_views() -> None:
    [(loss, error)], model = trained("exact", "mirror")
    table = slanted()

    def measured() -> tuple[float, float]:
        """The training loss and the validation error of the model as it is."""
        train, val = table.rows("train"), table.rows("val")
        with torch.no_grad():
            outputs = model.head(torch.tensor(model.embed_prepared(table.x[train])))
            losses = model.head.loss(outputs, torch.tensor(table.y[train]))
        return float(losses.mean()), mae(model.predict_prepared(table.x[val]), table.y[val])

    np.testing.assert_allclose(measured(), (loss, error), rtol=1e-3)
    with_views(model, "plain")
    assert all(abs(a - b) > 0.01 * b for a, b in zip(measured(), (loss, error), strict=True))


@needs_onnx
def test_the_onnx_graph_mirrors_its_inputs_itself(tmp_path: Path) -> None:
    table = slanted()
    model = mirror_model(table)
    export_onnx(model, tmp_path / "m.onnx")
    session = session_of(tmp_path / "m.onnx")
    assert [x.shape for x in session.get_inputs()] == [["n", 3, 16, 16]]
    for n in (1, 5):
        view = eval_view(torch.tensor(table.x[:n]), model.augment).numpy()
        predictions, features = session.run(None, {"inputs": view})
        embedded = model.embed_prepared(table.x[:n])
        np.testing.assert_allclose(features, embedded, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(predictions, model.predict_prepared(table.x[:n]), rtol=1e-4)
    said = metadata_of(session)
    assert said["test_views"] == "mirror"
    assert "the graph mirrors its inputs itself" in said["steps"][-1]
