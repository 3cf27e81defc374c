"""The loss of one output of a linear head on fixed features, and its minimum by Newton's method.

Of an exact target u, the slope at the output p is that of the loss, slope(p - u). A target that is
known to lie from l to u has slope 0 where p is within, and beyond that of the nearer end:

    min(slope(p - l), 0) + max(slope(p - u), 0)

It rises with p, so that the loss is convex as before, and it is the slope of an exact target where
both ends are equal. The slope of a quantile's rounded corner is 0 beside 0: there its intervals
end. See `rnc.training.solver`.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from rnc.training.blocks import Blocks, pulled, times

FLAT = 1e-10
"""A gradient that counts as 0, of features and targets that are standardised."""
LEAST_BEND = 1e-6
"""Added to the curvature along the bias, over that of the loss: perhaps no sample bends it."""


class Slope(NamedTuple):
    """The slope of a loss, curvature * clamp(r, -knee, knee) + tilt, at the residual r."""

    knee: float
    curvature: float
    tilt: float = 0.0


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
        """The slope of the loss along each sample's output."""
        knee, curvature, tilt = self.slope
        pull = self.shares * curvature * residuals.clamp(-knee, knee)
        return pull + self.shares * tilt if tilt else pull

    def _is_bent(self, residuals: Tensor) -> Tensor:
        """Whether the slope of each sample changes with its output."""
        return residuals.abs() <= self.slope.knee

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
        return _root(slope, ridge, self._times(residuals, change), bend, -bend)

    def _times(self, residuals: Tensor, change: Tensor) -> Tensor:
        """How often the change takes each sample to one knee, and then to the other: (2 n,)."""
        knee = self.slope.knee
        side = torch.where(change < 0, -knee, knee)
        # Here and below, what there is of every sample is changed in place: memory limits n.
        times = torch.cat([-side - residuals, side - residuals])
        times.view(2, -1).div_(change)
        return times.masked_fill_(change.repeat(2) == 0, 0.0).clamp_(min=0)


def _root(slope: Tensor, ridge: Tensor, times: Tensor, *changes: Tensor) -> Tensor:
    """When a slope is 0 whose own slope, `ridge` at first, changes by so much at each time."""
    none = slope.new_zeros(1)
    times, order = torch.cat([none, times]).sort()
    bends = torch.cat([none, *changes])[order].cumsum_(0).add_(ridge)  # after each time
    slopes = torch.cat([slope[None], times.diff().mul_(bends[:-1])]).cumsum_(0)  # at each time
    last = (slopes <= 0).sum().clamp(min=1) - 1
    following = times[(last + 1).clamp(max=len(times) - 1)]
    return torch.minimum(times[last] - slopes[last] / bends[last].clamp(min=1e-300), following)


class OneInterval(OneOutput):
    """The same for targets that lie from `lower` to `upper`, (n,) each, infinite where open."""

    def __init__(
        self, rows: Blocks, width: int, lower: Tensor, upper: Tensor, slope: Slope
    ) -> None:
        super().__init__(rows, width, torch.zeros_like(lower), slope)  # residuals are outputs
        flat = -slope.tilt / slope.curvature  # the residual of slope 0
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
        knees = torch.where(change < 0, self.knees.flip(0), self.knees)  # in the order of the way
        times = (knees - residuals).div_(change).masked_fill_(change == 0, 0.0)
        # A knee that is never met changes nothing; those behind have been met.
        changes = torch.stack([bend, -bend, bend, -bend]).masked_fill_(times == math.inf, 0.0)
        times = times.masked_fill_(times == math.inf, 0.0).clamp_(min=0).flatten()
        # Squares go on bending beyond the last knee: as far again, and no step is longer.
        end = 2 * times.max(dim=0, keepdim=True).values + 1
        return _root(slope, ridge, torch.cat([times, end]), changes.flatten(), 0 * end)


def one_output(
    rows: Blocks, width: int, lower: Tensor, upper: Tensor | None, slope: Slope
) -> OneOutput:
    """The loss of an output for targets from `lower` to `upper`, or for exact ones: (n,) each."""
    if upper is None or torch.equal(lower, upper):
        return OneOutput(rows, width, lower, slope)
    return OneInterval(rows, width, lower, upper, slope)
