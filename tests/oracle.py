"""The loss by its definition: a loop over anchors and positives, no code shared with `rnc`."""

import math
from collections.abc import Callable

import torch
from torch import Tensor


def _angle(a: list[float], b: list[float]) -> float:
    def direction(pitch: float, yaw: float) -> list[float]:
        p, y = math.radians(pitch), math.radians(yaw)
        return [-math.cos(p) * math.sin(y), -math.sin(p), -math.cos(p) * math.cos(y)]

    u, v = direction(*a), direction(*b)
    cross = [u[1] * v[2] - u[2] * v[1], u[2] * v[0] - u[0] * v[2], u[0] * v[1] - u[1] * v[0]]
    dot = sum(x * y for x, y in zip(u, v, strict=True))
    return math.degrees(math.atan2(math.sqrt(sum(x * x for x in cross)), dot))


def _circle(a: list[float], b: list[float]) -> float:
    gaps = [abs(x % 24 - y % 24) for x, y in zip(a, b, strict=True)]
    return sum(min(gap, 24 - gap) for gap in gaps)


DISTANCES: dict[str, Callable[[list[float], list[float]], float]] = {
    "l1": lambda a, b: sum(abs(x - y) for x, y in zip(a, b, strict=True)),
    "l2": lambda a, b: math.sqrt(sum((x - y) ** 2 for x, y in zip(a, b, strict=True))),
    "angular": _angle,
    "circular": _circle,  # with a period of 24
}

SIMILARITIES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "l2": lambda a, b: -torch.linalg.vector_norm(a - b, dim=1),
    "l1": lambda a, b: -(a - b).abs().sum(1),
    "cosine": lambda a, b: (a * b).sum(1) / (a.norm() * b.norm(dim=1)),
}


def slow_losses(
    features: Tensor,
    targets: Tensor,
    *,
    temperature: float = 2.0,
    label_distance: str = "l1",
    similarity: str = "l2",
    positives: int | None = None,
    tie_tolerance: float = 0.0,
    reference: tuple[Tensor, Tensor] | None = None,
) -> Tensor:
    """One loss per anchor in float64: (n, d) or (n, v, d), (n, t) -> (n * v,)."""
    rows, labels = _stack_views(features, targets)
    others, other_labels = (rows, labels) if reference is None else _stack_views(*reference)
    losses = []
    for i in range(len(rows)):
        columns = [k for k in range(len(others)) if reference is not None or k != i]
        d = [DISTANCES[label_distance](labels[i], other_labels[k]) for k in columns]
        s = SIMILARITIES[similarity](rows[i], others[columns]) / temperature
        kth = sorted(d)[min(positives or len(d), len(d)) - 1]
        terms = []
        for j, d_j in enumerate(d):
            if d_j <= kth + tie_tolerance:
                far = [k for k, d_k in enumerate(d) if d_k >= d_j - tie_tolerance]
                terms.append(s[far].logsumexp(0) - s[j])
        losses.append(torch.stack(terms).mean())
    return torch.stack(losses)


def _stack_views(features: Tensor, targets: Tensor) -> tuple[Tensor, list[list[float]]]:
    views = features.shape[1] if features.dim() == 3 else 1
    labels = [row for row in targets.double().tolist() for _ in range(views)]
    return features.double().reshape(-1, features.shape[-1]), labels
