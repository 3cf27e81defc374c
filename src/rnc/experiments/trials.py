"""The trials of a tuning: runs of the store, and their validation errors.

OUT/tuning.json has the validation error of every trial, by the key of its run. So no table or
search repeats a trial. A trial that was stopped continues from its checkpoint. Nothing here reads a
score of the test rows.
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
    """Raised for a missing trial if training is switched off."""


class PlannedTrial(NamedTuple):
    """A trial that a search asks for."""

    run: PlannedRun
    label: str
    """The stage and the values, for progress messages."""
    name: str
    """The name of the run in reports, if it is kept."""


class Trials(Protocol):
    """The interface from which a search gets the errors of trials."""

    def error(self, trial: PlannedTrial) -> float:
        """The validation error of a trial; infinite if its training diverged."""

    def tidy(self, run: PlannedRun) -> None:
        """Delete the files of a trial that was not chosen."""


class TrialRecords:
    """The trials of a store that were trained before, in this call or an earlier one."""

    def __init__(self, store: Store) -> None:
        self.store, self.path = store, store.out / TUNING_FILE
        self.entries: dict[str, dict[str, Any]] = _read(self.path) if self.path.exists() else {}

    def error(self, run: PlannedRun) -> float | None:
        """The error of a trial; None for a trial that is not finished."""
        entry = self.entries.get(run_key(run), {})
        if "error" in entry:
            return math.inf if entry["error"] is None else float(entry["error"])
        if self.store.is_finished(run):
            return validation(Finished(run, self.store.folder(run)))
        return None

    def write(self, run: PlannedRun, **changes: Any) -> None:
        """Change the entry of a trial and save it; an error of None stands for infinity."""
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
    """Trials that are trained when a search asks for them.

    Args:
        records: trials that were trained before.
        watch: takes the record of every epoch.
        say: takes a line about every trial that is trained.
        train: whether to train missing trials; if not, they raise NotTrained.
    """

    def __init__(self, records: TrialRecords, watch: Watch, say: Say, *, train: bool) -> None:
        self.records, self.store = records, records.store
        self.watch, self.say, self.train = watch, say, train

    def error(self, trial: PlannedTrial) -> float:
        """The validation error of a trial. Trains it if it is not finished."""
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
        """Delete the folders that a trial made; folders from before stay."""
        entry = self.records.entries.get(run_key(run), {})
        if entry.get("made_run"):
            self.store.delete(run, encoder=entry["made_encoder"])
            # If a table trains this run later, its folders must not be deleted.
            self.records.write(run, made_run=False, made_encoder=False)

    def _finish(self, trial: PlannedTrial) -> float:
        run = trial.run
        if (
            run_key(run) not in self.records.entries
        ):  # remember which folders this trial makes, for `tidy`
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
    """The trials that a search would train, as far as this is known before."""

    def __init__(self, records: TrialRecords) -> None:
        self.records = records
        self.missing: dict[str, PlannedRun] = {}
        self.done: set[str] = set()

    def error(self, trial: PlannedTrial) -> float:
        """The error of a finished trial; infinite for any other, which is noted as missing."""
        found, key = self.records.error(trial.run), run_key(trial.run)
        if found is None:
            self.missing[key] = trial.run
            return math.inf
        self.done.add(key)
        return found

    def tidy(self, run: PlannedRun) -> None:
        """Does nothing, since nothing was trained."""
