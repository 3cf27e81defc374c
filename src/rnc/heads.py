"""Heads: how features become predictions, and the loss that teaches them.

    outputs = head(features)                (n, d) -> (n, .), the outputs of all targets in a row
    losses = head.loss(outputs, targets)    (n, t) -> (n,), of which the caller takes a mean
    predictions = head.decode(outputs)      -> (n, t), in the units of the targets

A head never sees units. It works on u = (y - shift) / scale of each target y:

- l1, mse and huber standardise: shift and scale are the mean and the standard deviation of the
  training targets. With shift 0 and scale 1 they are the plain losses. SGD trains l1 and huber with
  a twentieth of that scale (rnc.training.units), so that beta = 1 is about a year of ages.
- The others count in bins: shift is the lowest class centre and scale the step, so that class k
  stands for shift + k * scale. The class c of a target is floor(u + 1/2) within 0 .. b - 1.

Options have no units either: beta counts in scales; sigma, and the error that alpha weighs, count
in bins. With o the outputs of one target, q = softmax(o), e = sum_k k q_k, P = sigmoid(o), and
p_k proportional to exp(-(k - u)^2 / (2 sigma^2)):

    name    loss of one sample                                              decodes to
    l1      |o - u|                                                         o
    mse     (o - u)^2                                                       o
    huber   (o - u)^2 / (2 beta) up to beta, |o - u| - beta / 2 beyond      o
    dex     -log q_c                                      Rothe 2015        e
    lde     -sum_k p_k log q_k                            Chu 2018          e
    dldl    sum_k p_k log(p_k / q_k) + alpha |e - u|      Gao 2018          e
    l2cs    -log q_c + alpha (e - u)^2                    Abdelrahman 2022  e
    or      -sum_{k < c} log P_k - sum_{k >= c} log(1 - P_k)    Niu 2016    sum_k P_k
    corn    -sum_{k < c} log P_k - log(1 - P_c)           Shi 2021          sum_k prod_{i <= k} P_i

Every target has outputs of its own; losses are averaged over targets (released L2CS adds them up).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from rnc.metrics import Columns, Values, as_columns

Decode = Literal["mean", "class"]
PerTarget = float | Sequence[float] | None
_Axis = tuple[float, float, int]  # shift, scale, bins
MOST_STEPS = 10_000


@dataclass(frozen=True)
class HeadConfig:
    """All that rebuilds a head but its weights; JSON of its fields is enough.

    >>> import json
    >>> config = head_config("dldl", 8, np.array([20.0, 31.0, 64.0]), sigma=3.0)
    >>> HeadConfig(**json.loads(json.dumps(vars(config)))) == config
    True
    """

    name: str
    d: int
    shift: tuple[float, ...]
    """Per target: the mean of the training targets, or the lowest class centre."""
    scale: tuple[float, ...]
    """Per target: what errors count in, as their standard deviation; or the step of classes."""
    bins: tuple[int, ...]
    """Per target: the number of classes; 1 for l1, mse and huber."""
    beta: float = 1.0
    sigma: float = 2.0
    alpha: float = 1.0
    decode: Decode = "mean"
    original: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "shift", tuple(self.shift))  # JSON has lists only
        object.__setattr__(self, "scale", tuple(self.scale))
        object.__setattr__(self, "bins", tuple(self.bins))
        _check_config(self)


class HeadMethod(NamedTuple):
    """What a name stands for: how one target is learned and read."""

    loss: Callable[[Tensor, Tensor, HeadConfig], Tensor]
    decode: Callable[[Tensor, HeadConfig], Tensor]
    options: tuple[str, ...]
    binned: bool = True
    fewer: int = 0
    """How many outputs it has less than bins."""


class Head(nn.Module):
    """A linear layer, with the loss and the decoding of the method that the config names.

    Finite outputs have a finite loss and gradient, up to the range of the dtype. Losses are
    float32, or float64 for float64 outputs. A target that is NaN has loss NaN.

    >>> ages = torch.tensor([20.0, 30.0, 64.0])
    >>> head = make_head("corn", 8, ages)
    >>> outputs = head(torch.randn(3, 8))
    >>> outputs.shape, head.loss(outputs, ages).shape, head.decode(outputs).shape
    (torch.Size([3, 44]), torch.Size([3]), torch.Size([3, 1]))
    """

    def __init__(self, config: HeadConfig) -> None:
        super().__init__()
        self.config = config
        self.method = HEADS[config.name]
        self.widths = [b - self.method.fewer for b in config.bins]
        self.linear = nn.Linear(config.d, sum(self.widths))

    def forward(self, features: Tensor) -> Tensor:
        """Outputs of all targets side by side: (n, d) -> (n, .)."""
        self._check("features", features, self.config.d)
        outputs: Tensor = self.linear(features.to(self.linear.weight.dtype))
        return outputs

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """One loss per sample: (n, .) with (n, t), or (n,) for a single target -> (n,).

        Those of corn depend on the batch: it divides by its number of (sample, threshold) terms.
        """
        columns = targets[:, None] if targets.dim() == 1 else targets
        self._check("targets", columns, len(self.widths), like=outputs)
        losses = []
        for i, block in enumerate(self._blocks(outputs)):
            u = (columns[:, i].double() - self.config.shift[i]) / self.config.scale[i]
            # 0 * u is 0, or NaN where a class would otherwise be made up for a missing target.
            losses.append(self.method.loss(block, u, self.config) + 0 * u)
        mean = torch.stack(losses).mean(dim=0)
        return mean if outputs.dtype == torch.float64 else mean.float()

    def decode(self, outputs: Tensor) -> Tensor:
        """Predictions in the units of the targets: (n, .) -> (n, t) in float64."""
        # float64, since the shift of a date is large beside its scale.
        u = [self.method.decode(block, self.config).double() for block in self._blocks(outputs)]
        axes = zip(u, self.config.shift, self.config.scale, strict=True)
        return torch.stack([shift + scale * v for v, shift, scale in axes], dim=1)

    def _blocks(self, outputs: Tensor) -> tuple[Tensor, ...]:
        self._check("outputs", outputs, sum(self.widths))
        outputs = outputs if outputs.dtype == torch.float64 else outputs.float()
        return torch.split(outputs, self.widths, dim=1)

    def _check(self, what: str, rows: Tensor, width: int, like: Tensor | None = None) -> None:
        n = "n" if like is None else like.shape[0]
        if rows.dim() != 2 or rows.shape[1] != width or n not in ("n", rows.shape[0]):
            raise ValueError(
                f"head {self.config.name!r} needs {what} ({n}, {width}); got {tuple(rows.shape)}."
            )


# ----------------------------------------------------------------------------- making a head


def head_config(
    name: str,
    d: int,
    train_targets: Values,
    *,
    shift: PerTarget = None,
    scale: PerTarget = None,
    low: PerTarget = None,
    high: PerTarget = None,
    step: PerTarget = None,
    beta: float = 1.0,
    sigma: float = 2.0,
    alpha: float = 1.0,
    decode: Decode = "mean",
    original: bool = False,
) -> HeadConfig:
    """The config of a head for these training targets; an option that it lacks is refused.

    One number for shift, scale, low, high or step holds for all targets, a sequence gives one for
    each, and None derives it from the training targets.

    Args:
        name: one of HEADS.
        d: number of features.
        train_targets: (m,) or (m, t).
        shift: for l1, mse and huber, what to subtract: the mean.
        scale: and to divide by: the standard deviation.
        low: for the other heads, the lowest class centre: the lowest target. Targets beyond the
            classes count as the nearest class.
        high: the last class centre is the first one at or above it: the highest target.
        step: between class centres: 1 if all training targets are whole numbers and high - low is
            at most 200, otherwise (high - low) / 100.
        beta: for huber, where the square ends, in scales.
        sigma: for dldl and lde, the width of the target distribution, in bins.
        alpha: for dldl and l2cs, the weight of the error of the expectation, in bins. Released
            code counts in target units: alpha = step (dldl) or step^2 (l2cs) is their weight 1.
        decode: for or and corn, "mean" is the expected class, continuous as that of the other
            heads; "class" counts the thresholds with P > 1/2 as the originals do: the median.
        original: do as released code does. dldl divides the divergence by the number of bins;
            l2cs takes class centres for left edges: its class is floor(u).
    """
    method = _method(name)
    place = {"shift": shift, "scale": scale, "low": low, "high": high, "step": step}
    for option, value in place.items():
        if value is not None and option not in method.options:
            raise _no_option(name, option, value)
    columns = as_columns(train_targets, "train_targets")
    given = [_each(k, v, columns.shape[1]) for k, v in place.items() if k in method.options]
    derive: Callable[..., _Axis] = _bins if method.binned else _standardise
    axes = [derive(i, columns[:, i], *axis) for i, axis in enumerate(zip(*given, strict=True))]
    shifts, scales, bins = zip(*axes, strict=True)
    return HeadConfig(name, d, shifts, scales, bins, beta, sigma, alpha, decode, original)


def build_head(config: HeadConfig) -> Head:
    """A new head with this config."""
    return Head(config)


def make_head(name: str, d: int, targets: Values) -> Head:
    """A new head for these training targets; with options, `build_head(head_config(...))`."""
    return build_head(head_config(name, d, targets))


def _standardise(i: int, y: Columns, shift: float | None, scale: float | None) -> _Axis:
    _check_varies(i, y, given=scale is not None)
    mean, deviation = float(y.mean()), float(y.std())
    return mean if shift is None else shift, deviation if scale is None else scale, 1


def _bins(i: int, y: Columns, low: float | None, high: float | None, step: float | None) -> _Axis:
    _check_varies(i, y, given=low is not None or high is not None)
    low, high = float(y.min()) if low is None else low, float(y.max()) if high is None else high
    if not low < high or not ((low <= y) & (y <= high)).any():
        raise ValueError(
            f"target {i} needs low < high with training targets in between, which go from "
            f"{y.min()} to {y.max()}; got low={low} and high={high}."
        )
    if step is None:
        whole = bool((y == np.floor(y)).all())
        step = 1.0 if whole and high - low <= 200 else (high - low) / 100
    if not 0 < step <= high - low or (high - low) / step > MOST_STEPS:
        raise ValueError(
            f"target {i} needs a step > 0 that makes 1 to {MOST_STEPS} steps from low={low} to "
            f"high={high}; got step={step}."
        )
    # The rounding of 0.6 / 0.1 is no reason for one more class.
    return low, step, math.ceil((high - low) / step - 1e-6) + 1


def _check_varies(i: int, y: Columns, given: bool) -> None:
    if not given and y.min() == y.max():
        raise ValueError(
            f"target {i} is {y[0]} in all {len(y)} training samples, so there is nothing to learn. "
            "Look at the target column, or give the scale, or low and high."
        )


def _each(option: str, value: PerTarget, t: int) -> list[float | None]:
    """The value of an option for each of t targets."""
    values = list(value) if isinstance(value, Sequence) else [value] * t
    if len(values) != t or not all(v is None or math.isfinite(v) for v in values):
        raise ValueError(f"{option} must be a finite number, or {t}, one per target; got {value}.")
    return [v if v is None else float(v) for v in values]


def _method(name: str) -> HeadMethod:
    if name not in HEADS:
        raise ValueError(f"head must be one of {', '.join(HEADS)}; got {name!r}.")
    return HEADS[name]


def _no_option(name: str, option: str, value: object) -> ValueError:
    options = ", ".join(HEADS[name].options)
    return ValueError(
        f"{option}={value!r} is no option of head {name!r}, which has {options}. Leave it out."
    )


def _check_config(config: HeadConfig) -> None:
    method, usual, modes = _method(config.name), HeadConfig, get_args(Decode)
    for option, value, default, valid, needed in (
        ("beta", config.beta, usual.beta, 0 < config.beta < math.inf, "> 0"),
        ("sigma", config.sigma, usual.sigma, 0.01 <= config.sigma < math.inf, ">= 0.01"),
        ("alpha", config.alpha, usual.alpha, 0 <= config.alpha < math.inf, ">= 0"),
        ("decode", config.decode, usual.decode, config.decode in modes, f"one of {modes}"),
        ("original", config.original, usual.original, type(config.original) is bool, "a bool"),
    ):
        if value != default and option not in method.options:
            raise _no_option(config.name, option, value)
        if not valid:
            raise ValueError(f"{option} must be {needed}; got {value!r}.")
    if (
        config.d < 1
        or not 0 < len(config.shift) == len(config.scale) == len(config.bins)
        or not all(map(math.isfinite, config.shift + config.scale))
        or min(config.scale) <= 0
        or not all(bins > 1 if method.binned else bins == 1 for bins in config.bins)
    ):
        raise ValueError(
            f"head {config.name!r} needs d >= 1 and, for each target, a finite shift, a scale > 0 "
            f"and {'2 or more bins' if method.binned else 'bins = 1'}; got {config}."
        )


# ------------------------------------------------------- losses and decodings, of one target
# outputs (n, k), u (n,) in float64 -> (n,). No matrix products, since autocast would round them.


def _l1(outputs: Tensor, u: Tensor, config: HeadConfig) -> Tensor:
    return (outputs[:, 0] - u).abs()


def _mse(outputs: Tensor, u: Tensor, config: HeadConfig) -> Tensor:
    return (outputs[:, 0] - u).square()


def _huber(outputs: Tensor, u: Tensor, config: HeadConfig) -> Tensor:
    error = (outputs[:, 0] - u).abs()
    inner = error.clamp(max=config.beta)
    return inner * (error - inner / 2) / config.beta


def _dex(outputs: Tensor, u: Tensor, config: HeadConfig) -> Tensor:
    return -outputs.log_softmax(dim=1).gather(1, nearest_class(u, outputs.shape[1]))[:, 0]


def _lde(outputs: Tensor, u: Tensor, config: HeadConfig) -> Tensor:
    log_p = _log_gaussian(outputs, u, config)
    return -(log_p.exp() * outputs.log_softmax(dim=1)).sum(dim=1)


def _dldl(outputs: Tensor, u: Tensor, config: HeadConfig) -> Tensor:
    log_p = _log_gaussian(outputs, u, config)
    divergence = (log_p.exp() * (log_p - outputs.log_softmax(dim=1))).sum(dim=1)
    share = 1 / outputs.shape[1] if config.original else 1.0
    return share * divergence + config.alpha * (_expectation(outputs, config) - u).abs()


def _l2cs(outputs: Tensor, u: Tensor, config: HeadConfig) -> Tensor:
    error = (_expectation(outputs, config) - u).square()
    return _dex(outputs, u - 0.5 if config.original else u, config) + config.alpha * error


def _or(outputs: Tensor, u: Tensor, config: HeadConfig) -> Tensor:
    above = nearest_class(u, outputs.shape[1] + 1) > _numbers(outputs)
    return -logsigmoid(torch.where(above, outputs, -outputs)).sum(dim=1)


def _corn(outputs: Tensor, u: Tensor, config: HeadConfig) -> Tensor:
    classes, k = nearest_class(u, outputs.shape[1] + 1), _numbers(outputs)
    terms = -logsigmoid(torch.where(classes > k, outputs, -outputs)) * (classes >= k)
    # The mean over samples is then the sum of all terms over their number.
    return terms.sum(dim=1) / (classes >= k).sum(dim=1).double().mean()


def nearest_class(u: Tensor, bins: int) -> Tensor:
    """The class of u: (n,) -> (n, 1). Halves go up: to even, every other class would have more."""
    return (u + 0.5).floor().nan_to_num().clamp(0, bins - 1).long()[:, None]


def _numbers(outputs: Tensor) -> Tensor:
    return torch.arange(outputs.shape[1], device=outputs.device)


def _log_gaussian(outputs: Tensor, u: Tensor, config: HeadConfig) -> Tensor:
    deviations = (_numbers(outputs) - u[:, None]) / config.sigma
    return (deviations.square() / -2).log_softmax(dim=1)


def _first(outputs: Tensor, config: HeadConfig) -> Tensor:
    return outputs[:, 0]


def _expectation(outputs: Tensor, config: HeadConfig) -> Tensor:
    return (outputs.softmax(dim=1) * _numbers(outputs)).sum(dim=1)


def _or_count(outputs: Tensor, config: HeadConfig) -> Tensor:
    return _count(outputs.sigmoid(), config)


def _corn_count(outputs: Tensor, config: HeadConfig) -> Tensor:
    return _count(outputs.sigmoid().cumprod(dim=1), config)


def _count(above: Tensor, config: HeadConfig) -> Tensor:
    return (above > 0.5).sum(dim=1) if config.decode == "class" else above.sum(dim=1)


_SCALE = ("shift", "scale")
_BINS = ("low", "high", "step")

HEADS: dict[str, HeadMethod] = {
    "l1": HeadMethod(_l1, _first, _SCALE, binned=False),
    "mse": HeadMethod(_mse, _first, _SCALE, binned=False),
    "huber": HeadMethod(_huber, _first, (*_SCALE, "beta"), binned=False),
    "dex": HeadMethod(_dex, _expectation, _BINS),
    "dldl": HeadMethod(_dldl, _expectation, (*_BINS, "sigma", "alpha", "original")),
    "or": HeadMethod(_or, _or_count, (*_BINS, "decode"), fewer=1),
    "corn": HeadMethod(_corn, _corn_count, (*_BINS, "decode"), fewer=1),
    "l2cs": HeadMethod(_l2cs, _expectation, (*_BINS, "alpha", "original")),
    "lde": HeadMethod(_lde, _expectation, (*_BINS, "sigma")),
}
