"""Features in two dimensions and in pairs, and how the values of a column become colours."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
from numpy.typing import NDArray
from scipy.linalg import eigh  # type: ignore[import-untyped]

from rnc.report.analyses import Similarity
from rnc.run.groups import natural_key

Array = NDArray[np.float64]

MAX_SIDE = 200
"""Rows of a similarity matrix; more are finer than a screen."""
MAX_CATEGORIES = 10
"""Values of a column that get a colour each."""

REST = "(other)"
EMPTY = "(empty)"


def project(features: Array, labels: Array) -> tuple[Array, tuple[float, float]]:
    """First two principal components (n, 2) of features (n, d), and their shares of the variance.

    Each component points to where the labels (n,) grow, so that maps of several runs compare.
    """
    centred = features - features.mean(axis=0)
    # The smaller of the two square matrices has the same leading eigenvalues.
    wide = centred.shape[1] > centred.shape[0]
    square = centred @ centred.T if wide else centred.T @ centred
    last = len(square) - 1
    values, vectors = eigh(square, subset_by_index=(max(0, last - 1), last))
    values, vectors = values[::-1].clip(0), vectors[:, ::-1]
    points = vectors * np.sqrt(values) if wide else centred @ vectors
    if points.shape[1] == 1:
        points, values = np.hstack([points, np.zeros_like(points)]), np.append(values, 0.0)
    for column in points.T:
        if (column * (labels - labels.mean())).sum() < 0:
            column *= -1
    shares = values / (np.trace(square) or 1.0)
    return points, (float(shares[0]), float(shares[1]))


def similarity(features: Array, labels: Array, target: str) -> Similarity:
    """Minus the L2 distance between features (n, d), rows and columns in the order of labels (n,).

    More than 200 samples are thinned evenly in that order.
    """
    order = np.argsort(labels, kind="stable")
    order = order[_evenly(len(order))]
    chosen = features[order]
    squares = (chosen**2).sum(axis=1)
    distances = np.sqrt((squares[:, None] + squares - 2 * chosen @ chosen.T).clip(0))
    np.fill_diagonal(distances, 0)
    return Similarity(target, labels[order], -distances)


def thinned(whole: Similarity) -> Similarity:
    """At most 200 rows of a similarity matrix, evenly."""
    kept = _evenly(len(whole.labels))
    return Similarity(whole.target, whole.labels[kept], whole.matrix[np.ix_(kept, kept)])


def _evenly(n: int) -> NDArray[np.int64]:
    return np.linspace(0, n - 1, min(n, MAX_SIDE)).round().astype(np.int64)


# ------------------------------------------------------------------------------------- colours


class Scale(NamedTuple):
    """How a column becomes a colour: by its category, or between two numbers."""

    categories: tuple[str, ...]
    low: float = 0.0
    high: float = 1.0


def color_scale(values: NDArray[Any]) -> Scale:
    """A scale for the values of a column over all runs: numbers, or texts of any kind.

    Up to ten different texts are categories; of more, the nine most frequent ones are.

    >>> color_scale(np.array([3.0, 5.0])), color_scale(np.array(["b", "a", "b"])).categories
    (Scale(categories=(), low=3.0, high=5.0), ('a', 'b'))
    """
    if values.dtype.kind == "f":
        return Scale((), *limits_of(values))
    texts, counts = np.unique(values, return_counts=True)
    if len(texts) <= MAX_CATEGORIES:
        return Scale(tuple(sorted(texts.tolist(), key=natural_key)))
    frequent = texts[np.argsort(-counts, kind="stable")[: MAX_CATEGORIES - 1]].tolist()
    return Scale((*sorted(frequent, key=natural_key), REST))


def codes(values: NDArray[Any], scale: Scale) -> list[int]:
    """Which category each text is; the last one for the rest."""
    places = {text: code for code, text in enumerate(scale.categories)}
    return [places.get(value, len(places) - 1) for value in values.tolist()]


def alike(parts: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
    """A column of several runs: numbers if it is a target or has many values that are numbers."""
    texts = [part for part in parts if part.dtype.kind != "f"]
    distinct = np.unique(np.concatenate([*texts, np.empty(0, np.str_)]))
    numbers = pd.to_numeric(pd.Series(distinct), errors="coerce")
    many = len(distinct) > MAX_CATEGORIES and np.isfinite(numbers).all()
    if len(texts) == len(parts) and not many:
        return [np.where(part == "", EMPTY, part) for part in parts]
    return [pd.to_numeric(pd.Series(part), errors="coerce").to_numpy(np.float64) for part in parts]


def limits_of(values: NDArray[Any]) -> tuple[float, float]:
    """Least and largest finite number; 0 and 1 where there is none.

    >>> limits_of(np.array([3.0, np.nan, 5.0]))
    (3.0, 5.0)
    """
    finite = values[np.isfinite(values)]
    return (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 1.0)
