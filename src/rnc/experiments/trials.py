"""The trials of a tuning: runs of the store, and what is known of them.

OUT/tuning.json has the validation error of every trial, by the key of its run. So a trial is never
repeated, whichever table or search asks for it, and a trial that was stopped goes on from its
checkpoint. Nothing here reads a score of the test rows.
"""

import json
import math
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from rnc.experiments.plan import Finished, PlannedRun
from rnc.experiments.run import Say, Watch
from rnc.experiments.scores import validation
from rnc.experiments.store import Store, run_key, trains_encoder
from rnc.files import DamagedFileError, write_json
from rnc.training.record import PULSE

TUNING_FILE = "tuning.json"


class NotTrained(Exception):
    """A trial is missing, and nothing is to be trained."""


class PlannedTrial(NamedTuple):
    """A training that a search asks for."""

    run: PlannedRun
    label: str
    """What is tried, for whoever waits."""
    name: str
    """Of the run in reports, if it is the one that stays."""


class Trials(Protocol):
    """What a search asks for the errors of trials."""

    def error(self, trial: PlannedTrial) -> float:
        """The validation error of a trial; infinite where its training diverged."""

    def tidy(self, run: PlannedRun) -> None:
        """Free what a trial left that was not chosen."""


class TrialRecords:
    """The trials below a folder that were trained before, in this call or an earlier one."""

    def __init__(self, store: Store) -> None:
        self.store, self.path = store, store.out / TUNING_FILE
        self.entries: dict[str, dict[str, Any]] = _read(self.path) if self.path.exists() else {}

    def error(self, run: PlannedRun) -> float | None:
        """The error of a trial; None of one that was not trained to its end."""
        entry = self.entries.get(run_key(run), {})
        if "error" in entry:
            return math.inf if entry["error"] is None else float(entry["error"])
        if self.store.is_finished(run):
            return validation(Finished(run, self.store.folder(run)))
        return None

    def write(self, run: PlannedRun, **changes: Any) -> None:
        """Change the entry of a trial; None stands for an infinite error."""
        self.entries.setdefault(run_key(run), {}).update(changes)
        write_json(self.path, self.entries)


def _read(path: Path) -> dict[str, dict[str, Any]]:
    """The entries of a file that `TrialRecords` wrote."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        errors = [entry.get("error") for entry in content.values()]
    except (ValueError, AttributeError):
        errors = [""]
    if not all(isinstance(error, float | int | None) for error in errors):
        raise DamagedFileError(
            f"{path} should hold the trials of a tuning, and is damaged. Delete it: trials whose "
            "runs are still there are read again, the others are trained again."
        )
    return dict(content)


class TrainedTrials:
    """Trials that are trained when they are asked for.

    Args:
        records: what was trained before.
        watch: takes the record of every epoch.
        say: takes a line about every trial that is trained.
        train: whether to train what is missing; if not, that raises NotTrained.
    """

    def __init__(self, records: TrialRecords, watch: Watch, say: Say, *, train: bool) -> None:
        self.records, self.store = records, records.store
        self.watch, self.say, self.train = watch, say, train

    def error(self, trial: PlannedTrial) -> float:
        """The validation error of a trial, which is trained now unless it was before."""
        run, found = trial.run, self.records.error(trial.run)
        is_new = found is None
        if found is None:
            if not self.train:
                raise NotTrained(trial.label)
            found = self._finish(trial)
        error = found if math.isfinite(found) else None
        if "error" not in self.records.entries.get(run_key(run), {}):
            self.records.write(run, error=error)
        if is_new:
            self.say(f"  {trial.label}: {'diverged' if error is None else f'{error:.4g}'}")
        return found

    def tidy(self, run: PlannedRun) -> None:
        """Delete the folders that a trial made; what was there before it stays."""
        entry = self.records.entries.get(run_key(run), {})
        if entry.get("made_run"):
            self.store.delete(run, encoder=entry["made_encoder"])
            # A table that trains this run later keeps it.
            self.records.write(run, made_run=False, made_encoder=False)

    def _finish(self, trial: PlannedTrial) -> float:
        run = trial.run
        if (
            run_key(run) not in self.records.entries
        ):  # its folders are of this trial, and go with it
            made_encoder = trains_encoder(run) and not self.store.has_encoder(run)
            made_run = not self.store.folder(run).exists()
            self.records.write(run, made_run=made_run, made_encoder=made_encoder)
        self.watch.start(run)
        PULSE.label = trial.label
        try:
            folder = self.store.finish(run, self.watch, name=trial.name)
        except FloatingPointError:
            return math.inf
        return validation(Finished(run, folder))


class PlannedTrials:
    """The trials that a search would train, as far as one can tell before it."""

    def __init__(self, records: TrialRecords) -> None:
        self.records = records
        self.missing: dict[str, PlannedRun] = {}
        self.done: set[str] = set()

    def error(self, trial: PlannedTrial) -> float:
        """The error of a trial that was trained before; another one is noted."""
        found, key = self.records.error(trial.run), run_key(trial.run)
        if found is None:
            self.missing[key] = trial.run
            return math.inf
        self.done.add(key)
        return found

    def tidy(self, run: PlannedRun) -> None:
        """Nothing was trained."""
