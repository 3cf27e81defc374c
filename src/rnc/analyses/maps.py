"""Pictures of the features: maps in two dimensions, and similarity matrices sorted by label."""

import warnings
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.decomposition import PCA  # type: ignore[import-untyped]
from sklearn.manifold import TSNE  # type: ignore[import-untyped]

from rnc.analyses.analysis import AnalysisOptions
from rnc.loss.pairwise import Pairwise, resolve_similarity
from rnc.run.folder import AnalysisResult, DoesNotApply, RunFolder

MOST_ROWS = 200
LEAST_POINTS = 4

MapMethod = Callable[[NDArray[np.float64], int], NDArray[Any]]
"""Takes features (k, d) and a seed, and returns points (k, 2)."""


def map_analysis(run: RunFolder, options: AnalysisOptions) -> AnalysisResult:
    """A 2-D map of the features in features.safetensors, or of the samples in map_only."""
    method, only = options.map_method or default_method(), options.map_only
    rows, features = run.rows, run.features
    if only is not None:
        kept = np.isin(run.subgroups[only.column][rows], only.values)
        rows, features = rows[kept], features[kept]
    if len(rows) < LEAST_POINTS:
        part = "" if only is None else f" with {only.column} {', '.join(only.values)}"
        raise DoesNotApply(
            f"A map needs at least {LEAST_POINTS} samples; {run.path} has features of "
            f"{len(rows)}{part}."
        )
    options.show(0, 1, f"{method} of {len(rows)} samples")
    x, y = map_features(features, method).T.astype(float).tolist()
    part_of = {} if only is None else {"only": {"column": only.column, "values": [*only.values]}}
    content = {"method": method, "rows": rows.tolist(), "x": x, "y": y, **part_of}
    return AnalysisResult(content)


def map_features(features: NDArray[Any], method: str = "pca", *, seed: int = 0) -> NDArray[Any]:
    """Points in the plane for features: (k, d) -> (k, 2).

    The same features give the same map. With pca, distances are proportional to those of the
    features, as far as two dimensions allow. With tsne and umap, only neighbourhoods are
    meaningful. tsne takes 15 seconds for 2,000 samples on one core.

    >>> map_features(np.eye(5), "pca").shape
    (5, 2)
    """
    check_map_method(method)
    if features.ndim != 2 or len(features) < LEAST_POINTS:
        raise ValueError(
            f"A map needs features (k, d) with k >= {LEAST_POINTS}; got {features.shape}."
        )
    rows = features.astype(np.float64)
    rows = rows - rows.mean(axis=0)
    scale = np.abs(rows).max()
    if scale == 0:
        raise DoesNotApply(_collapsed(len(rows)))
    return MAPS[method](rows / scale, seed)  # only rescales the map; tiny features would underflow


def check_map_method(method: str | None) -> None:
    """Raise for an unknown map method; None stands for the default."""
    if method is not None and method not in MAPS:
        raise ValueError(f"Unknown map method {method!r}; known are {', '.join(MAPS)}.")


def default_method() -> str:
    """The default map method: umap if it is installed, else tsne."""
    return "umap" if find_spec("umap") is not None else "tsne"


def pca(run: RunFolder, _: AnalysisOptions) -> AnalysisResult:
    """The first two principal components of the features, with their shares of the variance."""
    if len(run.rows) < 2:
        raise DoesNotApply(
            f"Principal components need at least 2 samples; {run.path} has features of "
            f"{len(run.rows)}."
        )
    points, shares = principal_components(run.features.astype(np.float64))
    labels = run.truth[run.rows, 0]
    # Each component points to where the labels grow, so that maps of several runs can be compared.
    falls = (points * (labels - labels.mean())[:, None]).sum(axis=0) < 0
    x, y = np.where(falls, -points, points).T.tolist()
    return AnalysisResult({"rows": run.rows.tolist(), "x": x, "y": y, "shares": shares.tolist()})


def principal_components(
    features: NDArray[np.float64], seed: int = 0
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The first two components (k, 2) of features (k, d), and their shares of the variance (2,).

    >>> points, shares = principal_components(np.array([[1.0], [3.0]]))
    >>> points.shape, shares.tolist()
    ((2, 2), [1.0, 0.0])
    """
    if (features == features[0]).all():
        raise DoesNotApply(_collapsed(len(features)))
    components = PCA(min(2, features.shape[1]), random_state=seed)
    points, shares = np.zeros((len(features), 2)), np.zeros(2)  # one feature gives a line
    points[:, : features.shape[1]] = components.fit_transform(features)
    shares[: features.shape[1]] = components.explained_variance_ratio_
    return points, shares


def _collapsed(samples: int) -> str:
    return (
        f"A map needs features that differ; those of all {samples} samples are the same. "
        "The training collapsed: lower its learning rate."
    )


def _pca(features: NDArray[np.float64], seed: int) -> NDArray[Any]:
    return principal_components(features, seed)[0]


def _tsne(features: NDArray[np.float64], seed: int) -> NDArray[Any]:
    perplexity = min(30.0, (len(features) - 1) / 3)
    start = _pca(features, seed)
    start *= 1e-4 / start[:, 0].std()  # a small spread, as the authors of t-SNE advise
    made = TSNE(2, perplexity=perplexity, init=start, learning_rate="auto", random_state=seed)
    return np.asarray(made.fit_transform(features))


def _umap(features: NDArray[np.float64], seed: int) -> NDArray[Any]:
    neighbours, threads = min(15, len(features) - 1), torch.get_num_threads()
    try:
        # With a seed, UMAP uses one thread; it would warn if it were given more.
        made = _umap_module().UMAP(
            n_components=2, n_neighbors=neighbours, random_state=seed, n_jobs=1
        )
        return np.asarray(made.fit_transform(features))
    finally:
        torch.set_num_threads(threads)  # UMAP's compiler changes it for the whole process


def _umap_module() -> Any:
    try:
        with warnings.catch_warnings():
            # UMAP warns if TensorFlow is missing, which a map does not need.
            warnings.simplefilter("ignore", ImportWarning)
            return import_module("umap")
    except ImportError as error:
        raise ImportError(
            "The map method umap needs the extra umap: pip install 'rank-n-contrast[umap]'. "
            "Without it, take --map-method tsne or pca."
        ) from error


MAPS: dict[str, MapMethod] = {"pca": _pca, "tsne": _tsne, "umap": _umap}
MAP_TITLES = {"pca": "PCA", "tsne": "t-SNE", "umap": "UMAP"}


# -------------------------------------------------------------------------------- similarity


def similarity(run: RunFolder, _: AnalysisOptions) -> AnalysisResult:
    """The matrix of the run's similarity of features, sorted by the first target."""
    labels = run.truth[run.rows, 0]
    chosen, matrix = sorted_similarity(run.features, labels, run.fit.similarity)
    content = {"target": run.targets[0], "labels": labels[chosen].tolist()}
    return AnalysisResult(content, {"matrix": torch.from_numpy(matrix)})


def sorted_similarity(
    features: NDArray[Any],
    labels: NDArray[Any],
    similarity: str | Pairwise = "l2",
    most: int = MOST_ROWS,
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Indices of samples, sorted by label, and their similarity matrix: (k,) and (k, k).

    Args:
        features: (n, d).
        labels: (n,).
        similarity: as for `rnc_loss`.
        most: largest number of rows; of more samples, it takes samples evenly spaced in rank.

    >>> sorted_similarity(np.array([[3.0], [1.0], [2.0]]), np.array([3, 1, 2]))[1]
    array([[-0., -1., -2.],
           [-1., -0., -1.],
           [-2., -1., -0.]], dtype=float32)
    """
    order = np.argsort(labels, kind="stable")
    chosen = order[np.linspace(0, len(order) - 1, min(most, len(order))).round().astype(int)]
    z = torch.from_numpy(features[chosen]).double()
    return chosen, resolve_similarity(similarity)(z, z).float().numpy()
