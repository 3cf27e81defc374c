"""What a head is: a loss and a decoding of one target, and the options that these read."""

from collections.abc import Callable, Mapping
from numbers import Real
from typing import Any, NamedTuple

from torch import Tensor

HeadOptions = Mapping[str, Any]
"""The options of a head by name: numbers, words or switches."""


class HeadOption(NamedTuple):
    """An option of a head; a value has the type of the default."""

    default: float | str | bool
    check: Callable[[Any], bool]
    needed: str
    """What `check` asks for, as the error says it: "> 0"."""


class HeadSpec(NamedTuple):
    """How one target is learned and read.

    `loss(outputs, u, options)` is (n,), finite for finite outputs; `decode(outputs, options)` is
    (n,), in the units of u. The outputs are (n, k), and u is (n,) in float64. Neither function may
    use matrix products, since autocast would round them.
    """

    loss: Callable[[Tensor, Tensor, HeadOptions], Tensor]
    decode: Callable[[Tensor, HeadOptions], Tensor]
    options: Mapping[str, HeadOption] = {}
    outputs: int | Callable[[int], int] = 1
    """How many outputs a target has: a number, or a function of its number of bins."""
    binned: bool = False
    """Whether u counts in bins from low to high. Otherwise it counts in scales from a shift."""
    outputs_are_values: bool = False
    """Whether all outputs are values of u, so that k times the scale makes them 1/k as large.
    Then the exact solver may work in standard deviations."""
    linear: bool = False
    """Whether the loss grows as the error does. Then its gradient is the same in all units, and
    SGD needs units to suit its rates (rnc.training.units)."""

    @property
    def place(self) -> tuple[str, ...]:
        """What says where u = 0 is and how large 1 is."""
        return ("low", "high", "step") if self.binned else ("shift", "scale")

    def width(self, bins: int) -> int:
        """The number of outputs of a target with that many bins."""
        return self.outputs if isinstance(self.outputs, int) else self.outputs(bins)

    def complete(self, name: str, given: HeadOptions) -> dict[str, Any]:
        """Every option of the head with this name: those given, checked, and else the default."""
        for option, value in given.items():
            if option not in self.options:
                raise self.lacks(name, option, value)
        options: dict[str, Any] = {}
        for option, (default, check, needed) in self.options.items():
            value = given.get(option, default)
            if type(default) is float and isinstance(value, Real) and not isinstance(value, bool):
                value = float(value)
            if type(value) is not type(default) or not check(value):
                raise ValueError(f"{option} must be {needed}; got {given[option]!r}.")
            options[option] = value
        return options

    def lacks(self, name: str, option: str, value: object) -> ValueError:
        """What to raise for an option that the head with this name does not have."""
        known = ", ".join([*self.place, *self.options])
        return ValueError(
            f"{option}={value!r} is no option of head {name!r}, which has {known}. Leave it out."
        )
