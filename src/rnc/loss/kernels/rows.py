"""Rows before and after the matrix products of the loss.

For Euclidean distances -|x - z|^2 / 2 = x z - |x|^2 / 2 - |z|^2 / 2, of which the product x z takes
nearly all the time, and the gradient g of that gives x the gradient sum_z g z - x sum_z g.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

ROW_BLOCK = 1024
"""Numbers of a row that a program handles at a time."""


class Prepared(NamedTuple):
    """Rows for the matrix products; `sorted_rows` to `ties` are empty without sorting."""

    rows: Tensor
    """(n, d), float64."""
    halves: Tensor
    """|x|^2 / 2 of each row, for Euclidean distances, (n,)."""
    sorted_rows: Tensor
    """The rows in the order of the labels, (n, d)."""
    sorted_halves: Tensor
    sorted_labels: Tensor
    """(n,), ascending."""
    ties: Tensor
    """int32, (3, n). For each sorted row: the first row with the same label, and the row after the
    last one. For each row as it came: its place in the sorted order."""
    not_finite: Tensor
    """int32, (1,): 1 if a feature or a label is NaN, infinite or too large, else 0."""


def prepare(features: Tensor, labels: Tensor, shift: Tensor | None, *, sort: bool) -> Prepared:
    """Rows as the kernels read them: features (n, d) less the shift (d,), labels (n,) sorted."""
    n, d = features.shape
    k = n if sort else 0  # sorted rows
    rows = torch.empty(n + k, d, dtype=torch.float64, device=features.device)
    numbers = rows.new_empty(n + 2 * k)
    prepared = Prepared(
        rows[:n],
        numbers[:n],
        rows[n:],
        numbers[n : n + k],
        numbers[n + k :],
        torch.empty(3, k, dtype=torch.int32, device=features.device),
        torch.zeros(1, dtype=torch.int32, device=features.device),
    )
    _prepare_kernel[(n,)](
        features.contiguous(), labels, features if shift is None else shift, *prepared, n, d,
        sort, shift is not None, min(ROW_BLOCK, triton.next_power_of_2(max(n, d))),
        enable_fp_fusion=True,
    )  # fmt: skip
    return prepared


class Products(NamedTuple):
    """The gradient g of all pairs, multiplied with the rows on the other side and summed."""

    rows: Tensor
    """sum_z g z for each row, (n, d), float64."""
    sums: Tensor
    """sum_z g for each row, (n,)."""


def finish(
    like: Tensor,
    rows: Tensor,
    as_anchors: Products | None,
    as_samples: Products | None,
    ties: Tensor,
    *,
    l2: bool,
) -> Tensor:
    """The gradient of the features `like`, (n, d); rows and ties are as `prepare` gives them.

    `as_anchors` and `as_samples` are the products of the features in these two roles, None for a
    role they do not have; samples are in the order of labels. l2 subtracts each row times its sum,
    as Euclidean distances need.
    """
    n, d = like.shape
    out = torch.empty(n, d, dtype=like.dtype, device=like.device)
    placeholder = as_anchors or as_samples
    assert placeholder is not None
    _finish_kernel[(n,)](
        *(as_anchors or placeholder), *(as_samples or placeholder), rows, ties, out, n, d,
        as_anchors is not None, as_samples is not None, l2,
        min(ROW_BLOCK, triton.next_power_of_2(d)),
        enable_fp_fusion=True,
    )  # fmt: skip
    return out


@triton.jit
def _prepare_kernel(
    features, labels, shift, rows, halves, sorted_rows, sorted_halves, sorted_labels, ties,
    not_finite, n, d,
    SORT: tl.constexpr, L2: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    i = tl.program_id(0).to(tl.int64)
    place = i
    y = tl.load(labels + i)
    # zero_or_nan becomes NaN for NaN, for infinity, and for labels so large that their distances
    # would be infinite.
    large = y * 268435456.0
    zero_or_nan = tl.zeros((BLOCK,), tl.float64) + (large - large)
    if SORT:
        y = tl.where(y == y, y, float("inf"))  # a NaN label needs a place in the order, too
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
        zero_or_nan += x - x
        tl.store(rows + i * d + c, x, mask=c < d)
        if SORT:
            tl.store(sorted_rows + place * d + c, x, mask=c < d)
    if L2:
        half = 0.5 * tl.sum(norm)
        tl.store(halves + i, half)
        if SORT:
            tl.store(sorted_halves + place, half)
    if tl.sum(zero_or_nan) != 0:
        tl.store(not_finite, 1)


@triton.jit
def _finish_kernel(
    products, sums, sorted_products, sorted_sums, rows, ties, out, n, d,
    ANCHORS: tl.constexpr, SAMPLES: tl.constexpr, L2: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    i = tl.program_id(0).to(tl.int64)
    place, total = i, tl.full((), 0.0, tl.float64)
    if SAMPLES:
        place = tl.load(ties + 2 * n + i).to(tl.int64)
    if L2:
        if ANCHORS:
            total += tl.load(sums + i)
        if SAMPLES:
            total += tl.load(sorted_sums + place)
    for start in range(0, d, BLOCK):
        c = start + tl.arange(0, BLOCK)
        grad = tl.zeros((BLOCK,), tl.float64)
        if ANCHORS:
            grad += tl.load(products + i * d + c, mask=c < d, other=0.0)
        if SAMPLES:
            grad += tl.load(sorted_products + place * d + c, mask=c < d, other=0.0)
        if L2:
            grad -= total * tl.load(rows + i * d + c, mask=c < d, other=0.0)
        tl.store(out + i * d + c, grad.to(out.dtype.element_ty), mask=c < d)
