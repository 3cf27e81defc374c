"""Memory and time to read many small pictures in tar shards, and to train on them.

    python benchmarks/shards.py write FOLDER --rows 1000000
    python benchmarks/shards.py train FOLDER --epochs 3 --out benchmarks/results/shards.csv

`write` makes shards of 100,000 pictures of 32 pixels, each with a .json; 2,000 different pictures
are repeated. `train` starts three processes. The first reads the shards into the cache, and the
second reads them from the cache. The third trains an encoder by RnC, first with samples mapped from
disk, then with samples kept on the GPU, or in memory if there is no GPU.

The results have the seconds of reading or of an epoch, and two peaks of memory. The first is memory
that the process owns (RssAnon). The second also counts pages of mapped files, which the system can
take back (VmHWM). Peaks are those of the process so far: a resident line after a mapped one has the
peak of both.
"""

import argparse
import io
import json
import platform
import statistics
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from PIL import Image

from results_file import append_rows

if TYPE_CHECKING:
    from rnc.config import Switch
    from rnc.data import Table

SIDE, SHARD, DIFFERENT = 32, 100_000, 2000
STEPS = ("read", "read again", "pace")


def write_shard(file: Path, first: int, rows: int) -> None:
    """Write one tar file. Of a hundred rows, one is for validation and one for testing."""
    pictures = []
    for i in range(DIFFERENT):
        pixels = np.random.default_rng(i).integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8)
        pixels[:] = pixels[:4].repeat(8, axis=0)
        content = io.BytesIO()
        Image.fromarray(pixels).save(content, "JPEG")
        pictures.append(content.getvalue())
    with tarfile.open(file, "w") as archive:
        for i in range(first, first + rows):
            split = {0: "val", 1: "test"}.get(i % 100, "train")
            row = json.dumps({"age": i % DIFFERENT, "split": split}).encode()
            for suffix, content in (("jpg", pictures[i % DIFFERENT]), ("json", row)):
                info = tarfile.TarInfo(f"{i:07d}.{suffix}")
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))


def write(folder: Path, rows: int) -> None:
    """Write all shards, several at the same time."""
    folder.mkdir(parents=True)
    with ProcessPoolExecutor() as pool:
        jobs = [
            pool.submit(write_shard, folder / f"part-{i:03d}.tar", start, min(SHARD, rows - start))
            for i, start in enumerate(range(0, rows, SHARD))
        ]
        for job in jobs:
            job.result()


class Memory(threading.Thread):
    """A thread that tracks the peak of memory that the process owns, ten times a second."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.first = self.peak = status("RssAnon")

    def run(self) -> None:
        """Track the peak until the process ends."""
        while True:
            self.peak = max(self.peak, status("RssAnon"))
            time.sleep(0.1)


def status(name: str) -> int:
    """A field of /proc/self/status, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))


class Measured(NamedTuple):
    """The values that all lines of the results share."""

    rows: int
    pixel_bytes: int
    memory: Memory

    def line(self, name: str, seconds: float | None = None) -> dict[str, object]:
        """One line, with the peaks so far."""
        gpu = torch.cuda.is_available()
        return {
            "step": name,
            "rows": self.rows,
            "pixel_mb": round(self.pixel_bytes / 1e6),
            "seconds": "" if seconds is None else f"{seconds:.4g}",
            "owned_mb": round(self.memory.peak / 1e6),
            "owned_at_start_mb": round(self.memory.first / 1e6),
            "with_pages_mb": round(status("VmHWM") / 1e6),
            "hardware": torch.cuda.get_device_name() if gpu else platform.machine(),
            "torch": torch.__version__,
        }


class Training(NamedTuple):
    """The settings of the training."""

    encoder: str
    epochs: int
    resident: "Sequence[Switch]"
    rows: int | None = None
    """Number of train rows to use, spread over all shards; None means all."""


def lines(folder: Path, name: str, training: Training, cache: Path) -> Iterator[dict[str, object]]:
    """The lines of results of one process."""
    from rnc.data import read_table

    memory = Memory()
    memory.start()
    start = time.perf_counter()
    table = read_table(folder, target="age", image_size=SIDE, fit="stretch", cache=cache)
    seconds = time.perf_counter() - start
    found = Measured(len(table), table.x.nbytes, memory)
    if name != "pace":
        yield found.line(name, seconds)
        return
    train = np.flatnonzero(table.split == "train")
    if training.rows is not None:
        left_out = np.random.default_rng(0).permutation(train)[training.rows :]
        table.split[left_out] = "test"
    learned = min(len(train), training.rows or len(train))
    for resident in training.resident:
        seconds = epoch_seconds(table, resident, training)
        kept = "resident" if resident == "on" else "mapped"
        yield found.line(f"{kept}, {training.encoder}, {learned} train rows", seconds)


def epoch_seconds(table: "Table", resident: "Switch", training: Training) -> float:
    """The median seconds of an epoch, without the first."""
    from rnc.config import FitConfig
    from rnc.training.recipes import build_regressor, train

    if resident == "on" and not torch.cuda.is_available():
        table = replace(table, x=np.array(table.x))
    config = FitConfig(
        preset="paper",
        encoder=training.encoder,
        image_size=SIDE,
        epochs=training.epochs,
        resident=resident,
    )
    records = train(build_regressor(table, config), table, config)
    seconds = [record.seconds for record in islice(records, training.epochs)]
    return statistics.median(seconds[1:] or seconds)


def main() -> None:
    """Write shards, or measure reading and training on them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("job", choices=["write", "train", *STEPS])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--encoder", default="resnet18", help="small-cnn for a CPU")
    parser.add_argument("--train-rows", type=int, help="train on so many, chosen from all shards")
    parser.add_argument("--resident", nargs="+", choices=["off", "on"], default=["off", "on"])
    parser.add_argument("--steps", nargs="+", choices=STEPS, default=STEPS)
    parser.add_argument("--cache", type=Path, default=Path("shards-cache"))
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/shards.csv"))
    args = parser.parse_args()
    if args.job == "write":
        write(args.folder, args.rows)
    elif args.job != "train":
        training = Training(args.encoder, args.epochs, args.resident, args.train_rows)
        for line in lines(args.folder, args.job, training, args.cache):
            append_rows(args.out, [line])
            print(line, flush=True)
    else:
        options = ["--epochs", f"{args.epochs}", "--cache", args.cache, "--out", args.out]
        options += ["--encoder", args.encoder, "--resident", *args.resident]
        options += [] if args.train_rows is None else ["--train-rows", f"{args.train_rows}"]
        for name in args.steps:
            subprocess.run([sys.executable, __file__, name, args.folder, *options], check=True)


if __name__ == "__main__":
    main()
