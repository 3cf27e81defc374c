"""Run the study of the recipe on many data sets, training by training, with `rnc reproduce`.

    python benchmarks/study.py DATA --names utkface --seeds 0 1 2 --out studies \
        --csv benchmarks/results/study.csv
    python benchmarks/study.py DATA --names airfoil concrete --seeds 0 --methods "RnC, best" ...
    python benchmarks/study.py DATA --names utkface --results reduced-data ... -- --epochs 100

DATA has a folder for each name in SETS, with table.csv (and images) or data.npz. Data sets are
processed in the given order, and so are the seeds, results and methods of each. Words after -- are
flags of `rnc reproduce`. A line is written as soon as a training is done, and a training that has a
line is skipped, so a call can be interrupted at any time. When all seeds of a method are done, a
line with the seed "mean" has its difference to the baseline in percent, with an interval. The
baseline of result recipe is "L1, all of the same", that of other results is L1.

After each seed, the weights below OUT are deleted; scores and predictions stay. The result
corruptions needs the weights, so name it together with recipe in one call.
"""

import argparse
import contextlib
import csv
import os
import platform
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from scipy.signal import decimate

import rnc
from results_file import append_rows
from rnc.cli import app
from rnc.experiments.paired import difference_name
from rnc.experiments.paper import STUDIES
from rnc.experiments.recipe import L1_SAME
from rnc.experiments.scores import EPOCHS, SAMPLES, SECONDS, VALIDATION
from rnc.experiments.store import Store

FACES = "--image-column path --image-size 96 --fit stretch --encoder resnet18"
TABLE = "--data NAME/table.csv --target y"
DRAWN_ROWS = 12208
SETS = {
    "utkface": "--data utkface/drawn.csv --images utkface --target age "
    f"--split-column split_balanced --group-column dup_group {FACES}",
    "pointing04": "--data pointing04/table.csv --images pointing04 --target pan --target tilt "
    f"--group-column person --no-flip {FACES}",
    "ptbxl": "--data ptbxl/data.npz",
    "bidmc": "--data bidmc/data.npz",
    "bidmc-respiration": "--data bidmc/data.npz --target respiration",
    "bidmc-16hz": "--data bidmc-16hz/data.npz --encoder resnet1d10 --epochs 30 --folds 5",
    "airfoil": TABLE,
    "concrete": TABLE,
    "california_housing": TABLE,
}
"""The flags that read each data set, with paths relative to DATA."""
METHODS = {
    "recipe": (
        L1_SAME,
        "RnC, best",
        "RnC, best, fine-tuned",
        f"{L1_SAME}, own head",
        "RnC, paper",
        "L1, plain",
    ),
    "reduced-data": ("L1", "RnC(L1)"),
    "corruptions": ("L1", "RnC(L1)"),
}
"""The methods of each result, the most informative first."""
COLUMNS = {
    "mae": "MAE",
    "val_error": VALIDATION,
    "spearman": "Spearman",
    "epochs": EPOCHS,
    "batch": SAMPLES,
    "seconds_per_epoch": SECONDS,
}
KEY = ("data", "result", "method", "seed", "command")


def words_of(result: str, name: str, more: Sequence[str], seed: int, seeds: int = 1) -> list[str]:
    """The arguments of `rnc`, without the folder for the runs."""
    flags = SETS[name].replace("NAME", name).split()
    preset = [] if result in STUDIES else ["--preset", "best"]
    return ["reproduce", result, *flags, *preset, *more, "--seed", f"{seed}", "--seeds", f"{seeds}"]


def rows_of(file: Path, result: str) -> Iterator[dict[str, object]]:
    """The content of a table of `rnc reproduce`, one row per method and setting."""
    lines: dict[tuple[str, str], dict[str, dict[str, str]]] = {}
    for row in csv.DictReader(file.read_text(encoding="utf-8").splitlines()):
        method, setting, score = row["method"], row["setting"], row["score"]
        if result == "corruptions":
            setting, score = score, "MAE"
        lines.setdefault((method, setting), {})[score] = row
    baseline = difference_name(L1_SAME if result in STUDIES else "L1")
    for (method, setting), scores in lines.items():
        change = scores.get(baseline, {})
        yield {
            "method": method,
            "setting": setting,
            "count": scores["MAE"]["seeds"],
            **{column: scores.get(score, {}).get("mean", "") for column, score in COLUMNS.items()},
            "mae_sd": scores["MAE"]["sd"],
            "difference": change.get("mean", ""),
            "difference_sd": change.get("sd", ""),
            "low": change.get("low", ""),
            "high": change.get("high", ""),
        }


class Study:
    """The trainings of one result on one data set, and the file for their results."""

    def __init__(self, result: str, name: str, more: Sequence[str], out: Path, file: Path) -> None:
        self.result, self.name, self.more = result, name, more
        self.out, self.file = out / name, file

    def train(self, method: str, seed: int) -> None:
        """Train a method with a seed, unless the file has its line."""
        words = words_of(self.result, self.name, self.more, seed)
        if not self._is_written(method, str(seed), words):
            self._call([*words, "--method", method])
            self._write(words, str(seed), [method])

    def average(self, methods: Sequence[str], seeds: Sequence[int]) -> None:
        """Write the mean over consecutive seeds, for methods whose seeds are all done."""
        if len(seeds) < 2 or list(seeds) != list(range(seeds[0], seeds[0] + len(seeds))):
            return
        words = words_of(self.result, self.name, self.more, seeds[0], len(seeds))
        left = [method for method in methods if not self._is_written(method, "mean", words)]
        if left:
            self._write(words, "mean", left, count=len(seeds))

    def _write(
        self, words: Sequence[str], seed: str, methods: Sequence[str], count: int = 1
    ) -> None:
        """Append the lines of methods whose runs are all finished."""
        self._call([*words, "--finished"])
        for row in rows_of(self.out / f"{self.result}.csv", self.result):
            if row["method"] in methods and int(str(row.pop("count"))) == count:
                written = {"data": self.name, "result": self.result, "seed": seed, **row}
                append_rows(self.file, [written | machine() | {"command": shown(words)}])

    def _call(self, words: Sequence[str]) -> None:
        if app([*words, "--out", str(self.out)], standalone_mode=False):
            sys.exit(f"{shown(words)} failed.")

    def _is_written(self, method: str, seed: str, words: Sequence[str]) -> bool:
        wanted = (self.name, self.result, method, seed, shown(words))
        if not self.file.exists():
            return False
        found = csv.DictReader(self.file.read_text(encoding="utf-8").splitlines())
        return any(tuple(row[name] for name in KEY) == wanted for row in found)


def shown(words: Sequence[str]) -> str:
    """The command as one would type it in DATA."""
    return "rnc " + " ".join(f"'{word}'" if " " in word else word for word in words)


def machine() -> dict[str, object]:
    """The hardware and versions that a line records."""
    gpu = torch.cuda.is_available()
    hardware = torch.cuda.get_device_name() if gpu else platform.machine()
    return {"hardware": hardware, "torch": torch.__version__, "version": rnc.__version__}


def decimate_pulse(data: Path) -> None:
    """Write bidmc-16hz/data.npz: bidmc at a quarter of its rate, for a CPU, without its split."""
    with np.load(data / "bidmc" / "data.npz") as arrays:
        x = decimate(arrays["x"].astype(np.float32), 4, axis=-1).astype(np.float32)
        folder = data / "bidmc-16hz"
        folder.mkdir(exist_ok=True)
        np.savez(folder / "data.npz", x=x, y=arrays["y"], group=arrays["group"])


def draw_faces(folder: Path) -> None:
    """Write drawn.csv: a seeded draw of the training rows of table.csv, and all other rows."""
    frame = pd.read_csv(folder / "table.csv")
    train = np.flatnonzero(frame["split_balanced"] == "train")
    left_out = np.random.default_rng(0).permutation(train)[DRAWN_ROWS:]
    frame.drop(index=left_out).to_csv(folder / "drawn.csv", index=False)


def main() -> None:
    """Run the trainings that the file lacks."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--names", nargs="+", choices=list(SETS), default=list(SETS))
    parser.add_argument("--results", nargs="+", choices=list(METHODS), default=["recipe"])
    parser.add_argument("--methods", nargs="+", help="default: all of the result")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--out", type=Path, default=Path("studies"))
    parser.add_argument("--csv", type=Path, default=Path("benchmarks/results/study.csv"))
    parser.add_argument("--keep-weights", action="store_true")
    typed = sys.argv[1:]
    end = typed.index("--") if "--" in typed else len(typed)
    args, more = parser.parse_args(typed[:end]), typed[end + 1 :]
    out, file = args.out.resolve(), args.csv.resolve()
    if "utkface" in args.names and not (args.data / "utkface" / "drawn.csv").exists():
        draw_faces(args.data / "utkface")
    if "bidmc-16hz" in args.names and not (args.data / "bidmc-16hz" / "data.npz").exists():
        decimate_pulse(args.data)
    with contextlib.chdir(args.data):
        for name in args.names:
            studies = {r: Study(r, name, more, out, file) for r in args.results}
            for seed in args.seeds:
                for result, study in studies.items():
                    for method in args.methods or METHODS[result]:
                        study.train(method, seed)
                if not args.keep_weights:
                    Store(out / name).drop_weights()
            for result, study in studies.items():
                study.average(args.methods or METHODS[result], args.seeds)


if __name__ == "__main__":
    os.environ.setdefault("COLUMNS", "200")  # so that tables are not cut off
    main()
