"""Weights of rows in a run folder: scores, predictions.csv, intervals, baselines, other data."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from evaluation_cases import FAST, data_of, houses, untrained
from rnc.analyses.analysis import AnalysisOptions
from rnc.analyses.breakdown import mean_error, score_intervals, subgroups, targets
from rnc.data import Table
from rnc.experiments.comparison import Method, compare, comparison_plan, methods_named
from rnc.experiments.data import Data
from rnc.experiments.plan import Setting, base_config
from rnc.experiments.run import run_plan
from rnc.experiments.store import Store
from rnc.metrics import mae, r2
from rnc.run.answer import answer
from rnc.run.baselines import boosted, constant_guess, guess_errors
from rnc.run.evaluate import evaluate
from rnc.run.folder import RunFolder
from rnc.run.other import evaluate_other
from rnc.training.recipes import build_regressor


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunFolder, Table, Path]:
    """An untrained run on houses of which those in the north weigh more."""
    folder = tmp_path_factory.mktemp("weights")
    frame = pd.read_csv(houses(folder / "plain.csv"))
    frame["w"] = np.where(frame["town"] == "north", 6.0, frame.index % 3)
    frame.to_csv(folder / "houses.csv", index=False)
    data = data_of(folder / "houses.csv", weight_column="w")
    table = data.read(224)
    torch.manual_seed(0)
    return untrained(folder / "run", table, data=data), table, folder


def test_scores_are_weighted_and_predictions_keep_the_weight(run: Any) -> None:
    folder, table, _ = run
    rows = table.rows("test")
    weights = table.weight[rows]
    predictions = folder.predictions
    assert predictions.roles["sample_weight"] == "weight"
    assert predictions.weights.tolist() == weights.tolist()
    assert "sample_weight" not in folder.subgroups
    scores = folder.scores["test"]
    expected = mae(predictions.predicted, predictions.truth, weights=weights)
    assert scores["mae"] == pytest.approx(expected)
    assert scores["mae"] != pytest.approx(mae(predictions.predicted, predictions.truth))
    usual = r2(predictions.predicted, predictions.truth, weights=weights)
    assert scores["r2_test_mean"] == pytest.approx(usual)
    south = folder.subgroups["town"] == "south"
    group = folder.scores["subgroups"]["town"]["south"]
    assert group["n"] == south.sum()
    assert group["mae"] == pytest.approx(
        mae(predictions.predicted[south], predictions.truth[south], weights=weights[south])
    )


def test_intervals_and_breakdowns_are_weighted(run: Any) -> None:
    folder, *_ = run
    options, scores = AnalysisOptions(), folder.scores
    ends = score_intervals(folder, options).content
    for name in ("mae", "r2"):
        assert ends[name]["low"] < scores["test"][name] < ends[name]["high"]
    groups = subgroups(folder, options).content["town"]["groups"]
    for group in groups:
        expected = scores["subgroups"]["town"][group["value"]]["mae"]
        assert group["mae"] == pytest.approx(expected)
        assert group["low"] < expected < group["high"]
    bins = targets(folder, options).content["price"]
    assert sum(bins["n"]) == len(folder.predictions)


def test_a_group_that_weighs_nothing_counts_its_rows_alike() -> None:
    errors = np.array([1.0, 2.0, 3.0])
    assert mean_error(errors, np.zeros(3)) == mean_error(errors)


def test_the_answer_says_that_it_is_weighted(run: Any) -> None:
    folder, table, _ = run
    config = json.loads((folder.path / "config.json").read_text())
    headline = answer(folder.scores, config).headline
    assert f"(MAE, {len(table.rows('test'))} test rows, weighted)" in headline


def test_other_data_are_weighted_by_the_same_column_or_another(run: Any, tmp_path: Path) -> None:
    folder, _, data = run
    frame = pd.read_csv(data / "houses.csv")
    frame.rename(columns={"w": "mass"}).to_csv(tmp_path / "mass.csv", index=False)
    found = []
    for name, column in (("houses", None), ("mass", "mass"), ("mass", None)):
        path = (data if name == "houses" else tmp_path) / f"{name}.csv"
        out = tmp_path / f"{name}-{column}"
        made = evaluate_other(folder.path, path, out=out, weight_column=column)
        found.append((RunFolder(out).scores["test"]["mae"], made.notes))
    assert found[0][0] == found[1][0] != found[2][0]
    assert not any("count alike" in note for note in (*found[0][1], *found[1][1]))
    assert "has no column w: all of its rows count alike." in found[2][1][-1]


def test_a_column_of_that_name_may_be_taken(run: Any) -> None:
    _, table, _ = run
    renamed = dataclasses.replace(table, target_names=("sample_weight",))
    model = build_regressor(renamed, FAST)
    columns = evaluate(model, renamed).scores["columns"]
    assert columns["sample_weight"] == "target"
    assert columns["sample_weight_of_row"] == "weight"


# ------------------------------------------------------------------------------- baselines


@pytest.mark.parametrize("changes", [{}, {"label_distance": "circular", "period": 24.0}], ids=str)
def test_the_guess_counts_whole_weights_as_repeated_rows(changes: Any) -> None:
    rng = np.random.default_rng(0)
    y, counts = rng.integers(0, 24, (31, 1)).astype(float), rng.integers(0, 4, 31)
    config = dataclasses.replace(FAST, **changes)
    again = y.repeat(counts, axis=0)
    assert constant_guess(y, config, counts.astype(float)) == constant_guess(again, config)
    weighted = guess_errors(
        y, y, ["hour"], config, train_weights=counts.astype(float), weights=counts.astype(float)
    )
    assert weighted == pytest.approx(guess_errors(again, again, ["hour"], config))


def test_the_guess_of_a_direction_is_weighted() -> None:
    config = dataclasses.replace(FAST, label_distance="angular")
    angles = np.array([[0.0, 0.0], [0.0, 40.0]])
    assert constant_guess(angles, config, np.array([1.0, 0.0])) == pytest.approx([0.0, 0.0])


def test_boosting_learns_with_weights() -> None:
    x = np.repeat([[0.0], [1.0]], 60, axis=0)
    y = np.tile([0.0, 10.0], 60)[:, None]
    weights = np.where(y[:, 0] > 5, 5.0, 1.0)
    assert boosted(x, y, x[:1], FAST, weights)[0, 0] > 8


def test_a_comparison_leaves_out_methods_that_cannot_weigh(run: Any, tmp_path: Path) -> None:
    _, table, _ = run
    said: list[str] = []
    methods = methods_named(["DINO", "RankSim", "C-Mixup", "LDS+FDS"])
    assert compare(table, tmp_path, methods=methods, seeds=1, epochs=1, say=said.append) == []
    assert "RankSim left out: regularizer ranksim cannot weigh samples." in said
    assert "C-Mixup left out: c_mixup cannot weigh samples." in said
    assert sum("left out" in line for line in said) == 4
    assert said[-1].endswith("nothing to train.")


def test_a_plan_with_such_a_method_is_refused_before_it_trains(run: Any, tmp_path: Path) -> None:
    _, table, _ = run
    own = Method("Own", {}, lambda features, targets: features.sum())
    data = Data.of_table(table)
    setting = Setting(data, base_config(data, "quick", 1, {}), 1, None, {})
    with pytest.raises(ValueError, match="objective own cannot weigh samples"):
        run_plan(
            "comparison",
            comparison_plan(setting, [own]),
            setting,
            Store(tmp_path, None, ""),
            show=lambda record: None,
            say=lambda line: None,
        )
