"""The search space: fields of FitConfig, and the values to try for each."""

import dataclasses
import math
import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from rnc.config import FitConfig
from rnc.config.grid import stage_grid


@dataclass(frozen=True)
class Range:
    """All numbers from low to high; only whole numbers if the field is an int."""

    low: float
    high: float
    log: bool = False
    """Whether the scale is logarithmic: from 0.01 to 0.1 is then as far as from 0.1 to 1."""


@dataclass(frozen=True)
class Choice:
    """A list of values to choose from."""

    values: Sequence[Any]


Space = Mapping[str, Range | Choice]
"""Names of fields of FitConfig, and the values to try for each."""


def default_space(base: FitConfig, kind: str | None = None) -> dict[str, Range | Choice]:
    """The paper's grid of learning rate, weight decay and temperature, from `stage_grid`."""
    return {name: Choice(values) for name, values in stage_grid(base, kind).items()}


def field_type(name: str) -> Any:
    """The type of a field of FitConfig. For an unknown name, the error lists the known ones."""
    known = get_type_hints(FitConfig)
    if name not in known:
        raise ValueError(f"There is no option {name!r} to search; known are {', '.join(known)}.")
    return known[name]


def check_space(space: Space, base: FitConfig) -> dict[str, Range | Choice]:
    """The space with every value converted to its field's type. An invalid value raises."""
    if not space:
        raise ValueError("A search needs at least one option to search, as lr; got none.")
    checked: dict[str, Range | Choice] = {}
    for name, part in space.items():
        kind, values = field_type(name), []
        if isinstance(part, Range):
            limits = _check_range(name, part, kind)
            checked[name], values = limits, [limits.low, limits.high]
        else:
            values = [_check_value(name, value, kind) for value in part.values]
            if len(values) != len(set(values)) or not values:
                raise ValueError(f"{name} needs values that differ; got {list(part.values)}.")
            checked[name] = Choice(values)
        for value in values:
            FitConfig.from_json({**base.to_json(), name: value})  # an invalid value raises
    return checked


_BIN_FIELDS = ("low", "high", "step")
_COUNTING = ("head", "objective", "regularizer", "lds")
"""Fields that decide whether a config uses bins."""


def searches_bins(base: FitConfig, space: Space) -> bool:
    """Whether some head or method in a checked space uses bins."""
    return any(
        dataclasses.replace(base, **{name: value}).uses_bins
        for name, part in space.items()
        if name in _COUNTING and isinstance(part, Choice)
        for value in part.values
    )


def trial_config(base: FitConfig, params: Mapping[str, Any]) -> FitConfig:
    """The config of a trial.

    If heads or methods are searched and those of the trial use no bins, the bins of the base are
    left out.

    >>> base = FitConfig(low=0, high=101, step=1)
    >>> [trial_config(base, {"head": head}).high for head in ("l1", "dex")]
    [None, 101]
    """
    config = dataclasses.replace(base, **params)
    if config.uses_bins or not any(name in params for name in _COUNTING):
        return config
    unused: dict[str, Any] = {name: None for name in _BIN_FIELDS if name not in params}
    return dataclasses.replace(config, **unused)


def _members(kind: Any) -> tuple[Any, ...]:
    return get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)


def _check_range(name: str, part: Range, kind: Any) -> Range:
    number = next((one for one in (int, float) if one in _members(kind)), None)
    if number is None:
        raise ValueError(
            f"{name} is not a number, so it has no range. Give its values as a choice."
        )
    low, high = (_check_value(name, value, number) for value in (part.low, part.high))
    if not low < high or not math.isfinite(low) or not math.isfinite(high):
        raise ValueError(f"A range goes from low to high; {name} got {low!r} to {high!r}.")
    if part.log and low <= 0:
        raise ValueError(f"A range on a log scale starts above 0; {name} starts at {low!r}.")
    return Range(low, high, part.log)


def _check_value(name: str, value: Any, kind: Any) -> Any:
    for one in _members(kind):
        if get_origin(one) is Literal and value in get_args(one):
            return value
        if one is type(None) and value is None:
            return None
        if one is float and isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
        if one is int and isinstance(value, float) and value.is_integer():
            return int(value)
        if type(value) is one:
            return value
    names = " or ".join(getattr(one, "__name__", str(one)) for one in _members(kind))
    if get_origin(kind) is Literal:
        names = f"one of {', '.join(get_args(kind))}"
    raise ValueError(f"{name} must be {names}; got {value!r}.")
