"""Tables whose methods are tuned on validation first, on data that train in a moment."""

import csv
import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from rnc.cli import app
from rnc.config import FitConfig
from rnc.config.grid import head_grid, stage_grid
from rnc.data import Table, table_from_arrays
from rnc.experiments import Data, Row, Tuning, reproduce
from rnc.experiments import store as store_file
from rnc.experiments.plan import PlannedRun, Setting, base_config
from rnc.experiments.store import encoder_key, run_key
from rnc.experiments.tuning import encoder_trial, shorter
from rnc.files import DamagedFileError
from rnc.run.folder import RunFolder

FIELDS = {"encoder": "mlp", "batch_size": 32, "device": "cpu"}
FIXED = {"weight_decay": 1e-4}
SOTA = {"methods": ["SupCon", "RankSim"], "fit": {**FIXED, "step": 25.0}}
DAMAGED = ('{"a": {"err', "[1]", '{"a": {"error": "low"}}', '{"a": 1}', "\xff")
SGD_HEAD = {"head_solver": "sgd", "head_epochs": 1}


def table(seed: int = 0) -> Table:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(120, 4))
    return table_from_arrays(x, 20 * x[:, 0] + 10 * np.abs(x[:, 1]))


def run(name: str, out: Path, tune: Tuning | None, data: Table | Data | None = None, **more):
    """The rows of a table, and what was said."""
    said: list[str] = []
    fit = {**FIELDS, **more.pop("fit", {})}
    data = table() if data is None else data
    rows = reproduce(name, data, out, epochs=1, tune=tune, say=said.append, fit=fit, **more)
    return rows, said


def trials_of(out: Path, name: str) -> list[dict[str, str]]:
    return list(csv.DictReader((out / f"{name}-tuning.csv").read_text().splitlines()))


def choice(out: Path, name: str, method: str, stage: str) -> list[dict[str, str]]:
    rows = trials_of(out, name)
    return [row for row in rows if (row["method"], row["stage"]) == (method, stage)]


@pytest.fixture(scope="module")
def done(tmp_path_factory) -> tuple[Path, list[Row], list[str]]:
    """An encoder, its fine-tuning and a method of one stage, by one option after another."""
    out = tmp_path_factory.mktemp("tuned")
    rows, said = run("sota", out, Tuning(), seeds=2, **SOTA)
    return out, rows, said


# -------------------------------------------------------------------------------- what is chosen


def test_the_grid_of_a_head_is_the_paper_s() -> None:
    grid = head_grid(FitConfig(preset="paper"))
    assert grid == {
        "head_lr": (0.01, 0.05, 0.1, 0.2, 0.5, 1.0),
        "head_weight_decay": (0.0, 1e-6, 1e-5, 1e-4, 1e-3),
    }
    assert head_grid(FitConfig(preset="quick")) == {}


def test_the_lowest_validation_error_is_chosen_and_untuned_comes_first(done) -> None:
    out, _, _ = done
    trials = choice(out, "sota", "SupCon", "encoder")[:11]
    assert len({(t["lr"], t["contrast_temperature"]) for t in trials}) == 11
    assert (trials[0]["lr"], trials[0]["contrast_temperature"]) == ("0.001", "0.1")
    best = [t for t in trials if t["state"] == "chosen"]
    assert len(best) == 1
    errors = [float(t["validation_error"]) for t in trials]
    assert float(best[0]["validation_error"]) == min(errors) < errors[0]


def test_runs_of_all_seeds_have_what_was_chosen(done) -> None:
    out, rows, _ = done
    assert all(len(row.values) == 2 for row in rows)
    [best] = [t for t in choice(out, "sota", "RankSim", "end to end") if t["state"] == "chosen"]
    folders = [RunFolder(path) for path in (out / "runs").iterdir()]
    tuned = [f for f in folders if f.fit.scheme == "end2end" and "tuning" in f.config]
    assert {folder.fit.seed for folder in tuned} == {0, 1}
    for folder in tuned:
        assert folder.fit.rate(contrast=False) == float(best["lr"])
        assert folder.fit.regularizer == "ranksim"
        entry = folder.config["tuning"]["end to end"]
        assert entry["validation_error"] == float(best["validation_error"])
    [first] = [folder for folder in tuned if folder.fit.seed == 0]
    assert first.scores["validation_error"] == float(best["validation_error"])


def test_fine_tuning_has_a_rate_of_its_own_on_the_chosen_encoder(done) -> None:
    out, _, _ = done
    [encoder] = {
        (t["lr"], t["contrast_temperature"])
        for t in choice(out, "sota", "SupCon", "encoder")
        if t["state"] == "chosen"
    }
    [rate] = [
        t["lr"] for t in choice(out, "sota", "SupCon", "fine-tuning") if t["state"] == "chosen"
    ]
    folders = [RunFolder(path) for path in (out / "runs").iterdir()]
    [tuned] = [
        f for f in folders
        if f.fit.scheme == "finetune" and "tuning" in f.config and f.fit.seed == 0
    ]  # fmt: skip
    assert tuned.fit.rate(contrast=False) == float(rate)
    configs = [json.loads(p.read_text())["fit"] for p in (out / "encoders").glob("*/config.json")]
    [second] = [FitConfig.from_json(fit) for fit in configs if fit["seed"] == 1]
    assert (second.rate(contrast=True), second.contrast_temperature) == tuple(map(float, encoder))


def test_the_choice_is_reported_beside_the_result(done) -> None:
    out, _, said = done
    text = (out / "report.md").read_text()
    assert "| method | setting | stage | chosen | validation error | untuned | trials |" in text
    assert "| SupCon | linear probing | encoder | lr " in text
    assert "sota-tuning.csv has every trial" in text
    assert said[0].startswith("sota, tuning: at most 23 to train, ")


def test_losing_trials_leave_no_folder(done) -> None:
    out, _, _ = done
    entries = json.loads((out / "tuning.json").read_text())
    assert len(entries) == 23
    folders = {path.name for path in (out / "runs").iterdir()}
    assert len(folders & set(entries)) <= 6  # of three stages, the untuned and the best
    assert len(list((out / "encoders").iterdir())) <= 3  # and one of the second seed


def test_a_second_call_trains_nothing(done, monkeypatch) -> None:
    out, rows, _ = done
    before = (out / "sota-tuning.csv").read_text()

    def no_training(*args, **options):
        raise AssertionError("trained again")

    monkeypatch.setattr(store_file, "train_encoder", no_training)
    monkeypatch.setattr(store_file, "fit_run", no_training)
    again, said = run("sota", out, Tuning(), seeds=2, **SOTA)
    assert again == rows
    assert said[0] == (
        "sota, tuning: 23 trials were trained before, at most 0 to train, 0 epochs in all."
    )
    assert (out / "sota-tuning.csv").read_text() == before
    finished, _ = run("sota", out, Tuning(), seeds=2, train=False, **SOTA)
    assert finished == rows


def test_reports_of_runs_show_it(tmp_path) -> None:
    run("correlation", tmp_path, Tuning(trials=2), fit={"weight_decay": 1e-4, "temperature": 2.0})
    text = (tmp_path / "correlation.html").read_text()
    assert "tuning.encoder.lr" in text
    assert "tuning.end to end.validation_error" in text


def test_test_rows_have_no_say(tmp_path) -> None:
    plain = table()
    y = plain.y.copy()
    y[plain.rows("test")] = -1000.0
    other = dataclasses.replace(plain, y=y)
    for name, data in (("a", plain), ("b", other)):
        run("main", tmp_path / name, Tuning(), data, methods=["L1"], fit=FIXED)
    assert trials_of(tmp_path / "a", "main") == trials_of(tmp_path / "b", "main")


# ---------------------------------------------------------------------------------- what is tried


def test_all_heads_share_one_tuned_encoder(tmp_path) -> None:
    heads = ["RnC(L1)", "RnC(MSE)"]
    run("main", tmp_path, Tuning(trials=3), methods=heads, fit=SGD_HEAD)
    first, second = (choice(tmp_path, "main", method, "encoder") for method in heads)
    keys = ("lr", "weight_decay", "temperature", "validation_error", "state")
    assert [[t[k] for k in keys] for t in first] == [[t[k] for k in keys] for t in second]
    for method in heads:
        trials = choice(tmp_path, "main", method, "head")
        assert len(trials) == 3
        assert trials[0]["head_weight_decay"] == "0.0"
        assert len({t["head_lr"] + t["head_weight_decay"] for t in trials}) == 3
    assert len(json.loads((tmp_path / "tuning.json").read_text())) == 9


def test_what_the_user_set_is_not_searched(tmp_path) -> None:
    fixed = {"weight_decay": 1e-3, "temperature": 1.0}
    run("main", tmp_path, Tuning(), methods=["L1", "RnC(L1)"], fit=fixed, end2end_lr=0.003)
    rows = trials_of(tmp_path, "main")
    assert {row["method"] for row in rows} == {"RnC(L1)"}
    assert set(rows[0]) == {"method", "setting", "stage", "lr", "validation_error", "state"}
    assert len(rows) == 6


def test_a_transfer_tunes_what_it_starts_from(tmp_path) -> None:
    data = Data.of_table(table(), "a").with_other(Data.of_table(table(1), "b"))
    run("transfer", tmp_path, Tuning(trials=2), data, methods=["RnC(L1)"])
    stages = {(row["setting"], row["stage"]) for row in trials_of(tmp_path, "transfer")}
    assert stages == {
        (f"{way}, {how}", stage)
        for way in ("a -> b", "b -> a")
        for how, stage in (
            ("linear probing", "encoder"),
            ("fine-tuning", "encoder"),
            ("fine-tuning", "fine-tuning"),
        )
    }


def test_two_stages_share_the_tuned_first_stage(tmp_path) -> None:
    run("two-stage", tmp_path, Tuning(trials=2), methods=["L1"], fit=SGD_HEAD)
    chosen = [row for row in trials_of(tmp_path, "two-stage") if row["state"] == "chosen"]
    assert [(row["setting"], row["stage"]) for row in chosen] == [
        ("end to end", "end to end"),
        ("two stages", "end to end"),
        ("two stages", "head"),
    ]
    assert chosen[0]["lr"] == chosen[1]["lr"]


def planned(scheme: str = "finetune", **changes) -> PlannedRun:
    data = Data.of_table(table())
    base = base_config(data, "quick", 20, {**FIELDS, "head_epochs": 10})
    [run] = Setting(data, base, 1).runs(scheme=scheme, **changes)
    return run


def test_an_encoder_is_judged_by_the_run_that_all_its_heads_share() -> None:
    probe, dex, tuned = planned("probe"), planned("probe", head="dex", step=5.0), planned()
    assert run_key(encoder_trial(dex)) == run_key(encoder_trial(tuned)) == run_key(probe)
    assert encoder_key(encoder_trial(dex)) == encoder_key(dex)


def test_shorter_trials_keep_their_proportions() -> None:
    whole = planned()
    short = shorter(dataclasses.replace(whole, start=planned("probe")), 4)
    assert (short.config.epochs, short.config.head_epochs) == (4, 2)
    assert isinstance(short.start, PlannedRun)
    assert short.start.config.epochs == 4
    assert shorter(whole, 20) is whole


def test_shorter_trials_choose_for_the_whole_training(tmp_path) -> None:
    said: list[str] = []
    fit = {**FIELDS, "weight_decay": 1e-4}
    reproduce(
        "main", table(), tmp_path, epochs=2, tune=Tuning(epochs=1), methods=["L1"], fit=fit,
        say=said.append,
    )  # fmt: skip
    [chosen] = [row for row in trials_of(tmp_path, "main") if row["state"] == "chosen"]
    [tuned] = [
        folder
        for folder in map(RunFolder, (tmp_path / "runs").iterdir())
        if "tuning" in folder.config
    ]
    assert (tuned.fit.epochs, tuned.fit.rate(contrast=False)) == (2, float(chosen["lr"]))


# ------------------------------------------------------------------------------ kills and trouble


@pytest.mark.parametrize("at", [1, 4, 9])
def test_a_kill_changes_nothing_and_repeats_no_trial(tmp_path, at) -> None:
    options = {"methods": ["RnC(L1)"], "fit": FIXED}
    whole, _ = run("main", tmp_path / "whole", Tuning(trials=5), **options)

    def killer():
        epochs = 0

        def show(record) -> None:
            nonlocal epochs
            epochs += 1
            if epochs == at:
                raise KeyboardInterrupt

        return show

    with pytest.raises(KeyboardInterrupt):
        run("main", tmp_path / "killed", Tuning(trials=5), show=killer(), **options)
    known = json.loads((tmp_path / "killed" / "tuning.json").read_text())
    finished = sum("error" in entry for entry in known.values())
    rows, said = run("main", tmp_path / "killed", Tuning(trials=5), **options)
    assert rows == whole
    assert sum(text.startswith("  RnC(L1), encoder: ") for text in said) == 5 - finished
    names = ("main.csv", "main.md", "main-tuning.csv")
    for name in names:
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_a_trial_that_diverges_is_not_chosen(tmp_path, monkeypatch) -> None:
    plain = store_file.fit_run

    def fit_run(table, config, out, **options):
        if config.lr is not None and config.lr > 0.001:
            raise FloatingPointError("the loss is not finite")
        yield from plain(table, config, out, **options)

    monkeypatch.setattr(store_file, "fit_run", fit_run)
    options = {"methods": ["L1"], "fit": FIXED}
    _, said = run("main", tmp_path, Tuning(), **options)
    assert any(text.endswith(", end to end: lr 0.01: diverged") for text in said)
    states = {row["lr"]: row["state"] for row in trials_of(tmp_path, "main")}
    assert [lr for lr, state in states.items() if state == "diverged"] == ["0.002", "0.005", "0.01"]


def test_runs_that_were_there_before_stay(tmp_path) -> None:
    options = {"methods": ["L1"], "fit": FIXED}
    for rate in (0.0005, 0.002):
        run("main", tmp_path, None, methods=["L1"], fit={"weight_decay": 1e-4, "lr": rate})
    before = {path.name for path in (tmp_path / "runs").iterdir()}
    run("main", tmp_path, Tuning(), **options)
    assert before <= {path.name for path in (tmp_path / "runs").iterdir()}
    assert len(json.loads((tmp_path / "tuning.json").read_text())) == 6


@pytest.mark.parametrize("text", DAMAGED)
def test_a_damaged_record_says_what_to_do(tmp_path, text) -> None:
    (tmp_path / "tuning.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(DamagedFileError, match=r"tuning\.json should hold .*damaged\. Delete it"):
        run("main", tmp_path, Tuning())


def test_without_training_a_line_that_is_not_tuned_is_left_out(tmp_path) -> None:
    run("main", tmp_path, Tuning(trials=2), methods=["L1"])
    rows, said = run("main", tmp_path, Tuning(trials=2), train=False)
    assert {row.method for row in rows} == {"L1"}
    assert any(text.startswith("  RnC(L1) left out, since it is not tuned yet") for text in said)


# ------------------------------------------------------------------------------------ the command


def command(*words: str | Path) -> tuple[int, str]:
    result = CliRunner().invoke(app, list(map(str, words)), env={"COLUMNS": "400"})
    return result.exit_code, result.output


def test_the_command_tunes(tmp_path) -> None:
    x = np.random.default_rng(0).normal(size=(120, 4))
    np.savez(tmp_path / "d.npz", x=x, y=x @ [3.0, 2, 1, 0])
    words = ["reproduce", "main", "--data", tmp_path / "d.npz", "--split-column", "none"]
    words += ["--epochs", "1", "--batch-size", "32", "--device", "cpu", "--method", "L1"]
    words += ["--out", tmp_path / "out"]
    code, text = command(*words, "--tune", "--tune-trials", "2", "--tune-epochs", "1")
    assert code == 0, text
    assert len(trials_of(tmp_path / "out", "main")) == 2
    code, text = command(*words, "--tune-trials", "2")
    assert code == 2
    assert "--tune-trials without --tune has no use. Add --tune." in text


def test_impossible_numbers_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^Tuning needs trials of at least 1; got 0\.$"):
        Tuning(trials=0)


def test_stage_grids_have_the_temperature_of_their_objective() -> None:
    assert list(stage_grid(FitConfig())) == ["lr", "weight_decay", "temperature"]
    assert list(stage_grid(FitConfig(objective="supcon")))[2] == "contrast_temperature"
    assert list(stage_grid(FitConfig(scheme="end2end"))) == ["lr", "weight_decay"]
