"""Kills and Ctrl-C at every change of a file that a command makes; then the user goes on.

What is there in the end must be what a command leaves that nobody disturbed.
"""

import csv
import io
import json
import multiprocessing
import os
import re
import shlex
import shutil
import signal
import sys
from concurrent.futures import ProcessPoolExecutor
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from attack.harness import Lost, Silent, Verdict
from attack.tracer import Blow, Outcome, can_trace, run
from evaluation_cases import houses
from rnc.files import LOCK_FILE, read_tensors
from search_cases import Clock

LIMIT = 240
"""Seconds after which a command is taken for hung."""
_QUICK = "--preset quick --encoder mlp --epochs 2 --batch-size 16 --device cpu"


@dataclass(frozen=True)
class Command:
    """What a user types, below a folder with data and finished runs."""

    words: str
    place: str
    """The folder that it changes."""
    before: str | None = None
    """The folder that is copied there first."""


_FIT = f"fit houses.csv --target price --scheme finetune --head-epochs 2 --out run {_QUICK}"
COMMANDS = {
    "search": Command(
        f"search houses.csv --target price --scheme end2end {_QUICK} --choice lr=0.001,0.002 "
        "--trials 2 --out study",
        "study",
    ),
    "fit": Command(_FIT, "run"),
    "fit --overwrite": Command(f"{_FIT} --overwrite --seed 1", "run", "finished"),
    "resume --epochs": Command("resume run --epochs 3", "run", "finished"),
    "evaluate": Command("evaluate run --data more.csv", "run", "finished"),
    "evaluate --overwrite": Command(
        "evaluate finished --data more.csv --out other --overwrite", "other", "evaluated"
    ),
    "evaluate --with": Command("evaluate run --with map --map-method pca", "run", "finished"),
    "reproduce": Command(
        f"reproduce main --data houses.csv --target price --seeds 1 {_QUICK} --method L1 "
        "--method 'RnC(L1)' --out paper",
        "paper",
    ),
}
INTERRUPTED = ("fit", "search")
"""Commands that get Ctrl-C, too."""


# ------------------------------------------------------------------------------ in a process


def type_command(words: str, root: Path) -> int:
    """The exit code of the command `rnc`, typed in a folder."""
    from rnc.cli import main
    from rnc.search import study

    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    study.time = Clock(root / "study" / "study.db", 60)  # nobody waits for the dead
    sys.argv = ["rnc", *shlex.split(words)]
    try:
        main()
        code = 0
    except SystemExit as end:
        code = int(end.code or 0)
    return code


_warm: set[str] = set()
"""Commands that this process knows: their forks start with what they import and cache."""


def _traced(words: str, root: Path, place: str, at: int | None, blow: Blow) -> Outcome:
    """Run a command in a fork of this process."""
    os.chdir(root)
    command = words.split()[0]
    if command not in _warm and not (root / place).exists():
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            type_command(words, root)
        _warm.add(command)
        shutil.rmtree(root / place)
    return run(partial(type_command, words, root), root / place, at, blow)


# ----------------------------------------------------------------------------------- one case


class Ground:
    """A folder with data and finished runs, where commands are disturbed one after another."""

    def __init__(self, root: Path) -> None:
        self.root = root
        context = multiprocessing.get_context("forkserver")
        self.pool = ProcessPoolExecutor(1, mp_context=context)
        if not self.pool.submit(can_trace).result(timeout=LIMIT):
            pytest.skip("needs Linux on x86-64, and leave to trace a child")
        self.known: dict[str, tuple[str, ...]] = {}
        houses(root / "houses.csv", n=60)
        houses(root / "more.csv", n=60, seed=3)
        self._whole("fit")
        shutil.copytree(root / "whole-fit", root / "finished")
        evaluate = "evaluate finished --data houses.csv --out evaluated"
        assert self._type(evaluate, "evaluated").code == 0

    def changes(self, name: str) -> tuple[str, ...]:
        """All changes of files that a command makes, if it is left alone; its result is kept."""
        if name not in self.known:
            self._whole(name)
        return self.known[name]

    def places(self, name: str, blow: Blow) -> list[int]:
        """The changes at which a blow can make a difference.

        A page of a database is not cut: that SQLite mends it is tested by SQLite. Python sees
        Ctrl-C when it gets back from a library, and so after its last change in a row.
        """
        changes = self.changes(name)
        if blow == "half":
            return [k for k, one in enumerate(changes) if re.match("p?write (?!study.db)", one)]
        if blow == "interrupt":
            inside = r"(pwrite|ftruncate|write|renameat|unlink) (study\.db|.*\.tmp)"
            return [k for k, one in enumerate(changes) if not re.match(inside, one)]
        return list(range(len(changes)))

    def try_blow(self, name: str, at: int, blow: Blow) -> Verdict:
        """Disturb a command at a change, let the user go on, and compare."""
        changes = self.changes(name)
        what = f"{name}, {blow} at change {at} ({changes[at]})"
        command = self._prepare(name)
        struck = self._type(command.words, command.place, at, blow)
        if blow == "interrupt":
            _check_stopped(struck, what)
        elif struck.code not in (0, -signal.SIGKILL):
            raise Lost(f"{what}: it ended with {struck.code}:\n{struck.output}")
        self._go_on(command, what)
        place = self.root / command.place
        if difference := _difference(self.root / f"whole-{name}", place):
            raise Silent(f"{what}: in the end {difference}")
        return "right"

    def _go_on(self, command: Command, what: str) -> None:
        """Type the command again, or what its message says."""
        again = self._type(command.words, command.place)
        if again.code == 2 and (
            advice := re.search(r"Continue it with `rnc ([^`]+)`", _line(again))
        ):
            again = self._type(advice[1], command.place)
        if again.code != 0:
            raise Lost(f"{what}: it does not go on ({again.code}):\n{again.output}")
        if "Traceback" in again.output:
            raise Lost(f"{what}: a traceback on going on:\n{again.output}")

    def _whole(self, name: str) -> None:
        command, whole = self._prepare(name), self.root / f"whole-{name}"
        outcome = self._type(command.words, command.place)
        assert outcome.code == 0, outcome.output
        self.known[name] = outcome.changes
        (self.root / command.place).rename(whole)

    def _prepare(self, name: str) -> Command:
        """Put everything where the command is to find it."""
        command = COMMANDS[name]
        place = self.root / command.place
        shutil.rmtree(place, ignore_errors=True)
        if command.before is not None:
            shutil.copytree(self.root / command.before, place)
        return command

    def _type(self, words: str, place: str, at: int | None = None, blow: Blow = "kill") -> Outcome:
        future = self.pool.submit(_traced, words, self.root, place, at, blow)
        return future.result(timeout=LIMIT)

    def close(self) -> None:
        self.pool.shutdown()


def _line(outcome: Outcome) -> str:
    return " ".join(outcome.output.split())


def _check_stopped(outcome: Outcome, what: str) -> None:
    """Raise unless a command took Ctrl-C as it should."""
    if "Traceback" in outcome.output:
        raise Lost(f"{what}: a traceback:\n{outcome.output}")
    if outcome.code == 0:
        return  # it came when all was done
    advice = ("Continue with: rnc resume", "The same command", "No run was begun")
    if outcome.code != 130 or not any(words in _line(outcome) for words in advice):
        raise Silent(f"{what}: it ended with {outcome.code}:\n{outcome.output}")


# ---------------------------------------------------------------------------------- comparison

_LEFT = re.compile(r"\..+\.part|\.tmp\w{6}")
_NOT_COMPARED = ("study.db", "study.db-journal")


def _files(folder: Path) -> dict[str, Path]:
    """The files of a result by their names; checkpoints of what is finished may differ."""
    paths = {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()}
    return {
        name: path
        for name, path in paths.items()
        if path.name not in (*_NOT_COMPARED, LOCK_FILE) and path.parent.name != "checkpoint"
    }


def _may_stay(path: Path, result: Path) -> bool:
    """Whether a file is what a killed process left where several processes may write."""
    shared = (result / "study.json", result / "main.md", result / "analyses" / "map.json")
    return _LEFT.fullmatch(path.name) is not None and any(
        file.exists() and path.parent == file.parent for file in shared
    )


def _difference(whole: Path, parts: Path) -> str | None:
    """How two results differ, in words; None for not at all."""
    wanted, got = _files(whole), _files(parts)
    got = {name: path for name, path in got.items() if not _may_stay(path, parts)}
    if wanted.keys() != got.keys():
        return f"other files: {sorted(wanted.keys() ^ got.keys())}"
    for name, path in wanted.items():
        if place := _first_difference(_content(path), _content(got[name])):
            return f"another {name}: {place}"
    return None


def _first_difference(a: Any, b: Any, where: str = "") -> str | None:
    """The first place where two contents differ, and both of it."""
    if a == b:
        return None
    if isinstance(a, dict) and isinstance(b, dict) and a.keys() == b.keys():
        return next(filter(None, (_first_difference(a[k], b[k], f"{where}/{k}") for k in a)))
    return f"{where} is {b!s:.300}, not {a!s:.300}"


def _content(path: Path) -> Any:
    """What a file says, but for times and the numbers of trials."""
    if path.suffix == ".safetensors":
        tensors, _ = read_tensors(path)
        return {name: (value.shape, value.numpy().tobytes()) for name, value in tensors.items()}
    if path.name == "trials.csv":
        rows = csv.DictReader(io.StringIO(path.read_text()))
        return sorted(
            (row["lr"], row["validation_error"]) for row in rows if row["state"] == "complete"
        )
    if path.name == "history.csv":
        return [row | {"seconds": ""} for row in csv.DictReader(io.StringIO(path.read_text()))]
    if path.suffix == ".json":
        return _timeless(json.loads(path.read_text()))
    if path.suffix == ".html":
        return None
    return path.read_bytes()


def _timeless(content: Any) -> Any:
    if isinstance(content, dict):
        return {k: _timeless(v) for k, v in content.items() if k not in ("seconds", "trial")}
    return [_timeless(one) for one in content] if isinstance(content, list) else content
