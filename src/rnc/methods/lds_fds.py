"""Imbalanced regression, LDS and FDS (Yang 2021, arXiv:2102.09554).

LDS, label distribution smoothing: samples of rare labels weigh more.

    f_b = sqrt(n_b), or n_b within 5 .. 1000       of the n_b training samples in bin b
    w_i ~ 1 / sum_b K(b - b_i) f_b                 with mean 1; K a window around the bin of i

FDS, feature distribution smoothing: features take on statistics of the bins around their own.

    m_b, s_b^2 <- mean and variance of the features in bin b, of an epoch and those before it
    m'_b, s'_b^2 = averages of both over bins, weighted by K
    z = (v - m_b) r + m'_b,    r^2 = s'_b^2 / s_b^2 within 0.1 .. 10

Beside the RnC loss: LDS and FDS assume that near labels are alike, as RnC does, but neither shapes
the order of the features. They are added to the training of a head.
"""

from typing import Literal, get_args

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor

from rnc.heads import PerTarget
from rnc.loss.batch import as_rows, as_targets
from rnc.loss.distributed import world_size
from rnc.methods.labels import Grid, check_labels, check_positive, grid_classes, label_grid
from rnc.methods.objective import Calibration, MethodSetup

Kernel = Literal["gaussian", "triang", "laplace"]
Reweight = Literal["sqrt_inv", "inverse"]


def lds_weights(
    targets: Tensor,
    *,
    low: PerTarget = None,
    high: PerTarget = None,
    step: PerTarget = None,
    reweight: Reweight = "sqrt_inv",
    kernel: Kernel | None = "gaussian",
    size: int = 5,
    sigma: float = 2.0,
    original: bool = False,
) -> Tensor:
    """The weight of each training sample, with mean 1: (n,) or (n, t) -> (n,), float64.

    Bins are the classes of the head `dex`, with low, high and step as for `rnc.heads.head_config`.
    With several targets, a bin is a tuple of them and the window a product. Costs m^2 for m bins
    with samples, once. "sqrt_inv" weighs by 1 / sqrt of the count, "inverse" by 1 / count. The
    window is that of `label_window`; kernel None smooths nothing.

    `original` does as the published code. It takes one target, cut to whole numbers 0 .. 120. The
    tails of the Gaussian fold back into the window. With "inverse", smoothed counts are cut to
    whole numbers and bins without samples count 5.

    >>> lds_weights(torch.tensor([20.0, 20.0, 20.0, 20.0, 60.0]), kernel=None)
    tensor([0.8333, 0.8333, 0.8333, 0.8333, 1.6667], dtype=torch.float64)
    """
    if reweight not in get_args(Reweight):
        known = ", ".join(get_args(Reweight))
        raise ValueError(f"reweight must be one of {known}; got {reweight!r}.")
    window = np.ones(1) if kernel is None else label_window(kernel, size, sigma, folded=original)
    rows = as_targets(targets, "lds_weights")
    if rows.numel() == 0:
        raise ValueError(f"lds_weights needs at least one target; got {tuple(targets.shape)}.")
    check_labels(rows, "lds_weights")
    if original:
        density = _original_density(rows, reweight, window)
    else:
        grid = label_grid(low, high, step, targets=rows)
        density = _density(rows, grid, reweight, torch.from_numpy(window))
    weights = 1 / density
    return (weights / weights.mean()).to(targets.device)


def label_window(
    kernel: Kernel, size: int, sigma: float, *, folded: bool = False
) -> NDArray[np.float64]:
    """A window over an odd number of bins with 1 in the middle: (size,).

    Its width sigma is in bins; "triang" has none. If `folded`, the tails of the Gaussian beyond the
    window are reflected into it, as published.

    >>> label_window("gaussian", 5, 2.0).round(3).tolist()
    [0.607, 0.882, 1.0, 0.882, 0.607]
    """
    if kernel not in get_args(Kernel):
        raise ValueError(f"kernel must be one of {', '.join(get_args(Kernel))}; got {kernel!r}.")
    if size < 1 or size % 2 == 0:
        raise ValueError(
            f"size must be an odd number >= 1, so that a bin has a middle; got {size}."
        )
    check_positive(sigma=sigma)
    steps = np.abs(np.arange(size) - size // 2)
    if kernel == "triang":
        window = 1 - steps / (size // 2 + 1)
    elif kernel == "laplace":
        window = np.exp(-steps / sigma)
    elif folded:
        from scipy.ndimage import gaussian_filter1d  # type: ignore[import-untyped]

        window = gaussian_filter1d((steps == 0).astype(np.float64), sigma)
    else:
        window = np.exp(-((steps / sigma) ** 2) / 2)
    shares: NDArray[np.float64] = window / window.max()
    return shares


def _density(rows: Tensor, grid: Grid, reweight: Reweight, window: Tensor) -> Tensor:
    """The smoothed number of samples around each sample, from the bins that have samples."""
    classes = grid_classes(rows.cpu(), grid)
    bins, bin_of, counts = torch.unique(classes, dim=0, return_inverse=True, return_counts=True)
    numbers = _numbers(counts.double(), reweight)
    reach = len(window) // 2
    padded = torch.cat([window[reach:], window.new_zeros(1)])  # by distance; 0 beyond the window
    sums = []
    for part in bins.split(max(1, 2**22 // len(bins))):
        weights = torch.ones(len(part), len(bins), dtype=torch.float64)
        for a, b in zip(part.unbind(1), bins.unbind(1), strict=True):
            weights *= padded[(a[:, None] - b).abs().clamp(max=reach + 1)]
        sums.append(weights @ numbers)
    return torch.cat(sums)[bin_of]


def _numbers(counts: Tensor, reweight: Reweight) -> Tensor:
    return counts.sqrt() if reweight == "sqrt_inv" else counts.clamp(5, 1000)


def _original_density(rows: Tensor, reweight: Reweight, window: NDArray[np.float64]) -> Tensor:
    if rows.shape[1] > 1 or bool((rows < 0).any()):
        raise ValueError(
            "lds_weights(original=True) has one target >= 0; got "
            f"{rows.shape[1]} targets with minimum {rows.min().item()}. Leave original out."
        )
    bins = rows[:, 0].cpu().long().clamp(max=120)
    numbers = _numbers(bins.bincount(minlength=121).double(), reweight)
    from scipy.ndimage import convolve1d  # slow to import, and help texts need none

    smooth = torch.from_numpy(convolve1d(numbers.numpy(), window, mode="constant"))
    if reweight == "inverse" and len(window) > 1:
        smooth = smooth.trunc()
    return smooth[bins]


class FDS(Calibration):
    """Features calibrated by the statistics of their label's bin and of those around it.

    In training mode a call collects the statistics of the features and returns them calibrated;
    in evaluation mode it returns them as they are. `finish_epoch` makes an epoch's statistics those
    of the next one. Under torch.distributed they are those of all processes.

    >>> fds = FDS(16, low=0, high=9)
    >>> for epoch in range(2):
    ...     features, ages = torch.randn(64, 16), torch.arange(64) % 10
    ...     calibrated = fds(features, ages)
    ...     fds.finish_epoch()
    >>> calibrated.shape, bool((calibrated == features).all())
    (torch.Size([64, 16]), False)
    """

    mean: Tensor
    variance: Tensor
    smooth_mean: Tensor
    smooth_variance: Tensor
    count: Tensor
    epochs: Tensor
    neighbours: Tensor

    def __init__(
        self,
        d: int,
        *,
        low: float,
        high: float,
        step: float | None = None,
        kernel: Kernel = "gaussian",
        size: int = 5,
        sigma: float = 2.0,
        momentum: float | None = 0.9,
        original: bool = False,
        validate: bool = True,
    ) -> None:
        """Start without statistics: features stay as they are.

        Bins are those of the head `dex` from low to high; labels beyond count as the nearest. The
        window is that of `label_window`. `validate` raises for NaN and infinite values, which
        synchronizes with a GPU once. Without it, they are left out of the statistics.

        `momentum` is the part of a bin's statistics that stays at the end of an epoch; 0.9 is what
        the released code runs with. None is its other option, cumulative statistics: means over all
        epochs, each weighted by the number of samples that it had in the bin.

        `original` does as the published code, for whole labels. The smoothed statistics are an
        epoch older than the others; bins without samples are smoothed in with mean 0 and variance
        1; the Gaussian is folded; labels beyond the bins count only if the edge bin next to them
        has a label, too. `original` does not change the momentum.
        """
        super().__init__()
        if d < 1 or not (momentum is None or 0 <= momentum <= 1):
            raise ValueError(
                f"FDS needs d >= 1 and 0 <= momentum <= 1, or None; got {d=}, {momentum=}."
            )
        self.grid = label_grid(low, high, step)
        window = label_window(kernel, size, sigma, folded=original)
        bins = self.grid.bins[0]
        if len(self.grid.bins) > 1 or size // 2 >= bins:
            raise ValueError(
                f"FDS needs one target and more bins than half of size={size}; got "
                f"{self.grid.bins} bins."
            )
        self.momentum, self.original, self.validate = momentum, original, validate
        self.register_buffer("mean", torch.zeros(bins, d, dtype=torch.float64))
        self.register_buffer("variance", torch.ones(bins, d, dtype=torch.float64))
        self.register_buffer("smooth_mean", self.mean.clone())
        self.register_buffer("smooth_variance", self.variance.clone())
        self.register_buffer("count", torch.zeros(bins, dtype=torch.float64))
        self.register_buffer("epochs", torch.zeros((), dtype=torch.long))
        self.register_buffer("neighbours", _neighbours(bins, size), persistent=False)
        self.shares: list[float] = (window / window.sum()).tolist()
        # Not a buffer: DDP would overwrite it with that of rank 0 at every step.
        self._sums: Tensor | None = None

    def forward(self, features: Tensor, targets: Tensor) -> Tensor:
        """Collect and calibrate: (n, d) or (n, v, d), with (n,) or (n, 1) -> the same shape."""
        if not self.training:
            return features
        rows, bins = self._rows(features, targets)
        self._collect(rows, bins)
        return self._calibrated(rows, bins).reshape(features.shape)

    def collect(self, features: Tensor, targets: Tensor) -> None:
        """Add features to the statistics of this epoch.

        `forward` does so for the features of each step. Call this instead, in a pass of its own
        after the epoch, for statistics of the final weights; then let the steps call `calibrate`.
        """
        self._collect(*self._rows(features, targets))

    def calibrate(self, features: Tensor, targets: Tensor) -> Tensor:
        """Features moved to the smoothed statistics of their bin, of the same shape.

        Features of a bin without statistics or variance stay. Half precision gives float32.
        """
        return self._calibrated(*self._rows(features, targets)).reshape(features.shape)

    @torch.no_grad()
    def finish_epoch(self) -> None:
        """Update the statistics by what was collected since the last call, in every process."""
        bins, d = self.mean.shape
        if self._sums is None:
            sums = self.mean.new_zeros(bins + 2, 1 + 2 * d)
        else:
            sums = self._sums.clone()
            self._sums.zero_()  # in place, since a CUDA graph writes to this address
        if world_size() > 1:
            dist.all_reduce(sums)
        if self.original:
            # The published code smooths before the update, except in the first epoch.
            if self.epochs > 0:
                self._smooth(torch.ones_like(self.count))
            self._update(self._join(sums), self.epochs > 0)
        else:
            self._update(self._join(sums), self.count > 0)
            self._smooth((self.count > 0).double())
        self.epochs += 1

    @torch.no_grad()
    def _collect(self, rows: Tensor, bins: Tensor) -> None:
        good = rows.isfinite().all(dim=1) & bins.isfinite()
        values = rows.double().masked_fill(~good[:, None], 0.0)
        numbers = torch.cat([good[:, None].double(), values, values.square()], dim=1)
        if self._sums is None:
            # Two more bins: for labels below the first bin and above the last.
            self._sums = numbers.new_zeros(self.mean.shape[0] + 2, numbers.shape[1])
        self._sums.index_add_(0, bins.nan_to_num().long() + 1, numbers)

    def _calibrated(self, rows: Tensor, bins: Tensor) -> Tensor:
        last = self.mean.shape[0] - 1
        ready = bins.isfinite()
        if self.original:
            beside = ((bins == 0).any(), (bins == last).any())
            ready = ready & (bins >= 0).logical_or(beside[0]) & (bins <= last).logical_or(beside[1])
            ready = ready & (self.epochs >= 2)
        own = bins.nan_to_num().clamp(0, last).long()
        if not self.original:
            ready = ready & (self.count[own] > 0)
        variance = self.variance[own]
        ready = ready & (variance.sum(dim=1) >= 1e-10)
        moves = ready[:, None] & (variance > 0)
        ratio = (self.smooth_variance[own] / variance.masked_fill(~moves, 1.0)).clamp(0.1, 10.0)
        centred = rows - self.mean[own].to(rows.dtype)
        moved = centred * ratio.sqrt().to(rows.dtype) + self.smooth_mean[own].to(rows.dtype)
        return torch.where(moves, moved, rows)

    def _join(self, sums: Tensor) -> Tensor:
        """Add the sums of labels beyond the bins to the edge bins: (bins + 2, .) -> (bins, .)."""
        below, above, sums = sums[0], sums[-1], sums[1:-1].clone()
        for edge, beyond in ((sums[0], below), (sums[-1], above)):
            edge += beyond * (edge[0] > 0) if self.original else beyond
        return sums

    def _update(self, sums: Tensor, known: Tensor) -> None:
        """Update the statistics of bins with samples; momentum applies to `known` bins only."""
        d = self.mean.shape[1]
        n = sums[:, :1]
        mean = sums[:, 1 : 1 + d] / n.clamp(min=1)
        squares = sums[:, 1 + d :] - n * mean.square()
        variance = (squares / (n - 1).clamp(min=1)).clamp(min=0)
        if self.momentum is None:
            change = n / (self.count[:, None] + n).clamp(min=1)
        else:
            change = (1 - self.momentum * known.double().reshape(-1, 1)) * (n > 0)
        self.mean.lerp_(mean, change.expand_as(mean))
        self.variance.lerp_(variance, change.expand_as(mean))
        self.count += n[:, 0]

    def _smooth(self, weight: Tensor) -> None:
        """Average the statistics over the window around each bin, with weights of the bins."""
        columns = list(zip(self.shares, self.neighbours.unbind(1), strict=True))
        total = sum(share * weight[column] for share, column in columns)
        total = torch.as_tensor(total).clamp(min=1e-300)[:, None]
        for name in ("mean", "variance"):
            weighted = weight[:, None] * self.get_buffer(name)
            sums = sum(share * weighted[column] for share, column in columns)
            self.get_buffer(f"smooth_{name}").copy_(sums / total)

    def _rows(self, features: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Rows (n, d) and their bins (n,): -1 is below all bins, the number of bins above."""
        rows, labels = as_rows(features, targets, "FDS")
        if rows.shape[1] != self.mean.shape[1] or labels.shape[1] != 1:
            raise ValueError(
                f"FDS needs features (n, {self.mean.shape[1]}) and one target, since most bins of "
                f"several would stay empty; got {tuple(features.shape)} and {tuple(targets.shape)}."
            )
        if self.validate:
            check_labels(targets, "FDS", features)
        y, low, step, bins = labels[:, 0], self.grid.low[0], self.grid.step[0], self.grid.bins[0]
        own = grid_classes(labels, self.grid)[:, 0].double()
        u = (y - low) / step
        beyond = torch.where(u < 0, -1.0, torch.where(u > bins - 1, float(bins), own))
        return rows, torch.where(y.isfinite(), beyond, torch.nan)


def _neighbours(bins: int, size: int) -> Tensor:
    """The bins around each, mirrored at the ends: (bins, size)."""
    around = torch.arange(bins)[:, None] + torch.arange(size) - size // 2
    return (bins - 1) - (bins - 1 - around.abs()).abs()


def fds_calibration(setup: MethodSetup, *, momentum: float | None = 0.9) -> FDS:
    """FDS with bins for the training targets of a setup."""
    options = setup.options
    grid = label_grid(options.low, options.high, options.step, targets=setup.targets)
    low, step = grid.low[0], grid.step[0]
    return FDS(
        setup.d,
        low=low,
        high=low + step * (grid.bins[0] - 1),
        step=step,
        momentum=momentum,
        original=options.original,
        validate=False,
    )
