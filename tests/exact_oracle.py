"""The loss and its gradient by the definition, in arbitrary precision (mpmath).

`oracle.slow_losses` computes the same in float64, which overflows, underflows and rounds. This
module does not. Each number has a tolerance for implementations that compute the logits in
float64: rounding moves a logit s by about 1e-15 |s|, which is more than 1 for |s| = 1e16.
"""

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from mpmath import mp, mpf

Row = Sequence[float]
Numbers = list[mpf]
LabelledRows = tuple[Sequence[Row], Sequence[Row]]

ROUNDING = 4e-15
"""Relative error of a float64 logit: that of a sum of squares, a root and a quotient."""


class Exact(NamedTuple):
    """What the definition gives, for anchors (n) and samples (m)."""

    losses: Numbers
    """(n,)."""
    loss_slack: Numbers
    """By how much rounded logits change each loss, (n,)."""
    gradients: list[Numbers]
    """Of the sum of upstream times losses: a row per anchor, then one per sample of a reference."""
    scales: Numbers
    """For each of these rows, the sum of the sizes of what was added up to it."""
    slacks: Numbers
    """For each of these rows, by how much rounded logits change it."""


class Setting(NamedTuple):
    """The options that decide the value."""

    temperature: float = 2.0
    label_distance: str = "l1"
    similarity: str = "l2"
    positives: int | None = None
    tie_tolerance: float = 0.0
    cancels: bool = False
    """Whether squared distances are differences of squared norms, as in the fused kernels."""
    rounds_logs: bool = False
    """Whether logarithms of sums are rounded as logits are: in these kernels, and by autograd."""


def exact_losses(
    features: Sequence[Row],
    targets: Sequence[Row],
    upstream: Row,
    setting: Setting,
    reference: LabelledRows | None = None,
    queue: LabelledRows = ((), ()),
) -> Exact:
    """Losses of all anchors, and gradients of their sum, weighted by upstream."""
    with mp.workdps(_digits(setting, features, reference[0] if reference else [], queue[0])):
        return _exact_losses(features, targets, upstream, setting, reference, queue)


def _digits(setting: Setting, *arrays: Sequence[Row]) -> int:
    """So many that all differences of features, and of logits, are exact to 30 digits."""
    sizes = [abs(x) for rows in arrays for row in rows for x in row if x != 0]
    if not sizes:
        return 50
    high, low = max(map(mpf, sizes)), min(map(mpf, sizes))
    logit = high / mpf(setting.temperature)
    return 60 + int(mp.log10(high / low)) + max(0, int(mp.log10(logit)))


def _exact_losses(
    features: Sequence[Row],
    targets: Sequence[Row],
    upstream: Row,
    setting: Setting,
    reference: LabelledRows | None,
    queue: LabelledRows,
) -> Exact:
    anchors = [[mpf(x) for x in row] for row in features]
    samples = anchors if reference is None else [[mpf(x) for x in row] for row in reference[0]]
    labels = [*(targets if reference is None else reference[1]), *queue[1]]
    first = 0 if reference is None else len(anchors)
    d = len((anchors or samples or [[]])[0])
    rows = len(anchors) + (0 if reference is None else len(samples))
    samples = [*samples, *([mpf(x) for x in row] for row in queue[0])]
    losses, loss_slack = [], []
    gradients = [[mpf(0)] * d for _ in range(rows)]
    scales, slacks = [mpf(0)] * rows, [mpf(0)] * rows
    blur = _blur(anchors, samples) if setting.cancels else None
    for i, x in enumerate(anchors):
        columns = [k for k in range(len(samples)) if reference is not None or k != i]
        if not columns:
            losses.append(mpf(0))
            loss_slack.append(mpf(0))
            continue
        distances = [label_distance(setting, targets[i], labels[k]) for k in columns]
        pairs = [_similarity(setting.similarity, x, samples[k]) for k in columns]
        logits = [pair.value / mpf(setting.temperature) for pair in pairs]
        sizes = [pair.size / mpf(setting.temperature) for pair in pairs]
        blurs = [blur[i][k] if blur else mpf(0) for k in columns]
        anchor = _anchor(logits, sizes, blurs, distances, setting)
        losses.append(anchor.loss)
        loss_slack.append(anchor.loss_slack)
        for k, pair, b, pull, weight, slack in zip(
            columns, pairs, blurs, anchor.pulls, anchor.weights, anchor.slacks, strict=True
        ):
            share = mpf(upstream[i]) / mpf(setting.temperature)
            for row, slope, longest in (
                (i, pair.of_x, pair.longest_x),
                (first + k, pair.of_z, pair.longest_z),
            ):
                if row >= rows:
                    continue  # of the queue, which gets no gradient
                for c in range(d):
                    gradients[row][c] += share * (pull - weight) * slope[c]
                scales[row] += share * (pull + weight) * longest
                slacks[row] += share * (slack + min(b, 1) * (pull + weight)) * longest
    return Exact(losses, loss_slack, gradients, scales, slacks)


class _Anchor(NamedTuple):
    loss: mpf
    loss_slack: mpf
    pulls: Numbers
    """sum_j w_j p_jk of each sample k: what it adds to the gradient, before - w_k."""
    weights: Numbers
    slacks: Numbers


def _anchor(
    logits: Numbers, sizes: Numbers, blurs: Numbers, distances: Numbers, setting: Setting
) -> _Anchor:
    m = len(logits)
    kth = sorted(distances)[min(setting.positives or m, m) - 1]
    tolerance = mpf(setting.tie_tolerance)
    chosen = [d <= kth + tolerance for d in distances]
    weights = [mpf(int(c)) / sum(chosen) for c in chosen]
    far = [[d >= distances[j] - tolerance for d in distances] for j in range(m)]
    exponentials = [mp.exp(s) for s in logits]
    totals = [_sum(itertools.compress(exponentials, far[j])) for j in range(m)]
    logs = [mp.log(total) for total in totals]
    inverses = [weight / total for weight, total in zip(weights, totals, strict=True)]
    pulls = [exponentials[k] * _sum(inverses[j] for j in range(m) if far[j][k]) for k in range(m)]
    loss = _sum(w * (log - s) for w, log, s in zip(weights, logs, logits, strict=True))
    errors = [s * (mpf(ROUNDING) + b) for s, b in zip(sizes, blurs, strict=True)]
    apart = 2 * max(errors)  # by how much two logits may move apart
    factor = mp.exp(2 * apart) - 1
    if apart < 1e-9:
        return _Anchor(loss, apart, pulls, weights, [factor * pull for pull in pulls])
    slacks = [min(mpf(m), pull * factor) if setting.rounds_logs else mpf(0) for pull in pulls]
    for j in range(m):
        members = [k for k in range(m) if far[j][k]]
        moved = _moved([float(logits[k] - logs[j]) for k in members], float(apart))
        for k, change in zip(members, moved, strict=True):
            slacks[k] += weights[j] * change
    return _Anchor(loss, apart, pulls, weights, slacks)


def _moved(log_shares: list[float], apart: float) -> list[float]:
    """By how much a softmax changes where two of its logits move apart: at most p (1 - p) e^apart.

    >>> _moved([0.0, -1e9], 1e3)
    [0.0, 0.0]
    """
    log_factor = apart if apart > 30 else math.log(math.expm1(apart))
    changes = []
    for k, share in enumerate(log_shares):
        rest = max((other for o, other in enumerate(log_shares) if o != k), default=-math.inf)
        rest = min(0.0, rest + math.log(len(log_shares)))
        changes.append(math.exp(min(0.0, share + rest + log_factor)))
    return changes


def _sum(numbers: Iterable[mpf]) -> mpf:
    return sum(numbers, mpf(0))


# ------------------------------------------------------------------------------ pairs of rows


class _Pair(NamedTuple):
    value: mpf
    size: mpf
    """What its rounding error is relative to."""
    of_x: Numbers
    """Its gradient."""
    of_z: Numbers
    longest_x: mpf
    """The largest number that the gradient is made of."""
    longest_z: mpf


def _similarity(name: str, x: Numbers, z: Numbers) -> _Pair:
    if name == "cosine":
        return _cosine(x, z)
    gaps = [a - b for a, b in zip(x, z, strict=True)]
    if name == "l1":
        value = -_sum(map(abs, gaps))
        slope = [-mp.sign(gap) for gap in gaps]
    else:
        value = -mp.sqrt(_sum(gap * gap for gap in gaps))
        slope = [gap / value if value else mpf(0) for gap in gaps]
    longest = max(map(abs, slope))
    return _Pair(value, abs(value), slope, [-c for c in slope], longest, longest)


def _cosine(x: Numbers, z: Numbers) -> _Pair:
    a, b = _length(x), _length(z)
    nothing = [mpf(0)] * len(x)
    u = [c / a for c in x] if a else nothing
    v = [c / b for c in z] if b else nothing
    value = _sum(p * q for p, q in zip(u, v, strict=True))
    of_x = [(q - value * p) / a for p, q in zip(u, v, strict=True)] if a else nothing
    of_z = [(p - value * q) / b for p, q in zip(u, v, strict=True)] if b else nothing
    return _Pair(value, mpf(1), of_x, of_z, 1 / a if a else a, 1 / b if b else b)


def _length(row: Numbers) -> mpf:
    return mp.sqrt(_sum(c * c for c in row))


def _blur(anchors: list[Numbers], samples: list[Numbers]) -> list[Numbers]:
    """Relative errors of |x - z| as the root of |x|^2 - 2 x z + |z|^2 about the mean of the z."""
    d = len(samples[0]) if samples else 0
    centre = [_sum(z[c] for z in samples) / len(samples) for c in range(d)]
    norms_x, norms_z = (
        [_sum((row[c] - centre[c]) ** 2 for c in range(d)) for row in rows]
        for rows in (anchors, samples)
    )
    blurs = []
    for x, norm_x in zip(anchors, norms_x, strict=True):
        squares = [_sum((a - b) ** 2 for a, b in zip(x, z, strict=True)) for z in samples]
        blurs.append(
            [
                mpf("5e-13") * (norm_x + norm_z) / square if square else mpf(0)
                for norm_z, square in zip(norms_z, squares, strict=True)
            ]
        )
    return blurs


def label_distance(setting: Setting, a: Row, b: Row) -> mpf:
    """The distance of two labels; "circular" has a period of 24."""
    gaps = [mpf(x) - mpf(y) for x, y in zip(a, b, strict=True)]
    if setting.label_distance == "l1":
        return _sum(map(abs, gaps))
    if setting.label_distance == "l2":
        return mp.sqrt(_sum(gap * gap for gap in gaps))
    if setting.label_distance == "circular":
        round_trip = [abs(gap) % 24 for gap in gaps]
        return _sum(min(gap, 24 - gap) for gap in round_trip)
    u, v = _direction(a), _direction(b)
    cross = _length([u[i - 2] * v[i - 1] - u[i - 1] * v[i - 2] for i in range(3)])
    return mp.atan2(cross, _sum(p * q for p, q in zip(u, v, strict=True)))


def _direction(pitch_yaw: Row) -> Numbers:
    pitch, yaw = (mpf(angle) * mp.pi / 180 for angle in pitch_yaw)
    return [-mp.cos(pitch) * mp.sin(yaw), -mp.sin(pitch), -mp.cos(pitch) * mp.cos(yaw)]
