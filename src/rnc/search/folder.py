"""The files of a study folder, and the data that a trial may see.

study.json     the search space, the fixed options, and the storage of the trials
study.db       the trials, unless another storage is given
trials.csv     one line per trial
best.json      the complete trial with the lowest validation error, and its config
checkpoints/   the checkpoints that a stopped trial continues from
"""

import dataclasses
import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pandas as pd  # type: ignore[import-untyped]

from rnc.config import SPEED_ONLY, FitConfig
from rnc.data.table import Table
from rnc.files import contents, write_json, write_text
from rnc.search.space import trial_config


@dataclass(frozen=True)
class Trial:
    """One trial of a study: a training with its own options."""

    number: int
    state: str
    """complete, pruned, diverged, out of memory, impossible, failed, running or waiting."""
    validation_error: float | None
    """The lowest one; for a trial that did not finish, the last one that it reported, if any."""
    params: dict[str, Any]
    seconds: float | None
    worker: str
    repeats: tuple[int, ...] = ()
    """Numbers of the trials that this one repeats: they were stopped, or their worker died."""


def check_folder(out: Path) -> None:
    """Raise unless a folder is new, empty or holds a study. Nothing in it is changed."""
    is_new = not out.exists() or (out.is_dir() and not contents(out))
    if not is_new and not (out / "study.json").exists():
        raise FileExistsError(
            f"{out} exists and holds no study. Choose a new folder for --out; nothing was changed."
        )


def write_trials(
    out: Path, trials: Sequence[Trial], base: FitConfig, searched: Sequence[str]
) -> None:
    """Write trials.csv and, if a trial is complete, best.json."""
    rows = [
        {**asdict(trial), **trial.params, "repeats": " ".join(map(str, trial.repeats))}
        for trial in trials
    ]
    names = ["number", "state", "validation_error", *searched, "seconds", "worker", "repeats"]
    write_text(out / "trials.csv", pd.DataFrame(rows, columns=names).to_csv(index=False))
    complete = [trial for trial in trials if trial.state == "complete"]
    if complete:
        best = min(complete, key=lambda trial: (trial.validation_error, trial.number))
        content = {
            "trial": best.number,
            "validation_error": best.validation_error,
            "params": best.params,
            "config": trial_config(base, best.params).to_json(),
        }
        write_json(out / "best.json", content)


def without_test(table: Table) -> Table:
    """The table with its test rows in no split, and NaN as their targets, so that a use shows."""
    test = table.rows("test")
    split, y, ends = table.split.copy(), table.y.copy(), table.ends
    split[test], y[test] = "", math.nan
    if ends is not None:
        ends = ends.copy()
        ends[test] = math.nan
    return dataclasses.replace(table, split=split, y=y, ends=ends)


def targets_digest(table: Table) -> str:
    """A hash of the train and validation targets: all that the first version stored of the data."""
    rows = [table.y[table.rows(split)].tobytes() for split in ("train", "val")]
    return hashlib.sha256(b"|".join(rows)).hexdigest()[:16]


def key_of(table: Table, config: FitConfig) -> str:
    """The checkpoint folder's name for a training: a hash of all that its result depends on."""
    fields = {k: v for k, v in config.to_json().items() if k not in SPEED_ONLY}
    return hashlib.sha256(json.dumps([fields, table.digest]).encode()).hexdigest()[:16]
