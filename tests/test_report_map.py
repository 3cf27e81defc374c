"""Which samples a report shows, and what their colours mean."""

import numpy as np
import torch

from report_page import Page, make_run, write_csv
from rnc.analyses.registry import analyse
from rnc.files import write_json, write_tensors
from rnc.report import write_report


def test_predictions_share_their_axes_over_the_runs(tmp_path):
    runs = [make_run(tmp_path / name, seed=seed) for seed, name in enumerate("ab")]
    page = Page(write_report([run for run, _ in runs]))
    figures = page.kind("scatter")
    for figure, (_, true) in zip(figures, runs, strict=True):
        np.testing.assert_allclose(figure["x"], true[:, 0], atol=0.005)
        assert page.names_of(figure)[3] == "face-3.png"
        assert figure["limits"] == figures[0]["limits"]


def test_more_than_4000_points_are_thinned_and_the_page_says_so(tmp_path):
    run, _ = make_run(tmp_path / "run", n=5000)
    page = Page(write_report([run]))
    (figure,) = page.kind("scatter")
    assert len(figure["x"]) == len(set(page.names_of(figure))) == 4000
    assert "4,000 of 5,000 points of run" in page.text
    assert "2,000 samples. Order kept" in page.text
    assert "200 samples" in page.text


def test_a_large_map_is_thinned_and_the_page_says_so(tmp_path):
    run, true = make_run(tmp_path / "run", n=4500)
    rows = list(range(4500))
    content = {"method": "umap", "rows": rows, "x": true[:, 0].tolist(), "y": rows}
    write_json(run / "analyses" / "map.json", content)
    page = Page(write_report([run]))
    (figure,) = page.kind("map")
    assert "4,000 samples of 4,500, chosen at random" in page.text
    assert figure["titles"] == ["UMAP 1", "UMAP 2"]
    ages = [float(true[int(name[5:-4]), 0]) for name in page.names_of(figure)]
    np.testing.assert_allclose(figure["x"], ages, atol=0.01)


def test_the_map_switches_between_targets_columns_predictions_and_errors(tmp_path):
    cities = {"city": [f"city {i % 12}" for i in range(40)]}
    one, true = make_run(tmp_path / "a", columns=cities)
    other, _ = make_run(tmp_path / "b", columns={"light": np.linspace(0, 1, 40)})
    page = Page(write_report([one, other]))
    options = [tag for tag, _ in page.elements if tag == "option"]
    names = [column["name"] for column in page.data["columns"]]
    assert len(options) == len(names)
    assert names == ["age", "camera", "city", "light", "age, predicted", "absolute error"]
    rows = [int(name[5:-4]) for name in page.names_of(page.kind("map")[0])]
    np.testing.assert_allclose(page.coloring("age")[1], true[rows, 0], atol=0.005)
    predicted = np.array(page.coloring("age, predicted")[1])
    errors = np.abs(predicted - true[rows, 0])
    np.testing.assert_allclose(page.coloring("absolute error")[1], errors, atol=0.02)
    camera, codes = page.coloring("camera")
    assert camera["categories"] == ["left", "right"]
    assert codes == [1 - row % 2 for row in rows]
    city, _ = page.coloring("city")
    assert len(city["categories"]) == 10
    assert (city["categories"][-1], city["rest"]) == ("(other)", True)
    assert page.coloring("light")[1] is None  # not a column of this run
    assert page.coloring("light", run=1)[0]["categories"] == []


def test_a_further_number_of_a_sample_colours_the_map_and_makes_no_subgroup(tmp_path):
    roles = {"age_spread": "extra", "camera": "subgroup"}
    run, _ = make_run(
        tmp_path / "run",
        columns={"age_spread": np.arange(40.0)},
        scores={"columns": roles, "subgroups": {"camera": {"left": {}, "right": {}}}},
    )
    page = Page(write_report([run]))
    names = [column["name"] for column in page.data["columns"]]
    assert names == ["age", "camera", "age, predicted", "age_spread", "absolute error"]
    rows = [int(name[5:-4]) for name in page.names_of(page.kind("map")[0])]
    assert page.coloring("age_spread")[1] == rows
    assert "Error by age_spread" not in page.text


def test_features_belong_to_the_rows_they_name(tmp_path):
    run, true = make_run(tmp_path / "run")
    rows = torch.tensor([30, 2, 17, 5])
    features = torch.tensor(true[rows], dtype=torch.float32)  # one feature: the age itself
    write_tensors(run / "features.safetensors", {"features": features, "rows": rows})
    analyse(run, "pca")
    page = Page(write_report([run]))
    (figure,) = page.kind("map")
    assert page.names_of(figure) == [f"face-{row}.png" for row in rows]
    ages = np.array(page.coloring("age")[1])
    np.testing.assert_allclose(figure["x"], ages - ages.mean(), atol=0.02)


def test_colours_mean_the_same_in_every_run(tmp_path):
    runs = [make_run(tmp_path / name, seed=seed)[0] for seed, name in enumerate("ab")]
    write_csv(runs[0] / "predictions.csv", {"name": "x", "age": [5.0, 7.0], "age_predicted": 1.0})
    features = {"features": torch.randn(2, 3), "rows": torch.tensor([0, 1])}
    write_tensors(runs[0] / "features.safetensors", features)
    analyse(runs[0], "pca")
    scale, _ = Page(write_report(runs)).coloring("age")
    assert scale["high"] > 80
    assert scale["low"] < 5


def test_columns_of_text_stay_text(tmp_path):
    countries = {"country": ["NA", "", "DE", "None"] * 10}
    run, _ = make_run(tmp_path / "run", columns=countries)
    country, _ = Page(write_report([run])).coloring("country")
    assert country["categories"] == ["(empty)", "DE", "NA", "None"]


def test_numbers_that_name_things_are_categories_and_amounts_are_not(tmp_path):
    codes = [65, 75, 162, 858, 3297, 3395, 5020, 5021, 8733, 8953, 9706, 17603]
    columns = {"camera": [str(codes[i % 12]) for i in range(40)]}
    columns |= {"year": [str(2000 + i % 12) for i in range(40)]}
    columns |= {"mass": [str(7.5 * (i % 12) ** 2) for i in range(40)]}
    run, _ = make_run(tmp_path / "run", columns=columns)
    page = Page(write_report([run]))
    camera, _ = page.coloring("camera")
    assert camera["categories"][:3] == ["65", "75", "162"]
    assert (len(camera["categories"]), camera["rest"]) == (10, True)
    for name in ("year", "mass"):
        assert page.coloring(name)[0]["categories"] == []


def test_a_run_has_one_colour_in_all_figures(tmp_path):
    runs = [make_run(tmp_path / name, seed=seed)[0] for seed, name in enumerate("ab")]
    page = Page(write_report(runs))
    assert [figure["color"] for figure in page.kind("scatter")] == [0, 1]
    answer, subgroups = page.kind("rows")
    assert sorted(group["bars"][0]["color"] for group in answer["groups"]) == [0, 1]
    assert [(bar["name"], bar["color"]) for bar in subgroups["groups"][0]["bars"]] == [
        ("a", 0),
        ("b", 1),
    ]
