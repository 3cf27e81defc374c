"""Volumes from arrays: training, small batches, and every way to use a trained model."""

import dataclasses
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from rnc import RnCRegressor
from rnc.data import DataError, Table, read_inputs, read_table, table_from_arrays
from rnc.encoders import build_encoder
from rnc.encoders.volumes import ResNet3d
from rnc.files import read_tensors
from rnc.loss import rnc_loss
from rnc.methods.objective import BatchLabels, FeatureObjective
from rnc.model import Regressor
from rnc.model.batching import rows_at_once
from rnc.report import write_report
from rnc.run.export import export_onnx
from rnc.run.fit import fit_run
from rnc.run.folder import RunFolder
from rnc.run.predict import predict_run
from rnc.run.thumbnails import thumbnails
from rnc.training import checkpoint
from rnc.training.caching import cached_backward
from rnc.training.loop import make_fabric
from rnc.training.recipes import build_regressor, train
from training_cases import fit, quick, same, volumes

SMALL = {"encoder": "resnet3d10", "batch_size": 10}


@pytest.fixture(scope="module")
def trained() -> tuple[Table, Regressor]:
    table = volumes()
    return table, fit(table, quick(**SMALL, epochs=6))[0]


# ----------------------------------------------------------------------------------- the network


def test_resnet3d18_is_resnet18_with_a_third_side() -> None:
    encoder = build_encoder("resnet3d18", (3, 16, 16, 16))
    flat = build_encoder("resnet18", (3, 32, 32))
    shapes = [m.weight.shape for m in encoder.modules() if isinstance(m, nn.Conv3d)]
    expected = [m.weight.shape for m in flat.modules() if isinstance(m, nn.Conv2d)]
    assert sorted(shape[:-1] for shape in shapes) == sorted(expected)
    assert sum(p.numel() for p in build_encoder("resnet3d18", (1, 8, 8, 8)).parameters()) == (
        33_160_000
    )
    maps: list[tuple[int, ...]] = []
    encoder.layers.register_forward_hook(lambda m, x, out: maps.append(tuple(out.shape)))
    encoder(torch.randn(2, 3, 64, 33, 40))
    assert maps == [(2, 512, 2, 2, 2)]


def test_features_do_not_depend_on_the_other_samples_of_a_batch() -> None:
    encoder = ResNet3d(1, (1, 1), width=8, stem=3).train()
    x = torch.randn(5, 1, 6, 6, 6)
    torch.testing.assert_close(encoder(x)[2:3], encoder(x[2:3]))


# --------------------------------------------------------------------------------- small batches


def test_a_cached_gradient_is_that_of_the_whole_batch() -> None:
    """Group normalisation looks at one sample, so that chunks of one volume are as good."""
    objective = FeatureObjective(ResNet3d(1, (1, 1), width=8, stem=3), rnc_loss)
    views, labels = torch.randn(6, 2, 1, 5, 5, 5), BatchLabels(torch.randn(6, 1).double())
    expected = objective(views, labels)
    expected.backward()
    wanted = [parameter.grad.clone() for parameter in objective.parameters()]
    objective.zero_grad()
    loss = cached_backward(make_fabric(quick()), objective, views, labels, chunk=1)
    torch.testing.assert_close(loss, expected.detach())
    found = [parameter.grad for parameter in objective.parameters()]
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-6)


def test_chunks_of_one_and_a_queue_train() -> None:
    table = volumes()
    small = quick(**{**SMALL, "batch_size": 4}, queue=16, chunk=1, epochs=2)
    model, records = fit(table, small)
    assert all(np.isfinite(record.train_loss) for record in records)
    whole, _ = fit(table, dataclasses.replace(small, chunk=0))
    for name, value in whole.state_dict().items():
        torch.testing.assert_close(model.state_dict()[name], value, rtol=0.01, atol=0.01)


def test_a_run_that_stops_goes_on_to_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint, "CHEAP_SECONDS", 1000.0)  # a checkpoint after every epoch
    table, config = volumes(), quick(**SMALL, epochs=4, queue=10, chunk=4, average=0.9, erase=1.0)
    model = build_regressor(table, config)
    whole = list(train(model, table, config, tmp_path / "whole"))
    list(islice(train(build_regressor(table, config), table, config, tmp_path / "cut"), 2))
    resumed = build_regressor(table, config)
    rest = list(train(resumed, table, config, tmp_path / "cut"))
    assert same(resumed.state_dict(), model.state_dict())
    assert [r.train_loss for r in rest] == [r.train_loss for r in whole]


def test_a_network_sees_as_many_volumes_as_memory_has_room_for() -> None:
    assert rows_at_once(np.empty((1, 1, 224, 224, 224), np.uint8), 256) == 1
    assert rows_at_once(np.empty((1, 2, 8, 8, 8)), 256) == 256
    assert 256 % rows_at_once(np.empty((1, 1, 50, 60, 70), np.uint8), 256) == 0


# ------------------------------------------------------------------------------ data and training


def test_units_of_the_voxels_do_not_matter(trained: tuple[Table, Regressor]) -> None:
    table, model = trained
    x = model.standardise(torch.from_numpy(table.x[table.rows("train")]))
    torch.testing.assert_close(x.mean(dim=(0, 2, 3, 4)), torch.zeros(2), atol=1e-4, rtol=0)
    torch.testing.assert_close(x.std(dim=(0, 2, 3, 4)), torch.ones(2), atol=1e-3, rtol=0)


def test_whole_numbers_stay_in_one_byte_and_learn_the_same() -> None:
    table = volumes()
    counts = (table.x[:, :1] / table.x[:, :1].max() * 100 + 100).round().astype(np.uint8)
    small, large = (
        table_from_arrays(x, table.y[:, 0]) for x in (counts, counts.astype(np.float64))
    )
    assert (small.x.dtype, large.x.dtype) == (np.uint8, np.float32)
    ends = [fit(one, quick(**SMALL))[0].state_dict() for one in (small, large)]
    assert same(*ends)


def test_the_radius_is_learned(trained: tuple[Table, Regressor]) -> None:
    table, model = trained
    rows = table.rows("test")
    error = np.abs(model.predict(table.x[rows]) - table.y[rows]).mean()
    assert error < 0.5 * np.abs(table.y[rows] - table.y.mean()).mean()


def test_an_npz_file_trains_and_predicts_like_the_arrays(
    tmp_path: Path, trained: tuple[Table, Regressor]
) -> None:
    table, model = trained
    np.savez(tmp_path / "scans.npz", x=table.x, y=table.y[:, 0], site=np.arange(len(table)) % 2)
    read = read_table(tmp_path / "scans.npz", subgroup_columns=("site",))
    assert (read.kind, read.preprocessing) == ("volume", {"channels": 2, "shape": [8, 8, 8]})
    np.testing.assert_array_equal(read.x, table.x)
    inputs = read_inputs(tmp_path / "scans.npz", model.config.preprocessing, "volume")
    np.testing.assert_array_equal(model.predict_prepared(inputs.x), model.predict(table.x))


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (np.zeros((4, 9, 9, 9, 2)), r"looks like \(n, d, h, w, c\).*transpose\(0, 4, 1, 2, 3\)"),
        (np.full((4, 1, 2, 2, 2), np.nan), r"in 4 of 4 volumes \(rows 0, 1, 2"),
        (np.zeros((4, 1, 2, 2, 2, 2)), r"\(n, c, d, h, w\) for volumes.*got \(4, 1, 2, 2, 2, 2\)"),
        (np.zeros((4, 1, 0, 2, 2)), "no empty side"),
        (np.zeros((4, 1, 2, 2, 2), complex), "real numbers; got complex128"),
    ],
)
def test_arrays_that_are_no_volumes_are_refused(x: np.ndarray, message: str) -> None:
    with pytest.raises(DataError, match=message):
        table_from_arrays(x, np.arange(4))


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (np.zeros((2, 1, 8, 8, 8)), r"2 channels; x has 1: \(2, 1, 8, 8, 8\)"),
        (np.zeros((2, 2, 8, 8, 9)), r"8 x 8 x 8 voxels; got 8 x 8 x 9"),
        (np.zeros((2, 8, 8, 8)), r"trained on data of kind 'volume'; x is \(2, 8, 8, 8\)"),
        ("photo.jpg", "photo.jpg"),
    ],
)
def test_new_data_that_do_not_fit_are_refused(
    trained: tuple[Table, Regressor], x: object, message: str
) -> None:
    with pytest.raises(DataError, match=message):
        trained[1].predict(x)


# ------------------------------------------------------------------------------------- the doors


def test_the_estimator_takes_volumes() -> None:
    table = volumes(rows=60)
    model = RnCRegressor(**SMALL, preset="quick", epochs=2, device="cpu", validation_fraction=0.3)
    model.fit(table.x, table.y[:, 0])
    assert model.predict(table.x[:3]).shape == (3,)
    assert model.transform(table.x[:3]).shape == (3, 128)
    found = model.predict_interval(table.x[:5], 0.8)
    assert (found.lower < found.upper).all()
    assert model.explain(table.x[:2], k=4).rows.shape == (2, 4)
    with pytest.raises(ValueError, match=r"8 x 8 x 8 voxels; got 7 x 8 x 8"):
        model.predict(table.x[:, :, 1:])


def test_onnx_is_pytorch(tmp_path: Path, trained: tuple[Table, Regressor]) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    import json

    table, model = trained
    export_onnx(model, tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    metadata = json.loads(session.get_modelmeta().custom_metadata_map["rank-n-contrast"])
    prepare = metadata["prepare"]
    raw = table.x[:7]
    shift, scale = (np.reshape(prepare[name], (2, 1, 1, 1)) for name in ("shift", "scale"))
    starts = [(8 - side) // 2 for side in prepare["size"]]
    d, h, w = (slice(a, a + b) for a, b in zip(starts, prepare["size"], strict=True))
    inputs = ((raw - shift) / scale)[:, :, d, h, w].astype(np.float32)
    predictions, features = session.run(None, {"inputs": inputs})
    np.testing.assert_allclose(predictions, model.predict(raw), rtol=1e-4)
    np.testing.assert_allclose(features, model.embed(raw), rtol=1e-3, atol=1e-5)
    assert any("feet to head" in step for step in metadata["steps"])


def test_a_run_has_scores_a_report_and_predictions(tmp_path: Path) -> None:
    table = volumes(rows=60)
    out = tmp_path / "run"
    for _ in fit_run(table, quick(**SMALL, scheme="end2end", test_views="mirror"), out):
        pass
    run = RunFolder(out)
    assert run.scores["n"]["test"] == len(table.rows("test"))
    assert run.config["model"]["kind"] == "volume"
    pictures, _ = read_tensors(out / "thumbnails.safetensors")
    assert pictures["images"].shape[1:] == (1, 96, 96)
    write_report([out])
    assert "data:image/webp" in (out / "report.html").read_text()
    np.savez(tmp_path / "new.npz", x=table.x[:5], name=np.array(list("abcde")))
    found = predict_run(out, tmp_path / "new.npz", progress=False, explain=2)
    np.testing.assert_allclose(found.frame["y"], run.model.predict(table.x[:5])[:, 0])
    assert found.explanation is not None


def test_thumbnails_are_the_middle_slices_with_axes_that_point_up() -> None:
    x = np.zeros((2, 2, 6, 10, 8), np.float32)
    x[:, 0] = np.arange(6)[:, None, None] + 0.01 * np.arange(10)[:, None]
    pictures = thumbnails(x, np.arange(2))["images"]
    assert pictures.shape == (2, 1, 96, 96)
    axial, coronal, sagittal = (
        pictures[0, 0, :48, :48].astype(int),
        pictures[0, 0, 48:, :48].astype(int),
        pictures[0, 0, 48:, 48:].astype(int),
    )
    assert (pictures[0, 0, :48, 48:] == 0).all()
    assert (np.diff(coronal[:, 5]) <= 0).all()  # d points up
    assert coronal[0, 5] > 250
    assert coronal[-1, 5] < 10
    assert (np.diff(axial[:, 5]) <= 0).all()  # h points up
    assert np.ptp(axial) < 10
    assert (np.diff(sagittal[0]) >= 0).all()  # h points to the right
    flat = thumbnails(np.full((1, 1, 3, 3, 3), 7, np.uint8), np.arange(1))["images"]
    assert (flat == 0).all()
