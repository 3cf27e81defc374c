"""The figures of a report from arrays, and the same figures for papers."""

import base64
import re
import sys

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.text import Text
from PIL import Image

from report_page import add_pictures, make_run
from rnc.report import figures, paper, report, samples, write_figures
from rnc.report.figures import ErrorGroup, SimilarityMatrix, TargetBins


def test_a_similarity_matrix_keeps_its_values_as_levels_of_a_byte():
    labels = np.arange(7.0)
    values = -(np.abs(labels[:, None] - labels) ** 0.7)
    figure = figures.heat(SimilarityMatrix("age", labels, values), name="minus L2 distance")
    levels = np.frombuffer(base64.b64decode(figure["levels"]), np.uint8).reshape(7, 7)
    assert figure["low"] == values.min()
    np.testing.assert_allclose(levels / 255 * -values.min() + values.min(), values, atol=0.01)
    assert figure["labels"] == [0, 1, 2, 3, 4, 5, 6]


def test_losses_are_by_stage_and_curves_without_values_are_left_out():
    losses = {"loss": [5.0, 4.0, 9.0, 8.0], "above": [1.0, 0.5, np.nan, np.nan]}
    losses = {title: np.array(column) for title, column in losses.items()}
    stages, epochs = ["encoder", "encoder", "head", "head"], np.array([1.0, 2, 1, 2])
    errors = np.array([7.0, 6.0, np.nan, 5.0])
    figure = figures.training_figure(stages, epochs, errors, losses)
    titles = [panel["title"] for panel in figure["panels"]]
    assert titles == ["validation error", "encoder: loss", "encoder: above", "head: loss"]
    marks = [panel["panels"][0]["marks"] for panel in figure["panels"]]
    of_stage = [(m["name"], m["color"], m["x"], m["y"]) for m in marks[0]]
    assert of_stage == [("encoder", "stage-0", [1, 2], [7, 6]), ("head", "stage-1", [4], [5])]
    assert [(m["color"], m["x"], m["y"]) for m in marks[3]] == [("stage-1", [1, 2], [9, 8])]
    assert not any(panel["panels"][0]["zero"] for panel in figure["panels"])
    assert [entry["name"] for entry in figure["legend"]] == ["encoder", "head"]


def test_a_stage_of_one_epoch_has_no_panel_of_its_own():
    one = np.array([1.0])
    figure = figures.training_figure(["head"], one, np.array([np.nan]), {"loss": one})
    assert [panel["title"] for panel in figure["panels"]] == ["loss"]  # there is nothing else
    stages = ["encoder", "encoder", "head"]
    epochs, nothing = np.array([1.0, 2, 1]), np.full(3, np.nan)
    figure = figures.training_figure(stages, epochs, nothing, {"loss": np.array([5.0, 4, 1])})
    assert [panel["title"] for panel in figure["panels"]] == ["encoder: loss"]


@pytest.mark.parametrize(("last", "log"), [(0.9, False), (0.1, True), (-0.1, False)])
def test_a_loss_that_falls_far_has_a_logarithmic_axis(last, log):
    losses = {"loss": np.array([9.0, 2.0, last])}
    figure = figures.training_figure(["head"] * 3, np.arange(3.0), np.full(3, np.nan), losses)
    assert figure["panels"][0]["panels"][0]["log"] is log


def test_bars_are_those_of_the_largest_groups_in_order_with_a_colour_per_run():
    many = [ErrorGroup(str(i), 100 - i, float(i), i - 0.5, i + 0.5) for i in range(30)]
    figure = figures.subgroup_figure(
        [("b", 1, many), ("c", 2, [ErrorGroup("2", 5, 1.5, None, None)])]
    )
    assert [group["name"] for group in figure["groups"]] == [str(i) for i in range(20)]
    assert [group["bars"][0]["value"] for group in figure["groups"]] == list(range(20))
    b, c = figure["groups"][2]["bars"]
    assert (b["low"], b["high"], b["n"], b["color"]) == (1.5, 2.5, 98, 1)
    assert (c["value"], c["low"], c["high"], c["color"]) == (1.5, None, None, 2)


def test_values_that_look_alike_when_cut_short_keep_a_bar_each():
    ends = [f"{'x' * 40}{i}{'y' * 40}" for i in range(3)]
    figure = figures.subgroup_figure([("a", 0, [ErrorGroup(e, 9, 1.0, None, None) for e in ends])])
    assert len(figure["groups"]) == 3


def test_error_by_value_shows_training_samples_where_they_are_known():
    one = np.ones(2)
    bins = TargetBins(np.array([0.0, 10, 20]), 3 * one, 2 * one, one, np.array([3, np.nan]), None)
    above, below = figures.bins_figure("age", [("a", 0, bins)])["panels"]
    assert (below["title"], below["marks"][0]["y"]) == ("test samples", [3, 3])
    band, line = above["marks"]
    assert (band["x"], band["low"], band["high"]) == ([5], [1], [3])
    assert (line["x"], line["y"]) == ([5, 15], [2, 2])
    known = bins._replace(n_train=np.array([70.0, 5.0]))
    _, below = figures.bins_figure("age", [("a", 0, known)])["panels"]
    assert (below["title"], below["marks"][0]["y"]) == ("training samples", [70, 5])


# ------------------------------------------------------------------------------------------- paper


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    folder = tmp_path_factory.mktemp("paper")
    run, _ = make_run(folder / "run", columns={"price in $": [r"$\oops{$", "<b>"] * 20})
    add_pictures(run)
    return {path.name: path for path in write_figures([run], folder / "figures")}


def test_every_figure_is_written_as_png_and_svg(drawn):
    stems = {name.rsplit(".", 1)[0] for name in drawn}
    maps = {"age", "camera", "price-in", "age-predicted", "absolute-error"}
    assert {f"map-run-by-{name}" for name in maps} <= stems
    others = {"similarity-run", "predicted-run-age", "error-by-age", "subgroups-camera"}
    assert others | {"subgroups-price-in", "training-run"} == {
        s for s in stems if "-by-" not in s
    } | {"error-by-age"}
    assert set(drawn) == {f"{stem}.{ending}" for stem in stems for ending in ("png", "svg")}


def test_figures_fit_a_column_of_a_paper(drawn):
    for name, path in drawn.items():
        if name.endswith(".png"):
            with Image.open(path) as image:
                assert image.width == pytest.approx(3.3 * 300, abs=2)
                assert image.info["dpi"][0] == pytest.approx(300, abs=1)
        else:
            width = re.search(r'<svg[^>]* width="([\d.]+)pt"', path.read_text())[1]
            assert float(width) == pytest.approx(3.3 * 72, abs=0.5)


def test_no_text_of_a_figure_is_smaller_than_seven_points(drawn):
    content = report._content([drawn["training-run.svg"].parent.parent / "run"])
    data = samples.page_data(content.runs, content.pictures)
    sizes = []
    for figure in content.figures:
        for _, drawing in paper._drawings(figure, data):
            with mpl.rc_context(paper.STYLE):
                drawing.draw_without_rendering()  # makes the numbers at the axes
            texts = (text for text in drawing.findobj(Text) if text.get_text())
            sizes += [text.get_fontsize() for text in texts]
    assert len(sizes) > 150
    assert min(sizes) >= 7


def test_figures_hold_no_markup_from_files(drawn):
    for name, path in drawn.items():
        if name.endswith(".svg"):
            assert "<b>" not in path.read_text()


def test_the_same_run_gives_the_same_figures(drawn, tmp_path):
    run = drawn["training-run.svg"].parent.parent / "run"
    again = {path.name: path for path in write_figures([run], tmp_path)}
    assert all(again[name].read_bytes() == path.read_bytes() for name, path in drawn.items())


def test_without_matplotlib_the_extra_is_named(tmp_path, monkeypatch):
    run, _ = make_run(tmp_path / "run")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.delitem(sys.modules, "rnc.report.paper", raising=False)
    with pytest.raises(
        ImportError, match=r"need matplotlib: pip install 'rank-n-contrast\[figures"
    ):
        write_figures([run], tmp_path / "figures")
