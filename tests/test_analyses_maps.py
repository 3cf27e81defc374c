"""Maps and similarity matrices of the features of a run."""

import sys
from importlib.machinery import ModuleSpec
from types import ModuleType

import numpy as np
import pytest
import torch
from sklearn.neighbors import NearestNeighbors

from evaluation_cases import table_of, untrained, with_config, written
from rnc.analyses.analysis import AnalysisOptions
from rnc.analyses.maps import default_method, map_features, principal_components, sorted_similarity
from rnc.analyses.registry import analyse
from rnc.files import read_tensors
from rnc.run.folder import DoesNotApply

FEATURES = np.random.default_rng(0).normal(size=(60, 5)) * [9, 4, 1, 1, 1]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return untrained(tmp_path_factory.mktemp("run"), table_of(n=240))


def fake_umap(monkeypatch):
    """A module umap that notes how it was called."""
    calls = []

    class UMAP:
        def __init__(self, **options):
            calls.append(options)

        def fit_transform(self, features):
            return features[:, :2]

    module = ModuleType("umap")
    module.UMAP, module.__spec__ = UMAP, ModuleSpec("umap", None)
    monkeypatch.setitem(sys.modules, "umap", module)
    return calls


def test_pca_keeps_distances_as_far_as_two_dimensions_go():
    points = map_features(FEATURES, "pca")
    centred = FEATURES - FEATURES.mean(axis=0)
    _, vectors = np.linalg.eigh(centred.T @ centred)
    expected = centred @ vectors[:, ::-1][:, :2] / np.abs(centred).max()
    np.testing.assert_allclose(np.abs(points), np.abs(expected), atol=1e-8)


@pytest.mark.parametrize("method", ["pca", "tsne"])
def test_the_same_features_give_the_same_map_whatever_their_unit(method):
    points = map_features(FEATURES, method)
    assert points.shape == (60, 2)
    assert np.isfinite(points).all()
    np.testing.assert_array_equal(map_features(FEATURES, method), points)
    if method == "pca":
        np.testing.assert_allclose(map_features(1e-30 * FEATURES, method), points, rtol=1e-6)
    else:
        assert np.isfinite(map_features(1e-30 * FEATURES, method)).all()


def test_tsne_keeps_neighbours_together():
    rng = np.random.default_rng(0)
    which = np.arange(120) % 3
    features = 50 * np.eye(8)[which] + rng.normal(size=(120, 8))
    points = map_features(features, "tsne")
    near = NearestNeighbors(n_neighbors=6).fit(points).kneighbors(return_distance=False)
    assert (which[near] == which[:, None]).mean() > 0.97


@pytest.mark.parametrize(("k", "d"), [(4, 1), (4, 7), (9, 2)])
@pytest.mark.parametrize("method", ["pca", "tsne"])
def test_few_samples_or_one_feature_make_a_map_too(method, k, d):
    points = map_features(FEATURES[:k, :1].repeat(d, axis=1), method)
    assert points.shape == (k, 2)
    assert np.isfinite(points).all()


@pytest.mark.parametrize("shape", [(30, 5), (5, 30), (2, 9), (9, 1)])
def test_principal_components_and_their_shares_are_those_of_the_singular_values(shape):
    values = np.random.default_rng(0).normal(size=shape)
    points, shares = principal_components(values)
    u, s, _ = np.linalg.svd(values - values.mean(axis=0), full_matrices=False)
    k = min(2, len(s))
    np.testing.assert_allclose(np.abs(points[:, :k]), np.abs(u * s)[:, :k], atol=1e-6)
    np.testing.assert_allclose(shares[:k], (s**2 / (s**2).sum())[:k], atol=1e-9)


def test_the_plain_map_grows_with_the_first_target(run):
    analyse(run, "pca")
    found = written(run, "pca")
    assert list(found) == ["rows", "x", "y", "shares"]
    points = np.stack([found["x"], found["y"]], axis=1)
    expected, shares = principal_components(run.features.astype(np.float64))
    np.testing.assert_allclose(np.abs(points), np.abs(expected))
    assert found["shares"] == shares.tolist()
    labels = run.truth[found["rows"], 0]
    assert (points * (labels - labels.mean())[:, None]).sum(axis=0).min() > 0


def test_a_map_names_the_rows_of_its_points(run):
    analyse(run, "map", AnalysisOptions(map_method="pca"))
    found = written(run, "map")
    assert list(found) == ["method", "rows", "x", "y"]
    assert found["method"] == "pca"
    assert found["rows"] == run.rows.tolist() == list(range(80))
    points = map_features(run.features, "pca")
    np.testing.assert_allclose(np.stack([found["x"], found["y"]], axis=1), points)


def test_umap_is_the_default_where_it_is_installed(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "umap", None)
    monkeypatch.setattr("rnc.analyses.maps.find_spec", lambda name: None)
    assert default_method() == "tsne"
    monkeypatch.undo()
    calls = fake_umap(monkeypatch)
    assert default_method() == "umap"
    analyse(run, "map")
    assert written(run, "map")["method"] == "umap"
    assert calls == [{"n_components": 2, "n_neighbors": 15, "random_state": 0, "n_jobs": 1}]


@pytest.mark.slow
def test_umap_itself_makes_the_same_map_again_and_keeps_neighbours_together():
    """Its own code, which compiles for some seconds: all in one test."""
    threads = torch.get_num_threads()
    which = np.arange(60) % 3
    features = 50 * np.eye(5)[which] + FEATURES
    points = map_features(features, "umap")
    assert points.shape == (60, 2)
    np.testing.assert_array_equal(map_features(features, "umap"), points)
    near = NearestNeighbors(n_neighbors=5).fit(points).kneighbors(return_distance=False)
    assert (which[near] == which[:, None]).mean() > 0.95
    few = map_features(FEATURES[:4], "umap")
    assert few.shape == (4, 2)
    assert np.isfinite(few).all()
    assert torch.get_num_threads() == threads  # its compiler would leave all cores to PyTorch


def test_what_makes_no_map_is_refused(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "umap", None)
    with pytest.raises(ImportError, match=r"pip install 'rank-n-contrast\[umap\]'.* tsne or pca"):
        map_features(FEATURES, "umap")
    with pytest.raises(ValueError, match="Unknown map method 'isomap'; known are pca, tsne, umap"):
        analyse(run, "map", AnalysisOptions(map_method="isomap"))
    with pytest.raises(ValueError, match=r"k >= 4; got \(3, 5\)"):
        map_features(FEATURES[:3])
    with pytest.raises(DoesNotApply, match="those of all 6 samples are the same"):
        map_features(np.ones((6, 3)), "tsne")
    with pytest.raises(DoesNotApply, match="those of all 6 samples are the same"):
        principal_components(np.ones((6, 3)))


# -------------------------------------------------------------------------------------- similarity


def test_the_matrix_is_in_order_of_the_label(tmp_path):
    table = table_of(n=240, targets=2)
    run = untrained(tmp_path, table, with_config(similarity="cosine"))
    analyse(run, "similarity")
    found, test = written(run, "similarity"), table.rows("test")
    matrix = read_tensors(run.path / "analyses" / "similarity.safetensors")[0]["matrix"].numpy()
    order = np.argsort(table.y[test, 0])
    assert found["target"] == "price"
    assert found["labels"] == table.y[test, 0][order].tolist()
    z = run.features[order].astype(np.float64)
    z /= np.linalg.norm(z, axis=1, keepdims=True)
    assert matrix.dtype == np.float32
    np.testing.assert_allclose(matrix, z @ z.T, atol=1e-6)


def test_many_samples_are_thinned_evenly_in_rank():
    labels = np.random.default_rng(0).permutation(1000) ** 2.0
    features = labels[:, None]
    chosen, matrix = sorted_similarity(features, labels)
    assert matrix.shape == (200, 200)
    ranks = np.sqrt(labels[chosen])
    assert (ranks[0], ranks[-1]) == (0, 999)
    assert set(np.diff(ranks)) <= {5.0, 6.0}
    np.testing.assert_allclose(matrix[0], -labels[chosen], rtol=1e-6)
