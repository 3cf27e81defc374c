"""Trackers get every record once, are closed with the run, and never make it fail."""

import json
import os
import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rnc
from rnc.files import read_tensors
from rnc.run.folder import TRACKERS_FILE
from rnc.trackers import records as tracker_records
from rnc.trackers.records import parameters_of, tracked, without_passwords
from rnc.trackers.registry import TRACKERS, TrackerSpec, check_trackers
from rnc.training.record import Record

PASSWORD = "hunter2-of-the-storage"
KEY = "0123456789abcdef0123456789abcdef01234567"
INSTALLED = [name for name in TRACKERS if not tracker_records.missing_package(name)]


@pytest.fixture(scope="module")
def patch() -> Iterator[pytest.MonkeyPatch]:
    """For all tests: trackers ask no server for anything."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
        patch.setenv("WANDB_ERROR_REPORTING", "false")
        patch.setenv("WANDB_MODE", "offline")
        yield patch
    if "wandb" in sys.modules:
        sys.modules["wandb"].teardown()  # ends its process


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, patch: pytest.MonkeyPatch) -> rnc.RunFolder:
    """A run of two epochs by every tracker that is installed, resumed to three."""
    folder = tmp_path_factory.mktemp("tracked")
    patch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{folder / 'mlflow.db'}")
    patch.setenv("WANDB_API_KEY", KEY)
    patch.setattr(sys, "argv", ["rnc", "fit", f"postgresql://me:{PASSWORD}@host/db"])
    x = np.random.default_rng(0).normal(size=(60, 3))
    table = rnc.table_from_arrays(x, x[:, 0])
    config = rnc.FitConfig(preset="quick", epochs=2, batch_size=16, device="cpu")
    plain = rnc.fit(table, config, folder / "plain")
    rnc.fit(table, config, folder / "run", track=INSTALLED, name="mine")
    before, same = (read_tensors(folder / name / "model.safetensors") for name in ("run", "plain"))
    assert all(bool((before[0][k] == v).all()) for k, v in same[0].items()), "tracking is not free"
    assert not (plain.path / TRACKERS_FILE).exists()
    return rnc.fit(table, replace(config, epochs=3), folder / "run", name="mine", resume=True)


def history(run: rnc.RunFolder, stage: str) -> list[tuple[int, float]]:
    return [(r.epoch, r.train_loss) for r in run.records if r.stage == stage]


def test_tensorboard_has_every_epoch_once_across_a_resume(run: rnc.RunFolder) -> None:
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    files = sorted((run.path / "tensorboard").iterdir())
    assert len(files) == 2  # one per process that wrote
    seen = events.EventAccumulator(str(run.path / "tensorboard")).Reload()
    points = [(point.step, point.value) for point in seen.Scalars("encoder/train_loss")]
    assert points == [(e, pytest.approx(v)) for e, v in history(run, "encoder")]
    assert seen.Scalars("test/mae")[-1].value == pytest.approx(run.scores["test"]["mae"])
    assert "parameters/text_summary" in seen.Tags()["tensors"]


@pytest.mark.filterwarnings("ignore")
def test_mlflow_has_one_run_with_every_epoch_once(run: rnc.RunFolder) -> None:
    client = pytest.importorskip("mlflow").MlflowClient()
    experiment = client.get_experiment_by_name("rank-n-contrast")
    [there] = client.search_runs([experiment.experiment_id])
    assert (there.info.run_name, there.info.status) == ("mine", "FINISHED")
    found = client.get_metric_history(there.info.run_id, "encoder/train_loss")
    assert [(point.step, point.value) for point in found] == history(run, "encoder")
    assert there.data.metrics["test/mae"] == run.scores["test"]["mae"]
    assert there.data.params["batch_size"] == "16"
    assert there.data.params["epochs"] == "2"  # MLflow lets nobody change a parameter


def test_wandb_has_offline_runs_of_one_id_that_hold_every_epoch(run: rnc.RunFolder) -> None:
    pytest.importorskip("wandb")
    state = json.loads((run.path / TRACKERS_FILE).read_text())["wandb"]
    files = sorted((run.path / "wandb").glob("offline-run-*/*.wandb"), key=os.path.getmtime)
    assert [file.name for file in files] == [f"run-{state['id']}.wandb"] * 2
    first, second = (file.read_bytes() for file in files)
    losses = [repr(loss).encode() for _, loss in history(run, "encoder")]
    assert [loss in first for loss in losses] == [True, True, False]
    assert [loss in second for loss in losses] == [False, False, True]
    assert b"test/mae" in second


def test_no_secret_is_written(run: rnc.RunFolder) -> None:
    files = [path for path in run.path.parent.rglob("*") if path.is_file()]
    assert len(files) > 20
    secret = (PASSWORD.encode(), KEY.encode())
    assert [p.name for p in files if any(word in p.read_bytes() for word in secret)] == []
    told = parameters_of(run)
    assert told["batch_size"] == "16"
    assert told["environment/torch"]
    assert not {"command", "data", "fingerprint"} & set(told)


def test_the_example_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tensorboard")
    page = Path(__file__).parent.parent / "docs" / "trackers.md"
    text = page.read_text(encoding="utf-8")
    [block] = re.findall(r"^```python\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    x = np.random.default_rng(0).normal(size=(80, 2))
    rows = [f"{a:.4f},{b:.4f},{a + b:.4f}" for a, b in x]
    (tmp_path / "houses.csv").write_text("\n".join(["rooms,area,price", *rows]))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(rnc, "fit", partial(rnc.fit, epochs=1), raising=False)
    seen: dict[str, Any] = {}
    exec(compile(block, "docs/trackers.md", "exec"), seen)
    assert list((seen["run"].path / "tensorboard").iterdir())


# ------------------------------------------------------------------- with a tracker of the tests


@dataclass
class Notes:
    """A tracker that keeps what it gets; `breaks` names the call that fails."""

    breaks: str = ""
    got: list[tuple[Any, ...]] = field(default_factory=list)
    id: str | None = "notes-1"

    def open(self, folder: Path, name: str, before: str | None) -> "Notes":
        return self._take("open", folder.name, name, before) or self

    def _take(self, what: str, *values: Any) -> None:
        if what == self.breaks:
            raise ConnectionError(f"no {what} today\nTraceback")
        self.got.append((what, *values))

    def parameters(self, values: dict[str, str]) -> None:
        self._take("parameters", values["batch_size"])

    def numbers(self, stage: str, epoch: int, values: dict[str, float]) -> None:
        self._take("numbers", stage, epoch, values)

    def scores(self, values: dict[str, float]) -> None:
        self._take("scores", values["mae"])

    def close(self, *, finished: bool) -> None:
        self._take("close", finished)


@pytest.fixture
def folder(run: rnc.RunFolder, tmp_path: Path) -> Path:
    """A finished run without trackers."""
    for name in ("config.json", "scores.json"):
        shutil.copy(run.path / name, tmp_path)
    return tmp_path


def use(monkeypatch: pytest.MonkeyPatch, **trackers: Notes) -> None:
    for name, notes in trackers.items():
        monkeypatch.setitem(TRACKERS, name, TrackerSpec("json", notes.open))


def epochs(*losses: float, stage: str = "encoder") -> Iterator[Record]:
    for epoch, loss in enumerate(losses, 1):
        yield Record(stage, epoch, len(losses), 0.1, loss, None, None, 2.0)


def test_records_pass_and_are_written(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notes = Notes()
    use(monkeypatch, notes=notes)
    earlier = list(epochs(9.0, stage="first"))
    twice = ["notes", "notes"]  # as in --track notes --track notes
    passed = list(tracked(epochs(3.0, 2.0), folder, twice, earlier=earlier))
    assert [record.train_loss for record in passed] == [3.0, 2.0]
    scores = json.loads((folder / "scores.json").read_text())["test"]
    assert notes.got == [
        ("open", folder.name, "mine", None),
        ("parameters", "16"),
        ("numbers", "first", 1, {"lr": 0.1, "train_loss": 9.0, "seconds": 2.0}),
        ("numbers", "encoder", 1, {"lr": 0.1, "train_loss": 3.0, "seconds": 2.0}),
        ("numbers", "encoder", 2, {"lr": 0.1, "train_loss": 2.0, "seconds": 2.0}),
        ("scores", scores["mae"]),
        ("close", True),
    ]


def test_a_resumed_run_writes_what_is_new(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, notes=Notes())
    list(tracked(epochs(3.0, 2.0), folder, ["notes"]))
    use(monkeypatch, notes=(silent := Notes()))
    list(tracked(epochs(3.0, 2.0), folder, resume=True))
    assert silent.got == []  # not even opened
    use(monkeypatch, notes=(notes := Notes()))
    list(tracked(epochs(3.0, 2.5, 1.0), folder, resume=True))  # the second one was trained again
    assert notes.got[0] == ("open", folder.name, "mine", "notes-1")
    assert [got[2] for got in notes.got if got[0] == "numbers"] == [2, 3]
    use(monkeypatch, notes=(new := Notes()))
    list(tracked(epochs(3.0), folder, ["notes"]))  # not resumed: a run that replaced this one
    assert new.got[0] == ("open", folder.name, "mine", None)


@pytest.mark.parametrize("breaks", ["open", "parameters", "numbers", "scores", "close"])
def test_a_tracker_that_fails_is_told_once_and_ends_nothing(
    breaks: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken, whole = Notes(breaks), Notes()
    use(monkeypatch, broken=broken, whole=whole)
    said: list[str] = []
    names = ["broken", "whole"]
    assert len(list(tracked(epochs(3.0, 2.0, 1.0), folder, names, say=said.append))) == 3
    [line] = said
    assert line.startswith("The tracker broken failed; training goes on without it. ")
    assert f"ConnectionError: no {breaks} today" in line
    assert "\n" not in line
    assert len(whole.got) == 2 + 3 + 2
    state = json.loads((folder / TRACKERS_FILE).read_text())
    wrote = 3 if breaks in ("scores", "close") else 0
    assert (len(state["broken"]["written"]), len(state["whole"]["written"])) == (wrote, 3)


def test_the_message_of_a_tracker_has_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", PASSWORD)
    said = f"GET http://me:{KEY}@host:5000/x?api_key={KEY}&a=1: 401, user me, tried {PASSWORD}"
    assert without_passwords(said) == (
        "GET http://***@host:5000/x?api_key=***&a=1: 401, user me, tried ***"
    )


def test_a_run_that_is_stopped_ends_so_at_the_tracker(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, notes=(notes := Notes()))
    ended = []

    def training() -> Iterator[Record]:
        try:
            yield from epochs(3.0)
            raise KeyboardInterrupt
        finally:
            ended.append(True)

    with pytest.raises(KeyboardInterrupt):
        list(tracked(training(), folder, ["notes"]))
    assert notes.got[-1] == ("close", False)
    stopped = tracked(training(), folder, ["notes"])
    next(iter(stopped))
    stopped.close()  # type: ignore[attr-defined]
    assert ended == [True, True]  # what training set up is gone, too
    assert notes.got[-1] == ("close", False)


def test_one_process_of_several_writes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, notes=(notes := Notes()))
    monkeypatch.setattr(tracker_records, "is_first_process", lambda: False)
    assert len(list(tracked(epochs(3.0), folder, ["notes"]))) == 1
    assert notes.got == []


@pytest.mark.parametrize(
    "content",
    ["{", "[]", '{"notes": {}}', '{"notes": {"id": "../x", "written": [], "scores": {}}}'],
)
def test_damaged_notes_on_trackers_do_not_stop_a_run(
    content: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, notes=(notes := Notes()))
    (folder / TRACKERS_FILE).write_text(content)
    said: list[str] = []
    assert len(list(tracked(epochs(3.0), folder, resume=True, say=said.append))) == 1
    assert notes.got == []
    assert content == "[]" or "is damaged" in said[0]


def test_what_is_missing_is_said_before_anything_happens(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = np.random.default_rng(0).normal(size=(60, 3))
    table = rnc.table_from_arrays(x, x[:, 0])
    monkeypatch.setitem(TRACKERS, "notes", TrackerSpec("a_package_that_is_not_there", Notes().open))
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'rank-n-contrast\[notes\]'"):
        rnc.fit(table, out=tmp_path / "run", track="notes")
    with pytest.raises(ValueError, match=r"no tracker 'mlfow'; known are .* Did you mean 'mlflow'"):
        check_trackers(["mlfow"])
    assert not (tmp_path / "run").exists()
    state = {"notes": {"id": None, "written": [], "scores": {}}}
    (folder / TRACKERS_FILE).write_text(json.dumps(state))
    said: list[str] = []  # on another machine a run goes on without
    assert len(list(tracked(epochs(3.0), folder, resume=True, say=said.append))) == 1
    assert "goes on without it" in said[0]


def test_every_tracker_has_an_extra_of_its_name() -> None:
    project = (Path(__file__).parent.parent / "pyproject.toml").read_text(encoding="utf-8")
    assert all(f"\n{name} = [" in project for name in ("tensorboard", "mlflow", "wandb"))
