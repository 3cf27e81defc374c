"""Two processes under torchrun train like one with the same global batch."""

import dataclasses
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from rnc.distributed import is_first_process
from rnc.files import read_tensors, write_tensors
from rnc.training.recipes import build_regressor, train
from training_cases import columns, normalised, quick, same, unnormalised

CASES: dict[str, dict[str, Any]] = {
    "two views": {"optimizer": "sgd", "lr": 0.05, "views": 2, "head_solver": "sgd"},
    "exact head": {"views": 1},
    "end2end": {"scheme": "end2end"},
    "regularize": {"scheme": "regularize", "rnc_weight": 0.5},
    "accumulated and clipped": {"scheme": "end2end", "accumulate": 2, "clip": 0.1},
    "auto": {"scheme": "auto", "views": 0},
    "batch normalisation": {"scheme": "end2end"},
}
ALIKE = [case for case in CASES if case != "batch normalisation"]  # its statistics are per process


def run(case: str, folder: Path) -> None:
    """Train; every process leaves its weights and records."""
    table = columns(rows=70)  # 49 to train: without drop_last, one process has none of the last 1
    config = quick(epochs=3, **{"lr": 0.02, **CASES[case]})
    model = build_regressor(table, config, unnormalised() if case in ALIKE else normalised())
    records = [dataclasses.asdict(record) for record in train(model, table, config, folder)]
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
    start = build_regressor(columns(rows=70), quick(**CASES[case]), unnormalised()).state_dict()
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
