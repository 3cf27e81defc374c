"""Label distances and feature similarities between two sets of rows: (n, .), (m, .) -> (n, m).

Both are things you pass in: a name from the dict below, or a function of your own with the same
shapes. Label distances see float64 targets (n, t) and decide ranks and ties, so none of them goes
through a matrix product, whose rounding would split ties. Similarities see features (n, d) and are
differentiable; larger means more alike.
"""

from collections.abc import Callable
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
    """Euclidean distance between target vectors."""
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
    return (2 * (l2_distance(a, b) / l2_distance(a, -b)).atan()).rad2deg()


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
    float32 differences and many times faster. float64 rows have no wider type to hide the
    cancellation in, so they are subtracted directly.
    """
    if a.dtype == torch.float64:
        return -_direct_distance(a, b, p=2.0)
    shift = b.detach().double().mean(dim=0)
    rows = a.double() - shift
    others = None if a is b else b.double() - shift
    similarity: Tensor = _NegativeL2.apply(rows, others)
    return similarity


def negative_l1(a: Tensor, b: Tensor) -> Tensor:
    """Minus the sum of absolute differences, added up in float64."""
    return -_direct_distance(a.double(), b.double(), p=1.0)


def cosine(a: Tensor, b: Tensor) -> Tensor:
    """Cosine of the angle between rows; 0, with gradient 0, for a row of zeros."""
    return unit_rows(a) @ unit_rows(b).T


def unit_rows(rows: Tensor) -> Tensor:
    """Rows scaled to length 1 in float64, where no float32 square over- or underflows."""
    rows = rows.double()
    length: Tensor = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
    return rows * (length > 0) / length.masked_fill(length == 0, 1.0)


SIMILARITIES: dict[str, Pairwise] = {"l2": negative_l2, "l1": negative_l1, "cosine": cosine}


class _NegativeL2(torch.autograd.Function):
    """-|a_i - b_j| as -sqrt(|a_i|^2 - 2 a_i b_j + |b_j|^2), for float64 copies of float32 rows.

    b is None where both are the same rows, which saves one of three matrix products.
    """

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor | None) -> Tensor:
        norms = a.square().sum(dim=1, keepdim=True)
        other_norms = norms.T if b is None else b.square().sum(dim=1)
        squares = torch.addmm(other_norms, a, (a if b is None else b).T, alpha=-2.0).add_(norms)
        # Below the rounding of the product, the rows are the same.
        similarity = squares.masked_fill_(squares < 2e-13 * norms, 0.0).sqrt_().neg_()
        ctx.save_for_backward(a, b, similarity)
        return similarity

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None]:
        a, b, similarity = ctx.saved_tensors
        pull = (grad / similarity).masked_fill_(similarity == 0, 0.0)
        if b is None:
            pull = pull + pull.T
            return pull.sum(1)[:, None] * a - pull @ a, None
        grad_a = grad_b = None
        if ctx.needs_input_grad[0]:
            grad_a = pull.sum(1)[:, None] * a - pull @ b
        if ctx.needs_input_grad[1]:
            grad_b = pull.sum(0)[:, None] * b - pull.T @ a
        return grad_a, grad_b


def _direct_distance(a: Tensor, b: Tensor, p: float) -> Tensor:
    """p-norm of the differences, without a matrix product.

    torch's backward on CUDA allocates (rows, m, d), so the anchors go in blocks of 2^26 numbers.
    """
    block = max(1, 2**26 // max(1, b.numel()))
    mode = "donot_use_mm_for_euclid_dist"
    return torch.cat(
        [torch.cdist(part, b, p=p, compute_mode=mode) for part in torch.split(a, block)]
    )
