"""Sections of a report that come from analyses, and pictures of samples."""

import base64
import json
import re

import numpy as np
import pandas as pd
import pytest
import torch

from report_page import Page, add_pictures, make_run, sheets_of, write_csv
from rnc.analyses.registry import analyse
from rnc.files import write_json, write_tensors
from rnc.report import sheets, write_report


@pytest.fixture
def run(tmp_path):
    return make_run(tmp_path / "run")[0]


def page_with(run, **analyses):
    for name, content in analyses.items():
        write_json(run / "analyses" / f"{name}.json", content)
    return Page(write_report([run]))


def figure_called(page, title):
    (figure,) = (figure for figure in page.figures if figure["title"] == title)
    return figure


# --------------------------------------------------------------------------------------- intervals


def honest_scores(run):
    table = pd.read_csv(run / "predictions.csv")
    errors = (table["age"] - table["age_predicted"]).to_numpy()
    spread = ((table["age"] - table["age"].mean()) ** 2).sum()
    r2 = float(1 - (errors**2).sum() / spread)
    test = {"mae": float(np.abs(errors).mean()), "r2": r2 + 0.001, "r2_test_mean": r2}
    write_json(run / "scores.json", {"test": test})
    analyse(run, "intervals")
    return errors


def test_cards_show_intervals_of_mae_and_r2(run):
    errors = np.abs(honest_scores(run))
    text = Page(write_report([run])).text
    low, high = map(float, re.search(r"95 % interval (\S+) to ([\d.]+)", text).groups())
    half = 2.02 * errors.std(ddof=1) / np.sqrt(len(errors))
    assert (low, high) == pytest.approx((errors.mean() - half, errors.mean() + half), abs=0.15)
    found = re.search(r"training rows(\S+) 95 % interval (\S+) to (\d\.\d{3})", text)
    r2, low, high = map(float, found.groups())
    assert r2 == pytest.approx(
        json.loads((run / "scores.json").read_text())["test"]["r2"], abs=1e-4
    )
    assert low < r2 < high < 1


def test_scores_without_an_interval_are_shown_alone(run):
    (run / "analyses" / "intervals.json").unlink()
    text = Page(write_report([run])).text
    assert not re.search(r"95 % interval \d", text)
    assert f"no intervals of the scores. Add them: rnc evaluate {run} --with intervals" in text


def test_runs_on_the_same_samples_are_compared_sample_by_sample(tmp_path):
    one, _ = make_run(tmp_path / "one")
    other, _ = make_run(tmp_path / "other")
    table = pd.read_csv(other / "predictions.csv")
    gained = np.linspace(0.5, 1.5, len(table))
    off = table["age_predicted"] - table["age"]
    table["age_predicted"] += np.sign(off) * gained  # each error grows by that much
    write_csv(other / "predictions.csv", table)
    page = Page(write_report([one, other]))
    cell = page.row("other", 7)[6]
    mean, low, high = map(float, re.fullmatch(r"\+(\S+) \((\S+) to (\S+)\)", cell).groups())
    assert mean == pytest.approx(1.0)
    assert 0.85 < low < 1 < high < 1.15


# ---------------------------------------------------------------------------------------- analyses


def test_a_fitted_run_shows_its_errors_by_target_and_by_subgroup(run):
    page = Page(write_report([run]))
    _, below = figure_called(page, "Error by age")["panels"]
    assert below["title"] == "test samples"
    assert sum(below["marks"][0]["y"]) == 40
    table = pd.read_csv(run / "predictions.csv")
    errors = (table["age"] - table["age_predicted"]).abs()
    left, right = figure_called(page, "Error by camera")["groups"]
    assert left["bars"][0]["value"] == pytest.approx(errors[1::2].mean(), rel=1e-3)
    assert right["bars"][0]["value"] == pytest.approx(errors[::2].mean(), rel=1e-3)
    assert left["bars"][0]["low"] < left["bars"][0]["value"] < left["bars"][0]["high"]


def test_training_labels_of_the_run_give_the_density_and_intervals_of_shots(run):
    table = pd.read_csv(run / "predictions.csv").round({"age": 0})
    write_csv(run / "predictions.csv", table)
    ages = torch.arange(0, 91, dtype=torch.float64)
    train = torch.cat([ages[:46].repeat(150), ages[46:].repeat(3)])[:, None]
    write_tensors(run / "train_targets.safetensors", {"targets": train})
    test = {"mae": 2.0, "many_mae": 2.5, "many_n": 20.0, "few_mae": 1.5, "few_n": 20.0}
    write_json(run / "scores.json", {"test": test})
    analyse(run, "intervals")
    analyse(run, "targets")
    page = Page(write_report([run]))
    _, below = figure_called(page, "Error by age")["panels"]
    assert below["title"] == "training samples"
    assert sum(below["marks"][0]["y"]) == len(train)
    (bar,) = figure_called(page, "Error by shot group")["groups"][0]["bars"]
    errors = errors_of(run)[table["age"] < 46]
    assert bar["low"] < errors.mean() < bar["high"] < errors.mean() + errors.std()


def test_targets_and_subgroups_of_an_analysis_take_their_place(run):
    bins = {"edges": [0, 45, 90], "n": [20, 20], "mae": [2, None], "low": [1, None]}
    groups = [{"value": "left", "n": 20, "mae": 7.25, "low": 6.0, "high": 8.5}]
    page = page_with(
        run,
        targets={"age": bins | {"high": [3, None], "n_train": [9000, 12]}},
        subgroups={"camera": {"groups": groups, "worst": "left", "gap": 0.0}},
    )
    above, below = figure_called(page, "Error by age")["panels"]
    assert (below["title"], below["marks"][0]["y"]) == ("training samples", [9000, 12])
    assert above["marks"][-1]["y"] == [2]
    (group,) = figure_called(page, "Error by camera")["groups"]
    assert (group["bars"][0]["value"], group["bars"][0]["high"]) == (7.25, 8.5)


def test_shot_groups_of_the_scores_are_bars(run):
    test = {"mae": 2.0, "many_mae": 1.5, "many_n": 30.0, "few_mae": 4.5, "few_n": 3.0}
    write_json(run / "scores.json", {"test": test})
    groups = figure_called(Page(write_report([run])), "Error by shot group")["groups"]
    found = [(g["name"], g["bars"][0]["value"], g["bars"][0]["n"]) for g in groups]
    assert found == [("many shot", 1.5, 30), ("few shot", 4.5, 3)]


def test_a_single_shot_group_is_not_drawn(run):
    write_json(run / "scores.json", {"test": {"mae": 2.0, "few_mae": 2.0, "few_n": 33.0}})
    assert "Error by shot group" not in write_report([run]).read_text(encoding="utf-8")


def test_corruption_is_curves_bars_and_a_table(run):
    rows = [{"name": "fog", "severity": s, "error": 2.0 * s} for s in range(1, 6)]
    mean = [{"severity": s, "error": 3.0 * s} for s in range(1, 6)]
    types = [{"name": "fog", "error": 6.0}]
    content = {"measure": "mae", "n": 300, "clean": 1.25, "rows": rows, "mean": mean}
    page = page_with(run, corruption=content | {"types": types})
    (line,) = figure_called(page, "Mean over all corruptions")["panels"][0]["marks"]
    assert (line["x"], line["y"]) == ([0, 1, 2, 3, 4, 5], [1.25, 3, 6, 9, 12, 15])
    (group,) = figure_called(page, "Mean over the severities")["groups"]
    assert (group["name"], group["bars"][0]["value"]) == ("fog", 6)
    assert page.row("run: fog", 7)[1:] == ["1.250", "2.000", "4.000", "6.000", "8.000", "10.00"]


def test_unseen_targets_less_data_and_transfer_are_shown(run):
    parts = {"seen": {"n": 30, "mae": 2.0, "low": 1.0, "high": 3.0}}
    parts |= {"unseen": {"n": 10, "mae": 5.0, "low": 4.0, "high": 6.0}}
    rows = [
        {"scheme": "probe", "share": share, "n": n, "seed": seed, "mae": 1.0 + seed, "r2": 0.5}
        for share, n in ((1.0, 100), (0.5, 50))
        for seed in (0, 1)
    ]
    means = [{"scheme": "probe", "n": n, "mae": 1.5} for n in (100, 50)]
    scores = {"scheme": "finetune", "mae": 3.25, "r2": 0.75, "spearman": None}
    page = page_with(
        run,
        unseen={"ranges": [[0, 20], [40, 60]], **parts},
        reduced={"rows": rows, "mean": means},
        transfer={"data": "other.csv", "rows": [scores]},
    )
    assert "Targets that training has seen: 0 to 20, 40 to 60." in page.text
    _, unseen = figure_called(page, "Unseen targets")["groups"]
    assert (unseen["bars"][0]["value"], unseen["bars"][0]["low"]) == (5, 4)
    (line,) = figure_called(page, "Less training data")["panels"][0]["marks"]
    assert (line["x"], line["y"]) == ([50, 100], [1.5, 1.5])
    assert page.row("other.csv", 5) == ["other.csv", "finetune", "3.250", "0.7500", "-"]


def test_order_and_readable_are_said_beside_the_map(run):
    readable = {"camera": {"score": 0.625, "kind": "accuracy", "chance": 0.5}}
    page = page_with(run, readable=readable, order={"gap": 0.875, "delta": None})
    words = "Camera in the features: 62 % right, guessing 50 %."
    assert f"Order kept: Spearman 0.970. {words}" in page.text
    assert "Distance of the loss from the lowest possible0.8750" in page.text
    assert page.row("Features are delta-ordered for delta of", 2)[1] == "-"


@pytest.mark.parametrize(
    ("probe", "words"),
    [
        ({"score": -0.02, "kind": "r2", "chance": 0.0}, "not readable (no better than guessing)"),
        ({"score": 0.4, "kind": "accuracy", "chance": 0.5}, "not readable (no better than"),
        ({"score": 0.734, "kind": "r2", "chance": 0.0}, "R² 0.73"),
        ({"score": None}, "-"),
    ],
)
def test_what_a_probe_reads_is_said_in_words(run, probe, words):
    assert f"Camera in the features{words}" in page_with(run, readable={"camera": probe}).text


def test_an_evaluation_alone_says_what_guessing_gives(tmp_path):
    scores = {
        "readable": {"camera": 0.75},
        "guessing": {"camera": {"kind": "accuracy", "chance": 0.5}},
    }
    run, _ = make_run(tmp_path / "run", scores=scores)
    assert "Camera in the features75 % right, guessing 50 %" in Page(write_report([run])).text


def test_a_similarity_matrix_of_an_analysis_takes_its_place(run):
    write_tensors(run / "analyses" / "similarity.safetensors", {"matrix": torch.eye(3)})
    page = page_with(run, similarity={"target": "age", "labels": [1, 2, 5]})
    (heat,) = page.kind("heat")
    assert (heat["labels"], heat["low"], heat["high"]) == ([1, 2, 5], 0, 1)
    assert list(base64.b64decode(heat["levels"])) == [255, 0, 0, 0, 255, 0, 0, 0, 255]


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("targets", {"age": {"edges": [0, 1]}}, "there is no 'n'"),
        ("targets", [1], "needed an object; got list"),
        ("map", {"rows": [0, 99], "x": [0, 1], "y": [0, 1]}, "its rows are not among the 40"),
        ("map", {"rows": [0], "x": [0, 1], "y": [0, 1]}, "needed two or more rows"),
        ("similarity", {"labels": [1, 2]}, "Reason: "),
        ("subgroups", {"camera": 3}, "Reason: "),
        ("corruption", {"rows": [{"name": "fog"}]}, "there is no 'severity'"),
        ("corruption", {"rows": [], "mean": []}, "An older version wrote it"),
        ("reduced", {"rows": []}, "An older version wrote it"),
        ("intervals", {"mae": {"low": 1.0}}, "there is no 'high'"),
        ("pca", {"rows": [0, 1], "x": [0, 1], "y": [0, 1]}, "there is no 'shares'"),
    ],
)
def test_a_damaged_analysis_is_named_with_the_reason(run, name, content, reason):
    page = page_with(run, **{name: content})
    assert f"analyses/{name}.json cannot be used" in page.text
    assert reason in page.text
    assert len(page.kind("scatter")) == 1  # the rest is there


# ------------------------------------------------------------------------------------------- looks


def test_pictures_are_drawn_anew_on_one_sheet_and_belong_to_their_rows(run):
    rows, images = add_pictures(run)
    path = write_report([run])
    page, (sheet,) = Page(path), sheets_of(path)
    columns = page.data["sheets"][0]["columns"]
    (figure,) = page.kind("scatter")
    for place, name in zip(figure["points"], page.names_of(figure), strict=True):
        look, row = page.data["runs"][0]["looks"][place], int(name[5:-4])
        assert (look < 0) == (row not in rows)
        if look >= 0:
            y, x = 24 * (look // columns) + 12, 24 * (look % columns) + 12
            wanted = images[rows.tolist().index(row), :, 0, 0].numpy()
            assert np.abs(sheet[y, x].astype(int) - wanted).max() <= 2


def test_runs_share_a_sheet_that_holds_every_picture_once(tmp_path):
    runs = [make_run(tmp_path / name, seed=seed)[0] for seed, name in enumerate("abc")]
    for seed, folder in zip((0, 0, 1), runs, strict=True):
        _, images = add_pictures(folder, seed=seed)
    page = Page(path := write_report(runs))
    (sheet,) = sheets_of(path)
    assert [its["sheet"] for its in page.data["runs"]] == [0, 0, 0]
    looks = [[look for look in its["looks"] if look >= 0] for its in page.data["runs"]]
    assert looks[0] == looks[1]
    assert sorted({*looks[0], *looks[2]}) == list(range(40))  # 20 of two runs, 20 of the third
    columns = page.data["sheets"][0]["columns"]
    for look, image in zip(looks[2], images, strict=True):
        y, x = 24 * (look // columns) + 12, 24 * (look % columns) + 12
        assert np.abs(sheet[y, x].astype(int) - image[:, 0, 0].numpy()).max() <= 2


def test_pictures_of_another_shape_are_on_another_sheet(tmp_path):
    runs = [make_run(tmp_path / name)[0] for name in "ab"]
    add_pictures(runs[0])
    small = {"images": torch.zeros(2, 1, 8, 8, dtype=torch.uint8), "rows": torch.arange(2)}
    write_tensors(runs[1] / "thumbnails.safetensors", small)
    page = Page(path := write_report(runs))
    assert [its["sheet"] for its in page.data["runs"]] == [0, 1]
    assert [sheet.shape for sheet in sheets_of(path)] == [(96, 120, 3), (8, 8, 3)]


def test_a_sheet_that_would_be_too_large_holds_fewer_pictures(run, monkeypatch):
    noise = torch.randint(0, 256, (20, 3, 48, 48), dtype=torch.uint8)
    looks = {"images": noise, "rows": torch.arange(20)}
    write_tensors(run / "thumbnails.safetensors", looks)
    monkeypatch.setattr(sheets, "SHEET_BYTES", 60_000)
    page = Page(path := write_report([run]))
    found = [look for look in page.data["runs"][0]["looks"] if look >= 0]
    assert 2 <= len(found) < 20
    assert sorted(found) == list(range(len(found)))
    worst = sum(row < 20 for row in np.argsort(-errors_of(run))[:12])  # those with a picture
    assert 0 < worst <= len(found)
    assert pictured(page) == worst
    assert path.stat().st_size < 60_000 + 150_000


def test_signals_become_sparklines(run):
    rows, signals = add_pictures(run, signals=True)
    page = Page(write_report([run]))
    (lines,) = page.data["signals"]
    levels = np.frombuffer(base64.b64decode(lines["bytes"]), np.uint8).reshape(-1, 2, 64)
    first = signals[0, 1].numpy()
    wanted = (first - first.min()) / np.ptp(first) * 255
    place = page.data["runs"][0]["looks"][0]  # of the first row, whose signal is the first
    np.testing.assert_allclose(levels[place, 1], wanted, atol=0.51)
    worst = [int(row) for row in np.argsort(-errors_of(run))[:12]]
    shown = sum(tag == "polyline" for tag, _ in page.elements)
    assert shown == 2 * len(set(worst) & set(rows.tolist()))


def pictured(page):
    """How many samples of the gallery have a picture."""
    return sum(attributes.get("aria-label") == "the sample" for _, attributes in page.elements)


def errors_of(run):
    table = pd.read_csv(run / "predictions.csv")
    return (table["age"] - table["age_predicted"]).abs().to_numpy()


def test_the_gallery_shows_the_largest_errors_first(run):
    text = Page(write_report([run])).text.split("Worst errors")[-1]
    names = re.findall(r"face-(\d+)\.png", text)
    assert [int(name) for name in names] == np.argsort(-errors_of(run))[:12].tolist()


@pytest.mark.parametrize(
    ("tensors", "reason"),
    [
        ({"images": torch.zeros(2, 3, 8, 8)}, "needed images for 2 rows; got (2, 3, 8, 8)."),
        (
            {"images": torch.zeros(1, 3, 8, 8, dtype=torch.uint8)},
            "needed images for 2 rows; got (1, 3, 8, 8).",
        ),
        ({"other": torch.zeros(2)}, "needed rows, and images or signals; got other, rows."),
    ],
)
def test_pictures_that_do_not_fit_are_refused(run, tensors, reason):
    write_tensors(run / "thumbnails.safetensors", tensors | {"rows": torch.tensor([0, 1])})
    text = Page(write_report([run])).text
    assert f"no pictures of the samples. Reason: {reason}" in text
