"""A study on a real PostgreSQL server, which two workers share, one of which is killed."""

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import optuna
import pandas as pd
import psycopg
import pytest

TRIALS = 4


def binaries() -> Path | None:
    """The folder of initdb and postgres, if they are on this machine."""
    found = shutil.which("initdb")
    places = [Path(found).resolve().parent] if found else []
    places += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((place for place in places if (place / "postgres").exists()), None)


def other_user() -> str | None:
    """Whom the server runs as, since it refuses to run as root."""
    if os.getuid() != 0:
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"


@pytest.fixture(scope="module")
def server():
    """The URL of a new, empty database."""
    places = binaries()
    if places is None:
        pytest.skip("no PostgreSQL on this machine: no initdb (Debian: apt install postgresql)")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    folder, user = Path(tempfile.mkdtemp(prefix="rnc-postgres-", dir="/tmp")), other_user()
    if user is not None:
        shutil.chown(folder, user)
    make = [places / "initdb", "-D", folder / "data", "-U", "me", "-A", "trust", "-E", "UTF8"]
    subprocess.run(make, check=True, capture_output=True, user=user, cwd=folder)
    listen = ["-h", "127.0.0.1", "-p", str(port), "-k", folder, "-c", "fsync=off"]
    process = subprocess.Popen(
        [places / "postgres", "-D", folder / "data", *listen],
        user=user,
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_until(lambda: answers(port), 60)
        yield f"postgresql+psycopg://me@127.0.0.1:{port}/postgres"
    finally:
        process.send_signal(signal.SIGINT)  # a fast shutdown: connections are cut
        process.wait(30)
        shutil.rmtree(folder)


def answers(port):
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


def wait_until(condition, seconds):
    end = time.monotonic() + seconds
    while not (result := condition()):
        assert time.monotonic() < end, f"waited {seconds} seconds in vain"
        time.sleep(0.1)
    return result


def worker(folder, url, name):
    """One `rnc search` in its own process, on its own folder."""
    rates = ",".join(str(0.001 * (i + 1)) for i in range(TRIALS))
    words = ["search", "data.npz", "--scheme", "end2end", "--encoder", "mlp", "--preset", "quick"]
    words += ["--epochs", "60", "--batch-size", "32", "--device", "cpu", "--choice", f"lr={rates}"]
    words += ["--trials", str(TRIALS), "--no-prune", "--heartbeat", "1"]
    words += ["--storage", url, "--study", "shared", "--out", name]
    with (folder / f"{name}.txt").open("w") as said:
        return subprocess.Popen(
            [sys.executable, "-m", "rnc.cli", *words],
            cwd=folder,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            stdout=said,
            stderr=subprocess.STDOUT,
        )


@contextlib.contextmanager
def looking_at(url):
    """A function that gives the trials of the study as they are."""
    storage = optuna.storages.RDBStorage(url)

    def trials():
        with contextlib.suppress(KeyError):  # no worker has made the study yet
            return optuna.load_study(study_name="shared", storage=storage).get_trials()
        return []

    try:
        yield trials
    finally:
        storage.remove_session()
        storage.engine.dispose()


def is_ready(url):
    """Whether the workers have made the tables; to look earlier would make them here."""
    with psycopg.connect(url.replace("+psycopg", "")) as connection:
        last = "SELECT to_regclass('public.alembic_version') IS NOT NULL"
        if connection.execute(last).fetchone() != (True,):
            return False
        found = connection.execute("SELECT count(*) FROM alembic_version").fetchone()
    return found == (1,)


def at_work(trials, process):
    """The trials that a process is training, with an epoch done."""
    its = [
        trial for trial in trials if trial.user_attrs.get("worker", "").endswith(f":{process.pid}")
    ]
    return [trial for trial in its if trial.state.name == "RUNNING" and trial.intermediate_values]


@pytest.mark.slow
def test_the_trial_of_a_killed_worker_is_done_by_the_other(server, tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(80, 4))
    np.savez(tmp_path / "data.npz", x=x, y=x @ [3.0, 2, 1, 0])
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    first, second = (worker(tmp_path, server, name) for name in ("first", "second"))
    try:
        wait_until(lambda: is_ready(server), 120)
        with looking_at(server) as trials_now:
            (running,) = wait_until(lambda: at_work(trials_now(), first), 120)
            first.kill()
            second.wait(240)
            trials = trials_now()
    finally:
        for process in (first, second):
            process.kill()
            process.wait()
    said, number = (tmp_path / "second.txt").read_text(), running.number
    assert first.returncode == -signal.SIGKILL
    assert second.returncode == 0, said

    killed = trials[number]
    assert killed.state.name == "FAIL"
    (again,) = [trial for trial in trials if number in trial.system_attrs.get("retry_history", [])]
    assert again.state.name == "COMPLETE"
    assert again.params == killed.params
    assert again.user_attrs["worker"].endswith(f":{second.pid}")
    complete = [trial for trial in trials if trial.state.name == "COMPLETE"]
    assert len({trial.params["lr"] for trial in complete}) == TRIALS
    assert {trial.state.name for trial in trials} == {"COMPLETE", "FAIL"}

    frame = pd.read_csv(tmp_path / "second" / "trials.csv", keep_default_na=False)
    assert frame["state"].tolist() == [
        "failed" if trial.state.name == "FAIL" else "complete" for trial in trials
    ]
    assert frame["repeats"].tolist()[again.number] == str(number)
    assert "rnc fit data.npz" in said
