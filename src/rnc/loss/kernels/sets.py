"""Which samples are no nearer, or no further, than another: by label, sorted, from one anchor.

With p the place of the anchor's label y, distances fall up to p and rise from there on.
"""

import triton
import triton.language as tl


@triton.jit
def distance_at(labels, y, k, inside):
    """Distances of the labels at k from y."""
    return tl.abs(tl.load(labels + k, mask=inside, other=0.0) - y)


@triton.jit
def partner_of(labels, y, gap, below, inside, p, m, STEPS: tl.constexpr, WIDE: tl.constexpr):
    """For samples below p, the first from p on that is no nearer; else the first below that is.

    And whether that is wrong: the search compares labels with y + gap or y - gap, whose rounding
    may differ from that of distances. WIDE compares distances.
    """
    low, high = tl.where(below, p, 0), tl.where(below, m, p)
    edge = tl.where(below, y + gap, y - gap)
    last = low - 1  # of those that pass
    for i in range(STEPS):
        at = last + (1 << (STEPS - 1 - i))
        here = at < high
        if WIDE:
            passes = (distance_at(labels, y, at, here) < gap) == below
        else:
            label = tl.load(labels + at, mask=here, other=0.0)
            passes = tl.where(below, label < edge, label <= edge)
        last = tl.where(here & passes, at, last)
    some, more = inside & (last >= low), inside & (last + 1 < high)
    fails = some & ((distance_at(labels, y, last, some) < gap) != below)
    goes_on = more & ((distance_at(labels, y, last + 1, more) < gap) == below)
    return last + 1, fails | goes_on


@triton.jit
def far_set(labels, ties, y, k, inside, gap, partner, p, m, WIDE: tl.constexpr):
    """The c and f for which the samples 0..c-1 and f..m-1 are all that are no nearer than gap.

    And whether that is so: distances may be equal by rounding though the labels are not. WIDE
    looks further until it is.
    """
    below = k < p
    c = tl.where(below, tl.load(ties + m + k, mask=inside, other=0), partner)
    f = tl.where(below, partner, tl.load(ties + k, mask=inside, other=0))
    grow, fall = _too_small(labels, y, inside, gap, c, f, p)
    if WIDE:
        while tl.max((grow | fall).to(tl.int32)) > 0:
            c = tl.where(grow, tl.load(ties + m + c, mask=grow, other=0), c)
            f = tl.where(fall, tl.load(ties + f - 1, mask=fall, other=0), f)
            grow, fall = _too_small(labels, y, inside, gap, c, f, p)
    return c, f, grow | fall


@triton.jit
def _too_small(labels, y, inside, gap, c, f, p):
    grow, fall = inside & (c < p), inside & (f > p)
    grow = grow & (distance_at(labels, y, c, grow) >= gap)
    fall = fall & (distance_at(labels, y, f - 1, fall) >= gap)
    return grow, fall


@triton.jit
def near_set(labels, ties, y, k, inside, gap, partner, p, m, WIDE: tl.constexpr):
    """The a and b for which the samples a..b-1 are all that are no further than gap."""
    below = k < p
    a = tl.where(below, tl.load(ties + k, mask=inside, other=0), partner)
    b = tl.where(below, partner, tl.load(ties + m + k, mask=inside, other=0))
    fall, grow = _too_near(labels, y, inside, gap, a, b, m)
    if WIDE:
        while tl.max((grow | fall).to(tl.int32)) > 0:
            a = tl.where(fall, tl.load(ties + a - 1, mask=fall, other=0), a)
            b = tl.where(grow, tl.load(ties + m + b, mask=grow, other=0), b)
            fall, grow = _too_near(labels, y, inside, gap, a, b, m)
    else:  # one tie, on the other side of the anchor, at most
        a = tl.where(fall, tl.load(ties + a - 1, mask=fall, other=0), a)
        b = tl.where(grow, tl.load(ties + m + b, mask=grow, other=0), b)
    return a, b


@triton.jit
def _too_near(labels, y, inside, gap, a, b, m):
    fall, grow = inside & (a > 0), inside & (b < m)
    fall = fall & (distance_at(labels, y, a - 1, fall) <= gap)
    grow = grow & (distance_at(labels, y, b, grow) <= gap)
    return fall, grow
