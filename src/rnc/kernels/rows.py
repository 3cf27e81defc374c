"""Rows before and after the matrix products of the loss.

For Euclidean distances rows carry two more numbers, (x, -|x|^2 / 2, 1) for anchors and
(z, 1, -|z|^2 / 2) for samples, so that one matrix product gives -|x - z|^2 / 2, and a product with
the gradient of that gives its sums as well.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 1024
"""Numbers that a program looks at together."""


class Prepared(NamedTuple):
    """Rows for the matrix products; where they were not sorted, the last three are empty."""

    rows: Tensor
    """(n, e), float64."""
    sorted_rows: Tensor
    """The same in the order of the labels."""
    sorted_labels: Tensor
    """(n,), ascending."""
    ties: Tensor
    """int32, (3, n): for each sorted row the first with the same label and the one after the last;
    for each row as it came, where it went."""


def prepare(features: Tensor, labels: Tensor, shift: Tensor | None, *, sort: bool) -> Prepared:
    """Rows as float64, with shift for Euclidean distances: (n, d), (n,) -> (n, d or d + 2)."""
    n, d = features.shape
    width, many = d + 2 * (shift is not None), n if sort else 0
    rows = torch.empty(n, width, dtype=torch.float64, device=features.device)
    prepared = Prepared(
        rows,
        rows.new_empty(many, width),
        rows.new_empty(many),
        torch.empty(3, many, dtype=torch.int32, device=features.device),
    )
    _prepare[(n,)](
        features.contiguous(),
        labels,
        features if shift is None else shift,
        *prepared,
        n,
        d,
        width,
        sort,
        shift is not None,
        min(BLOCK, triton.next_power_of_2(max(n, d))),
    )
    return prepared


def finish(
    like: Tensor,
    rows: Tensor,
    products: Tensor | None,
    sorted_products: Tensor | None,
    ties: Tensor,
    *,
    l2: bool,
) -> Tensor:
    """The gradient of features from the products of the gradient of pairs with rows.

    Args:
        like: the features, (n, d).
        rows: as `prepare` made them, (n, e).
        products: with the rows of the samples, (n, e); None if the features are no anchors.
        sorted_products: with those of the anchors, in the order of labels; None if they are no
            samples.
        ties: as `prepare` gives them.
        l2: take away each row times the sum of its gradients, which the products hold.
    """
    n, d = like.shape
    out = torch.empty(n, d, dtype=like.dtype, device=like.device)
    _finish[(n,)](
        rows if products is None else products,
        rows,
        rows if sorted_products is None else sorted_products,
        ties,
        out,
        n,
        d,
        rows.shape[1],
        products is not None,
        sorted_products is not None,
        l2,
        min(BLOCK, triton.next_power_of_2(d)),
    )
    return out


@triton.jit
def _prepare(
    features,
    labels,
    shift,
    rows,
    sorted_rows,
    sorted_labels,
    ties,
    n,
    d,
    width,
    SORT: tl.constexpr,
    L2: tl.constexpr,
    BLOCK: tl.constexpr,
):
    i = tl.program_id(0).to(tl.int64)
    place = i
    if SORT:
        y = tl.load(labels + i)
        y = tl.where(y == y, y, float("inf"))  # every row needs a place, one without a label, too
        lower, equal, before = 0, 0, 0
        for start in range(0, n, BLOCK):
            k = start + tl.arange(0, BLOCK)
            other = tl.load(labels + k, mask=k < n, other=0.0)
            other = tl.where(other == other, other, float("inf"))
            lower += tl.sum(((other < y) & (k < n)).to(tl.int32))
            equal += tl.sum(((other == y) & (k < n)).to(tl.int32))
            before += tl.sum(((other == y) & (k < i)).to(tl.int32))
        place = (lower + before).to(tl.int64)
        tl.store(sorted_labels + place, y)
        tl.store(ties + place, lower)
        tl.store(ties + n + place, lower + equal)
        tl.store(ties + 2 * n + i, place.to(tl.int32))
    norm = tl.zeros((BLOCK,), tl.float64)
    for start in range(0, d, BLOCK):
        c = start + tl.arange(0, BLOCK)
        x = tl.load(features + i * d + c, mask=c < d, other=0.0).to(tl.float64)
        if L2:
            x -= tl.load(shift + c, mask=c < d, other=0.0)
            norm += x * x
        tl.store(rows + i * width + c, x, mask=c < d)
        if SORT:
            tl.store(sorted_rows + place * width + c, x, mask=c < d)
    if L2:
        half, one = -0.5 * tl.sum(norm), tl.full((), 1.0, tl.float64)
        tl.store(rows + i * width + d, half)
        tl.store(rows + i * width + d + 1, one)
        if SORT:
            tl.store(sorted_rows + place * width + d, one)
            tl.store(sorted_rows + place * width + d + 1, half)


@triton.jit
def _finish(
    products,
    rows,
    sorted_products,
    ties,
    out,
    n,
    d,
    width,
    ANCHORS: tl.constexpr,
    SAMPLES: tl.constexpr,
    L2: tl.constexpr,
    BLOCK: tl.constexpr,
):
    i = tl.program_id(0).to(tl.int64)
    place = i
    if SAMPLES:
        place = tl.load(ties + 2 * n + i).to(tl.int64)
    for start in range(0, d, BLOCK):
        c = start + tl.arange(0, BLOCK)
        grad = tl.zeros((BLOCK,), tl.float64)
        total = tl.full((), 0.0, tl.float64)
        if ANCHORS:
            grad += tl.load(products + i * width + c, mask=c < d, other=0.0)
            if L2:
                total += tl.load(products + i * width + d)
        if SAMPLES:
            grad += tl.load(sorted_products + place * width + c, mask=c < d, other=0.0)
            if L2:
                total += tl.load(sorted_products + place * width + d + 1)
        if L2:
            grad -= total * tl.load(rows + i * width + c, mask=c < d, other=0.0)
        tl.store(out + i * d + c, grad.to(out.dtype.element_ty), mask=c < d)
