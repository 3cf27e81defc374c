"""Errors by subgroup, by value of the target, and inside and outside of ranges."""

import numpy as np
import pytest

from evaluation_cases import table_of, untrained, with_config, written
from rnc.analyses.analysis import AnalysisOptions
from rnc.analyses.breakdown import bin_edges, group_errors, parse_range, target_errors
from rnc.analyses.registry import analyse
from rnc.metrics import shot_groups
from rnc.metrics.bootstrap import mean_interval, r2_interval
from rnc.run.folder import TRAIN_TARGETS_FILE, DoesNotApply, RunFolder


def errors_of(run, table):
    test = table.rows("test")
    return np.abs(run.model.predict_prepared(table.x[test]) - table.y[test]), table.y[test], test


@pytest.fixture(scope="module")
def table():
    towns = np.array(["north", "south", "west"])[np.arange(300) // 3 % 3]
    towns[2:30:9] = "tiny"
    return table_of(town=towns, age=np.random.default_rng(1).uniform(0, 90, 300))


@pytest.fixture(scope="module")
def run(table, tmp_path_factory):
    return untrained(tmp_path_factory.mktemp("run"), table)


# --------------------------------------------------------------------------------------- subgroups


def test_scores_get_the_intervals_of_their_samples(tmp_path):
    table = table_of()
    table.y[:] = table.y.round()
    run = untrained(tmp_path, table)
    analyse(run, "intervals")
    found, scores = written(run, "intervals"), run.scores["test"]
    errors = run.errors[:, 0]
    assert found["mae"] == mean_interval(errors)._asdict()
    shots = shot_groups(run.truth, run.train_targets)
    assert set(found) == {"mae", "r2", *(f"{shot}_mae" for shot in set(shots))}
    for shot in set(shots):
        assert found[f"{shot}_mae"] == mean_interval(errors[shots == shot])._asdict()
    usual = r2_interval(run.truth + errors[:, None], run.truth)  # the sign of an error is squared
    shift = scores["r2"] - scores["r2_test_mean"]
    assert abs(shift) > 1e-6
    assert found["r2"]["low"] == pytest.approx(usual.low + shift)
    assert found["r2"]["high"] == pytest.approx(usual.high + shift)


def test_one_sample_has_no_intervals(tmp_path):
    table = table_of(n=30)
    table.split[:] = ["train"] * 29 + ["test"]
    run = untrained(tmp_path, table)
    analyse(run, "intervals")
    assert written(run, "intervals") == {}


def test_every_group_has_its_error_and_interval(run, table):
    analyse(run, "subgroups")
    found = written(run, "subgroups")
    errors, _, test = errors_of(run, table)
    assert list(found) == ["town", "age"]
    assert len(found["age"]["groups"]) == 5
    assert [one["value"] for one in found["town"]["groups"]] == ["north", "south", "tiny", "west"]
    for group in found["town"]["groups"]:
        assert list(group) == ["value", "n", "mae", "low", "high"]
        of_group = errors[table.subgroup["town"][test] == group["value"], 0]
        assert group["n"] == len(of_group)
        assert group["mae"] == pytest.approx(of_group.mean())
        assert group["low"] == pytest.approx(mean_interval(of_group, resamples=2000).low)
        assert group["low"] < group["mae"] < group["high"]


def test_the_worst_group_is_large_enough_to_be_called_so():
    errors = np.repeat([1.0, 2.0, 9.0], [30, 20, 19])
    codes = np.repeat([0, 1, 2], [30, 20, 19])
    found = group_errors(errors, codes, ["a", "b", "few"])
    assert (found["worst"], found["gap"]) == ("b", 1.0)
    found = group_errors(errors[11:], codes[11:], ["a", "b", "few"])
    assert (found["worst"], found["gap"]) == ("b", 0.0)
    found = group_errors(errors[31:], codes[31:], ["a", "b", "few"])
    assert (found["worst"], found["gap"]) == ("few", 7.0)
    assert [group["value"] for group in found["groups"]] == ["b", "few"]


def test_errors_of_several_targets_are_pooled(tmp_path):
    table = table_of(targets=2, town=np.arange(300) // 3 % 2)
    run = untrained(tmp_path, table)
    analyse(run, "subgroups")
    errors, _, test = errors_of(run, table)
    north = written(run, "subgroups")["town"]["groups"][0]
    assert north["mae"] == pytest.approx(errors[table.subgroup["town"][test] == 0].mean())
    assert north["mae"] == pytest.approx(run.scores["subgroups"]["town"]["0"]["mae"])


def test_a_column_with_the_name_of_a_target_is_found_under_its_new_name(tmp_path):
    run = untrained(tmp_path, table_of(price=np.arange(300) // 3 % 2))
    analyse(run, "subgroups")
    assert list(written(run, "subgroups")) == ["price_subgroup"]


def test_a_run_without_groups_says_how_to_get_some(tmp_path):
    run = untrained(tmp_path, table_of(code=np.array([f"#{i}" for i in range(300)])))
    for name in ("subgroups", "readable"):
        with pytest.raises(DoesNotApply, match=r"its columns: code\. Fit with --subgroup-column"):
            analyse(run, name)


def test_readable_has_the_scores_of_the_evaluation(run):
    analyse(run, "readable")
    found = written(run, "readable")
    assert {name: one["score"] for name, one in found.items()} == run.scores["readable"]
    assert [one["kind"] for one in found.values()] == ["accuracy", "r2"]
    assert 0.3 < found["town"]["chance"] < 0.4


# ----------------------------------------------------------------------------------------- targets


def test_errors_are_binned_by_target_with_the_density_of_training(tmp_path):
    table = table_of(n=900, targets=2)
    run = untrained(tmp_path, table)
    analyse(run, "targets")
    found = written(run, "targets")
    errors, truth, _ = errors_of(run, table)
    train = table.y[table.rows("train")]
    assert list(found) == ["price", "rent"]
    for i, one in enumerate(found.values()):
        edges = np.array(one["edges"])
        assert len(edges) == 21
        assert edges[0] == min(truth[:, i].min(), train[:, i].min())
        assert sum(one["n"]) == 300
        assert sum(one["n_train"]) == 300
        for k in range(20):
            last = truth[:, i] <= edges[k + 1] if k == 19 else truth[:, i] < edges[k + 1]
            inside = (truth[:, i] >= edges[k]) & last
            assert one["n"][k] == inside.sum()
            if inside.any():
                assert one["mae"][k] == pytest.approx(errors[inside, i].mean())
                span = mean_interval(errors[inside, i], resamples=2000) or (None, None)
                assert (one["low"][k], one["high"][k]) == span
        below = (train[:, i] < edges[10]).sum()
        assert sum(one["n_train"][:10]) == below


def test_an_empty_bin_has_no_error_and_the_highest_value_has_a_bin():
    found = target_errors(np.array([1.0, 3.0]), np.array([0.5, 8.0]), None)
    assert found["n"] == [1, *[0] * 18, 1]
    assert found["mae"] == [1.0, *[None] * 18, 3.0]
    assert found["low"] == found["high"] == [None] * 20
    assert found["n_train"] is None


@pytest.mark.parametrize(
    ("values", "edges"),
    [
        ([0, 100], np.arange(-0.5, 105, 6)),
        ([3, 7], np.arange(2.5, 8, 1)),
        ([-20, 20], np.arange(-20.5, 22, 3)),
        ([5], [4.5, 5.5]),
        ([0.25, 0.25], [-0.25, 0.75]),
        ([0.5, 2.5], np.linspace(0.5, 2.5, 21)),
    ],
)
def test_bins_of_whole_numbers_hold_equally_many(values, edges):
    np.testing.assert_allclose(bin_edges(np.array(values, dtype=float)), edges)


def test_a_run_that_kept_no_training_targets_has_no_density(tmp_path):
    run = untrained(tmp_path, table_of())
    (tmp_path / TRAIN_TARGETS_FILE).unlink()
    analyse(RunFolder(tmp_path), "targets")
    assert written(run, "targets")["price"]["n_train"] is None


# ------------------------------------------------------------------------------------------ unseen


def test_errors_are_split_by_what_training_has_seen(run, table):
    analyse(run, "unseen", AnalysisOptions(seen=((30.0, 40.0), (55.0, 60.0))))
    found = written(run, "unseen")
    errors, truth, _ = errors_of(run, table)
    y = truth[:, 0]
    inside = ((y >= 30) & (y <= 40)) | ((y >= 55) & (y <= 60))
    assert found["ranges"] == [[30.0, 40.0], [55.0, 60.0]]
    for name, rows in (("seen", inside), ("unseen", ~inside)):
        assert found[name]["n"] == rows.sum()
        assert found[name]["mae"] == pytest.approx(errors[rows].mean())
        assert found[name]["low"] < found[name]["mae"] < found[name]["high"]


def test_ends_of_a_range_are_seen(tmp_path):
    table = table_of()
    table.y[:] = np.arange(300.0)[:, None] // 3
    run = untrained(tmp_path, table, with_config(head="mse"))
    analyse(run, "unseen", AnalysisOptions(seen=((10.0, 19.0),)))
    assert written(run, "unseen")["seen"]["n"] == 10


def test_ranges_must_leave_samples_on_both_sides(run):
    with pytest.raises(DoesNotApply, match=r"ranges of price .* --seen LOW:HIGH"):
        analyse(run, "unseen")
    with pytest.raises(ValueError, match=r"all 100 are inside 0:999\. price runs from .* choose"):
        analyse(run, "unseen", AnalysisOptions(seen=((0.0, 999.0),)))
    with pytest.raises(ValueError, match=r"all 100 are outside 1:2\."):
        analyse(run, "unseen", AnalysisOptions(seen=((1.0, 2.0),)))


@pytest.mark.parametrize("text", ["20", "20:", "a:b", "5:3", "1:2:3", "0:inf", "nan:1"])
def test_a_range_is_two_numbers(text):
    with pytest.raises(ValueError, match=rf"LOW:HIGH, two numbers such as 20:50; got '{text}'"):
        parse_range(text)
