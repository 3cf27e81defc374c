"""The plain backend of the loss, "torch": any device, any distance, every option.

Like `rnc.loss.equation`, it sorts the samples of each anchor by label distance, furthest first.
Then every S_ij is a prefix of a row, and the cumulative sum of a row's exponentials holds all of
its denominators: O(n^2 log n) work instead of the O(n^3) of the definition. The gradient is a
cumulative sum from the other end, computed in the same pass, so that one (n, m) array is kept for
the backward pass instead of six.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from rnc.loss.batch import Problem
from rnc.loss.options import PairOptions
from rnc.loss.pairwise import circular, distances_of, similarities_of

AnchorLosses = Callable[[int, Tensor, Tensor, Problem, PairOptions], Tensor]
"""The losses of the anchors from a row on, given their features and targets."""


def plain_losses(
    problem: Problem, options: PairOptions, anchor_losses: AnchorLosses | None = None
) -> Tensor:
    """The loss of every anchor: (n,). `anchor_losses` is for labels that are known in part.

    With `chunk_size`, the anchors are processed in chunks. A chunk keeps only its input for the
    backward pass and is computed again there.
    """
    anchors, chunk_size = problem.anchors, options.chunk_size
    losses_of = anchor_losses or _anchor_losses
    if chunk_size is None or chunk_size >= len(anchors.features):
        return losses_of(0, *anchors, problem, options).to(anchors.features.dtype)
    chunks = zip(*(torch.split(column, chunk_size) for column in anchors), strict=True)
    losses = [
        checkpoint(
            losses_of,
            i * chunk_size,
            *chunk,
            problem,
            options,
            use_reentrant=False,
            preserve_rng_state=False,
        )
        for i, chunk in enumerate(chunks)
    ]
    return torch.cat(losses).to(anchors.features.dtype)


def _anchor_losses(
    start: int, features: Tensor, targets: Tensor, problem: Problem, options: PairOptions
) -> Tensor:
    """Float64 losses of the anchors from `start` on, given their features and targets."""
    others = problem.others
    labels, label_of = targets, None
    if isinstance(options.label_distance, str | circular):
        labels, label_of = _distinct(targets)
    distances = distances_of(options.label_distance, labels, others.targets)
    ranking = rank(distances, options.tie_tolerance)
    similarities = similarities_of(options.similarity, features, others.features)
    own = None
    if problem.own_column is not None:
        own = torch.arange(len(features), device=features.device) + (problem.own_column + start)
    return ranked_losses(similarities, ranking, options, label_of, own)


def _distinct(targets: Tensor) -> tuple[Tensor, Tensor | None]:
    """Distinct labels and the index of each row's label; (targets, None) if that saves nothing.

    Views and rounded labels repeat, and equal labels rank alike, so each label is ranked once.
    Finding the distinct labels would synchronize with a GPU, and torch.compile cannot trace it.
    """
    if not targets.is_cpu or torch.compiler.is_compiling():
        return targets, None
    if targets.shape[1] == 1:  # many times faster than rows
        values, label_of = torch.unique(targets[:, 0], return_inverse=True)
        distinct = values[:, None]
    else:
        distinct, label_of = torch.unique(targets, dim=0, return_inverse=True)
    return (targets, None) if len(distinct) == len(targets) else (distinct, label_of)


# ---------------------------------------------------------------------- the samples of each anchor


class Ranking(NamedTuple):
    """For each of n labels, all m samples by label distance, furthest first: arrays (n, m)."""

    nearness: Tensor
    """Minus the label distance at each rank, ascending."""
    order: Tensor
    """The sample at each rank."""
    first_tie: Tensor
    """The first rank with the same label distance."""
    last_tie: Tensor
    """The last such rank: S_ij is ranks 0..last_tie of j."""
    rank_of: Tensor
    """The rank of each sample."""


def rank(distances: Tensor, tie_tolerance: float = 0.0) -> Ranking:
    """Rank m samples by their label distances from n labels, (n, m), furthest first."""
    nearness, order = (-distances).sort(dim=1)
    high = nearness + tie_tolerance if tie_tolerance else nearness
    # Both searches compare with `high`. Subtracting the tolerance for the first would round
    # differently, and a tie could count in one direction only.
    first_tie = torch.searchsorted(high, nearness)
    last_tie = torch.searchsorted(nearness, high, right=True).sub_(1)
    ranks = torch.arange(order.shape[1], device=order.device).expand_as(order)
    rank_of = torch.empty_like(order).scatter_(1, order, ranks)
    return Ranking(nearness, order, first_tie, last_tie, rank_of)


# ----------------------------------------------------------------------------- losses and gradient


def ranked_losses(
    similarities: Tensor,
    ranking: Ranking,
    options: PairOptions,
    label_of: Tensor | None = None,
    own: Tensor | None = None,
) -> Tensor:
    """The loss of every anchor: similarities (n, m) -> (n,).

    For each anchor, `label_of` holds its row of the ranking, (n,), or None if they are the same;
    `own` holds the sample that is the anchor itself, (n,), or None if there is none.
    """
    losses = []
    for start, part in _blocks(similarities):
        anchors = slice(start, start + len(part))
        rows = anchors if label_of is None else label_of[anchors]
        itself = None if own is None else _find(own[anchors], ranking.rank_of, rows)
        weight = _weights(ranking.nearness, rows, itself, options)
        order, first_tie, last_tie = (array[rows] for array in ranking[1:4])
        ranks = (order, first_tie, last_tie, itself)
        losses.append(_RankedLosses.apply(part.double(), options.temperature, *ranks, weight))
    return torch.cat(losses) if len(losses) > 1 else losses[0]


def _find(samples: Tensor, rank_of: Tensor, rows: slice | Tensor) -> Tensor:
    """The rank of one sample for each of the rows: (n,) -> (n, 1)."""
    if isinstance(rows, slice):
        return rank_of[rows].gather(1, samples[:, None])
    return rank_of[rows, samples][:, None]


def _weights(
    nearness: Tensor, rows: slice | Tensor, itself: Tensor | None, options: PairOptions
) -> Tensor | float:
    """The share of each rank in its anchor's loss: (n, m), or a number where all are equal."""
    positives = options.positives
    p = nearness.shape[1] - (itself is not None)
    if positives is None or positives >= p:
        return 1 / max(1, p)
    nearness = nearness[rows]
    kth = torch.full_like(nearness[:, :1], nearness.shape[1] - positives, dtype=torch.long)
    if itself is not None:
        kth -= (itself >= kth).long()
    chosen = nearness >= nearness.gather(1, kth) - options.tie_tolerance
    if itself is not None:
        chosen.scatter_(1, itself, False)
    return chosen / chosen.sum(dim=1, keepdim=True, dtype=nearness.dtype)


class _RankedLosses(torch.autograd.Function):
    """The losses of some anchors, and their gradient in the same pass.

    With D_j the denominator of pair j and w_j its weight,
        loss        = sum_j w_j (log D_j - s_j)
        dloss/ds_k  = exp(s_k) sum_{j : k in S_j} w_j / D_j - w_k
    The D_j are a running sum over ranks, read at the last tie of j. The j of the second sum reach
    from the first tie of k to the nearest sample: a running sum from the other end.
    """

    @staticmethod
    def forward(
        ctx: Any,
        similarities: Tensor,
        temperature: float,
        order: Tensor,
        first_tie: Tensor,
        last_tie: Tensor,
        itself: Tensor | None,
        weight: Tensor | float,
    ) -> Tensor:
        logits = similarities.gather(1, order).div_(temperature)
        sums = _plain_sums if _is_narrow(logits) else _log_sums
        if itself is not None:
            logits.scatter_(1, itself, -torch.inf)
        terms, pull = sums(logits, first_tie, last_tie, itself, weight)
        grad = pull.sub_(weight)
        if itself is not None:
            grad.scatter_(1, itself, 0.0)
            terms.scatter_(1, itself, 0.0)
        ctx.save_for_backward(torch.empty_like(grad).scatter_(1, order, grad))
        ctx.temperature = temperature
        return terms.mul_(weight).sum(dim=1)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        refuse_second_derivative()
        (grad,) = ctx.saved_tensors
        return (upstream / ctx.temperature)[:, None] * grad, None, None, None, None, None, None


def refuse_second_derivative() -> None:
    """Raise if the running backward pass is itself to be differentiated."""
    if torch.is_grad_enabled() and not torch.compiler.is_compiling():
        raise RuntimeError(
            "rnc_loss has no second derivative: its gradient cannot be differentiated again. "
            "Leave out create_graph=True, or keep this loss out of the penalised gradient."
        )


def _is_narrow(logits: Tensor) -> bool:
    """Whether no exponential underflows. False on a GPU, since the test would synchronize."""
    if not logits.is_cpu or torch.compiler.is_compiling() or logits.numel() == 0:
        return False
    low, high = logits.aminmax(dim=1)
    return bool((high - low).max() < 600)


def _plain_sums(
    logits: Tensor, first: Tensor, last: Tensor, itself: Tensor | None, weight: Tensor | float
) -> tuple[Tensor, Tensor]:
    """Every log D_j - s_j and exp(s_k) sum_j w_j / D_j, where no exponential underflows.

    Takes the first and the last tie of each rank.
    """
    high = logits.amax(dim=1, keepdim=True)
    exponentials = (logits - high).exp_()
    denominators = exponentials.cumsum(dim=1).gather(1, last)
    inverses = denominators.reciprocal().mul_(weight)
    if itself is not None:
        inverses.scatter_(1, itself, 0.0)
    inverses = inverses.flip(1).cumsum(dim=1).flip(1)
    pull = inverses.gather(1, first).mul_(exponentials)
    return denominators.log_().add_(high).sub_(logits), pull


GAP = 800.0
"""An exponential that is smaller than another by exp(-GAP) adds nothing to it in float64."""


def _log_sums(
    logits: Tensor, first: Tensor, last: Tensor, itself: Tensor | None, weight: Tensor | float
) -> tuple[Tensor, Tensor]:
    """The results of `_plain_sums`, for logits of any range.

    Beside logits of 1e16, the logarithm of a sum is lost to rounding. So gaps between logits are
    cut to GAP, beyond which they change nothing: `level` is `top`, the largest logit up to each
    rank, with such gaps cut.
    """
    top = logits.cummax(dim=1).values.clamp_(min=torch.finfo(logits.dtype).min)
    steps = (top[:, 1:] - top[:, :-1]).clamp_(max=GAP)
    level = torch.cat([torch.zeros_like(top[:, :1]), steps], dim=1).cumsum(dim=1)
    close = level - (top - logits).clamp_(max=GAP)
    if itself is not None:
        close.scatter_(1, itself, -torch.inf)
    logs = close.logcumsumexp(dim=1)
    excess = level.neg_().add_(logs)  # log of each sum minus its largest logit
    terms = top.gather(1, last).sub_(logits).add_(excess.gather(1, last))
    del top, level, excess  # each as large as the logits
    log_weight = math.log(weight) if isinstance(weight, float) else weight.log()
    inverses = log_weight - logs.gather(1, last)
    if itself is not None:
        inverses.scatter_(1, itself, -torch.inf)
    inverses = inverses.flip(1).logcumsumexp(dim=1).flip(1)
    # The exact value is at most log 1 = 0, but rounding may lift it above 0.
    pull = inverses.gather(1, first).add_(close).clamp_(max=0.0).exp_()
    return terms, pull


def _blocks(similarities: Tensor) -> list[tuple[int, Tensor]]:
    """The similarities in blocks of rows that fit the cache of a CPU, or the memory of a GPU."""
    numbers = 2**17 if similarities.is_cpu else 2**26
    n, m = similarities.shape
    rows = max(1, numbers // max(1, m))
    if n <= rows or torch.compiler.is_compiling():
        return [(0, similarities)]
    return list(zip(range(0, n, rows), torch.split(similarities, rows), strict=True))
