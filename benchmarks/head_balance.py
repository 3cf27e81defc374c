"""What it costs to choose the balance of a solved head where balance cannot help.

It cannot help if validation rows are like training rows. So every table is split at random,
70/10/20, several times. An l1 head is solved on the columns and 200 random ReLU features of them,
with balance 0 and with the balance that validation chooses. The rules of choice differ in how many
standard errors better a balance must be, over all validation rows or over a few. The results are
the changes of the test MAE relative to balance 0.

    python benchmarks/head_balance.py airfoil/table.csv concrete/table.csv --target y \
        --out benchmarks/results/head_balance.csv
"""

import argparse
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from results_file import append_rows
from rnc.data import read_table
from rnc.heads import make_head
from rnc.training import probe
from rnc.training.probe import HeadFit, solve_head

RULES = ((0.0, None), (1.0, None), (2.0, None), (2.0, 30), (2.0, 8))
"""Pairs of standard errors and validation rows; None stands for all validation rows."""
MOST_ROWS = 10_000
RANDOM_FEATURES = 200

Split = tuple[Tensor, Tensor]


def make_splits(x: np.ndarray, y: np.ndarray, seed: int) -> list[Split]:
    """Features and targets of train, val and test rows: columns and random features of them."""
    order = np.random.default_rng(seed).permutation(len(x))[:MOST_ROWS]
    ends = [0, int(0.7 * len(order)), int(0.8 * len(order)), len(order)]
    train = x[order[: ends[1]]]
    columns = torch.tensor((x - train.mean(axis=0)) / np.maximum(train.std(axis=0), 1e-9))
    columns = columns.double().clamp(-5, 5)
    generator = torch.Generator().manual_seed(seed)
    layer = torch.randn(x.shape[1] + 1, RANDOM_FEATURES, generator=generator).double()
    hidden = torch.relu(columns @ layer[1:] / x.shape[1] ** 0.5 + layer[0])
    features, targets = torch.cat([columns, hidden], dim=1), torch.tensor(y)
    parts = [torch.from_numpy(order[a:b]) for a, b in pairwise(ends)]
    return [(features[part], targets[part]) for part in parts]


def solve(splits: list[Split], balance: float | None, rows: int | None) -> tuple[HeadFit, float]:
    """The head that the first `rows` validation rows choose, and its test error."""
    train, val, test = splits
    head = make_head("l1", train[0].shape[1], train[1]).double()
    found = solve_head(head, *train, *(part[:rows] for part in val), balance=balance)
    with torch.no_grad():
        return found, float((head.decode(head(test[0])) - test[1]).abs().mean())


def main() -> None:
    """Solve all heads, then print and write how each rule changes the error."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0] if __doc__ else "")
    parser.add_argument("tables", nargs="+", type=Path)
    parser.add_argument("--target", required=True)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", type=Path, help="CSV file to append to")
    args = parser.parse_args()
    probe.LEAST_ROWS = 0
    changes: dict[tuple[float, int | None], list[float]] = {rule: [] for rule in RULES}
    taken = dict.fromkeys(RULES, 0)
    for path in args.tables:
        table = read_table(path, target=[args.target], split_column="split")
        for seed in range(args.seeds):
            splits = make_splits(table.x.astype(np.float64), table.y, seed)
            plain = {rows: solve(splits, 0.0, rows)[1] for rows in {rows for _, rows in RULES}}
            for rule in RULES:
                probe.SURE, rows = rule
                found, error = solve(splits, None, rows)
                changes[rule].append(error / plain[rows] - 1)
                taken[rule] += found.balance > 0
        print(path.parent.name, flush=True)
    written: list[dict[str, object]] = []
    for (sure, rows), change in changes.items():
        row: dict[str, object] = {
            "tables": len(args.tables),
            "splits": len(change),
            "standard_errors": sure,
            "validation_rows": rows or "a tenth",
            "mean_change": f"{np.mean(change):.4f}",
            "worst_change": f"{max(change):.4f}",
            "taken": taken[sure, rows],
        }
        print(row)
        written.append(row)
    append_rows(args.out, written)


if __name__ == "__main__":
    main()
