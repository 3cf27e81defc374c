"""Tiny problems that the tests of models and of training share."""

import dataclasses
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from rnc.config import FitConfig
from rnc.data import Table, table_from_arrays
from rnc.model import Regressor
from rnc.training.recipes import build_regressor, train
from rnc.training.record import Record


def columns(rows: int = 120, targets: int = 1) -> Table:
    """Rows of four columns; the targets are smooth functions of three of them."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, 4))
    y = np.stack([20 * x[:, 0] + 10 * np.abs(x[:, 1]), 15 * x[:, 2] - 5 * x[:, 0]], axis=1)
    return table_from_arrays(x, y[:, :targets])


def signals(rows: int = 60) -> Table:
    """Sines in two channels of very different units; the target is their frequency."""
    rng = np.random.default_rng(0)
    frequency = rng.uniform(1, 5, size=(rows, 1, 1))
    wave = np.sin(2 * np.pi * frequency * np.linspace(0, 1, 40) + rng.uniform(size=(rows, 1, 1)))
    return table_from_arrays(wave * [[1e-3], [50.0]] + [[0.0], [300.0]], frequency[:, 0, 0])


def images(rows: int = 60, channels: int = 3) -> Table:
    """Flat images with noise; the target is their brightness."""
    rng = np.random.default_rng(0)
    level = rng.integers(20, 220, size=rows)
    noise = rng.integers(0, 30, size=(rows, channels, 20, 20))
    return table_from_arrays((level[:, None, None, None] + noise).astype(np.uint8), level)


def volumes(rows: int = 40, side: int = 8) -> Table:
    """Balls in noise, in two channels of very different units; the target is their radius."""
    rng = np.random.default_rng(0)
    radius = rng.uniform(1, side / 2, size=rows)
    away = np.linalg.norm(np.indices((side, side, side)) - (side - 1) / 2, axis=0)
    balls = (away < radius[:, None, None, None]) + 0.1 * rng.normal(size=(rows, side, side, side))
    x = np.stack([1e-6 * balls, 500 - 300 * balls], axis=1).astype(np.float32)
    return table_from_arrays(x, radius)


def whole(table: Table) -> Table:
    """The same with targets that are whole numbers from 0, many of them more than once."""
    y = (table.y / 8).round()
    return dataclasses.replace(table, y=y - y.min())


def partly(table: Table) -> Table:
    """The same with two of three training targets missing, censored or in an interval."""
    rows, ends = table.rows("train"), np.stack([table.y, table.y], axis=-1)
    split, y = table.split.astype("<U11"), table.y.copy()
    rest = np.setdiff1d(rows, rows[::3])
    missing, censored, between = (rest[i::3] for i in (0, 1, 2))
    ends[missing] = (-np.inf, np.inf)
    ends[censored, :, 1] = np.inf
    ends[between] += (-5.0, 3.0)
    split[rest], y[rest] = "partial", np.nan
    return dataclasses.replace(table, split=split, y=y, ends=ends)


def quick(**changes: Any) -> FitConfig:
    """A config of seconds; `changes` are its fields."""
    small = {"encoder": "mlp", "epochs": 2, "head_epochs": 2, "batch_size": 16}
    return FitConfig(**{"preset": "quick", "device": "cpu", **small, **changes})


def normalised() -> nn.Module:
    """An encoder whose statistics and dropout would show what should have stood still."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(4, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 8)
    )


def unnormalised() -> nn.Module:
    """An encoder that treats every row alone.

    It has no last bias: RnC does not depend on one, so that AdamW would blow up rounding errors.
    """
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 8, bias=False))


class Overflowing(nn.Module):
    """An encoder whose features are infinite as soon as it is not being trained."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, rows: Tensor) -> Tensor:
        features: Tensor = self.linear(rows)
        return features if self.training else features * torch.inf


def fit(
    table: Table, config: FitConfig, encoder: nn.Module | None = None
) -> tuple[Regressor, list[Record]]:
    """A trained model and its records."""
    model = build_regressor(table, config, encoder)
    return model, list(train(model, table, config))


def weights(module: nn.Module) -> dict[str, Tensor]:
    """A copy of all that a module has learned."""
    return {name: value.detach().clone() for name, value in module.state_dict().items()}


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    """Whether all bits are equal."""
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


END2END: dict[str, Any] = {"scheme": "end2end"}
KINDS: dict[str, tuple[Any, str]] = {
    "table": (columns, "mlp"),
    "signal": (signals, "resnet1d10"),
    "image": (images, "small-cnn"),
    "volume": (volumes, "resnet3d10"),
}
