"""What the loss promises: its lower bound, and the order of features that get close to it.

Section 4 and appendix A of the paper. For anchor i, let the other samples fall into groups of
equal label distance, with sizes n_i1, n_i2, ...

    L*       = mean_i 1/(N-1) sum_m n_im log n_im                    L >= L*, and L can approach L*
    ordered  : d_ij < d_ik  =>  s_ij > s_ik + 1/delta                for all i and j, k != i
               d_ij = d_ik  =>  |s_ij - s_ik| < delta
    gamma    : margin > gamma(excess), ties equal  =>  L < L* + excess            (theorem 2)
    epsilon  : L < L* + epsilon(delta)  =>  the features are delta-ordered         (theorem 3)

The paper writes L > L*; where all label distances of every anchor are equal, coincident features
reach L = L*. What follows for more than one batch is in `rnc.loss.theory_generalization`;
docs/theory.md explains both.
"""

import math
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from rnc.loss.anchor_weights import as_weights, shares
from rnc.loss.batch import Rows, as_rows, as_targets, make_problem
from rnc.loss.loss import RnCLoss, rnc_loss
from rnc.loss.pairwise import Pairwise, resolve_label_distance, resolve_similarity
from rnc.loss.partial import Between, least_loss, pack
from rnc.loss.plain import Ranking, rank


def lower_bound(
    targets: Tensor,
    *,
    upper: Tensor | None = None,
    views: int = 1,
    label_distance: str | Pairwise = "l1",
    tie_tolerance: float = 0.0,
    weights: Tensor | None = None,
) -> Tensor:
    """L*, the value that the loss of a batch with these targets cannot go below.

    The bound is proven for groups of equal label distances, so `tie_tolerance` should only join
    distances that differ by rounding. For labels that are known in part (`upper`), a group holds
    distances that are certainly equal. `views` is how often each sample occurs in the batch; the
    other arguments are as for `rnc.rnc_loss`. With weights, the result is the weighted mean of the
    anchors' bounds, which bounds the weighted loss.

    >>> lower_bound(torch.tensor([1.0, 2.0, 4.0]))  # no ties
    tensor(0., dtype=torch.float64)
    >>> lower_bound(torch.tensor([5.0, 5.0, 5.0]))  # log 2
    tensor(0.6931, dtype=torch.float64)
    """
    if upper is not None:
        return _partial_bound(targets, upper, views, label_distance, tie_tolerance, weights)
    rows = as_targets(targets, "lower_bound")
    ranking = _rank_targets(rows, views, label_distance, tie_tolerance)
    logs = _group_sizes(ranking, views).log()
    # Every sample is in the batch as often as it has views; the anchor is not its own positive.
    positives = torch.full_like(logs, views).scatter(1, _itself(ranking), views - 1)
    n = views * len(rows)
    terms = positives * logs
    if weights is not None:
        terms = (
            shares(as_weights(weights, len(rows), 1, "lower_bound", check=False))[:, None] * terms
        )
    return terms.sum() * views / (n * (n - 1))


def _partial_bound(
    targets: Tensor,
    upper: Tensor,
    views: int,
    label_distance: str | Pairwise,
    tie_tolerance: float,
    weights: Tensor | None,
) -> Tensor:
    """The bound for labels that are known in part; labels are validated on a CPU only."""
    check = targets.is_cpu
    options = RnCLoss(
        label_distance=label_distance, tie_tolerance=tie_tolerance, validate=check
    ).options
    options = replace(options, label_distance=Between(label_distance))
    packed = pack(targets, upper, label_distance, check=check)
    features = packed.new_zeros(len(packed), views, 1)
    return least_loss(
        make_problem(features, packed, None, options, check=False, weights=weights), options
    )


def gap(
    features: Tensor,
    targets: Tensor,
    *,
    upper: Tensor | None = None,
    temperature: float = 2.0,
    label_distance: str | Pairwise = "l1",
    similarity: str | Pairwise = "l2",
    tie_tolerance: float = 0.0,
    weights: Tensor | None = None,
) -> Tensor:
    """How far the loss of a batch is above its lower bound: 0 is perfectly ordered.

    Unlike the loss, gaps of batches with different labels can be compared. Arguments as for
    `rnc.rnc_loss`.
    """
    loss = rnc_loss(
        features,
        targets,
        upper=upper,
        weights=weights,
        temperature=temperature,
        label_distance=label_distance,
        similarity=similarity,
        tie_tolerance=tie_tolerance,
    )
    bound = lower_bound(
        targets,
        upper=upper,
        views=features.shape[1] if features.dim() == 3 else 1,
        label_distance=label_distance,
        tie_tolerance=tie_tolerance,
        weights=weights,
    )
    return loss - bound.to(loss.dtype)


def gamma(
    targets: Tensor,
    excess: float,
    *,
    views: int = 1,
    label_distance: str | Pairwise = "l1",
    tie_tolerance: float = 0.0,
) -> Tensor:
    """The margin of similarities that brings the loss within `excess` of `lower_bound`.

    Theorem 2: log(rows / (min n_im * excess)). Features whose `margin` is larger, and whose
    similarities are equal where label distances are, have a `gap` below `excess`. It is negative
    where `excess` is so large that no margin is needed. The other arguments are as for
    `lower_bound`.

    >>> gamma(torch.tensor([1.0, 2.0, 4.0]), 0.01)  # log 300
    tensor(5.7038, dtype=torch.float64)
    """
    if not 0 < excess < math.inf:
        raise ValueError(f"gamma needs a finite excess above 0; got {excess}.")
    rows = as_targets(targets, "gamma")
    ranking = _rank_targets(rows, views, label_distance, tie_tolerance)
    sizes = _group_sizes(ranking, views)
    if views == 1:  # the anchor is in no group
        sizes = sizes.scatter(1, _itself(ranking), torch.inf)
    # Logarithms one by one: the quotient would overflow for the smallest numbers.
    return math.log(views * len(rows)) - sizes.min().log() - math.log(excess)


def epsilon(
    targets: Tensor,
    delta: float,
    *,
    views: int = 1,
    label_distance: str | Pairwise = "l1",
    tie_tolerance: float = 0.0,
) -> Tensor:
    """How close to `lower_bound` the loss must be to prove that features are delta-ordered.

    delta is between 0 and 1; smaller asks for a stricter order. The other arguments are as for
    `lower_bound`.
    """
    check_delta(delta)
    rows = as_targets(targets, "epsilon")
    sizes = _group_sizes(_rank_targets(rows, views, label_distance, tie_tolerance), views)
    # The largest group gives the smallest logarithm.
    separated = torch.log1p(math.exp(-delta - 1 / delta) / sizes.max())
    together = 2 * math.log((1 + math.exp(delta)) / 2) - delta
    n = views * len(rows)
    return separated.clamp(max=together) / (n * (n - 1))


def is_delta_ordered(
    features: Tensor,
    targets: Tensor,
    delta: float,
    *,
    temperature: float = 2.0,
    label_distance: str | Pairwise = "l1",
    similarity: str | Pairwise = "l2",
    tie_tolerance: float = 0.0,
) -> bool:
    """Whether similarities follow label distances: ties within delta, others 1/delta apart.

    With cosine similarity and temperature 2 no batch with two distinct distances can be ordered:
    similarities lie within [-1/2, 1/2], and 1/delta > 1. delta is between 0 and 1; the other
    arguments are as for `rnc.rnc_loss`.
    """
    check_delta(delta)
    found = _compare(
        as_rows(features.detach(), targets, "is_delta_ordered"),
        temperature,
        label_distance,
        similarity,
        tie_tolerance,
    )
    ranking, ranked = found.ranking, found.similarities
    apart = (ranked > found.farther + 1 / delta) | (ranking.first_tie == 0)
    # Where all are apart, the highest up to the last tie is the highest of the ties.
    together = found.highest.gather(1, ranking.last_tie) - ranked < delta
    return bool((apart & together).scatter(1, _itself(ranking), True).all())


def margin(
    features: Tensor,
    targets: Tensor,
    *,
    temperature: float = 2.0,
    label_distance: str | Pairwise = "l1",
    similarity: str | Pairwise = "l2",
    tie_tolerance: float = 0.0,
) -> Tensor:
    """The smallest s_ij - s_ik over all i, j, k with d_ij < d_ik: above 0, all are in order.

    To be compared with `gamma`. It is infinite where no anchor has two distinct label distances.
    Arguments as for `rnc.rnc_loss`.

    >>> margin(torch.tensor([[0.0], [2.0], [6.0]]), torch.tensor([0.0, 1.0, 3.0]))
    tensor(1., dtype=torch.float64)
    """
    rows = as_rows(features.detach(), targets, "margin")
    found = _compare(rows, temperature, label_distance, similarity, tie_tolerance)
    lead = found.similarities - found.farther
    lead[found.ranking.first_tie == 0] = torch.inf
    return lead.scatter(1, _itself(found.ranking), torch.inf).min()


def ideal_embedding(targets: Tensor, *, scale: float = 1.0) -> Tensor:
    """Features whose distances are scale * sqrt(L1 label distance): (n, t) -> (n, e).

    Each target becomes a staircase, one feature per step between its sorted values, so that the
    squared distance of two samples is the sum of the steps between them. Distances then follow
    label distances exactly, and the loss falls to `lower_bound` as the scale grows.

    >>> ideal_embedding(torch.tensor([0.0, 9.0, 4.0]))
    tensor([[0.0000, 0.0000],
            [2.0000, 2.2361],
            [2.0000, 0.0000]], dtype=torch.float64)
    """
    columns = []
    for column in as_targets(targets, "ideal_embedding").unbind(1):
        values = torch.unique(column)
        climbed = column[:, None] > values[:-1]
        columns.append(climbed * values.diff().sqrt())
    steps = torch.cat(columns, dim=1)
    return scale * steps if steps.shape[1] else steps.new_zeros(steps.shape[0], 1)


class _Comparison(NamedTuple):
    """Every row of a batch, seen from every anchor, furthest label first: arrays (n, n)."""

    ranking: Ranking
    similarities: Tensor
    """s_ij, and minus infinity for the anchor itself."""
    highest: Tensor
    """The highest similarity up to each rank."""
    farther: Tensor
    """The highest similarity of the samples whose labels are farther."""


def _compare(
    rows: Rows,
    temperature: float,
    label_distance: str | Pairwise,
    similarity: str | Pairwise,
    tie_tolerance: float,
) -> _Comparison:
    ranking = _rank_targets(rows.targets, 1, label_distance, tie_tolerance)
    similarities = resolve_similarity(similarity)(rows.features.double(), rows.features.double())
    ranked = similarities.gather(1, ranking.order) / temperature
    ranked.scatter_(1, _itself(ranking), -torch.inf)
    highest = ranked.cummax(dim=1).values
    farther = highest.gather(1, (ranking.first_tie - 1).clamp(min=0))
    return _Comparison(ranking, ranked, highest, farther)


def _rank_targets(
    rows: Tensor, views: int, label_distance: str | Pairwise, tie_tolerance: float
) -> Ranking:
    n = len(rows) * views
    if n < 2:
        raise ValueError(
            f"The bound needs at least two rows (samples x views) of targets; got {n}."
        )
    return rank(resolve_label_distance(label_distance)(rows, rows), tie_tolerance)


def _itself(ranking: Ranking) -> Tensor:
    """The rank of each anchor in its own row: (n, 1)."""
    return ranking.rank_of.diagonal()[:, None]


def _group_sizes(ranking: Ranking, views: int) -> Tensor:
    """n_im for the group of every sample, with all views but without the anchor: (n, n)."""
    first, last, itself = ranking.first_tie, ranking.last_tie, _itself(ranking)
    with_anchor = (first <= itself) & (itself <= last)
    sizes = views * (last - first + 1) - with_anchor.long()
    return sizes.clamp(min=1).double()  # 0 only where the anchor is alone


def check_delta(delta: float) -> None:
    """Raise if delta is not between 0 and 1."""
    if not 0 < delta < 1:
        raise ValueError(f"delta must be between 0 and 1, exclusive; got {delta}.")
