"""The report: its figures, the content of its page, and text that must not run as script."""

import base64
import hashlib
import json
import re
import shutil
import time

import pytest
import torch
from typer.testing import CliRunner

from report_page import Page, make_run
from rnc.cli import app
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
    assert two.stat().st_size < 200_000
    assert len(page.scripts) == 2
    loading = ("src", "href", "data", "action", "srcset", "poster")
    links = [attributes.get(a, "#") for _, attributes in page.elements for a in loading]
    assert not [link for link in links if not link.startswith("#")]
    assert not {"link", "iframe", "object", "base"} & {tag for tag, _ in page.elements}
    style = two.read_text(encoding="utf-8").split("</style>")[0]
    assert not re.search(r"url\(|@import|https?://", style)


def test_report_goes_where_it_is_told(tmp_path):
    run, _ = make_run(tmp_path / "run")
    out = tmp_path / "new" / "page.html"
    assert write_report([run], out) == out
    assert out.exists()
    assert not (run / "report.html").exists()


def test_the_command_writes_the_page_and_the_figures(tmp_path):
    run, _ = make_run(tmp_path / "run")
    out, figures = tmp_path / "page.html", tmp_path / "figures"
    result = CliRunner().invoke(
        app, ["report", str(run), "--out", str(out), "--figures", str(figures)]
    )
    assert result.exit_code == 0, result.output
    assert out.exists()
    count = len(list(figures.iterdir()))
    assert f"{count} figures in " in result.output
    assert (figures / "training-run.svg").exists()


def test_three_runs_of_20000_samples_make_a_page_below_15_megabytes_within_a_minute(tmp_path):
    runs = []
    for seed in range(3):
        run, _ = make_run(tmp_path / f"run-{seed}", n=20_000, seed=seed)
        noise = torch.randint(0, 256, (2000, 3, 48, 48), dtype=torch.uint8)  # the worst to encode
        rows = torch.randperm(20_000)[:2000]
        write_tensors(run / "thumbnails.safetensors", {"images": noise, "rows": rows})
        runs.append(run)
    start = time.perf_counter()
    size = write_report(runs).stat().st_size
    assert time.perf_counter() - start < 60
    assert 3e6 < size < 15e6


def test_only_the_scripts_of_the_page_may_run(two):
    page = Page(two)
    (policy,) = (a["content"] for tag, a in page.elements if tag == "meta" and "http-equiv" in a)
    allowed = re.search(r"script-src ([^;]*)", policy)[1].split()
    digest = hashlib.sha256(page.scripts[1].encode()).digest()
    assert allowed == [f"'sha256-{base64.b64encode(digest).decode()}'"]
    assert policy.startswith("default-src 'none';")


def test_no_script_of_the_page_reads_text_as_markup(two):
    markup = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function|DOMParser"
    assert not re.search(markup, Page(two).scripts[1])


def test_every_link_of_the_page_leads_to_a_section(two):
    elements = Page(two).elements
    links = [attributes["href"] for tag, attributes in elements if tag == "a"]
    sections = [f"#{a['id']}" for tag, a in elements if tag == "section" and "id" in a]
    assert links == sections[1:]  # all but the answer, which is on top
    assert sections[0] == "#answer"
    assert len(links) >= 6


def test_numbers_of_the_runs_are_in_the_table_and_the_best_is_bold(two):
    page = Page(two)
    words = "Mean absolute error (MAE)", "R² against the mean of the training rows"
    head = ["Run", "Scheme, head", *words, "Order of the features (Spearman)"]
    assert page.row("Run", 7) == [*head, "camera in the features", "Training"]
    assert page.row("l1", 7) == ["l1", "end2end, mse", "2.346", "0.9100", "0.9700", "-", "32 s"]
    second = ["rnc", "probe, l1", "1.500", "0.9500", "0.5000", "0.6250", "32 s"]
    assert page.row("rnc", 7) == second
    assert page.bold[:3] == ["0.9700", "1.500", "0.9500"]
    name = "Root mean squared error (RMSE)"
    assert page.row(name, 3) == [name, "3.000", "-"]
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
    row = [a for tag, a in page.elements if tag == "div" and "pairs" in a.get("class", "")]
    assert row[-1]["class"] == "grid of-2 pairs"  # the two targets stand side by side
    name = "pitch: mean absolute error (MAE)"
    assert page.row(name, 2) == [name, "2.750"]


def test_what_auto_tried_is_shown(tmp_path):
    scores = {"auto": {"probe": 3.25, "end2end": 4.5}, "kept": "probe"}
    run, _ = make_run(tmp_path / "run", scores=scores)
    page = Page(write_report([run]))
    assert "Schemes that run tried" in page.text
    tried = next(f for f in page.kind("rows") if f["axis"] == "validation error")
    bars = {group["name"]: group["bars"][0]["value"] for group in tried["groups"]}
    assert bars == {"probe (kept)": 3.25, "end2end": 4.5}


def test_runs_of_one_name_are_told_apart_and_a_folder_is_shown_once(tmp_path):
    one, _ = make_run(tmp_path / "a" / "run")
    other, _ = make_run(tmp_path / "b" / "run")
    page = Page(write_report([one, other, one]))
    assert f"Runs: run ({one.as_posix()}), run ({other.as_posix()})" in page.text
    assert len(page.kind("map")) == 2


def test_a_name_in_the_configuration_replaces_that_of_the_folder(tmp_path):
    run, _ = make_run(tmp_path / "run-17", config={"name": "RnC, seed 1"})
    page = Page(write_report([run]))
    assert "Run: RnC, seed 1" in page.text
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
    columns = {"name": [IMAGE, SCRIPT, COMMENT] * 13 + [IMAGE], IMAGE: [SCRIPT, COMMENT] * (n // 2)}
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
    assert len(page.scripts) == 2
    assert "img" not in {tag for tag, _ in page.elements}
    assert not [a for _, attributes in page.elements for a in attributes if a.startswith("on")]
    assert page.text.count(IMAGE) > 5  # it is shown, as text
    assert IMAGE in page.cells


def test_nothing_ends_the_script_that_holds_the_figures():
    assert json.loads(as_json([IMAGE, SCRIPT, COMMENT])) == [IMAGE, SCRIPT, COMMENT]
    assert not set("<>&") & set(as_json([IMAGE, SCRIPT, COMMENT, "&lt;"]))


def test_cells_of_a_table_are_escaped():
    assert '<td data-label="x&quot;">&lt;b&gt;</td>' in table(["<i>", 'x"'], [["<u>", "<b>"]])
    assert "<strong>&lt;b&gt;</strong>" in table(["<i>", "x"], [["<u>", "<b>"]], bold={(0, 1)})


# --------------------------------------------------------------------------- unfinished or damaged


def test_an_unfinished_run_shows_what_is_there_and_says_what_is_missing(tmp_path):
    run, _ = make_run(tmp_path / "run")
    for file in ("scores.json", "predictions.csv", "features.safetensors"):
        (run / file).unlink()
    shutil.rmtree(run / "analyses")
    page = Page(write_report([run]))
    assert "scores.json is missing: no scores." in page.text
    assert "predictions.csv is missing: no predicted against true values and no map." in page.text
    assert "rnc evaluate" not in page.text
    assert "history.csv is missing" not in page.text
    assert "There are no scores yet." in page.text
    assert "Mean absolute error (MAE)-" in page.text
    assert "Training32 s" in page.text
    assert "order of the features" not in page.text
    assert [figure["kind"] for figure in page.figures] == ["panels"]
    assert "Predictions" not in page.text


def test_a_run_with_nothing_but_its_configuration_is_described(tmp_path):
    run, _ = make_run(tmp_path / "run")
    shutil.rmtree(run / "analyses")
    for path in run.iterdir():
        if path.name != "config.json":
            path.unlink()
    page = Page(write_report([run]))
    assert page.text.count(" is missing: ") == 3
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
    ],
)
def test_a_damaged_file_is_named_with_the_reason(tmp_path, file, content, reason):
    run, _ = make_run(tmp_path / "run")
    write_text(run / file, content)
    text = Page(write_report([run])).text
    assert f"{file} cannot be used: " in text
    assert reason in text


def test_a_run_of_an_older_version_is_shown_and_the_page_says_what_completes_it(tmp_path):
    run, _ = make_run(tmp_path / "run")
    shutil.rmtree(run / "analyses")
    page = Page(write_report([run]))
    names = ("intervals", "pca", "similarity", "subgroups", "targets")
    command = " ".join(["rnc evaluate", str(run), *(f"--with {name}" for name in names)])
    assert "no intervals of the scores, no map of the features, no similarities" in page.text
    assert f"Add them: {command}" in page.text
    assert {figure["kind"] for figure in page.figures} == {"scatter", "rows", "panels"}
    result = CliRunner().invoke(app, command.split()[1:])
    assert result.exit_code == 0, result.output
    page = Page(write_report([run]))
    assert "rnc evaluate" not in page.text
    assert {figure["kind"] for figure in page.figures} >= {"map", "heat"}


def test_a_diverged_run_is_shown(tmp_path):
    run, _ = make_run(tmp_path / "run", n=4)
    lines = "name,age,age_predicted\na,1,nan\nb,2,inf\nc,3,3.5\nd,,4\n"
    write_text(run / "predictions.csv", lines)
    history = "stage,epoch,lr,train_loss,gap,val_error,seconds\nhead,1,1,nan,,inf,\n"
    write_text(run / "history.csv", history)
    page = Page(write_report([run]))
    (figure,) = page.kind("scatter")
    assert (figure["x"], figure["y"]) == ([3.0], [3.5])
    assert figure["limits"] == pytest.approx([0.91, 4.09])
    assert "Loss above its minimum" not in page.text


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
