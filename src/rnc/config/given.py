"""Values of fields as they were given: JSON and flags have lists, Python code has tuples."""

from collections.abc import Mapping
from typing import Any

from rnc.heads import PerTarget


def per_target(value: PerTarget) -> PerTarget:
    """One number as a number; several as a tuple, since JSON and flags give lists."""
    if value is None or isinstance(value, int | float):
        return value
    numbers = tuple(value)
    return numbers[0] if len(numbers) == 1 else numbers or None


def options_of(given: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Options whose sequences are as `per_target` makes them; None for none at all."""
    pairs = (given or {}).items()
    return {k: per_target(v) if isinstance(v, list | tuple) else v for k, v in pairs} or None
