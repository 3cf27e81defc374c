"""The loss of one output of a linear head on fixed features, and its minimum by Newton's method.

For an exact target u, the slope of the loss at the output p is slope(p - u). For a target that is
known to lie from l to u, the slope is 0 if p is inside, and else that of the nearer end:

    min(slope(p - l), 0) + max(slope(p - u), 0)

It rises with p, so the loss stays convex. If both ends are equal, it is the slope of an exact
target. The rounded corner of a quantile's loss has slope 0 not at p = u but a little beside it, and
intervals are shifted by as much. See `rnc.training.solver`.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from rnc.training.blocks import Blocks, pulled, times

FLAT = 1e-10
"""A gradient up to this size counts as 0. Features and targets are standardised."""
LEAST_BEND = 1e-6
"""Added to the curvature along the bias, in units of the loss's, in case no sample has any."""


class Slope(NamedTuple):
    """The slope of a loss at the residual r: curvature * clamp(r, -knee, knee) + tilt."""

    knee: float
    curvature: float
    tilt: float = 0.0


class OneOutput:
    """The loss of one output: sum_i share_i loss(rows_i . weight - u_i). The bias comes last."""

    def __init__(self, rows: Blocks, width: int, u: Tensor, slope: Slope) -> None:
        self.rows, self.width, self.u, self.slope = rows, width, u, slope
        self.weigh(torch.full_like(u, 1 / len(u)))

    def weigh(self, shares: Tensor) -> None:
        """Set the shares of the samples in the loss: (n,)."""
        self.shares = shares
        self.bent = torch.zeros_like(self.u, dtype=torch.bool)
        """The samples in `matrix`, which is the sum of share_i row_i^T row_i over them."""
        self.matrix = self.u.new_zeros(self.width, self.width)

    def minimise(self, weight: Tensor, penalty: float, steps: int) -> Tensor:
        """The weights at the minimum, or after `steps` steps, starting from `weight`."""
        curvature = self.slope.curvature
        ridge = torch.full_like(weight, 2 * penalty)
        ridge[-1] = 0
        least = ridge.clone()
        least[-1] = LEAST_BEND * curvature
        residuals, length = times(self.rows, weight) - self.u, weight.new_ones(())
        for _ in range(steps):
            gradient = pulled(self.rows, self._pull(residuals)) + ridge * weight
            if not (gradient.abs().max() > FLAT) & (length > 0):
                break
            self._bend(self._is_bent(residuals))
            hessian = curvature * self.matrix + torch.diag(least)
            factor, failed = torch.linalg.cholesky_ex(hessian)
            if failed:
                break
            step = -torch.cholesky_solve(gradient[:, None], factor)[:, 0]
            change = times(self.rows, step)
            length = self._length(residuals, change, gradient @ step, ridge @ step.square())
            weight, residuals = weight + length * step, residuals + length * change
        return weight

    def _pull(self, residuals: Tensor) -> Tensor:
        """The derivative of the loss with respect to each sample's output."""
        knee, curvature, tilt = self.slope
        pull = self.shares * curvature * residuals.clamp(-knee, knee)
        return pull + self.shares * tilt if tilt else pull

    def _is_bent(self, residuals: Tensor) -> Tensor:
        """Which samples are between their knees, so that their slope changes with the output."""
        return residuals.abs() <= self.slope.knee

    def _bend(self, bent: Tensor) -> None:
        """Update the matrix to the sum over these samples."""
        for sign, moved in ((1, bent & ~self.bent), (-1, self.bent & ~bent)):
            for index, rows in self.rows.parts(moved):
                self.matrix.addmm_(rows.T, rows * self.shares[index][:, None], alpha=sign)
        self.bent = bent

    def _length(self, residuals: Tensor, change: Tensor, slope: Tensor, ridge: Tensor) -> Tensor:
        """The multiple of the change at which the slope along it, negative at first, reaches 0."""
        knee, curvature, _ = self.slope
        if math.isinf(knee):
            return torch.ones_like(slope)
        bend = self.shares * curvature * change.square()
        return _root(slope, ridge, self._times(residuals, change), bend, -bend)

    def _times(self, residuals: Tensor, change: Tensor) -> Tensor:
        """The multiples at which each sample reaches one knee, and then the other: (2 n,)."""
        knee = self.slope.knee
        side = torch.where(change < 0, -knee, knee)
        # Here and below, tensors over all samples are changed in place, since memory limits n.
        times = torch.cat([-side - residuals, side - residuals])
        times.view(2, -1).div_(change)
        return times.masked_fill_(change.repeat(2) == 0, 0.0).clamp_(min=0)


def _root(slope: Tensor, ridge: Tensor, times: Tensor, *changes: Tensor) -> Tensor:
    """The time at which a slope reaches 0, if its rate is `ridge` at first, and changes at `times`.

    Each of `changes` is added to the rate at one of `times`.
    """
    none = slope.new_zeros(1)
    times, order = torch.cat([none, times]).sort()
    bends = torch.cat([none, *changes])[order].cumsum_(0).add_(ridge)  # the rate after each time
    slopes = torch.cat([slope[None], times.diff().mul_(bends[:-1])]).cumsum_(0)  # the slope at each
    last = (slopes <= 0).sum().clamp(min=1) - 1
    following = times[(last + 1).clamp(max=len(times) - 1)]
    return torch.minimum(times[last] - slopes[last] / bends[last].clamp(min=1e-300), following)


class OneInterval(OneOutput):
    """The loss of one output for targets from `lower` to `upper`, (n,) each, infinite if open."""

    def __init__(
        self, rows: Blocks, width: int, lower: Tensor, upper: Tensor, slope: Slope
    ) -> None:
        super().__init__(rows, width, torch.zeros_like(lower), slope)  # so residuals are outputs
        flat = -slope.tilt / slope.curvature  # the residual at which the slope is 0
        self.ends = lower, upper
        knees = (lower - slope.knee, lower + flat, upper + flat, upper + slope.knee)
        self.knees = torch.stack(knees)

    def _pull(self, residuals: Tensor) -> Tensor:
        knee, curvature, tilt = self.slope
        below, above = (
            curvature * (residuals - end).clamp(-knee, knee) + tilt for end in self.ends
        )
        return self.shares * (below.clamp(max=0) + above.clamp(min=0))

    def _is_bent(self, residuals: Tensor) -> Tensor:
        below, above = self.knees[:2], self.knees[2:]
        is_below = (below[0] <= residuals) & (residuals < below[1])
        return is_below | ((above[0] <= residuals) & (residuals <= above[1]))

    def _length(self, residuals: Tensor, change: Tensor, slope: Tensor, ridge: Tensor) -> Tensor:
        bend = self.shares * self.slope.curvature * change.square()
        knees = torch.where(change < 0, self.knees.flip(0), self.knees)  # in the order of passing
        times = (knees - residuals).div_(change).masked_fill_(change == 0, 0.0)
        # A knee that is never reached changes nothing. Those behind count as reached at 0.
        changes = torch.stack([bend, -bend, bend, -bend]).masked_fill_(times == math.inf, 0.0)
        times = times.masked_fill_(times == math.inf, 0.0).clamp_(min=0).flatten()
        # Squares stay curved beyond the last knee. A step goes about as far again, but no further.
        end = 2 * times.max(dim=0, keepdim=True).values + 1
        return _root(slope, ridge, torch.cat([times, end]), changes.flatten(), 0 * end)


def one_output(
    rows: Blocks, width: int, lower: Tensor, upper: Tensor | None, slope: Slope
) -> OneOutput:
    """The loss of one output, for targets from `lower` to `upper` or exact ones: (n,) each."""
    if upper is None or torch.equal(lower, upper):
        return OneOutput(rows, width, lower, slope)
    return OneInterval(rows, width, lower, upper, slope)
