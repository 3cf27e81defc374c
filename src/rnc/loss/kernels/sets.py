"""The sets of the loss for one anchor, as ranges of the samples sorted by label.

With p the place of the anchor's label y, label distances fall up to place p and rise from there on.
So "at least as far as sample k" is a range at each end, and "at least as near" is a range around p.
"""

import triton
import triton.language as tl


@triton.jit
def distance_at(labels, y, k, inside):
    """Distances of the labels at k from y."""
    return tl.abs(tl.load(labels + k, mask=inside, other=0.0) - y)


@triton.jit
def partner_of(labels, y, gap, below, inside, p, m, STEPS: tl.constexpr, WIDE: tl.constexpr):
    """The sample on the other side of the anchor where the distance passes `gap`.

    For samples below p it is the first from p on that is at least as far. For the others it is the
    first below p that is nearer. Also returns where that is wrong: the fast search compares labels
    with y + gap or y - gap, which may round differently from distances. WIDE compares distances.
    """
    low, high = tl.where(below, p, 0), tl.where(below, m, p)
    edge = tl.where(below, y + gap, y - gap)
    last = low - 1  # the last one that passes
    for i in range(STEPS):
        at = last + (1 << (STEPS - 1 - i))
        here = at < high
        if WIDE:
            passes = (distance_at(labels, y, at, here) < gap) == below
        else:
            label = tl.load(labels + at, mask=here, other=0.0)
            passes = tl.where(below, label < edge, label <= edge)
        last = tl.where(here & passes, at, last)
    has_last, has_next = inside & (last >= low), inside & (last + 1 < high)
    last_fails = has_last & ((distance_at(labels, y, last, has_last) < gap) != below)
    next_passes = has_next & ((distance_at(labels, y, last + 1, has_next) < gap) == below)
    return last + 1, last_fails | next_passes


@triton.jit
def far_set(labels, ties, y, k, inside, gap, partner, p, m, WIDE: tl.constexpr):
    """The c and f for which samples 0..c-1 and f..m-1 are all that are at least as far as gap.

    Also returns where samples are still missing: distances may round to ties though the labels
    differ. WIDE extends the ranges until none is missing.
    """
    below = k < p
    c = tl.where(below, tl.load(ties + m + k, mask=inside, other=0), partner)
    f = tl.where(below, partner, tl.load(ties + k, mask=inside, other=0))
    grow, fall = _missing_far(labels, y, inside, gap, c, f, p)
    if WIDE:
        while tl.max((grow | fall).to(tl.int32)) > 0:
            c = tl.where(grow, tl.load(ties + m + c, mask=grow, other=0), c)
            f = tl.where(fall, tl.load(ties + f - 1, mask=fall, other=0), f)
            grow, fall = _missing_far(labels, y, inside, gap, c, f, p)
    return c, f, grow | fall


@triton.jit
def _missing_far(labels, y, inside, gap, c, f, p):
    grow, fall = inside & (c < p), inside & (f > p)
    grow = grow & (distance_at(labels, y, c, grow) >= gap)
    fall = fall & (distance_at(labels, y, f - 1, fall) >= gap)
    return grow, fall


@triton.jit
def near_set(labels, ties, y, k, inside, gap, partner, p, m, WIDE: tl.constexpr):
    """The a and b for which samples a..b-1 are all that are at least as near as gap."""
    below = k < p
    a = tl.where(below, tl.load(ties + k, mask=inside, other=0), partner)
    b = tl.where(below, partner, tl.load(ties + m + k, mask=inside, other=0))
    fall, grow = _missing_near(labels, y, inside, gap, a, b, m)
    if WIDE:
        while tl.max((grow | fall).to(tl.int32)) > 0:
            a = tl.where(fall, tl.load(ties + a - 1, mask=fall, other=0), a)
            b = tl.where(grow, tl.load(ties + m + b, mask=grow, other=0), b)
            fall, grow = _missing_near(labels, y, inside, gap, a, b, m)
    else:  # at most one group is missing: the tie on the other side of the anchor
        a = tl.where(fall, tl.load(ties + a - 1, mask=fall, other=0), a)
        b = tl.where(grow, tl.load(ties + m + b, mask=grow, other=0), b)
    return a, b


@triton.jit
def _missing_near(labels, y, inside, gap, a, b, m):
    fall, grow = inside & (a > 0), inside & (b < m)
    fall = fall & (distance_at(labels, y, a - 1, fall) <= gap)
    grow = grow & (distance_at(labels, y, b, grow) <= gap)
    return fall, grow
