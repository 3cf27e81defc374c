"""L1 distances between rows and their gradient, which no matrix product gives."""

import triton
import triton.language as tl
from torch import Tensor

TILE = 32
"""Rows and columns of a program."""


def l1_similarities(x: Tensor, z: Tensor) -> Tensor:
    """Minus the sums of absolute differences: (n, d), (m, d) -> (n, m)."""
    (n, d), m = x.shape, len(z)
    out = x.new_empty(n, m)
    grid = (triton.cdiv(n, TILE), triton.cdiv(m, TILE))
    _l1_similarities[grid](
        x.T.contiguous(), z.T.contiguous(), out, n, m, d, TILE, enable_fp_fusion=True
    )
    return out


def l1_gradient(weights: Tensor, x: Tensor, z: Tensor, out: Tensor, *, add: bool) -> None:
    """sum_j weights_ij sign(z_j - x_i), the gradient of minus L1 distances: -> out (n, d)."""
    (n, d), m = x.shape, len(z)
    grid = (triton.cdiv(n, TILE), triton.cdiv(d, TILE))
    _l1_gradient[grid](
        weights, x, z, out, n, m, d, *weights.stride(), add, TILE, enable_fp_fusion=True
    )


@triton.jit
def _l1_similarities(x, z, out, n, m, d, TILE: tl.constexpr):
    i = tl.program_id(0) * TILE + tl.arange(0, TILE)
    j = tl.program_id(1) * TILE + tl.arange(0, TILE)
    total = tl.zeros((TILE, TILE), tl.float64)
    x += i
    z += j
    for _ in range(0, d):
        left = tl.load(x, mask=i < n, other=0.0)
        right = tl.load(z, mask=j < m, other=0.0)
        total -= tl.abs(left[:, None] - right[None, :])
        x += n
        z += m
    inside = (i < n)[:, None] & (j < m)[None, :]
    tl.store(out + i.to(tl.int64)[:, None] * m + j[None, :], total, mask=inside)


@triton.jit
def _l1_gradient(
    weights, x, z, out, n, m, d, by_row, by_column, ADD: tl.constexpr, TILE: tl.constexpr
):
    i = (tl.program_id(0) * TILE + tl.arange(0, TILE)).to(tl.int64)
    c = tl.program_id(1) * TILE + tl.arange(0, TILE)
    inside = (i < n)[:, None] & (c < d)[None, :]
    at = i[:, None] * d + c[None, :]
    own = tl.load(x + at, mask=inside, other=0.0)
    total = tl.zeros((TILE, TILE), tl.float64)
    if ADD:
        total = tl.load(out + at, mask=inside, other=0.0)
    weights += i * by_row
    z += c
    for _ in range(0, m):
        weight = tl.load(weights, mask=i < n, other=0.0)[:, None]
        other = tl.load(z, mask=c < d, other=0.0)[None, :]
        total += tl.where(other > own, weight, tl.where(other < own, -weight, 0.0))
        weights += by_column
        z += d
    tl.store(out + at, total, mask=inside)
