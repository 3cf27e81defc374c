"""Compare ways to use a pretrained encoder on few pictures: frozen, fine-tuned, or not at all.

The weights come from a run of `rnc fit`, by `--weights`. The data are a table of photos that this
run has not seen. Every row of the results has a method, its seconds of training and its test error.
The seconds include the features of a frozen encoder; "frozen, again" finds them in the cache.

    rnc fit first_half.csv --images photos --target age --encoder small-cnn --image-size 32 \
        --preset quick --out runs/first
    python benchmarks/frozen.py few.csv --images photos --target age --weights runs/first \
        --image-size 32 --out benchmarks/results/frozen.csv
"""

import argparse
import os
import tempfile
import time
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import nn

from results_file import append_rows
from rnc.config import FitConfig
from rnc.data import Table, read_table
from rnc.data.source import stored_side
from rnc.encoders.projection import ResidualProjection
from rnc.training.recipes import build_regressor, train

FROZEN: dict[str, Any] = {"freeze": True}
FINETUNED: dict[str, Any] = {"scheme": "end2end", "epochs": 10}
METHODS: dict[str, dict[str, Any]] = {
    "frozen, no projection": {**FROZEN, "epochs": 1, "lr": 1e-12, "frozen_views": 0, "views": 0},
    "frozen": FROZEN,
    "frozen, again": FROZEN,
    "frozen, linear projection": FROZEN,
    "frozen, no views": {**FROZEN, "frozen_views": 0, "views": 0},
    "frozen, 2 views": {**FROZEN, "frozen_views": 2},
    "frozen, finetune": {**FROZEN, "scheme": "finetune"},
    "fine-tuned": FINETUNED,
    "fine-tuned, layer decay 0.5": {**FINETUNED, "layer_decay": 0.5},
    "end to end from scratch": {**FINETUNED, "weights": None},
    "rnc from scratch": {"weights": None},
}
"""The fields of FitConfig by name of the method. The last four train the whole network."""


class LinearProjection(ResidualProjection):
    """The projection z + W z + b, for comparison with the residual one."""

    def __init__(self, d: int) -> None:
        super().__init__(d)
        self.hidden, self.out = nn.Sequential(), nn.Linear(d, d)
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)


def measured(table: Table, method: str, shared: dict[str, Any], seed: int) -> dict[str, object]:
    """Seconds of training, and the mean absolute error on the test rows."""
    config = FitConfig(**{"preset": "quick", "seed": seed, **shared, **METHODS[method]})
    started, cpu = time.perf_counter(), time.process_time()
    projection = LinearProjection if "linear" in method else ResidualProjection
    with patch("rnc.encoders.ResidualProjection", projection):
        model = build_regressor(table, config)
    for _ in train(model, table, config):
        pass
    seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
    rows = table.rows("test")
    errors = np.abs(model.predict_prepared(table.x, rows=rows) - table.y[rows])
    return {
        "method": method,
        "seed": seed,
        "rows": len(table.rows("train")),
        "seconds": round(seconds, 1),
        "cpu_seconds": round(cpu, 1),
        "mae": round(float(errors.mean()), 3),
        "torch": torch.__version__,
    }


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path)
    parser.add_argument("--images", type=Path)
    parser.add_argument("--target", required=True)
    parser.add_argument("--weights", required=True)
    parser.add_argument("--encoder", default="small-cnn")
    parser.add_argument("--image-size", type=int, default=32)
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=METHODS)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    side = stored_side(args.image_size)
    table = read_table(
        args.source, images=args.images, target=args.target, split_column="split", image_size=side
    )
    shared = {"encoder": args.encoder, "image_size": args.image_size, "weights": args.weights}
    with tempfile.TemporaryDirectory() as cache:
        os.environ["XDG_CACHE_HOME"] = cache  # without features that other runs have cached
        for seed in range(args.seeds):
            for method in args.methods:
                row = {"data": args.source.stem, **measured(table, method, shared, seed)}
                print(row, flush=True)
                append_rows(args.out, [row])


if __name__ == "__main__":
    main()
