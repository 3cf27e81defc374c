"""Time per epoch of every method relative to L1, measured side by side in one run.

The data are random images of 32 pixels, for small-cnn in batches of 64; on a GPU give --encoder
resnet18 --pixels 224 --batch 256. Methods take turns, epoch by epoch, so that a machine that slows
down slows all of them. The fastest epoch of each counts.

    OMP_NUM_THREADS=1 python benchmarks/method_speed.py --out benchmarks/results/method_speed.csv
"""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from results_file import append_rows
from rnc import FitConfig
from rnc.data import Table, table_from_arrays
from rnc.training.recipes import build_regressor, train
from rnc.training.record import Record

END2END = {"scheme": "end2end"}
METHODS: dict[str, dict[str, Any]] = {
    "l1": END2END,
    "l2cs": END2END | {"head": "l2cs"},
    "corn": END2END | {"head": "corn"},
    "lds": END2END | {"lds": True},
    "fds": END2END | {"regularizer": "fds"},
    "ranksim": END2END | {"regularizer": "ranksim"},
    "ordinal-entropy": END2END | {"regularizer": "ordinal-entropy"},
    "c-mixup": END2END | {"c_mixup": True},
    "regularize": {"scheme": "regularize"},
    "rnc": {},
    "supcon": {"objective": "supcon"},
    "simclr": {"objective": "simclr"},
    "dino": {"objective": "dino"},
}


def make_table(images: int, pixels: int) -> Table:
    """Random images with ages 0..100, all but 20 of them for training."""
    random = np.random.default_rng(0)
    x = random.integers(0, 256, (images + 20, 3, pixels, pixels), dtype=np.uint8)
    ages = random.integers(0, 101, images + 20).astype(np.float64)
    split = np.array(["train"] * images + ["val"] * 10 + ["test"] * 10)
    return table_from_arrays(x, ages, split=split)


def main() -> None:
    """Print the ratios and write them as CSV."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0] if __doc__ else "")
    parser.add_argument("--images", type=int, default=640)
    parser.add_argument("--pixels", type=int, default=32)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--encoder", default="small-cnn")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--out", type=Path, help="CSV file to append to")
    args = parser.parse_args()
    table = make_table(args.images, args.pixels)
    runs: dict[str, Iterator[Record]] = {}
    for name, changes in METHODS.items():
        config = FitConfig(
            encoder=args.encoder,
            image_size=args.pixels,
            batch_size=args.batch,
            epochs=args.epochs,
            optimizer="adamw",
            **changes,
        )
        runs[name] = train(build_regressor(table, config), table, config)
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(args.epochs):
        for name, run in runs.items():
            seconds[name].append(next(run).seconds)
    hardware = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU, one thread"
    print(f"{hardware}, torch {torch.__version__}, {args.encoder}, {args.pixels} pixels")
    rows = []
    for name, found in seconds.items():
        ratio = min(found) / min(seconds["l1"])
        print(f"{name:>16} {ratio:6.2f}")
        rows.append(
            {
                "hardware": hardware,
                "torch": torch.__version__,
                "encoder": args.encoder,
                "pixels": args.pixels,
                "batch": args.batch,
                "method": name,
                "over_l1": f"{ratio:.2f}",
            }
        )
    append_rows(args.out, rows)


if __name__ == "__main__":
    main()
