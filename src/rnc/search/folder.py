"""A study folder, and what a trial may see of the data.

study.json     what is searched, and where the trials are kept
study.db       the trials, unless a server keeps them
trials.csv     one line per trial
best.json      the complete trial with the lowest validation error, and its config
checkpoints/   what a stopped trial goes on from
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
    """One training of a study."""

    number: int
    state: str
    """complete, pruned, diverged, out of memory, impossible, failed, running or waiting."""
    validation_error: float | None
    """The best; of a pruned trial, the last."""
    params: dict[str, Any]
    seconds: float | None
    worker: str
    repeats: tuple[int, ...] = ()
    """Trials that were stopped, or whose worker died, and that this one does again."""


def check_folder(out: Path) -> None:
    """Raise unless a folder may take a study; nothing in it is changed."""
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
    """The table with test rows in no split. Their targets are NaN, so that a use would show."""
    test = table.rows("test")
    split, y, ends = table.split.copy(), table.y.copy(), table.ends
    split[test], y[test] = "", math.nan
    if ends is not None:
        ends = ends.copy()
        ends[test] = math.nan
    return dataclasses.replace(table, split=split, y=y, ends=ends)


def targets_digest(table: Table) -> str:
    """All that the first version kept of the data of a study: a hash of what it may see of y."""
    rows = [table.y[table.rows(split)].tobytes() for split in ("train", "val")]
    return hashlib.sha256(b"|".join(rows)).hexdigest()[:16]


def key_of(table: Table, config: FitConfig) -> str:
    """The name of the checkpoints of a training: a hash of all that its result depends on."""
    fields = {k: v for k, v in config.to_json().items() if k not in SPEED_ONLY}
    return hashlib.sha256(json.dumps([fields, table.digest]).encode()).hexdigest()[:16]
