"""kill -9 at any point, run again: the same bits as if nothing had happened."""

import json
import multiprocessing
import os
import random
import signal
import time
from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import asdict, replace
from itertools import islice
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from lightning.fabric import Fabric
from lightning.fabric.plugins import MixedPrecision
from torch import Tensor, nn

from rnc.files import read_tensors, write_tensors
from rnc.training import checkpoint
from rnc.training.batches import Batch, Batches
from rnc.training.checkpoint import pack_state, unpack_state
from rnc.training.optimizers import make_optimizer
from rnc.training.recipes import build_regressor, train
from rnc.training.record import Record
from training_cases import columns, normalised, partly, quick, same, unnormalised

CASES: dict[str, dict[str, Any]] = {
    "sgd, exact head": {"optimizer": "sgd", "lr": 0.05},
    "adamw, exact head": {"optimizer": "adamw"},
    "sgd, head by steps": {"optimizer": "sgd", "lr": 0.05, "head_solver": "sgd"},
    "adamw, head by steps": {"optimizer": "adamw", "head_solver": "sgd", "layer_decay": 0.7},
    "auto": {"scheme": "auto", "accumulate": 2, "clip": 1.0},
    "best epoch first": {"scheme": "end2end", "lr": 0.05, "lr_decay": 1.0},
    "finetune": {"scheme": "finetune", "optimizer": "sgd", "lr": 0.05, "layer_decay": 0.5},
    "finetune, best at the start": {"scheme": "finetune", "lr": 5.0, "lr_decay": 1.0},
    "supcon": {"objective": "supcon"},
    "dino": {"objective": "dino"},
    "fds, lds": {"scheme": "end2end", "regularizer": "fds", "lds": True, "c_mixup": True},
    "averaged": {"optimizer": "sgd", "lr": 0.05, "average": 0.9, "warm_up": 1},
    "best look": {"keep": "best"},
    "averaged end to end": {"scheme": "end2end", "average": 2, "views": 2},
    "two-stage": {"scheme": "two-stage", "head": "dex", "head_solver": "sgd"},
    "known in part": {"teacher": "none", "optimizer": "sgd", "lr": 0.05, "keep": "best"},
    "taught": {"average": 0.9, "optimizer": "sgd", "lr": 0.05},
    "two-stage by sgd": {"scheme": "two-stage", "optimizer": "sgd", "lr": 0.05},
}
STEPS = 5
"""Batches in an epoch."""


# ------------------------------------------------------------------------- what the victims run


def run(case: str, folder: Path, kill_at: tuple[str, int] | None) -> None:
    """Train with checkpoints, leave the result; die at the n-th step or write if told to."""
    torch.set_num_threads(1)
    checkpoint.CHEAP_SECONDS = 1000.0  # one of every epoch, however slow the machine is
    table, config = columns(), quick(epochs=3, head_epochs=3, **CASES[case])
    table = partly(table) if case in ("known in part", "taught") else table
    model = build_regressor(table, config, normalised())
    if kill_at is not None:
        what, left = kill_at
        if what == "step":
            model.encoder.register_forward_hook(lambda *_: die_after(countdown))
        else:
            os.fsync = lambda _: die_after(countdown)
        countdown = iter(range(left))
    records = [asdict(record) | {"seconds": 0} for record in train(model, table, config, folder)]
    write_tensors(folder / "result", model.state_dict(), records)


def die_after(countdown: Iterator[int]) -> None:
    if next(countdown, None) is None:
        os.kill(os.getpid(), signal.SIGKILL)


def start(*arguments: Any) -> BaseProcess:
    # All victims are forks of one process that has imported torch and Lightning.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["pytest", "lightning.fabric", "rnc.training.recipes"])
    process = context.Process(target=run, args=arguments)
    process.start()
    return process


def finish(*arguments: Any) -> int | None:
    process = start(*arguments)
    process.join(timeout=60)
    return process.exitcode


@pytest.fixture(scope="module", params=list(CASES))
def uninterrupted(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, dict[str, Tensor], list[dict[str, Any]], float]:
    """A case, the weights and records it ends with, and the seconds that it takes."""
    finish(request.param, tmp_path_factory.mktemp("warm"), None)  # imports take their time
    folder = tmp_path_factory.mktemp("whole")
    started = time.perf_counter()
    assert finish(request.param, folder, None) == 0
    seconds = time.perf_counter() - started
    weights, records = read_tensors(folder / "result")
    if request.param == "best epoch first":
        assert records[0]["val_error"] == min(record["val_error"] for record in records)
    if request.param == "finetune, best at the start":
        errors = [record["val_error"] for record in records if record["stage"] == "finetune"]
        assert errors[0] == min(errors) < min(errors[1:])
    return request.param, weights, records, seconds


POINTS = {
    "in the first epoch": ("step", 2),
    "in a later epoch": ("step", STEPS + 3),
    "in the first write": ("write", 0),
    "in a later write": ("write", 2),
    "before a stage is written down": ("write", 3),
    "between stages": ("step", 3 * STEPS),
    "in the next stage": ("write", 4),
}


@pytest.mark.parametrize("point", POINTS)
def test_a_killed_run_ends_like_an_uninterrupted_one(
    point: str, uninterrupted: tuple[str, dict[str, Tensor], list[Any], float], tmp_path: Path
) -> None:
    case, weights, records, _ = uninterrupted
    assert finish(case, tmp_path, POINTS[point]) == -signal.SIGKILL
    assert not (tmp_path / "result").exists()
    assert finish(case, tmp_path, None) == 0
    result = read_tensors(tmp_path / "result")
    assert same(result[0], weights)
    assert result[1] == records


def test_a_run_that_is_killed_again_and_again_gets_there(
    uninterrupted: tuple[str, dict[str, Tensor], list[Any], float], tmp_path: Path
) -> None:
    case, weights, records, seconds = uninterrupted
    step = random.randrange(3 * STEPS)
    assert finish(case, tmp_path, ("step", step)) == -signal.SIGKILL, f"killed at step {step}"
    delays = [random.uniform(0.2, 1.0) * seconds for _ in range(3)]
    for delay in delays:
        process = start(case, tmp_path, None)
        process.join(timeout=delay)
        process.kill()
        process.join()
    assert finish(case, tmp_path, None) == 0
    result = read_tensors(tmp_path / "result")
    assert same(result[0], weights), f"killed at step {step}, then after {delays} seconds"
    assert result[1] == records, f"killed at step {step}, then after {delays} seconds"


def test_finished_epochs_are_not_trained_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint, "CHEAP_SECONDS", 1000.0)  # one of every epoch
    table, config = columns(), quick(epochs=3)
    stopped = train(build_regressor(table, config, unnormalised()), table, config, tmp_path)
    before = [next(stopped), next(stopped)]
    stopped.close()
    model, steps = build_regressor(table, config, unnormalised()), []
    model.encoder.register_forward_hook(lambda module, *_: steps.append(module.training))
    assert list(train(model, table, config, tmp_path))[:2] == before
    assert sum(steps) == STEPS  # those of the third epoch


def test_a_finished_run_is_not_trained_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint, "CHEAP_SECONDS", 1000.0)  # one of every epoch
    table, config = columns(), quick(scheme="auto", head_solver="sgd")
    model = build_regressor(table, config, unnormalised())
    first = list(train(model, table, config, tmp_path))
    written = {path: path.stat().st_mtime_ns for path in (tmp_path / "checkpoint").iterdir()}
    assert len(written) == 6  # four stages and the last two epochs
    again = build_regressor(table, config, unnormalised())
    assert list(train(again, table, config, tmp_path)) == first  # seconds included
    assert same(again.state_dict(), model.state_dict())
    now = {path: path.stat().st_mtime_ns for path in (tmp_path / "checkpoint").iterdir()}
    assert now == written


def test_a_folder_changes_nothing_but_itself(tmp_path: Path) -> None:
    table, config = columns(), quick(head_solver="sgd")
    models = [build_regressor(table, config, normalised()) for _ in range(2)]
    for model, folder in zip(models, (None, tmp_path), strict=True):
        list(train(model, table, config, folder))
    assert same(models[0].state_dict(), models[1].state_dict())


# ------------------------------------------------------------------------ what it rests on


@pytest.mark.parametrize("name", ["sgd", "adamw"])
def test_an_optimizer_goes_on_from_its_packed_state(name: Any) -> None:
    def steps(layer: nn.Linear, optimizer: torch.optim.Optimizer, seeds: range) -> None:
        for seed in seeds:
            optimizer.zero_grad()
            torch.manual_seed(seed)
            layer(torch.randn(5, 3)).square().sum().backward()
            optimizer.step()

    layer, copy = nn.Linear(3, 2), nn.Linear(3, 2)
    optimizer, other = (make_optimizer(name, m.parameters(), 0.1, 1e-2) for m in (layer, copy))
    steps(layer, optimizer, range(3))
    tensors, numbers = pack_state(optimizer)
    copy.load_state_dict(layer.state_dict())
    unpack_state(other, {k: v.clone() for k, v in tensors.items()}, json.loads(json.dumps(numbers)))
    for m, o in ((layer, optimizer), (copy, other)):
        steps(m, o, range(3, 6))
    assert same(layer.state_dict(), copy.state_dict())
    fresh = nn.Linear(3, 2)
    fresh.load_state_dict(layer.state_dict())
    steps(layer, optimizer, range(2))
    steps(fresh, make_optimizer(name, fresh.parameters(), 0.1, 1e-2), range(2))
    assert not same(layer.state_dict(), fresh.state_dict())


def batches_of(epoch: int = 1, stage: str = "encoder", **options: Any) -> list[Batch]:
    table = columns(rows=50)  # 35 to train
    model = build_regressor(table, quick(), unnormalised())
    views, size, drop = (options.pop(k, v) for k, v in (("views", 2), ("size", 8), ("drop", False)))
    served = Batches(table, model, device=torch.device("cpu"), **options)
    picked = served.epoch(stage, epoch, batch_size=size, views=views, drop_last=drop)
    return [served.make(one) for one in picked]


def equal(a: list[Batch], b: list[Batch]) -> bool:
    pairs = zip(a, b, strict=True)
    parts = [(x, y) for one, two in pairs for x, y in zip(one[:3], two[:3], strict=True)]
    return all(torch.equal(x, y) for x, y in parts)


def test_an_epoch_serves_every_row_once() -> None:
    table = columns(rows=50)
    batches = batches_of(views=0)
    assert [len(batch.targets) for batch in batches] == [8, 8, 8, 8, 3]
    assert [len(batch.targets) for batch in batches_of(drop=True)] == [8, 8, 8, 8]
    targets = torch.cat([batch.targets for batch in batches])[:, 0].numpy()
    views = torch.cat([batch.views for batch in batches])[:, 0].numpy()
    order = [np.flatnonzero(table.y[:, 0] == target)[0] for target in targets]
    assert sorted(order) == list(table.rows("train")) != order
    assert np.array_equal(views, table.x[order])


def test_batches_depend_on_seed_stage_and_epoch_alone() -> None:
    batches = batches_of()
    torch.manual_seed(7)
    assert equal(batches, batches_of())
    others: list[dict[str, Any]] = [{"epoch": 2}, {"stage": "head"}, {"seed": 1}]
    for other in others:
        assert not equal(batches, batches_of(**other))
        assert not equal(batches_of(views=0), batches_of(views=0, **other))  # the order alone
    first, second = (batch.views - batch.views.mean(dim=1, keepdim=True) for batch in batches[:2])
    assert not torch.allclose(first, second, atol=1e-4)  # nor is the noise that of the last step


@pytest.mark.parametrize("views", [0, 1, 2])
@pytest.mark.parametrize("world_size", [2, 4])  # with 4, one of them has no part of the last 3
def test_processes_see_the_parts_of_what_one_would_see(world_size: int, views: int) -> None:
    alone = batches_of(views=views)
    parts = [batches_of(views=views, rank=r, world_size=world_size) for r in range(world_size)]
    for whole, *shares in zip(alone, *parts, strict=True):
        assert torch.equal(torch.cat([share.views for share in shares]), whole.views)
        assert torch.equal(torch.cat([share.targets for share in shares]), whole.targets)
        assert all(torch.equal(share.all_targets, whole.targets) for share in shares)


def test_the_scale_of_sixteen_bit_gradients_is_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a CPU Fabric would take bfloat16, which needs no scale, so it is given what a GPU gets."""

    def fabric(**options: Any) -> Fabric:
        options["precision"] = None
        scales.append(MixedPrecision("16-mixed", "cpu"))
        return Fabric(**options, plugins=scales[-1])

    def fit(folder: Path, epochs: int) -> list[Record]:
        model = build_regressor(columns(), config, normalised())
        with closing(cast("Generator[Record]", train(model, columns(), config, folder))) as records:
            return [replace(record, seconds=0.0) for record in islice(records, epochs)]

    scales: list[MixedPrecision] = []
    monkeypatch.setattr("lightning.fabric.Fabric", fabric)
    config = quick(precision="16", epochs=4, scheme="end2end", optimizer="sgd", lr=0.05)
    whole = fit(tmp_path / "whole", 4)
    fit(tmp_path / "parts", 2)
    assert fit(tmp_path / "parts", 4) == whole
    first, *others = (scale.state_dict()["scale"] for scale in scales)
    assert first < torch.amp.GradScaler("cpu").state_dict()["scale"]
    assert others == [first, first]
    fit(tmp_path / "older", 2)
    last = tmp_path / "older" / "checkpoint" / "last.safetensors"
    tensors, note = read_tensors(last)
    del note["precision"]  # which an older version did not write
    write_tensors(last, tensors, note)
    assert len(fit(tmp_path / "older", 4)) == 4
