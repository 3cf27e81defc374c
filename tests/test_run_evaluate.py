"""Scores, predictions and features of a model on a split, against their definitions."""

import importlib
import json

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats
from sklearn.metrics import r2_score
from torch import nn

from rnc.files import read_tensors
from rnc.loss import circular
from rnc.run import evaluate, write_evaluation
from score_cases import D, P, model_for, table_of


def test_scores_follow_their_definitions():
    table = table_of(90)
    model = model_for(table)
    scores = evaluate(model, table).scores["test"]
    test, train = table.rows("test"), table.rows("train")
    y, guess = table.y[test, 0], model.predict_prepared(table.x[test])[:, 0]
    error = np.abs(guess - y)
    baseline = np.square(y - table.y[train].mean()).sum()
    assert scores["mae"] == pytest.approx(error.mean())
    assert scores["mse"] == pytest.approx(np.square(error).mean())
    assert scores["rmse"] == pytest.approx(np.sqrt(np.square(error).mean()))
    assert scores["gmean"] == pytest.approx(stats.gmean(error))
    assert scores["r2"] == pytest.approx(1 - np.square(error).sum() / baseline)
    assert scores["r2_test_mean"] == pytest.approx(r2_score(y, guess))
    z, pairs = model.embed_prepared(table.x[test]), np.triu_indices(len(test), 1)
    label = -np.abs(y[:, None] - y[None])[pairs]
    feature = -np.linalg.norm(z[:, None] - z[None], axis=2)[pairs]
    assert scores["spearman"] == pytest.approx(stats.spearmanr(label, feature).statistic, abs=1e-5)
    assert scores["kendall"] == pytest.approx(stats.kendalltau(label, feature).statistic, abs=1e-4)
    errors = {"mae", "mse", "rmse", "gmean", "r2", "r2_test_mean"}
    assert set(scores) == errors | {"spearman", "kendall"}


def test_counts_are_those_of_the_splits_and_the_key_is_the_split():
    table = table_of(60)
    model = model_for(table)
    for split in ("train", "val", "test"):
        scores = evaluate(model, table, split=split).scores
        assert list(scores) == [split, "n", "subgroups", "readable", "guessing", "columns"]
        assert scores["n"] == {"train": 40, "val": 10, "test": 10}
        rows = table.rows(split)
        mae = np.abs(model.predict_prepared(table.x[rows]) - table.y[rows]).mean()
        assert scores[split]["mae"] == pytest.approx(mae)


def test_whole_numbers_have_shot_scores():
    table = table_of(900)
    table = table_of(900, y=np.where(table.x[:, :1] > 1, 7.0, 3.0))  # 3 is seen often, 7 less so
    model = model_for(table)
    scores = evaluate(model, table).scores["test"]
    test = table.rows("test")
    y, error = table.y[test, 0], np.abs(model.predict_prepared(table.x[test]) - table.y[test])[:, 0]
    seen = (table.y[table.rows("train"), 0] == 7).sum()
    assert 20 <= seen <= 100
    assert scores["many_mae"] == pytest.approx(error[y == 3].mean())
    assert scores["medium_mae"] == pytest.approx(error[y == 7].mean())
    assert scores["medium_n"] == (y == 7).sum()
    assert "few_mae" not in scores


def test_every_one_of_several_targets_has_scores():
    table = table_of(60, t=3)
    model = model_for(table)
    scores = evaluate(model, table).scores
    test = table.rows("test")
    error = np.abs(model.predict_prepared(table.x[test]) - table.y[test])
    assert list(scores["per_target"]) == ["age", "height", "weight"]
    for i, name in enumerate(table.target_names):
        assert scores["per_target"][name]["mae"] == pytest.approx(error[:, i].mean())
        mean = table.y[table.rows("train"), i].mean()
        expected = 1 - np.square(error[:, i]).sum() / np.square(table.y[test, i] - mean).sum()
        assert scores["per_target"][name]["r2"] == pytest.approx(expected)
    assert scores["test"]["mae"] == pytest.approx(error.mean())


def test_angles_have_an_angular_error():
    table = table_of(60, t=2)
    model = model_for(table)
    scores = evaluate(model, table, angles=True, label_distance="angular").scores
    test = table.rows("test")

    def direction(degrees):
        pitch, yaw = np.deg2rad(degrees).T
        return np.stack([np.cos(pitch) * np.sin(yaw), np.sin(pitch), np.cos(pitch) * np.cos(yaw)])

    cosine = (direction(model.predict_prepared(table.x[test])) * direction(table.y[test])).sum(
        axis=0
    )
    assert scores["test"]["angular_error"] == pytest.approx(np.rad2deg(np.arccos(cosine)).mean())


def test_ordinality_takes_the_label_distance_and_similarity_of_the_model():
    table = table_of(60)
    model = model_for(table)
    options = {"label_distance": circular(6.0), "similarity": "cosine"}
    scores = evaluate(model, table, **options).scores["test"]
    test = table.rows("test")
    y, z = table.y[test, 0] % 6, model.embed_prepared(table.x[test])
    gap, pairs = np.abs(y[:, None] - y[None]), np.triu_indices(len(test), 1)
    z = z / np.linalg.norm(z, axis=1, keepdims=True)
    label, feature = -np.minimum(gap, 6 - gap)[pairs], (z @ z.T)[pairs]
    assert scores["spearman"] == pytest.approx(stats.spearmanr(label, feature).statistic, abs=1e-4)
    gap = np.abs(model.predict_prepared(table.x[test])[:, 0] - table.y[test, 0]) % 6
    assert scores["circular_error"] == pytest.approx(np.minimum(gap, 6 - gap).mean())


# ------------------------------------------------------------------------ predictions and features


def test_predictions_are_those_of_the_model_in_the_order_of_the_table():
    table = table_of(60, t=2, subgroup={"city": np.array(["Oslo", "Rome", "Bern"] * 20)})
    model = model_for(table, head="corn").train()
    evaluation = evaluate(model, table)
    frame, test = evaluation.predictions, table.rows("test")
    assert list(frame) == ["name", "age", "age_predicted", "height", "height_predicted", "city"]
    assert frame["name"].tolist() == [f"row {i}" for i in test]
    assert frame["height"].tolist() == table.y[test, 1].tolist()
    guess = model.predict_prepared(table.x[test])
    np.testing.assert_allclose(frame[["age_predicted", "height_predicted"]], guess, rtol=1e-6)
    assert frame["city"].tolist() == table.subgroup["city"][test].tolist()
    np.testing.assert_allclose(evaluation.features, model.embed_prepared(table.x[test]), rtol=1e-5)
    assert evaluation.features.dtype == np.float32
    assert evaluation.rows.tolist() == list(range(10))
    assert model.training


def test_features_of_many_samples_are_a_seeded_draw():
    table = table_of(2600, split=np.array(["train", "val"] * 50 + ["test"] * 2500))
    model = model_for(table)
    evaluation = evaluate(model, table)
    rows = evaluation.rows
    assert len(evaluation.predictions) == 2500
    assert evaluation.features.shape == (2000, D)
    assert rows.shape == (2000,)
    assert rows.dtype == np.int64
    assert (np.diff(rows) > 0).all()
    expected = model.embed_prepared(table.x[table.rows("test")[rows]])
    np.testing.assert_allclose(evaluation.features, expected, rtol=1e-5, atol=1e-6)


def test_features_of_all_samples_are_never_held_together(monkeypatch):
    module = importlib.import_module("rnc.run.evaluate")
    table = table_of(2600, split=np.array(["train", "val"] * 50 + ["test"] * 2500))
    model, shapes = model_for(table), []
    monkeypatch.setattr(module, "MOST_POINTS", 50)
    whole = evaluate(model, table)
    monkeypatch.setattr(module, "_TOGETHER", 2)
    monkeypatch.setattr(model.head, "forward", _noting(model.head.forward, shapes))
    parts = evaluate(model, table)
    assert shapes == [(512, D)] * 4 + [(452, D)]
    np.testing.assert_allclose(parts.features, whole.features, rtol=1e-6)
    predicted = [part.predictions["age_predicted"] for part in (parts, whole)]
    np.testing.assert_allclose(*predicted, rtol=1e-6)


def _noting(forward, shapes):
    def noting(features):
        shapes.append(tuple(features.shape))
        return forward(features)

    return noting


def test_the_draw_depends_on_the_seed_alone(monkeypatch):
    module = importlib.import_module("rnc.run.evaluate")  # the function has its name
    monkeypatch.setattr(module, "MOST_POINTS", 20)
    table = table_of(300)
    model = model_for(table)
    rows = evaluate(model, table, seed=1).rows.tolist()
    assert len(set(rows)) == 20
    assert evaluate(model, table, seed=1).rows.tolist() == rows
    assert evaluate(model, table, seed=2).rows.tolist() != rows


def test_a_subgroup_column_never_takes_the_place_of_a_target():
    table = table_of(60, subgroup={"age": np.arange(60), "name": np.arange(60) % 2})
    frame = evaluate(model_for(table), table).predictions
    columns = ["name", "age", "age_predicted", "age_subgroup", "name_subgroup"]
    assert list(frame) == columns
    assert frame["age"].tolist() == table.y[table.rows("test"), 0].tolist()


def test_the_three_files_hold_the_evaluation(tmp_path):
    names = np.array(['a "b", c', "two\nlines", "cr\ronly", "crlf\r\n", "007", "NA", ""])
    table = table_of(60, names=np.resize(names, 60), subgroup={"x\n": np.resize(names, 60)})
    evaluation = evaluate(model_for(table), table)
    write_evaluation(evaluation, tmp_path / "runs" / "age")
    folder = tmp_path / "runs" / "age"
    assert sorted(p.name for p in folder.iterdir()) == [
        "features.safetensors",
        "predictions.csv",
        "scores.json",
    ]
    assert json.loads((folder / "scores.json").read_text()) == evaluation.scores
    back = pd.read_csv(
        folder / "predictions.csv", dtype={"name": str, "x\n": str}, keep_default_na=False
    )
    expected = evaluation.predictions
    assert set(expected["name"]) == set(names)
    assert list(back) == list(expected)
    assert back["name"].tolist() == expected["name"].tolist()
    assert back["x\n"].tolist() == expected["x\n"].tolist()
    np.testing.assert_allclose(back["age_predicted"], expected["age_predicted"], rtol=1e-15)
    tensors, _ = read_tensors(folder / "features.safetensors")
    assert torch.equal(tensors["features"], torch.from_numpy(evaluation.features))
    assert tensors["rows"].tolist() == evaluation.rows.tolist()
    assert tensors["rows"].dtype == torch.int64


# --------------------------------------------------------------------------------------- subgroups


def test_subgroups_are_scored_per_value():
    columns = {"digit": np.arange(120) // 6 % 3, "ok": np.arange(120) < 60}
    table = table_of(120, subgroup=columns, y=np.arange(120.0)[:, None] % 13)
    model = model_for(table)
    groups = evaluate(model, table).scores["subgroups"]
    test = table.rows("test")
    error = np.abs(model.predict_prepared(table.x[test]) - table.y[test])[:, 0]
    assert list(groups["digit"]) == ["0", "1", "2"]
    assert list(groups["ok"]) == ["False", "True"]
    for value in range(3):
        of_value = table.subgroup["digit"][test] == value
        score = groups["digit"][str(value)]
        assert score["n"] == of_value.sum()
        assert score["mae"] == pytest.approx(error[of_value].mean())
        assert score["rmse"] == pytest.approx(np.sqrt(np.square(error[of_value]).mean()))
        assert set(score) == {"n", "mae", "mse", "rmse", "gmean", "r2", "r2_test_mean"}


def test_numbers_with_many_values_are_cut_at_their_quintiles():
    weight = np.random.default_rng(1).gamma(2.0, 30.0, size=600).round()  # some are on the edges
    table = table_of(600, subgroup={"weight": weight})
    model = model_for(table)
    groups, in_val = (
        evaluate(model, table, split=split).scores["subgroups"]["weight"]
        for split in ("test", "val")
    )
    test, edges = table.rows("test"), np.quantile(weight, [0, 0.2, 0.4, 0.6, 0.8, 1])
    error = np.abs(model.predict_prepared(table.x[test]) - table.y[test])[:, 0]
    assert list(groups) == list(in_val)
    assert sum(score["n"] for score in groups.values()) == len(test)
    for i, (name, score) in enumerate(groups.items()):
        assert name == f"{edges[i]:g} to {edges[i + 1]:g}"
        below = weight[test] < edges[i + 1] if i < 4 else True
        inside = (weight[test] >= edges[i]) & below
        assert score["n"] == inside.sum()
        assert score["mae"] == pytest.approx(error[inside].mean())


def test_ranges_survive_ties_large_numbers_and_gaps():
    rng = np.random.default_rng(0)
    table = table_of(
        600,
        subgroup={
            "mostly 0": np.where(rng.random(600) < 0.7, 0.0, rng.random(600)),
            "time": 1.7e9 + rng.random(600),
            "gaps": np.where(rng.random(600) < 0.1, np.nan, rng.random(600)),
            "code": np.array([f"#{i}" for i in range(600)]),
        },
    )
    scores = evaluate(model_for(table), table).scores
    groups = scores["subgroups"]
    assert set(groups) == {"mostly 0", "time", "gaps"}  # 600 texts are no groups
    assert [len(groups[name]) for name in groups] == [2, 5, 6]
    assert list(groups["gaps"])[-1] == "missing"
    assert groups["gaps"]["missing"]["n"] == np.isnan(table.subgroup["gaps"])[5::6].sum()
    for group in groups.values():
        assert sum(score["n"] for score in group.values()) == 100
    assert set(scores["readable"]) == set(groups)


def test_readable_is_high_for_what_the_features_hold_and_chance_for_what_they_do_not():
    rng = np.random.default_rng(0)
    table = table_of(3000)
    columns = {
        "sign": np.where(table.x[:, 0] > 0, "plus", "minus"),
        "coin": rng.integers(0, 4, 3000),
        "input": 2 * table.x[:, 1] + 5,
        "noise": rng.normal(size=3000),
    }
    table = table_of(3000, subgroup=columns)
    model = model_for(table, encoder=nn.Linear(P, D))
    readable = evaluate(model, table).scores["readable"]
    assert readable["sign"] > 0.95
    assert 0.15 < readable["coin"] < 0.35
    assert readable["input"] > 0.99
    assert -0.1 < readable["noise"] < 0.1
    guessing = evaluate(model, table).scores["guessing"]
    assert guessing["noise"] == {"kind": "r2", "chance": 0.0}
    assert guessing["coin"]["kind"] == "accuracy"
    assert 0.15 < guessing["coin"]["chance"] < 0.5
    assert evaluate(model, table).scores["readable"] == readable


def test_readable_leaves_out_what_cannot_be_cross_validated():
    rare = np.array(["common"] * 600)
    rare[5:23:6] = "rare"  # three test samples
    columns = {"rare": rare, "same": np.zeros(600), "both": np.where(rare == "rare", "rare", "a")}
    columns["both"][11::12] = "b"
    table = table_of(600, subgroup=columns)
    scores = evaluate(model_for(table), table).scores
    assert set(scores["readable"]) == {"both"}
    assert scores["subgroups"]["rare"]["rare"]["n"] == 3
