"""Progress while a command trains: a bar that moves with every step, or lines in a log.

Training yields a record per epoch. In between, a thread reads `rnc.training.record.PULSE` a few
times a second and moves the bar. After the first steps it also prints how long training will take.
"""

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TaskID,
    TextColumn,
)
from rich.text import Text

from rnc.cli.terminal import console, tell
from rnc.printable import printable

if TYPE_CHECKING:
    from rnc.config import FitConfig
    from rnc.training.cost import PlannedStage
    from rnc.training.record import Record, ShowRecord, Step

LOOK_SECONDS = 0.1
LOG_SECONDS, LOG_SHARE, LOG_MOST = 60.0, 0.05, 600.0
"""A log has a line at every tenth of a stage. Within a tenth it has one after LOG_SHARE of the time
so far, but not before LOG_SECONDS and not later than LOG_MOST."""
LOG_GAP = 5.0
"""The least number of seconds between two lines."""
RATE_SECONDS = 20.0
"""The steps per second are those of the last RATE_SECONDS."""
PACE_SECONDS, PACE_STEPS = 2.0, 3
"""The pace is known after so many seconds and steps. One step is enough if steps are slow."""

SayCost = Callable[["Step", "Step"], None]
"""A function that prints how long training will take, from two steps and the time between them."""


@contextlib.contextmanager
def training_bar(*, stays: bool = True, say_cost: SayCost | None = None) -> Iterator["ShowRecord"]:
    """A context that shows the progress of training. It yields a function that takes records.

    Args:
        stays: True shows a bar per stage, which stays on the screen, or lines in a log. False shows
            one bar for all stages, which disappears at the end.
        say_cost: called once, with two steps from which the pace follows.
    """
    from rnc.loss.distributed import is_first_process
    from rnc.training.record import PULSE

    if not is_first_process():
        yield lambda record: None
        return
    PULSE.now, PULSE.label = None, ""
    bar, stop = _TrainingBar(stays, say_cost), threading.Event()
    follower = threading.Thread(target=bar.follow, args=(stop,), daemon=True)
    with bar.progress:
        bar.start()
        follower.start()
        try:
            yield bar.show
        finally:
            stop.set()
            follower.join()
            bar.finish()


def say_cost(
    stages: Sequence["PlannedStage"], config: "FitConfig", kind: str, first: "Step", now: "Step"
) -> None:
    """Print how long training will take, and on a CPU what would make it shorter."""
    import torch

    from rnc.training.cost import LONG, duration, faster_choices, seconds_left

    seconds = seconds_left(stages, first, now)
    on_cpu = config.device == "cpu" or not torch.cuda.is_available()
    tell(f"About {duration(seconds)} on this {'CPU' if on_cpu else 'GPU'}, by the first steps.")
    if on_cpu and seconds > LONG and (choices := faster_choices(config, kind)):
        tell(f"Shorter: {'; '.join(choices)}.", style="yellow")


class _TrainingBar:
    """The bars of one command. The training and the thread that follows it both change them."""

    def __init__(self, stays: bool, say_cost: SayCost | None) -> None:
        self.stays, self.say_cost = stays, say_cost
        self.lock = threading.Lock()
        self.progress = _progress(stays)
        self.tasks: dict[str, TaskID] = {}
        self.passing: set[str] = set()
        """Names of bars to remove as soon as another one appears."""
        self.first: Step | None = None
        self.rate = _Rate()
        self.log = _Log(stays and not console.is_terminal)

    def start(self) -> None:
        """Show a bar before the first step."""
        self._task("preparing")

    def follow(self, stop: threading.Event) -> None:
        """Read the step that training is at and move the bar, until `stop` is set."""
        from rnc.training.record import PULSE

        seen: Step | None = None
        while not stop.wait(LOOK_SECONDS):
            now = PULSE.now
            if now is None or now is seen:
                continue
            seen = now
            with self.lock:
                self._move(now)

    def _move(self, now: "Step") -> None:
        task, name = self._task(now.stage), self._name(now.stage)
        if not now.steps:
            return
        where, rate = f"step {now.done}/{now.steps}", self.rate.take(name, now)
        pace = f"  {rate_words(rate)}" if rate else ""
        if now.epochs:
            where = f"epoch {now.epoch}/{now.epochs}  {where}"
            self.progress.update(task, total=now.epochs, completed=now.epochs_done)
            self._estimate_cost(now)
        else:
            self.passing.add(name)
            self.progress.update(task, total=now.steps, completed=now.done)
        self.progress.update(task, where=where + pace)
        self.log.step(name, now, where, rate)

    def _estimate_cost(self, now: "Step") -> None:
        """Call `say_cost` once the pace is known. A quick first step is not counted: it sets up."""
        if self.say_cost is None:
            return
        first = self.first
        if first is None or first.stage != now.stage:
            self.first = now
            return
        steps, seconds = (now.epochs_done - first.epochs_done) * now.steps, now.at - first.at
        if seconds > 3 * PACE_SECONDS or (steps > PACE_STEPS - 0.5 and seconds > PACE_SECONDS):
            self.say_cost(first, now)
            self.say_cost = None
        elif first.epochs_done == 0:
            self.first = now

    def show(self, record: "Record") -> None:
        """Show the result of an epoch."""
        with self.lock:
            task, numbers = self._task(record.stage), _numbers(record)
            where = f"epoch {record.epoch}/{record.epochs}"
            self.progress.update(
                task, total=record.epochs, completed=record.epoch, where=where, numbers=numbers
            )
            self.log.epoch(self._name(record.stage), where, numbers, record)

    def finish(self) -> None:
        """Remove the bars without a total, and those that are not to stay."""
        for task in self.progress.tasks:
            if task.total is None or task.description in self.passing:
                self.progress.remove_task(task.id)
                del self.tasks[task.description]

    def _task(self, stage: str) -> TaskID:
        """The bar of a stage. A new one replaces those that are not to stay, or the only one."""
        name = self._name(stage)
        if name not in self.tasks:
            if self.stays:
                self.finish()
            if self.stays or not self.tasks:
                self.tasks[name] = self.progress.add_task(name, total=None, where="", numbers="")
            else:
                (task,) = set(self.tasks.values())
                self.progress.reset(task, total=None, description=name, where="", numbers="")
                self.tasks = {name: task}
        return self.tasks[name]

    def _name(self, stage: str) -> str:
        from rnc.training.record import PULSE

        return printable(f"{PULSE.label}  {stage}" if PULSE.label else stage)


class _Rate:
    """Measures steps per second from the times that training notes.

    It does not wait for the device. A GPU runs some steps behind, but at the same pace.
    """

    def __init__(self) -> None:
        self.name = ""
        self.seen: deque[tuple[float, float]] = deque()

    def take(self, name: str, now: "Step") -> float | None:
        """Steps per second in the last RATE_SECONDS; None before there are two steps."""
        if name != self.name:
            self.name = name
            self.seen.clear()
        done = now.epochs_done * now.steps if now.epochs else float(now.done)
        self.seen.append((now.at, done))
        while len(self.seen) > 2 and now.at - self.seen[0][0] > RATE_SECONDS:
            self.seen.popleft()
        at, before = self.seen[0]
        return (done - before) / (now.at - at) if now.at > at and done > before else None


def rate_words(rate: float) -> str:
    """A rate as text.

    >>> rate_words(12.34), rate_words(0.25)
    ('12.3 steps/s', '4.0 s/step')
    """
    return f"{rate:.1f} steps/s" if rate >= 1 else f"{1 / rate:.1f} s/step"


class _Log:
    """The lines about training that a log gets in place of a bar."""

    def __init__(self, is_on: bool) -> None:
        self.is_on = is_on
        self.began = self.last_line = time.perf_counter()
        self.tenths, self.numbers, self.name = 0, "", ""

    def step(self, name: str, now: "Step", where: str, rate: float | None) -> None:
        """Write a line if a tenth of the stage is done, or if the last line is long ago."""
        from rnc.training.cost import duration

        if name != self.name:
            self.name, self.tenths, self.numbers = name, 0, ""
        left = now.epochs - now.epochs_done if now.epochs else 1 - now.done / now.steps
        tenths = int(10 * (1 - left / (now.epochs or 1)))
        time_now = time.perf_counter()
        seconds = time_now - self.last_line
        patience = max(LOG_SECONDS, min(LOG_MOST, LOG_SHARE * (time_now - self.began)))
        if now.epochs and tenths > self.tenths and seconds > LOG_GAP:
            self._write(f"{name}  epoch {now.epoch}/{now.epochs}  {self.numbers}")
            self.tenths = tenths
        elif seconds > patience:
            pace = ""
            if rate is not None:
                pace = f"  {rate_words(rate)}, {duration(left * now.steps / rate)} left"
            self._write(f"{name}  {where}{pace}  {self.numbers}")
            self.tenths = tenths

    def epoch(self, name: str, where: str, numbers: str, record: "Record") -> None:
        """Keep the numbers of an epoch for later lines. Write them now if it is the last epoch."""
        self.name, self.numbers = name, numbers
        if record.epoch == record.epochs:
            self._write(f"{name}  {where}  {numbers}")
            self.tenths = 10

    def _write(self, text: str) -> None:
        self.last_line = time.perf_counter()
        if self.is_on:
            console.print(text.rstrip(), highlight=False, soft_wrap=True)


class _TimeColumn(ProgressColumn):
    """The time left if it is known, else the time since the beginning."""

    def render(self, task: Task) -> Text:
        left, passed = task.time_remaining, task.finished_time or task.elapsed or 0.0
        if task.finished or not left:
            return Text(str(timedelta(seconds=round(passed))))
        return Text(f"{timedelta(seconds=round(left))} left")


def _progress(stays: bool) -> Progress:
    return Progress(
        SpinnerColumn(finished_text=" "),
        TextColumn("{task.description:<12}", markup=False),
        BarColumn(bar_width=20 if console.width >= 100 else 10),
        TextColumn("{task.fields[where]}  {task.fields[numbers]}", markup=False),
        _TimeColumn(),
        console=console,
        transient=not stays,
        disable=not console.is_terminal,
    )


def _numbers(record: "Record") -> str:
    """The loss of an epoch, and if known its gap to the bound and its validation error."""
    numbers = f"loss {record.train_loss:.4f}"
    if record.gap is not None:
        numbers += f"  gap {record.gap:.3f}"
    if record.val_error is not None:
        numbers += f"  val {record.val_error:.4g}"
    return numbers
