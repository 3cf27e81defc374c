"""Training on cached features of a frozen encoder: the cache, the training and the model."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from rnc.augment import TEST_VIEWS, draw_views, eval_view, train_views, views_from
from rnc.augment.configs import CachedViews
from rnc.config import FitConfig
from rnc.data.feature_cache import feature_cache, feature_entries
from rnc.encoders.projection import ProjectedEncoder, ResidualProjection
from rnc.model import Regressor
from rnc.run.export import export_onnx
from rnc.training import frozen
from rnc.training.frozen import frozen_problem
from rnc.training.loop import make_fabric
from rnc.training.recipes import build_regressor, train
from training_cases import columns, images, quick, same


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def weights(tmp_path_factory) -> str:
    """A run folder whose encoder is small and random."""
    folder = tmp_path_factory.mktemp("weights")
    build_regressor(images(), quick(encoder="small-cnn", seed=3)).save(folder)
    return str(folder)


def freezing(weights: str, **changes: Any) -> FitConfig:
    fields = {"encoder": "small-cnn", "weights": weights, "freeze": True, "epochs": 3}
    return quick(**{**fields, "frozen_views": 2, **changes})


def fitted(config: FitConfig, folder: Path | None = None, table=None) -> tuple[Regressor, list]:
    table = images() if table is None else table
    model = build_regressor(table, config)
    return model, list(train(model, table, config, folder))


# ----------------------------------------------------------------------------- the projection


def test_a_new_projection_gives_the_features_in_one_scale() -> None:
    torch.manual_seed(0)
    features = 5 + 3 * torch.randn(40, 6)
    projection = ResidualProjection(6)
    projection.learn_scale(features)
    centred = features - features.mean(dim=0)
    expected = centred / centred.square().mean().sqrt()
    torch.testing.assert_close(projection(features), expected)
    projection.learn_scale(torch.ones(4, 6))  # features that are all alike
    assert projection(torch.ones(2, 6)).isfinite().all()


def test_random_views_are_different_ones_of_those_kept() -> None:
    kept = torch.arange(2 * 5, dtype=torch.float32).view(2, 5, 1)  # two test views, three others
    config = CachedViews(tests=2, views=3)
    assert eval_view(kept, config)[1, :, 0].tolist() == [5, 6]
    assert [v.shape for v in TEST_VIEWS["cached"](eval_view(kept, config))] == [(2, 1)] * 2
    seen = set()
    for seed in range(20):
        draws = draw_views(kept, config, 2, torch.Generator().manual_seed(seed))
        first, second = views_from(kept, config, draws)[1, :, 0].tolist()
        assert first != second
        seen |= {first, second}
    assert seen == {7, 8, 9}
    assert train_views(kept[:, :2], CachedViews(2, 0), 3)[0, :, 0].tolist() == [0, 1, 0]


# ------------------------------------------------------------------------------------ training


@pytest.mark.parametrize("test_views", ["plain", "mirror"])
def test_the_encoder_stays_and_the_model_predicts_from_samples(weights, test_views, tmp_path):
    table = images()
    config = freezing(weights, test_views=test_views, keep="last")
    start = build_regressor(table, config)
    model, records = fitted(config)
    assert [r.stage for r in records] == ["encoder"] * 4 + ["head"]
    assert records[0].epoch == 0
    encoder = model.encoder
    assert isinstance(encoder, ProjectedEncoder)
    assert same(encoder.backbone.state_dict(), start.encoder.backbone.state_dict())
    assert encoder.projection.out.weight.abs().max() > 0
    rows = table.rows("val")  # by hand: mean over the test views of what the projection gives
    x = eval_view(torch.tensor(table.x[rows]), model.augment)
    model.eval()
    with torch.no_grad():
        both = [encoder.projection(encoder.backbone(v)) for v in TEST_VIEWS[test_views](x)]
        expected = model.head.decode(model.head(torch.stack(both).mean(dim=0)))
    predicted = model.predict_prepared(table.x, rows=rows)
    np.testing.assert_allclose(predicted, expected.numpy(), rtol=1e-4, atol=1e-3)
    error = np.abs(predicted - table.y[rows]).mean()
    assert error == pytest.approx(records[-1].val_error, rel=1e-3)  # that of the kept features
    model.save(tmp_path / "run")
    again = Regressor.load(tmp_path / "run")
    np.testing.assert_array_equal(again.predict_prepared(table.x, rows=rows), predicted)


def test_features_are_computed_once_for_all_seeds_and_heads(weights, monkeypatch) -> None:
    first, _ = fitted(freezing(weights))
    assert len(feature_entries()) == 1
    monkeypatch.setattr(frozen, "_computed", lambda *_: pytest.fail("computed again"))
    again, _ = fitted(freezing(weights))
    assert same(first.state_dict(), again.state_dict())
    fitted(freezing(weights, seed=1, head="mse"))


@pytest.mark.parametrize("change", ["pixels", "weights", "transform", "views", "damaged"])
def test_other_features_are_not_taken_from_the_cache(weights, change, tmp_path, monkeypatch):
    table, config = images(), freezing(weights, epochs=1)
    fitted(config)
    computed, calls = frozen._computed, []
    monkeypatch.setattr(frozen, "_computed", lambda *a: calls.append(1) or computed(*a))
    if change == "pixels":
        x = table.x.copy()
        x[table.rows("train")[0], 0, 0, 0] ^= 1
        table = dataclasses.replace(table, x=x)
    elif change == "weights":
        build_regressor(images(), quick(encoder="small-cnn", seed=4)).save(tmp_path / "w")
        config = freezing(str(tmp_path / "w"), epochs=1)
    elif change == "transform":
        config = dataclasses.replace(config, augment_options={"mean": (0.4,)})
    elif change == "views":
        config = dataclasses.replace(config, frozen_views=3)
    else:
        file = feature_entries()[0].file
        file.write_bytes(file.read_bytes()[:-8])
    if change == "damaged":
        with pytest.warns(UserWarning, match=r"is damaged.* The features are computed again"):
            fitted(config, table=table)
    else:
        fitted(config, table=table)
    assert len(calls) == 2  # of the splits train and val


def test_a_cache_that_cannot_be_written_is_a_warning(weights) -> None:
    feature_cache().parent.mkdir(parents=True)
    feature_cache().write_text("in the way")
    with pytest.warns(UserWarning, match="not kept for the next run.*features"):
        fitted(freezing(weights, epochs=1))


@pytest.mark.parametrize("scheme", ["end2end", "two-stage", "finetune", "auto"])
def test_every_scheme_trains_on_frozen_features(weights, scheme) -> None:
    config = freezing(weights, scheme=scheme, views=0 if scheme == "auto" else None)
    model, records = fitted(config)
    assert all(np.isfinite(r.train_loss) for r in records)
    rows = (table := images()).rows("val")
    error = np.abs(model.predict_prepared(table.x, rows=rows) - table.y[rows]).mean()
    errors = [r.val_error for r in records if r.stage.endswith((scheme, "head"))]
    assert error <= 1.01 * min(errors)
    assert model.config.head["name"] == "l1"


def test_features_as_they_are_stay_where_no_epoch_is_better(weights) -> None:
    model, records = fitted(freezing(weights, lr=30.0, keep="best"))
    assert records[0].val_error < min(r.val_error for r in records[1:4] if r.val_error)
    assert model.encoder.projection.out.weight.abs().max() == 0


def test_a_module_of_the_callers_own_may_be_frozen(tmp_path) -> None:
    torch.manual_seed(0)
    own = nn.Sequential(nn.Linear(4, 16), nn.ReLU())
    before = {k: v.clone() for k, v in own.state_dict().items()}
    table, config = columns(), quick(freeze=True, epochs=2)
    model = build_regressor(table, config, own)
    list(train(model, table, config))
    assert same(own.state_dict(), before)
    model.save(tmp_path)
    again = Regressor.load(tmp_path, encoder=nn.Sequential(nn.Linear(4, 16), nn.ReLU()))
    rows = table.rows("test")
    assert np.array_equal(
        again.predict_prepared(table.x, rows=rows), model.predict_prepared(table.x, rows=rows)
    )


def test_a_frozen_model_is_one_onnx_file(weights, tmp_path) -> None:
    runtime = pytest.importorskip("onnxruntime")
    model, _ = fitted(freezing(weights, epochs=1, keep="last", test_views="mirror"))
    export_onnx(model, tmp_path / "model.onnx")
    session = runtime.InferenceSession(tmp_path / "model.onnx")
    x = torch.tensor((table := images()).x[:5])
    view = eval_view(x, model.augment).numpy()
    found = session.run(["predictions"], {"inputs": view})[0]
    expected = model.predict_prepared(table.x, rows=np.arange(5))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-2)


def test_rows_that_are_known_in_part_have_features_too(weights) -> None:
    table, config = images(), freezing(weights)
    split = table.split.copy().astype("<U11")
    split[table.rows("test")] = "partial"
    table = dataclasses.replace(table, split=split)
    model = build_regressor(table, config)
    _, features = frozen_problem(make_fabric(config), model, table, config)
    assert features.x[table.rows("partial")].any(axis=(1, 2)).all()
    assert not np.isnan(features.x).any()


def test_a_stopped_run_goes_on_to_the_same_bits(weights, tmp_path) -> None:
    table, config = images(), freezing(weights, epochs=4, average=0.9)
    whole, _ = fitted(config, tmp_path / "whole")
    model = build_regressor(table, config)
    stopped = train(model, table, config, tmp_path / "part")
    for _ in range(3):
        next(stopped)
    stopped.close()
    again, _ = fitted(config, tmp_path / "part")
    assert same(again.state_dict(), whole.state_dict())


# -------------------------------------------------------------------------------------- refused


def test_freezing_without_weights_is_refused() -> None:
    with pytest.raises(ValueError, match=r"got no weights for it\. Add --weights PATH"):
        build_regressor(images(), quick(encoder="small-cnn", freeze=True))
    with pytest.raises(ValueError, match=r"layer_decay=0\.5 is for layers of an encoder that tr"):
        FitConfig(freeze=True, weights="w", layer_decay=0.5)
