"""reference.safetensors: the training samples that predictions of a run are compared with.

features    float32 (m, d), from the encoder; float16 would blur near neighbours
targets     float64 (m, t), in their own units
names       uint8, a JSON list of m names, as predictions.csv would call the samples
distances   float32 (s, 25), from up to 2,000 of the samples to their nearest others, nearest first
rows        int32 (s, 25), which samples those others are
samples     int64 (m,), rows of the samples in the data of the run, from 0
total       int64 (1,), number of training samples that these were drawn from
"""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rnc.files import REFERENCE_FILE, read_tensors, write_tensors
from rnc.intervals.difficulty import Neighbours, OwnNeighbours, own_neighbours
from rnc.json_types import check_json, damaged
from rnc.metrics import Columns

OWN_NEIGHBOURS = 25
"""How many neighbours the file keeps for each sample whose own neighbours it holds."""


@dataclass(frozen=True, eq=False)
class Reference:
    """Training samples that others are compared with; at least two."""

    features: NDArray[np.float32]
    """(m, d)"""
    targets: Columns
    """(m, t)"""
    names: NDArray[np.str_]
    """(m,)"""
    rows: NDArray[np.int64]
    """(m,) rows in the data that they are from."""
    own: OwnNeighbours
    """Up to 25 nearest others of up to 2,000 of them."""
    total: int
    """Number of training samples that these were drawn from."""

    def __len__(self) -> int:
        return len(self.features)

    def neighbours(self, k: int = 25, beta: float = 0.1) -> Neighbours:
        """A search for the k nearest of these samples, which reuses their own neighbours."""
        return Neighbours(torch.from_numpy(self.features), self.targets, k, beta, own=self.own)

    def check_width(self, d: int, t: int, folder: Path) -> None:
        """Raise if the model of these samples does not have d features and t targets."""
        if (self.features.shape[1], self.targets.shape[1]) != (d, t):
            raise ValueError(
                f"{folder / REFERENCE_FILE} is of another model: it has "
                f"{self.features.shape[1]} features and {self.targets.shape[1]} targets of each "
                f"sample, the model {d} and {t}. {_remedy(folder)}"
            )

    def save(self, folder: str | Path) -> None:
        """Write reference.safetensors into a folder."""
        names = json.dumps(self.names.tolist()).encode()
        tensors = {
            "features": torch.from_numpy(self.features),
            "targets": torch.from_numpy(self.targets),
            "names": torch.frombuffer(bytearray(names), dtype=torch.uint8),
            "distances": self.own.distances.float(),
            "rows": self.own.rows.int(),
            "samples": torch.from_numpy(self.rows),
            "total": torch.tensor([self.total]),
        }
        write_tensors(Path(folder) / REFERENCE_FILE, tensors)


def make_reference(
    features: NDArray[np.float32],
    targets: Columns,
    names: NDArray[np.str_],
    rows: NDArray[np.int64],
    total: int,
) -> Reference:
    """A reference of training samples: features (m, d), targets (m, t), names and rows (m,)."""
    own = own_neighbours(torch.from_numpy(features), min(OWN_NEIGHBOURS, len(features) - 1))
    rounded = own._replace(distances=own.distances.float().double())  # as the file keeps them
    return Reference(features, targets, names, rows, rounded, total)


def read_reference(folder: str | Path) -> Reference:
    """The reference of a run folder; raises if there is none, as in runs of older versions."""
    folder = Path(folder)
    path = folder / REFERENCE_FILE
    if not path.exists():
        raise FileNotFoundError(
            f"{folder} has no {REFERENCE_FILE}, the training samples to compare with. An older "
            "version made the run, its training diverged, or it was pushed to the hub without "
            f"--with-reference. {_remedy(folder)}"
        )
    with damaged(path, _remedy(folder)):
        return _parsed(read_tensors(path)[0])


def _remedy(folder: Path) -> str:
    return f"`rnc evaluate {folder} --with neighbours` writes it, where the data of the run are."


def _parsed(tensors: dict[str, Tensor]) -> Reference:
    needed = ("features", "targets", "names", "distances", "rows", "samples", "total")
    if absent := [name for name in needed if name not in tensors]:
        raise ValueError(f"needed {', '.join(needed)}; there is no {', '.join(absent)}.")
    features, targets, samples = (tensors[name] for name in ("features", "targets", "samples"))
    names = json.loads(tensors["names"].numpy().tobytes())
    check_json(names, list[str], "names")
    own = OwnNeighbours(tensors["distances"].double(), tensors["rows"].long())
    if (
        features.dim() != 2
        or targets.dim() != 2
        or not len(features) == len(targets) == len(samples) == len(names) >= 2
        or own.rows.dim() != 2
        or own.rows.shape != own.distances.shape
        or not 0 <= int(own.rows.min()) <= int(own.rows.max()) < len(features)
    ):
        raise ValueError(
            "needed features (m, d), targets (m, t), m names and neighbours among the m; got "
            f"{tuple(features.shape)}, {tuple(targets.shape)}, {len(names)} and "
            f"{tuple(own.rows.shape)}."
        )
    return Reference(
        features.float().numpy(),
        targets.double().numpy(),
        np.array(names, dtype=np.str_),
        samples.long().numpy(),
        own,
        int(tensors["total"][0]),
    )
