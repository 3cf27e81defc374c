"""The report on a run with intervals: its section, the band beside predictions, and old runs."""

import json

import numpy as np
import pandas as pd
import pytest

from browser import CHROMIUM, WHY_NOT, Browser
from report_page import Page, make_run
from rnc.analyses.standard import write_standard_analyses
from rnc.files import write_json
from rnc.report import write_report
from rnc.report.paper import draw_figures
from rnc.run.folder import RunFolder

CONFIDENCES = [0.5, 0.8, 0.9, 0.95]


def with_intervals(folder, *, targets=("age",), width=10.0, seed=0):
    """A finished run whose intervals go `width` beyond each prediction, to both sides."""
    run, _ = make_run(folder, n=60, targets=targets, seed=seed)
    frame = pd.read_csv(run / "predictions.csv")
    roles = {"name": "name", "camera": "subgroup"}
    for target in targets:
        predicted = frame[f"{target}_predicted"]
        frame[f"{target}_lower"], frame[f"{target}_upper"] = predicted - width, predicted + width
        roles |= {target: "target", f"{target}_predicted": "prediction"}
        roles |= {f"{target}_lower": "lower", f"{target}_upper": "upper"}
    frame.to_csv(run / "predictions.csv", index=False)
    curve = {"confidence": CONFIDENCES, "coverage": [0.55, 0.8, 0.95, 1.0]}
    curve |= {"low": [0.4, 0.7, 0.85, 0.9], "high": [0.7, 0.9, 1.0, 1.0]}
    intervals = {
        "kinds": dict.fromkeys(targets, "normalised"),
        "curve": {target: curve for target in targets},
    }
    scores = json.loads((run / "scores.json").read_text())
    write_json(run / "scores.json", scores | {"columns": roles, "intervals": intervals})
    write_standard_analyses(RunFolder(run))
    return run


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return with_intervals(tmp_path_factory.mktemp("runs") / "rnc")


def figure_named(page, title):
    return next(figure for figure in page.figures if figure["title"] == title)


def test_coverage_is_drawn_against_confidence_beside_the_promise(run, tmp_path):
    page = Page(write_report([run], tmp_path / "page.html"))
    (panel,) = figure_named(page, "Coverage of age")["panels"]
    promised, band, line = panel["marks"]
    assert promised["x"] == promised["y"]
    assert (line["x"], line["y"]) == (CONFIDENCES, [0.55, 0.8, 0.95, 1.0])
    assert (band["low"], band["high"]) == ([0.4, 0.7, 0.85, 0.9], [0.7, 0.9, 1.0, 1.0])
    errors = np.abs(RunFolder(run).errors[:, 0])
    share = f"{100 * (errors <= 10).mean():.3g} %"
    assert f"Intervals of 90 % (normalised) hold {share}" in page.text
    assert "90 % intervals hold" in page.text
    assert "mean width 20.00" in page.text


def test_width_and_coverage_are_drawn_along_the_target_and_by_subgroup(run, tmp_path):
    page = Page(write_report([run], tmp_path / "page.html"))
    widths, shares = figure_named(page, "Width of intervals by age")["panels"]
    assert [mark["mark"] for mark in widths["marks"]] == ["band", "line"]
    assert set(widths["marks"][1]["y"]) == {20.0}
    assert set(shares["marks"][-1]["y"]) == {0.9}
    groups = figure_named(page, "Coverage by camera")["groups"]
    assert [group["name"] for group in groups] == ["left", "right"]
    truth = RunFolder(run)
    here = truth.subgroups["camera"] == "left"
    assert groups[0]["bars"][0]["value"] == pytest.approx(
        (truth.errors[here, 0] <= 10).mean(), abs=1e-3
    )


def test_a_point_is_within_the_band_exactly_if_its_interval_holds_it(run, tmp_path):
    page = Page(write_report([run], tmp_path / "page.html"))
    (figure,) = page.kind("scatter")
    band, (low, high) = figure["band"], figure["limits"]
    for predicted, left, right in zip(*band.values(), strict=True):
        assert left == pytest.approx(max(predicted - 10, low), abs=0.02)
        assert right == pytest.approx(min(predicted + 10, high), abs=0.02)


def test_several_runs_and_targets_have_a_figure_each(tmp_path):
    runs = [with_intervals(tmp_path / name, targets=("pan", "tilt"), seed=s, width=5.0 + s)
            for s, name in enumerate("ab")]  # fmt: skip
    page = Page(write_report(runs, tmp_path / "page.html"))
    for target in ("pan", "tilt"):
        lines = figure_named(page, f"Width of intervals by {target}")["panels"][0]["marks"]
        names = [(mark["name"], mark["y"][0]) for mark in lines if mark["mark"] == "line"]
        assert names == [("a", 10.0), ("b", 12.0)]
    assert "Coverage of pan by camera" in page.text
    assert "90 % intervals of tilt hold" in page.text


def test_a_run_without_intervals_has_no_section_and_no_complaint(tmp_path):
    run, _ = make_run(tmp_path / "old")
    page = Page(write_report([run]))
    assert ("section", {"id": "intervals"}) not in page.elements
    assert "lacks analyses" not in page.text
    assert not any("band" in figure for figure in page.kind("scatter"))


def test_intervals_without_their_analysis_say_what_adds_it(tmp_path):
    run = with_intervals(tmp_path / "run")
    (run / "analyses" / "coverage.json").unlink()
    page = Page(write_report([run]))
    assert "no coverage of the intervals" in page.text
    assert f"rnc evaluate {run} --with coverage" in page.text


def test_a_damaged_analysis_is_named_and_the_page_goes_on(tmp_path):
    run = with_intervals(tmp_path / "run")
    path = run / "analyses" / "coverage.json"
    content = json.loads(path.read_text())
    content["targets"]["age"]["bins"]["coverage"].pop()
    write_json(path, content)
    page = Page(write_report([run]))
    assert "analyses/coverage.json cannot be used" in page.text
    assert page.kind("scatter")


def test_papers_get_the_band_too(run, tmp_path):
    (figure,) = Page(write_report([run], tmp_path / "page.html")).kind("scatter")
    _, with_band = draw_figures([figure], {}, tmp_path / "with")
    _, without = draw_figures([figure | {"band": None}], {}, tmp_path / "without")
    assert with_band.read_text().count("<path") > without.read_text().count("<path")


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason=WHY_NOT)
def test_the_band_and_the_curves_are_drawn_in_a_browser(run, tmp_path):
    browser = Browser(tmp_path / "profile")
    try:
        tab = browser.open(write_report([run], tmp_path / "page.html"))
        tab.settle()
        assert tab.complaints() == []
        box = tab.js("""(() => {
          const { width, height } = document.querySelector(".between").getBoundingClientRect();
          return [width, height];
        })()""")
        assert min(box) > 100
        assert tab.js("document.querySelectorAll('#intervals polyline').length") == 5
        assert tab.js("document.querySelectorAll('#intervals polygon').length") == 3
    finally:
        browser.close()
