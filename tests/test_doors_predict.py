"""The same prediction for a sample from the command, from Python, the estimator and ONNX."""

import importlib.util
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from typer.testing import CliRunner

import rnc
from rnc.cli import app
from rnc.model import Regressor

needs_onnx = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("onnx", "onnxscript", "onnxruntime")),
    reason="the extra 'export' is not installed",
)
FAST = ["--preset", "quick", "--epochs", "1", "--batch-size", "16", "--device", "cpu"]
SMALL: dict[str, Any] = {"epochs": 1, "batch_size": 16, "device": "cpu"}


def command(*words: str | Path) -> None:
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == 0, result.output


def by_command(run: Path, *words: str | Path) -> np.ndarray:
    """What `rnc predict` writes for the target, to the last digit."""
    output = run.parent / "by-command.csv"
    command("predict", run, *words, "-o", output, "--overwrite")
    texts = pd.read_csv(output, dtype=str)[rnc.load(run).config.target_names[0]]
    return np.array([float(text) for text in texts])


def close(one: Any, other: Any) -> None:
    np.testing.assert_allclose(np.ravel(one), np.ravel(other), rtol=1e-5, atol=1e-6)


def same(one: Any, other: Any) -> None:
    np.testing.assert_array_equal(np.ravel(one), np.ravel(other))


# ------------------------------------------------------------------------------- data, models


def photos(folder: Path, mode: str, shape: tuple[int, int]) -> Path:
    """Photos of one size and mode; the target is their brightness."""
    (folder / "photos").mkdir()
    rng = np.random.default_rng(0)
    rows = []
    for i in range(40):
        level = int(rng.integers(20, 235))
        slope = np.linspace(-15, 15, shape[1])[None, :, None]
        pixels = np.clip(level + slope + rng.integers(-9, 9, (*shape, 3)), 0, 255).astype(np.uint8)
        Image.fromarray(pixels).convert(mode).save(folder / "photos" / f"{i}.png")
        rows.append({"file": f"{i}.png", "level": level})
    pd.DataFrame(rows).to_csv(folder / "photos.csv", index=False)
    return folder / "photos.csv"


def homes(n: int = 80) -> pd.DataFrame:
    """Homes with a category and gaps."""
    rng = np.random.default_rng(0)
    area = rng.uniform(50, 200, n).round(1)
    frame = pd.DataFrame({"area": area, "town": rng.choice(["north", "south"], n)})
    frame["price"] = 3 * area + 40 * (frame["town"] == "north")
    frame.loc[::9, "area"] = np.nan
    frame.loc[::11, "town"] = None
    return frame


def waves() -> tuple[np.ndarray, np.ndarray]:
    """Signals of two channels in units of their own; the target is their amplitude."""
    rng = np.random.default_rng(0)
    size = rng.uniform(1, 5, 40)
    wave = np.sin(np.linspace(0, 12, 60))[None, None] * size[:, None, None]
    x = np.concatenate([wave, 30 + 7 * wave], axis=1) + rng.normal(0, 0.1, (40, 2, 60))
    return x.astype(np.float32), size


# -------------------------------------------------------- ONNX, by what its metadata say alone


def by_onnx(model: Regressor, folder: Path, raw: Any) -> np.ndarray:
    import onnxruntime

    rnc.export(model, folder / "model.onnx")
    session = onnxruntime.InferenceSession(folder / "model.onnx")
    said = json.loads(session.get_modelmeta().custom_metadata_map["rank-n-contrast"])
    prepare = {"image": image_input, "signal": signal_input, "table": table_input}[said["kind"]]
    inputs = np.array(prepare(raw, said["prepare"]), np.float32)[None]
    predictions: np.ndarray = session.run(["predictions"], {"inputs": inputs})[0]
    return predictions


def image_input(picture: Image.Image, prepare: dict[str, Any]) -> np.ndarray:
    """A picture whose stored side is short_side or size: then no further scaling is needed."""
    grey, side, size = prepare["channels"] == 1, prepare["side"], prepare["size"]
    picture = picture.convert("L" if grey else "RGB")
    w, h = picture.size
    if prepare["fit"] == "crop":
        cut = min(w, h)
        box = ((w - cut) / 2, (h - cut) / 2, (w + cut) / 2, (h + cut) / 2)
        picture = picture.resize((side, side), Image.Resampling.BICUBIC, box)
    else:
        assert prepare["fit"] == "pad"
        page = Image.new(picture.mode, (side, side), 128 if grey else (128, 128, 128))
        fitted = (round(side * w / max(w, h)), round(side * h / max(w, h)))
        picture = picture.resize(fitted, Image.Resampling.BICUBIC)
        page.paste(picture, ((side - fitted[0]) // 2, (side - fitted[1]) // 2))
        picture = page
    assert side in (prepare["short_side"], size)
    start = round((side - size) / 2)
    pixels = np.asarray(picture).reshape(side, side, -1).transpose(2, 0, 1)
    pixels = pixels[:, start : start + size, start : start + size]
    mean, std = (np.array(prepare[name])[:, None, None] for name in ("mean", "std"))
    return (pixels / 255 - mean) / std


def signal_input(raw: np.ndarray, prepare: dict[str, Any]) -> np.ndarray:
    shift, scale = (np.array(prepare[name])[:, None] for name in ("shift", "scale"))
    start = (raw.shape[1] - prepare["length"]) // 2
    return ((raw - shift) / scale)[:, start : start + prepare["length"]]


def table_input(row: dict[str, Any], prepare: dict[str, Any]) -> list[float]:
    inputs: list[float] = []
    for column in prepare["columns"]:
        value = row[column["name"]]
        gap = value is None or (isinstance(value, float) and math.isnan(value))
        if column["type"] == "category":
            inputs += [float(value == category) for category in column["categories"]]
        elif column["scale"] is not None:
            known = column["median"] if gap else value
            inputs.append((known - column["mean"]) / column["scale"])
        inputs += [float(gap)] * column["gaps"]
    return inputs


# ------------------------------------------------------------------------------------- doors


@needs_onnx
@pytest.mark.parametrize(
    ("mode", "shape", "words"),
    [
        pytest.param("RGB", (40, 40), ("--test-views", "mirror"), id="colour photo, twice"),
        pytest.param("L", (30, 47), (), id="grey photo that is no square"),
        pytest.param("L", (30, 47), ("--fit", "pad"), id="grey photo, padded"),
    ],
)
def test_a_photo_has_one_prediction(tmp_path: Path, mode: str, shape: Any, words: Any) -> None:
    table, run, folder = photos(tmp_path, mode, shape), tmp_path / "run", tmp_path / "photos"
    small = ("--encoder", "small-cnn", "--image-size", "16", *words)
    command("fit", table, "--images", folder, "--target", "level", *small, *FAST, "--out", run)
    model, file = rnc.load(run), folder / "7.png"
    expected = by_command(run, file)
    with Image.open(file) as lazy:
        same(model.predict(lazy), expected)
    picture = Image.open(file)
    picture.load()
    pixels = np.asarray(picture)
    planes = pixels[None] if mode == "L" else pixels.transpose(2, 0, 1)
    for form in (file, str(file), [file], picture, [picture], [pixels]):
        same(model.predict(form), expected)
    for form in (planes[None], [planes], pd.DataFrame({"file": [str(file)]})):
        same(model.predict(form), expected)
    close(by_onnx(model, tmp_path, picture), expected)
    everything = by_command(run, folder)
    same(model.predict(folder), everything)
    same(model.predict(str(folder / "*.png")), everything)
    evaluated = pd.read_csv(run / "predictions.csv")
    rows = [f"{folder}/{name}" for name in evaluated["name"]]
    close(model.predict(rows), evaluated["level_predicted"])
    by_table = by_command(run, table, "--images", folder)
    same(model.predict(table, images=folder), by_table)
    same(model.predict(pd.read_csv(table), images=folder), by_table)
    pair = pd.DataFrame({"before": ["9.png"], "after": ["7.png"]})
    pair.to_csv(tmp_path / "pair.csv", index=False)
    asked = ("--images", folder, "--image-column", "after")
    close(by_command(run, tmp_path / "pair.csv", *asked), expected)
    close(model.predict(pair, images=folder, image_column="after"), expected)
    assert np.ptp(everything) > 1
    same(model.embed(file), model.embed(planes[None]))


@needs_onnx
def test_pixels_of_the_estimator_have_one_prediction(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    level = rng.integers(20, 235, 40)
    x = (level[:, None, None, None] + rng.integers(0, 20, (40, 3, 16, 16))).astype(np.uint8)
    fitted = rnc.RnCRegressor(encoder="small-cnn", image_size=16, **SMALL).fit(x, level)
    fitted.model_.save(tmp_path / "run")
    model = rnc.load(tmp_path / "run")
    expected = fitted.predict(x[:1])
    close(model.predict(x[:1]), expected)
    np.savez(tmp_path / "new.npz", x=x[:1])
    same(by_command(tmp_path / "run", tmp_path / "new.npz"), model.predict(x[:1]))
    picture = Image.fromarray(x[0].transpose(1, 2, 0))
    picture.save(tmp_path / "new.png")
    for form in (tmp_path / "new.png", picture, x[0].transpose(1, 2, 0)):
        same(model.predict(form), model.predict(x[:1]))
    close(model.embed(x), fitted.transform(x))


@needs_onnx
def test_a_signal_has_one_prediction(tmp_path: Path) -> None:
    x, y = waves()
    np.savez(tmp_path / "waves.npz", x=x, y=y)
    np.savez(tmp_path / "new.npz", x=x[3:4])
    run = tmp_path / "run"
    command("fit", tmp_path / "waves.npz", "--encoder", "resnet1d10", *FAST, "--out", run)
    expected = by_command(run, tmp_path / "new.npz")
    model = rnc.load(run)
    same(model.predict(x[3:4]), expected)
    same(model.predict(tmp_path / "new.npz"), expected)
    close(by_onnx(model, tmp_path, x[3]), expected)
    fitted = rnc.RnCRegressor(encoder="resnet1d10", **SMALL).fit(x, y)
    fitted.model_.save(tmp_path / "saved")
    close(rnc.load(tmp_path / "saved").predict(x), fitted.predict(x))
    close(by_command(tmp_path / "saved", tmp_path / "new.npz"), fitted.predict(x[3:4]))


@needs_onnx
def test_a_row_with_a_category_and_a_gap_has_one_prediction(tmp_path: Path) -> None:
    frame, run = homes(), tmp_path / "run"
    frame.to_csv(tmp_path / "homes.csv", index=False)
    command("fit", tmp_path / "homes.csv", "--target", "price", *FAST, "--out", run)
    row = frame.drop(columns="price").iloc[9:10]
    assert row["area"].isna().all()
    assert row["town"].notna().all()
    row.to_csv(tmp_path / "new.csv", index=False)
    expected = by_command(run, tmp_path / "new.csv")
    model = rnc.load(run)
    town = row["town"].item()
    for form in (row, row[["town", "area"]], [[None, town]], np.array([[np.nan, town]], object)):
        same(model.predict(form), expected)
    for form in ({"town": town, "area": None}, [{"town": town, "area": np.nan}]):
        same(model.predict(form), expected)
    close(by_onnx(model, tmp_path, row.to_dict("records")[0]), expected)
    fitted = rnc.RnCRegressor(**SMALL).fit(frame[["area", "town"]], frame["price"])
    fitted.model_.save(tmp_path / "saved")
    same(rnc.load(tmp_path / "saved").predict(row), fitted.predict(row))
    same(by_command(tmp_path / "saved", tmp_path / "new.csv"), fitted.predict(row))
    close(by_onnx(fitted.model_, tmp_path, row.to_dict("records")[0]), fitted.predict(row))


def test_a_row_does_not_feel_the_others(tmp_path: Path) -> None:
    frame, run = homes(), tmp_path / "run"
    frame.to_csv(tmp_path / "homes.csv", index=False)
    command("fit", tmp_path / "homes.csv", "--target", "price", *FAST, "--out", run)
    model = rnc.load(run)
    together = model.predict(frame)
    same(np.concatenate([model.predict(frame[i : i + 1]) for i in range(len(frame))]), together)
    same(model.predict(frame, batch_size=7), together)
    same(by_command(run, tmp_path / "homes.csv"), together)
    alone = np.concatenate([model.embed(frame[i : i + 1]) for i in range(len(frame))])
    same(alone, model.embed(frame))
