"""Time to solve a head on fixed features, by L-BFGS and by Newton steps, side by side in one run.

L-BFGS solves the head for all seven ridge penalties, as an older `solve_head` did. Newton solves
the same; with "balance" it also chooses the exponent of the sample weights. They take turns, and
the fastest time of each counts. The features are synthetic: 16 hidden numbers through a ReLU layer,
with noise.

    OMP_NUM_THREADS=1 python benchmarks/head_speed.py --out benchmarks/results/head_speed.csv
    python benchmarks/head_speed.py --device cuda --out benchmarks/results/head_speed.csv
"""

import argparse
import dataclasses
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from results_file import append_rows
from rnc.heads import Head, head_config
from rnc.training.probe import PENALTIES, solve_head
from rnc.training.solver import ROUNDED_CORNER, Lbfgs

Split = tuple[Tensor, Tensor]


def make_features(rows: int, d: int, device: str) -> Split:
    """Synthetic features (n, d) and ages (n, 1): noisy functions of the same hidden numbers."""
    torch.manual_seed(0)
    hidden = torch.randn(rows, 16)
    features = torch.relu(hidden @ torch.randn(16, d) / 4 + 0.3 * torch.randn(rows, d))
    ages = 30 + 15 * hidden[:, :1] + 8 * hidden[:, 1:2].abs() + 6 * torch.randn(rows, 1)
    return features.to(device), ages.clamp(1, 116).round().double().to(device)


def by_lbfgs(name: str, train: Split, val: Split) -> float:
    """The best validation error over the penalties, by L-BFGS from the strongest to the weakest."""
    features, targets = train[0].double(), train[1]
    shift, scale = features.mean(dim=0), features.var(dim=0).mean().sqrt()
    config = head_config(name, features.shape[1], targets)
    if name == "l1":
        config = dataclasses.replace(config, name="huber", options={"beta": ROUNDED_CORNER})
    head = Head(config).to(features)
    torch.nn.init.zeros_(head.linear.weight)
    torch.nn.init.zeros_(head.linear.bias)
    solver, errors = Lbfgs(head, (features - shift) / scale, targets), []
    for penalty in sorted(PENALTIES, reverse=True):
        solver.minimise(penalty, 200)
        with torch.no_grad():
            predicted = head.decode(head((val[0].double() - shift) / scale))
        errors.append(float((predicted - val[1]).abs().mean()))
    return min(errors)


def by_newton(name: str, train: Split, val: Split, *, balance: float | None) -> float:
    """The validation error of `solve_head`."""
    head = Head(head_config(name, train[0].shape[1], train[1])).to(train[0].device)
    return solve_head(head, *train, *val, balance=balance).error


CONTESTANTS: dict[str, Callable[[str, Split, Split], float]] = {
    "lbfgs": by_lbfgs,
    "newton": partial(by_newton, balance=0.0),
    "newton, balance": partial(by_newton, balance=None),
}


def main() -> None:
    """Print times and ratios, and write the ratios as CSV."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0] if __doc__ else "")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rows", type=int, default=12208)
    parser.add_argument("--dim", type=int, default=512)
    parser.add_argument("--heads", nargs="+", default=["l1", "mse", "huber"])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path, help="CSV file to append to")
    args = parser.parse_args()
    features, ages = make_features(args.rows + 1666, args.dim, args.device)
    train, val = (
        (features[: args.rows], ages[: args.rows]),
        (features[args.rows :], ages[args.rows :]),
    )
    on_gpu = args.device != "cpu"
    hardware = torch.cuda.get_device_name() if on_gpu else f"CPU, {torch.get_num_threads()} threads"
    rows: list[dict[str, object]] = []
    for head in args.heads:
        seconds: dict[str, list[float]] = {name: [] for name in CONTESTANTS}
        errors: dict[str, float] = {}
        for _ in range(args.repeats):
            for name, solve in CONTESTANTS.items():
                started = time.perf_counter()
                errors[name] = solve(head, train, val)  # a float, so the GPU has finished
                seconds[name].append(time.perf_counter() - started)
        for name, found in seconds.items():
            ratio = min(seconds["lbfgs"]) / min(found)
            print(
                f"{head:>6} {name:>16} {min(found):7.2f} s  {ratio:5.2f} times as fast", flush=True
            )
            rows.append(
                {
                    "hardware": hardware,
                    "torch": torch.__version__,
                    "rows": args.rows,
                    "dim": args.dim,
                    "head": head,
                    "solver": name,
                    "speed_over_lbfgs": f"{ratio:.2f}",
                    "validation_mae": f"{errors[name]:.5f}",
                }
            )
    append_rows(args.out, rows)


if __name__ == "__main__":
    main()
