"""How the values of a column become colours."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
from numpy.typing import NDArray

from rnc.run.groups import natural_key

MAX_CATEGORIES = 10
"""Values of a column that get a colour each."""

REST = "(other)"
EMPTY = "(empty)"


class ColorScale(NamedTuple):
    """How a column becomes a colour: by its category, or between two numbers."""

    categories: tuple[str, ...]
    low: float = 0.0
    high: float = 1.0


def color_scale(values: NDArray[Any]) -> ColorScale:
    """A scale for the values of a column over all runs, numbers or texts.

    Up to ten different texts are categories; of more, the nine most frequent ones are.

    >>> color_scale(np.array([3.0, 5.0])), color_scale(np.array(["b", "a", "b"])).categories
    (ColorScale(categories=(), low=3.0, high=5.0), ('a', 'b'))
    """
    if values.dtype.kind == "f":
        return ColorScale((), *limits_of(values))
    texts, counts = np.unique(values, return_counts=True)
    if len(texts) <= MAX_CATEGORIES:
        return ColorScale(tuple(sorted(texts.tolist(), key=natural_key)))
    frequent = texts[np.argsort(-counts, kind="stable")[: MAX_CATEGORIES - 1]].tolist()
    return ColorScale((*sorted(frequent, key=natural_key), REST))


def category_codes(values: NDArray[Any], scale: ColorScale) -> list[int]:
    """The category of each text, by its number; the last one for all that are not listed."""
    places = {text: code for code, text in enumerate(scale.categories)}
    return [places.get(value, len(places) - 1) for value in values.tolist()]


def as_one_kind(parts: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
    """A column of several runs as numbers in all, or as texts in all.

    It is numbers if one run has it as numbers, or if it has many values and all are numbers.
    """
    texts = [part for part in parts if part.dtype.kind != "f"]
    distinct = np.unique(np.concatenate([*texts, np.empty(0, np.str_)]))
    numbers = pd.to_numeric(pd.Series(distinct), errors="coerce")
    is_number = len(distinct) > MAX_CATEGORIES and np.isfinite(numbers).all()
    if len(texts) == len(parts) and not is_number:
        return [np.where(part == "", EMPTY, part) for part in parts]
    return [pd.to_numeric(pd.Series(part), errors="coerce").to_numpy(np.float64) for part in parts]


def limits_of(values: NDArray[Any]) -> tuple[float, float]:
    """Least and largest finite number; 0 and 1 where there is none.

    >>> limits_of(np.array([3.0, np.nan, 5.0]))
    (3.0, 5.0)
    """
    finite = values[np.isfinite(values)]
    return (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 1.0)
