"""A study: Optuna runs trials and compares their validation errors. No trial sees the test rows.

Every process that searches with the same storage and study name is a worker of one study. A worker
sends heartbeats. If they stop, another worker repeats its trial.
"""

import json
import math
import os
import shutil
import socket
import time
import warnings
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, cast

import torch

from rnc.analyses.analysis import ShowProgress
from rnc.config import SPEED_ONLY, FitConfig
from rnc.data.fingerprint import check_fingerprint
from rnc.data.table import Table
from rnc.files import write_json
from rnc.search.folder import (
    Trial,
    check_folder,
    key_of,
    targets_digest,
    without_test,
    write_trials,
)
from rnc.search.secrets import masked, without_secrets
from rnc.search.space import Choice, Range, Space, check_space, default_space, trial_config
from rnc.training.recipes import build_regressor, train
from rnc.training.record import Record

try:
    import optuna
    import sqlalchemy
    from optuna.trial import FrozenTrial, TrialState
except ImportError as error:
    raise ImportError(
        f"rnc search needs the package optuna ({error}). Get it with: "
        'pip install "rank-n-contrast[search]"'
    ) from error

MAX_REPEATS = 3
_REPEATS = "retry_history"  # Optuna's name for the numbers of the trials that a trial repeats
_ENDED = "ended"  # attribute of a trial: why it did not complete


def search(
    table: Table,
    base: FitConfig,
    out: Path,
    *,
    space: Space | None = None,
    trials: int = 20,
    storage: str | None = None,
    study: str | None = None,
    prune: bool = True,
    heartbeat: int = 30,
    show: ShowProgress = lambda done, total, what: None,
) -> Iterator[Trial]:
    """Run trials until the study has enough; yield each trial of this process when it ends.

    An existing study is continued. If the space has choices only, each combination is tried at most
    once, in an order that depends on base.seed. A space with a range is searched by Optuna's TPE.

    Args:
        table: the data. Test rows are hidden from the trials.
        base: the options that are not searched.
        out: the study folder; must be new, empty, or of this study.
        space: the search space; by default `default_space`.
        trials: how many the whole study has, with those of earlier calls and of other workers. If
            workers start their last trial at the same time, each may add one more.
        storage: SQLAlchemy URL of a database that the workers share; by default study.db in `out`.
        study: the study's name in the storage; by default the name of the folder.
        prune: stop a trial early if its validation error is above the median of the other trials.
        heartbeat: seconds between heartbeats. After three times as long without one, another worker
            repeats the trial.
        show: called to show progress.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise ValueError(
            "rnc search trains each trial in one process; it was started under torchrun. Start it "
            "several times with the same --storage instead."
        )
    space = check_space(default_space(base, table.kind) if space is None else space, base)
    check_folder(out)
    url = storage or f"sqlite:///{out / 'study.db'}"
    table = without_test(table)
    setup = _setup(table, base, space)
    file, name = out / "study.json", study or out.resolve().name
    content = {"study": name, "storage": masked(url), **setup}
    if not file.exists():  # so that the folder counts as a study even if this process is killed
        write_json(file, content)
    # Pruning compares errors at the same step, and errors of different schemes do not compare.
    prunes = prune and base.scheme != "auto" and "scheme" not in space
    with _storage(url, heartbeat) as database:
        opened = _open_study(database, name, setup, table)  # raises for other options or data
        write_json(file, content)
        opened.pruner = _pruner()
        yield from _Worker(
            opened, database, table, base, out, space, show, prunes, repeatable=storage is None
        ).run(trials, heartbeat)


@dataclass
class _Worker:
    """One process of a study."""

    study: optuna.Study
    database: optuna.storages.RDBStorage
    table: Table
    base: FitConfig
    out: Path
    space: Space
    show: ShowProgress
    prunes: bool
    repeatable: bool
    current: int = -1  # number of the current trial
    lost: bool = False  # whether another worker has taken the current trial
    seen: set[int] = field(default_factory=set)  # running trials of other workers

    def run(self, trials: int, heartbeat: int) -> Iterator[Trial]:
        """Run trials until the study has enough, counting those of other workers."""
        grid = {k: part.values for k, part in self.space.items() if isinstance(part, Choice)}
        is_grid = len(grid) == len(self.space)
        limit = min(trials, math.prod(map(len, grid.values()))) if is_grid else trials
        self.write()
        while True:
            self._release_silent_trials()
            ended, running, waiting = self._counts()
            if ended >= limit:
                break
            if waiting or ended + running < limit:
                yield self._run_trial(grid if is_grid else None)
            else:
                self.show(ended, limit, f"waiting for {running} trials of other workers")
                time.sleep(min(heartbeat, 5))
        self.write()

    def _release_silent_trials(self) -> None:
        """Give back the trials whose workers send no heartbeats any more.

        If a worker dies before its first heartbeat, Optuna would wait for ever. So a worker that
        sees a running trial for the first time sends one heartbeat for it.
        """
        with _quietly():
            optuna.storages.fail_stale_trials(self.study)
        running = self.study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
        for trial in running:
            if trial._trial_id not in self.seen:
                self.database.record_heartbeat(trial._trial_id)
        self.seen = {trial._trial_id for trial in running}

    def _counts(self) -> tuple[int, int, int]:
        """How many trials have ended for good, are running, and wait to be repeated."""
        trials = self.study.get_trials(deepcopy=False)
        repeated = {number for trial in trials for number in trial.system_attrs.get(_REPEATS, [])}
        states = [t.state for t in trials if t.number not in repeated]
        running, waiting = states.count(TrialState.RUNNING), states.count(TrialState.WAITING)
        return len(states) - running - waiting, running, waiting

    def _run_trial(self, grid: Mapping[str, Sequence[Any]] | None) -> Trial:
        """Run a trial that was given back, or a new one."""
        if grid is not None:
            self.study.sampler = optuna.samplers.GridSampler(grid, seed=self.base.seed)
        else:
            seed = self.base.seed + len(self.study.get_trials(deepcopy=False))
            with _quietly():
                self.study.sampler = optuna.samplers.TPESampler(
                    seed=seed if self.repeatable else None, constant_liar=True
                )
        self.lost = False
        try:
            self.study.optimize(self._objective, n_trials=1)
        except (ValueError, optuna.exceptions.UpdateFinishedTrialError):
            if not self.lost:
                raise
        finally:
            self.write()
        return _trial(self.study.get_trials(deepcopy=False)[self.current])

    def _objective(self, trial: optuna.Trial) -> float:
        self.current = trial.number
        try:
            trial.set_user_attr("worker", f"{socket.gethostname()}:{os.getpid()}")
            error = self._train(trial, self._config(trial))
            trial.set_user_attr("validation_error", error)  # raises if another worker has the trial
        except optuna.exceptions.UpdateFinishedTrialError:
            self.lost = True  # this worker seemed dead, for instance while a laptop slept
            raise
        except (FloatingPointError, torch.OutOfMemoryError) as problem:
            diverged = isinstance(problem, FloatingPointError)
            trial.set_user_attr(_ENDED, "diverged" if diverged else "out of memory")
            raise optuna.TrialPruned from problem
        except (optuna.exceptions.OptunaError, sqlalchemy.exc.SQLAlchemyError):
            raise
        except BaseException:
            _give_back(self.study, self.study.get_trials(deepcopy=False)[trial.number])
            raise
        return error

    def _config(self, trial: optuna.Trial) -> FitConfig:
        params = {name: _suggest(trial, name, part) for name, part in self.space.items()}
        try:
            return trial_config(self.base, params)
        except ValueError as problem:  # an invalid combination of options
            trial.set_user_attr(_ENDED, "impossible")
            raise optuna.TrialPruned from problem

    def _train(self, trial: optuna.Trial, config: FitConfig) -> float:
        """Train, from a checkpoint if there is one; return the lowest validation error."""
        folder = self.out / "checkpoints" / key_of(self.table, config)
        model, errors, reports = build_regressor(self.table, config), [], 0
        stages: dict[str, int] = {}
        records = cast(Generator[Record], train(model, self.table, config, folder))
        with closing(records):  # so that training also cleans up after a pruned trial
            for record in records:
                what = f"trial {trial.number} {record.stage}, loss {record.train_loss:.4g}"
                before = stages.setdefault(record.stage, len(stages))
                if record.val_error is not None:
                    reports += 1
                    percent = 100 * record.epoch // max(1, record.epochs)
                    trial.report(record.val_error, 100 * before + percent)
                    what += f", validation error {record.val_error:.4g}"
                    if record.stage != "encoder":  # its errors come from a quick probe
                        errors.append(record.val_error)
                self.show(record.epoch, record.epochs, what)
                is_early = record.val_error is not None and record.epoch < record.epochs
                if self.prunes and is_early and reports > 1 and trial.should_prune():
                    shutil.rmtree(folder, ignore_errors=True)
                    raise optuna.TrialPruned
        shutil.rmtree(folder, ignore_errors=True)
        if not math.isfinite(min(errors)):
            raise FloatingPointError
        return min(errors)

    def write(self) -> None:
        """Write trials.csv and best.json from the trials of the study so far."""
        trials = [_trial(trial) for trial in self.study.get_trials(deepcopy=False)]
        write_trials(self.out, trials, self.base, tuple(self.space))


def _pruner() -> optuna.pruners.BasePruner:
    """A pruner that compares a trial with the median of at least five complete trials.

    The step of a report is the percentage of the epochs of its stage, plus 100 for each earlier
    stage. A trial can be pruned after a tenth of its first stage.
    """
    return optuna.pruners.MedianPruner(n_startup_trials=5, n_warmup_steps=11)


def _suggest(trial: optuna.Trial, name: str, part: Range | Choice) -> Any:
    if isinstance(part, Choice):
        return trial.suggest_categorical(name, list(part.values))
    if isinstance(part.low, int) and isinstance(part.high, int):
        return trial.suggest_int(name, part.low, part.high, log=part.log)
    return trial.suggest_float(name, part.low, part.high, log=part.log)


def _trial(trial: FrozenTrial) -> Trial:
    state = "failed" if trial.state == TrialState.FAIL else trial.state.name.lower()
    return Trial(
        number=trial.number,
        state=trial.user_attrs.get(_ENDED, state),
        validation_error=trial.value if trial.values else None,
        params=trial.params,
        seconds=None if trial.duration is None else round(trial.duration.total_seconds(), 1),
        worker=trial.user_attrs.get("worker", ""),
        repeats=tuple(trial.system_attrs.get(_REPEATS, ())),
    )


def _give_back(study: optuna.Study, trial: FrozenTrial) -> None:
    """Let any worker repeat a trial, but at most MAX_REPEATS times."""
    history = [*trial.system_attrs.get(_REPEATS, []), trial.number]
    if len(history) > MAX_REPEATS:
        return
    again = optuna.create_trial(
        state=TrialState.WAITING,
        params=trial.params,
        distributions=trial.distributions,
        system_attrs={**trial.system_attrs, _REPEATS: history},
    )
    study.add_trial(again)


def _setup(table: Table, base: FitConfig, space: Space) -> dict[str, Any]:
    """The options and hashes of the data that all workers of a study share, as JSON types."""
    fixed = {k: v for k, v in base.to_json().items() if k not in {*SPEED_ONLY, *space}}
    where = {
        name: list(part.values) if isinstance(part, Choice) else asdict(part)
        for name, part in space.items()
    }
    setup = {**fixed, "space": where, "data": table.digest, "fingerprint": table.fingerprint}
    return dict(json.loads(json.dumps(setup)))  # the same types that the storage returns


def _open_study(
    storage: optuna.storages.RDBStorage, name: str, setup: dict[str, Any], table: Table
) -> optuna.Study:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(storage=storage, study_name=name, load_if_exists=True)
    before = study.user_attrs.get("setup", setup)
    advice = "Use the same ones to continue it, or another --out and --study."
    check_fingerprint(before.get("fingerprint"), table, f"the study {name!r}", advice)
    older = {"fingerprint"} - before.keys()
    if "data" not in before:  # the first version, which stored a hash of the targets only
        setup, older = setup | {"targets": targets_digest(table)}, older | {"data"}
    changed = [k for k in {**before, **setup} if before.get(k) != setup.get(k) and k not in older]
    if changed:
        listed = "; ".join(f"{k}: {before.get(k)!r} then, {setup.get(k)!r} now" for k in changed)
        raise ValueError(
            f"The study {name!r} was started with other options or data ({listed}). Use the same "
            "ones to continue it, or another --out and --study."
        )
    study.set_user_attr("setup", setup)
    return study


def _open_storage(url: str, heartbeat: int) -> optuna.storages.RDBStorage:
    is_sqlite = url.startswith("sqlite")
    engine = {"connect_args": {"timeout": 60}} if is_sqlite else {"pool_pre_ping": True}
    for attempt in range(5):
        try:
            with _quietly():
                return optuna.storages.RDBStorage(
                    url,
                    engine_kwargs=engine,
                    heartbeat_interval=heartbeat,
                    grace_period=3 * heartbeat,
                    heartbeat_stale_trial_callback=_give_back,
                )
        except sqlalchemy.exc.SQLAlchemyError as problem:
            # Two workers that start with an empty database both try to create its tables.
            if attempt == 4 or not any(w in str(problem) for w in ("already exists", "duplicate")):
                raise
            time.sleep(0.2 * (attempt + 1))
    raise AssertionError("the last attempt returns or raises")


@contextmanager
def _storage(url: str, heartbeat: int) -> Iterator[optuna.storages.RDBStorage]:
    """Open the database, and close it at the end. Its errors become short, without passwords."""
    try:
        storage = _open_storage(url, heartbeat)
        try:
            yield storage
        finally:
            storage.remove_session()
            storage.engine.dispose()
    except ImportError as problem:
        raise ImportError(
            f"The storage {masked(url)} needs a driver of its database ({problem}). For "
            "PostgreSQL: pip install 'psycopg[binary]', and a URL that starts with "
            "postgresql+psycopg://."
        ) from problem
    except (optuna.exceptions.OptunaError, sqlalchemy.exc.SQLAlchemyError) as problem:
        cause = problem.__cause__ or problem
        reason = str(getattr(cause, "orig", None) or cause).strip().splitlines()[0]
        reason = without_secrets(reason, url)
        raise RuntimeError(
            f"The storage {masked(url)} cannot be used ({reason}). Check that it is a "
            "URL such as postgresql+psycopg://USER:PASSWORD@HOST/NAME and that its server runs; "
            "the same command then goes on with the study."
        ) from problem


@contextmanager
def _quietly() -> Iterator[None]:
    """Hide Optuna's warnings that a feature, such as heartbeats, is experimental."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        yield
