"""Sums of exponentials that cannot over- or underflow.

Where the logits of a row are large (WIDE), a sum is held as s * 2^q in two float64 numbers, in two
planes of memory; else as s alone, which is faster.
"""

import triton
import triton.language as tl

LN2 = tl.constexpr(0.6931471805599453)
EMPTY_EXPONENT = tl.constexpr(-1e300)  # the q of an empty sum


@triton.jit
def half(k):
    """2^-k for whole k >= 0."""
    k = tl.minimum(k, 1023.0).to(tl.int64)
    return ((1023 - k) << 52).to(tl.float64, bitcast=True)


@triton.jit
def add(s, q, t, r):
    """The sum of s 2^q and t 2^r."""
    high = tl.maximum(q, r)
    return s * half(high - q) + t * half(high - r), high


@triton.jit
def exp(logits, valid, WIDE: tl.constexpr):
    """Exponentials as s 2^q; an empty sum where not valid."""
    if WIDE:
        x = logits / tl.full((), LN2, tl.float64)
        q = tl.floor(x)
        return tl.where(valid, tl.exp2(x - q), 0.0), tl.where(valid, q, EMPTY_EXPONENT)
    return tl.where(valid, tl.exp(logits), 0.0), logits


@triton.jit
def scan(sums, plane, k, inside, s, q, s_carry, q_carry, REVERSE: tl.constexpr, WIDE: tl.constexpr):
    """Store running sums that continue from a carry; returns the next carry."""
    if WIDE:
        running, exponent = tl.associative_scan((s, q), 0, add, reverse=REVERSE)
        running, exponent = add(running, exponent, s_carry, q_carry)
        tl.store(sums + k, running, mask=inside)
        tl.store(sums + plane + k, exponent, mask=inside)
        total, top = tl.reduce((s, q), 0, add)
        return add(total, top, s_carry, q_carry)
    tl.store(sums + k, tl.cumsum(s, 0, reverse=REVERSE) + s_carry, mask=inside)
    return s_carry + tl.sum(s), q_carry


@triton.jit
def sum_at(sums, plane, left, has_left, right, has_right, WIDE: tl.constexpr):
    """The running sum at the place left plus that at the place right."""
    s = tl.load(sums + left, mask=has_left, other=0.0)
    t = tl.load(sums + right, mask=has_right, other=0.0)
    if WIDE:
        q = tl.load(sums + plane + left, mask=has_left, other=EMPTY_EXPONENT)
        r = tl.load(sums + plane + right, mask=has_right, other=EMPTY_EXPONENT)
        return add(s, q, t, r)
    return s + t, s
