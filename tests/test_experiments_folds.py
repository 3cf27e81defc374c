"""Cross-validation of methods: every row is tested once, and the errors of all rows are pooled."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import rnc
from rnc.cli import app
from rnc.data.errors import DataError
from rnc.data.source import DataSource
from rnc.experiments import Data, Tuning, compare, reproduce
from rnc.experiments.comparison import METHODS
from rnc.experiments.paired import sample_errors
from rnc.experiments.plan import Finished, Row, Setting, base_config
from rnc.experiments.recipe import L1_SAME, recipe
from rnc.experiments.seeds import by_seed, over_folds
from rnc.experiments.store import Store
from rnc.metrics.bootstrap import repeated_interval
from rnc.run.folder import DoesNotApply

FAST = {"encoder": "mlp", "batch_size": 16, "device": "cpu", "head_epochs": 1}
OPTIONS = {"epochs": 1, "seeds": 2, "methods": ["RnC, best", L1_SAME]}
CHANGE = f"% to {L1_SAME}"


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> DataSource:
    """90 houses in 30 streets, whose rows have weights."""
    rng = np.random.default_rng(0)
    price = rng.permutation(90) * 1.0
    columns = {
        "size": rng.normal(size=90) + price / 20,
        "age": rng.normal(size=90),
        "street": np.arange(90) // 3,
        "copies": rng.integers(1, 4, 90),
        "price": price,
    }
    path = tmp_path_factory.mktemp("data") / "houses.csv"
    pd.DataFrame(columns).to_csv(path, index=False)
    return DataSource(str(path), target=("price",), group_column="street", weight_column="copies")


def study(source: DataSource, out: Path, name: str = "recipe", **options) -> list[Row]:
    options = {"fit": FAST, "say": lambda text: None, **OPTIONS, **options}
    return reproduce(name, Data.of_folds(source, 3), out, **options)


@pytest.fixture(scope="module")
def done(source, tmp_path_factory) -> tuple[Path, list[Row]]:
    out = tmp_path_factory.mktemp("folds")
    return out, study(source, out)


def runs(source: DataSource, out: Path, method: str) -> dict[int, list[Finished]]:
    """The finished runs of a method by seed."""
    data = Data.of_folds(source, 3)
    given = {**FAST, "epochs": 1}
    setting = Setting(data, base_config(data, "best", None, given), 2, given=given)
    line = next(line for line in recipe(setting).lines if line.method == method)
    return by_seed([Finished(run, Store(out).folder(run)) for run in line.runs])


def row(rows: list[Row], method: str, score: str) -> Row:
    return next(row for row in rows if (row.method, row.score) == (method, score))


def test_the_error_of_a_seed_is_that_of_all_rows(source, done) -> None:
    out, rows = done
    for seed, finished in runs(source, out, "RnC, best").items():
        tables = [one.run.predictions for one in finished]
        assert sum(len(table.truth) for table in tables) == 90
        errors = np.concatenate([table.errors[:, 0] for table in tables])
        weights = np.concatenate([table.weights for table in tables])
        expected = np.average(errors, weights=weights)
        assert row(rows, "RnC, best", "MAE").values[seed] == pytest.approx(expected, rel=1e-6)


def test_intervals_draw_groups_of_all_folds(source, done) -> None:
    out, rows = done
    ours, theirs = (
        np.array([sample_errors(one) for one in runs(source, out, method).values()])
        for method in ("RnC, best", L1_SAME)
    )
    finished = runs(source, out, "RnC, best")[0]
    tables = [one.planned.table for one in finished]
    groups = np.concatenate([table.group[table.rows("test")] for table in tables])
    assert sorted(groups) == sorted(np.arange(90) // 3)
    expected = repeated_interval(ours, theirs, groups=groups)
    found = row(rows, "RnC, best", CHANGE)
    assert found.interval == pytest.approx((100 * expected.low, 100 * expected.high))
    assert found.values == pytest.approx(tuple(100 * (ours - theirs).mean(axis=1) / theirs.mean()))


def test_a_seed_that_lacks_a_fold_counts_nowhere(source, done) -> None:
    out, _ = done
    finished = [one for runs in runs(source, out, "RnC, best").values() for one in runs]
    assert set(by_seed(finished)) == {0, 1}
    assert set(by_seed(finished[1:])) == {1}
    assert by_seed([]) == {}


def test_scores_of_folds_count_by_their_test_rows(source, done) -> None:
    out, _ = done
    finished = runs(source, out, "RnC, best")[0]
    weights = [one.planned.table.weight[one.planned.table.rows("test")].sum() for one in finished]
    values = iter([1.0, 2.0, 4.0])
    assert over_folds(lambda one: next(values), finished) == pytest.approx(
        np.average([1, 2, 4], weights=weights)
    )
    assert over_folds(lambda one: 5.0, finished[:1]) == 5.0


def test_a_second_call_trains_nothing_and_a_third_seed_trains_three_folds(source, done) -> None:
    out, rows = done
    said: list[str] = []
    again = study(source, out, say=said.append)
    assert "3 folds: 18 runs, 18 of them finished before" in said[0]
    assert [one.values for one in again] == [one.values for one in rows]
    study(source, out, methods=["RnC, best"], seeds=3, say=said.append)
    trained = [line.strip() for line in said if "seed 2" in line]
    assert trained == [f"RnC, best, seed 2, fold {k}/3" for k in (1, 2, 3)]
    assert "houses.csv, 3 folds, 3 seeds, 1 epochs" in (out / "recipe.md").read_text()


def test_each_run_says_its_fold_and_is_read_again_with_it(source, done) -> None:
    out, _ = done
    for number, finished in enumerate(runs(source, out, "RnC, best")[0], start=1):
        config = json.loads((finished.folder / "config.json").read_text())
        assert config["data"]["fold"] == f"{number}/3"
        result = CliRunner().invoke(app, ["evaluate", str(finished.folder), "--with", "order"])
        assert result.exit_code == 0, result.output


def test_fewer_rows_are_cross_validated_too(source, tmp_path) -> None:
    rows = study(source, tmp_path, "reduced-data", preset="best", methods=(), seeds=1)
    settings = list(dict.fromkeys(one.setting for one in rows))
    assert len(settings) == 3
    assert all(one.interval for one in rows if one.score == "MAE")


def test_gains_over_the_same_seeds_are_of_all_folds(source, tmp_path) -> None:
    rows = study(source, tmp_path, "main", preset="quick", methods=["L1", "RnC(L1)"])
    values = {one.score: one.values for one in rows if one.method == "RnC(L1)"}
    l1 = row(rows, "L1", "MAE").values
    assert len(l1) == 2
    expected = [a - b for a, b in zip(l1, values["MAE"], strict=True)]
    assert values["gain in MAE"] == pytest.approx(expected)


@pytest.mark.parametrize("name", ["correlation", "efficiency"])
def test_reports_and_ratios_are_made(source, tmp_path, name) -> None:
    plain = dataclasses.replace(source, weight_column=None, feature_columns=("size", "age"))
    rows = study(plain, tmp_path, name, preset="quick", methods=(), seeds=1)
    assert all(len(one.values) == 1 for one in rows)
    assert (tmp_path / "correlation.html").exists() == (name == "correlation")


@pytest.mark.parametrize("name", ["unseen", "corruptions", "transfer"])
def test_results_with_test_rows_of_their_own_are_refused(name) -> None:
    with pytest.raises(DoesNotApply, match=r"test rows of its own.*Leave out the folds"):
        reproduce(name, Data.of_digits(3), "out", epochs=1, say=lambda text: None)


def test_tuning_is_refused(source, tmp_path) -> None:
    with pytest.raises(ValueError, match=r"test rows of other folds\. Tune without folds"):
        study(source, tmp_path, tune=Tuning())


def test_methods_of_the_comparison_are_cross_validated(source, tmp_path) -> None:
    plain = dataclasses.replace(source, weight_column=None, feature_columns=("size", "age"))
    rows = compare(
        Data.of_folds(plain, 3),
        tmp_path,
        methods=[method for method in METHODS if method.name == "L1"],
        seeds=1,
        epochs=1,
        fit=FAST,
        say=lambda text: None,
    )
    assert {one.method for one in rows} == {"L1"}
    assert len(list((tmp_path / "runs").iterdir())) == 3


# ------------------------------------------------------------------------------------- commands


def typed(*words: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, [str(word) for word in words], env={"COLUMNS": "300"})
    return result.exit_code, " ".join(result.output.split())


def test_folds_are_a_flag(source, tmp_path) -> None:
    flags = ["--target", "price", "--group-column", "street", "--epochs", 1, "--seeds", 1]
    flags += ["--encoder", "mlp", "--batch-size", 16, "--device", "cpu", "--folds", 3]
    code, text = typed(
        *("compare", source.source, *flags, "--method", "L1", "--out", tmp_path / "compared")
    )
    assert code == 0, text
    assert "L1 Regression learning (end to end), seed 0, fold 3/3" in text
    code, text = typed("compare", source.source, *flags, "--fold", "1/3", "--out", tmp_path / "x")
    assert code == 2
    assert "--folds 3 trains all folds, --fold 1/3 one. Use one." in text


def test_a_dataset_has_splits_of_its_own(tmp_path) -> None:
    (tmp_path / "agedb").mkdir()
    code, text = typed(
        "compare", "agedb", "--root", tmp_path, "--folds", 3, "--out", tmp_path / "x"
    )
    assert code == 2
    assert "agedb has splits of its own. Leave out the folds, or name a file." in text
    with pytest.raises(DataError, match="Folds are for files and the digits"):
        Data.of_folds(DataSource(str(tmp_path), dataset="agedb"), 3)


def test_one_fold_is_a_run_in_python_and_on_the_command_line(source, tmp_path) -> None:
    flags = {"target": "price", "group_column": "street", "preset": "quick", "epochs": 1}
    run = rnc.fit(source.source, out=tmp_path / "a", fold="2/3", device="cpu", **flags)
    words = ["--target", "price", "--group-column", "street", "--preset", "quick", "--epochs", 1]
    code, text = typed(
        *("fit", source.source, *words, "--fold", "2/3", "--device", "cpu", "--out", tmp_path / "b")
    )
    assert code == 0, text
    predictions = (tmp_path / "b" / "predictions.csv").read_text()
    assert (run.path / "predictions.csv").read_text() == predictions
