"""The head on a frozen encoder, solved exactly instead of trained step by step.

On fixed features, the losses of l1, mse, huber, dex, lde, or, corn and quantile are convex in the
weights of a linear head. So features are computed once, centred and divided by one common scale.
The loss over all of them is minimised (`rnc.training.solver`) for several ridge penalties, and
validation picks one. A separate scale for each feature would blow up features that are active for
only a few training samples.

If training targets are known in part, the head uses its loss of intervals.

l1, mse, huber and quantile are solved in standard deviations of the targets and then converted to
the scale of the head. So a penalty means the same for every scale.

Validation picks by the error of predictions; for quantile and gaussian by their loss, which judges
the whole distribution.

Validation may also pick a balance: the exponent k of sample weights density(y)^-k, see
`rnc.training.balance`. First all penalties are tried with k = 0, then all exponents with the best
penalty, and then the neighbours of the best pair until none is better. If validation has the same
distribution as training, k > 0 does not help, and looks better only by chance. So k > 0 is chosen
only if its error is lower by two standard errors of the difference, and if there are at least
LEAST_ROWS validation rows, or groups of rows that belong together (measured in docs/training.md).
"""

import dataclasses
import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rnc.heads import Head, HeadConfig
from rnc.heads.registry import HEADS
from rnc.metrics import Values, as_columns, mae
from rnc.training.balance import EXPONENTS, LEAST_ROWS, SURE, balance_weights
from rnc.training.blocks import Blocks, as_blocks, mean_and_variance
from rnc.training.label_ends import exact_columns, middles
from rnc.training.record import told
from rnc.training.ridge import solved_ridges
from rnc.training.solver import make_solver

PENALTIES = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0)
_BLOCKS = 100  # blocks of validation rows, from which a standard error is estimated

Measure = Callable[..., float]
"""Predictions (m, t) and targets (m, t) -> the error; with `weights` (m,) if rows have weights."""


class HeadFit(NamedTuple):
    """The loss and error of a solved head, and what validation chose for it."""

    loss: float
    """The mean training loss, with the weights of the caller but without those of the balance."""
    error: float
    """The validation error."""
    penalty: float
    balance: float
    """The exponent k of the weights density(y)^-k."""


def solve_head(
    head: Head,
    features: Tensor | Blocks,
    targets: Tensor,
    val_features: Tensor | Blocks,
    val_targets: Tensor,
    *,
    steps: int = 200,
    measure: Measure = mae,
    weights: Tensor | None = None,
    balance: float | None = 0.0,
    period: float | None = None,
    val_groups: NDArray[Any] | None = None,
    val_weights: Tensor | None = None,
    upper: Tensor | None = None,
) -> HeadFit:
    """Fit the head in place; return its loss and error, and what validation chose.

    Loss and error are infinite if no penalty gave finite predictions. The result does not depend on
    the scale of the head, except that huber's beta counts in scales.

    Args:
        head: of any kind; if its loss is not convex, the result is a local minimum.
        features: training features (n, d), as a tensor or as blocks of `rnc.training.blocks`.
        targets: training targets (n, t).
        val_features: (m, d).
        val_targets: (m, t).
        steps: the largest number of steps for each penalty and balance.
        measure: the error of predictions (m, t) for targets (m, t) on validation.
        weights: (n,) the weights of the training samples, with mean 1.
        balance: the exponent of further weights density(y)^-balance; None chooses from EXPONENTS.
        period: the length of the circle that targets are on, for their density.
        val_groups: (m,) the group of each validation row, such as a person. Errors within a group
            are similar, so a balance is chosen only if there are enough groups.
        val_weights: (m,) the weights of the validation rows in errors and losses.
        upper: (n, t) the upper ends of training targets that are known in part; `targets` then has
            the lower ones, as for `Head.loss`. A balance takes the middle of each, or its one end.
    """
    both = as_blocks(features), as_blocks(val_features)
    val = _ValRows(val_targets, measure, val_groups, val_weights)
    data = _Data(head, *both, targets, val, weights, period, upper)
    search = _Search(data, steps)
    penalties = told("solving", sorted(PENALTIES, reverse=True), len(PENALTIES))
    found = [search.solve(balance or 0.0, penalty) for penalty in penalties]
    best = _best(found)
    if balance is None and val.count >= LEAST_ROWS and math.isfinite(best.error):
        balanced = search.balanced(best)
        best = balanced if val.is_surely_better(balanced, best) else best
    return HeadFit(data.write(best), best.error, best.penalty, best.balance)


def probe_error(
    features: Tensor,
    targets: Tensor,
    val_features: Tensor,
    val_targets: Tensor,
    measure: Measure = mae,
    weights: Tensor | None = None,
    val_weights: Tensor | None = None,
) -> float:
    """The error of ridge regression on the features: a quick measure of how good they are.

    It is the lowest error over several penalties, and infinite if a feature is not finite. The
    arguments are those of `solve_head`.
    """
    features, val_features = features.double(), val_features.double()
    if not (features.isfinite().all() and val_features.isfinite().all()):
        return math.inf
    found = [ridge(val_features) for ridge in solved_ridges(features, targets, weights)]
    return min(measured(measure, predicted, val_targets, val_weights) for predicted in found)


def measured(measure: Measure, predicted: Values, targets: Values, weights: Values | None) -> float:
    """The error of predictions, weighted if there are weights."""
    if weights is None:
        return measure(predicted, targets)
    return measure(predicted, targets, weights=weights)


class _Solved(NamedTuple):
    """The solved head for one balance and penalty."""

    balance: float
    penalty: float
    error: float
    judged: float
    """What validation chooses by: the error, or the mean of the losses."""
    predicted: Tensor
    """Predictions for validation, (m, t)."""
    losses: Tensor | None
    """Validation losses, (m,), for a head that is chosen by its loss."""
    weight: Tensor
    """Weights for standardised features, in the units that the head is solved in."""
    bias: Tensor


class _ValRows:
    """The validation rows, by which solutions are compared."""

    def __init__(
        self, targets: Tensor, measure: Measure, groups: NDArray[Any] | None, weights: Tensor | None
    ) -> None:
        self.targets, self.measure = targets, measure
        self.weights = None if weights is None else weights.cpu()
        self.of_group: Tensor | None = None
        self.count = len(targets)
        """How many rows there are, or groups of rows."""
        if groups is not None:
            known, codes = np.unique(groups, return_inverse=True)
            self.of_group, self.count = torch.tensor(codes), len(known)

    def error(self, predicted: Tensor) -> float:
        """The error of predictions (m, t); infinite if one is not finite."""
        is_finite = bool(predicted.isfinite().all())
        found = (self.measure, predicted, self.targets, self.weights)
        return measured(*found) if is_finite else math.inf

    def mean(self, losses: Tensor, rows: slice | Tensor = slice(None)) -> float:
        """The mean of losses (m,) over some rows, weighted if they have weights."""
        if self.weights is None:
            return float(losses[rows].mean())
        weights = self.weights[rows].to(losses)
        return float((weights * losses[rows]).sum() / weights.sum())

    def is_surely_better(self, one: "_Solved", other: "_Solved") -> bool:
        """Whether one solution is better than another by more than chance.

        The standard error is estimated from blocks of rows. Groups stay whole. With groups or
        weights, blocks with more rows or more weight count more, as they do in the error.
        """
        blocks = self._blocks()
        if self.weights is not None:
            blocks = [rows for rows in blocks if self.weights[rows].any()]
        gains = self._by_block(other, blocks) - self._by_block(one, blocks)
        if self.of_group is None and self.weights is None:
            error = gains.std() / math.sqrt(len(blocks))
        else:
            masses = torch.ones(len(self.targets)) if self.weights is None else self.weights
            sizes = torch.stack([masses[rows].sum() for rows in blocks]).float()
            mean = (sizes * gains).sum() / sizes.sum()
            error = (sizes * (gains - mean)).square().sum().sqrt() / sizes.sum()
        return bool(one.judged < other.judged - SURE * error)

    def _by_block(self, found: "_Solved", blocks: list[slice | Tensor]) -> Tensor:
        """The error or the mean loss of a solution in each block of rows."""
        if found.losses is not None:
            losses = found.losses.cpu()
            return torch.tensor([self.mean(losses, rows) for rows in blocks])
        predicted, truth, weights = found.predicted.cpu(), self.targets.cpu(), self.weights
        parts = [(rows, None if weights is None else weights[rows]) for rows in blocks]
        return torch.tensor([measured(self.measure, predicted[r], truth[r], w) for r, w in parts])

    def _blocks(self) -> list[slice | Tensor]:
        """The rows in _BLOCKS blocks, or in fewer if there are fewer rows. Groups stay whole."""
        blocks = min(_BLOCKS, self.count)
        if self.of_group is None:
            return [slice(i, None, blocks) for i in range(blocks)]
        return [(self.of_group % blocks == i).nonzero()[:, 0] for i in range(blocks)]


class _Data:
    """Features and targets in the units that a head is solved in; converts solutions back."""

    def __init__(
        self,
        head: Head,
        features: Blocks,
        val_features: Blocks,
        targets: Tensor,
        val: "_ValRows",
        weights: Tensor | None,
        period: float | None,
        upper: Tensor | None = None,
    ) -> None:
        self.head, self.targets, self.val, self.period = head, targets, val, period
        self.upper = upper
        self.shift, variance = mean_and_variance(features)
        scale = variance.mean().sqrt()
        self.scale = torch.where(scale > 0, scale, 1.0)
        standardise = partial(_standardise, shift=self.shift, scale=self.scale)
        self.standard = features.map(standardise)  # no method: a cycle would keep the file open
        self.val_standard = val_features.map(standardise)
        self.config, units = _in_deviations(head.config, targets, upper)
        self.units = units.to(self.shift)
        self.weights = targets.new_ones(len(targets)) if weights is None else weights.to(targets)

    def balanced_weights(self, balance: float) -> Tensor:
        """The weights of the training samples, with those of a balance, and mean 1: (n,)."""
        if balance == 0:
            return self.weights
        places = middles(self.targets, self.upper)
        weights = self.weights * balance_weights(places, balance, self.period)
        return weights / weights.mean()

    @torch.no_grad()
    def write(self, found: _Solved) -> float:
        """Write a solution into the head, for raw features in the head's units; return its loss."""
        if not math.isfinite(found.error):
            return math.inf
        losses = self.weights.new_empty(len(self.weights))
        for index, rows in self.standard.parts():
            outputs = (rows @ found.weight.T + found.bias) * self.units
            upper = None if self.upper is None else self.upper[index]
            losses[index] = self.head.loss(outputs, self.targets[index], upper)
        loss = (self.weights * losses).mean()
        weight = found.weight / self.scale
        self.head.linear.weight.copy_(weight * self.units[:, None])
        self.head.linear.bias.copy_((found.bias - weight @ self.shift) * self.units)
        return float(loss)


def _standardise(features: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
    return (features - shift) / scale


class _Search:
    """Solves the head for balances and penalties. Each solution starts from the one before."""

    def __init__(self, data: _Data, steps: int) -> None:
        self.data, self.steps = data, steps
        self.trial = Head(data.config).to(data.shift)
        torch.nn.init.zeros_(self.trial.linear.weight)
        torch.nn.init.zeros_(self.trial.linear.bias)
        self.solver = make_solver(self.trial, data.standard, data.targets, data.upper)
        self.known: dict[tuple[float, float], _Solved] = {}
        self.balance: float | None = None

    def solve(self, balance: float, penalty: float) -> _Solved:
        """The solved head for this balance and penalty."""
        if (balance, penalty) not in self.known:
            if balance != self.balance:
                self.solver.weigh(self.data.balanced_weights(balance))
                self.balance = balance
            self.solver.minimise(penalty, self.steps)
            self.known[balance, penalty] = self._as_it_is(balance, penalty)
        return self.known[balance, penalty]

    @torch.no_grad()
    def _as_it_is(self, balance: float, penalty: float) -> _Solved:
        data, head = self.data, self.trial
        predicted, losses = torch.empty_like(data.val.targets), None
        if head.spec.chosen_by_loss:
            losses = predicted.new_empty(len(predicted))
        for index, rows in data.val_standard.parts():
            outputs = head(rows)
            predicted[index] = head.decode(outputs)
            if losses is not None:
                losses[index] = head.loss(outputs, data.val.targets[index])
        error = data.val.error(predicted)
        judged = error if losses is None or math.isinf(error) else data.val.mean(losses)
        weight, bias = (value.detach().clone() for value in head.parameters())
        return _Solved(balance, penalty, error, judged, predicted, losses, weight, bias)

    def balanced(self, start: _Solved) -> _Solved:
        """The best of all balances with the penalty of `start`, improved by its neighbours."""
        best = _best(self.solve(balance, start.penalty) for balance in EXPONENTS)
        while best.balance > 0:
            near = [(balance, best.penalty) for balance in _beside(EXPONENTS, best.balance)]
            near += [(best.balance, penalty) for penalty in _beside(PENALTIES, best.penalty)]
            better = _best(self.solve(*pair) for pair in near)
            if better.judged >= best.judged:
                break
            best = better
        return best


def _best(found: Iterable[_Solved]) -> _Solved:
    return min(found, key=lambda one: one.judged)


def _beside(values: Sequence[float], value: float) -> list[float]:
    """The values just below and just above one of them."""
    ordered = sorted(values)
    i = ordered.index(value)
    return ordered[max(0, i - 1) : i] + ordered[i + 1 : i + 2]


def _in_deviations(
    config: HeadConfig, targets: Tensor, upper: Tensor | None = None
) -> tuple[HeadConfig, Tensor]:
    """The head with standard deviations of exact targets as scales, and each output's divisor.

    huber has one beta, so all its scales change by the same factor, the mean of theirs. gaussian
    gets beta 0: with any other, its loss has no gradient in the usual sense, and no minimum.
    """
    spec = HEADS[config.name]
    if config.name == "gaussian":
        config = dataclasses.replace(config, options={**config.options, "beta": 0.0})
    if not spec.outputs_are_values:
        return config, torch.ones(1)
    columns = as_columns(targets, "targets").T if upper is None else exact_columns(targets, upper)
    units = [float(y.std()) / own or 1.0 for y, own in zip(columns, config.scale, strict=True)]
    options = config.options
    if config.name == "huber":
        units = [sum(units) / len(units)] * len(units)
        options = {"beta": options["beta"] / units[0]}
    scales = tuple(own * unit for own, unit in zip(config.scale, units, strict=True))
    config = dataclasses.replace(config, scale=scales, options=options)
    by_output = [unit for unit in units for _ in range(spec.width(1, options))]
    return config, torch.tensor(by_output, dtype=torch.float64)
