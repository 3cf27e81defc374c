"""The embedded default: real digits, turned by known angles, learned with L1 and with RnC.

The angle is the target. Which digit it is does not matter for it, and plays the part of the
paper's webcams: a representation that follows the target need not keep it.
"""

import json
from collections.abc import Callable
from pathlib import Path
from statistics import mean, stdev

import torch

from rnc.analyses.registry import analyse
from rnc.config import FitConfig
from rnc.data.demo import digits_table
from rnc.report import write_report
from rnc.run.fit import fit_run
from rnc.training.loop import Record

SIDE = 16
METHODS = {"L1": "end2end", "RnC(L1)": "probe"}
ANALYSES = ("map", "order", "subgroups", "readable")
"""What the report shows of the first seed besides its scores."""
SCORES = ("mae", "r2", "spearman", "digit readable")


def demo_config(scheme: str, seed: int, epochs: int) -> FitConfig:
    """The same small encoder, epochs and learning rate for both methods, and no augmentation."""
    return FitConfig(
        scheme=scheme,  # type: ignore[arg-type]
        preset="quick",
        encoder="small-cnn",
        epochs=epochs,
        batch_size=64,
        lr=2e-3,
        image_size=SIDE,
        views=0,
        seed=seed,
    )


def run_demo(
    out: Path, *, seeds: int, epochs: int, show: Callable[[Record], None]
) -> tuple[list[list[str]], Path]:
    """Train both methods with several seeds; rows of a table of scores, and the report.

    Args:
        out: folder for one run per method and seed; runs of an earlier demo are replaced.
        seeds: how many.
        epochs: of both methods.
        show: takes every record.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # for arrays this small: as fast, and the same digits everywhere
    try:
        return _run_demo(out, seeds, epochs, show)
    finally:
        torch.set_num_threads(threads)


def _run_demo(
    out: Path, seeds: int, epochs: int, show: Callable[[Record], None]
) -> tuple[list[list[str]], Path]:
    table = digits_table(side=SIDE)
    rows, folders = [], []
    for label, scheme in METHODS.items():
        found: list[tuple[float, ...]] = []
        for seed in range(seeds):
            folder = out / f"{scheme}-{seed}"
            config = demo_config(scheme, seed, epochs)
            run = fit_run(table, config, folder, command="rnc demo", name=label, overwrite=True)
            for record in run:
                show(record)
            found.append(_scores(folder))
            rows.append([label, str(seed), *(f"{score:.3f}" for score in found[-1])])
            if seed == 0:
                folders.append(folder)
                for analysis in ANALYSES:
                    analyse(folder, analysis)
        if seeds > 1:
            columns = zip(*found, strict=True)
            rows.append([label, "mean", *(f"{mean(c):.3f} ± {stdev(c):.3f}" for c in columns)])
    return rows, write_report(folders, out / "report.html")


def _scores(folder: Path) -> tuple[float, ...]:
    scores = json.loads((folder / "scores.json").read_text(encoding="utf-8"))
    test = scores["test"]
    return test["mae"], test["r2"], test["spearman"], scores["readable"]["digit"]
