"""One process at a time writes to a folder; a killed one leaves it free."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

import rnc
from rnc import lock
from rnc.files import LOCK_FILE, contents, write_text
from rnc.lock import FolderInUseError, check_free, locked
from rnc.run.fit import fit_run
from training_cases import columns, quick

HOLD = """
import sys
from pathlib import Path
from rnc.lock import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path: Path) -> Iterator["subprocess.Popen[str]"]:
    """Another process that holds the folder `run`."""
    source = str(Path(rnc.__file__).parent.parent)
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path / "run")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": source},
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_a_folder_in_use_is_refused_by_the_name_of_its_owner_until_that_is_killed(
    tmp_path: Path, holder: "subprocess.Popen[str]"
) -> None:
    out = tmp_path / "run"
    by = rf"run is in use by process {holder.pid} on .* since \d{{4}}-.*choose another folder"
    for refused in (lambda: check_free(out), lambda: list(fit_run(columns(), quick(), out))):
        with pytest.raises(FolderInUseError, match=by):
            refused()
    assert contents(out) == []
    (out / LOCK_FILE).write_text("[1")
    with pytest.raises(FolderInUseError, match="in use by another process"):
        check_free(out)
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait()
    assert (out / LOCK_FILE).exists()
    list(fit_run(columns(), quick(), out))
    assert not (out / LOCK_FILE).exists()


def test_a_process_may_enter_its_own_folder_again(tmp_path: Path) -> None:
    with locked(tmp_path), locked(tmp_path / ".." / tmp_path.name):
        assert (tmp_path / LOCK_FILE).exists()
    assert list(tmp_path.iterdir()) == []


def test_a_lock_leaves_no_empty_folder_behind(tmp_path: Path) -> None:
    with locked(tmp_path / "new"):
        pass
    assert not (tmp_path / "new").exists()
    with locked(tmp_path / "new"):
        write_text(tmp_path / "new" / "file", "x")
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["file"]


def test_a_run_that_stops_gives_its_folder_back(tmp_path: Path) -> None:
    records = fit_run(columns(), quick(), tmp_path / "run")
    list(islice(records, 1))
    assert (tmp_path / "run" / LOCK_FILE).exists()
    records.close()
    assert not (tmp_path / "run" / LOCK_FILE).exists()


def test_under_torchrun_the_first_process_holds_the_folder_for_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with locked(tmp_path):
        monkeypatch.setenv("RANK", "1")
        monkeypatch.setattr(lock, "_held", set())  # as in another process
        with locked(tmp_path):
            pass
        monkeypatch.setenv("RANK", "0")
        with pytest.raises(FolderInUseError), locked(tmp_path):
            pass
        monkeypatch.undo()


def test_a_file_system_without_locks_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(handle: int) -> None:
        raise OSError(lock.errno.ENOLCK, "no locks")

    monkeypatch.setattr(lock, "_lock", refuse)
    with pytest.warns(UserWarning, match="no locks. Let one process alone"), locked(tmp_path):
        pass
    assert list(tmp_path.iterdir()) == []
