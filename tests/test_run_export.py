"""The ONNX file, run by onnxruntime alone, as by someone without this package."""

import importlib.util
import json
import math
import sys
from datetime import date, datetime, timedelta

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

import rnc.run.export
from rnc.data import table_from_arrays
from rnc.heads import head_config
from rnc.heads.registry import HEADS
from rnc.model import ModelConfig, Regressor
from rnc.run.export import _cumprod, export_onnx
from rnc.run.predictions import EXTRAS

PACKAGES = ("onnx", "onnxscript", "onnxruntime")
needs_onnx = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in PACKAGES),
    reason="the extra 'export' is not installed",
)
TARGETS = np.array([[20.0, 0.1], [31.0, 0.5], [64.0, 0.9]])


def small_model(head="l1", targets=TARGETS, encoder=None, **options):
    encoder = encoder or nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Tanh())
    t = targets.shape[1]
    config = ModelConfig(
        kind="table",
        encoder="own",
        input_shape=(5,),
        augment={},
        head=vars(head_config(head, 8, targets, options=options)),
        target_names=tuple(f"y{i}" for i in range(t)),
    )
    return Regressor(config, encoder)


def with_spread(model):
    """The same model with larger outputs, so that predictions differ."""
    with torch.no_grad():
        model.head.linear.weight.mul_(10)
    return model


def session_of(path):
    import onnxruntime

    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])


def metadata_of(session):
    return json.loads(session.get_modelmeta().custom_metadata_map["rank-n-contrast"])


def check_raw(model, raw, session, inputs):
    """What a stranger gets from prepared inputs is what the model gets from raw samples."""
    predictions, features = session.run(None, {"inputs": inputs.astype(np.float32)})
    expected = model.predict_prepared(raw)
    np.testing.assert_allclose(features, model.embed_prepared(raw), rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(predictions, expected, rtol=1e-4)
    assert np.ptp(expected) > 0.01 * np.abs(expected).max()  # the samples differ


def named(session):
    return [output.name for output in session.get_outputs()]


def check_spread(model, features, spread):
    """Quantiles and deviations of the file are those of the head, and no other head has some."""
    outputs = model.head(torch.from_numpy(features)).detach()
    wanted = {}
    if model.head.config.name in ("quantile", "gaussian"):
        wanted["quantiles"] = model.head.quantiles(outputs)
    if model.head.config.name == "gaussian":
        wanted["std"] = model.head.deviations(outputs)
    assert list(spread) == list(wanted)
    for name, values in wanted.items():
        assert values.dtype == torch.float64
        np.testing.assert_allclose(spread[name], values, rtol=1e-4)


@needs_onnx
@pytest.mark.parametrize(
    ("head", "options"), [*((name, {}) for name in HEADS), ("corn", {"decode": "class"})]
)
def test_every_head_predicts_the_same_for_any_number_of_samples(tmp_path, head, options):
    model = with_spread(small_model(head, **options))
    export_onnx(model, tmp_path / "m.onnx")
    session = session_of(tmp_path / "m.onnx")
    for n in (1, 2, 31):
        x = np.random.default_rng(n).normal(size=(n, 5)).astype(np.float32)
        predictions, features, *spread = session.run(None, {"inputs": x})
        np.testing.assert_allclose(features, model.embed_prepared(x), rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(predictions, model.predict_prepared(x), rtol=1e-4)
    check_spread(model, features, dict(zip(list(named(session))[2:], spread, strict=True)))
    assert len(np.unique(predictions[:, 0])) > 2


@needs_onnx
def test_the_graph_says_what_goes_in_and_out(tmp_path):
    export_onnx(small_model(), tmp_path / "deep" / "m.onnx")
    session = session_of(tmp_path / "deep" / "m.onnx")
    described = [(x.name, x.shape, x.type) for x in (*session.get_inputs(), *session.get_outputs())]
    assert described == [
        ("inputs", ["n", 5], "tensor(float)"),
        ("predictions", ["n", 2], "tensor(double)"),
        ("features", ["n", 8], "tensor(float)"),
    ]
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["m.onnx"]


@needs_onnx
def test_an_extra_is_a_further_output(tmp_path, monkeypatch):
    monkeypatch.setitem(
        EXTRAS,
        "upper",
        lambda model, z: model.head.decode(model.head(z)) + z.abs().mean(1)[:, None],
    )
    monkeypatch.setitem(EXTRAS, "absent", lambda model, features: None)
    model = small_model()
    export_onnx(model, tmp_path / "m.onnx")
    session = session_of(tmp_path / "m.onnx")
    assert [x.name for x in session.get_outputs()] == ["predictions", "features", "upper"]
    x = np.random.default_rng(0).normal(size=(9, 5)).astype(np.float32)
    _, features, upper = session.run(None, {"inputs": x})
    width = np.abs(features).mean(axis=1, keepdims=True)
    np.testing.assert_allclose(upper, model.predict_prepared(x) + width, rtol=1e-4)


@needs_onnx
def test_a_large_offset_keeps_its_digits(tmp_path):
    seconds = 1.7e9 + np.array([[0.0], [60.0], [150.0]])
    model = small_model(targets=seconds)
    export_onnx(model, tmp_path / "m.onnx")
    x = np.random.default_rng(0).normal(size=(9, 5)).astype(np.float32)
    predictions, _ = session_of(tmp_path / "m.onnx").run(None, {"inputs": x})
    assert (
        np.abs(predictions - model.predict_prepared(x)).max() < 0.01
    )  # float32 knows only every 128th
    assert np.ptp(predictions) > 1


@needs_onnx
def test_exporting_leaves_the_model_as_it_is(tmp_path):
    model = small_model().train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    export_onnx(model, tmp_path / "m.onnx")
    assert all(module.training for module in model.modules())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(parameter.requires_grad for parameter in model.parameters())


# ----------------------------------------------------------------- preparing with metadata alone


@needs_onnx
def test_images_can_be_prepared_from_the_metadata(tmp_path):
    augment = {"size": 21, "mean": [0.4, 0.5, 0.6], "std": [0.2, 0.3, 0.4]}
    head = vars(head_config("dldl", 128, np.arange(30.0)))
    config = ModelConfig("image", "small-cnn", (3, 21, 21), augment, head, ("age",))
    model = with_spread(Regressor(config))
    export_onnx(model, tmp_path / "m.onnx")
    session = session_of(tmp_path / "m.onnx")
    said = metadata_of(session)
    assert (said["kind"], said["input_shape"], said["target_names"]) == (
        "image",
        [3, 21, 21],
        ["age"],
    )
    prepare = said["prepare"]
    assert (prepare["size"], prepare["short_side"], prepare["channels"]) == (21, 24, 3)

    def prepared(pixels):
        size, short = prepare["size"], prepare["short_side"]
        h, w = pixels.shape[1:]
        if (h, w) != (size, size):
            height, width = short * h // min(h, w), short * w // min(h, w)
            top, left = round((height - size) / 2), round((width - size) / 2)
            scaled = [
                Image.fromarray(channel.astype(np.float32)).resize(
                    (width, height), Image.Resampling.BILINEAR
                )
                for channel in pixels
            ]
            pixels = np.stack(scaled)[:, top : top + size, left : left + size]
        mean, std = (np.array(prepare[name])[:, None, None] for name in ("mean", "std"))
        return (pixels / 255 - mean) / std

    rng = np.random.default_rng(0)
    for shape in ((3, 50, 37), (3, 21, 21), (3, 24, 24)):
        brightest = np.array([50, 120, 200, 256]).reshape(4, 1, 1, 1)
        images = rng.integers(0, brightest, (4, *shape), dtype=np.uint8)
        check_raw(model, images, session, np.stack([prepared(image) for image in images]))


@needs_onnx
def test_one_mean_for_all_channels_is_written_for_each(tmp_path):
    head = vars(head_config("l1", 128, np.arange(30.0)))
    config = ModelConfig(
        "image",
        "small-cnn",
        (2, 8, 8),
        {"size": 8},
        head,
        ("age",),
        {"channels": 2, "shape": [8, 8]},
    )
    export_onnx(Regressor(config), tmp_path / "m.onnx")
    said = metadata_of(session_of(tmp_path / "m.onnx"))
    prepare = said["prepare"]
    assert (prepare["mean"], prepare["std"], prepare["channels"]) == ([0.5, 0.5], [0.5, 0.5], 2)
    assert prepare["shape"] == [8, 8]  # arrays, so nothing is said about files
    assert "height and width in shape" in said["steps"][1]


@needs_onnx
def test_signals_can_be_prepared_from_the_metadata(tmp_path):
    head = vars(head_config("corn", 256, np.arange(30.0)))
    config = ModelConfig("signal", "resnet1d10", (2, 90), {"crop": 0.9}, head, ("age",))
    model = Regressor(config)
    model.input_shift.copy_(torch.tensor([[3.0], [-40.0]]))
    model.input_scale.copy_(torch.tensor([[2.0], [11.0]]))
    export_onnx(model, tmp_path / "m.onnx")
    session = session_of(tmp_path / "m.onnx")
    prepare = metadata_of(session)["prepare"]
    raw = np.random.default_rng(0).normal(size=(6, 2, 100)) * [[2.0], [11.0]] + [[3.0], [-40.0]]
    raw = (raw * np.linspace(0.2, 3, 6)[:, None, None]).astype(np.float32)
    shift, scale = (np.array(prepare[name])[:, None] for name in ("shift", "scale"))
    start = (100 - prepare["length"]) // 2
    inputs = ((raw - shift) / scale)[:, :, start : start + prepare["length"]]
    check_raw(model, raw, session, inputs)


def inputs_of(column, value):
    """What the words of the metadata say about one value of a table."""
    gap = pd.isna(value) or value in column.get("gap_words", [])
    kind, inputs = column["type"], []
    if kind == "category":
        inputs = [float(value == category) for category in column["categories"]]
    elif kind == "boolean" and column["mean"] is not None:
        yes = str(value).lower() in ("yes", "y", "true", "t", "on", "1")
        inputs = [column["mean"] if gap else float(yes)]
    elif kind == "number" and column["scale"] is not None:
        known = column["median"] if gap else float(value)
        inputs = [(known - column["mean"]) / column["scale"]]
    elif kind == "date" and column["scale"] is not None:
        day = datetime(1, 1, 1) if gap else datetime.strptime(value, column["format"])
        days = (day - datetime.fromisoformat(column["first"])) / timedelta(days=1)
        inputs = [((column["median"] if gap else days) - column["mean"]) / column["scale"]]
        midnight = day.replace(hour=0, minute=0, second=0)
        places = {
            "season": (day.date() - date(day.year, 1, 1)).days / 365.25,
            "weekday": day.weekday() / 7,
            "hour": (day - midnight).total_seconds() / 86400,
        }
        for part in column["parts"]:
            angle = 2 * math.pi * places[part]
            inputs += [0.0, 0.0] if gap else [math.sin(angle), math.cos(angle)]
    return inputs + [float(gap)] * column["gaps"]


@needs_onnx
def test_tables_can_be_prepared_from_the_metadata(tmp_path):
    frame = pd.DataFrame(
        {
            "size": [1.0, None, 3.0, 7.0, 9.0, 4.0] * 5,
            "same": [2.0] * 30,
            "city": ["Oslo", "Rome", None, "Bern", "Oslo", "Rome"] * 5,
            "garden": ["yes", "No", None, "y", "n", "YES"] * 5,
            "never": [True] * 30,
            "sold": [f"{1 + i}.{1 + i % 11}.202{i % 4} {i % 24}:{2 * i:02d}" for i in range(30)],
            "power": [str(5 * i % 13) for i in range(29)] + ["n.a."],
        }
    )
    frame.loc[[4, 20, 28, 29], "sold"] = None
    table = table_from_arrays(frame, np.arange(30.0))
    assert [c["type"] for c in table.preprocessing["columns"]] == [
        "number",
        "number",
        "category",
        "boolean",
        "boolean",
        "date",
        "number",
    ]
    head = vars(head_config("mse", 256, table.y))
    p = table.x.shape[1]
    config = ModelConfig("table", "mlp", (p,), {}, head, ("price",), table.preprocessing)
    model = Regressor(config)
    export_onnx(model, tmp_path / "m.onnx")
    session = session_of(tmp_path / "m.onnx")
    said = metadata_of(session)
    rows = [
        [x for column in said["prepare"]["columns"] for x in inputs_of(column, row[column["name"]])]
        for row in frame.to_dict("records")
    ]
    assert said["input_shape"] == [p]
    np.testing.assert_allclose(rows, table.x, atol=1e-6)
    check_raw(model, table.x, session, np.array(rows))
    words = " ".join(said["steps"])
    for kind in ("number", "category", "boolean", "date"):
        assert f"A {kind}" in words


# ------------------------------------------------------------------------------------ refusals


@needs_onnx
@pytest.mark.parametrize("what", ["predictions", "features"])
def test_a_file_that_computes_something_else_is_refused_and_the_old_one_stays(
    tmp_path, monkeypatch, what
):
    path = tmp_path / "m.onnx"
    path.write_text("old")
    model, other = small_model(), small_model()
    if what == "features":  # nothing of them reaches the predictions
        for head in (model.head, other.head):
            nn.init.zeros_(head.linear.weight)
            nn.init.zeros_(head.linear.bias)
    foreign = rnc.run.export._traced(other.eval())
    monkeypatch.setattr(rnc.run.export, "_traced", lambda _: foreign)
    with pytest.raises(
        RuntimeError, match=rf"different {what} for 1 random samples: .* and 1e-04 is"
    ):
        export_onnx(model, path)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


@needs_onnx
def test_a_nan_counts_as_a_difference(tmp_path):
    model = small_model()
    with torch.no_grad():
        model.head.linear.bias.fill_(float("nan"))
    with pytest.raises(
        RuntimeError, match="predictions for 1 random samples: the difference is nan"
    ):
        export_onnx(model, tmp_path / "m.onnx")
    assert list(tmp_path.iterdir()) == []


@needs_onnx
def test_an_encoder_for_one_batch_size_is_refused(tmp_path):
    class TwoAtATime(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(10, 16)

        def forward(self, rows: Tensor) -> Tensor:
            return self.layer(rows.reshape(1, 10)).reshape(2, 8)

    with pytest.raises(RuntimeError, match=r"encoder 'own' cannot be written as ONNX for any num"):
        export_onnx(small_model(encoder=TwoAtATime()), tmp_path / "m.onnx")
    assert list(tmp_path.iterdir()) == []


@needs_onnx
def test_weights_that_one_file_cannot_hold_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(rnc.run.export, "MOST_BYTES", 100)
    with pytest.raises(ValueError, match=r"holds 0\.00 GB of weights at most; got 0\.00 GB"):
        export_onnx(small_model(), tmp_path / "m.onnx")


@pytest.mark.parametrize("name", PACKAGES)
def test_a_missing_package_names_the_extra(tmp_path, monkeypatch, name):
    for package in PACKAGES:  # stand-ins for those that are not missing
        monkeypatch.setitem(sys.modules, package, None if package == name else sys)
    advice = r"pip install 'rank-n-contrast\[export\]'"
    with pytest.raises(ImportError, match=f"{name} is missing.* {advice}"):
        export_onnx(small_model(), tmp_path / "m.onnx")


@pytest.mark.parametrize("length", [1, 2, 31, 64, 257])
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_the_stand_in_for_cumprod_is_cumprod(length, dim):
    shape = (length, 3) if dim == 0 else (3, length)
    x = torch.randn(shape, dtype=torch.float64).sign() * (0.9 + 0.2 * torch.rand(shape).double())
    torch.testing.assert_close(_cumprod(x, dim), x.cumprod(dim))
    whole = torch.full(shape, 2)
    assert _cumprod(whole, dim, dtype=torch.float64).dtype == torch.float64
