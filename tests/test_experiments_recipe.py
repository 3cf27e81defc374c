"""The study of the recipe: the trainings of its lines, and their paired differences."""

import csv
import dataclasses
import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from rnc.cli import app
from rnc.data import Table, table_from_arrays
from rnc.experiments import RESULTS, Data, reproduce
from rnc.experiments.cost import cost_of
from rnc.experiments.paired import sample_errors, with_differences
from rnc.experiments.plan import Finished, Line, Outcome, PlannedRun, Row, Setting, base_config
from rnc.experiments.recipe import L1_SAME, recipe
from rnc.experiments.store import Store, encoder_key, end2end_of, run_key
from rnc.files import write_text
from training_cases import images, quick

FAST = {"encoder": "mlp", "batch_size": 16, "device": "cpu", "head_epochs": 1}
STUDY = Path(__file__).parent.parent / "benchmarks" / "study.py"
CHANGE = f"% to {L1_SAME}"


def houses(n: int = 120) -> Table:
    """Rows of four columns, three of each street; the target follows one column."""
    rng = np.random.default_rng(0)
    y = rng.permutation(n) * 100 / n
    x = rng.normal(size=(n, 4)) + [1.0, 0, 0, 0] * y[:, None] / 20
    return table_from_arrays(x, y, group=np.arange(n) // 3)


def study(out: Path, name: str = "recipe", **options) -> list[Row]:
    options = {"epochs": 1, "fit": FAST, "seeds": 2, "say": lambda text: None, **options}
    return reproduce(name, Data.of_table(houses(), "houses"), out, **options)


def setting(data: Data, seeds: int = 1, **given) -> Setting:
    return Setting(data, base_config(data, "best", None, given), seeds, given=given)


@pytest.fixture(scope="module")
def done(tmp_path_factory) -> tuple[Path, list[Row]]:
    out = tmp_path_factory.mktemp("recipe")
    return out, study(out)


def value(rows: list[Row], method: str, score: str) -> Row:
    return next(row for row in rows if (row.method, row.score) == (method, score))


# ------------------------------------------------------------------------------------------ lines


def runs_of(data: Data, **given) -> dict[str, PlannedRun]:
    return {line.method: line.runs[0] for line in recipe(setting(data, **given)).lines}


def test_l1_has_all_of_the_same_as_rnc() -> None:
    runs = runs_of(Data.of_table(images()))
    ours, theirs = runs["RnC, best"].config, runs[L1_SAME].config
    same = (
        "preset",
        "erase",
        "average",
        "warm_up",
        "test_views",
        "balance",
        "crop_scale",
        "epochs",
    )
    for name in (*same, "weight_decay", "optimizer", "batch_size", "head_solver"):
        assert getattr(ours, name) == getattr(theirs, name), name
    assert ours.contrast_views == theirs.head_views == 2
    assert (ours.scheme, theirs.scheme) == ("probe", "two-stage")
    assert ours.erase > 0
    assert ours.average > 0


def test_plain_l1_has_none_of_it_and_as_many_epochs() -> None:
    runs = runs_of(Data.of_table(images()))
    plain, best = runs["L1, plain"].config, runs["RnC, best"].config
    assert (plain.erase, plain.average, plain.warm_up, plain.balance) == (0, 0, 0, 0)
    assert (plain.test_views, plain.head_views, plain.scheme) == ("plain", 1, "end2end")
    assert plain.epochs == best.epochs
    assert runs["RnC, paper"].config.epochs == 400
    assert runs["RnC, paper"].config.head_solver == "sgd"


def test_encoders_and_first_stages_are_shared(tmp_path) -> None:
    runs = runs_of(Data.of_table(images()))
    assert encoder_key(runs["RnC, best"]) == encoder_key(runs["RnC, best, fine-tuned"])
    assert run_key(end2end_of(runs[L1_SAME])) == run_key(runs[f"{L1_SAME}, own head"])
    assert cost_of(runs.values(), Store(tmp_path)).encoders == 2  # of preset best, and of paper


def test_flags_of_the_recipe_are_for_the_lines_of_preset_best() -> None:
    runs = runs_of(Data.of_table(images()), erase=0.3, lr=0.7, encoder="small-cnn", epochs=5)
    assert [run.config.erase for run in runs.values()] == [0, 0.3, 0.3, 0, 0.3, 0.3]
    assert [run.config.lr for run in runs.values()] == [None, 0.7, 0.7, None, 0.7, 0.7]
    assert {(run.config.encoder, run.config.epochs) for run in runs.values()} == {("small-cnn", 5)}


def test_further_results_of_the_study_share_its_runs() -> None:
    given = setting(Data.of_table(images(), large=images()))
    known = {run_key(run) for run in recipe(given).runs}
    plan = RESULTS["reduced-data"](given)
    n = len(given.data.table.rows("train"))
    assert [line.setting for line in plan.lines[::2]] == [
        f"{rows} training rows" for rows in (n, round(0.2 * n), round(0.05 * n))
    ]
    assert [run.config.scheme for run in plan.runs[:2]] == ["two-stage", "probe"]
    assert {run_key(run) for run in plan.runs[:2]} <= known
    assert {run_key(run) for run in RESULTS["correlation"](given).runs} <= known


# -------------------------------------------------------------------------------------- intervals


def errors(out: Path, row: Row) -> np.ndarray:
    """Errors (seeds, n) of a method, from the files of its runs."""
    lines = recipe(setting(Data.of_table(houses()), 2, **FAST, epochs=1)).lines
    runs = next(line.runs for line in lines if line.method == row.method)
    found = []
    for run in runs:
        file = Store(out).folder(run) / "predictions.csv"
        cells = csv.DictReader(file.read_text().splitlines())
        found.append([abs(float(cell["y"]) - float(cell["y_predicted"])) for cell in cells])
    return np.array(found)


def test_differences_are_paired_by_sample_and_seed(done) -> None:
    out, rows = done
    ours, theirs = (errors(out, value(rows, name, "MAE")) for name in ("RnC, best", L1_SAME))
    row = value(rows, "RnC, best", CHANGE)
    assert np.mean(row.values) == pytest.approx(100 * (ours.mean() / theirs.mean() - 1))
    assert row.values[1] == pytest.approx(100 * (ours[1] - theirs[1]).mean() / theirs.mean())
    assert row.interval.low < np.mean(row.values) < row.interval.high
    assert CHANGE not in [row.score for row in rows if row.method == L1_SAME]


def test_errors_have_intervals_and_their_columns(done) -> None:
    out, rows = done
    row = value(rows, "L1, plain", "MAE")
    assert row.interval.low < np.mean(row.values) < row.interval.high
    cells = list(csv.DictReader((out / "recipe.csv").read_text().splitlines()))
    assert float(cells[0]["low"]) == pytest.approx(row.interval.low, rel=1e-5)
    assert float(cells[0]["high"]) == pytest.approx(row.interval.high, rel=1e-5)
    text = (out / "recipe.md").read_text()
    assert f"| method | MAE | {CHANGE} | validation error | Spearman | seconds per epoch |" in text
    assert f"({row.interval.low:.1f} to {row.interval.high:.1f}) | " in text
    assert text.splitlines()[-1].endswith(" | 1 | 16 |")  # epochs, samples per step
    assert "## recipe: " in (out / "report.md").read_text()


def test_every_line_trains_differently(done) -> None:
    _, rows = done
    assert len({row.values for row in rows if row.score == "MAE"}) == 6
    assert all(np.isfinite(row.values).all() and len(row.values) == 2 for row in rows)
    steps = {row.method: row.values[0] for row in rows if row.score == "samples per step"}
    assert steps == dict.fromkeys(steps, 16) | {"RnC, paper": 32}  # two views in paper


@dataclasses.dataclass(frozen=True)
class Known:
    """Predictions that are known, in the place of a run folder."""

    predicted: np.ndarray
    truth: np.ndarray
    weights: None = None

    @property
    def errors(self) -> np.ndarray:
        return np.abs(self.predicted - self.truth)


def outcome(monkeypatch, table: Table, predicted: dict[str, list[np.ndarray]], **fit) -> list[Row]:
    """The rows that `with_differences` makes of predictions by method and seed."""
    truth = table.y[table.rows("test")]
    known = {(m, s): Known(p, truth) for m, all_ in predicted.items() for s, p in enumerate(all_)}
    monkeypatch.setattr(
        "rnc.experiments.paired._predictions",
        lambda finished: known[finished.folder.name, finished.planned.config.seed],
    )
    outcomes, rows = [], []
    for method, seeds in predicted.items():
        runs = tuple(PlannedRun(table, quick(seed=s, **fit)) for s in range(len(seeds)))
        finished = [Finished(run, Path(method)) for run in runs]
        outcomes.append(Outcome(Line(method, "", runs, {}), finished))
        means = tuple(float(sample_errors([one]).mean()) for one in finished)
        rows.append(Row(method, "", "angular error" if fit else "MAE", means))
    return with_differences("a")(rows, outcomes)


def test_samples_that_belong_together_are_drawn_together(monkeypatch) -> None:
    table = houses(600)
    test = table.rows("test")
    street = np.random.default_rng(1).normal(size=600)[table.group[test]][:, None]
    guesses = {"a": [table.y[test] + 2], "b": [table.y[test] + 2 + street]}
    together = outcome(monkeypatch, table, guesses)[-1]
    apart = outcome(monkeypatch, dataclasses.replace(table, group=None), guesses)[-1]
    widths = [row.interval.high - row.interval.low for row in (together, apart)]
    assert widths[0] > 1.4 * widths[1]  # three samples a street: a factor of the root of three
    assert together.values == apart.values


def test_a_seed_that_diverged_is_left_out_of_the_difference(monkeypatch) -> None:
    table = houses()
    truth = table.y[table.rows("test")]
    rows = outcome(monkeypatch, table, {"a": [truth + 1, truth + 4], "b": [truth + 2]})
    assert rows[-1].values == pytest.approx((100.0,))
    assert rows[-1].interval == pytest.approx((100.0, 100.0))
    alone = outcome(monkeypatch, table, {"a": [], "b": [truth + 2]})
    assert [(row.method, row.score) for row in alone] == [("a", "MAE"), ("b", "MAE")]


def test_errors_of_angles_are_angles(monkeypatch) -> None:
    rng = np.random.default_rng(0)
    table = table_from_arrays(rng.normal(size=(60, 4)), rng.normal(size=(60, 2)))
    table = dataclasses.replace(table, y=np.zeros((60, 2)))
    guess = np.tile([0.0, 30.0], (len(table.rows("test")), 1))
    rows = outcome(monkeypatch, table, {"a": [guess], "b": [guess / 2]}, label_distance="angular")
    assert rows[0].interval == pytest.approx((30, 30))
    assert rows[-1].values == pytest.approx((-50.0,))


# -------------------------------------------------------------------------------- parts of a study


def test_methods_are_trained_one_at_a_time_and_shown_when_finished(tmp_path) -> None:
    said: list[str] = []
    study(tmp_path, methods=["RnC, best, fine-tuned"], seeds=1)
    rows = study(tmp_path, methods=["RnC, best"], seeds=1, say=said.append)
    assert said[0].endswith("1 runs; left to train: 0 encoders and 1 epochs in all.")
    assert {row.method for row in rows} == {"RnC, best"}
    finished = study(tmp_path, train=False)
    assert [row.method for row in finished if row.score == "MAE"] == [
        *("RnC, best", "RnC, best, fine-tuned")
    ]
    assert {len(row.values) for row in finished} == {1}
    assert value(finished, "RnC, best", "MAE").values == value(rows, "RnC, best", "MAE").values


def test_what_is_not_there_is_said(tmp_path) -> None:
    with pytest.raises(ValueError, match=r"no method 'RnC best' .*known are 'L1, plain', "):
        study(tmp_path, methods=["RnC best"])
    with pytest.raises(ValueError, match=f"None of its runs is finished below {tmp_path}"):
        study(tmp_path, train=False)
    with pytest.raises(ValueError, match="recipe have presets of their own: leave out --preset"):
        study(tmp_path, fit={"preset": "quick"})


def test_fewer_rows_have_paired_differences_too(tmp_path) -> None:
    rows = study(tmp_path, "reduced-data", preset="best", seeds=1)
    assert [row.score for row in rows[:5]] == ["MAE", "R2", "MAE", "% to L1", "R2"]
    assert all(row.interval is not None for row in rows if row.score in ("MAE", "% to L1"))


# ------------------------------------------------------------------------------------- the script


def csv_file(path: Path) -> None:
    table, names = houses(), ["x0", "x1", "x2", "x3", "y"]
    lines = [",".join(map(str, [*x, y])) for x, y in zip(table.x, table.y[:, 0], strict=True)]
    path.parent.mkdir(parents=True)
    write_text(path, "\n".join([",".join(names), *lines]) + "\n")


def test_the_command_takes_a_file(tmp_path) -> None:
    csv_file(tmp_path / "data" / "houses.csv")
    words = ["reproduce", "recipe", "--data", str(tmp_path / "data" / "houses.csv")]
    words += ["--target", "y", "--method", L1_SAME, "--seeds", "1", "--epochs", "1"]
    result = CliRunner().invoke(app, [*words, "--out", str(tmp_path / "out")])
    assert result.exit_code == 0, result.output
    assert f"| {L1_SAME} | " in result.stdout
    assert len(list((tmp_path / "out" / "runs").iterdir())) == 2  # both of its stages


def test_the_script_writes_a_line_per_training_and_repeats_none(tmp_path, monkeypatch) -> None:
    monkeypatch.syspath_prepend(str(STUDY.parent))
    spec = importlib.util.spec_from_file_location("study", STUDY)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    csv_file(tmp_path / "data" / "airfoil" / "table.csv")
    words = [str(tmp_path / "data"), "--names", "airfoil", "--methods", "RnC, best", L1_SAME]
    words += ["--out", str(tmp_path / "out"), "--csv", str(tmp_path / "study.csv")]
    flags = ["--", "--epochs", "1", "--batch-size", "16"]

    def call(*seeds: str) -> list[dict[str, str]]:
        monkeypatch.setattr(sys, "argv", ["study.py", *words, "--seeds", *seeds, *flags])
        module.main()
        return list(csv.DictReader((tmp_path / "study.csv").read_text().splitlines()))

    first = call("0")
    assert [(row["method"], row["seed"]) for row in first] == [("RnC, best", "0"), (L1_SAME, "0")]
    rows = call("0", "1")
    assert rows[:2] == first
    assert [row["seed"] for row in rows[2:]] == ["1", "1", "mean", "mean"]
    best = next(row for row in rows if (row["method"], row["seed"]) == ("RnC, best", "mean"))
    assert float(best["low"]) < float(best["difference"]) < float(best["high"])
    seeds = [
        float(row["mae"])
        for row in rows
        if (row["method"], row["seed"] != "mean") == ("RnC, best", True)
    ]
    assert float(best["mae"]) == pytest.approx(np.mean(seeds), rel=1e-4)
    assert (best["epochs"], best["batch"]) == ("1", "16")
    assert best["command"].startswith("rnc reproduce recipe --data airfoil/table.csv --target y ")
    assert not list((tmp_path / "out").rglob("*.safetensors"))
    assert call("0", "1") == rows
