"""RnC for labels that are known in part: intervals, censored, missing.

The label of sample i is known to lie in [l_i, u_i]. It is exact if both ends are equal, at least
l_i if u_i is infinite, at most u_i if l_i is infinite, and missing if both are. Then the label
distance of two samples lies between

    lo_ij = max(0, l_i - u_j, l_j - u_i)        what is certainly between them
    hi_ij = max(u_i - l_j, u_j - l_i)           what is at most between them

Views of one sample have distance 0, whatever its label. The loss contrasts only what is certain:

    S_ij = {j} and {k != i : lo_ik >= hi_ij}    j and all that rank at or beyond it in any case
    l_i  = mean_{j : hi_ij finite} [ log sum_{k in S_ij} exp(s_ik) - s_ij ]
    L    = mean_i l_i                           over the anchors that have such a j

With exact labels this equals `rnc.loss.equation`. An anchor with a missing label keeps only the
other views of its sample as j, as in contrastive learning without labels. A pair about which
nothing is certain has S_ij = {j} and adds 0.

With several targets, the bounds of each add up as distances of exact labels do. A target that one
of the two samples lacks altogether is left out of their distance, and the others are scaled up:
with c of t targets in common, l1 distances are multiplied by t / c, l2 distances by its root. So
samples with missing targets are ordered by the targets they have in common only.

Sort an anchor's samples k by lo_ik, furthest first: every S_ij without j is a prefix of that order.
Sort the j by hi_ij, nearest first: those whose S_ij holds k are a prefix, too. So both sums are
cumulative sums, as in `rnc.loss.plain`, and the work is O(n^2 log n).
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from rnc.loss.anchor_weights import shares
from rnc.loss.batch import LARGEST_TARGET, Problem
from rnc.loss.distributed import world_size
from rnc.loss.options import PairOptions
from rnc.loss.pairwise import Pairwise, distances_of, safe_factor, similarities_of
from rnc.loss.plain import refuse_second_derivative

OPEN = LARGEST_TARGET
"""Stands for an infinite end of an interval, since targets of the loss are finite."""
Others = tuple[Tensor, Tensor] | tuple[Tensor, Tensor, Tensor]
"""Features and targets, or features and the lower and upper ends of labels."""


@dataclass(frozen=True)
class Between:
    """A label distance of intervals: takes targets (n, 2 t), the lower ends and then the upper."""

    distance: str | Pairwise
    """Distance of exact labels. Intervals need "l1" or "l2"; others take exact and missing."""

    def __call__(self, a: Tensor, b: Tensor) -> Tensor:
        """The largest distances that labels may have: (n, 2 t), (m, 2 t) -> (n, m)."""
        return self.bounds(a, b).high

    def bounds(self, a: Tensor, b: Tensor) -> "Bounds":
        """The least and the largest distances: (n, 2 t), (m, 2 t) -> (n, m) twice."""
        if self.distance in ("l1", "l2"):
            return _interval_bounds(_unpack(a), _unpack(b), squares=self.distance == "l2")
        (lower, _), (others, _) = _unpack(a), _unpack(b)
        known = _is_known(lower)[:, None] & _is_known(others)
        distances = distances_of(self.distance, _filled(lower), _filled(others))
        return Bounds(distances * known, torch.where(known, distances, torch.inf))


class Bounds(NamedTuple):
    """Lower and upper bounds of the label distances of pairs: (n, m) each."""

    low: Tensor
    high: Tensor


class Labels(NamedTuple):
    """The targets of a loss, and the options by which they are compared."""

    targets: Tensor
    reference: tuple[Tensor, Tensor] | None
    queue: tuple[Tensor, Tensor] | None
    options: PairOptions


def labels_of(
    targets: Tensor,
    upper: Tensor | None,
    reference: Others | None,
    queue: Others | None,
    options: PairOptions,
) -> Labels:
    """Labels from `targets` to `upper`, packed for `Between`, or plain targets if all are exact.

    Exactness is tested on a CPU only, since the test would synchronize with a GPU, and not where
    several processes share a batch, since one of them may have exact labels alone.
    """
    others = [some for some in (reference, queue) if some is not None]
    if upper is None:
        if any(len(some) == 3 for some in others):
            raise ValueError(
                "rnc_loss got upper ends for a reference or a queue, and none for the batch. Pass "
                "upper=, equal to targets where labels are exact."
            )
        return Labels(targets, _pair(reference), _pair(queue), options)
    if options.positives is not None:
        raise ValueError(
            f"positives={options.positives} needs exact labels: which ones are nearest is not "
            "known of intervals. Leave out positives= or upper=."
        )
    ends = [(targets, upper), *((some[1], some[-1]) for some in others)]
    packed = [pack(*pair, options.label_distance, check=options.validate) for pair in ends]
    halves = [labels.chunk(2, dim=1) for labels in packed]
    is_shared = options.gather and world_size() > 1  # all processes must decide alike
    can_test = targets.is_cpu and not torch.compiler.is_compiling() and not is_shared
    if can_test and all(torch.equal(lower, upper) for lower, upper in halves):
        packed = [lower for lower, _ in halves]
    else:
        between = Between(options.label_distance)
        options = replace(options, label_distance=between, missing="raise")
    rest = iter(packed[1:])
    first, second = (None if some is None else (some[0], next(rest)) for some in (reference, queue))
    return Labels(packed[0], first, second, options)


def _pair(some: Others | None) -> tuple[Tensor, Tensor] | None:
    return None if some is None else (some[0], some[1])


def pack(lower: Tensor, upper: Tensor, distance: str | Pairwise, *, check: bool) -> Tensor:
    """Targets for `Between`: twice (n,) or (n, t) -> (n, 2 t). `OPEN` replaces NaN and inf."""
    if lower.shape != upper.shape or lower.dim() not in (1, 2):
        raise ValueError(
            "rnc_loss needs the upper ends of labels in the shape of targets, (n,) or (n, t); got "
            f"{tuple(upper.shape)} and {tuple(lower.shape)}."
        )
    lowest, highest = (end.detach().double().reshape(len(lower), -1) for end in (lower, upper))
    lowest = lowest.masked_fill(lowest.isnan(), -torch.inf)
    highest = highest.masked_fill(highest.isnan(), torch.inf)
    if check and not torch.compiler.is_compiling():
        _check_ends(lowest, highest, distance)
    return torch.cat([lowest, highest], dim=1).clamp_(-OPEN, OPEN)


def check_order(lower: Tensor, upper: Tensor, needed: str) -> None:
    """Raise for an interval that holds no number; ends are (n, t), infinite where open."""
    wrong = (lower > upper) | (lower == torch.inf) | (upper == -torch.inf)
    if wrong.any():
        row, column = wrong.nonzero()[0].tolist()
        raise ValueError(
            f"{needed} at or below upper; got {lower[row, column].item():g} and "
            f"{upper[row, column].item():g} in row {row}. An open end is -inf below or inf above, "
            "a missing label NaN."
        )


def _check_ends(lower: Tensor, upper: Tensor, distance: str | Pairwise) -> None:
    check_order(lower, upper, "rnc_loss needs targets (lower ends of labels)")
    for end in (lower, upper):
        too_large = end.isfinite() & (end.abs() >= OPEN)
        if too_large.any():
            raise ValueError(
                f"rnc_loss needs ends of labels within {OPEN:.0e}, or infinite where open; "
                f"got {end[too_large][0].item():.1e} in row {too_large.nonzero()[0, 0].item()}. "
                "Divide all labels by one number: only their order of distances counts."
            )
    between = (lower < upper) & ~(lower.isinf() & upper.isinf())
    if distance not in ("l1", "l2") and between.any():
        raise ValueError(
            f"label_distance={distance!r} takes exact or missing labels; got an interval in row "
            f"{between.nonzero()[0, 0].item()}. Intervals need 'l1' or 'l2'."
        )


def _unpack(targets: Tensor) -> tuple[Tensor, Tensor]:
    """Lower and upper ends, (n, t) each, infinite where open."""
    lower, upper = targets.chunk(2, dim=1)
    return (
        lower.masked_fill(lower <= -OPEN, -torch.inf),
        upper.masked_fill(upper >= OPEN, torch.inf),
    )


def _is_known(lower: Tensor) -> Tensor:
    return lower.isfinite().all(dim=1)


def _filled(lower: Tensor) -> Tensor:
    return lower.masked_fill(~lower.isfinite(), 0.0)


def _interval_bounds(
    a: tuple[Tensor, Tensor], b: tuple[Tensor, Tensor], *, squares: bool
) -> Bounds:
    """Bounds of l1 distances, or with `squares` of l2 distances: (n, m) each."""
    count = a[0].shape[1]
    several = squares and count > 1
    # Squares of labels of 1e160 would be infinite, as if the labels were missing.
    finite = [end.masked_fill(end.isinf(), 0.0) for ends in (a, b) for end in ends]
    factor = safe_factor(*finite) if several else 1.0
    low = high = common = a[0].new_zeros(len(a[0]), len(b[0]))
    for target in range(count):
        (l_a, u_a), (l_b, u_b) = ([end[:, target] for end in ends] for ends in (a, b))
        both = ~_is_missing(l_a, u_a)[:, None] & ~_is_missing(l_b, u_b)
        least = torch.maximum(l_a[:, None] - u_b, l_b - u_a[:, None]).clamp_(min=0)
        most = torch.maximum(u_a[:, None] - l_b, u_b - l_a[:, None]).masked_fill_(~both, 0.0)
        low = low + ((least * factor).square() if several else least)
        high = high + ((most * factor).square() if several else most)
        common = common + both
    high = high.masked_fill(common == 0, torch.inf)
    if count == 1:
        return Bounds(low, high)
    share = count / common.clamp(min=1)
    if several:
        return Bounds((low * share).sqrt() / factor, (high * share).sqrt() / factor)
    return Bounds(low * share, high * share)


def _is_missing(lower: Tensor, upper: Tensor) -> Tensor:
    return (lower == -torch.inf) & (upper == torch.inf)


# ------------------------------------------------------------------------------ losses and gradient


def has_pairs(problem: Problem, options: PairOptions) -> Tensor:
    """Which anchors have another row at a bounded distance: (n,)."""
    found = [
        _bounds(start, targets, problem, options).high.isfinite().any(dim=1)
        for start, targets in _chunks(problem.anchors.targets, options.chunk_size)
    ]
    return torch.cat(found) if found else problem.anchors.targets.new_zeros(0, dtype=torch.bool)


def _chunks(targets: Tensor, size: int | None) -> Iterator[tuple[int, Tensor]]:
    size = max(1, size or len(targets))
    return ((start, targets[start : start + size]) for start in range(0, len(targets), size))


def partial_losses(
    start: int, features: Tensor, targets: Tensor, problem: Problem, options: PairOptions
) -> Tensor:
    """Float64 losses of the anchors from `start` on, given their rows; 0 without a pair."""
    similarities = similarities_of(options.similarity, features, problem.others.features)
    bounds = _bounds(start, targets, problem, options)
    losses: Tensor = _PartialLosses.apply(
        similarities.double(), *bounds, options.temperature, options.tie_tolerance
    )
    return losses


def _bounds(start: int, targets: Tensor, problem: Problem, options: PairOptions) -> Bounds:
    """Bounds for the anchors from `start` on: 0 for views of a sample, (-inf, inf) for itself."""
    assert isinstance(options.label_distance, Between)
    low, high = options.label_distance.bounds(targets, problem.others.targets)
    if problem.own_column is None:
        return Bounds(low, high)
    shape, device = problem.given[0].features.shape, targets.device
    views = shape[1] if len(shape) == 3 else 1
    rows = torch.arange(start, start + len(targets), device=device)[:, None]
    own = rows + problem.own_column
    columns = own - rows % views + torch.arange(views, device=device)
    low, high = low.scatter(1, columns, 0.0), high.scatter(1, columns, 0.0)
    return Bounds(low.scatter_(1, own, -torch.inf), high.scatter_(1, own, torch.inf))


def least_loss(problem: Problem, options: PairOptions) -> Tensor:
    """The lower bound of the loss: the mean over anchors and pairs of log(number of ties).

    The ties of j are the samples that are certainly as far away as j, j included. Every completion
    of the labels keeps the orders that are certain. So features in the order of a completion that
    adds no ties come arbitrarily close to the bound.
    """
    low, high = _bounds(0, problem.anchors.targets, problem, options)
    exact = torch.where(low + options.tie_tolerance >= high, high, torch.inf).contiguous()
    order = exact.sort(dim=1).values
    ties = [torch.searchsorted(order, exact, right=right) for right in (True, False)]
    is_pair = high.isfinite()
    logs = torch.where(exact.isfinite(), (ties[0] - ties[1]).double().log(), 0.0)
    means = logs.sum(dim=1) / is_pair.sum(dim=1).clamp(min=1)
    counted = is_pair.any(dim=1).double()
    weights = counted if problem.weights is None else counted * problem.weights
    return (means * shares(weights)).mean()


class _PartialLosses(torch.autograd.Function):
    """The losses of some anchors, and their gradient in the same pass.

    With D_j the denominator of pair j and w = 1 / (number of pairs of the anchor),
        loss        = sum_j w (log D_j - s_j)
        dloss/ds_k  = exp(s_k) sum_{j : k in S_j} w / D_j - w_k
    """

    @staticmethod
    def forward(
        ctx: Any, similarities: Tensor, low: Tensor, high: Tensor, temperature: float, tie: float
    ) -> Tensor:
        logits, is_pair = similarities / temperature, high.isfinite()
        share = is_pair.double() / is_pair.sum(dim=1, keepdim=True).clamp(min=1)
        least = high - tie  # k is in S_j if lo_k is at least this
        alone = low < least  # j is in S_j only because it is j
        order = low.sort(dim=1, descending=True)
        count = torch.searchsorted(-order.values, -least, right=True)
        logs = _cumulative(logits.gather(1, order.indices)).gather(1, count)
        logs = torch.where(alone, torch.logaddexp(logs, logits), logs)
        inverses = (share.log() - logs).masked_fill_(~is_pair, -torch.inf)
        order = least.sort(dim=1)
        count = torch.searchsorted(order.values, low, right=True)
        pulls = _cumulative(inverses.gather(1, order.indices)).gather(1, count)
        pulls = torch.where(alone, torch.logaddexp(pulls, inverses), pulls)
        # The exact value is at most log 1 = 0, but rounding may lift it above 0.
        ctx.save_for_backward((pulls + logits).clamp_(max=0.0).exp_().sub_(share))
        ctx.temperature = temperature
        return ((logs - logits).masked_fill_(~is_pair, 0.0) * share).sum(dim=1)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        refuse_second_derivative()
        (grad,) = ctx.saved_tensors
        return (upstream / ctx.temperature)[:, None] * grad, None, None, None, None


def _cumulative(values: Tensor) -> Tensor:
    """Log of the sum of the first 0, 1, ..., m exponentials: (n, m) -> (n, m + 1)."""
    none = values.new_full((len(values), 1), -torch.inf)
    return torch.cat([none, values.logcumsumexp(dim=1)], dim=1)
