"""The fused backend of the loss, "triton": value and gradient in one pass, for scalar labels.

The samples are sorted by label once. Then those below an anchor's label are already in order of
label distance, and so are those above it, so no anchor needs a sort of its own. With m samples and
p the place of the anchor's label,

    S_ij            = samples 0..c-1 and f..m-1 for some c <= p <= f   two running sums hold all D_j
    {j : k in S_ij} = samples a..b-1 for some a <= p <= b              two more hold the gradient

`rnc.loss.kernels.contrast` finds c, f, a and b by binary search on the label distances that
`rnc.loss.plain` sorts, so ties are the same. Anchors are processed in blocks, so no (n, m) array is
kept. The gradient is computed together with the value; the backward pass only scales it.
"""

import contextlib
from typing import Any, NamedTuple

import torch
from torch import Tensor

from rnc.loss.batch import Problem, check_finite
from rnc.loss.kernels.contrast import Buffers, block_losses
from rnc.loss.kernels.l1 import l1_gradient, l1_similarities
from rnc.loss.kernels.rows import Prepared, Products, finish, prepare
from rnc.loss.options import PairOptions
from rnc.loss.pairwise import Pairwise, unit_rows
from rnc.loss.plain import refuse_second_derivative

PAIRS = 2**26
"""Pairs held at a time, at 36 bytes each."""


class RankLabels(NamedTuple):
    """The labels that decide the ranks."""

    anchors: Tensor
    """(n,), float64."""
    samples: Tensor
    """What the anchors are contrasted with, (m,), float64."""
    own_column: int | None
    """As in `Problem`."""


def fused_losses(problem: Problem, options: PairOptions) -> Tensor:
    """Float32 losses: (n,) for reduction "none", else () their sum over `problem.divisor`.

    The sum is weighted by `problem.weights`; the losses (n,) are not.
    """
    anchors, others = problem.anchors, problem.others
    a, b = anchors.features, None if others is anchors else others.features
    if options.similarity == "cosine":
        a, b = unit_rows(a), None if b is None else unit_rows(b)
    # Triton launches kernels on the current device.
    with torch.cuda.device(a.device) if a.is_cuda else contextlib.nullcontext():
        losses: Tensor = _FusedLosses.apply(a, b, problem, options)
    return losses


class _FusedLosses(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, a: Tensor, b: Tensor | None, problem: Problem, options: PairOptions
    ) -> Tensor:
        anchors = samples = problem.anchors.targets[:, 0].contiguous()
        if b is not None:
            samples = problem.others.targets[:, 0].contiguous()
        labels = RankLabels(anchors, samples, problem.own_column)
        rows = _prepare_rows(a, b, labels, options)
        if options.validate and options.missing == "raise":
            _check_finite(*rows, problem)
        ctx.labels, ctx.options = labels, options
        if options.reduction == "none":
            # Each anchor has its own upstream gradient, so the backward pass computes all again.
            ctx.save_for_backward(a, b)
            losses, *_ = _fused_pass(a, b, rows, labels, options, with_gradient=False)
            return losses.float()
        needed = any(ctx.needs_input_grad[:2])
        weights = problem.weights
        losses, *grads = _fused_pass(
            *(a, b, rows, labels, options),
            divisor=problem.divisor,
            weights=weights,
            with_gradient=needed,
        )
        ctx.save_for_backward(*grads)
        return (losses if weights is None else losses * weights).sum(dtype=torch.float32)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        refuse_second_derivative()
        first, second = ctx.saved_tensors
        if ctx.options.reduction == "none":
            rows = _prepare_rows(first, second, ctx.labels, ctx.options)
            weights = upstream.double()
            _, *grads = _fused_pass(first, second, rows, ctx.labels, ctx.options, weights=weights)
            return *grads, None, None
        return first * upstream, None if second is None else second * upstream, None, None


def _prepare_rows(
    a: Tensor, b: Tensor | None, labels: RankLabels, options: PairOptions
) -> tuple[Prepared, Prepared]:
    """Anchors and samples as the kernels read them; one object if they are the same rows."""
    shift = None
    if options.similarity == "l2":
        shift = (a if b is None else b).mean(dim=0, dtype=torch.float64)
    samples = prepare(a if b is None else b, labels.samples, shift, sort=True)
    if b is None:
        return samples, samples
    return prepare(a, labels.anchors, shift, sort=False), samples


def _check_finite(anchors: Prepared, samples: Prepared, problem: Problem) -> None:
    """Raise for NaN and infinite values. So early, the GPU only has to finish `prepare`."""
    if samples.not_finite.item() or (anchors is not samples and anchors.not_finite.item()):
        for features, targets, caller in problem.given:
            check_finite(features, targets, "raise", caller)


def _fused_pass(
    a: Tensor,
    b: Tensor | None,
    rows: tuple[Prepared, Prepared],
    labels: RankLabels,
    options: PairOptions,
    *,
    divisor: int = 1,
    weights: Tensor | None = None,
    with_gradient: bool = True,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Losses over divisor, and gradients of a and b in which anchor i counts weights[i] times."""
    anchors, samples = rows
    x, z, l2 = anchors.rows, samples.sorted_rows, options.similarity == "l2"
    n, m = len(x), len(z)
    block = max(1, min(n, options.chunk_size or n, PAIRS // m))
    buffers = Buffers.allocate(n, block, m, x)
    grad_x, grad_z = (torch.empty_like(x), torch.empty_like(z)) if with_gradient else (x, z)
    sample_totals = buffers.totals
    for start in range(0, n, block):
        part = slice(start, start + block)
        x_block = x[part]
        pairs = (
            l1_similarities(x_block, z) if options.similarity == "l1" else torch.mm(x_block, z.T)
        )
        block_losses(
            pairs,
            anchors.halves,
            labels.anchors,
            samples,
            weights,
            buffers,
            start=start,
            own_column=labels.own_column,
            l2=l2,
            temperature=options.temperature,
            divisor=divisor,
            with_gradient=with_gradient,
        )
        if with_gradient:
            _add_gradients(pairs, x_block, z, grad_x[part], grad_z, options.similarity, start > 0)
        if with_gradient and l2:
            block_totals = pairs.sum(dim=0)
            sample_totals = sample_totals + block_totals if start else block_totals
    if not with_gradient:
        return buffers.losses, None, None
    of_x, of_z = Products(grad_x, buffers.totals), Products(grad_z, sample_totals)
    if b is None:
        return buffers.losses, finish(a, x, of_x, of_z, samples.ties, l2=l2), None
    grad_a = finish(a, x, of_x, None, samples.ties, l2=l2)
    return buffers.losses, grad_a, finish(b, samples.rows, None, of_z, samples.ties, l2=l2)


def _add_gradients(
    pairs: Tensor,
    x: Tensor,
    z: Tensor,
    grad_x: Tensor,
    grad_z: Tensor,
    similarity: str | Pairwise,
    add: bool,
) -> None:
    """Write the gradient of a block's anchors x, and add the block's part of the gradient of z."""
    if similarity == "l1":
        l1_gradient(pairs, x, z, grad_x, add=False)
        l1_gradient(pairs.T, z, x, grad_z, add=add)
    else:
        torch.mm(pairs, z, out=grad_x)
        torch.addmm(grad_z, pairs.T, x, beta=int(add), out=grad_z)
