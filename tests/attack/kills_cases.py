"""Kills at a write: a process dies at its n-th change of a file, and the same command goes on.

What it leaves in the end must be what a process leaves that nobody killed.
"""

import multiprocessing
import os
import shutil
import signal
from collections.abc import Callable
from itertools import count
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import numpy as np
import torch

from attack.harness import Lost, Silent, Verdict
from evaluation_cases import data_of, houses, with_config
from rnc.experiments.plan import PlannedRun
from rnc.experiments.store import Store
from rnc.files import read_tensors
from rnc.run.fit import fit_run, resume_run
from rnc.run.folder import RunFolder
from rnc.run.other import evaluate_other
from rnc.search import Choice, search
from training_cases import columns, quick

LIMIT = 240
"""Seconds after which a victim is taken for hung."""


# ------------------------------------------------------------------------------- what victims do


def fit(folder: Path) -> None:
    data, config = data_of(folder.parent / "houses.csv"), with_config(scheme="finetune")
    if RunFolder(folder).exists:
        list(resume_run(folder))
    else:
        list(fit_run(data.read(224), config, folder, data=data))


def longer(folder: Path) -> None:
    """Go on with a finished run to more epochs."""
    if not folder.exists():
        shutil.copytree(folder.parent / "run", folder)
    list(resume_run(folder, epochs=3))


def evaluate(folder: Path) -> None:
    """Replace an evaluation of other data."""
    if not folder.exists():
        shutil.copytree(folder.parent / "other", folder)
    evaluate_other(folder.parent / "run", folder.parent / "more.csv", out=folder, overwrite=True)


def study(folder: Path) -> None:
    space = {"lr": Choice([0.001, 0.002])}
    list(search(columns(), quick(scheme="end2end"), folder, space=space, trials=2, heartbeat=1))


def experiments(folder: Path) -> None:
    table = columns()
    for scheme in ("probe", "end2end"):
        config = quick(scheme=scheme, epochs=2).resolve(len(table.rows("train")), table.kind)
        Store(folder).finish(PlannedRun(table, config), lambda record: None)


MODES: dict[str, Callable[[Path], None]] = {
    "fit": fit,
    "longer": longer,
    "evaluate": evaluate,
    "search": study,
    "experiments": experiments,
}


def victim(mode: str, folder: Path, kill_at: int | None, count_to: Path | None = None) -> None:
    """Do what a mode says; die at a change of a file, or count the changes."""
    torch.set_num_threads(1)
    changes = count()
    last = -1

    def watched(change: Callable[..., Any]) -> Callable[..., Any]:
        def changed(*arguments: Any, **options: Any) -> Any:
            nonlocal last
            for _ in range(2):  # before and after it
                last = next(changes)
                if last == kill_at:
                    os.kill(os.getpid(), signal.SIGKILL)
                if _ == 0:
                    result = change(*arguments, **options)
            return result

        return changed

    if kill_at is not None or count_to is not None:
        for name in ("touch", "replace", "unlink", "hardlink_to"):
            setattr(Path, name, watched(getattr(Path, name)))
        shutil.rmtree = watched(shutil.rmtree)
    MODES[mode](folder)
    if count_to is not None:
        count_to.write_bytes(str(last + 1).encode())


def start(*arguments: Any) -> int | None:
    """The exit code of a victim; all are forks of one process that has imported what they need."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["pytest", "lightning.fabric", "rnc.run.fit", "rnc.search"])
    process: BaseProcess = context.Process(target=victim, args=arguments)
    process.start()
    process.join(timeout=LIMIT)
    if process.is_alive():
        process.kill()
        raise Silent(f"{arguments} hangs")
    return process.exitcode


# ----------------------------------------------------------------------------------- one case


class Ground:
    """A folder with data, finished runs, and what each mode leaves if nobody kills it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        houses(folder / "houses.csv")
        houses(folder / "more.csv", seed=3)
        fit(folder / "run")
        evaluate_other(folder / "run", folder / "houses.csv", out=folder / "other")
        self.changes: dict[str, int] = {}

    def undisturbed(self, mode: str) -> int:
        """How many changes of files a mode makes; its result is kept."""
        if mode not in self.changes:
            counted = self.folder / f"{mode}.count"
            assert start(mode, self.folder / f"whole-{mode}", None, counted) == 0
            self.changes[mode] = int(counted.read_bytes())
        return self.changes[mode]

    def try_kill(self, rng: np.random.Generator) -> Verdict:
        """Kill a mode at a change, let it go on, and compare."""
        mode = str(rng.choice(list(MODES)))
        at = int(rng.integers(self.undisturbed(mode)))
        folder = self.folder / f"{mode}-{at}"
        shutil.rmtree(folder, ignore_errors=True)
        if start(mode, folder, at) != -signal.SIGKILL:
            raise Silent(f"{mode} did not come to its change {at}")
        if start(mode, folder, None) != 0:
            raise Lost(f"{mode}, killed at change {at}, does not go on")
        if difference := _difference(self.folder / f"whole-{mode}", folder):
            raise Silent(f"{mode}, killed at change {at}, ends with another {difference}")
        shutil.rmtree(folder)
        return "right"


def _difference(whole: Path, parts: Path) -> str | None:
    """The first file of a result that differs, or is missing; None for none."""
    for path in sorted(whole.rglob("*")):
        name, other = path.relative_to(whole), parts / path.relative_to(whole)
        is_result = path.name in ("predictions.csv", "best.json") or "analyses" in name.parts
        if path.name == "model.safetensors":
            mine, theirs = read_tensors(path)[0], read_tensors(other)[0]
            if any(not torch.equal(mine[key], theirs[key]) for key in mine):
                return str(name)
        elif path.name == "scores.json":
            if RunFolder(path.parent).scores["test"] != RunFolder(other.parent).scores["test"]:
                return str(name)
        elif is_result and path.suffix in (".csv", ".json") and _best(path) != _best(other):
            return str(name)
    return None


def _best(path: Path) -> str:
    """The text of a file; which number a trial has depends on how often it was stopped."""
    lines = path.read_text().splitlines() if path.exists() else []
    return "\n".join(line for line in lines if '"trial":' not in line)
