"""Records as they pass: each is also written by the trackers of a run.

trackers.json in the run folder has, for each tracker, the id of the run there and what was written,
so that a resumed run goes on with the same one and writes nothing twice. It holds no address and no
key: those are in the environment, as each tracker has it.
"""

import contextlib
import json
import logging
import os
import re
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, cast

from rnc.files import write_json
from rnc.loss.distributed import is_first_process
from rnc.printable import on_one_line
from rnc.run.folder import TRACKERS_FILE, RunFolder
from rnc.trackers.registry import TRACKERS, TrackerWriter, missing_package
from rnc.training.record import Record

SayTracker = Callable[[str], None]
"""What is told that a tracker failed."""
_ID = re.compile(r"[\w-]{1,64}", re.ASCII)
_SECRET_NAME = re.compile(r"(?:KEY|TOKEN|PASSWORD|SECRET)")
_LONGEST = 300
"""Characters of an error that are shown."""
_NOT_NUMBERS = ("stage", "epoch", "epochs")


def log_tracker(text: str) -> None:
    """Log a line, the default of what is told."""
    logging.getLogger("rnc").warning(text)  # not a Python warning, which may be made an error


def tracked(
    records: Iterator[Record],
    out: Path,
    names: Sequence[str] = (),
    *,
    resume: bool = False,
    earlier: Sequence[Record] = (),
    say: SayTracker = log_tracker,
) -> Iterator[Record]:
    """The records of a run, each of which is written by trackers, too; in the end, the scores.

    A tracker that fails is told about once and left alone: training goes on without it.

    Args:
        records: of `fit_run`, whose folder is `out`.
        out: the run folder.
        names: of trackers; a run that is resumed has those it had before, too.
        resume: whether the run in `out` goes on.
        earlier: records of the run that are not among `records`, such as those of its encoder.
        say: takes a line of text about a tracker that fails.
    """
    before = _read_state(out, say) if resume else {}
    chosen = [name for name in before if _is_installed(name, say)]
    chosen += [name for name in dict.fromkeys(names) if name not in chosen]
    passed = cast(Generator[Record], records)
    if not chosen or not is_first_process():
        yield from passed
        return
    states = [_Tracker(name, out, before.get(name, _State())) for name in chosen]
    trackers = _Trackers(out, say, states)
    with contextlib.closing(passed):
        try:
            for record in passed:
                trackers.write([*earlier, record])
                earlier = ()
                yield record
            trackers.finish()
        finally:
            trackers.close()


@dataclass
class _State:
    """What trackers.json has about a tracker."""

    id: str | None = None
    written: list[str] = field(default_factory=list)
    scores: dict[str, float] = field(default_factory=dict)


@dataclass
class _Tracker:
    """A tracker of a run; opened when there is something new to write."""

    name: str
    folder: Path
    state: _State
    writer: TrackerWriter | None = None
    failed: bool = False

    def open(self) -> TrackerWriter:
        """The writer; with its first use the parameters of the run are written."""
        if self.writer is None:
            run = RunFolder(self.folder)
            name = str(run.config.get("name", self.folder.resolve().name))
            self.writer = TRACKERS[self.name].open(self.folder, name, self.state.id)
            self.state.id = self.writer.id
            self.writer.parameters(parameters_of(run))
        return self.writer

    def write(self, record: Record) -> None:
        """Write the numbers of an epoch, unless they are there."""
        if (key := _key(record)) not in self.state.written:
            self.open().numbers(record.stage, record.epoch, _numbers(record))
            self.state.written.append(key)

    def finish(self) -> None:
        """Write the scores, unless they are there."""
        scores = scores_of(RunFolder(self.folder))
        if scores != self.state.scores:
            self.open().scores(scores)
            self.state.scores = scores

    def close(self, *, finished: bool) -> None:
        """Close what is open."""
        if self.writer is not None:
            self.writer.close(finished=finished)


@dataclass
class _Trackers:
    """The trackers of a run folder; none of them can end the training."""

    folder: Path
    say: SayTracker
    trackers: list[_Tracker]
    finished: bool = False

    def write(self, records: Sequence[Record]) -> None:
        """Write the records that are new to a tracker."""
        before = [len(one.state.written) for one in self.trackers]
        for tracker in self.trackers:
            for record in records:
                self._try(tracker, partial(tracker.write, record))
        if before != [len(one.state.written) for one in self.trackers]:
            self._save()

    def finish(self) -> None:
        """Write the scores of the run, which is at its end."""
        self.finished = True
        for tracker in self.trackers:
            self._try(tracker, tracker.finish)
        self._save()

    def close(self) -> None:
        """Close all of them, also those that failed."""
        for tracker in self.trackers:
            if tracker.failed:
                with contextlib.suppress(Exception):
                    tracker.close(finished=False)
            self._try(tracker, partial(tracker.close, finished=self.finished))

    def _try(self, tracker: _Tracker, action: Callable[[], None]) -> None:
        """Do something with a tracker unless it failed before."""
        if tracker.failed:
            return
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # theirs, which a user could do nothing about
                action()
        except Exception as error:
            tracker.failed = True
            what = on_one_line(without_passwords(f"{type(error).__name__}: {error}"))[:_LONGEST]
            self.say(f"The tracker {tracker.name} failed; training goes on without it. {what}")

    def _save(self) -> None:
        state = {one.name: vars(one.state) for one in self.trackers}
        with contextlib.suppress(OSError):  # a full disk ends what matters more, with a message
            write_json(self.folder / TRACKERS_FILE, state)


def without_passwords(message: str) -> str:
    """A message without passwords of addresses, and without keys of the environment.

    >>> without_passwords("https://me:secret@host/?token=abc failed")
    'https://***@host/?token=*** failed'
    """
    for name, value in os.environ.items():
        if _SECRET_NAME.search(name) and len(value) >= 6:
            message = message.replace(value, "***")
    message = re.sub(r"://[^/\s@]*@", "://***@", message)
    return re.sub(rf"({_SECRET_NAME.pattern}\w*=)[^&\s]+", r"\1***", message, flags=re.IGNORECASE)


def parameters_of(run: RunFolder) -> dict[str, str]:
    """What a tracker is told about a run: every option, the kind of data, versions.

    Neither the command nor where the data are: these may hold what is nobody else's business.
    """
    config = run.config
    kept = {**config.get("fit", {}), **config.get("resolved", {})}
    kept |= {name: config["model"][name] for name in ("kind", "target_names")}
    kept |= {f"environment/{name}": value for name, value in config.get("environment", {}).items()}
    return {name: _text(value) for name, value in kept.items() if value is not None}


def scores_of(run: RunFolder) -> dict[str, float]:
    """The scores of the test rows that are plain numbers."""
    scores = run.scores.get("test", {})
    return {k: float(v) for k, v in scores.items() if type(v) in (int, float)}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _numbers(record: Record) -> dict[str, float]:
    values = {name: value for name, value in asdict(record).items() if name not in _NOT_NUMBERS}
    return {name: float(value) for name, value in values.items() if value is not None}


def _key(record: Record) -> str:
    """What tells the records of a run apart; an epoch that is trained otherwise is another one."""
    return f"{record.stage} {record.epoch} {record.train_loss!r} {record.val_error!r}"


def _is_installed(name: str, say: SayTracker) -> bool:
    if missing := missing_package(name):
        say(f"{missing} This run goes on without it.")
    return not missing


def _read_state(out: Path, say: SayTracker) -> dict[str, _State]:
    """What trackers.json holds; nothing of it is trusted."""
    path = out / TRACKERS_FILE
    if not path.exists():
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return {name: _state(content[name]) for name in TRACKERS if name in content}
    except (ValueError, TypeError, KeyError) as error:
        say(f"{path} is damaged ({on_one_line(str(error))[:_LONGEST]}): its trackers are left out.")
        return {}


def _state(content: Any) -> _State:
    state = _State(content["id"], content["written"], content["scores"])
    if state.id is not None and not _ID.fullmatch(state.id):
        raise ValueError(f"id is {state.id!r}")
    if not all(isinstance(key, str) for key in [*state.written, *state.scores]):
        raise ValueError("a key is not a text")
    return state
