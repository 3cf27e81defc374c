"""Heads: how features become predictions, and the loss that teaches them.

    outputs = head(features)                (n, d) -> (n, .), the outputs of all targets in a row
    losses = head.loss(outputs, targets)    (n, t) -> (n,), of which the caller takes a mean
    predictions = head.decode(outputs)      -> (n, t), in the units of the targets

A head never sees units. It works on u = (y - shift) / scale of each target y:

- l1, mse, huber, quantile and gaussian standardise: shift and scale are the mean and the standard
  deviation of the training targets. With shift 0 and scale 1 they are the plain losses. SGD trains
  l1, huber and quantile with a twentieth of that scale (rnc.training.objectives), so that beta = 1
  of huber is about a year of ages.
- The others count in bins: shift is the lowest class centre and scale the step, so that class k
  stands for shift + k * scale. The class c of a target is floor(u + 1/2) within 0 .. b - 1.

Options have no units either: beta counts in scales; sigma, and the error that alpha weighs, count
in bins; floor counts in scales. With o the outputs of one target, q = softmax(o), e = sum_k k q_k,
P = sigmoid(o), p_k proportional to exp(-(k - u)^2 / (2 sigma^2)), r_k = u - o_k, the levels a_k,
and m = o_0, s = floor + log(1 + exp(o_1)):

    name      loss of one sample                                            decodes to
    l1        |o - u|                                                       o
    mse       (o - u)^2                                                     o
    huber     (o - u)^2 / (2 beta) up to beta, |o - u| - beta / 2 beyond    o
    dex       -log q_c                                    Rothe 2015        e
    lde       -sum_k p_k log q_k                          Chu 2018          e
    dldl      sum_k p_k log(p_k / q_k) + alpha |e - u|    Gao 2018          e
    l2cs      -log q_c + alpha (e - u)^2                  Abdelrahman 2022  e
    or        -sum_{k < c} log P_k - sum_{k >= c} log(1 - P_k)    Niu 2016  sum_k P_k
    corn      -sum_{k < c} log P_k - log(1 - P_c)         Shi 2021          sum_k prod_{i <= k} P_i
    quantile  2 mean_k max(a_k r_k, (a_k - 1) r_k)        Koenker 1978      the median
    gaussian  [s^(2 beta)] (log s + ((u - m) / s)^2 / 2 + log(2 pi) / 2)    m
              with no gradient through [.]                Seitzer 2022

The paper's seven are l1, mse, huber, dex, dldl, or and corn. quantile and gaussian are trained for
a distribution, and the binned heads predict one, too: see `Head.quantiles`. The quantile head sorts
its outputs, so its quantiles never cross; sorting can only lower the loss (Chernozhukov 2010). With
the level 1/2 alone its loss is that of l1; with many levels it is about the CRPS.

    option    default   heads       what it is
    beta      1         huber       where the square ends, in scales
    beta      0.5       gaussian    0: the likelihood; 1: means are learned as by mse. The exact
                                    solver uses 0, since [.] only matters for training by steps
    floor     0.001     gaussian    the least standard deviation, in scales
    levels    9 levels  quantile    levels of the quantiles, from 0.025 to 0.975; 0.5 among them
    sigma     2         dldl lde    the width of the target distribution, in bins
    alpha     1         dldl l2cs   the weight of the error of the expectation, in bins. Released
                                    code counts in target units: alpha = step (dldl) or step^2
                                    (l2cs) is their weight 1
    decode    mean      or corn     "mean" is the expected class, continuous as that of the other
                                    heads. "class" counts the thresholds with P > 1/2 as the
                                    originals do, which is the median
    original  False     dldl l2cs   do as released code does: dldl divides the divergence by the
                                    number of bins; the class of l2cs is floor(u), since it takes
                                    class centres for left edges

Every target has outputs of its own; losses are averaged over targets (released L2CS adds them up).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from rnc.heads.distributions import LEVELS as LEVELS
from rnc.heads.distributions import check_levels, of_masses
from rnc.heads.intervals import at_nearest, within_or_exact
from rnc.heads.registry import HEADS, HeadOptions, HeadSpec, find_head, no_option
from rnc.loss.partial import check_order
from rnc.metrics import Columns, Values, as_columns

PerTarget = float | Sequence[float] | None
_Axis = tuple[float, float, int]  # shift, scale, bins
MOST_STEPS = 10_000
NO_DISTRIBUTION = (
    "Head {head!r} predicts one number, not a distribution that has quantiles. Train with --head "
    "quantile (head='quantile'), gaussian or a binned head; or use predict_interval, which takes "
    "any head."
)


@dataclass(frozen=True)
class HeadConfig:
    """Everything that rebuilds a head except its weights; JSON of its fields is enough.

    >>> import json
    >>> config = head_config("dldl", 8, np.array([20.0, 31.0, 64.0]), options={"sigma": 3.0})
    >>> HeadConfig.from_json(json.loads(json.dumps(vars(config)))) == config
    True
    """

    name: str
    d: int
    shift: tuple[float, ...]
    """Per target: the mean of the training targets, or the lowest class centre."""
    scale: tuple[float, ...]
    """Per target: the unit of errors: the targets' standard deviation, or the step of the bins."""
    bins: tuple[int, ...]
    """Per target: the number of classes; 1 for a head without bins."""
    options: dict[str, Any] = field(default_factory=dict)
    """The head's own options; those left out get the default."""

    def __post_init__(self) -> None:
        for name in ("shift", "scale", "bins"):  # JSON has lists only
            object.__setattr__(self, name, tuple(getattr(self, name)))
        spec = find_head(self.name)
        object.__setattr__(self, "options", spec.complete(self.name, self.options))
        if (
            self.d < 1
            or not 0 < len(self.shift) == len(self.scale) == len(self.bins)
            or not all(map(math.isfinite, self.shift + self.scale))
            or min(self.scale) <= 0
            or not all(bins > 1 if spec.binned else bins == 1 for bins in self.bins)
        ):
            raise ValueError(
                f"head {self.name!r} needs d >= 1 and, for each target, a finite shift, a scale "
                f"> 0 and {'2 or more bins' if spec.binned else 'bins = 1'}; got {self}."
            )

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> "HeadConfig":
        """The config with these fields, also with those of a run from before `options` existed.

        Such a run holds the same five options beside the fields of every head. Those that the head
        does not use are dropped.
        """
        if "options" in fields:
            return cls(**fields)
        own = find_head(fields["name"]).options
        old = {name: fields[name] for name in _OLD_OPTIONS if name in fields}
        rest = {name: value for name, value in fields.items() if name not in old}
        return cls(**rest, options={name: value for name, value in old.items() if name in own})


_OLD_OPTIONS = ("beta", "sigma", "alpha", "decode", "original")


class Head(nn.Module):
    """A linear layer, with the loss and the decoding of the spec that the config names.

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
        self.widths = [self.spec.width(bins, config.options) for bins in config.bins]
        self.linear = nn.Linear(config.d, sum(self.widths))

    @property
    def spec(self) -> HeadSpec:
        """The loss and the decoding; not an attribute, since pickle refuses their functions."""
        return HEADS[self.config.name]

    def forward(self, features: Tensor) -> Tensor:
        """Outputs of all targets side by side: (n, d) -> (n, .)."""
        self._check("features", features, self.config.d)
        outputs: Tensor = self.linear(features.to(self.linear.weight.dtype))
        return outputs

    def loss(self, outputs: Tensor, targets: Tensor, upper: Tensor | None = None) -> Tensor:
        """One loss per sample: (n, .) with (n, t), or (n,) for a single target -> (n,).

        Losses of corn depend on the batch: they are divided by its number of (sample, threshold)
        terms. With `upper`, targets are the lower ends of intervals, as for `rnc.rnc_loss`: see
        `rnc.heads.intervals`. The mean is then over the targets that a sample has.
        """
        columns = targets[:, None] if targets.dim() == 1 else targets
        self._check("targets", columns, len(self.widths), like=outputs)
        if upper is not None:
            highest = upper[:, None] if upper.dim() == 1 else upper
            self._check("upper", highest, len(self.widths), like=outputs)
            return self._interval_loss(outputs, columns, highest)
        losses = []
        for i, block in enumerate(self._blocks(outputs)):
            u = (columns[:, i].double() - self.config.shift[i]) / self.config.scale[i]
            # 0 * u is 0, or NaN for a missing target, which would otherwise get some class.
            losses.append(self.spec.loss(block, u, self.config.options) + 0 * u)
        mean = torch.stack(losses).mean(dim=0)
        return mean if outputs.dtype == torch.float64 else mean.float()

    def _interval_loss(self, outputs: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
        lower = lower.double().masked_fill(lower.isnan(), -torch.inf)
        upper = upper.double().masked_fill(upper.isnan(), torch.inf)
        if upper.is_cpu and not torch.compiler.is_compiling():  # would synchronize with a GPU
            check_order(lower, upper, "A head's loss needs targets (lower ends)")
        losses = [
            self._block_interval_loss(
                block,
                (lower[:, i] - self.config.shift[i]) / self.config.scale[i],
                (upper[:, i] - self.config.shift[i]) / self.config.scale[i],
            )
            for i, block in enumerate(self._blocks(outputs))
        ]
        known = (lower.isfinite() | upper.isfinite()).sum(dim=1).clamp(min=1)
        mean = torch.stack(losses).double().sum(dim=0) / known
        return mean if outputs.dtype == torch.float64 else mean.float()

    def _block_interval_loss(self, block: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
        spec, options = self.spec, self.config.options
        if spec.outputs_are_values:
            return at_nearest(spec.loss, block, lower, upper, options)
        if spec.interval is None:
            raise ValueError(
                f"head {self.config.name!r} has no loss for partly known targets; got upper=. Set "
                "`interval` in its HeadSpec, or use a head with such a loss, for example l1."
            )
        return within_or_exact(spec.loss, spec.interval, block, lower, upper, options)

    def decode(self, outputs: Tensor) -> Tensor:
        """Predictions in the units of the targets: (n, .) -> (n, t) in float64."""
        blocks, options = self._blocks(outputs), self.config.options
        # float64, since the shift of a date is large beside its scale.
        u = [self.spec.decode(block, options).double() for block in blocks]
        axes = zip(u, self.config.shift, self.config.scale, strict=True)
        return torch.stack([shift + scale * v for v, shift, scale in axes], dim=1)

    @property
    def has_distribution(self) -> bool:
        """Whether the head predicts a distribution of the target, not only a value."""
        return self.spec.masses is not None or self.spec.quantiles is not None

    def quantiles(self, outputs: Tensor, levels: Sequence[float] = LEVELS) -> Tensor:
        """Quantiles at any levels, in the units of the targets: (n, .), q -> (n, t, q) in float64.

        They never fall as the level rises. `rnc.heads.distributions` says how they are computed.

        >>> head = make_head("gaussian", 8, torch.tensor([20.0, 30.0, 64.0]))
        >>> head.quantiles(head(torch.randn(5, 8)), [0.1, 0.5, 0.9]).shape
        torch.Size([5, 1, 3])
        """
        given = check_levels(levels)
        rising = sorted(given)
        u = [self._quantiles(block, rising).double() for block in self._blocks(outputs)]
        columns = torch.stack(u, dim=1).sort(dim=2).values[..., list(map(rising.index, given))]
        shift, scale = (
            columns.new_tensor(v)[:, None] for v in (self.config.shift, self.config.scale)
        )
        return shift + scale * columns

    def _quantiles(self, block: Tensor, levels: Sequence[float]) -> Tensor:
        if self.spec.masses is not None:
            return of_masses(self.spec.masses(block, self.config.options), levels)
        if self.spec.quantiles is None:
            raise ValueError(NO_DISTRIBUTION.format(head=self.config.name))
        return self.spec.quantiles(block, levels, self.config.options)

    def masses(self, outputs: Tensor) -> list[Tensor]:
        """The probabilities of the classes of each target, for a binned head: t times (n, b)."""
        assert self.spec.masses is not None
        return [self.spec.masses(block, self.config.options) for block in self._blocks(outputs)]

    def deviations(self, outputs: Tensor) -> Tensor:
        """Standard deviations in the units of the targets, for the gaussian head: (n, t)."""
        assert self.spec.deviation is not None
        u = [self.spec.deviation(block, self.config.options) for block in self._blocks(outputs)]
        columns = torch.stack(u, dim=1).double()
        return columns * columns.new_tensor(self.config.scale)

    def _blocks(self, outputs: Tensor) -> tuple[Tensor, ...]:
        """The outputs of each target."""
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
    options: HeadOptions | None = None,
) -> HeadConfig:
    """The config of a head for these training targets; an unknown option raises.

    One number for shift, scale, low, high or step holds for all targets, a sequence gives one for
    each, and None derives it from the training targets.

    Args:
        name: one of HEADS.
        d: number of features.
        train_targets: (m,) or (m, t).
        shift: for heads without bins, what to subtract from targets; None: their mean.
        scale: what to divide by after that; None: their standard deviation.
        low: for binned heads, the lowest class centre; None: the lowest target. Targets beyond the
            classes count as the nearest class.
        high: the last class centre is the first at or above it; None: the highest target.
        step: between class centres; None: 1 if all training targets are whole numbers and
            high - low is at most 200, otherwise (high - low) / 100.
        options: the head's own, as {"beta": 0.5}; see the table in `rnc.heads`.
    """
    spec = find_head(name)
    columns = as_columns(train_targets, "train_targets")
    place = {"shift": shift, "scale": scale, "low": low, "high": high, "step": step}
    for option, value in place.items():
        if value is not None and option not in spec.place:
            raise no_option(name, option, value, spec.place)
    given = [_per_target(option, place[option], columns.shape[1]) for option in spec.place]
    derive: Callable[..., _Axis] = _bins if spec.binned else _standardise
    axes = [derive(i, columns[:, i], *axis) for i, axis in enumerate(zip(*given, strict=True))]
    shifts, scales, bins = zip(*axes, strict=True)
    return HeadConfig(name, d, shifts, scales, bins, dict(options or {}))


def make_head(name: str, d: int, targets: Values) -> Head:
    """A new head for these training targets; with options, `Head(head_config(...))`."""
    return Head(head_config(name, d, targets))


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
    # Rounding, as in 0.6 / 0.1, must not add a class.
    return low, step, math.ceil((high - low) / step - 1e-6) + 1


def _check_varies(i: int, y: Columns, given: bool) -> None:
    if not given and y.min() == y.max():
        raise ValueError(
            f"target {i} is {y[0]} in all {len(y)} training samples, so there is nothing to learn. "
            "Look at the target column, or give the scale, or low and high."
        )


def _per_target(option: str, value: PerTarget, t: int) -> list[float | None]:
    """The value of an option for each of t targets."""
    values = list(value) if isinstance(value, Sequence) else [value] * t
    if len(values) != t or not all(v is None or math.isfinite(v) for v in values):
        raise ValueError(f"{option} must be a finite number, or {t}, one per target; got {value}.")
    return [v if v is None else float(v) for v in values]
