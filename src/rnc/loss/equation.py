"""The Rank-N-Contrast loss as the paper writes it: equation (3) of arXiv:2210.01189.

    s_ij = sim(v_i, v_j) / temperature          how alike two features are
    d_ij = distance(y_i, y_j)                   how far apart their labels are
    S_ij = {k != i : d_ik >= d_ij}              j and all that rank at or beyond it for anchor i
    l_i  = mean_{j != i} [ log sum_{k in S_ij} exp(s_ik) - s_ij ]
    L    = mean_i l_i,                          or sum_i w_i l_i / sum_i w_i with weights of samples

A weight multiplies the loss of its sample as an anchor, in each of its views. As a contrast, in
S_ij, every sample counts alike: even a sample of weight 0 pushes the others into order. Only the
ratios of weights matter, so equal weights change nothing.

Start reading here. `pair_losses` is the equation, and autograd gives its gradient. Every faster way
(`rnc.loss.plain`, `rnc.loss.fused`) must return the same numbers; the tests compare them with this
file, and this file with the definition written pair by pair. backend="reference" runs it.
"""

import torch
from torch import Tensor

from rnc.loss.options import PairOptions
from rnc.loss.pairwise import distances_of, similarities_of


def pair_losses(logits: Tensor, distances: Tensor) -> Tensor:
    """loss(i, j) for every j != i, furthest j first: (n, n), (n, n) -> (n, n - 1)."""
    logits, distances = _drop_diagonal(logits), _drop_diagonal(distances)
    distances, order = distances.sort(dim=1, descending=True)
    logits = logits.gather(1, order)
    log_sums = logits.logcumsumexp(dim=1)  # over samples ranked at or before j
    last_tie = torch.searchsorted(-distances, -distances, right=True) - 1
    return log_sums.gather(1, last_tie) - logits


def reference_losses(features: Tensor, targets: Tensor, options: PairOptions) -> Tensor:
    """The loss of every anchor: (n, d), (n, t) -> (n,)."""
    logits = similarities_of(options.similarity, features, features) / options.temperature
    distances = distances_of(options.label_distance, targets, targets)
    losses = pair_losses(logits.double(), distances).sum(dim=1) / max(1, len(features) - 1)
    return losses.to(features.dtype)


def _drop_diagonal(pairs: Tensor) -> Tensor:
    """All but the pair of a sample with itself: (n, n) -> (n, n - 1)."""
    n = len(pairs)
    off_diagonal = ~torch.eye(n, dtype=torch.bool, device=pairs.device)
    return pairs[off_diagonal].view(n, max(0, n - 1))
