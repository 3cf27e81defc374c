"""Time to write a report of three runs with 20,000 test samples each, and its size.

python benchmarks/report_speed.py --out benchmarks/results/report_speed.csv
"""

import argparse
import os
import platform
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from results_file import append_rows
from rnc.analyses.standard import write_standard_analyses
from rnc.files import write_json, write_tensors
from rnc.report import write_report
from rnc.run.folder import RunFolder

POINTS = 2000  # samples of a run with features and pictures


def write_run(folder: Path, samples: int, kind: str, seed: int) -> Path:
    """A run folder as `rnc fit` leaves it, with made-up numbers."""
    rng, same = np.random.default_rng(seed), np.random.default_rng(99)
    true = same.gamma(4, 9, samples)
    predicted = true + rng.normal(0, 3 + seed, samples)
    table = {
        "name": [f"photos/person-{i:05d}.jpg" for i in range(samples)],
        "age": true,
        "age_predicted": predicted,
        "camera": np.array(["left", "right", "front"])[same.integers(3, size=samples)],
        "city": [f"city {i}" for i in same.integers(40, size=samples)],
    }
    folder.mkdir(parents=True)
    pd.DataFrame(table).to_csv(folder / "predictions.csv", index=False)
    errors = np.abs(predicted - true)
    scores = {"mae": float(errors.mean()), "r2": 0.9, "r2_test_mean": 0.9, "spearman": 0.95}
    groups = {name: {value: {} for value in set(table[name])} for name in ("camera", "city")}
    counts = {"train": 12_000, "test": samples}
    write_json(folder / "scores.json", {"test": scores, "n": counts, "subgroups": groups})
    epochs = np.arange(1, 401)
    history = {"stage": "encoder", "epoch": epochs, "lr": 0.1, "train_loss": 3 + 9 / epochs}
    history |= {"gap": 9 / epochs, "val_error": 4 + 5 / epochs, "seconds": 20.0}
    pd.DataFrame(history).to_csv(folder / "history.csv", index=False)
    rows = np.sort(same.permutation(samples)[:POINTS])
    base = true[rows, None] / 9 * rng.normal(size=(1, 512)) + rng.normal(size=(len(rows), 512))
    tensors = {"features": torch.from_numpy(base).float(), "rows": torch.from_numpy(rows)}
    write_tensors(folder / "features.safetensors", tensors)
    if kind != "table":
        looks = pictures(len(rows), kind, rng) | {"rows": torch.from_numpy(rows)}
        write_tensors(folder / "thumbnails.safetensors", looks)
    model = {"kind": kind, "encoder": "resnet18", "target_names": ["age"]}
    # Another temperature: runs that differ in the seed alone would share their figures.
    fit = {"scheme": "probe", "head": "l1", "seed": seed, "temperature": 1.0 + seed}
    config = {"format": 1, "model": model, "fit": fit, "command": "rnc fit photos.csv"}
    write_json(folder / "config.json", config)
    write_standard_analyses(RunFolder(folder))
    return folder


def pictures(count: int, kind: str, rng: np.random.Generator) -> dict[str, torch.Tensor]:
    """Images of smooth random colours with a little noise, or signals that are random walks."""
    if kind == "signal":
        walks = rng.normal(size=(count, 3, 64)).cumsum(axis=2)
        return {"signals": torch.from_numpy(walks).float()}
    coarse = torch.from_numpy(rng.uniform(0, 255, (count, 3, 6, 6)))
    images = torch.nn.functional.interpolate(coarse, size=48, mode="bicubic")
    noise = torch.from_numpy(rng.normal(0, 6, images.shape))
    return {"images": (images + noise).clamp(0, 255).byte()}


def main() -> None:
    """Print time and size, and write them as CSV."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--samples", type=int, default=20_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--kind", choices=["image", "signal", "table"], default="image")
    parser.add_argument("--keep", type=Path, help="folder for the runs and the report")
    parser.add_argument("--out", type=Path, help="CSV file to append to")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.keep or Path(temporary)
        runs = [
            write_run(folder / f"run-{seed}", args.samples, args.kind, seed)
            for seed in range(args.runs)
        ]
        start = time.perf_counter()
        report = write_report(runs, folder / "report.html")
        seconds = time.perf_counter() - start
        size = report.stat().st_size / 1e6
    row = {
        "hardware": f"{platform.machine()}, {os.cpu_count()} cores",
        "kind": args.kind,
        "runs": args.runs,
        "samples": args.samples,
        "seconds": f"{seconds:.1f}",
        "megabytes": f"{size:.2f}",
    }
    print(row)
    append_rows(args.out, [row])


if __name__ == "__main__":
    main()
