"""Seconds per epoch on a GPU in the training loop of `rnc fit`, side by side in one run.

    network  forward, backward and update on a batch that is already on the GPU: the lower limit
    rnc      the RnC loss, two views
    rnc best the same with preset best: erased views, a moving mean of the weights
    supcon   objective supcon, with its projection head, two views
    l1       end to end, one view; its limit is the network with one view
    head     a head by SGD on the frozen encoder, batches of 64, fresh augmentation

The data are 12,208 random images, the number of training images of AgeDB, in batches of 256 for
resnet18 in bf16.

    python benchmarks/train_speed.py --out benchmarks/results/train_speed.csv
"""

import argparse
import dataclasses
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from results_file import append_rows
from rnc.config import FitConfig, Preset
from rnc.data import Table, table_from_arrays
from rnc.loss.theory import lower_bound
from rnc.methods.objective import MethodSetup, Objective
from rnc.model import Regressor
from rnc.training.batches import Batches, Picked
from rnc.training.graphs import GraphedStep
from rnc.training.loop import Stage, make_fabric, run_stage
from rnc.training.objectives import encoder_objective, head_objective
from rnc.training.recipes import build_regressor, train
from rnc.training.speed import tf32

IMAGES, BATCH = 12_208, 256
METHODS = ("network", "rnc", "rnc best", "supcon", "network, one view", "l1", "head")


def make_table(size: int) -> Table:
    """Random images with ages 0..100, all but 20 of them for training."""
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (IMAGES + 20, 3, size, size), dtype=np.uint8)
    ages = random.integers(0, 101, IMAGES + 20).astype(np.float64)
    split = np.array(["train"] * IMAGES + ["val"] * 10 + ["test"] * 10)
    return table_from_arrays(images, ages, split=split)


def contestant(
    name: str, model: Regressor, config: FitConfig, targets: Tensor, epochs: int
) -> tuple[Stage, Objective]:
    """The stage and the objective of a method."""
    stage = Stage(
        name=name,
        views=1 if name == "l1" else 2,
        epochs=epochs,
        batch_size=BATCH,
        optimizer="sgd",
        lr=0.01,
        lr_decay=0.1,
        weight_decay=1e-4,
        drop_last=True,
        average=config.resolve().average or 0.0,
        bound=bound if name.startswith("rnc") else None,
    )
    setup = MethodSetup(model.head.config.d, targets, updates=1000, options=config.method_options)
    if name == "l1":
        return stage, head_objective(model, config, setup)
    config = dataclasses.replace(config, objective=name.split()[0])
    return stage, encoder_objective(model, config, setup)


def bound(targets: Tensor, views: int) -> Tensor:
    """The lowest value that the RnC loss can take."""
    return lower_bound(targets, views=views)


def network_seconds(model: Regressor, size: int, views: int, epochs: int) -> float:
    """Median seconds of an epoch of the network alone, compiled and replayed as a CUDA graph."""
    compiled = torch.compile(model, dynamic=False)
    optimizer = torch.optim.SGD(
        model.parameters(), lr=torch.tensor(0.01, device="cuda"), momentum=0.9, fused=True
    )
    images = torch.randn(BATCH * views, 3, size, size, device="cuda")
    images = images.contiguous(memory_format=torch.channels_last)
    model.train()

    def step(_: Picked) -> None:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            features, outputs = compiled(images)
        (features.float().mean() + outputs.float().mean()).backward()
        optimizer.step()
        optimizer.zero_grad()

    graphed, nothing = GraphedStep(step), Picked(torch.zeros(1, device="cuda"), None, None)
    times = []
    for _ in range(epochs):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(IMAGES // BATCH):
            graphed(nothing)
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return statistics.median(times[1:])


def head_seconds(model: Regressor, table: Table, config: FitConfig, epochs: int) -> float:
    """Median seconds of an epoch of a head, after training a compiled encoder."""
    config = dataclasses.replace(
        config, epochs=1, compile="on", head_solver="sgd", head_epochs=epochs
    )
    seconds = [record.seconds for record in train(model, table, config) if record.stage == "head"]
    print(f"the head's first epoch, with compiling: {seconds[0]:.1f} s")
    return statistics.median(seconds[1:])


def measure(size: int, methods: list[str], epochs: int) -> Iterator[tuple[str, float]]:
    """Median seconds of an epoch without the first, for every method."""
    table = make_table(size)
    common = FitConfig(preset="paper", encoder="resnet18", image_size=size, device="cuda")
    for name in methods:
        preset: Preset = "best" if name == "rnc best" else "paper"
        config = dataclasses.replace(common, preset=preset)
        model = build_regressor(table, config).cuda()
        model.encoder.to(memory_format=torch.channels_last)
        if name.startswith("network"):
            yield name, network_seconds(model, size, 2 if name == "network" else 1, epochs)
            continue
        if name == "head":
            yield name, head_seconds(model, table, config, epochs)
            continue
        fabric = make_fabric(config)
        batches = Batches(table, model, device=fabric.device, channels_last=True)
        batches.compile()
        stage, objective = contestant(name, model, config, batches.known_targets, epochs)
        records = list(
            run_stage(fabric, model, objective, stage, batches, compiled=True, graphed=True)
        )
        yield name, statistics.median(record.seconds for record in records[1:])


def main() -> None:
    """Print the table and write it as CSV."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0] if __doc__ else "")
    parser.add_argument("--sizes", type=int, nargs="+", default=[224, 96])
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=METHODS)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--out", type=Path, help="CSV file to append to")
    args = parser.parse_args()
    hardware = torch.cuda.get_device_name()
    print(f"{hardware}, torch {torch.__version__}, resnet18, bf16, {IMAGES} images, batch {BATCH}")
    rows = []
    for size in args.sizes:
        with tf32(FitConfig()):
            seconds = dict(measure(size, args.methods, args.epochs))
        for name, value in seconds.items():
            limit = seconds.get("network, one view" if name == "l1" else "network")
            supcon = seconds.get("supcon") if name == "rnc" else None
            row = {
                "hardware": hardware,
                "torch": torch.__version__,
                "pixels": size,
                "method": name,
                "seconds_per_epoch": f"{value:.3f}",
                "over_network": f"{value / limit:.3f}" if limit and "network" not in name else "",
                "over_supcon": f"{value / supcon:.3f}" if supcon else "",
            }
            print(" ".join(f"{row[key]:>18}" for key in list(row)[2:]))
            rows.append(row)
    append_rows(args.out, rows)


if __name__ == "__main__":
    main()
