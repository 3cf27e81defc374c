"""The answer on top of a report: for one run, for several, and for several seeds."""

import json

import numpy as np
import pandas as pd
import pytest
import torch

from report_page import Page, make_run, write_csv
from rnc.files import write_json, write_tensors
from rnc.report import write_report
from rnc.report.runs import SeedScore
from rnc.report.verdict import welch_interval

BASELINES = {"median": {"mae": 9.0}, "boosting": {"mae": 2.0, "seconds": 0.5}}


def with_error(folder, mae, *, seed=7, name=None, noise=0.0, **scores):
    """A run whose errors are all about as large as told, on the same samples as all others."""
    config = {"fit": {"scheme": "probe", "head": "l1", "seed": seed}}
    config |= {} if name is None else {"name": name}
    run, _ = make_run(folder, config=config, scores={"test": {"mae": mae}} | scores)
    table = pd.read_csv(run / "predictions.csv")
    off = mae + noise * np.random.default_rng(round(1000 * mae)).normal(size=len(table))
    write_csv(run / "predictions.csv", table.assign(age_predicted=table["age"] + off))
    return run


def top_of(page):
    """The text of the page before its sections."""
    return page.text.split("Scores")[0]


def bars_of(page):
    """The bars beside the answer: name -> value."""
    figure = next(figure for figure in page.figures if figure.get("file") == "answer")
    return {group["name"]: group["bars"][0] for group in figure["groups"]}


# ---------------------------------------------------------------------------------------- one run


def test_the_answer_of_a_run_comes_first_with_what_it_must_beat(tmp_path):
    training = {"updates": 16, "enough": False, "why": "only 16 updates", "epochs": 50}
    run = with_error(tmp_path / "run", 3.0, baselines=BASELINES, training=training)
    page = Page(write_report([run]))
    text = top_of(page)
    assert "age: off by 3.00 on average (MAE, 40 test rows); guessing the median: 9.00" in text
    assert "gradient boosting (scikit-learn): 2.00, which is better here." in text
    assert f"Training was short: only 16 updates. Go on with: rnc resume {run}" in text
    planned = with_error(tmp_path / "b", 3.0, name="L1", training=training)
    assert "Training was short: only 16 updates." in top_of(Page(write_report([planned])))
    assert "rnc resume" not in Page(write_report([planned])).text
    bars = bars_of(page)
    assert {name: bar["value"] for name, bar in bars.items()} == {
        "gradient boosting": 2,
        "run": 3,
        "guessing the median": 9,
    }
    assert list(bars) == ["gradient boosting", "run", "guessing the median"]  # the lowest first
    assert bars["run"]["color"] == 0
    assert bars["gradient boosting"]["color"] == "soft"


def test_an_old_run_without_baselines_shows_its_error(tmp_path):
    page = Page(write_report([make_run(tmp_path / "run")[0]]))
    assert "age: off by 2.35 on average (MAE, 40 test rows)." in top_of(page)
    assert not [figure for figure in page.figures if figure.get("file") == "answer"]


@pytest.mark.parametrize("n", ["many", 3.5, None])
def test_scores_that_cannot_be_told_do_not_break_the_page(tmp_path, n):
    run = with_error(tmp_path / "run", 3.0)
    scores = json.loads((run / "scores.json").read_text())
    (run / "scores.json").write_text(json.dumps(scores | {"n": {"test": n}}))
    text = Page(write_report([run])).text
    assert "n.test must be a whole number" in text


# ------------------------------------------------------------------------------------ several runs


def test_the_better_of_two_runs_is_named_with_the_interval(tmp_path):
    runs = [with_error(tmp_path / name, mae) for name, mae in (("worse", 4.0), ("better", 3.0))]
    page = Page(write_report(runs))
    text = top_of(page)
    assert "better has the lowest error: 3.00 against 4.00 of worse, 25 % less." in text
    assert "On the same 40 test samples, the difference is 1.00 (95 % interval 1.00 to" in text
    assert "more than chance in the choice of samples. Another seed may still change it." in text
    assert list(bars_of(page)) == ["better", "worse"]
    assert "age: off by 3.00 on average" in page.text  # each run's answer is in its card
    assert "is better than all of them" not in text


def test_gradient_boosting_that_beats_all_runs_is_said(tmp_path):
    runs = [
        with_error(tmp_path / n, mae, baselines=BASELINES) for n, mae in (("a", 4.0), ("b", 3.0))
    ]
    page = Page(write_report(runs))
    assert "Gradient boosting (scikit-learn) is better than all of them here: 2.00." in top_of(page)
    assert list(bars_of(page)) == ["gradient boosting", "b", "a", "guessing the median"]


def test_a_difference_within_noise_is_called_so(tmp_path):
    runs = [with_error(tmp_path / n, mae, noise=2.0) for n, mae in (("a", 3.01), ("b", 3.0))]
    text = top_of(Page(write_report(runs)))
    assert "b and a are equal within noise: 3.00 against 3.01." in text
    assert "it may be chance." in text


def test_equal_errors_have_no_winner(tmp_path):
    runs = [with_error(tmp_path / name, 3.0) for name in "ab"]
    assert "a and b have the same error: 3.00." in top_of(Page(write_report(runs)))


def test_errors_of_different_targets_and_missing_scores_are_not_ranked(tmp_path):
    one, _ = make_run(tmp_path / "age")
    other, _ = make_run(tmp_path / "yaw", targets=("yaw",))
    assert "different targets: their errors do not compare" in top_of(
        Page(write_report([one, other]))
    )
    other, _ = make_run(tmp_path / "unfinished")
    (other / "scores.json").unlink()
    assert "Fewer than two of these runs have scores" in top_of(Page(write_report([one, other])))


# --------------------------------------------------------------------------------------- seeds


def test_runs_that_differ_in_the_seed_alone_become_one_card_with_mean_and_spread(tmp_path):
    runs = [
        with_error(tmp_path / f"{name}{seed}", mae + 0.1 * seed, seed=seed, name=name)
        for name, mae in (("L1", 4.0), ("RnC", 3.0))
        for seed in (0, 1, 2)
    ]
    page = Page(write_report(runs))
    assert "Runs: L1, RnC\n" in page.text
    assert len([a for tag, a in page.elements if tag == "article"]) == 2
    assert "3 seeds; figures show seed 0" in page.text
    assert page.row("RnC", 3)[2] == "3.10 ± 0.10"
    assert page.row("RnC, seed 2", 2) == ["RnC, seed 2", "3.200"]
    assert len(page.kind("scatter")) == 2
    text = top_of(page)
    assert "RnC has the lowest error: 3.10 against 4.10 of L1, 24 % less." in text
    assert "Over 3 seeds, the difference is 1.00 (95 % interval 0.773 to 1.23)" in text
    bar = bars_of(page)["RnC"]
    assert (bar["low"], bar["value"], bar["high"]) == pytest.approx((3.0, 3.1, 3.2))


def test_two_seeds_that_differ_widely_are_not_enough(tmp_path):
    runs = [
        with_error(tmp_path / f"{name}{seed}", mae + seed, seed=seed, name=name)
        for name, mae in (("L1", 3.5), ("RnC", 3.0))
        for seed in (0, 1)
    ]
    text = top_of(Page(write_report(runs)))
    assert "RnC and L1 are equal within noise" in text
    assert "it may be chance; more seeds tell." in text


def test_seeds_of_one_run_are_named_by_what_their_folders_share(tmp_path):
    runs = [with_error(tmp_path / f"rnc-{seed}", 3.0 + seed, seed=seed) for seed in (0, 1)]
    page = Page(write_report(runs))
    assert "Run: rnc\n" in page.text
    assert "off by 3.50 on average" in top_of(page)
    assert "The mean of 2 seeds." in top_of(page)


def test_the_same_seed_twice_and_another_head_stay_runs_of_their_own(tmp_path):
    runs = [with_error(tmp_path / name, 3.0) for name in "ab"]
    other, _ = make_run(tmp_path / "c", config={"fit": {"scheme": "probe", "head": "mse"}})
    assert "Runs: a, b, c\n" in Page(write_report([*runs, other])).text


def test_the_interval_over_seeds_is_that_of_welch():
    from scipy import stats

    a, b = (2.9, 3.1, 3.05, 2.8), (3.4, 3.3, 3.7)
    expected = stats.ttest_ind(a, b, equal_var=False).confidence_interval(0.95)
    assert welch_interval(SeedScore(a), SeedScore(b)) == pytest.approx(expected)
    assert welch_interval(SeedScore((1.0, 1.0)), SeedScore((3.0, 3.0))) == (-2, -2)


# --------------------------------------------------------------------------------- similarities


@pytest.mark.parametrize(
    ("scale", "words"),
    [(1.2, "All runs share one colour scale."), (9.0, "Each run has a colour scale of its own")],
)
def test_similarities_share_a_scale_where_it_shows_both(tmp_path, scale, words):
    runs = []
    for name, factor in (("a", 1.0), ("b", scale)):
        run, _ = make_run(tmp_path / name)
        matrix = -factor * (1 - torch.eye(3))
        write_tensors(run / "analyses" / "similarity.safetensors", {"matrix": matrix})
        write_json(run / "analyses" / "similarity.json", {"target": "age", "labels": [1, 2, 5]})
        runs.append(run)
    page = Page(write_report(runs))
    assert words in page.text
    lows = [figure["low"] for figure in page.kind("heat")]
    assert lows == pytest.approx([-scale, -scale] if scale < 2 else [-1, -scale])
