"""Compare the test MAE before and after batch size and epochs depended on the number of rows.

"before" has the old defaults of `rnc fit`: batches of 256, 30 epochs of preset quick, and learning
rates that do not depend on the batch. Fewer than 256 rows were an error; here they get batches of
half the rows. "after" has the present defaults.

    python benchmarks/defaults.py airfoil/table.csv concrete/table.csv --target y \
        --out benchmarks/results/defaults.csv
    python benchmarks/defaults.py concrete/table.csv --target y --preset paper --epochs 40 ...

All trainings use one thread, and each is written as soon as it is done. The baselines (the median,
and scikit-learn's gradient boosting) are scored on the same split.
"""

import argparse
import time
from pathlib import Path
from typing import Any

import torch

from results_file import append_rows
from rnc.config import FitConfig
from rnc.data import Table, read_table
from rnc.metrics import mae
from rnc.run.baselines import baselines
from rnc.run.enough import training_length
from rnc.training.recipes import build_regressor, train

RATES = {"probe": 0.5, "end2end": 0.2}


def fields_before(preset: str, scheme: str, rows: int, epochs: int | None) -> dict[str, Any]:
    """The fields of FitConfig that the old defaults set."""
    fields: dict[str, Any] = {"batch_size": 256 if rows >= 256 else rows // 2, "epochs": epochs}
    return fields | ({"lr": RATES[scheme]} if preset == "paper" else {})


def train_once(table: Table, config: FitConfig) -> dict[str, object]:
    """Size, error and time of one training."""
    rows, started = len(table.rows("train")), time.perf_counter()
    model = build_regressor(table, config)
    records = list(train(model, table, config))
    seconds = time.perf_counter() - started
    test, resolved = table.rows("test"), config.resolve(rows)
    length = training_length(records, config, rows)
    return {
        "batch_size": resolved.batch_size,
        "epochs": resolved.epochs,
        "updates": length["updates"],
        "enough": length["enough"],
        "test_mae": round(mae(model.predict_prepared(table.x[test]), table.y[test]), 4),
        "seconds": round(seconds, 1),
    }


def main() -> None:
    """Train on every table with the old and the present defaults."""
    parser = argparse.ArgumentParser()
    parser.add_argument("tables", nargs="+", type=Path)
    parser.add_argument("--target", required=True)
    parser.add_argument("--preset", default="quick")
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    for path in args.tables:
        table = read_table(path, target=args.target)
        rows, rivals = len(table.rows("train")), baselines(table, FitConfig())
        for scheme in RATES:
            before = fields_before(args.preset, scheme, rows, args.epochs)
            for name, fields in {"before": before, "after": {"epochs": args.epochs}}.items():
                config = FitConfig(
                    preset=args.preset, scheme=scheme, seed=args.seed, device="cpu", **fields
                )
                row: dict[str, object] = {"table": path.parent.name, "train_rows": rows}
                row |= {"preset": args.preset, "scheme": scheme, "seed": args.seed}
                row |= {"defaults": name, **train_once(table, config)}
                row |= {k: round(v["mae"], 4) for k, v in rivals.items()}
                print(row, flush=True)
                append_rows(args.out, [row])


if __name__ == "__main__":
    main()
