"""Scores that are not defined are left out; data that cannot be evaluated are refused."""

import numpy as np
import pytest

from rnc.data import DataError, Table
from rnc.run import evaluate, write_evaluation
from score_cases import model_for, table_of


def test_without_train_rows_the_scores_that_need_them_are_left_out_or_given_their_targets():
    table = table_of(60, y=np.arange(60.0)[:, None])
    model = model_for(table)
    expected = evaluate(model, table)
    test = table.rows("test")
    other = Table(
        table.x[test], table.y[test], ("age",), "table", table.split[test], test.astype(str)
    )
    scores = evaluate(model, other).scores
    assert scores["n"] == {"train": 0, "val": 0, "test": 10}
    missing = set(expected.scores["test"]) - set(scores["test"])
    assert missing == {"r2", "few_n", "few_mae", "few_mse", "few_gmean"}
    assert scores["test"]["mae"] == pytest.approx(expected.scores["test"]["mae"])
    given = evaluate(model, other, train_targets=table.y[table.rows("train"), 0]).scores
    assert given["test"] == pytest.approx(expected.scores["test"])


@pytest.mark.parametrize("n", [1, 2, 3])
def test_a_score_that_is_not_defined_is_left_out(tmp_path, n):
    split = np.array(["train"] * 50 + ["val"] * (10 - n) + ["test"] * n)
    y = np.append(np.random.default_rng(0).normal(size=60 - n), [0.3] * n)[:, None]
    table = table_of(60, split=split, y=y, subgroup={"who": np.arange(60) % 7})
    evaluation = evaluate(model_for(table), table)
    assert set(evaluation.scores["test"]) == {"mae", "mse", "rmse", "gmean", "r2"}
    write_evaluation(evaluation, tmp_path)
    assert "NaN" not in (tmp_path / "scores.json").read_text()


# ------------------------------------------------------------------------------------------ errors


def test_what_does_not_fit_together_is_refused():
    table = table_of(60)
    model = model_for(table)
    empty = table_of(60, split=np.where(table.split == "val", "test", table.split))
    with pytest.raises(DataError, match=r"no val rows .* has 40 train, 0 val, 20 test.* another"):
        evaluate(model, empty, split="val")
    with pytest.raises(DataError, match="one of train, val, test, calibration; got 'tset'"):
        evaluate(model, table, split="tset")
    with pytest.raises(DataError, match="one of train, val, test, calibration; got 'partial'"):
        evaluate(model, table, split="partial")  # its targets are not exact
    with pytest.raises(DataError, match=r"predicts age; .* targets age, height\. .* target="):
        evaluate(model, table_of(60, t=2))
    with pytest.raises(DataError, match=r"trained on data of kind 'table'; .* of kind 'signal'"):
        evaluate(model, table_of(60, kind="signal"))
    with pytest.raises(DataError, match=r"shape \(4,\); those of the table have shape \(3,\)"):
        evaluate(model, table_of(60, x=table.x[:, :3]))


def test_a_table_prepared_in_another_way_is_refused():
    ours, other = {"columns": [{"name": "a"}]}, {"columns": [{"name": "b"}]}
    table = table_of(60, preprocessing=ours)
    model = model_for(table, preprocessing=ours)
    assert evaluate(model, table).scores["n"]["test"] == 10
    with pytest.raises(DataError, match=r"read it with preprocessing=model\.config\.preprocessing"):
        evaluate(model, table_of(60, preprocessing=other))


@pytest.mark.parametrize("names", [("name", "b"), ("age", "age_predicted")])
def test_targets_that_would_share_a_column_of_the_file_are_refused(names):
    table = table_of(60, t=2, target_names=names)
    with pytest.raises(DataError, match=rf"column '({names[0]}|{names[1]})' twice.* Rename"):
        evaluate(model_for(table), table)
