"""The loss and its gradient in one pass on a GPU, for scalar labels: backend="triton".

Sorted by label, the samples below an anchor's label are ranked by their place, and so are those
above it. So no row needs a sort of its own: with m samples and p the place of the anchor's label,

    S_ij            = samples 0..c-1 and f..m-1 for some c <= p <= f   two running sums hold all D_j
    {j : k in S_ij} = samples a..b-1 for some a <= p <= b              two more hold the gradient

`rnc.loss.kernels.contrast` finds c, f, a and b by binary search on the label distances that
`rnc.loss.plain` sorts, so ties are the same. Anchors go in blocks: no (n, m) array is kept. The
gradient is taken with the value and waits for the backward pass, which only scales it.
"""

import contextlib
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from rnc.loss.kernels.contrast import contrast
from rnc.loss.kernels.l1 import l1_gradient, l1_similarities
from rnc.loss.kernels.rows import Products, finish, prepare
from rnc.loss.pairwise import unit_rows
from rnc.loss.plain import refuse_second_derivative

PAIRS = 2**26
"""Pairs held at a time, at 36 bytes each."""


class Problem(NamedTuple):
    """What decides the losses besides features."""

    labels: Tensor
    """Of the anchors, (n,), float64."""
    other_labels: Tensor
    """Of what they are contrasted with, (m,), float64."""
    own_column: int | None
    """The row of the others that is the first anchor, the next following; None if none is."""
    temperature: float
    similarity: str
    chunk_size: int | None


def fused_contrast(
    a: Tensor,
    b: Tensor | None,
    problem: Problem,
    divisor: int | None,
    refuse: Callable[[], None] | None = None,
) -> Tensor:
    """The loss of every anchor, (n,), or with a divisor their sum over it, (): float32.

    Args:
        a: features of the anchors, (n, d).
        b: of the others, (m, d); None if these are the anchors.
        problem: labels and options.
        divisor: for None, the backward pass computes the anchors again, with what reaches each.
        refuse: called if a feature or a label is no finite number; None does not look.
    """
    if problem.similarity == "cosine":
        a, b = unit_rows(a), None if b is None else unit_rows(b)
    # Kernels go to the current device.
    with torch.cuda.device(a.device) if a.is_cuda else contextlib.nullcontext():
        losses: Tensor = _Fused.apply(a, b, problem, divisor, refuse)
    return losses


class _Fused(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        a: Tensor,
        b: Tensor | None,
        problem: Problem,
        divisor: int | None,
        refuse: Callable[[], None] | None,
    ) -> Tensor:
        ctx.problem, ctx.divisor = problem, divisor
        wanted = divisor is not None and any(ctx.needs_input_grad[:2])
        losses, *grads = _contrast(a, b, problem, divisor or 1, None, wanted, refuse)
        ctx.save_for_backward(*((a, b) if divisor is None else grads))
        return losses.float() if divisor is None else losses.sum(dtype=torch.float32)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        refuse_second_derivative()
        first, second = ctx.saved_tensors
        if ctx.divisor is None:
            _, *grads = _contrast(first, second, ctx.problem, 1, upstream.double(), True)
            return *grads, None, None, None
        return first * upstream, None if second is None else second * upstream, None, None, None


def _contrast(
    a: Tensor,
    b: Tensor | None,
    problem: Problem,
    divisor: int,
    weights: Tensor | None,
    wanted: bool,
    refuse: Callable[[], None] | None = None,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Losses of the anchors over divisor, and gradients of a and b, anchor i times weights[i]."""
    shift = None
    if l2 := problem.similarity == "l2":
        shift = (a if b is None else b).mean(dim=0, dtype=torch.float64)
    samples = prepare(a if b is None else b, problem.other_labels, shift, sort=True)
    anchors = samples if b is None else prepare(a, problem.labels, shift, sort=False)
    # A look this early is cheap: what follows is still to be launched.
    if refuse is not None and (samples.odd.item() or (b is not None and anchors.odd.item())):
        refuse()
    x, z = anchors.rows, samples.sorted_rows
    n, m = len(x), len(z)
    block = max(1, min(n, problem.chunk_size or n, PAIRS // m))
    losses, totals = x.new_empty(n), x.new_empty(n)
    sums = x.new_empty(3, block, m)
    partners = torch.empty(block, m, dtype=torch.int32, device=x.device)
    grad_x, grad_z = (torch.empty_like(x), torch.empty_like(z)) if wanted else (x, z)
    sample_totals = totals
    for start in range(0, n, block):
        some, grad_some = x, grad_x
        if block < n:
            some, grad_some = x[start : start + block], grad_x[start : start + block]
        pairs = torch.mm(some, z.T) if problem.similarity != "l1" else l1_similarities(some, z)
        contrast(
            pairs,
            anchors.halves,
            problem.labels,
            samples,
            weights,
            losses,
            totals,
            sums,
            partners,
            start=start,
            own_column=problem.own_column,
            l2=l2,
            temperature=problem.temperature,
            divisor=divisor,
            wanted=wanted,
        )
        if not wanted:
            continue
        if problem.similarity == "l1":
            l1_gradient(pairs, some, z, grad_some, add=False)
            l1_gradient(pairs.T, z, some, grad_z, add=start > 0)
        else:
            torch.mm(pairs, z, out=grad_some)
            torch.addmm(grad_z, pairs.T, some, beta=int(start > 0), out=grad_z)
        if l2:
            here = pairs.sum(dim=0)
            sample_totals = sample_totals + here if start else here
    if not wanted:
        return losses, None, None
    of_x, of_z = Products(grad_x, totals), Products(grad_z, sample_totals)
    if b is None:
        return losses, finish(a, x, of_x, of_z, samples.ties, l2=l2), None
    return (
        losses,
        finish(a, x, of_x, None, samples.ties, l2=l2),
        finish(b, samples.rows, None, of_z, samples.ties, l2=l2),
    )
