"""The figures of a report, from arrays."""

import base64

import numpy as np
import pytest

from rnc.report import plots


@pytest.mark.parametrize("shape", [(30, 5), (5, 30), (2, 9), (9, 1)])
def test_projection_is_pca_that_grows_with_the_label(shape):
    features = np.random.default_rng(0).normal(size=shape)
    labels = np.arange(len(features), dtype=float)
    points, shares = plots.project(features, labels)
    centred = features - features.mean(axis=0)
    u, s, _ = np.linalg.svd(centred, full_matrices=False)
    k = min(2, len(s))
    np.testing.assert_allclose(np.abs(points[:, :k]), np.abs(u * s)[:, :k], atol=1e-6)
    np.testing.assert_allclose(shares[:k], (s**2 / (s**2).sum())[:k], atol=1e-9)
    assert (points * (labels - labels.mean())[:, None]).sum(axis=0).min() >= -1e-6


def test_similarities_are_minus_distances_in_the_order_of_the_labels():
    rng = np.random.default_rng(0)
    features, labels = rng.normal(size=(7, 3)), rng.permutation(7).astype(float)
    figure = plots.similarity_figure(features, labels, "age")
    (heatmap,) = figure["data"]
    assert heatmap["z"]["shape"] == "7, 7"
    levels = np.frombuffer(base64.b64decode(heatmap["z"]["bdata"]), np.uint8).reshape(7, 7)
    in_order = [features[labels.tolist().index(label)] for label in range(7)]
    slow = np.array([[-np.sqrt(((a - b) ** 2).sum()) for b in in_order] for a in in_order])
    least = float(heatmap["colorbar"]["ticktext"][0])
    assert least == pytest.approx(slow.min(), rel=1e-2)
    np.testing.assert_allclose(levels / 255 * -slow.min() + slow.min(), slow, atol=0.01)
    assert figure["layout"]["xaxis"]["ticktext"] == ["0", "2", "3", "4", "6"]


def test_large_similarity_matrices_are_thinned_over_the_whole_range():
    labels = np.arange(1000.0)
    figure = plots.similarity_figure(labels[:, None], labels, "age")
    assert figure["data"][0]["z"]["shape"] == "300, 300"
    assert figure["layout"]["xaxis"]["ticktext"][0] == "0"
    assert figure["layout"]["xaxis"]["ticktext"][-1] == "999"
    assert figure["data"][0]["colorbar"]["ticktext"][0] == "-999"


def test_training_curves_are_by_stage_and_panels_without_values_are_left_out():
    values = {"loss": [5.0, 4.0, 9.0], "gap": [1.0, 0.5, np.nan], "error": [np.nan] * 3}
    panels = {title: np.array(column) for title, column in values.items()}
    figure = plots.training_figure(["encoder", "encoder", "head"], panels)
    lines = [(d["name"], d["yaxis"], d["x"], d["y"], d["showlegend"]) for d in figure["data"]]
    assert lines == [
        ("encoder", "y", [1, 2], [5.0, 4.0], True),
        ("head", "y", [3], [9.0], True),
        ("encoder", "y2", [1, 2], [1.0, 0.5], False),
    ]
    titles = [figure["layout"][axis]["title"]["text"] for axis in ("yaxis", "yaxis2")]
    assert titles == ["loss", "gap"]
    assert "yaxis3" not in figure["layout"]
    assert figure["layout"]["yaxis"]["domain"][0] > figure["layout"]["yaxis2"]["domain"][1]


def test_bars_are_those_of_the_largest_groups_in_order_with_a_colour_per_run():
    many = {str(i): (100 - i, float(i)) for i in range(30)}
    figure = plots.subgroup_figure("shop", {"a": {}, "b": many, "c": {"2": (5, 1.5)}})
    b, c = figure["data"]
    assert figure["layout"]["xaxis"]["ticktext"] == [str(i) for i in range(20)]
    assert b["y"] == [float(i) for i in range(20)]
    assert b["customdata"][0] == "n = 100"
    assert (c["x"], c["y"], c["name"]) == ([2], [1.5], "c")
    only_b = plots.subgroup_figure("shop", {"a": many, "b": many})["data"][1]
    assert b["marker"] == only_b["marker"] != c["marker"]
