"""The report: what its figures show, what its page holds, and what it keeps out."""

import base64
import hashlib
import json
import re
import shutil
import subprocess

import numpy as np
import pytest
import torch

from report_page import Page, make_run, write_csv
from rnc.files import write_json, write_tensors, write_text
from rnc.report import write_report
from rnc.report.page import as_json, table

IMAGE = "<img src=x onerror=alert(1)>"
SCRIPT = "</script><script>alert(1)</script>"
COMMENT = "<!--<script>"


@pytest.fixture
def two(tmp_path):
    """A report of two runs, of which the second one is better."""
    better = {"test": {"mae": 1.5, "r2": 0.95, "spearman": 0.5, "kendall": None}}
    one, _ = make_run(tmp_path / "l1", config={"fit": {"scheme": "end2end", "head": "mse"}})
    other, _ = make_run(tmp_path / "rnc", scores=better | {"readable": {"camera": 0.625}})
    return write_report([one, other])


# ---------------------------------------------------------------------------------------- the page


def test_report_is_one_small_file_in_the_first_run_folder_that_loads_nothing(two, tmp_path):
    page = Page(two)
    assert two == tmp_path / "l1" / "report.html"
    assert two.stat().st_size < 8e6
    assert sum("plotly.js v" in script for script in page.scripts) == 1
    assert len(page.scripts) == 3
    loading = ("src", "href", "data", "action", "srcset", "poster")
    assert not [a for _, attributes in page.elements for a in loading if a in attributes]
    assert not {"link", "iframe", "object", "base"} & {tag for tag, _ in page.elements}
    style = two.read_text(encoding="utf-8").split("</style>")[0]
    assert not re.search(r"url\(|@import|https?://", style)


def test_report_goes_where_it_is_told(tmp_path):
    run, _ = make_run(tmp_path / "run")
    out = tmp_path / "new" / "page.html"
    assert write_report([run], out) == out
    assert out.exists()
    assert not (run / "report.html").exists()


def test_only_the_scripts_of_the_page_may_run(two):
    page = Page(two)
    (policy,) = (a["content"] for tag, a in page.elements if tag == "meta" and "http-equiv" in a)
    allowed = re.search(r"script-src ([^;]*)", policy)[1].split()
    plotly, _, own = (hashlib.sha256(script.encode()).digest() for script in page.scripts)
    assert allowed == [f"'sha256-{base64.b64encode(d).decode()}'" for d in (plotly, own)]
    assert policy.startswith("default-src 'none';")


def test_numbers_of_the_runs_are_in_the_table_and_the_best_is_bold(two):
    page = Page(two)
    head = ["Run", "Scheme", "Head", "MAE", "R²", "Spearman", "Kendall"]
    head += ["camera readable", "Seconds"]
    assert page.row("Run", 9) == head
    first = ["l1", "end2end", "mse", "2.346", "0.9100", "0.9700", "0.8600", "-", "32.50"]
    assert page.row("l1", 9) == first
    second = ["rnc", "probe", "l1", "1.500", "0.9500", "0.5000", "-", "0.6250", "32.50"]
    assert page.row("rnc", 9) == second
    assert page.bold[:4] == ["0.9700", "0.8600", "1.500", "0.9500"]
    assert page.row("rmse", 3) == ["rmse", "3.000", "-"]
    assert "12,580" in page.text


def test_configuration_and_commands_are_shown_and_differences_are_bold(two):
    page = Page(two)
    assert page.text.count("rnc fit faces.csv") == 2
    assert page.row("fit.head", 3) == ["fit.head", "mse", "l1"]
    assert {"mse", "l1", "7"} <= set(page.bold)
    assert "resnet18" in page.row("model.encoder", 2)
    assert "resnet18" not in page.bold


def test_scores_of_several_targets_are_shown(tmp_path):
    scores = {"per_target": {"yaw": {"mae": 1.25}, "pitch": {"mae": 2.75}}}
    run, _ = make_run(tmp_path / "run", targets=("yaw", "pitch"), scores=scores)
    page = Page(write_report([run]))
    assert page.row("pitch: mae", 2) == ["pitch: mae", "2.750"]


def test_what_auto_tried_is_shown(tmp_path):
    run, _ = make_run(tmp_path / "run", scores={"auto": {"probe": 3.25, "end2end": 4.5}})
    page = Page(write_report([run]))
    assert "Schemes that run tried" in page.text
    assert page.row("end2end", 2) == ["end2end", "4.500"]


def test_runs_of_one_name_are_told_apart_and_a_folder_is_shown_once(tmp_path):
    one, _ = make_run(tmp_path / "a" / "run")
    other, _ = make_run(tmp_path / "b" / "run")
    page = Page(write_report([one, other, one]))
    assert f"Runs: run ({one.as_posix()}), run ({other.as_posix()})" in page.text
    assert len(page.maps()) == 2


def test_a_name_in_the_configuration_replaces_that_of_the_folder(tmp_path):
    run, _ = make_run(tmp_path / "run-17", config={"name": "RnC, seed 1"})
    page = Page(write_report([run]))
    assert "Runs: RnC, seed 1" in page.text
    assert "run-17" not in page.text


def test_runs_with_different_targets_are_not_ranked(tmp_path):
    one, _ = make_run(tmp_path / "age")
    other, _ = make_run(tmp_path / "gaze", targets=("yaw", "pitch"))
    page = Page(write_report([one, other]))
    assert "different targets: their errors do not compare" in page.text
    assert "2.346" not in page.bold
    assert page.text.count("gaze: pitch") == 1
    assert page.text.count("age: age") == 1


# ------------------------------------------------------------------------------------------ safety


def poisoned(folder):
    n = 40
    columns = {
        "name": [IMAGE, SCRIPT, COMMENT] * 13 + [IMAGE],
        IMAGE: [SCRIPT, COMMENT] * (n // 2),
    }
    groups = {IMAGE: {SCRIPT: {"n": 20, "mae": 1.0}, COMMENT: {"n": 20, "mae": 2.0}}}
    config = {
        "name": f"run {IMAGE}{SCRIPT}",
        "command": f"rnc fit {SCRIPT}",
        "fit": {"scheme": IMAGE, "head": SCRIPT, IMAGE: COMMENT},
        "model": {"target_names": [f"age {SCRIPT}"], "encoder": IMAGE},
    }
    scores = {"subgroups": groups, "readable": {IMAGE: 0.5}, "auto": {SCRIPT: 1.0}}
    return make_run(
        folder, n=n, targets=(f"age {SCRIPT}",), columns=columns, config=config, scores=scores
    )[0]


def test_poison_from_files_stays_text(tmp_path):
    path = write_report([poisoned(tmp_path / "run")])
    raw, page = path.read_text(encoding="utf-8"), Page(path)
    assert IMAGE not in raw
    assert SCRIPT not in raw
    assert COMMENT not in raw
    assert len(page.scripts) == 3
    assert "img" not in {tag for tag, _ in page.elements}
    assert not [a for _, attributes in page.elements for a in attributes if a.startswith("on")]
    assert page.text.count(IMAGE) > 5  # it is shown, as text
    assert IMAGE in page.cells


def test_plotly_gets_no_markup_from_files(tmp_path):
    page = Page(write_report([poisoned(tmp_path / "run")]))
    ours = re.compile(r"<br>|<extra></extra>|<extra>%\{fullData\.name\}</extra>")
    texts = [ours.sub("", text) for text in strings(page.figures)]
    assert not [text for text in texts if "<" in text]
    assert "&lt;img src=x onerror=alert(1)&gt;" in texts


def strings(content):
    """Every string in a nest of lists and dicts, keys left out."""
    if isinstance(content, str):
        return [content]
    items = content.values() if isinstance(content, dict) else content
    nested = isinstance(content, dict | list)
    return [text for item in items for text in strings(item)] if nested else []


def test_nothing_ends_the_script_that_holds_the_figures():
    assert json.loads(as_json([IMAGE, SCRIPT, COMMENT])) == [IMAGE, SCRIPT, COMMENT]
    assert not set("<>&") & set(as_json([IMAGE, SCRIPT, COMMENT, "&lt;"]))


def test_cells_of_a_table_are_escaped():
    assert "<td>&lt;b&gt;</td>" in table(["<i>", "x"], [["<u>", "<b>"]])
    assert "<strong>&lt;b&gt;</strong>" in table(["<i>", "x"], [["<u>", "<b>"]], bold={(0, 1)})


@pytest.mark.browser
@pytest.mark.skipif(not shutil.which("chromium"), reason="needs chromium")
def test_a_browser_draws_every_figure_and_runs_no_poison(tmp_path):
    path = write_report([poisoned(tmp_path / "run")])
    flags = "headless no-sandbox disable-gpu no-first-run disable-background-networking"
    flags += " disable-component-update disable-sync virtual-time-budget=8000 dump-dom"
    command = ["chromium", *(f"--{flag}" for flag in flags.split())]
    command += ["--enable-logging=stderr", f"--user-data-dir={tmp_path / 'profile'}"]
    result = subprocess.run(
        [*command, path.as_uri()], capture_output=True, text=True, check=True, timeout=120
    )
    assert "CONSOLE" not in result.stderr  # errors, refused scripts
    drawn = result.stdout.count('class="plot js-plotly-plot"')
    assert drawn == len(Page(path).figures) == 5
    assert "<img src=" not in result.stdout.split("</style>", 1)[1].split("plotly.js v")[0]


# --------------------------------------------------------------------------- unfinished or damaged


def test_an_unfinished_run_shows_what_is_there_and_says_what_is_missing(tmp_path):
    run, _ = make_run(tmp_path / "run")
    for file in ("scores.json", "predictions.csv", "features.safetensors"):
        (run / file).unlink()
    page = Page(write_report([run]))
    assert "scores.json is missing: no scores." in page.text
    assert "predictions.csv is missing: no predicted against true values." in page.text
    assert "features.safetensors is missing: no map and no similarities" in page.text
    assert "history.csv is missing" not in page.text
    assert page.row("run", 8) == ["run", "probe", "l1", "-", "-", "-", "-", "32.50"]
    assert len(page.figures) == 1
    assert "Predicted against true" not in page.text


def test_a_run_with_nothing_but_its_configuration_is_described(tmp_path):
    run, _ = make_run(tmp_path / "run")
    for path in run.iterdir():
        if path.name != "config.json":
            path.unlink()
    page = Page(write_report([run]))
    assert page.text.count(" is missing: ") == 4
    assert page.figures == []
    assert "rnc fit faces.csv" in page.text


@pytest.mark.parametrize(
    ("file", "content", "reason"),
    [
        ("scores.json", "{", "no scores. Reason: Expecting property name"),
        ("scores.json", "[1]", "needed an object; got list."),
        ("history.csv", "", "no training curves and no time. Reason: No columns"),
        ("history.csv", "stage,gap\na,1\n", "there is no train_loss, val_error, seconds."),
        ("predictions.csv", "name,age\na,1\n", "there is no age_predicted."),
        ("features.safetensors", "xx", "no map and no similarities of the features. Reason:"),
    ],
)
def test_a_damaged_file_is_named_with_the_reason(tmp_path, file, content, reason):
    run, _ = make_run(tmp_path / "run")
    write_text(run / file, content)
    text = Page(write_report([run])).text
    assert f"{file} cannot be used: " in text
    assert reason in text


@pytest.mark.parametrize(
    ("features", "rows", "reason"),
    [
        (torch.randn(3, 4), [0, 1, 40], "rows 0 to 40 are not all among the 40"),
        (torch.randn(3, 4), [-1, 1, 2], "rows -1 to 2 are not all among the 40"),
        (torch.randn(3, 4), [0, 1], "got (3, 4) and (2,)."),
        (torch.full((3, 4), torch.nan), [0, 1, 2], "two samples with finite features; got 0."),
    ],
)
def test_features_that_do_not_fit_the_predictions_are_refused(tmp_path, features, rows, reason):
    run, _ = make_run(tmp_path / "run")
    tensors = {"features": features, "rows": torch.tensor(rows)}
    write_tensors(run / "features.safetensors", tensors)
    page = Page(write_report([run]))
    assert reason in page.text
    assert page.maps() == []


def test_a_diverged_run_is_shown(tmp_path):
    run, _ = make_run(tmp_path / "run", n=4)
    lines = "name,age,age_predicted\na,1,nan\nb,2,inf\nc,3,3.5\nd,,4\n"
    write_text(run / "predictions.csv", lines)
    history = "stage,epoch,lr,train_loss,gap,val_error,seconds\nhead,1,1,nan,,inf,\n"
    write_text(run / "history.csv", history)
    page = Page(write_report([run]))
    (figure,) = (f for f in page.figures if "range" in f["layout"].get("xaxis", {}))
    points, diagonal = figure["data"]
    assert points["y"] == [None, 3.5]
    assert diagonal["x"] == pytest.approx([1.955, 3.545])
    assert "Gap:" not in page.text


def test_a_folder_without_a_run_is_refused(tmp_path):
    (tmp_path / "notes.txt").touch()
    with pytest.raises(FileNotFoundError, match=r"no run folder: .* got \['notes.txt'\]"):
        write_report([tmp_path])
    with pytest.raises(ValueError, match="at least one run folder; got none"):
        write_report([])
    write_json(tmp_path / "config.json", {"format": 1})
    with pytest.raises(ValueError, match=r"config.json names no targets: needs model.target_names"):
        write_report([tmp_path])
    assert not (tmp_path / "report.html").exists()


# ------------------------------------------------------------------------------------- the figures


def test_predictions_share_their_axes_over_the_runs(tmp_path):
    runs = [make_run(tmp_path / name, seed=seed) for seed, name in enumerate("ab")]
    page = Page(write_report([run for run, _ in runs]))
    figures = [f for f in page.figures if "range" in f["layout"].get("xaxis", {})]
    for figure, (_, true) in zip(figures, runs, strict=True):
        points, diagonal = figure["data"]
        np.testing.assert_allclose(points["x"], true[:, 0], atol=0.005)
        assert points["customdata"][3] == "face-3.png"
        assert diagonal["x"] == diagonal["y"] == figures[0]["layout"]["yaxis"]["range"]


def test_more_than_2000_points_are_thinned_and_the_page_says_so(tmp_path):
    run, _ = make_run(tmp_path / "run", n=5000)
    page = Page(write_report([run]))
    (figure,) = (f for f in page.figures if "range" in f["layout"].get("xaxis", {}))
    assert len(figure["data"][0]["x"]) == len(set(figure["data"][0]["customdata"])) == 2000
    assert "2,000 of 5,000 points of run" in page.text
    assert "run: 2,000 samples" in page.text
    assert "run: 300 samples" in page.text


def test_the_map_switches_between_targets_and_columns(tmp_path):
    cities = {"city": [f"city {i % 12}" for i in range(40)]}
    one, true = make_run(tmp_path / "a", columns=cities)
    other, _ = make_run(tmp_path / "b", columns={"light": np.linspace(0, 1, 40)})
    page = Page(write_report([one, other]))
    options = [tag for tag, _ in page.elements if tag == "option"]
    assert len(options) == 4
    age, camera, city, light = page.maps()[0]["colorings"]
    rows = [
        int(name.removeprefix("face-")[:-4]) for name in page.maps()[0]["data"][0]["customdata"]
    ]
    np.testing.assert_allclose(age["marker"]["color"], true[rows, 0], atol=0.005)
    assert camera["marker"]["color"] == [1 - row % 2 for row in rows]
    assert camera["marker"]["colorbar"]["ticktext"] == ["left", "right"]
    assert len(city["marker"]["colorbar"]["ticktext"]) == 10
    assert city["marker"]["colorbar"]["ticktext"][-1] == "(other)"
    assert light["marker"] == {"size": 6, "color": "#888888"}  # not a column of this run
    assert page.maps()[1]["colorings"][3]["marker"]["colorscale"] == "Viridis"


def test_features_belong_to_the_rows_they_name(tmp_path):
    run, true = make_run(tmp_path / "run")
    rows = torch.tensor([30, 2, 17, 5])
    features = torch.tensor(true[rows], dtype=torch.float32)  # one feature: the age itself
    write_tensors(run / "features.safetensors", {"features": features, "rows": rows})
    (figure,) = Page(write_report([run])).maps()
    (points,) = figure["data"]
    assert points["customdata"] == [f"face-{row}.png" for row in rows]
    ages = np.array(figure["colorings"][0]["marker"]["color"])
    np.testing.assert_allclose(points["x"], ages - ages.mean(), atol=0.02)


def test_colours_mean_the_same_in_every_run(tmp_path):
    runs = [make_run(tmp_path / name, seed=seed)[0] for seed, name in enumerate("ab")]
    write_csv(runs[0] / "predictions.csv", {"name": "x", "age": [5.0, 7.0], "age_predicted": 1.0})
    features = {"features": torch.randn(2, 3), "rows": torch.tensor([0, 1])}
    write_tensors(runs[0] / "features.safetensors", features)
    one, other = (figure["colorings"][0]["marker"] for figure in Page(write_report(runs)).maps())
    assert (one["cmin"], one["cmax"]) == (other["cmin"], other["cmax"])
    assert one["cmax"] > 80


def test_columns_of_text_stay_text(tmp_path):
    countries = {"country": ["NA", "", "DE", "None"] * 10}
    run, _ = make_run(tmp_path / "run", columns=countries)
    _, _, country = Page(write_report([run])).maps()[0]["colorings"]
    assert country["marker"]["colorbar"]["ticktext"] == ["(empty)", "DE", "NA", "None"]
