"""Two processes under torchrun train like one with the same global batch."""

import dataclasses
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from rnc.data import Table
from rnc.files import read_tensors, write_tensors
from rnc.loss.distributed import is_first_process
from rnc.training.recipes import build_regressor, train
from training_cases import columns, normalised, partly, quick, same, unnormalised, volumes

CASES: dict[str, dict[str, Any]] = {
    "two views": {"optimizer": "sgd", "lr": 0.05, "views": 2, "head_solver": "sgd"},
    "exact head": {"views": 1},
    "end2end": {"scheme": "end2end"},
    "regularize": {"scheme": "regularize", "rnc_weight": 0.5},
    "accumulated and clipped": {"scheme": "end2end", "accumulate": 2, "clip": 0.1},
    "averaged": {"average": 0.9, "warm_up": 1, "optimizer": "sgd", "lr": 0.05},
    "averaged, two passes": {"scheme": "end2end", "average": 2, "views": 2},
    "auto": {"scheme": "auto", "views": 0},
    "corn": {"scheme": "end2end", "head": "corn"},
    "supcon": {"objective": "supcon", "step": 20.0},
    "simclr, finetuned": {"objective": "simclr", "scheme": "finetune", "layer_decay": 0.5},
    "own": {"objective": "own"},
    "dino": {"objective": "dino", "prototypes": 16, "head_solver": "sgd"},
    "fds, lds": {"scheme": "end2end", "regularizer": "fds", "lds": True, "step": 10.0},
    "ordinal entropy, mixed": {
        "scheme": "end2end",
        "regularizer": "ordinal-entropy",
        "c_mixup": True,
    },
    "ranksim": {"scheme": "end2end", "regularizer": "ranksim", "lr": 0.005},
    "queue": {"queue": 25, "batch_size": 15, "optimizer": "sgd"},
    "queue, unequal chunks": {"queue": 30, "chunk": 7, "batch_size": 15, "optimizer": "sgd"},
    "chunks": {"chunk": 3, "accumulate": 2, "clip": 0.1, "average": 0.9, "optimizer": "sgd"},
    "chunks of projections": {"objective": "supcon", "step": 20.0, "chunk": 4},
    "chunks end to end": {"scheme": "end2end", "chunk": 5},
    "weights, queue": {"queue": 25, "batch_size": 15, "optimizer": "sgd"},
    "weights, regularize": {"scheme": "regularize", "lds": True, "step": 10.0},
    "known in part": {"scheme": "finetune", "optimizer": "sgd", "teacher": "none"},
    "taught": {"optimizer": "sgd", "average": 0.9},
    "volumes": {"encoder": "resnet3d10", "epochs": 2, "average": 0.9, "optimizer": "sgd"},
    "volumes, queue and chunks": {
        **{"encoder": "resnet3d10", "epochs": 2, "optimizer": "sgd"},
        **{"batch_size": 10, "queue": 20, "chunk": 3},
    },
    "idle and frozen parts": {"scheme": "end2end"},
    "idle and frozen parts, chunks": {"scheme": "end2end", "chunk": 5, "optimizer": "sgd"},
    "frozen": {"freeze": True, "average": 0.9},
    "batch normalisation": {"scheme": "end2end"},
}
ALIKE = [case for case in CASES if case != "batch normalisation"]  # its statistics are per process


def table_of(case: str) -> Table:
    """49 rows to train: without drop_last, one process has none of the last 1."""
    return volumes(side=5) if case.startswith("volumes") else columns(rows=70)


def encoder_of(case: str) -> nn.Module | None:
    """Without statistics, but in one case; in another, with parts that get no gradient."""
    if case.startswith("volumes"):
        return None
    encoder = unnormalised() if case in ALIKE else normalised()
    if case.startswith("idle and frozen parts"):
        encoder[0].requires_grad_(False)
        encoder.idle = WithoutUse()
    return encoder


class WithoutUse(nn.Module):
    """Has a parameter, and does nothing with it."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))

    def forward(self, rows: Tensor) -> Tensor:
        return rows


def stress(features: Tensor, targets: Tensor) -> Tensor:
    """How far distances of features are from those of targets."""
    assert features.dim() == 3
    rows, labels = features[:, 0], targets.to(features.dtype)
    return (torch.cdist(rows, rows) - torch.cdist(labels, labels) / 20).square().mean()


def run(case: str, folder: Path) -> None:
    """Train; every process leaves its weights and records."""
    table = table_of(case)
    if case.startswith("weights"):
        table = dataclasses.replace(table, weight=np.linspace(0, 3, len(table)))
    table = partly(table) if case in ("known in part", "taught") else table
    config = quick(**{"epochs": 3, "lr": 0.02, **CASES[case]})
    model = build_regressor(table, config, encoder_of(case))
    own = stress if config.objective == "own" else None
    records = [
        dataclasses.asdict(record) for record in train(model, table, config, folder, own=own)
    ]
    name = "first" if is_first_process() else "other"
    write_tensors(folder / name, model.state_dict(), records)


def numbers(record: dict[str, Any]) -> dict[str, float]:
    """The losses and errors that a record has."""
    return {k: v for k, v in record.items() if isinstance(v, float) and k != "seconds"}


def main() -> None:
    """What torchrun starts in every process."""
    torch.set_num_threads(1)
    folder = Path(sys.argv[1])
    for case in CASES:
        run(case, folder / case)
    run("auto", folder / "auto")  # once more, from what it left
    if not is_first_process():  # a disk that is slow to say what the other process has written
        exists = Path.exists
        Path.exists = lambda path: time.sleep(0.4) or exists(path)
    run("exact head", folder / "slow")


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder where two processes have left what they got in every case."""
    folder = tmp_path_factory.mktemp("together")
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command = [*torchrun, "--nproc-per-node", "2", __file__, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.parametrize("case", ALIKE)
def test_two_processes_train_like_one(case: str, together: Path, tmp_path: Path) -> None:
    run(case, tmp_path)
    alone, alone_records = read_tensors(tmp_path / "first")
    weights, records = read_tensors(together / case / "first")
    assert len(records) == len(alone_records) >= 3
    for record, expected in zip(records, alone_records, strict=True):
        assert (record["stage"], record["epoch"]) == (expected["stage"], expected["epoch"])
        assert numbers(record) == pytest.approx(numbers(expected), rel=1e-4)
    for name, value in weights.items():
        torch.testing.assert_close(value, alone[name], rtol=1e-4, atol=1e-4, msg=name)
    start = build_regressor(table_of(case), quick(**CASES[case]), encoder_of(case)).state_dict()
    assert max((start[name] - alone[name]).abs().max() for name in alone) > 1e-2


@pytest.mark.parametrize("case", CASES)
def test_all_processes_end_with_the_same_weights(case: str, together: Path) -> None:
    (first, records), (other, other_records) = (
        read_tensors(together / case / name) for name in ("first", "other")
    )
    assert [record["val_error"] for record in records] == [
        record["val_error"] for record in other_records
    ]
    statistics = {name for name in first if "running" in name}
    assert bool(statistics) == (case not in ALIKE)
    assert same(*({k: v for k, v in w.items() if k not in statistics} for w in (first, other)))


def test_a_slow_disk_does_not_tear_processes_apart(together: Path) -> None:
    expected, _ = read_tensors(together / "exact head" / "first")
    for name in ("first", "other"):
        assert same(read_tensors(together / "slow" / name)[0], expected)


if __name__ == "__main__":
    main()
