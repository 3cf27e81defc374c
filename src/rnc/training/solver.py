"""The weights of a linear head that minimise its loss on fixed features, with a ridge penalty.

    mean_i w_i loss(W x_i + b, y_i) + penalty |W|^2

mse, huber, and l1 with a rounded corner are means over the targets, and quantile is one over the
levels, too. Each is solved by itself, by Newton's method, which ends after a few steps: the slope
of the loss is curvature * clamp(r, -knee, knee) + tilt of the residual r, so that between two knees
the objective is a parabola and Newton's step is exact. Only samples with |r| <= knee bend it; the
matrix of their features is kept and changed by those that come and go. Along each direction the
minimum is found exactly, from the sorted knees. (Madsen and Nielsen 1993, "A finite smoothing
algorithm for linear l1 estimation".)

Other heads take L-BFGS.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from rnc.heads import Head, HeadConfig
from rnc.training.blocks import Blocks, Held, as_blocks, pulled, times

ROUNDED_CORNER = 0.03
"""How far from 0 the corner of l1 is rounded off, in scales of the head."""
QUANTILE_CORNER = 0.01
"""That of quantile: as if targets had noise of 0.006 deviations, which makes quantiles wider."""
FLAT = 1e-10
"""A gradient that counts as 0, of features and targets that are standardised."""
LEAST_BEND = 1e-6
"""Added to the curvature along the bias, over that of the loss: perhaps no sample bends it."""


class Slope(NamedTuple):
    """The slope of a loss, curvature * clamp(r, -knee, knee) + tilt, at the residual r."""

    knee: float
    curvature: float
    tilt: float = 0.0


def slopes_of(config: HeadConfig) -> list[Slope]:
    """The slopes of a head's loss along its outputs, corners rounded off; none if it has others."""
    if config.name == "mse":
        return [Slope(math.inf, 2.0)]
    if config.name in ("l1", "huber"):
        knee = ROUNDED_CORNER if config.name == "l1" else float(config.options["beta"])
        return [Slope(knee, 1 / knee)]
    if config.name == "quantile":
        levels: tuple[float, ...] = config.options["levels"]
        return [Slope(QUANTILE_CORNER, 1 / QUANTILE_CORNER, 1 - 2 * level) for level in levels]
    return []


def make_solver(head: Head, features: Tensor | Blocks, targets: Tensor) -> "Newton | Lbfgs":
    """What moves a head in float64 to its minimum, from where it is.

    The features are (n, d), centred and of about unit size, in float64; targets are (n, t).
    """
    slopes, features = slopes_of(head.config), as_blocks(features)
    if not slopes:
        return Lbfgs(head, features, targets)
    return Newton(head, slopes, features, targets)


class Lbfgs:
    """Any loss, by L-BFGS."""

    def __init__(self, head: Head, features: Blocks, targets: Tensor) -> None:
        self.head, self.features, self.targets = head, features, targets
        self.weights = torch.ones(len(targets), dtype=torch.float64, device=features.device)

    def weigh(self, weights: Tensor) -> None:
        """Let each sample count this much from now on: (n,), with mean 1."""
        self.weights = weights

    def minimise(self, penalty: float, steps: int) -> None:
        """Move the head to the minimum with this penalty, or by so many steps."""
        head = self.head
        optimizer = torch.optim.LBFGS(
            head.parameters(), max_iter=steps, history_size=20, line_search_fn="strong_wolfe"
        )

        def objective() -> Tensor:
            optimizer.zero_grad()
            total: Tensor = penalty * head.linear.weight.square().sum()
            torch.autograd.backward(total)
            for index, rows in self.features.parts():
                losses = self.weights[index] * head.loss(head(rows), self.targets[index])
                share = losses.mean() * (len(losses) / len(self.targets))
                torch.autograd.backward(share)
                total = total + share
            return total.detach()

        optimizer.step(objective)  # type: ignore[no-untyped-call]


class Newton:
    """A loss whose slope has two knees, by Newton's method, one output after the other."""

    def __init__(self, head: Head, slopes: list[Slope], features: Blocks, targets: Tensor) -> None:
        self.head, self.basis = head, None
        # With fewer samples than features, ridge weights are sums of the samples' features.
        if isinstance(features, Held) and features.shape[1] > features.shape[0]:
            self.basis, triangle = torch.linalg.qr(features.rows.T)
            features = Held(triangle.T)
        rows, width = features.map(_with_one), features.shape[1] + 1
        columns = zip(targets.unbind(1), head.config.shift, head.config.scale, strict=True)
        self.each = [
            OneOutput(rows, width, (y.double() - shift) / scale, slope)
            for y, shift, scale in columns
            for slope in slopes
        ]

    def weigh(self, weights: Tensor) -> None:
        """Let each sample count this much from now on: (n,), with mean 1."""
        for one in self.each:
            one.weigh(weights / weights.numel() / len(self.each))

    @torch.no_grad()
    def minimise(self, penalty: float, steps: int) -> None:
        """Move the head to the minimum with this penalty, or by so many steps."""
        linear = self.head.linear
        weight = linear.weight if self.basis is None else linear.weight @ self.basis
        starts = torch.cat([weight, linear.bias[:, None]], dim=1)
        pairs = zip(self.each, starts, strict=True)
        found = torch.stack([one.minimise(start, penalty, steps) for one, start in pairs])
        weight = found[:, :-1]
        linear.weight.copy_(weight if self.basis is None else weight @ self.basis.T)
        linear.bias.copy_(found[:, -1])


def _with_one(rows: Tensor) -> Tensor:
    """The rows with a 1 in the end, which the bias is multiplied by: (n, d) -> (n, d + 1)."""
    return torch.cat([rows, rows.new_ones(len(rows), 1)], dim=1)


class OneOutput:
    """The loss of one output, sum_i share_i loss(rows_i . weight - u_i); the bias comes last."""

    def __init__(self, rows: Blocks, width: int, u: Tensor, slope: Slope) -> None:
        self.rows, self.width, self.u, self.slope = rows, width, u, slope
        self.weigh(torch.full_like(u, 1 / len(u)))

    def weigh(self, shares: Tensor) -> None:
        """Let the samples have these shares from now on: (n,)."""
        self.shares = shares
        self.bent = torch.zeros_like(self.u, dtype=torch.bool)
        """Which samples the matrix is made of: the sum of their shares of row^T row."""
        self.matrix = self.u.new_zeros(self.width, self.width)

    def minimise(self, weight: Tensor, penalty: float, steps: int) -> Tensor:
        """The weights at the minimum, from given ones on."""
        knee, curvature, tilt = self.slope
        ridge = torch.full_like(weight, 2 * penalty)
        ridge[-1] = 0
        least = ridge.clone()
        least[-1] = LEAST_BEND * curvature
        residuals, length = times(self.rows, weight) - self.u, weight.new_ones(())
        for _ in range(steps):
            pull = self.shares * curvature * residuals.clamp(-knee, knee)
            pull = pull + self.shares * tilt if tilt else pull
            gradient = pulled(self.rows, pull) + ridge * weight
            if not (gradient.abs().max() > FLAT) & (length > 0):
                break
            self._bend(residuals.abs() <= knee)
            hessian = curvature * self.matrix + torch.diag(least)
            factor, failed = torch.linalg.cholesky_ex(hessian)
            if failed:
                break
            step = -torch.cholesky_solve(gradient[:, None], factor)[:, 0]
            change = times(self.rows, step)
            length = self._length(residuals, change, gradient @ step, ridge @ step.square())
            weight, residuals = weight + length * step, residuals + length * change
        return weight

    def _bend(self, bent: Tensor) -> None:
        """Let the matrix be made of these samples."""
        for sign, moved in ((1, bent & ~self.bent), (-1, self.bent & ~bent)):
            for index, rows in self.rows.parts(moved):
                self.matrix.addmm_(rows.T, rows * self.shares[index][:, None], alpha=sign)
        self.bent = bent

    def _length(self, residuals: Tensor, change: Tensor, slope: Tensor, ridge: Tensor) -> Tensor:
        """How often the change takes the slope along it, which is negative at first, to 0."""
        knee, curvature, _ = self.slope
        if math.isinf(knee):
            return torch.ones_like(slope)
        bend = self.shares * curvature * change.square()
        side, none = torch.where(change < 0, -knee, knee), slope.new_zeros(1)
        # Below, what there is of every sample is changed in place: memory is what limits n.
        times = torch.cat([-side - residuals, side - residuals])
        times.view(2, -1).div_(change)
        times = times.masked_fill_(change.repeat(2) == 0, 0.0).clamp_(min=0)
        times, order = torch.cat([none, times]).sort()
        bends = torch.cat([none, bend, -bend])[order].cumsum_(0).add_(ridge)  # after each time
        slopes = torch.cat([slope[None], times.diff().mul_(bends[:-1])]).cumsum_(0)  # at each time
        last = (slopes <= 0).sum().clamp(min=1) - 1
        following = times[(last + 1).clamp(max=len(times) - 1)]
        return torch.minimum(times[last] - slopes[last] / bends[last].clamp(min=1e-300), following)
