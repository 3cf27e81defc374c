"""A study in one process, mostly on a simulated training."""

import dataclasses
import math
import sys
from importlib import import_module, reload

import numpy as np
import optuna
import pandas as pd
import pytest
import torch

import training_cases
from rnc.config import FitConfig
from rnc.files import read_tensors
from rnc.search import Choice, Range, check_space, default_space, without_test
from rnc.search import study as study_file
from search_cases import BASE, RATES, TABLE, Clock, best_of, changed, frame_of, record, run


@pytest.fixture
def written(monkeypatch):
    """A training whose validation errors fall from ten times the rate to the rate."""
    done = []

    def train(model, table, config, folder=None):
        epochs = config.epochs
        for epoch in range(1, epochs + 1):
            done.append((config.lr, epoch))
            error = config.lr * (10 - 9 * (epoch - 1) / max(1, epochs - 1))
            yield record("end2end", epoch, epochs, error)

    monkeypatch.setattr(study_file, "train", train)
    monkeypatch.setattr(study_file, "build_regressor", lambda table, config: None)
    return done


# ----------------------------------------------------------------------------------- real training


def test_the_best_config_gives_its_error_again(tmp_path):
    base = training_cases.quick(seed=3, epochs=1)
    trials = run(tmp_path / "s", {"lr": Choice([0.01, 0.1])}, base)
    assert [trial.state for trial in trials] == ["complete"] * 2
    best = best_of(tmp_path / "s")
    assert best["validation_error"] == min(trial.validation_error for trial in trials)
    config = FitConfig.from_json(best["config"])
    assert config == dataclasses.replace(base, **best["params"])
    _, records = training_cases.fit(TABLE, config)
    assert records[-1].val_error == pytest.approx(best["validation_error"], rel=1e-5)
    assert not any((tmp_path / "s" / "checkpoints").iterdir())


def test_test_rows_are_never_seen(tmp_path, monkeypatch):
    test = TABLE.rows("test")
    x, y = TABLE.x.copy(), TABLE.y.copy()
    x[test], y[test] = np.nan, np.nan
    poisoned = dataclasses.replace(TABLE, x=x, y=y)
    seen, plain = [], {name: getattr(study_file, name) for name in ("train", "build_regressor")}

    def spy(name):
        def call(*arguments):
            seen.extend(a for a in arguments if isinstance(a, type(TABLE)))
            return plain[name](*arguments)

        return call

    for name in plain:
        monkeypatch.setattr(study_file, name, spy(name))
    space, base = {"lr": Choice([0.01, 0.1])}, training_cases.quick(epochs=1)
    clean = run(tmp_path / "clean", space, base)
    dirty = run(tmp_path / "dirty", space, base, table=poisoned)
    assert [t.validation_error for t in clean] == [t.validation_error for t in dirty]
    assert all(math.isfinite(trial.validation_error) for trial in clean)
    assert len(seen) == 8
    for table in seen:
        assert len(table.rows("test")) == 0
        assert np.isnan(table.y[test]).all()
        assert len(table.rows("train")) == len(TABLE.rows("train"))


def test_hiding_the_test_rows_leaves_the_table_as_it_was():
    before = TABLE.y.copy()
    hidden = without_test(TABLE)
    np.testing.assert_array_equal(TABLE.y, before)
    assert len(TABLE.rows("test")) == 24
    for split in ("train", "val"):
        np.testing.assert_array_equal(hidden.rows(split), TABLE.rows(split))


def test_a_stopped_trial_goes_on_from_its_checkpoint(tmp_path):
    epochs = []

    def stop(done, total, what):
        epochs.append(done)
        if len(epochs) == 2:
            raise KeyboardInterrupt

    space = {"lr": Choice([0.01])}
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "s", space, show=stop)
    (kept,) = (tmp_path / "s" / "checkpoints").glob("*/checkpoint/last.safetensors")
    note = read_tensors(kept)[1]
    assert len(note["records"]) == 2
    (trial,) = run(tmp_path / "s", space, show=stop)
    assert trial.repeats == (0,)
    assert epochs == [1, 2, 1, 2, 3]
    errors = [one["val_error"] for one in note["records"]]
    assert trial.validation_error <= min(errors)
    assert frame_of(tmp_path / "s")["state"].tolist() == ["failed", "complete"]
    assert not any((tmp_path / "s" / "checkpoints").iterdir())


# --------------------------------------------------------------------------------------- the study


def test_a_study_goes_on_where_it_ended(tmp_path, written):
    space = {"lr": Choice(RATES)}
    run(tmp_path / "once", space, trials=6, prune=False)
    run(tmp_path / "twice", space, trials=2)
    assert len(frame_of(tmp_path / "twice")) == 2
    assert len(run(tmp_path / "twice", space, trials=6, prune=False)) == 4
    assert run(tmp_path / "twice", space, trials=6) == []
    columns = ["number", "state", "lr", "validation_error"]
    once, twice = (frame_of(tmp_path / name)[columns] for name in ("once", "twice"))
    pd.testing.assert_frame_equal(once, twice)
    assert once["lr"].nunique() == 6


def test_the_order_of_a_grid_is_by_the_seed(tmp_path, written):
    space = {"lr": Choice(RATES)}
    orders = []
    for seed in (1, 1, 2):
        base = dataclasses.replace(BASE, seed=seed, epochs=1)
        trials = run(tmp_path / str(len(orders)), space, base)
        orders.append([trial.params["lr"] for trial in trials])
    assert sorted(orders[0]) == RATES
    assert orders[0] == orders[1] != orders[2]


def test_ranges_are_searched_within_their_ends(tmp_path, written):
    space = {"lr": Range(1e-3, 1, log=True), "epochs": Range(2, 4)}
    trials = run(tmp_path / "s", space, trials=20, prune=False)
    rates = np.array([trial.params["lr"] for trial in trials])
    assert len(rates) == 20
    assert ((rates >= 1e-3) & (rates <= 1)).all()
    assert 0.2 < (rates < 0.03).mean() < 1
    assert {trial.params["epochs"] for trial in trials} == {2, 3, 4}
    assert best_of(tmp_path / "s")["params"]["lr"] == rates.min()
    assert rates[-10:].mean() < rates[:10].mean()


def test_trials_above_the_median_are_pruned(tmp_path, written):
    space = {"lr": Choice(RATES)}
    trials = run(tmp_path / "s", space, dataclasses.replace(BASE, seed=2))
    states = {trial.params["lr"]: trial.state for trial in trials}
    pruned = [trial for trial in trials if trial.state == "pruned"]
    assert pruned
    assert {trial.number for trial in pruned} <= {5, 6}
    for trial in pruned:
        before = [t.params["lr"] for t in trials[: trial.number] if t.state == "complete"]
        assert trial.params["lr"] > np.median(before)
        assert [epoch for lr, epoch in written if lr == trial.params["lr"]] == [1, 2]
        assert trial.validation_error == pytest.approx(trial.params["lr"] * 5.5)
    assert states[best_of(tmp_path / "s")["params"]["lr"]] == "complete"
    kept = run(tmp_path / "all", space, dataclasses.replace(BASE, seed=2), prune=False)
    assert {trial.state for trial in kept} == {"complete"}


def test_trials_that_are_checked_ten_times_are_pruned(tmp_path, monkeypatch):
    seen = []

    def train(model, table, config, folder=None):  # end to end, with averaged weights
        for epoch in range(1, 101):
            seen.append((config.lr, epoch))
            yield record("end2end", epoch, 100, config.lr if epoch % 10 == 0 else None)

    monkeypatch.setattr(study_file, "train", train)
    trials = run(tmp_path / "s", {"lr": Choice(RATES)}, dataclasses.replace(BASE, seed=2))
    pruned = [trial.params["lr"] for trial in trials if trial.state == "pruned"]
    assert {max(epoch for rate, epoch in seen if rate == lr) for lr in pruned} == {20}


def test_the_last_error_of_a_stage_prunes_nothing(tmp_path, monkeypatch):
    def train(model, table, config, folder=None):
        yield record("encoder", 1, 1, None)
        for epoch in (1, 2, 3):
            yield record("head", epoch, 3, config.lr if epoch == 3 else 1.0)

    monkeypatch.setattr(study_file, "train", train)
    trials = run(tmp_path / "s", {"lr": Choice(RATES)}, training_cases.quick())
    assert {trial.state for trial in trials} == {"complete"}
    assert [trial.validation_error for trial in trials] == [t.params["lr"] for t in trials]


def test_schemes_are_not_pruned_by_each_other(tmp_path, written):
    space = {"lr": Choice(RATES[:4]), "scheme": Choice(["end2end", "regularize"])}
    trials = run(tmp_path / "s", space)
    assert {trial.state for trial in trials} == {"complete"}
    assert len(trials) == 8


@pytest.mark.parametrize(
    ("problem", "state"),
    [
        (FloatingPointError("loss is nan"), "diverged"),
        (torch.OutOfMemoryError("no memory"), "out of memory"),
    ],
)
def test_a_training_that_fails_by_its_options_is_a_trial(
    tmp_path, monkeypatch, written, problem, state
):
    def fail(config):
        yield record("end2end", 1, 2, 1e-9)
        raise problem

    changed(monkeypatch, fail)
    trials = run(tmp_path / "s", {"lr": Choice([0.1, 0.2, 0.3])})
    assert [trial.state for trial in trials] == [state, "complete", "complete"]
    assert best_of(tmp_path / "s")["trial"] != 0
    assert frame_of(tmp_path / "s")["state"].tolist() == [trial.state for trial in trials]


def test_options_that_do_not_go_together_are_a_trial(tmp_path, written):
    base = training_cases.quick(epochs=2, lr=0.1)
    space = {"batch_size": Choice([1, 4]), "views": Choice([1, 2])}
    trials = run(tmp_path / "s", space, base)
    states = {(t.params["batch_size"], t.params["views"]): t.state for t in trials}
    assert states == {(1, 1): "impossible"} | dict.fromkeys([(1, 2), (4, 1), (4, 2)], "complete")


# ---------------------------------------------------------------------------------- given back


def test_a_trial_that_was_interrupted_is_done_again(tmp_path, monkeypatch, written):
    def stop(config):
        yield record("end2end", 1, 3, 0.5)
        raise KeyboardInterrupt

    calls = changed(monkeypatch, stop)
    space = {"lr": Choice([0.1, 0.2, 0.3])}
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "s", space)
    assert frame_of(tmp_path / "s")["state"].tolist() == ["failed", "waiting"]
    trials = run(tmp_path / "s", space)
    assert calls[0] == calls[1]
    assert sorted(trial.params["lr"] for trial in trials) == [0.1, 0.2, 0.3]
    assert trials[0].repeats == (0,)
    assert frame_of(tmp_path / "s")["repeats"].tolist()[:2] == ["", "0"]


def test_an_error_stops_the_search_and_is_tried_three_times_more(tmp_path, monkeypatch):
    def train(model, table, config, folder=None):
        yield record("end2end", 1, 3, 0.5)
        raise RuntimeError("disk full")

    monkeypatch.setattr(study_file, "train", train)
    for _ in range(4):
        with pytest.raises(RuntimeError, match="disk full"):
            run(tmp_path / "s", {"lr": Choice([0.1])})
    assert run(tmp_path / "s", {"lr": Choice([0.1])}) == []
    assert frame_of(tmp_path / "s")["state"].tolist() == ["failed"] * 4
    assert not (tmp_path / "s" / "best.json").exists()


@pytest.mark.parametrize("signs", [0, 1])
def test_a_trial_whose_worker_is_silent_is_done_by_another(tmp_path, written, signs, monkeypatch):
    space = {"lr": Choice([0.1, 0.2])}
    run(tmp_path / "s", space, trials=1, heartbeat=1000)
    url = f"sqlite:///{tmp_path / 's' / 'study.db'}"
    with study_file._quietly():
        dead = optuna.storages.RDBStorage(url, heartbeat_interval=1)
    grid = optuna.samplers.GridSampler({"lr": [0.1, 0.2]}, seed=0)
    with pytest.warns(UserWarning, match="Heartbeat"):
        trial = optuna.load_study(study_name="s", storage=dead, sampler=grid).ask()
    value = trial.suggest_categorical("lr", [0.1, 0.2])
    for _ in range(signs):  # of life; it may have died before the first
        dead.record_heartbeat(trial._trial_id)
    clock, waited = Clock(tmp_path / "s" / "study.db", 1000), []
    monkeypatch.setattr(study_file, "time", clock)
    (again,) = run(tmp_path / "s", space, heartbeat=1000, show=lambda *what: waited.append(what[2]))
    assert again.params == {"lr": value}
    assert again.repeats == (1,)
    assert clock.sleeps in (3, 4)  # three heartbeats, and some seconds of the computer's own
    assert waited[0] == "waiting for 1 trials of other workers"
    assert frame_of(tmp_path / "s")["state"].tolist() == ["complete", "failed", "complete"]


def test_a_worker_that_was_thought_dead_gives_way(tmp_path, monkeypatch, written):
    url = f"sqlite:///{tmp_path / 's' / 'study.db'}"

    def sleep(config):
        yield record("end2end", 1, 3, 0.5)
        other = optuna.load_study(study_name="s", storage=url)
        study_file._give_back(other, other.get_trials()[0])
        other.tell(0, state=optuna.trial.TrialState.FAIL)
        yield record("end2end", 2, 3, 0.4)

    changed(monkeypatch, sleep)
    trials = run(tmp_path / "s", {"lr": Choice([0.1])})
    assert [trial.state for trial in trials] == ["failed", "complete"]
    assert trials[1].repeats == (0,)


# -------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("space", "message"),
    [
        ({"rate": Range(0, 1)}, "no option 'rate' to search; known are scheme, .* lr, "),
        ({"lr": Range(1, 0.1)}, r"from low to high; lr got 1\.0 to 0\.1"),
        ({"lr": Range(0, 1, log=True)}, r"log scale starts above 0; lr starts at 0\.0"),
        ({"lr": Range(-1, 1)}, r"lr must be a positive number; got -1\.0"),
        ({"lr": Range(0.1, math.inf)}, "lr got 0.1 to inf"),
        ({"epochs": Range(1.5, 3)}, r"epochs must be int; got 1\.5"),
        ({"head": Range(1, 2)}, "head is not a number, so it has no range. Give its values"),
        ({"scheme": Choice(["probe", "all"])}, "scheme must be one of probe, .*; got 'all'"),
        ({"flip": Choice([True, 1])}, "flip must be bool; got 1"),
        ({"contrast_temperature": Choice([None])}, "contrast_temperature must be float; got None"),
        ({"lr": Choice([0.1, 0.1])}, r"lr needs values that differ; got \[0\.1, 0\.1\]"),
        ({"lr": Choice([])}, r"lr needs values that differ; got \[\]"),
        ({}, "at least one option to search, as lr; got none"),
    ],
)
def test_a_space_that_cannot_be_is_refused_with_its_value(tmp_path, space, message):
    with pytest.raises(ValueError, match=message):
        run(tmp_path / "s", space)
    assert not (tmp_path / "s").exists()


def test_values_get_the_type_of_their_field():
    space = {"lr": Choice([1, None]), "epochs": Range(2.0, 5.0), "head": Choice(["l1", "dex"])}
    checked = check_space(space, BASE)
    assert [type(value) for value in checked["lr"].values] == [float, type(None)]
    assert checked["epochs"] == Range(2, 5)
    assert type(checked["epochs"].low) is int
    assert checked["head"].values == ["l1", "dex"]


def test_the_default_is_the_grid_of_the_paper():
    space = default_space(FitConfig())
    assert {name: tuple(part.values) for name, part in space.items()} == {
        "lr": (0.01, 0.05, 0.1, 0.2, 0.5, 1.0),
        "weight_decay": (1e-6, 1e-5, 1e-4, 1e-3),
        "temperature": (0.1, 0.2, 0.5, 1.0, 2.0, 5.0),
    }
    quick = default_space(FitConfig(preset="quick", scheme="end2end"))
    assert list(quick) == ["lr", "weight_decay"]
    assert quick["lr"].values == (0.0001, 0.0005, 0.001, 0.002, 0.005, 0.01)


def test_a_study_of_other_options_or_data_is_not_continued(tmp_path, written):
    space, file = {"lr": Choice([0.1])}, tmp_path / "s" / "study.json"
    run(tmp_path / "s", space)
    content = file.read_text()
    with pytest.raises(ValueError, match=r"'s' was started .*\(epochs: 3 then, 7 now\)"):
        run(tmp_path / "s", space, dataclasses.replace(BASE, epochs=7))
    with pytest.raises(ValueError, match=r"space: {'lr': \[0.1\]} then, {'lr': \[0.2\]} now"):
        run(tmp_path / "s", {"lr": Choice([0.2])})
    with pytest.raises(ValueError, match=r"other inputs, .*\(120 rows then, 90 now\)"):
        run(tmp_path / "s", space, table=training_cases.columns(rows=90))
    assert file.read_text() == content  # a call that is refused changes nothing
    assert run(tmp_path / "s", space, dataclasses.replace(BASE, precision="32")) == []


def test_a_folder_with_other_files_is_not_touched(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(FileExistsError, match=r"holds no study\. Choose a new folder"):
        run(tmp_path, {"lr": Choice([0.1])})
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_storage_that_does_not_answer_is_named_without_its_password(tmp_path):
    url = "postgresql+psycopg://me:secret@127.0.0.1:1/db"
    with pytest.raises(RuntimeError, match=r"me:\*\*\*@127.0.0.1:1/db cannot be used \(conn") as e:
        run(tmp_path / "s", {"lr": Choice([0.1])}, storage=url)
    assert "secret" not in str(e.value)
    assert "secret" not in (tmp_path / "s" / "study.json").read_text()
    with pytest.raises(RuntimeError, match=r"@secret cannot be used .* URL such as postgresql"):
        run(tmp_path / "t", {"lr": Choice([0.1])}, storage="me:secret@secret")


def test_a_driver_that_is_not_installed_is_named(tmp_path):
    with pytest.raises(ImportError, match=r"needs a driver .* pip install 'psycopg\[binary\]'"):
        run(tmp_path / "s", {"lr": Choice([0.1])}, storage="postgresql+psycopg2://me@host/db")


def test_a_search_under_torchrun_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ValueError, match="several times with the same --storage"):
        run(tmp_path / "s", {"lr": Choice([0.1])})


def test_without_optuna_the_extra_is_named(monkeypatch):
    module = import_module("rnc.search.study")
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(ImportError, match=r"rank-n-contrast\[search\]"):
        reload(module)
