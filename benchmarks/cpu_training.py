"""Time of training on a CPU, with and without keeping freed memory for the next step.

    kept       freed memory is kept, as in `rnc fit`: see rnc.training.memory
    returned   freed memory goes back to the system, as in plain glibc

The two ways take turns. Each training runs in a process of its own, on one thread, in the training
loop of `rnc fit`: RnC trains an encoder with two views and batches of 128 (small-cnn, 28 pixels,
grey) or 32 (resnet18, 96 pixels). The first epoch does not count. Times are processor seconds,
since other processes do not affect them.

    python benchmarks/cpu_training.py --out benchmarks/results/cpu_training.csv
"""

import argparse
import contextlib
import json
import platform
import resource
import statistics
import subprocess
import sys
from pathlib import Path

import numpy as np
import torch

from results_file import append_rows
from rnc import FitConfig
from rnc.data import Table, table_from_arrays
from rnc.training import recipes

# encoder: channels, stored side, view side, training rows, batch size
CASES = {"small-cnn": (1, 32, 28, 512, 128), "resnet18": (3, 110, 96, 64, 32)}
WAYS = ("returned", "kept")
EPOCHS = 4


def make_table(channels: int, side: int, rows: int) -> Table:
    """Random images, all but 20 of them for training."""
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (rows + 20, channels, side, side), dtype=np.uint8)
    split = np.array(["train"] * rows + ["val"] * 10 + ["test"] * 10)
    return table_from_arrays(images, random.random(rows + 20), split=split)


def measure(encoder: str, way: str) -> dict[str, float]:
    """Processor seconds, page faults and peak memory of an epoch in this process."""
    torch.set_num_threads(1)
    if way == "returned":
        recipes.kept_memory = lambda config: contextlib.nullcontext()
    channels, side, size, rows, batch = CASES[encoder]
    table = make_table(channels, side, rows)
    config = FitConfig(
        encoder=encoder, image_size=size, batch_size=batch, epochs=EPOCHS, device="cpu"
    )
    model = recipes.build_regressor(table, config)
    marks = []
    for _ in recipes.train_encoder(model, table, config):
        used = resource.getrusage(resource.RUSAGE_SELF)
        marks.append((used.ru_utime, used.ru_stime, used.ru_minflt))
    user, system, faults = (
        (b - a) / (EPOCHS - 1) for a, b in zip(marks[0], marks[-1], strict=True)
    )
    return {
        "cpu_seconds": user + system,
        "system_seconds": system,
        "page_faults": faults,
        "peak_mb": used.ru_maxrss / 1024,
    }


def compare(encoder: str, repeats: int) -> list[dict[str, object]]:
    """Result rows with the medians of both ways, which take turns."""
    found: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
    for _ in range(repeats):
        for way in WAYS:
            words = [sys.executable, __file__, "--measure", encoder, way]
            said = subprocess.run(words, check=True, capture_output=True, text=True).stdout
            found[way].append(json.loads(said))
    rows: list[dict[str, object]] = []
    for way in WAYS:
        middle = {k: statistics.median(one[k] for one in found[way]) for k in found[way][0]}
        before = statistics.median(one["cpu_seconds"] for one in found[WAYS[0]])
        rows.append(
            {"hardware": platform.processor() or platform.machine(), "torch": torch.__version__}
            | {"encoder": encoder, "memory": way}
            | {k: round(v, 3 if "seconds" in k else None) for k, v in middle.items()}
            | {"cpu_over_returned": round(middle["cpu_seconds"] / before, 3)}
        )
    return rows


def main() -> None:
    """Compare both ways for every encoder."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--measure", nargs=2, metavar=("ENCODER", "WAY"))
    arguments = parser.parse_args()
    if arguments.measure:
        print(json.dumps(measure(*arguments.measure)))
        return
    for encoder in CASES:
        rows = compare(encoder, arguments.repeats)
        print(*rows, sep="\n")
        append_rows(arguments.out, rows)


if __name__ == "__main__":
    main()
