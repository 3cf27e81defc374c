"""From one batch to all data: Markov's inequality, delta-monotonic functions, Rademacher's bound.

Section 4, "From Batch to Entire Feature Space", and appendix B of the paper. With G = L - L*, the
gap of a random batch, which is never below 0:

    Markov     : P(G >= a) <= E[G] / a
    monotonic  : s_ij > s_ik + 1/delta   =>  d(g(v_i), g(v_j)) < d(g(v_i), g(v_k))
                 |s_ij - s_ik| < delta   =>  d(g(v_i), g(v_j)) = d(g(v_i), g(v_k))
    Rademacher : R(A) = 1/m E_sigma max_{a in A} sum_k sigma_k a_k,    sigma_k = +1 or -1
                 test error - training error <= 2 R(A) + 4 c sqrt(2 ln(4 / failure) / m)

The paper leaves some constants open and some conditions unsaid; docs/theory.md lists them and says
what was chosen.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from rnc.loss.batch import as_rows, as_targets
from rnc.loss.pairwise import Pairwise, resolve_label_distance, resolve_similarity
from rnc.loss.theory import check_delta, epsilon


def markov_bound(mean: float, threshold: float) -> float:
    """The largest possible probability that a number >= 0 with this mean reaches the threshold.

    For the mean gap of random batches, it bounds the share of batches with a gap of `threshold` or
    more.

    >>> markov_bound(0.25, 1.0)  # a mean gap of 0.25: at most a quarter of batches has 1 or more
    0.25
    """
    if not (0 <= mean < math.inf and 0 < threshold < math.inf):
        raise ValueError(
            "markov_bound needs a mean of at least 0 and a threshold above 0, both finite; got "
            f"{mean} and {threshold}."
        )
    return 1.0 if mean >= threshold else mean / threshold


def unordered_batches(gaps: Tensor, epsilons: Tensor) -> float:
    """An upper bound of the share of batches that are not delta-ordered: Markov on gap / epsilon.

    A batch that is not ordered has a gap of `rnc.theory.epsilon` or more (theorem 3). Epsilon
    depends on the labels of the batch, so Markov's inequality is applied to gap / epsilon. Its mean
    is over the given batches: exact if these are all batches, an estimate if they are a sample.
    Compute gaps of float64 features: epsilon is often below the rounding of float32. A gap
    below 0 is rounding and counts as 0.

    Args:
        gaps: the result of `rnc.theory.gap` for each batch: (batches,).
        epsilons: the result of `rnc.theory.epsilon` for each batch: (batches,).

    >>> unordered_batches(torch.tensor([0.0, 0.5]), torch.tensor([1.0, 2.0]))
    0.125
    """
    if gaps.dim() != 1 or gaps.shape != epsilons.shape or len(gaps) == 0:
        raise ValueError(
            "unordered_batches needs one gap and one epsilon per batch; got shapes "
            f"{tuple(gaps.shape)} and {tuple(epsilons.shape)}."
        )
    quotients = gaps.detach().double().clamp(min=0) / epsilons.double()
    return markov_bound(quotients.mean().item(), 1.0)


def triplet_share(samples: int, batch_size: int) -> float:
    """The share of all batches that hold three given samples of a set.

    Batches are drawn without replacement: b (b - 1) (b - 2) / (n (n - 1) (n - 2)).

    >>> triplet_share(5, 4)
    0.4
    """
    if not 3 <= batch_size <= samples:
        raise ValueError(
            f"triplet_share needs 3 <= batch_size <= samples; got {batch_size} and {samples}."
        )
    return math.prod(batch_size - k for k in range(3)) / math.prod(samples - k for k in range(3))


def gap_for_all(delta: float, samples: int, batch_size: int, *, views: int = 1) -> float:
    """The mean gap of all batches below which the whole set is proven delta-ordered.

    One triplet out of order spoils every batch that holds it, which is a share `triplet_share` of
    all batches. Each of these has a gap of epsilon or more, so the mean is at least the product.
    epsilon is computed for the labels that make it smallest: all equal. Views must be fixed.

    >>> gap_for_all(0.5, samples=5, batch_size=4) == 0.4 * epsilon(torch.zeros(4), 0.5).item()
    True
    """
    share = triplet_share(samples, batch_size)
    return share * epsilon(torch.zeros(batch_size), delta, views=views).item()


class TripletCount(NamedTuple):
    """How many triplets (anchor i; j, k) the features constrain, and how many predictions break."""

    apart: int
    """Similarities differ by more than 1/delta: the more similar one must be nearer."""
    apart_broken: int
    alike: int
    """Similarities differ by less than delta: both must be equally near."""
    alike_broken: int


def count_triplets(
    features: Tensor,
    predictions: Tensor,
    delta: float,
    *,
    temperature: float = 2.0,
    label_distance: str | Pairwise = "l1",
    similarity: str | Pairwise = "l2",
    tie_tolerance: float = 0.0,
) -> TripletCount:
    """How far predictions are from being a delta-monotonic function of the features.

    i, j and k are three different samples, as in the definition of delta-order; j and k count
    once, in whichever order. Similarities that differ by delta to 1/delta constrain nothing.
    It takes O(n^3) time and O(n^2) memory: some seconds for 500 rows.

    Args:
        features: (n, d).
        predictions: what g makes of them, (n,) or (n, t).
        delta: between 0 and 1.
        temperature: as for `rnc.rnc_loss`.
        label_distance: of predictions, as for `rnc.rnc_loss`.
        similarity: as for `rnc.rnc_loss`.
        tie_tolerance: distances of predictions that differ by at most this are equal.

    >>> line = torch.tensor([[0.0], [10.0], [30.0]])
    >>> count_triplets(line, torch.tensor([0.0, 1.0, 3.0]), 0.5)
    TripletCount(apart=3, apart_broken=0, alike=0, alike_broken=0)
    >>> count_triplets(line, torch.tensor([0.0, 2.0, 3.0]), 0.5)  # the middle is nearer to 3
    TripletCount(apart=3, apart_broken=1, alike=0, alike_broken=0)
    """
    check_delta(delta)
    if not 0 <= tie_tolerance < math.inf:
        raise ValueError(f"tie_tolerance must be finite and at least 0; got {tie_tolerance}.")
    rows = as_rows(features.detach(), predictions, "count_triplets")
    values = rows.features.double()
    similarities = resolve_similarity(similarity)(values, values) / temperature
    distances = resolve_label_distance(label_distance)(rows.targets, rows.targets)
    counts = torch.zeros(4, dtype=torch.int64, device=values.device)
    for anchor in range(len(values)):
        others = torch.arange(len(values), device=values.device) != anchor
        more_similar = _differences(similarities[anchor, others])
        farther = _differences(distances[anchor, others])
        apart = more_similar > 1 / delta
        alike = (more_similar.abs() < delta).triu(diagonal=1)
        not_nearer, not_equal = farther >= -tie_tolerance, farther.abs() > tie_tolerance
        found = (apart, apart & not_nearer, alike, alike & not_equal)
        counts += torch.stack([triplets.sum() for triplets in found])
    return TripletCount(*counts.tolist())


def is_delta_monotonic(
    features: Tensor,
    predictions: Tensor,
    delta: float,
    *,
    temperature: float = 2.0,
    label_distance: str | Pairwise = "l1",
    similarity: str | Pairwise = "l2",
    tie_tolerance: float = 0.0,
) -> bool:
    """Whether distances of predictions follow similarities of features, on these samples.

    The paper's class H2 of appendix B. On delta-ordered features the labels themselves are in it.
    Arguments as for `count_triplets`.

    >>> line = torch.tensor([[0.0], [10.0], [30.0]])
    >>> is_delta_monotonic(line, torch.tensor([5.0, 4.0, 2.0]), 0.5)  # mirrored: still in order
    True
    """
    found = count_triplets(
        features,
        predictions,
        delta,
        temperature=temperature,
        label_distance=label_distance,
        similarity=similarity,
        tie_tolerance=tie_tolerance,
    )
    return found.apart_broken == found.alike_broken == 0


def rademacher_complexity(losses: Tensor, *, draws: int = 4096, seed: int = 0) -> float:
    """R(A): how well the best of some hypotheses follows random signs with its losses.

    Args:
        losses: the set A: the loss of each hypothesis on each of m samples, (hypotheses, m).
        draws: how many vectors of signs are tried. If all 2^m are at most as many, they are
            all tried, and the value is exact.
        seed: of the random signs.

    >>> rademacher_complexity(torch.tensor([[3.0, 1.0]]))  # one hypothesis can follow nothing
    0.0
    >>> rademacher_complexity(torch.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]]))
    0.5
    """
    if losses.dim() != 2 or 0 in losses.shape or not losses.isfinite().all():
        raise ValueError(
            "rademacher_complexity needs finite losses (hypotheses, m), at least one of each; got "
            f"shape {tuple(losses.shape)} with {int((~losses.isfinite()).sum())} not finite."
        )
    if draws < 1:
        raise ValueError(f"rademacher_complexity needs at least one draw; got {draws}.")
    losses = losses.detach().double().cpu()
    signs = _signs(losses.shape[1], draws, seed)
    return (signs @ losses.T).amax(dim=1).mean().item() / losses.shape[1]


def complexity_of_all_functions(targets: Tensor, low: float, high: float) -> float:
    """R(A) of H1, all functions to [low, high], with the L1 loss: mean of max(y - low, high - y)/2.

    For every vector of signs, some function has loss 0 where the sign is -1 and the largest
    possible loss where it is +1. This needs distinct inputs. Targets are (m,), within the range.

    >>> complexity_of_all_functions(torch.tensor([0.0, 5.0, 10.0]), 0.0, 10.0)  # (10 + 5 + 10) / 6
    4.166666666666667
    """
    column = as_targets(targets, "complexity_of_all_functions")
    if column.shape[1] != 1 or len(column) == 0:
        raise ValueError(
            "complexity_of_all_functions needs one target of at least one sample; got "
            f"{tuple(targets.shape)}."
        )
    if not bool(((low <= column) & (column <= high)).all() and math.isfinite(high - low)):
        raise ValueError(
            f"complexity_of_all_functions needs finite targets within {low} to {high}; got "
            f"{column.min().item()} to {column.max().item()}. Widen the range."
        )
    return torch.maximum(column - low, high - column).mean().item() / 2


def generalization_bound(
    complexity: float, largest_loss: float, samples: int, *, failure: float = 0.05
) -> float:
    """How much the test error can exceed the training error: 2 R + 4 c sqrt(2 ln(4/failure) / m).

    It holds for all hypotheses of a class at once, with probability 1 - failure over the drawing
    of the training samples, if the class was fixed before they were drawn.

    Args:
        complexity: R(A) of the class on the training samples, as by `rademacher_complexity`.
        largest_loss: c, which no loss of any hypothesis on any sample exceeds.
        samples: m, how many training samples there are.
        failure: the probability that the bound does not hold.

    >>> round(generalization_bound(0.0, 101.0, 12_208), 2)  # AgeDB's size and range, R = 0
    10.82
    """
    if not (0 <= complexity < math.inf and 0 <= largest_loss < math.inf):
        raise ValueError(
            "generalization_bound needs a finite complexity and largest_loss of at least 0; got "
            f"{complexity} and {largest_loss}. A loss without a bound has no such guarantee."
        )
    if samples < 1 or not 0 < failure < 1:
        raise ValueError(
            "generalization_bound needs at least one sample and a failure between 0 and 1; got "
            f"{samples} and {failure}."
        )
    return 2 * complexity + 4 * largest_loss * math.sqrt(2 * math.log(4 / failure) / samples)


def _differences(row: Tensor) -> Tensor:
    return row[:, None] - row


def _signs(m: int, draws: int, seed: int) -> Tensor:
    """All vectors of m signs if there are at most `draws`, else that many random ones."""
    if m < 63 and 2**m <= draws:
        bits = torch.arange(2**m)[:, None] >> torch.arange(m) & 1
    else:
        bits = torch.randint(0, 2, (draws, m), generator=torch.Generator().manual_seed(seed))
    return bits.double() * 2 - 1
