"""The equation of the loss on rows of similarities, for samples sorted by a scalar label.

One program takes one anchor, in four steps: running sums of exponentials from both ends; from them
all D_j; running sums of 1 / D_j from the anchor outwards; from them the gradient.
"""

import struct
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from rnc.loss.kernels.rows import Prepared
from rnc.loss.kernels.sets import distance_at, far_set, near_set, partner_of
from rnc.loss.kernels.sums import EMPTY_EXPONENT, LN2, exp, half, scan, sum_at

SAMPLE_BLOCK = 256
"""Samples that a program handles at a time."""
WARPS = 4
LARGE = tl.constexpr(300.0)  # exponentials of smaller logits, and their products, do not overflow


def is_interpreted() -> bool:
    """Whether kernels run in Triton's interpreter, on a CPU: TRITON_INTERPRET=1."""
    return not isinstance(_contrast, triton.JITFunction)


class Buffers(NamedTuple):
    """Output and scratch arrays for n anchors that are processed r at a time."""

    losses: Tensor
    """(n,), float64."""
    totals: Tensor
    """The sum of each anchor's gradients, (n,)."""
    sums: Tensor
    """Scratch, (3, r, m)."""
    partners: Tensor
    """Scratch, (r, m), int32."""

    @classmethod
    def allocate(cls, n: int, r: int, m: int, like: Tensor) -> "Buffers":
        """Empty buffers for m samples, on the device and with the dtype of `like`."""
        partners = torch.empty(r, m, dtype=torch.int32, device=like.device)
        return cls(like.new_empty(n), like.new_empty(n), like.new_empty(3, r, m), partners)


def block_losses(
    pairs: Tensor,  # similarities (r, m), or with l2 products of rows; overwritten
    halves: Tensor,  # of all anchors, as `prepare` gives them, (n,)
    labels: Tensor,  # of all anchors, (n,)
    samples: Prepared,  # sorted
    weights: Tensor | None,  # of all anchors in the gradient, (n,)
    buffers: Buffers,
    *,
    start: int,  # the anchor of the first row of pairs
    own_column: int | None,  # the sample, before sorting, that is anchor 0; None if none is
    l2: bool,  # the gradient is then that with respect to -|x - z|^2 / 2
    temperature: float,
    divisor: int,
    with_gradient: bool,
) -> None:
    """Losses of a block of anchors and, in place of pairs, their gradient with respect to them.

    Both are divided by the divisor. Losses and the sums of gradients go to the buffers.
    """
    r, m = pairs.shape
    # A float argument of a kernel would be rounded to float32. Its bits, as an integer, are not.
    (bits,) = struct.unpack("<q", struct.pack("<d", temperature))
    # Rows that need WIDE sums are left to a second launch, so the first needs fewer registers.
    flags = torch.empty(r, dtype=torch.int32, device=pairs.device)
    for wide in (False, True):
        _contrast[(r,)](
            pairs, halves, samples.sorted_halves, labels, samples.sorted_labels, samples.ties,
            buffers.losses if weights is None else weights, *buffers, flags,
            start, m, buffers.sums.stride(0), own_column or 0, divisor, bits,
            own_column is not None, weights is not None, l2, with_gradient,
            wide, m.bit_length(), min(SAMPLE_BLOCK, triton.next_power_of_2(m)),
            num_warps=WARPS,
            enable_fp_fusion=True,  # tested and timed with it; Triton's default is about to change
        )  # fmt: skip


@triton.jit
def _logits(pairs, halves, k, inside, x_half, inverse, L2: tl.constexpr):
    """Similarities over temperature and, for L2, one over the distances (0 for distance 0)."""
    # Rows are streamed, so they bypass the first cache and leave it to the labels.
    pair = tl.load(pairs + k, mask=inside, other=0.0, cache_modifier=".cg")
    if L2:
        pair -= x_half + tl.load(halves + k, mask=inside, other=0.0)
        # A difference below the rounding of the product means that the rows are equal.
        square = tl.where(pair > -2e-13 * x_half, 0.0, -2 * pair)
        one_over = tl.where(square > 0, tl.rsqrt(square), 0.0)
        return -(square * one_over) * inverse, one_over
    return pair * inverse, pair


@triton.jit
def _far_sums(
    pairs, halves, sums, plane, own, x_half, inverse, p, m,
    L2: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Store the cumulative sums of exp(s_k) from both ends up to each sample.

    Returns the sum of all logits and the largest of their absolute values.
    """
    nothing, low = tl.full((), 0.0, tl.float64), tl.full((), EMPTY_EXPONENT, tl.float64)
    added, largest = tl.zeros((BLOCK,), tl.float64), tl.zeros((BLOCK,), tl.float64)
    s_carry, q_carry = nothing, low
    for start in range(0, p, BLOCK):
        k = start + tl.arange(0, BLOCK)
        valid = (k < p) & (k != own)
        logits, _one_over = _logits(pairs, halves, k, k < p, x_half, inverse, L2)
        added += tl.where(valid, logits, 0.0)
        largest = tl.maximum(largest, tl.where(valid, tl.abs(logits), 0.0))
        s, q = exp(logits, valid, WIDE)
        s_carry, q_carry = scan(sums, plane, k, k < p, s, q, s_carry, q_carry, False, WIDE)
    s_carry, q_carry = nothing, low
    tiles = (m - p + BLOCK - 1) // BLOCK
    for tile in range(0, tiles):
        k = p + (tiles - 1 - tile) * BLOCK + tl.arange(0, BLOCK)
        valid = (k < m) & (k != own)
        logits, _one_over = _logits(pairs, halves, k, k < m, x_half, inverse, L2)
        added += tl.where(valid, logits, 0.0)
        largest = tl.maximum(largest, tl.where(valid, tl.abs(logits), 0.0))
        s, q = exp(logits, valid, WIDE)
        s_carry, q_carry = scan(sums, plane, k, k < m, s, q, s_carry, q_carry, True, WIDE)
    return tl.sum(added), tl.max(largest)


@triton.jit
def _log_denominators(
    labels, ties, sums, plane, partners, y, own, p, m,
    GRADIENT: tl.constexpr, WIDE: tl.constexpr, STEPS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The sum of all log D_j, and how many sets are wrong because of rounding.

    For the gradient, each 1 / D_j is stored; WIDE stores -log D_j instead.
    """
    added, wrong = tl.zeros((BLOCK,), tl.float64), tl.zeros((BLOCK,), tl.int32)
    for start in range(0, m, BLOCK):
        k = start + tl.arange(0, BLOCK)
        inside = k < m
        gap = distance_at(labels, y, k, inside)
        partner, wrong_partner = partner_of(labels, y, gap, k < p, inside, p, m, STEPS, WIDE)
        c, f, incomplete = far_set(labels, ties, y, k, inside, gap, partner, p, m, WIDE)
        wrong += (incomplete | wrong_partner).to(tl.int32)
        s, q = sum_at(sums, plane, c - 1, c > 0, f, f < m, WIDE)
        log = tl.log(s)
        if WIDE:
            log += q * tl.full((), LN2, tl.float64)
        added += tl.where(inside & (k != own), log, 0.0)
        if GRADIENT:
            tl.store(partners + k, partner, mask=inside)
            tl.store(sums + 2 * plane + k, -log if WIDE else 1 / s, mask=inside)
    return tl.sum(added), tl.sum(wrong)


@triton.jit
def _near_sums(sums, plane, own, p, m, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    """Store the cumulative sums of 1 / D_j from the anchor's place out to each sample."""
    nothing, low = tl.full((), 0.0, tl.float64), tl.full((), EMPTY_EXPONENT, tl.float64)
    s_carry, q_carry = nothing, low
    for start in range(p, m, BLOCK):
        k = start + tl.arange(0, BLOCK)
        s, q = _inverse(sums + 2 * plane, k, (k < m) & (k != own), WIDE)
        s_carry, q_carry = scan(sums, plane, k, k < m, s, q, s_carry, q_carry, False, WIDE)
    s_carry, q_carry = nothing, low
    tiles = (p + BLOCK - 1) // BLOCK
    for tile in range(0, tiles):
        k = (tiles - 1 - tile) * BLOCK + tl.arange(0, BLOCK)
        s, q = _inverse(sums + 2 * plane, k, (k < p) & (k != own), WIDE)
        s_carry, q_carry = scan(sums, plane, k, k < p, s, q, s_carry, q_carry, True, WIDE)


@triton.jit
def _inverse(inverses, k, valid, WIDE: tl.constexpr):
    s = tl.load(inverses + k, mask=valid, other=0.0)
    if WIDE:
        return exp(s, valid, WIDE)
    return s, s


@triton.jit
def _gradient(
    pairs, halves, labels, ties, sums, plane, partners, y, own, x_half, inverse, weight, p, m,
    L2: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Store weight * (exp(s_k) sum_{j : k in S_ij} 1 / D_j - 1) in place of the pairs.

    Returns the sum over the samples.
    """
    total = tl.zeros((BLOCK,), tl.float64)
    for start in range(0, m, BLOCK):
        k = start + tl.arange(0, BLOCK)
        inside, valid = k < m, (k < m) & (k != own)
        logits, one_over = _logits(pairs, halves, k, inside, x_half, inverse, L2)
        gap = distance_at(labels, y, k, inside)
        partner = tl.load(partners + k, mask=inside, other=0)
        a, b = near_set(labels, ties, y, k, inside, gap, partner, p, m, WIDE)
        s, q = sum_at(sums, plane, a, a < p, b - 1, b > p, WIDE)
        e, r = exp(logits, valid, WIDE)
        pull = e * s
        if WIDE:  # q + r is at most about 0
            pull *= half(tl.maximum(-(q + r), -32.0))
        # Without rounding, each of the m samples pulls by at most 1.
        grad = weight * (tl.minimum(pull, m * 1.0) - 1)
        if L2:
            grad *= one_over
        grad = tl.where(valid, grad, 0.0)
        total += grad
        tl.store(pairs + k, grad, mask=inside)
    return tl.sum(total)


@triton.jit(do_not_specialize=["bits"])
def _contrast(
    pairs, halves, sorted_halves, labels, sorted_labels, ties, weights, losses, totals, sums,
    partners, flags, start, m, plane, own_column, divisor, bits,
    OWN: tl.constexpr, WEIGHTED: tl.constexpr, L2: tl.constexpr, GRADIENT: tl.constexpr,
    WIDE: tl.constexpr, STEPS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    if WIDE:  # noqa: SIM102  (known when compiled)
        if tl.load(flags + row) == 0:
            return
    i = start + row
    pairs += row * m
    sums += row * m
    partners += row * m
    temperature = (tl.full((), 0, tl.int64) + bits).to(tl.float64, bitcast=True)
    inverse = 1 / temperature
    share = tl.full((), 1.0, tl.float64) / divisor
    y, own, x_half, count = tl.load(labels + i), m, share, m
    if OWN:
        own, count = tl.load(ties + 2 * m + own_column + i), tl.maximum(m - 1, 1)
    if L2:
        x_half = tl.load(halves + i)
    share /= count
    weight = share * inverse
    if WEIGHTED:
        weight *= tl.load(weights + i)
    p = _count_lower(sorted_labels, y, m, STEPS)
    logits, largest = _far_sums(
        pairs, sorted_halves, sums, plane, own, x_half, inverse, p, m, L2, WIDE, BLOCK
    )
    tl.debug_barrier()
    logs, wrong = _log_denominators(
        sorted_labels, ties, sums, plane, partners, y, own, p, m, GRADIENT, WIDE, STEPS, BLOCK
    )
    # y - y is 0, or NaN where the label is not finite: then the loss is NaN, too.
    tl.store(losses + i, (logs - logits + (y - y)) * share)
    done = True
    if not WIDE:
        again = (largest > LARGE) | (wrong > 0)
        tl.store(flags + row, again.to(tl.int32))
        done = ~again
    if GRADIENT:  # noqa: SIM102  (known when compiled)
        if done:
            tl.debug_barrier()
            _near_sums(sums, plane, own, p, m, WIDE, BLOCK)
            tl.debug_barrier()
            total = _gradient(
                pairs, sorted_halves, sorted_labels, ties, sums, plane, partners, y, own, x_half,
                inverse, weight, p, m, L2, WIDE, BLOCK,
            )  # fmt: skip
            tl.store(totals + i, total)


@triton.jit
def _count_lower(sorted_labels, y, m, STEPS: tl.constexpr):
    """How many of the m sorted labels are below y, by binary search."""
    count, top = 0, m
    for _ in range(STEPS):
        middle = (count + top) // 2
        lower = (count < top) & (tl.load(sorted_labels + tl.minimum(middle, m - 1)) < y)
        top = tl.where(lower | (count == top), top, middle)
        count = tl.where(lower, middle + 1, count)
    return count
