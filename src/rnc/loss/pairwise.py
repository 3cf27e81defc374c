"""Label distances and feature similarities between two sets of rows: (n, .), (m, .) -> (n, m).

Both are things you pass in: a name from the dict below, or a function of your own with the same
shapes. Label distances see float64 targets (n, t) and decide ranks and ties, so none of them goes
through a matrix product, whose rounding would split ties. Similarities see features (n, d) and are
differentiable; larger means more alike.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

Pairwise = Callable[[Tensor, Tensor], Tensor]


def resolve_label_distance(choice: str | Pairwise) -> Pairwise:
    """The label distance that a name stands for; a function is returned as it is."""
    if choice == "circular":
        raise ValueError(
            "label_distance='circular' does not say how long the circle is. Pass "
            "rnc.loss.circular(period=24) for hours, circular(period=360) for degrees."
        )
    return _by_name(choice, LABEL_DISTANCES, "label_distance", "circular(period=...)")


def resolve_similarity(choice: str | Pairwise) -> Pairwise:
    """The similarity that a name stands for; a function is returned as it is."""
    return _by_name(choice, SIMILARITIES, "similarity")


def distances_of(choice: str | Pairwise, a: Tensor, b: Tensor) -> Tensor:
    """Label distances between two sets of rows, checked for shape: (n, t), (m, t) -> (n, m)."""
    return _checked(resolve_label_distance(choice)(a, b), a, b, "label_distance")


def similarities_of(choice: str | Pairwise, a: Tensor, b: Tensor) -> Tensor:
    """Similarities between two sets of rows, checked for shape: (n, d), (m, d) -> (n, m)."""
    return _checked(resolve_similarity(choice)(a, b), a, b, "similarity")


def _checked(pairs: Tensor, a: Tensor, b: Tensor, argument: str) -> Tensor:
    """What a pairwise function returned, if it has the right shape."""
    needed = (a.shape[0], b.shape[0])
    if pairs.shape != needed:
        raise ValueError(f"{argument} must return shape {needed}; got {tuple(pairs.shape)}.")
    return pairs


def _by_name(
    choice: str | Pairwise, known: dict[str, Pairwise], argument: str, *also: str
) -> Pairwise:
    if callable(choice):
        return choice
    if choice not in known:
        raise ValueError(
            f"{argument} must be one of {', '.join([*known, *also])} or a function "
            f"(n, .), (m, .) -> (n, m); got {choice!r}."
        )
    return known[choice]


# ---------------------------------------------------------------------------- label distances


def l1_distance(a: Tensor, b: Tensor) -> Tensor:
    """Sum over the targets of |a - b|.

    >>> l1_distance(torch.tensor([[0.0], [3.0]]), torch.tensor([[1.0], [3.0]]))
    tensor([[1., 3.],
            [2., 0.]])
    """
    return _sum_over_targets(lambda x, y: (x - y).abs(), a, b)


def l2_distance(a: Tensor, b: Tensor) -> Tensor:
    """Euclidean distance between target vectors, for labels of any scale.

    >>> far = torch.tensor([[3e200, 4e200]], dtype=torch.float64)
    >>> l2_distance(far, 0 * far)
    tensor([[5.0000e+200]], dtype=torch.float64)
    """
    if a.shape[1] == 1:
        return l1_distance(a, b)
    factor = safe_factor(a, b)
    return _root_of_squares(a * factor, b * factor) / factor


def _root_of_squares(a: Tensor, b: Tensor) -> Tensor:
    """Euclidean distances where no square over- or underflows."""
    return _sum_over_targets(lambda x, y: (x - y).square(), a, b).sqrt()


@dataclass(frozen=True)
class circular:  # a class, so that it shows its period; used as a function
    """A label distance: the shorter way round a circle, summed over the targets.

    >>> hours = torch.tensor([[23.0], [1.0], [12.0]])
    >>> circular(period=24)(hours, hours)
    tensor([[ 0.,  2., 11.],
            [ 2.,  0., 11.],
            [11., 11.,  0.]])
    """

    period: float
    """Length of the circle: 24 for hours, 360 for degrees."""

    def __post_init__(self) -> None:
        if not 0 < self.period < float("inf"):
            raise ValueError(
                "circular needs a positive period (24 for hours, 360 for degrees); "
                f"got {self.period}."
            )

    def __call__(self, a: Tensor, b: Tensor) -> Tensor:
        """Distances between targets: (n, t), (m, t) -> (n, m)."""

        def shorter_way(x: Tensor, y: Tensor) -> Tensor:
            gap = (x - y).abs()
            return torch.minimum(gap, self.period - gap)

        return _sum_over_targets(shorter_way, a.remainder(self.period), b.remainder(self.period))


def angular_distance(a: Tensor, b: Tensor) -> Tensor:
    """Angle in degrees between the gaze directions (pitch, yaw), given in degrees.

    2 atan(|u - v| / |u + v|) is exact for equal directions, where acos of a rounded cosine is not.

    >>> gaze = torch.tensor([[0.0, 0.0], [90.0, 0.0], [0.0, 45.0]])
    >>> angular_distance(gaze, gaze).round()
    tensor([[ 0., 90., 45.],
            [90.,  0., 90.],
            [45., 90.,  0.]])
    """
    for targets in (a, b):
        if targets.shape[1] != 2:
            raise ValueError(
                "label_distance='angular' needs two targets, pitch and yaw in degrees: (n, 2); "
                f"got {tuple(targets.shape)}."
            )
    if not a.is_cpu or torch.compiler.is_compiling():
        return _angles(gaze_direction(a), gaze_direction(b))
    # Sums, products, quotients and roots always round the same way. On a CPU, sin, cos and atan of
    # one number may depend on its place in the array: the last elements do not fill a vector
    # register. So that equal labels tie, each distinct label is computed once.
    labels, place = torch.unique(torch.cat([a, b]), dim=0, return_inverse=True)
    directions = gaze_direction(labels)
    return _angles(directions[place[: len(a)]], directions)[:, place[len(a) :]]


def _angles(a: Tensor, b: Tensor) -> Tensor:
    """Angles in degrees between unit vectors: (n, 3), (m, 3) -> (n, m)."""
    # Not atan2: on a CPU its rounding depends on the place in the array for certain, which would
    # also split ties of different labels, such as 10 degrees up and 10 degrees down.
    return (2 * (_root_of_squares(a, b) / _root_of_squares(a, -b)).atan()).rad2deg()


def gaze_direction(pitch_yaw: Tensor) -> Tensor:
    """Unit vectors of gaze angles in degrees: (n, 2) -> (n, 3)."""
    pitch, yaw = pitch_yaw.deg2rad().unbind(1)
    return torch.stack([-pitch.cos() * yaw.sin(), -pitch.sin(), -pitch.cos() * yaw.cos()], dim=1)


def _sum_over_targets(distance: Pairwise, a: Tensor, b: Tensor) -> Tensor:
    """Add up one (n, m) array per target, so that memory does not grow with t."""
    total = distance(a[:, :1], b[:, 0])
    for x, y in zip(a.unbind(1)[1:], b.unbind(1)[1:], strict=True):
        total = total + distance(x[:, None], y)
    return total


def safe_factor(*arrays: Tensor) -> Tensor:
    """What to multiply rows by so that squares of their differences stay within float64: ().

    1 unless the largest number is beyond 1e150 or below 1e-120.
    """
    sizes = [array.detach().abs().amax() for array in arrays if array.numel()]
    if not sizes:
        return arrays[0].new_ones(())
    largest = torch.stack(sizes).amax()
    is_extreme = (largest > 1e150) | (largest < 1e-120)
    return torch.where(is_extreme, _to_one(largest), 1.0)


def _to_one(sizes: Tensor) -> Tensor:
    """The powers of two that bring numbers to between 0.5 and 1; they round nothing."""
    sizes = sizes.clamp(min=1e-300)  # the inverse of a smaller number would overflow
    return torch.frexp(sizes).mantissa / sizes


LABEL_DISTANCES: dict[str, Pairwise] = {
    "l1": l1_distance,
    "l2": l2_distance,
    "angular": angular_distance,
}


def circle_of(label_distance: str | Pairwise) -> float | None:
    """The length of the circle that targets of this distance are on; None where it is a line."""
    if isinstance(label_distance, circular):
        return label_distance.period
    return 360.0 if label_distance in ("angular", angular_distance) else None


# ---------------------------------------------------------------------- feature similarities


def negative_l2(a: Tensor, b: Tensor) -> Tensor:
    """Minus the Euclidean distance; coincident rows get gradient 0.

    float32 rows take a float64 matrix product of centred features, which is more exact than
    float32 differences and many times faster. Pairs that are too close for the product to resolve
    are subtracted directly, on a CPU only: finding them would synchronize with a GPU. float64 rows
    have no wider dtype that absorbs the cancellation, so all of them are subtracted directly.
    """
    if a.dtype == torch.float64:
        factor = safe_factor(a, b)
        return _direct_distance(a * factor, b * factor, p=2.0) / -factor
    similarity: Tensor = _NegativeL2.apply(a.double(), None if a is b else b.double())
    return similarity


def negative_l1(a: Tensor, b: Tensor) -> Tensor:
    """Minus the sum of absolute differences, added up in float64."""
    return -_direct_distance(a.double(), b.double(), p=1.0)


def cosine(a: Tensor, b: Tensor) -> Tensor:
    """Cosine of the angle between rows; 0, with gradient 0, for a row of zeros."""
    return unit_rows(a) @ unit_rows(b).T


def unit_rows(rows: Tensor) -> Tensor:
    """Rows scaled to length 1 in float64, where no square of a float32 number over- or underflows.

    float64 rows are brought near 1 first.
    """
    if rows.dtype == torch.float64:
        rows = rows * _to_one(rows.detach().abs().amax(dim=1, keepdim=True))
    rows = rows.double()
    length: Tensor = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
    return rows * (length > 0) / length.masked_fill(length == 0, 1.0)


SIMILARITIES: dict[str, Pairwise] = {"l2": negative_l2, "l1": negative_l1, "cosine": cosine}


class _NegativeL2(torch.autograd.Function):
    """-|a_i - b_j| as -sqrt(|a_i|^2 - 2 a_i b_j + |b_j|^2), for float64 copies of float32 rows.

    b is None where both are the same rows, which saves one of three matrix products. Rows are
    centred by the mean of b.
    """

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor | None) -> Tensor:
        shift = (a if b is None else b).sum(dim=0) / max(1, len(a if b is None else b))
        rows, others = a - shift, None if b is None else b - shift
        norms = rows.square().sum(dim=1, keepdim=True)
        other_norms = norms.T if others is None else others.square().sum(dim=1)
        columns = (rows if others is None else others).T
        squares = torch.addmm(other_norms, rows, columns, alpha=-2.0).add_(norms)
        is_near = squares < _least_squares(norms)
        similarity = squares.masked_fill_(is_near, 0.0).sqrt_().neg_()
        near = _places(is_near, is_same=b is None)
        if near is not None:
            gaps = [pair_gaps.norm(dim=1) for _, pair_gaps in _gaps(a, b, near)]
            similarity[near.unbind(1)] = -torch.cat(gaps)
            ctx.save_for_backward(rows, others, similarity, near, a, b)
        else:
            ctx.save_for_backward(rows, others, similarity, None, None, None)
        return similarity

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None]:
        rows, others, similarity, near, a, b = ctx.saved_tensors
        needs_a, needs_b = ctx.needs_input_grad
        pull = (grad / similarity).masked_fill_(similarity == 0, 0.0)
        near_pull = None
        if near is not None:
            near_pull = pull[near.unbind(1)]
            pull[near.unbind(1)] = 0.0
        grad_a = grad_b = None
        if others is None:
            pull = pull + pull.T
            grad_a = grad_b = pull.sum(1)[:, None] * rows - pull @ rows
        if others is not None and needs_a:
            grad_a = pull.sum(1)[:, None] * rows - pull @ others
        if others is not None and needs_b:
            grad_b = pull.sum(0)[:, None] * others - pull.T @ rows
        if near_pull is not None:
            for part, gaps in _gaps(a, b, near):
                change = gaps * near_pull[part, None]
                i, j = near[part].unbind(1)
                if grad_a is not None:
                    grad_a.index_add_(0, i, change)
                if grad_b is not None:
                    grad_b.index_add_(0, j, change, alpha=-1)
        return grad_a, None if others is None else grad_b


def _can_read_values(rows: Tensor) -> bool:
    """Whether code may branch on values: a GPU would synchronize, torch.compile cannot trace it.

    Compilers pass subclasses of Tensor, which may hold no values.
    """
    return rows.is_cpu and type(rows) is Tensor and not torch.compiler.is_compiling()


def _least_squares(norms: Tensor) -> Tensor:
    """The smallest squared distances that a matrix product gives accurately, from squared norms.

    Above them, distances have relative and absolute errors below 1e-8. Where values cannot be
    read, close pairs are not subtracted directly. Then the threshold is so low that only pairs
    whose difference is mere rounding are below it; they count as equal rows.
    """
    if not _can_read_values(norms):
        return 2e-13 * norms
    # Rounding adds about 1e-16 norms to a square.
    return torch.maximum(1e-8 * norms, 1e-14 * norms.square())


def _places(is_near: Tensor, is_same: bool) -> Tensor | None:
    """Indices of the pairs to subtract directly: (n, m) -> (k, 2); None if there are none.

    If both sets are the same, the pairs of a row with itself are left out.
    """
    if not _can_read_values(is_near):
        return None
    if is_same:
        is_near.fill_diagonal_(False)
    return is_near.nonzero() if is_near.any() else None


NEAR_NUMBERS = 2**22
"""How many feature values of near pairs are subtracted at a time."""


def _gaps(a: Tensor, b: Tensor | None, near: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """Slices of the near pairs (k, 2), each with the differences (., d) of its pairs."""
    step = max(1, NEAR_NUMBERS // a.shape[1])
    for start in range(0, len(near), step):
        part = slice(start, start + step)
        i, j = near[part].unbind(1)
        yield part, a[i] - (a if b is None else b)[j]


def _direct_distance(a: Tensor, b: Tensor, p: float) -> Tensor:
    """p-norm of the differences, without a matrix product.

    torch's backward on CUDA allocates (rows, m, d), so the anchors go in blocks of 2^26 numbers.
    """
    block = max(1, 2**26 // max(1, b.numel()))
    mode = "donot_use_mm_for_euclid_dist"
    return torch.cat(
        [torch.cdist(part, b, p=p, compute_mode=mode) for part in torch.split(a, block)]
    )
