"""Small run folders that the tests of the analyses share."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from rnc.config import FitConfig
from rnc.data import Table
from rnc.data.source import DataSource
from rnc.run.evaluate import evaluate_run
from rnc.run.fit import fit_run
from rnc.run.folder import RunFolder
from rnc.run.reference import reference_of
from rnc.run.write import write_evaluation
from rnc.training.recipes import build_regressor

FAST = FitConfig(
    preset="quick", encoder="mlp", epochs=2, head_epochs=2, batch_size=16, device="cpu"
)


def houses(path: Path, n: int = 160, seed: int = 0, **columns: Any) -> Path:
    """A CSV of houses: area and rooms say the price, town and age are for subgroups."""
    rng = np.random.default_rng(seed)
    area, rooms = rng.uniform(50, 200, n).round(1), rng.integers(1, 7, n)
    frame = {
        "area": area,
        "rooms": rooms,
        "price": (3 * area + 20 * rooms + rng.normal(0, 5, n)).round(),
        "town": rng.choice(["north", "south", "west"], n),
        "age": rng.uniform(0, 90, n),
    }
    pd.DataFrame(frame | columns).to_csv(path, index=False)
    return path


def data_of(source: Path, **changes: Any) -> DataSource:
    """How houses are read."""
    columns = {"subgroup_columns": ("town", "age"), "feature_columns": ("area", "rooms")}
    return DataSource(str(source), **{"target": ("price",), **columns, **changes})


def fitted(folder: Path, source: Path, config: FitConfig = FAST, **changes: Any) -> RunFolder:
    """A run that was trained for two epochs."""
    data = data_of(source, **changes)
    for _ in fit_run(data.read(config.image_size), config, folder, data=data):
        pass
    return RunFolder(folder)


def untrained(
    folder: Path, table: Table, config: FitConfig = FAST, data: DataSource | None = None
) -> RunFolder:
    """A run whose model is as it was born: all files, and no training."""
    model = build_regressor(table, config)
    model.reference = reference_of(model, table)
    model.save(folder, {"fit": config.to_json(), "data": {} if data is None else data.to_json()})
    write_evaluation(evaluate_run(model, table, config), folder)
    run = RunFolder(folder, table)
    run.write_train_targets(table.y[table.rows("train")])
    return run


def table_of(n: int = 300, targets: int = 1, **subgroup: Any) -> Table:
    """Rows of three columns whose targets they say; every third is a test row."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, 3)).astype(np.float32)
    return Table(
        x=x,
        y=50 + 10 * x[:, :targets].astype(np.float64) + rng.normal(size=(n, targets)),
        target_names=("price", "rent")[:targets],
        kind="table",
        split=np.array(["train", "val", "test"] * n)[:n],
        names=np.array([f"row {i}" for i in range(n)]),
        subgroup={name: np.asarray(values) for name, values in subgroup.items()},
    )


def images_of(n: int = 30, side: int = 32, channels: int = 3) -> Table:
    """Flat images with noise; the target is their brightness."""
    rng = np.random.default_rng(0)
    level = rng.integers(20, 220, n)
    noise = rng.integers(0, 30, (n, channels, side, side))
    x = (level[:, None, None, None] + noise).astype(np.uint8)
    split = np.array(["train", "val", "test"] * n)[:n]
    names = np.array([f"{i}.png" for i in range(n)])
    return Table(x, level[:, None] * 1.0, ("level",), "image", split, names)


def with_config(**changes: Any) -> FitConfig:
    """The fast config with other fields."""
    return dataclasses.replace(FAST, **changes)


def written(run: RunFolder, name: str) -> Any:
    """An analysis as JSON."""
    return json.loads((run.path / "analyses" / f"{name}.json").read_text())


def files(folder: Path, besides: str = "analyses") -> dict[str, bytes]:
    """All files of a folder and what is in them, but for one folder in it."""
    paths = (path for path in folder.rglob("*") if path.is_file())
    kept = {path.relative_to(folder): path.read_bytes() for path in paths}
    return {str(path): content for path, content in kept.items() if path.parts[0] != besides}
