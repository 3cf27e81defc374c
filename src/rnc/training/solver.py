"""The weights of a linear head that minimise its loss on fixed features, with a ridge penalty.

    mean_i w_i loss(W x_i + b, y_i) + penalty |W|^2

The losses of mse, huber, and l1 with a rounded corner are means over the targets, and that of
quantile is a mean over the levels, too. So each output is solved by itself, in a few steps of
Newton's method. The slope of the loss at residual r is curvature * clamp(r, -knee, knee) + tilt. So
between two knees the objective is a parabola, and Newton's step is exact. Only samples with
|r| <= knee add curvature. The matrix of their features is kept, and updated for samples that enter
or leave. Along each direction, the minimum is found exactly from the sorted knees. (Madsen and
Nielsen 1993, "A finite smoothing algorithm for linear l1 estimation".)

A target that is known in part has slope 0 within its interval, and two more knees: see
`rnc.training.one_output`. Other heads are solved by L-BFGS.
"""

import math

import torch
from torch import Tensor

from rnc.heads import Head, HeadConfig
from rnc.training.blocks import Blocks, Held, as_blocks
from rnc.training.one_output import Slope, one_output

ROUNDED_CORNER = 0.03
"""How far from 0 the corner of l1 is rounded off, in scales of the head."""
QUANTILE_CORNER = 0.01
"""The same for quantile. It acts like target noise of 0.006 deviations, which widens quantiles."""


def slopes_of(config: HeadConfig) -> list[Slope]:
    """The slopes of a loss along the outputs of a target, with rounded corners.

    Empty if the head's loss has another form.
    """
    if config.name == "mse":
        return [Slope(math.inf, 2.0)]
    if config.name in ("l1", "huber"):
        knee = ROUNDED_CORNER if config.name == "l1" else float(config.options["beta"])
        return [Slope(knee, 1 / knee)]
    if config.name == "quantile":
        levels: tuple[float, ...] = config.options["levels"]
        return [Slope(QUANTILE_CORNER, 1 / QUANTILE_CORNER, 1 - 2 * level) for level in levels]
    return []


def make_solver(
    head: Head, features: Tensor | Blocks, targets: Tensor, upper: Tensor | None = None
) -> "Newton | Lbfgs":
    """A solver that moves a head in float64 from its current weights to the minimum.

    The features are (n, d), centred and of about unit size, in float64. Targets are (n, t). With
    `upper` (n, t), targets are the lower ends of intervals, as for `Head.loss`.
    """
    slopes, features = slopes_of(head.config), as_blocks(features)
    if not slopes:
        return Lbfgs(head, features, targets, upper)
    return Newton(head, slopes, features, targets, upper)


class Lbfgs:
    """Minimises any loss by L-BFGS."""

    def __init__(
        self, head: Head, features: Blocks, targets: Tensor, upper: Tensor | None = None
    ) -> None:
        self.head, self.features, self.targets, self.upper = head, features, targets, upper
        self.weights = torch.ones(len(targets), dtype=torch.float64, device=features.device)

    def weigh(self, weights: Tensor) -> None:
        """Set the weights of the samples: (n,), with mean 1."""
        self.weights = weights

    def minimise(self, penalty: float, steps: int) -> None:
        """Move the head to the minimum with this penalty, in at most `steps` steps."""
        head = self.head
        optimizer = torch.optim.LBFGS(
            head.parameters(), max_iter=steps, history_size=20, line_search_fn="strong_wolfe"
        )

        def objective() -> Tensor:
            optimizer.zero_grad()
            total: Tensor = penalty * head.linear.weight.square().sum()
            torch.autograd.backward(total)
            for index, rows in self.features.parts():
                upper = None if self.upper is None else self.upper[index]
                losses = self.weights[index] * head.loss(head(rows), self.targets[index], upper)
                share = losses.mean() * (len(losses) / len(self.targets))
                torch.autograd.backward(share)
                total = total + share
            return total.detach()

        optimizer.step(objective)  # type: ignore[no-untyped-call]


class Newton:
    """Minimises a loss whose slope has knees by Newton's method, one output after the other."""

    def __init__(
        self,
        head: Head,
        slopes: list[Slope],
        features: Blocks,
        targets: Tensor,
        upper: Tensor | None = None,
    ) -> None:
        self.head, self.basis = head, None
        # With fewer samples than features, ridge weights are combinations of the samples' features.
        if isinstance(features, Held) and features.shape[1] > features.shape[0]:
            self.basis, triangle = torch.linalg.qr(features.rows.T)
            features = Held(triangle.T)
        rows, width = features.map(_with_one), features.shape[1] + 1
        columns: list[tuple[Tensor, Tensor | None]]
        if upper is None:
            columns = [(y, None) for y in _in_units(targets, head.config)]
            self.count: int | Tensor = len(columns) * len(slopes)
            """The number of outputs that the loss of a sample is a mean over."""
        else:
            low = targets.double().masked_fill(targets.isnan(), -math.inf)
            high = upper.double().masked_fill(upper.isnan(), math.inf)
            ends = (_in_units(end, head.config) for end in (low, high))
            columns = list(zip(*ends, strict=True))
            known = (low.isfinite() | high.isfinite()).sum(dim=1)
            self.count = known.clamp(min=1) * len(slopes)
        self.each = [
            one_output(rows, width, *column, slope) for column in columns for slope in slopes
        ]

    def weigh(self, weights: Tensor) -> None:
        """Set the weights of the samples: (n,), with mean 1."""
        for one in self.each:
            one.weigh(weights / weights.numel() / self.count)

    @torch.no_grad()
    def minimise(self, penalty: float, steps: int) -> None:
        """Move the head to the minimum with this penalty, in at most `steps` steps per output."""
        linear = self.head.linear
        weight = linear.weight if self.basis is None else linear.weight @ self.basis
        starts = torch.cat([weight, linear.bias[:, None]], dim=1)
        pairs = zip(self.each, starts, strict=True)
        found = torch.stack([one.minimise(start, penalty, steps) for one, start in pairs])
        weight = found[:, :-1]
        linear.weight.copy_(weight if self.basis is None else weight @ self.basis.T)
        linear.bias.copy_(found[:, -1])


def _in_units(targets: Tensor, config: HeadConfig) -> list[Tensor]:
    """The columns of targets (n, t) in the units of the head."""
    columns = zip(targets.unbind(1), config.shift, config.scale, strict=True)
    return [(y.double() - shift) / scale for y, shift, scale in columns]


def _with_one(rows: Tensor) -> Tensor:
    """The rows with a 1 at the end, for the bias: (n, d) -> (n, d + 1)."""
    return torch.cat([rows, rows.new_ones(len(rows), 1)], dim=1)
