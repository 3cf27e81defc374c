"""The Rank-N-Contrast loss, equation (3) of the paper (arXiv:2210.01189).

    s_ij = sim(v_i, v_j) / temperature          how alike two features are
    d_ij = distance(y_i, y_j)                   how far apart their labels are
    S_ij = {k != i : d_ik >= d_ij}              j and all that rank at or beyond it for anchor i
    L    = mean_i mean_{j != i} [ log sum_{k in S_ij} exp(s_ik) - s_ij ]

This file is the door: it checks a batch, brings it into rows and hands it to `rnc.ranking`, where
`rank` sorts the samples of each anchor by label and `contrast` evaluates the equation.
"""

import functools
import importlib.util
from collections.abc import Callable
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from rnc.batch import Missing, Rows, as_rows, check_finite
from rnc.distributed import gather_rows, global_ratio, world_size
from rnc.pairwise import Pairwise, resolve_label_distance, resolve_similarity
from rnc.ranking import contrast, rank

Reduction = Literal["mean", "none"]
Backend = Literal["auto", "torch", "triton"]


def rnc_loss(
    features: Tensor,
    targets: Tensor,
    *,
    temperature: float = 2.0,
    label_distance: str | Pairwise = "l1",
    similarity: str | Pairwise = "l2",
    period: float | None = None,
    positives: int | None = None,
    reference: tuple[Tensor, Tensor] | None = None,
    missing: Missing = "raise",
    tie_tolerance: float = 0.0,
    chunk_size: int | None = None,
    reduction: Reduction = "mean",
    gather: bool = False,
    backend: Backend = "auto",
    validate: bool = True,
) -> Tensor:
    """Rank-N-Contrast loss of a batch: low when feature distances follow label distances.

    Finite for finite input. Half precision, autocast included, gives a float32 result; float64
    stays float64. Labels are ranked, and exponentials summed, in float64.

    Args:
        features: (n, d), or (n, v, d) for v views of each sample; every view is an anchor.
        targets: (n,) or (n, t), of any real dtype.
        temperature: similarities are divided by it.
        label_distance: "l1", "l2", "angular" (pitch and yaw in degrees), "circular" (with a
            period), or a function (n, t), (m, t) -> (n, m).
        similarity: "l2" and "l1" (minus the distance), "cosine", or a function
            (n, d), (m, d) -> (n, m).
        period: length of the circle for "circular": 24 for hours, 360 for degrees.
        positives: contrast only the K label-nearest samples of each anchor and all that tie with
            the K-th, so that the order of the batch does not matter. None, or a K beyond the
            batch, contrasts all.
        reference: (features, targets) to contrast the anchors with instead of each other: a
            memory queue, another modality. It receives gradients if it asks for them.
        missing: what to do with a NaN target: "raise", or "skip" the sample, both as an anchor
            and as a contrast. Where nothing is left, the loss is 0.
        tie_tolerance: label distances at most this far apart are ties.
        chunk_size: anchors per pass. Memory becomes O(chunk_size * n) instead of O(n^2); value
            and gradient stay the same; the backward pass computes each chunk again.
        reduction: "mean", or "none" for one loss per anchor: (n,) or (n, v), 0 where skipped.
        gather: under torch.distributed, contrast this process's anchors with the rows (or the
            reference rows) of all processes. The mean is then that of the global batch, and
            DDP's averaged gradient is its gradient. No effect in a single process.
        backend: "torch", "triton" (fused, on a GPU, for one target ranked by l1 or l2 distance and
            any of the three similarities), or "auto" for the fastest that can run.
        validate: look for NaN and infinite values. This waits once for a GPU; torch.compile
            leaves it out. Without, on a GPU, `torch.cuda.make_graphed_callables` takes `RnCLoss`.

    >>> ages = torch.tensor([20.0, 30.0, 0.0, 70.0])
    >>> in_order, shuffled = ages[:, None], ages[[3, 0, 1, 2], None]
    >>> rnc_loss(in_order, ages) < rnc_loss(shuffled, ages)
    tensor(True)
    """
    _check_options(temperature, positives, missing, tie_tolerance, chunk_size, reduction, backend)
    distance = resolve_label_distance(label_distance, period)
    sim = resolve_similarity(similarity)
    fused = _runs_fused(
        backend, features, targets, label_distance, similarity, positives, tie_tolerance
    )
    # The fused loss looks for numbers that are none where it reads them anyway.
    late = fused and validate and missing == "raise"
    anchors, kept = _rows(features, targets, missing, validate and not late, "rnc_loss")
    others, own_column = anchors, 0
    if reference is not None:
        others, _ = _rows(*reference, missing, validate and not late, "rnc_loss's reference")
        _check_same_width(anchors, others)
    together = gather and world_size() > 1
    if together:
        all_features, all_targets, own_column = gather_rows(*others)
        others = Rows(all_features, all_targets)
    if missing == "raise":
        _check_enough(anchors, others, reference is None, together)

    def anchor_losses(start: int, features: Tensor, targets: Tensor) -> Tensor:
        labels, label_of = _distinct(targets, look=isinstance(label_distance, str))
        distances = _checked(distance(labels, others.targets), labels, others, "label_distance")
        ranking = rank(distances, tie_tolerance)
        similarities = _checked(sim(features, others.features), features, others, "similarity")
        own = None
        if reference is None:
            own = torch.arange(len(features), device=features.device) + (own_column + start)
        return contrast(similarities, ranking, temperature, label_of, own, positives, tie_tolerance)

    n = anchors.features.shape[0]
    with torch.autocast(features.device.type, enabled=False):
        if fused and n and others.features.shape[0]:
            from rnc.loss_triton import Problem, fused_contrast

            assert isinstance(similarity, str)
            labels, other_labels = (rows.targets[:, 0].contiguous() for rows in (anchors, others))
            column = own_column if reference is None else None
            problem = Problem(labels, other_labels, column, temperature, similarity, chunk_size)
            other_features = None if others is anchors else others.features
            divisor = None if reduction == "none" else 1 if together else n

            def refuse() -> None:
                for given in ((features, targets), *([] if reference is None else [reference])):
                    check_finite(*given, missing, "rnc_loss")

            losses = fused_contrast(
                anchors.features, other_features, problem, divisor, refuse if late else None
            )
        else:
            losses = _in_chunks(anchor_losses, anchors, chunk_size).to(anchors.features.dtype)
            if reduction == "mean":
                losses = losses.sum() if together else losses.sum() / max(1, n)
        if reduction == "mean":
            return global_ratio(losses, n) if together else losses
    if kept is not None:
        losses = losses.new_zeros(kept.shape).masked_scatter(kept, losses)
    return losses.reshape(features.shape[:-1])


class RnCLoss(nn.Module):
    """`rnc_loss` as a module; the arguments are explained there.

    >>> loss = RnCLoss(temperature=2.0)
    >>> two_views = torch.randn(8, 2, 16, requires_grad=True)
    >>> loss(two_views, torch.arange(8)).backward()
    """

    def __init__(
        self,
        temperature: float = 2.0,
        label_distance: str | Pairwise = "l1",
        similarity: str | Pairwise = "l2",
        *,
        period: float | None = None,
        positives: int | None = None,
        missing: Missing = "raise",
        tie_tolerance: float = 0.0,
        chunk_size: int | None = None,
        reduction: Reduction = "mean",
        gather: bool = False,
        backend: Backend = "auto",
        validate: bool = True,
    ) -> None:
        super().__init__()
        _check_options(
            temperature, positives, missing, tie_tolerance, chunk_size, reduction, backend
        )
        resolve_label_distance(label_distance, period)
        resolve_similarity(similarity)
        self.temperature = temperature
        self.label_distance = label_distance
        self.similarity = similarity
        self.period = period
        self.positives = positives
        self.missing = missing
        self.tie_tolerance = tie_tolerance
        self.chunk_size = chunk_size
        self.reduction = reduction
        self.gather = gather
        self.backend = backend
        self.validate = validate

    def forward(
        self, features: Tensor, targets: Tensor, reference: tuple[Tensor, Tensor] | None = None
    ) -> Tensor:
        """The loss of a batch, optionally against a reference set."""
        return rnc_loss(
            features,
            targets,
            temperature=self.temperature,
            label_distance=self.label_distance,
            similarity=self.similarity,
            period=self.period,
            positives=self.positives,
            reference=reference,
            missing=self.missing,
            tie_tolerance=self.tie_tolerance,
            chunk_size=self.chunk_size,
            reduction=self.reduction,
            gather=self.gather,
            backend=self.backend,
            validate=self.validate,
        )

    def extra_repr(self) -> str:
        """Show what decides the value of the loss."""
        return (
            f"temperature={self.temperature}, label_distance={self.label_distance!r}, "
            f"similarity={self.similarity!r}, positives={self.positives}"
        )


# ---------------------------------------------------------------------------------- its plumbing


def _rows(
    features: Tensor, targets: Tensor, missing: Missing, validate: bool, caller: str
) -> tuple[Rows, Tensor | None]:
    """Rows to use and, where some may be skipped, which of all rows they are."""
    rows = as_rows(features, targets, caller)
    if validate:
        check_finite(features, targets, missing, caller)
    if missing == "raise":
        return rows, None
    kept = ~rows.targets.isnan().any(dim=1)
    return Rows(rows.features[kept], rows.targets[kept]), kept


def _in_chunks(
    anchor_losses: Callable[[int, Tensor, Tensor], Tensor], anchors: Rows, chunk_size: int | None
) -> Tensor:
    """Losses of all anchors; chunks keep nothing for the backward pass but their input."""
    if chunk_size is None or chunk_size >= anchors.features.shape[0]:
        return anchor_losses(0, *anchors)
    chunks = zip(*(torch.split(column, chunk_size) for column in anchors), strict=True)
    return torch.cat(
        [
            checkpoint(
                anchor_losses, i * chunk_size, *chunk, use_reentrant=False, preserve_rng_state=False
            )
            for i, chunk in enumerate(chunks)
        ]
    )


def _distinct(targets: Tensor, *, look: bool) -> tuple[Tensor, Tensor | None]:
    """Distinct labels and which of them each row has, or the rows as they are.

    Views and rounded labels repeat, and equal labels rank alike. How many are distinct is known
    only after a look, which a GPU and a compiled graph had better not wait for.
    """
    if not look or not targets.is_cpu or torch.compiler.is_compiling():
        return targets, None
    if targets.shape[1] == 1:  # many times faster than rows
        values, label_of = torch.unique(targets[:, 0], return_inverse=True)
        distinct = values[:, None]
    else:
        distinct, label_of = torch.unique(targets, dim=0, return_inverse=True)
    return (targets, None) if len(distinct) == len(targets) else (distinct, label_of)


def _runs_fused(
    backend: str,
    features: Tensor,
    targets: Tensor,
    label_distance: str | Pairwise,
    similarity: str | Pairwise,
    positives: int | None,
    tie_tolerance: float,
) -> bool:
    """Whether `rnc.loss_triton` computes this loss; raises if it was asked for and cannot."""
    if backend == "torch" or (backend == "auto" and not features.is_cuda):
        return False
    reason = None
    if not _has_triton():
        reason = "Triton is not installed"
    elif torch.compiler.is_compiling():
        reason = "torch.compile does not trace it; call the loss outside of the compiled part"
    elif targets.dim() == 2 and targets.shape[1] != 1:
        reason = f"it takes one target per sample, got {targets.shape[1]}"
    elif label_distance not in ("l1", "l2"):
        reason = f"it ranks by label_distance 'l1' or 'l2', got {label_distance!r}"
    elif similarity not in ("l2", "l1", "cosine"):
        reason = f"it takes similarity 'l2', 'l1' or 'cosine', got {similarity!r}"
    elif positives is not None:
        reason = f"it contrasts all samples, got positives={positives}"
    elif tie_tolerance:
        reason = f"its ties are exact, got tie_tolerance={tie_tolerance}"
    elif features.dtype == torch.float64:
        reason = "it takes float32 or half precision features, got float64"
    elif not features.is_cuda:
        from rnc.kernels.contrast import is_interpreted

        if not is_interpreted():
            reason = f"it needs a GPU, got features on {features.device}"
    if reason is not None and backend == "triton":
        raise ValueError(
            f"backend='triton' cannot run here: {reason}. backend='auto' takes what can."
        )
    return reason is None


@functools.cache
def _has_triton() -> bool:
    return importlib.util.find_spec("triton") is not None


# ------------------------------------------------------------------------------------ its checks


def _check_options(
    temperature: float,
    positives: int | None,
    missing: str,
    tie_tolerance: float,
    chunk_size: int | None,
    reduction: str,
    backend: str,
) -> None:
    if not 0 < temperature < float("inf"):
        raise ValueError(f"temperature must be a positive number; got {temperature}.")
    if not 0 <= tie_tolerance < float("inf"):
        raise ValueError(f"tie_tolerance must be a number >= 0; got {tie_tolerance}.")
    for name, count in (("positives", positives), ("chunk_size", chunk_size)):
        if count is not None and (not isinstance(count, int) or count < 1):
            raise ValueError(f"{name} must be a whole number >= 1, or None; got {count!r}.")
    for name, value, known in (
        ("missing", missing, get_args(Missing)),
        ("reduction", reduction, get_args(Reduction)),
        ("backend", backend, get_args(Backend)),
    ):
        if value not in known:
            raise ValueError(f"{name} must be one of {', '.join(known)}; got {value!r}.")


def _check_same_width(anchors: Rows, others: Rows) -> None:
    for name, a, b in zip(Rows._fields, anchors, others, strict=True):
        if a.shape[1] != b.shape[1]:
            raise ValueError(
                f"rnc_loss needs as many {name} per row in the reference as in the batch; got "
                f"{b.shape[1]} and {a.shape[1]}."
            )


def _check_enough(anchors: Rows, others: Rows, alone: bool, together: bool) -> None:
    if alone and others.features.shape[0] < 2:
        raise ValueError(
            "rnc_loss needs at least two rows (samples x views) to contrast; got "
            f"{others.features.shape[0]}. Use a larger batch, more views or drop_last=True."
        )
    if not together and 0 in (anchors.features.shape[0], others.features.shape[0]):
        raise ValueError(
            "rnc_loss needs at least one anchor and one reference row; got "
            f"{anchors.features.shape[0]} and {others.features.shape[0]}."
        )


def _checked(pairs: Tensor, features: Tensor, others: Rows, argument: str) -> Tensor:
    """What a pairwise function returned, if it has the right shape."""
    needed = (features.shape[0], others.features.shape[0])
    if pairs.shape != needed:
        raise ValueError(f"{argument} must return shape {needed}; got {tuple(pairs.shape)}.")
    return pairs
