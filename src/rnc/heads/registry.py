"""The heads by name: each is a loss and a decoding of one target, with their options."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Real
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid, softplus

from rnc.heads.distributions import LEVELS, between_levels, of_normal
from rnc.heads.distributions import nearest_class as nearest_class
from rnc.heads.intervals import classes_within, corn_within, normal_within, or_within

HeadOptions = Mapping[str, Any]
"""The options of a head by name: numbers, words, switches or several numbers."""


class HeadOption(NamedTuple):
    """An option of a head; a value has the type of the default."""

    default: float | str | bool | tuple[float, ...]
    check: Callable[[Any], bool]
    needed: str
    """What `check` asks for, as the error says it: "> 0"."""


class HeadSpec(NamedTuple):
    """How a head learns and predicts one target.

    `loss(outputs, u, options)` is (n,), finite for finite outputs; `decode(outputs, options)` is
    (n,), in the units of u. The outputs are (n, k), and u is (n,) in float64. Neither function may
    use matrix products, since autocast would round them.
    """

    loss: Callable[[Tensor, Tensor, HeadOptions], Tensor]
    decode: Callable[[Tensor, HeadOptions], Tensor]
    options: Mapping[str, HeadOption] = {}
    outputs: int | Callable[[int, HeadOptions], int] = 1
    """How many outputs a target has: a number, or a function of its number of bins and of the
    options."""
    binned: bool = False
    """Whether u counts in bins from low to high. Otherwise it counts in scales from a shift."""
    outputs_are_values: bool = False
    """Whether all outputs are values of u, so that k times the scale makes them 1/k as large.
    Then the exact solver may work in standard deviations."""
    linear: bool = False
    """Whether the loss grows as the error does. Then its gradient is the same in all units, and
    SGD needs units to suit its rates (rnc.training.objectives)."""
    masses: Callable[[Tensor, HeadOptions], Tensor] | None = None
    """For a binned head: `masses(outputs, options)`, the probability of every class, (n, b)."""
    quantiles: Callable[[Tensor, Sequence[float], HeadOptions], Tensor] | None = None
    """For any other head: `quantiles(outputs, levels, options)`, for q rising levels, is (n, q) in
    the units of u. A head with neither predicts no distribution."""
    deviation: Callable[[Tensor, HeadOptions], Tensor] | None = None
    """`deviation(outputs, options)`, the standard deviation of the predicted distribution, (n,) in
    the units of u, if it is an output of the head."""
    interval: Callable[[Tensor, Tensor, Tensor, HeadOptions], Tensor] | None = None
    """`interval(outputs, lower, upper, options)`: the loss where u is only known to lie between two
    ends, (n,) each, infinite where open. Not needed where outputs are values."""
    chosen_by_loss: bool = False
    """Whether the validation loss, not the validation error, chooses among exact solutions. The
    error sees only a part of what a head learns that is trained for its distribution."""

    @property
    def place(self) -> tuple[str, ...]:
        """The options that say where u = 0 is and how large one unit of u is."""
        return ("low", "high", "step") if self.binned else ("shift", "scale")

    def width(self, bins: int, options: HeadOptions) -> int:
        """The number of outputs of a target with that many bins."""
        return self.outputs if isinstance(self.outputs, int) else self.outputs(bins, options)

    def complete(self, name: str, given: HeadOptions) -> dict[str, Any]:
        """All options of the head `name`: the given ones, checked, and defaults for the rest."""
        for option, value in given.items():
            if option not in self.options:
                raise no_option(name, option, value, self.options)
        options: dict[str, Any] = {}
        for option, (default, check, needed) in self.options.items():
            value = given.get(option, default)
            value = _as_type_of(default, value)
            if type(value) is not type(default) or not check(value):
                raise ValueError(f"{option} must be {needed}; got {given[option]!r}.")
            options[option] = value
        return options


def _as_type_of(default: object, value: Any) -> Any:
    """Numbers converted to the type of the default: a float, or a tuple of floats."""
    if isinstance(default, tuple):
        several = value if isinstance(value, Sequence) and not isinstance(value, str) else [value]
        return tuple(map(float, several)) if all(map(_is_number, several)) else value
    return float(value) if type(default) is float and _is_number(value) else value


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def no_option(head: str, option: str, value: object, known: Iterable[str]) -> ValueError:
    """The error for an option that a head does not have."""
    names = ", ".join(known) or "none"
    return ValueError(
        f"{option}={value!r} is no option of head {head!r}, which has {names}. Leave it out."
    )


# ------------------------------------- one output, which is the prediction in scales of the target


def _l1(outputs: Tensor, u: Tensor, options: HeadOptions) -> Tensor:
    return (outputs[:, 0] - u).abs()


def _mse(outputs: Tensor, u: Tensor, options: HeadOptions) -> Tensor:
    return (outputs[:, 0] - u).square()


def _huber(outputs: Tensor, u: Tensor, options: HeadOptions) -> Tensor:
    beta: float = options["beta"]
    error = (outputs[:, 0] - u).abs()
    inner = error.clamp(max=beta)
    return inner * (error - inner / 2) / beta


def _first(outputs: Tensor, options: HeadOptions) -> Tensor:
    return outputs[:, 0]


# ------------------------------------------------- outputs that are a distribution of the target


def _quantile(outputs: Tensor, u: Tensor, options: HeadOptions) -> Tensor:
    gaps = (u if u.dim() == 2 else u[:, None]) - outputs
    # Level by level: a tensor of levels would be copied to a GPU, which a CUDA graph forbids.
    pairs = zip(gaps.unbind(1), options["levels"], strict=True)
    losses = [torch.maximum(level * gap, (level - 1) * gap) for gap, level in pairs]
    return 2 * torch.stack(losses).mean(dim=0)


def _median(outputs: Tensor, options: HeadOptions) -> Tensor:
    return outputs.sort(dim=1).values[:, options["levels"].index(0.5)]


def _learned_quantiles(outputs: Tensor, levels: Sequence[float], options: HeadOptions) -> Tensor:
    return between_levels(outputs.double().sort(dim=1).values, options["levels"], levels)


def _gaussian(outputs: Tensor, u: Tensor, options: HeadOptions) -> Tensor:
    mean, scale = _normal(outputs, options)
    likelihood = scale.log() + ((u - mean) / scale).square() / 2 + math.log(2 * math.pi) / 2
    beta: float = options["beta"]
    return scale.detach() ** (2 * beta) * likelihood


def _normal_quantiles(outputs: Tensor, levels: Sequence[float], options: HeadOptions) -> Tensor:
    return of_normal(*_normal(outputs, options), levels)


def _deviation(outputs: Tensor, options: HeadOptions) -> Tensor:
    return _normal(outputs, options)[1]


def _gaussian_within(outputs: Tensor, lower: Tensor, upper: Tensor, options: HeadOptions) -> Tensor:
    return normal_within(*_normal(outputs, options), lower, upper)


def _normal(outputs: Tensor, options: HeadOptions) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation, in float64: the square of a large error overflows float32."""
    mean, width = outputs.double().unbind(1)
    floor: float = options["floor"]
    return mean, floor + softplus(width)


# ---------------------------------- outputs that count in bins: one per class or per threshold


def _dex(outputs: Tensor, u: Tensor, options: HeadOptions) -> Tensor:
    return -outputs.log_softmax(dim=1).gather(1, nearest_class(u, outputs.shape[1]))[:, 0]


def _lde(outputs: Tensor, u: Tensor, options: HeadOptions) -> Tensor:
    log_p = _log_gaussian(outputs, u, options["sigma"])
    return -(log_p.exp() * outputs.log_softmax(dim=1)).sum(dim=1)


def _dldl(outputs: Tensor, u: Tensor, options: HeadOptions) -> Tensor:
    log_p = _log_gaussian(outputs, u, options["sigma"])
    divergence = (log_p.exp() * (log_p - outputs.log_softmax(dim=1))).sum(dim=1)
    share = 1 / outputs.shape[1] if options["original"] else 1.0
    alpha: float = options["alpha"]
    return share * divergence + alpha * (_expectation(outputs, options) - u).abs()


def _l2cs(outputs: Tensor, u: Tensor, options: HeadOptions) -> Tensor:
    error = (_expectation(outputs, options) - u).square()
    alpha: float = options["alpha"]
    return _dex(outputs, u - 0.5 if options["original"] else u, options) + alpha * error


def _or(outputs: Tensor, u: Tensor, options: HeadOptions) -> Tensor:
    above = nearest_class(u, outputs.shape[1] + 1) > _indices(outputs)
    return -logsigmoid(torch.where(above, outputs, -outputs)).sum(dim=1)


def _corn(outputs: Tensor, u: Tensor, options: HeadOptions) -> Tensor:
    classes, k = nearest_class(u, outputs.shape[1] + 1), _indices(outputs)
    terms = -logsigmoid(torch.where(classes > k, outputs, -outputs)) * (classes >= k)
    # So the mean over samples is the sum of all terms divided by their number.
    return terms.sum(dim=1) / (classes >= k).sum(dim=1).double().mean()


def _indices(outputs: Tensor) -> Tensor:
    return torch.arange(outputs.shape[1], device=outputs.device)


def _log_gaussian(outputs: Tensor, u: Tensor, sigma: float) -> Tensor:
    deviations = (_indices(outputs) - u[:, None]) / sigma
    return (deviations.square() / -2).log_softmax(dim=1)


def _expectation(outputs: Tensor, options: HeadOptions) -> Tensor:
    return (outputs.softmax(dim=1) * _indices(outputs)).sum(dim=1)


def _or_count(outputs: Tensor, options: HeadOptions) -> Tensor:
    return _count(outputs.sigmoid(), options)


def _corn_count(outputs: Tensor, options: HeadOptions) -> Tensor:
    return _count(outputs.sigmoid().cumprod(dim=1), options)


def _count(above: Tensor, options: HeadOptions) -> Tensor:
    return (above > 0.5).sum(dim=1) if options["decode"] == "class" else above.sum(dim=1)


def _class_masses(outputs: Tensor, options: HeadOptions) -> Tensor:
    return outputs.double().softmax(dim=1)


def _or_masses(outputs: Tensor, options: HeadOptions) -> Tensor:
    # P(above) must fall with the threshold, so the outputs are sorted. That keeps the mean.
    return _between(outputs.double().sigmoid().sort(dim=1, descending=True).values)


def _corn_masses(outputs: Tensor, options: HeadOptions) -> Tensor:
    return _between(outputs.double().sigmoid().cumprod(dim=1))


def _between(above: Tensor) -> Tensor:
    """Masses of classes from the probabilities of being above each: (n, b - 1) -> (n, b)."""
    one, none = above.new_ones(len(above), 1), above.new_zeros(len(above), 1)
    return torch.cat([one, above], dim=1) - torch.cat([above, none], dim=1)


# --------------------------------------------------------------------------------- by name


def _over_classes(
    loss: Callable[[Tensor, Tensor, HeadOptions], Tensor], options: Mapping[str, HeadOption]
) -> HeadSpec:
    return HeadSpec(
        loss,
        _expectation,
        options,
        lambda bins, _: bins,
        binned=True,
        masses=_class_masses,
        interval=classes_within,
    )


def _over_thresholds(
    loss: Callable[[Tensor, Tensor, HeadOptions], Tensor],
    decode: Callable[[Tensor, HeadOptions], Tensor],
    masses: Callable[[Tensor, HeadOptions], Tensor],
    interval: Callable[[Tensor, Tensor, Tensor, HeadOptions], Tensor],
) -> HeadSpec:
    return HeadSpec(
        loss,
        decode,
        _THRESHOLD_OPTIONS,
        lambda bins, _: bins - 1,
        binned=True,
        masses=masses,
        interval=interval,
    )


def _are_levels(levels: tuple[float, ...]) -> bool:
    rise = all(low < high for low, high in zip((0.0, *levels), (*levels, 1.0), strict=True))
    return rise and 0.5 in levels


_DECODE = ("mean", "class")
_BETA = HeadOption(1.0, lambda beta: 0 < beta < math.inf, "> 0")
_SIGMA = {"sigma": HeadOption(2.0, lambda sigma: 0.01 <= sigma < math.inf, ">= 0.01")}
_ALPHA = {"alpha": HeadOption(1.0, lambda alpha: 0 <= alpha < math.inf, ">= 0")}
_ORIGINAL = {"original": HeadOption(False, lambda original: True, "a bool")}
_LEVELS = HeadOption(LEVELS, _are_levels, "rising levels above 0 and below 1 with 0.5 among them")
_FLOOR = HeadOption(0.001, lambda floor: 1e-6 <= floor < math.inf, ">= 1e-6")
_LIKELIHOOD_BETA = HeadOption(0.5, lambda beta: 0 <= beta <= 1, "from 0 to 1")
_THRESHOLD_OPTIONS = {
    "decode": HeadOption("mean", lambda decode: decode in _DECODE, f"one of {_DECODE}")
}

HEADS: dict[str, HeadSpec] = {
    "l1": HeadSpec(_l1, _first, outputs_are_values=True, linear=True),
    "mse": HeadSpec(_mse, _first, outputs_are_values=True),
    "huber": HeadSpec(_huber, _first, {"beta": _BETA}, outputs_are_values=True, linear=True),
    "dex": _over_classes(_dex, {}),
    "dldl": _over_classes(_dldl, _SIGMA | _ALPHA | _ORIGINAL),
    "or": _over_thresholds(_or, _or_count, _or_masses, or_within),
    "corn": _over_thresholds(_corn, _corn_count, _corn_masses, corn_within),
    "l2cs": _over_classes(_l2cs, _ALPHA | _ORIGINAL),
    "lde": _over_classes(_lde, _SIGMA),
    "quantile": HeadSpec(
        _quantile,
        _median,
        {"levels": _LEVELS},
        lambda _, options: len(options["levels"]),
        outputs_are_values=True,
        linear=True,
        quantiles=_learned_quantiles,
        chosen_by_loss=True,
    ),
    "gaussian": HeadSpec(
        _gaussian,
        _first,
        {"beta": _LIKELIHOOD_BETA, "floor": _FLOOR},
        2,
        quantiles=_normal_quantiles,
        deviation=_deviation,
        interval=_gaussian_within,
        chosen_by_loss=True,
    ),
}


def find_head(name: str) -> HeadSpec:
    """The head with a name; raises for an unknown name and lists the known ones."""
    if name not in HEADS:
        raise ValueError(f"head must be one of {', '.join(HEADS)}; got {name!r}.")
    return HEADS[name]
