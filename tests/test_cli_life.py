"""Progress bars and log lines: they show that training runs, and how long it will take."""

import io
import time
from collections.abc import Iterator

import pytest
from rich.console import Console

from rnc.cli import life
from rnc.config import FitConfig
from rnc.training.cost import (
    PlannedStage,
    duration,
    faster_choices,
    planned_stages,
    seconds_left,
    stage_words,
)
from rnc.training.record import PULSE, Record, Step, told


@pytest.fixture(autouse=True)
def fresh_pulse() -> Iterator[None]:
    yield
    PULSE.now, PULSE.label = None, ""


def screen(monkeypatch: pytest.MonkeyPatch, *, is_terminal: bool) -> io.StringIO:
    """What the bars write to."""
    text = io.StringIO()
    console = Console(file=text, force_terminal=is_terminal, width=100, color_system=None)
    monkeypatch.setattr(life, "console", console)
    return text


def record(stage: str, epoch: int, epochs: int = 2, loss: float = 1.0) -> Record:
    return Record(stage, epoch, epochs, 0.1, loss, None, 1.0, 0.1)


def look() -> None:
    """Give the thread that follows training time to look."""
    time.sleep(5 * life.LOOK_SECONDS)


def test_a_bar_moves_within_the_first_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    text = screen(monkeypatch, is_terminal=True)
    with life.training_bar():
        look()
        assert "preparing" in text.getvalue()
        PULSE.now = Step("encoder", 1, 400, 3, 12, 0.0)
        look()
        assert "encoder" in text.getvalue()
        assert "epoch 1/400  step 3/12" in text.getvalue()
        PULSE.now = Step("encoder", 1, 400, 7, 12, 2.0)
        look()
        assert "epoch 1/400  step 7/12  2.0 steps/s" in text.getvalue()


def test_what_has_no_epochs_has_a_bar_that_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    text = screen(monkeypatch, is_terminal=True)
    with life.training_bar() as show:
        for _ in told("features", range(3), 3):
            look()
        assert "step 2/3" in text.getvalue()
        show(record("head", 1, 1))
        text.truncate(0)
        look()
        assert "head" in text.getvalue()
        assert "features" not in text.getvalue()


def test_stages_of_methods_and_seeds_have_bars_of_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = screen(monkeypatch, is_terminal=True)
    with life.training_bar() as show:
        for seed in (0, 1):
            PULSE.label = f"RnC(L1) seed {seed}"
            for stage, epoch in [("encoder", 1), ("finetune", 0), ("finetune", 1), ("finetune", 2)]:
                show(record(stage, epoch))
    last = text.getvalue().splitlines()[-5:-1]  # the cursor comes back after them
    names = [
        f"RnC(L1) seed {seed}  {stage}" for seed in (0, 1) for stage in ("encoder", "finetune")
    ]
    assert all(name in line for name, line in zip(names, last, strict=True))


def test_one_bar_for_many_runs_goes_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    screen(monkeypatch, is_terminal=True)
    with life.training_bar(stays=False) as show:
        for label in ("L1 seed 0", "RnC seed 0"):
            PULSE.label = label
            show(record("encoder", 1))
            show(record("head", 1, 1))
        assert PULSE.label == "RnC seed 0"


def test_a_log_has_a_line_per_tenth_and_no_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    text = screen(monkeypatch, is_terminal=False)
    monkeypatch.setattr(life, "LOG_GAP", 0.0)
    with life.training_bar() as show:
        for epoch in (1, 2, 30, 31):
            PULSE.now = Step("encoder", epoch, 100, 5, 10, 0.0)
            look()
            show(record("encoder", epoch, 100, loss=epoch / 4))
        show(record("encoder", 100, 100))
    assert text.getvalue().splitlines() == [
        "encoder  epoch 30/100  loss 0.5000  val 1",  # the last epoch that is done is the second
        "encoder  epoch 31/100  loss 7.5000  val 1",
        "encoder  epoch 100/100  loss 1.0000  val 1",
    ]


def test_a_log_has_a_line_now_and_then_within_a_long_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    text = screen(monkeypatch, is_terminal=False)
    monkeypatch.setattr(life, "LOG_SECONDS", 0.0)
    with life.training_bar():
        PULSE.now = Step("encoder", 1, 400, 7, 5000, 0.0)
        look()
    assert text.getvalue() == "encoder  epoch 1/400  step 7/5000\n"


def test_a_log_says_how_fast_it_goes_and_how_long_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    text = screen(monkeypatch, is_terminal=False)
    monkeypatch.setattr(life, "LOG_SECONDS", 0.0)
    with life.training_bar():
        for done, at in ((0, 10.0), (100, 20.0)):
            PULSE.now = Step("encoder", 1, 3, done, 1000, at)
            look()
    last = text.getvalue().splitlines()[-1]
    assert last == "encoder  epoch 1/3  step 100/1000  10.0 steps/s, 5 min left"  # 2900 steps


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        ([(0, 0.0), (1, 40.0)], [(0, 1)]),  # slow steps: one is enough
        ([(0, 0.0), (1, 0.9), (2, 1.0), (3, 1.1)], []),  # quick, and not for long
        ([(0, 0.0), (1, 1.5), (20, 4.0)], [(1, 20)]),  # the first has much to set up
    ],
)
def test_the_cost_is_said_once_the_pace_is_known(
    monkeypatch: pytest.MonkeyPatch, steps: list[tuple[int, float]], said: list[tuple[int, int]]
) -> None:
    screen(monkeypatch, is_terminal=False)
    told: list[tuple[int, int]] = []
    with life.training_bar(say_cost=lambda first, now: told.append((first.done, now.done))):
        for done, at in steps:
            PULSE.now = Step("encoder", 1, 9, done, 1000, at)
            look()
    assert told == said


def test_the_stages_of_a_config_are_planned_as_they_are_trained() -> None:
    paper = FitConfig(preset="paper", batch_size=256)
    assert planned_stages(paper, 1000, "image") == [
        PlannedStage("encoder", 400, 3, 2000),
        PlannedStage("head", 100, 16, 1000),
    ]
    assert [s.name for s in planned_stages(paper, 1000, "image", takes_encoder=True)] == ["head"]
    auto = planned_stages(FitConfig(scheme="auto", preset="quick", batch_size=256), 1000, "image")
    names = "end2end/end2end encoder probe/head finetune/finetune"
    assert [stage.name for stage in auto] == names.split()
    assert [stage.epochs for stage in auto] == [10, 30, 1, 20]
    words = "encoder 30 epochs x 3 steps, probe/head solved at once"
    assert stage_words(auto[1:3]) == words


def test_the_time_left_counts_all_stages_by_their_views() -> None:
    stages = [PlannedStage("encoder", 10, 5, 2000), PlannedStage("end2end", 3, 10, 1000)]
    first, now = Step("encoder", 1, 10, 1, 5, 100.0), Step("encoder", 1, 10, 3, 5, 104.0)
    # 2 of 5 steps, 800 views, took 4 s; 9.4 epochs of 2000 and 3 of 1000 are left
    assert seconds_left(stages, first, now) == pytest.approx((18800 + 3000) * 4 / 800)


def test_a_long_training_on_a_cpu_comes_with_advice() -> None:
    assert faster_choices(FitConfig(), "image") == [
        "--image-size 112 (a quarter of the pixels)",
        "--encoder small-cnn or resnet10t",
        "--preset quick (a first look)",
    ]
    small = FitConfig(image_size=64, encoder="small-cnn", preset="quick")
    assert faster_choices(small, "image") == []
    assert duration(3 * 3600 + 20 * 60) == "3 h 20 min"
