"""The figures of the paper: what they show, and on which data."""

import dataclasses
import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.collections import PathCollection

from rnc.analyses.analysis import AnalysisOptions, MapOnly
from rnc.analyses.registry import analyse
from rnc.data import Table, table_from_arrays
from rnc.experiments import RESULTS, Data, pictures
from rnc.experiments.batch_size import ALONE, CACHED, QUEUED, batch_size
from rnc.experiments.pairs import ranked_pairs, rows_at, toy_batch
from rnc.experiments.paper_figures import MOST_MAPPED
from rnc.experiments.pictures import Material
from rnc.experiments.plan import Finished, Outcome, Plan, Row, Setting, base_config
from rnc.experiments.run import run_plan
from rnc.experiments.store import Store
from rnc.report.figures import CATEGORY_COLORS
from rnc.report.paper import STYLE
from rnc.run.folder import DoesNotApply
from test_experiments_run import FAST, even, run
from training_cases import columns, images, signals


def setting_of(table: Table, **more: Any) -> Setting:
    data = Data.of_table(table, "own", **more)
    return Setting(data, base_config(data, "quick", None, {**FAST, "epochs": 1}), 1)


def material_of(setting: Setting, result: str, outcomes: list[Outcome] | None = None) -> Material:
    return Material(RESULTS[result](setting), [], outcomes or [], setting)


def drawn(draw, material: Material):
    with mpl.rc_context(STYLE):
        return draw(material)


# ---------------------------------------------------------------------------------- the toy batch


def test_the_pairs_of_the_papers_batch_have_the_papers_negatives() -> None:
    """Figure 2: the anchor is 20; with 30 the negatives are 0 and 70, with 0 only 70 is one."""
    ages = [20, 30, 0, 70]
    pairs = ranked_pairs(np.array(ages)[:, None])
    found = {ages[p.positive]: {ages[k] for k in p.negatives} for p in pairs}
    assert found == {30: {0, 70}, 0: {70}, 70: set()}
    assert [pair.distance for pair in pairs] == [10, 20, 50]
    assert [pair.alike for pair in pairs] == pytest.approx(np.log([3, 2, 1]))


def test_a_tie_is_in_the_denominator_of_the_other() -> None:
    pairs = ranked_pairs(np.array([[20.0], [30.0], [10.0], [70.0]]))
    assert [pair.negatives for pair in pairs] == [(2, 3), (1, 3), ()]
    assert [pair.alike for pair in pairs] == pytest.approx(np.log([3, 3, 1]))


def test_the_batch_of_any_data_lies_as_that_of_the_paper() -> None:
    table = even(240)
    first, second, low, high = table.y[toy_batch(table), 0]
    assert low < first < second < high
    share = (np.array([first, second]) - low) / (high - low)
    np.testing.assert_allclose(share, [2 / 7, 3 / 7], atol=0.03)
    assert len(set(toy_batch(table))) == 4
    assert len(rows_at(columns(40), (0.5, 0.5, 0.5))) == 3


def test_a_batch_is_drawn_with_a_frame_for_every_part() -> None:
    setting = setting_of(images(60))
    drawing = drawn(pictures.draw_pairs, material_of(setting, "pairs"))
    titles = [ax.get_title() for ax in drawing.axes]
    assert sum(title.startswith("positive") for title in titles) == 3
    assert sum(title.startswith("negative") for title in titles) == 3
    assert sum(title.startswith("anchor") for title in titles) == 4


# ------------------------------------------------------------------------------------------ views


@pytest.mark.parametrize("table", [images(60), images(60, channels=1), signals()])
def test_samples_stand_above_their_views(tmp_path: Path, table: Table) -> None:
    rows = run("views", tmp_path, table, fit={"image_size": 20, "device": "cpu"})
    assert rows == []
    assert (tmp_path / "views.png").exists()
    assert not (tmp_path / "views.csv").exists()
    setting = setting_of(table)
    drawing = drawn(pictures.draw_views, material_of(setting, "views"))
    assert len(drawing.axes) == 12
    if table.kind == "image":
        pixels = [np.asarray(ax.images[0].get_array()) for ax in drawing.axes]
        assert not np.allclose(pixels[0], pixels[4])  # a view differs from its sample
        assert not np.allclose(pixels[4], pixels[8])  # and from the other view


def test_a_table_of_columns_has_no_picture_of_a_row() -> None:
    with pytest.raises(DoesNotApply, match="views draws images and signals; the rows of own"):
        RESULTS["views"](setting_of(columns()))


# ----------------------------------------------------------------------------------- ten cameras


def cameras(count: int, samples: int = 600) -> Table:
    """Cameras with ids that leave gaps; the first ones have most samples."""
    rng = np.random.default_rng(0)
    ids = 65 + 137 * np.arange(count)
    shares = np.linspace(3, 1, count)
    camera = rng.choice(ids, samples, p=shares / shares.sum())
    y = rng.uniform(0, 30, samples)
    x = np.stack([y, camera / 100, *rng.normal(size=(2, samples))], axis=1)
    return table_from_arrays(x, y, subgroup={"camera": camera})


def test_ten_cameras_are_mapped_and_all_are_trained_on(tmp_path: Path) -> None:
    table = cameras(14)
    setting = setting_of(table, nuisance="camera")
    plan = RESULTS["spurious"](setting)
    assert plan.map_only is not None
    column, values = plan.map_only
    assert (column, len(values)) == ("camera", MOST_MAPPED)
    texts, counts = np.unique(table.subgroup["camera"][table.rows("test")], return_counts=True)
    least = min(n for text, n in zip(texts, counts, strict=True) if str(text) in values)
    assert all(n <= least for text, n in zip(texts, counts, strict=True) if str(text) not in values)
    assert all(run.table is table for run in plan.runs)
    plan = dataclasses.replace(plan, map_method="pca")
    outcomes = finished(plan, setting, tmp_path)
    drawing = drawn(pictures.draw_spurious_maps, Material(plan, [], outcomes, setting))
    right = drawing.axes[1]
    assert [text.get_text() for text in right.get_legend().get_texts()] == list(values)
    (points,) = [c for c in right.collections if isinstance(c, PathCollection)]
    codes = np.asarray(points.get_array())
    assert set(codes) == set(range(10))
    assert len({tuple(points.cmap(points.norm(code))) for code in range(10)}) == 10
    kept = np.isin(table.subgroup["camera"][table.rows("test")].astype(str), values)
    assert len(codes) == kept.sum() < len(kept)


def finished(plan: Plan, setting: Setting, out: Path) -> list[Outcome]:
    """Train a plan, and its outcomes."""
    store = Store(out)
    run_plan("spurious", plan, setting, store, show=lambda record: None, say=lambda text: None)
    return [
        Outcome(line, [Finished(run, store.folder(run)) for run in line.runs])
        for line in plan.lines
    ]


def test_cameras_can_be_chosen() -> None:
    setting = setting_of(cameras(14), nuisance="camera", nuisance_values=("202", "65"))
    assert RESULTS["spurious"](setting).map_only == MapOnly("camera", ("202", "65"))
    missing = setting_of(cameras(14), nuisance="camera", nuisance_values=("66",))
    with pytest.raises(ValueError, match="No test sample has the camera 66; there are 65, 202, "):
        RESULTS["spurious"](missing)


@pytest.mark.parametrize("count", [3, 10])
def test_few_cameras_are_all_mapped(count: int) -> None:
    setting = setting_of(cameras(count), nuisance="camera")
    assert RESULTS["spurious"](setting).map_only is None


def test_amounts_are_no_cameras() -> None:
    table = even(240)
    brightness = np.linspace(0.1, 0.9, 240)
    table = dataclasses.replace(table, subgroup={"brightness": brightness})
    assert RESULTS["spurious"](setting_of(table, nuisance="brightness")).map_only is None


def test_a_map_of_some_values_is_made_again_for_others(tmp_path: Path) -> None:
    setting = setting_of(cameras(14), nuisance="camera", nuisance_values=("65", "202"))
    plan = dataclasses.replace(RESULTS["spurious"](setting), map_method="pca")
    first = finished(plan, setting, tmp_path)[0].finished[0].run
    few = first.analysis("map").content
    assert few["only"] == {"column": "camera", "values": ["65", "202"]}
    assert set(first.subgroups["camera"][few["rows"]]) == {"65", "202"}
    more = dataclasses.replace(plan, map_only=MapOnly("camera", ("65", "339")))
    again = finished(more, setting, tmp_path)[0].finished[0].run
    assert set(again.subgroups["camera"][again.analysis("map").content["rows"]]) == {"65", "339"}
    with pytest.raises(DoesNotApply, match="has features of 0 with camera 1"):
        analyse(first, "map", AnalysisOptions(map_method="pca", map_only=MapOnly("camera", ("1",))))


# ----------------------------------------------------------------------------------------- curves


def test_curves_have_the_means_and_spreads_of_the_table() -> None:
    setting = setting_of(even(240))
    plan = RESULTS["reduced-data"](setting)
    rows, outcomes = [], []
    for i, line in enumerate(plan.lines):
        rows.append(Row(line.method, line.setting, "MAE", (float(i), i + 2.0)))
        outcomes.append(Outcome(line, [Finished(line.runs[0], Path("none"))]))
    drawing = drawn(pictures.draw_sizes, Material(plan, rows, outcomes, setting))
    (ax,) = drawing.axes
    l1, rnc = ax.lines
    sizes = sorted(len(line.runs[0].table.rows("train")) for line in plan.lines[::2])
    assert l1.get_xdata().tolist() == rnc.get_xdata().tolist() == sizes
    assert l1.get_ydata().tolist() == [7.0, 5.0, 3.0, 1.0]  # fewest rows first
    assert rnc.get_ydata().tolist() == [8.0, 6.0, 4.0, 2.0]
    assert ax.get_xscale() == "log"
    assert (l1.get_label(), rnc.get_label()) == ("L1", "RnC(L1)")
    assert len(ax.collections) == 2  # bands of the standard deviation


def test_batches_have_a_curve_per_method_over_the_samples_in_memory() -> None:
    setting = setting_of(even(240))
    plan = batch_size(setting)
    rows = [Row(line.method, line.setting, "MAE", (1.0,)) for line in plan.lines]
    outcomes = [Outcome(line, [Finished(line.runs[0], Path("none"))]) for line in plan.lines]
    (ax,) = drawn(pictures.draw_batches, Material(plan, rows, outcomes, setting)).axes
    assert [line.get_label() for line in ax.lines] == [ALONE, QUEUED, CACHED]
    sizes = [8, 16, 32, 64]
    assert [line.get_xdata().tolist() for line in ax.lines] == [sizes, sizes[:-1], sizes[:-1]]
    assert ax.get_xlabel() == "samples in memory"


def test_without_matplotlib_the_table_is_there_and_the_picture_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "rnc.experiments.pictures", None)
    said: list[str] = []
    rows = run("pairs", tmp_path, even(240), say=said.append)
    assert len(rows) == 9
    assert any("pip install 'rank-n-contrast[figures]'" in text for text in said)
    assert not (tmp_path / "pairs.png").exists()
    assert "png" not in (tmp_path / "pairs.md").read_text()


def test_there_is_a_colour_for_each_value_that_is_mapped() -> None:
    assert len(set(CATEGORY_COLORS)) == MOST_MAPPED
