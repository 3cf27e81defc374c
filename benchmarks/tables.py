"""Compare RnC, L1 and gradient boosting on tables: test MAE by method and seed.

    python benchmarks/tables.py FOLDER --names airfoil concrete --seeds 0 1 2 --jobs 14 \
        --out benchmarks/results/tables.csv

FOLDER/NAME/table.csv has a column y, which is the target, and a column split: train, val, test.
All methods learn from the training rows. Epochs, penalties and tuned options are chosen on the
validation rows.

    boosting squared, boosting absolute   scikit-learn's HistGradientBoosting by default, by loss
    boosting tuned                        loss, leaves and iterations chosen on validation
    l1 best, rnc best, rnc fine-tuned     preset best: end to end; a solved head on the frozen
                                          encoder; both fine-tuned from there
    l1 + 0.1 rnc, ...                     preset best, both losses at once
    l1 quick, rnc quick                   preset quick, a plain MLP

Each job has a process with one thread. The rows of a job are written when it is done, and jobs
whose rows are in the file are skipped.
"""

import argparse
import csv
import multiprocessing
import os
import platform
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import torch

from results_file import append_rows
from rnc.config import FitConfig
from rnc.data import Table, read_table
from rnc.files import read_tensors
from rnc.metrics import mae
from rnc.model import Regressor
from rnc.training.checkpoint import ENCODER_FILE
from rnc.training.recipes import build_regressor, train, train_encoder

LEAVES = (15, 31, 63)
LOSSES = {"squared": "squared_error", "absolute": "absolute_error"}


class Result(NamedTuple):
    """The errors of one method."""

    method: str
    val_mae: float
    test_mae: float


class Job(NamedTuple):
    """Methods that are trained together, on one table with one seed."""

    path: Path
    name: str
    seed: int

    @property
    def key(self) -> tuple[str, str, str]:
        """What identifies the job in the file: table, last method, seed."""
        return self.path.parent.name, JOBS[self.name][1], str(self.seed)


def errors(table: Table, predict: Callable[[object], object]) -> tuple[float, float]:
    """MAE on validation and test rows."""
    val, test = table.rows("val"), table.rows("test")
    return mae(predict(table.x[val]), table.y[val]), mae(predict(table.x[test]), table.y[test])


def trained(table: Table, config: FitConfig, encoder: Path | None = None) -> Regressor:
    """A model that was trained by the config, from a saved encoder if one is given."""
    model = build_regressor(table, config)
    weights = None if encoder is None else read_tensors(encoder)[0]
    for _ in train(model, table, config, encoder_weights=weights):
        pass
    return model


def end_to_end(table: Table, preset: str, seed: int) -> Iterator[Result]:
    """L1, end to end."""
    model = trained(table, FitConfig(preset=preset, scheme="end2end", seed=seed, device="cpu"))
    yield Result(f"l1 {preset}", *errors(table, model.predict_prepared))


def contrast(table: Table, preset: str, seed: int) -> Iterator[Result]:
    """RnC with a solved head; for preset best also fine-tuned, from the same encoder."""
    config = FitConfig(preset=preset, scheme="probe", seed=seed, device="cpu")
    with TemporaryDirectory() as folder:
        for _ in train_encoder(build_regressor(table, config), table, config, Path(folder)):
            pass
        encoder = Path(folder) / ENCODER_FILE
        model = trained(table, config, encoder)
        yield Result(f"rnc {preset}", *errors(table, model.predict_prepared))
        if preset == "best":
            fine = FitConfig(preset=preset, scheme="finetune", seed=seed, device="cpu")
            model = trained(table, fine, encoder)
            yield Result("rnc fine-tuned", *errors(table, model.predict_prepared))


def joint(table: Table, preset: str, seed: int) -> Iterator[Result]:
    """L1 and RnC together on the same features, for several weights of RnC."""
    for weight in (0.03, 0.1, 0.3, 1.0):
        config = FitConfig(preset=preset, scheme="regularize", rnc_weight=weight, seed=seed)
        model = trained(table, config)
        yield Result(f"l1 + {weight:g} rnc", *errors(table, model.predict_prepared))


def boosting(table: Table, loss: str, seed: int) -> Iterator[Result]:
    """Gradient boosting with scikit-learn's defaults."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    rows = table.rows("train")
    model = HistGradientBoostingRegressor(loss=LOSSES[loss], random_state=seed)
    model.fit(table.x[rows], table.y[rows, 0])
    yield Result(f"boosting {loss}", *errors(table, model.predict))


def tuned_boosting(table: Table, _: str, seed: int) -> Iterator[Result]:
    """Gradient boosting in small steps; validation rows choose loss, leaves and iterations."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    train, val, test = (table.rows(split) for split in ("train", "val", "test"))
    found = []
    for loss in LOSSES.values():
        for leaves in LEAVES:
            model = HistGradientBoostingRegressor(
                loss=loss, max_leaf_nodes=leaves, learning_rate=0.05, max_iter=1000,
                early_stopping=False, random_state=seed,
            )  # fmt: skip
            model.fit(table.x[train], table.y[train, 0])
            by_step = zip(
                model.staged_predict(table.x[val]), model.staged_predict(table.x[test]), strict=True
            )
            scored = [(mae(a, table.y[val]), mae(b, table.y[test])) for a, b in by_step]
            found.append(min(scored))
    yield Result("boosting tuned", *min(found))


JOBS: dict[str, tuple[Callable[[Table, str, int], Iterator[Result]], str, str]] = {
    "rnc": (contrast, "rnc fine-tuned", "best"),
    "joint": (joint, "l1 + 1 rnc", "best"),
    "l1": (end_to_end, "l1 best", "best"),
    "rnc quick": (contrast, "rnc quick", "quick"),
    "boosting tuned": (tuned_boosting, "boosting tuned", ""),
    "l1 quick": (end_to_end, "l1 quick", "quick"),
    "squared": (boosting, "boosting squared", "squared"),
    "absolute": (boosting, "boosting absolute", "absolute"),
}
"""The jobs by name, the longest first: function, last method, and preset or loss."""


def run(job: Job) -> list[dict[str, object]]:
    """The rows of a job."""
    torch.set_num_threads(1)
    table, started = read_table(job.path, target="y"), time.perf_counter()
    run_methods, _, option = JOBS[job.name]
    rows = []
    for result in run_methods(table, option, job.seed):
        rows.append(
            {
                "table": job.path.parent.name,
                "train_rows": len(table.rows("train")),
                "columns": table.x.shape[1],
                "method": result.method,
                "seed": job.seed,
                "val_mae": f"{result.val_mae:.5g}",
                "test_mae": f"{result.test_mae:.5g}",
                "seconds": round(time.perf_counter() - started, 1),
                "torch": torch.__version__,
                "hardware": platform.machine(),
            }
        )
    return rows


def left(jobs: Iterable[Job], out: Path) -> list[Job]:
    """The jobs whose rows are not in the file, the longest first."""
    known = set()
    if out.exists():
        with out.open(newline="") as file:
            known = {(row["table"], row["method"], row["seed"]) for row in csv.DictReader(file)}
    order = list(JOBS)
    missing = [job for job in jobs if job.key not in known]
    return sorted(missing, key=lambda job: (order.index(job.name), -job.path.stat().st_size))


def main() -> None:
    """Run the jobs that are not in the file yet."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--names", nargs="+", required=True)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--methods", nargs="+", choices=list(JOBS), default=list(JOBS))
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"  # for the processes that start now, scikit-learn included
    paths = [args.folder / name / "table.csv" for name in args.names]
    jobs = left((Job(p, m, s) for p in paths for m in args.methods for s in args.seeds), args.out)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(args.jobs, mp_context=context) as pool:
        for done in as_completed([pool.submit(run, job) for job in jobs]):
            rows = done.result()
            append_rows(args.out, rows)
            for row in rows:
                print(*(row[name] for name in ("table", "method", "seed", "test_mae", "seconds")))


if __name__ == "__main__":
    main()
