"""A finished run as an analysis sees it, what an analysis may be told, and what it returns."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from torch import Tensor, nn

from rnc.config import FitConfig
from rnc.data.errors import DataError
from rnc.data.source import DataSource
from rnc.data.table import Table
from rnc.files import read_tensors
from rnc.metrics import Columns
from rnc.model import Regressor, read_config

TRAIN_TARGETS = "train_targets.safetensors"
SHARES = (1.0, 0.5, 0.25, 0.125)

Show = Callable[[int, int, str], None]
"""Steps done, steps in all, and what is being done."""


class DoesNotApply(ValueError):
    """An analysis has nothing to say about this run; the message says why."""


@dataclass(frozen=True)
class Result:
    """What an analysis found: JSON types, and arrays that go into a file beside it."""

    content: dict[str, Any]
    tensors: dict[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class Options:
    """What an analysis may be told; each takes what it needs."""

    map_method: str | None = None
    """pca, tsne or umap; None: umap if it is installed, else tsne."""
    corruption_samples: int = 2000
    """Most test images to corrupt."""
    seen: tuple[tuple[float, float], ...] = ()
    """Ranges of the first target that count as seen, ends included."""
    shares: tuple[float, ...] = SHARES
    """Of the training rows, for training again."""
    seeds: int = 1
    """How often to train again per share: with the run's seed and the next ones."""
    data: Path | None = None
    """The table to transfer to."""
    images: Path | None = None
    """The folder of its images."""
    target: tuple[str, ...] = ()
    """Its targets; by default those of the run."""
    show: Show = lambda done, total, what: None
    """Called as a long analysis goes on."""


@dataclass(eq=False)
class RunFolder:
    """The folder of a finished run; each part is read when it is first asked for."""

    path: Path
    given_table: Table | None = None
    """The data that the run was fitted on, if they are not in the file that config.json names."""
    encoder: nn.Module | None = None
    """The module, if the run was fitted with one of the caller's own."""

    @cached_property
    def config(self) -> dict[str, Any]:
        """config.json."""
        return read_config(self.path)

    @cached_property
    def fit(self) -> FitConfig:
        """How the run was fitted."""
        return FitConfig.from_json(self.config.get("fit", {}))

    @property
    def targets(self) -> tuple[str, ...]:
        """Names of the targets."""
        return tuple(self.config["model"]["target_names"])

    @property
    def pairs(self) -> dict[str, Any]:
        """Label distance and similarity of the run, as `rnc_loss` takes them."""
        return {"label_distance": self.fit.distance, "similarity": self.fit.similarity}

    @cached_property
    def predictions(self) -> pd.DataFrame:
        """predictions.csv, its columns as text."""
        frame = pd.read_csv(self._file("predictions.csv"), dtype=str, keep_default_na=False)
        needed = ["name", *self.targets, *(f"{name}_predicted" for name in self.targets)]
        if absent := [name for name in needed if name not in frame]:
            raise ValueError(
                f"{self.path / 'predictions.csv'} needs the columns {', '.join(needed)}; there is "
                f"no {', '.join(absent)}. Write it again with `rnc fit ... --resume`."
            )
        return frame

    @cached_property
    def scores(self) -> dict[str, Any]:
        """scores.json."""
        scores: dict[str, Any] = json.loads(self._file("scores.json").read_text(encoding="utf-8"))
        return scores

    @cached_property
    def truth(self) -> Columns:
        """The true targets of the test samples, (n, t)."""
        return np.asarray(self.predictions[list(self.targets)], dtype=np.float64)

    @cached_property
    def errors(self) -> Columns:
        """The absolute errors of the test samples, (n, t)."""
        columns = [f"{name}_predicted" for name in self.targets]
        guesses = np.asarray(self.predictions[columns], dtype=np.float64)
        return np.abs(guesses - self.truth)

    @cached_property
    def subgroups(self) -> dict[str, NDArray[np.str_]]:
        """The further columns of predictions.csv, as text."""
        known = {"name", *self.targets, *(f"{name}_predicted" for name in self.targets)}
        frame = self.predictions
        return {name: frame[name].to_numpy(np.str_) for name in frame if name not in known}

    @cached_property
    def features(self) -> NDArray[np.float32]:
        """Features of the samples in `rows`, (k, d)."""
        features = self._tensors("features.safetensors")["features"].numpy()
        if bad := int((~np.isfinite(features).all(axis=1)).sum()):
            raise ValueError(
                f"{self.path / 'features.safetensors'} has NaN or infinite values in {bad} of "
                f"{len(features)} samples: the training diverged. Lower its learning rate."
            )
        return np.asarray(features)

    @cached_property
    def rows(self) -> NDArray[np.int64]:
        """Which rows of predictions.csv have features, (k,)."""
        return np.asarray(self._tensors("features.safetensors")["rows"].numpy())

    @cached_property
    def train_targets(self) -> Columns | None:
        """What the model was trained on, (m, t); None for a run that did not keep it."""
        if not (self.path / TRAIN_TARGETS).exists():
            return None
        return np.asarray(self._tensors(TRAIN_TARGETS)["targets"].double().numpy())

    @cached_property
    def model(self) -> Regressor:
        """The trained model, on a GPU where there is one and the run may use it."""
        gpu = torch.cuda.is_available() and self.fit.device != "cpu"
        return Regressor.load(self.path, self.encoder).to("cuda" if gpu else "cpu")

    @property
    def source(self) -> DataSource:
        """How the data of the run were read; its `source` is empty if the caller gave a table."""
        known = {"source": "", "target": list(self.targets)}
        return DataSource.from_json(known | (self.config.get("data") or {}))

    @cached_property
    def table(self) -> Table:
        """The data that the run was fitted on, read again."""
        if self.given_table is not None:
            return self._checked(self.given_table)
        data = self.source
        if not data.source:
            raise DoesNotApply(
                f"{self.path} does not say where its data are, as runs of `rnc fit` do. From "
                "Python, give them: RunFolder(path, table)."
            )
        if not Path(data.source).exists():
            raise FileNotFoundError(
                f"{self.path} was fitted on {data.source}, which is not there as seen from "
                f"{Path.cwd()}. Call rnc from the folder where `rnc fit` was called."
            )
        return self._checked(data.read(self.fit.image_size))

    def _checked(self, table: Table) -> Table:
        names, before = table.names[table.rows("test")], self.predictions["name"]
        if names.tolist() != before.tolist():
            raise DataError(
                f"The data have changed since {self.path} was fitted: they have {len(names)} test "
                f"rows, not the {len(before)} of predictions.csv, or others. Fit again."
            )
        return table

    def _file(self, name: str) -> Path:
        path = self.path / name
        if not path.exists():
            read_config(self.path)  # says so if this is no run at all
            raise FileNotFoundError(
                f"{self.path} has no {name}: the run is not finished. Continue it with "
                "`rnc fit ... --resume`."
            )
        return path

    def _tensors(self, name: str) -> dict[str, Tensor]:
        try:
            return read_tensors(self._file(name))[0]
        except SafetensorError as error:
            raise ValueError(f"{self.path / name} cannot be read ({error}). Fit again.") from error
