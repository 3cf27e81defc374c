"""Small untrained runs to serve, with intervals and neighbours, and requests of clients."""

import dataclasses
import io
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from PIL import Image

from evaluation_cases import FAST, data_of, houses
from rnc.config import FitConfig
from rnc.data import Table, table_from_arrays
from rnc.data.source import DataSource
from rnc.model.intervals import calibrate
from rnc.run.evaluate import evaluate_run
from rnc.run.reference import reference_of
from rnc.run.write import write_evaluation
from rnc.training.recipes import build_regressor

SMALL = dataclasses.replace(FAST, encoder="small-cnn", image_size=16)


def born(folder: Path, table: Table, config: FitConfig = FAST, data: DataSource | None = None):
    """A run as it is before training, with a reference and calibration rows."""
    model = build_regressor(table, config)
    model.reference = reference_of(model, table)
    model.calibration = calibrate(model, table)
    model.save(folder, {"fit": config.to_json(), "data": {} if data is None else data.to_json()})
    write_evaluation(evaluate_run(model, table, config), folder)
    return folder


def table_run(folder: Path, n: int = 200) -> Path:
    """A run on houses: numbers area and rooms, categories town."""
    data = data_of(houses(folder / "houses.csv", n), feature_columns=("area", "rooms", "town"))
    data = dataclasses.replace(data, subgroup_columns=())
    return born(folder / "houses", data.read(224), data=data)


def photo_run(folder: Path, n: int = 60) -> Path:
    """A run on photos."""
    photos, rng = folder / "photos", np.random.default_rng(0)
    photos.mkdir()
    ages = rng.integers(20, 200, n)
    for i, age in enumerate(ages):
        (photos / f"{i}.png").write_bytes(photo(age, seed=i))
    frame = pd.DataFrame({"file": [f"{i}.png" for i in range(n)], "age": ages})
    frame.to_csv(folder / "faces.csv", index=False)
    data = DataSource(str(folder / "faces.csv"), target=("age",), images=str(photos))
    return born(folder / "faces", data.read(16), SMALL, data)


def signal_run(folder: Path, n: int = 60) -> Path:
    """A run on signals (2, 50)."""
    x = np.random.default_rng(0).normal(size=(n, 2, 50)).astype(np.float32)
    table = table_from_arrays(x, x.mean(axis=(1, 2)), target_names=["pulse"])
    return born(folder / "waves", table, dataclasses.replace(FAST, encoder="resnet1d10"))


def photo(level: int = 100, *, seed: int = 0, size: tuple[int, int] = (20, 26), kind="png"):
    """The bytes of a photo."""
    noise = np.random.default_rng(seed).integers(0, 30, (*size, 3))
    file = io.BytesIO()
    Image.fromarray((int(level) + noise).astype(np.uint8)).save(file, kind)
    return file.getvalue()


def npz(**arrays: Any) -> bytes:
    """The bytes of an .npz file."""
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)
    return file.getvalue()


def form(*files: tuple[str, bytes]) -> list[tuple[str, tuple[str, bytes]]]:
    """Files of a form, by their names."""
    return [("files", file) for file in files]
