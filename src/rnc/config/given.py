"""Normalise values of config fields: JSON and flags give lists, Python code gives tuples."""

from collections.abc import Mapping
from typing import Any

from rnc.heads import PerTarget


def per_target(value: PerTarget) -> PerTarget:
    """A single number as a number, several as a tuple, none at all as None."""
    if value is None or isinstance(value, int | float):
        return value
    numbers = tuple(value)
    return numbers[0] if len(numbers) == 1 else numbers or None


def options_of(given: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Options with their sequences normalised by `per_target`; None if there are no options."""
    pairs = (given or {}).items()
    return {k: per_target(v) if isinstance(v, list | tuple) else v for k, v in pairs} or None
