"""What training gains from rows without exact targets: few labels, intervals, censored targets.

    python benchmarks/unlabelled.py DATA/utkface --settings 250 1000 2000 --seeds 0 1 2 \
        --csv benchmarks/results/unlabelled.csv --limit-s 540
    python benchmarks/unlabelled.py DATA/concrete --settings 100 decades censored

The folder has table.csv with columns y and split, or the faces. Of the faces, 12,208 training rows
are drawn with a seed. The settings decades and censored use up to 2,442 training rows.

    100 ... 2000    this number of rows have a target, the others have none
    decades         half of the rows have a target, the others only its decade, such as 20-29; if
                    targets are no ages, an interval of half a standard deviation
    censored        targets from 60 on are only known to be 60 or more; if targets are no ages, this
                    holds for the highest fifth of them

A line is written as soon as a training is done, and a training that has a line is skipped, so a
call can be interrupted at any time. No training starts that would end after --limit-s, judged by
the longest one so far. All trainings have preset best. On faces, those that see unlabelled rows
have fewer epochs, so that all make between 2,000 and 2,300 updates.
"""

import argparse
import csv
import dataclasses
import json
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

import rnc
from results_file import append_rows
from rnc.config import FitConfig
from rnc.data import Table, read_table
from rnc.data.splits import PARTIAL
from rnc.metrics import mae
from rnc.training.recipes import build_regressor, train

DRAWN_ROWS, FEW_ROWS = 12_208, 2442
FACES: dict[str, Any] = {"encoder": "resnet18", "image_size": 96}
SHORTER: dict[str, Any] = {"epochs": 45, "views": 2}
L1: dict[str, Any] = {"scheme": "two-stage"}


class Scale(NamedTuple):
    """The width of intervals, and the limit from which on targets are censored."""

    width: float
    limit: float


Labelled = Callable[[Table, NDArray[np.int64], Scale], Table]


def with_ends(table: Table, rows: NDArray[np.int64], low: Any, high: Any) -> Table:
    """The table with targets of some training rows between low and high: (m,) each, or a number."""
    ends, y, split = np.stack([table.y, table.y], axis=-1), table.y.copy(), table.split.copy()
    ends[rows, 0, 0], ends[rows, 0, 1] = low, high
    y[rows], split[rows] = np.nan, PARTIAL
    return dataclasses.replace(table, y=y, split=split, ends=ends)


def without(table: Table, rows: NDArray[np.int64]) -> Table:
    """The table with some rows in no split, so that nothing uses them."""
    split = table.split.copy()
    split[rows] = ""
    return dataclasses.replace(table, split=split)


def few(count: int, *, used: bool) -> Labelled:
    """A function that keeps the targets of the first rows; the others are used or left out."""

    def labelled(table: Table, order: NDArray[np.int64], scale: Scale) -> Table:
        rest = order[count:]
        return with_ends(table, rest, -np.inf, np.inf) if used else without(table, rest)

    return labelled


def decades(how: str) -> Labelled:
    """A function that keeps FEW_ROWS and treats half of them by `how`, such as "decades"."""

    def labelled(table: Table, order: NDArray[np.int64], scale: Scale) -> Table:
        order, rest = order[:FEW_ROWS], order[FEW_ROWS:]
        table, half = without(table, rest), order[len(order) // 2 :]
        if how == "dropped":
            return without(table, half)
        least = scale.width * np.floor(table.y[half, 0] / scale.width)
        most = least + (9 if scale.width == 10 else scale.width)  # ages are whole: 20-29
        return table if how == "exact" else with_ends(table, half, least, most)

    return labelled


def censored(how: str) -> Labelled:
    """A function that keeps FEW_ROWS and treats those above the limit by `how`."""

    def labelled(table: Table, order: NDArray[np.int64], scale: Scale) -> Table:
        table, few = without(table, order[FEW_ROWS:]), order[:FEW_ROWS]
        old = few[table.y[few, 0] >= scale.limit]
        if how == "dropped":
            return without(table, old)
        if how == "censored":
            return with_ends(table, old, scale.limit, np.inf)
        y = table.y.copy()
        y[old] = scale.limit if how == "as exact" else y[old]
        return dataclasses.replace(table, y=y)

    return labelled


def _few_arms(count: int) -> dict[str, tuple[Labelled, dict[str, Any]]]:
    alone, used = few(count, used=False), few(count, used=True)
    return {
        "L1": (alone, L1),
        "RnC": (alone, {}),
        "RnC + unlabelled": (used, {}),
        "RnC + unlabelled, intervals": (used, {"teacher": "intervals"}),
        "RnC + unlabelled, no teacher": (used, {"teacher": "none"}),
    }


SETTINGS: dict[str, dict[str, tuple[Labelled, dict[str, Any]]]] = {
    **{str(count): _few_arms(count) for count in (100, 250, 1000, 2000)},
    "decades": {
        "half of the rows": (decades("dropped"), {}),
        "decades for the other half": (decades("decades"), {}),
        "all exact": (decades("exact"), {}),
    },
    "censored": {
        "high ones left out": (censored("dropped"), {}),
        "limit taken as exact": (censored("as exact"), {}),
        "censored": (censored("censored"), {}),
        "all exact": (censored("exact"), {}),
    },
}
KEY = ("data", "setting", "arm", "seed", "options")
MAIN = ("L1", "RnC", "RnC + unlabelled")
"""The default arms of the settings of few labels."""


def read_data(folder: Path, side: int) -> tuple[Table, Scale]:
    """The table of a folder, or the faces with a seeded draw of training rows, and their Scale."""
    if not (folder / "images").exists():
        table = read_table(folder / "table.csv", target="y", split_column="split")
        table = dataclasses.replace(table, split=table.split.astype("<U11"))
        y = table.y[table.rows("train")]
        return table, Scale(float(np.std(y)) / 2, float(np.quantile(y, 0.8)))
    table = read_table(
        folder / "table.csv",
        target=["age"],
        images=folder,
        image_column="path",
        split_column="split_balanced",
        group_column="dup_group",
        image_size=side,
        fit="stretch",
    )
    table = dataclasses.replace(table, split=table.split.astype("<U11"))
    left_out = np.random.default_rng(0).permutation(table.rows("train"))[DRAWN_ROWS:]
    return without(table, left_out), Scale(10.0, 60.0)


def trained(table: Table, config: FitConfig) -> dict[str, object]:
    """The errors of a training, and how long it took."""
    started = time.perf_counter()
    model = build_regressor(table, config)
    records = list(train(model, table, config))
    seconds = time.perf_counter() - started
    test = table.rows("test")
    predicted = model.predict_prepared(table.x, rows=test)
    first = [record.seconds for record in records if record.stage == records[0].stage]
    return {
        "mae": round(mae(predicted, table.y[test]), 4),
        "val_error": round(records[-1].val_error or np.nan, 4),
        "epochs": len(first),
        "seconds_per_epoch": round(float(np.median(first)), 4),
        "seconds": round(seconds, 1),
    }


def machine() -> dict[str, object]:
    """The hardware and versions that a line records."""
    gpu = torch.cuda.is_available()
    hardware = torch.cuda.get_device_name() if gpu else platform.machine()
    return {"hardware": hardware, "torch": torch.__version__, "version": rnc.__version__}


def done(path: Path) -> list[tuple[str, ...]]:
    """The keys of the trainings that have a line in the file."""
    if not path.exists():
        return []
    rows = csv.DictReader(path.read_text(encoding="utf-8").splitlines())
    return [tuple(row[name] for name in KEY) for row in rows]


def main() -> None:
    """Run the trainings that the file lacks."""
    started = time.monotonic()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--settings", nargs="+", choices=list(SETTINGS), default=list(SETTINGS))
    parser.add_argument("--arms", nargs="+", help="default: the main ones of a setting")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--csv", type=Path, default=Path("benchmarks/results/unlabelled.csv"))
    parser.add_argument("--limit-s", type=float, default=float("inf"), help="seconds in all")
    parser.add_argument("--options", type=json.loads, default={}, help='as {"epochs": 20}')
    args = parser.parse_args()
    table, scale = read_data(args.folder, (FACES | args.options)["image_size"])
    of_kind, shorter = (FACES, SHORTER) if table.kind == "image" else ({}, {})
    longest = 0.0
    for seed in args.seeds:
        order = np.random.default_rng(1000 + seed).permutation(table.rows("train"))
        for setting in args.settings:
            names = MAIN if setting.isdigit() else tuple(SETTINGS[setting])
            for arm in args.arms or names:
                if arm not in SETTINGS[setting]:
                    continue
                labelled, own = SETTINGS[setting][arm]
                own = of_kind | (shorter if arm.startswith("RnC + ") else {}) | own
                options = json.dumps(own | args.options, sort_keys=True)
                key = (args.folder.name, setting, arm, str(seed), options)
                if key in done(args.csv):
                    continue
                begun = time.monotonic()
                if begun - started + 1.1 * longest > args.limit_s:
                    print(f"no time for {setting}, {arm}, seed {seed}", flush=True)
                    continue
                few_labels = labelled(table, order, scale)
                found = trained(few_labels, FitConfig(**json.loads(options), seed=seed))
                sizes = few_labels.sizes
                rows = {"labelled_rows": sizes.labelled, "encoder_rows": sizes.encoder}
                row = dict(zip(KEY[:-1], key, strict=False)) | found | rows | machine()
                append_rows(args.csv, [row | {"options": options}])
                longest = max(longest, time.monotonic() - begun)
                print(setting, arm, seed, found, round(time.monotonic() - started), flush=True)


if __name__ == "__main__":
    main()
