"""The head on a frozen encoder, solved exactly instead of trained step by step.

On fixed features the losses of l1, mse, huber, dex, lde, or and corn are convex in a linear head.
So features are computed once, centred and divided by one common scale, and L-BFGS runs over all of
them until it converges, for several strengths of ridge penalty; validation picks one. A scale for
each feature would blow up those that are active for a few training samples only.

l1, mse and huber are solved in standard deviations of the targets and then converted to the scale
of the head, so that penalties mean the same whatever that is.
"""

import dataclasses
import math
from collections.abc import Callable

import torch
from torch import Tensor

from rnc.heads import Head, HeadConfig
from rnc.heads.registry import HEADS
from rnc.metrics import Values, as_columns, mae

PENALTIES = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0)
QUICK_PENALTIES = (1e-3, 1e-2, 1e-1)
ROUNDED_CORNER = 0.03
"""How far from 0 the corner of l1 is rounded off, in standard deviations of the target."""


def solve_head(
    head: Head,
    features: Tensor,
    targets: Tensor,
    val_features: Tensor,
    val_targets: Tensor,
    *,
    steps: int = 200,
    measure: Callable[[Values, Values], float] = mae,
    weights: Tensor | None = None,
) -> tuple[float, float]:
    """Fit the head in place; the training loss and the validation error that it has.

    Both are infinite if no penalty gave finite predictions. The result does not depend on the scale
    of the head, but for where huber's beta is.

    Training features are (n, d) and targets (n, t). The penalty is chosen by the `measure` of the
    predictions for (m, d) and (m, t), each penalty having at most so many steps. `weights` (n,) is
    what each training sample counts, with mean 1.
    """
    features, val_features = features.double(), val_features.double()
    shift = features.mean(dim=0)
    scale = features.var(dim=0).mean().sqrt()
    scale = torch.where(scale > 0, scale, 1.0)
    standard, val_standard = (features - shift) / scale, (val_features - shift) / scale
    config, units = _in_deviations(head.config, targets)
    units = units.to(standard)
    trial, smooth = Head(config).to(standard), Head(_smooth(config))
    smooth.linear = trial.linear
    torch.nn.init.zeros_(trial.linear.weight)
    torch.nn.init.zeros_(trial.linear.bias)
    weights = targets.new_ones(len(targets)) if weights is None else weights.to(targets)
    best = (math.inf, math.inf)
    for penalty in sorted(PENALTIES, reverse=True):  # each starts where the stronger one ended
        _minimise(smooth, standard, targets, weights, penalty, steps)
        with torch.no_grad():
            loss = float((weights * head.loss(trial(standard) * units, targets)).mean())
            predicted = trial.decode(trial(val_standard))
        error = measure(predicted, val_targets) if predicted.isfinite().all() else math.inf
        if error < best[1]:
            best = (loss, error)
            with torch.no_grad():  # the same head on features as they are, and in its own units
                weight = trial.linear.weight / scale
                head.linear.weight.copy_(weight * units[:, None])
                head.linear.bias.copy_((trial.linear.bias - weight @ shift) * units)
    return best


def probe_error(
    features: Tensor,
    targets: Tensor,
    val_features: Tensor,
    val_targets: Tensor,
    measure: Callable[[Values, Values], float] = mae,
) -> float:
    """The error of ridge regression on the features: a quick measure of how good they are.

    That of the best of several penalties; infinite if a feature is not finite. The arguments are
    those of `solve_head`.
    """
    features, val_features = features.double(), val_features.double()
    if not (features.isfinite().all() and val_features.isfinite().all()):
        return math.inf
    shift, middle = features.mean(dim=0), targets.mean(dim=0)
    x, y = features - shift, targets - middle
    gram, moment = x.T @ x / len(x), x.T @ y / len(x)
    size = gram.diagonal().mean()
    size = torch.where(size > 0, size, 1.0)
    ones = torch.eye(len(gram), dtype=gram.dtype, device=gram.device)
    errors = []
    for penalty in QUICK_PENALTIES:
        weights = torch.linalg.solve(gram + penalty * size * ones, moment)
        errors.append(measure((val_features - shift) @ weights + middle, val_targets))
    return min(errors)


def _in_deviations(config: HeadConfig, targets: Tensor) -> tuple[HeadConfig, Tensor]:
    """The head with standard deviations for scales, and by how much that divides each output.

    huber has one beta, so that its scales all change by one factor: their mean.
    """
    spec = HEADS[config.name]
    if not spec.outputs_are_values:
        return config, torch.ones(1)
    columns = zip(as_columns(targets, "targets").T, config.scale, strict=True)
    units = [float(y.std()) / own or 1.0 for y, own in columns]
    options = config.options
    if config.name == "huber":
        units = [sum(units) / len(units)] * len(units)
        options = {"beta": options["beta"] / units[0]}
    scales = tuple(own * unit for own, unit in zip(config.scale, units, strict=True))
    config = dataclasses.replace(config, scale=scales, options=options)
    by_output = [unit for unit in units for _ in range(spec.width(1))]
    return config, torch.tensor(by_output, dtype=torch.float64)


def _smooth(config: HeadConfig) -> HeadConfig:
    """The head to minimise: at the corners of l1, L-BFGS stalls wherever rounding errors lead."""
    if config.name != "l1":
        return config
    return dataclasses.replace(config, name="huber", options={"beta": ROUNDED_CORNER})


def _minimise(
    head: Head, features: Tensor, targets: Tensor, weights: Tensor, penalty: float, steps: int
) -> None:
    optimizer = torch.optim.LBFGS(
        head.parameters(), max_iter=steps, history_size=20, line_search_fn="strong_wolfe"
    )

    def objective() -> Tensor:
        optimizer.zero_grad()
        loss = (weights * head.loss(head(features), targets)).mean()
        total = loss + penalty * head.linear.weight.square().sum()
        torch.autograd.backward(total)
        return total

    optimizer.step(objective)  # type: ignore[no-untyped-call]
