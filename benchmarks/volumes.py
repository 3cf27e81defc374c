"""Compare RnC and L1 on volumes of balls whose radius is the target: errors by method and seed.

    python benchmarks/volumes.py --seeds 0 1 2 --out benchmarks/results/volumes.csv

The data are synthetic (`rnc.data.demo.balls_table`), since neither scikit-learn nor scipy has
volumes. Every seed has its own balls, split and weights. All methods have the same encoder and
number of epochs; RnC sees two views of a sample, l1 sees one. `scanner` is the accuracy of a linear
probe that tells from features which scanner took a volume. The radius does not depend on it, and
chance level is 0.25.

    l1                 end to end
    rnc                RnC, then an L1 head on the frozen encoder
    rnc small batches  the same with a quarter of the batch, a queue of half the training rows, and
                       gradient caching with chunks of 2: memory of 2 volumes
"""

import argparse
import platform
import time
from pathlib import Path
from typing import Any

import torch
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from results_file import append_rows
from rnc.config import FitConfig
from rnc.data import Table
from rnc.data.demo import balls_table
from rnc.metrics import mae, r2
from rnc.model import Regressor
from rnc.training.recipes import build_regressor, train

BATCH = 32
METHODS: dict[str, dict[str, Any]] = {
    "l1": {"scheme": "end2end"},
    "rnc": {"scheme": "probe"},
    "rnc small batches": {"scheme": "probe", "batch_size": BATCH // 4, "chunk": 2, "queue": 0.5},
}


def scanner_readable(model: Regressor, table: Table) -> float:
    """Accuracy on test rows of a linear probe for the scanner."""
    train_rows, test = table.rows("train"), table.rows("test")
    features = model.embed_prepared(table.x)
    probe = make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000))
    probe.fit(features[train_rows], table.subgroup["scanner"][train_rows])
    return float(probe.score(features[test], table.subgroup["scanner"][test]))


def measure(method: str, seed: int, options: argparse.Namespace) -> dict[str, object]:
    """One row of the results."""
    table = balls_table(seed, rows=options.rows, side=options.side)
    fields = {"batch_size": BATCH, **METHODS[method]}
    if "queue" in fields:
        fields["queue"] = int(fields["queue"] * len(table.rows("train")))
    config = FitConfig(
        preset="quick",
        encoder="resnet3d10",
        epochs=options.epochs,
        seed=seed,
        device="cpu",
        **fields,
    )
    started = time.perf_counter()
    model = build_regressor(table, config)
    for _ in train(model, table, config):
        pass
    seconds = time.perf_counter() - started
    test = table.rows("test")
    predicted = model.predict_prepared(table.x, rows=test)
    return {
        "method": method,
        "seed": seed,
        "test_mae": round(float(mae(predicted, table.y[test])), 4),
        "test_r2": round(float(r2(predicted, table.y[test])), 4),
        "scanner": round(scanner_readable(model, table), 3),
        "seconds": round(seconds, 1),
        "rows": len(table),
        "side": options.side,
        "epochs": options.epochs,
        "batch_size": fields["batch_size"],
        "torch": torch.__version__,
        "hardware": f"{platform.machine()} CPU, {torch.get_num_threads()} threads",
    }


def main() -> None:
    """Measure every method with every seed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--rows", type=int, default=400)
    parser.add_argument("--side", type=int, default=16)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    for seed in options.seeds:
        for method in options.methods:
            row = measure(method, seed, options)
            print(row, flush=True)
            append_rows(options.out, [row])


if __name__ == "__main__":
    main()
