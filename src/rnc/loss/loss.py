"""The Rank-N-Contrast loss, equation (3) of the paper (arXiv:2210.01189).

    s_ij = sim(v_i, v_j) / temperature          how alike two features are
    d_ij = distance(y_i, y_j)                   how far apart their labels are
    S_ij = {k != i : d_ik >= d_ij}              j and all that rank at or beyond it for anchor i
    L    = mean_i mean_{j != i} [ log sum_{k in S_ij} exp(s_ik) - s_ij ]

This file is the door: it checks a batch, brings it into rows and hands it to
`rnc.loss.plain`, where `rank` sorts the samples of each anchor by label and `contrast`
evaluates the equation.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from rnc.loss.backends import is_replayable, runs_fused
from rnc.loss.batch import Missing, Rows, as_rows, check_enough, check_finite, check_same_width
from rnc.loss.distributed import gather_rows, global_ratio, world_size
from rnc.loss.options import Backend, Options, Reduction
from rnc.loss.pairwise import Pairwise, circular
from rnc.loss.plain import contrast, rank
from rnc.loss.replay import Loss, Replays


def rnc_loss(
    features: Tensor,
    targets: Tensor,
    *,
    temperature: float = 2.0,
    label_distance: str | Pairwise = "l1",
    similarity: str | Pairwise = "l2",
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
        label_distance: "l1", "l2", "angular" (pitch and yaw in degrees), `circular(period=24)`
            for hours, or a function (n, t), (m, t) -> (n, m).
        similarity: "l2" and "l1" (minus the distance), "cosine", or a function
            (n, d), (m, d) -> (n, m).
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
            leaves it out. Without, `torch.cuda.make_graphed_callables` takes `RnCLoss`.

    On a GPU, from the fifth batch of a size on, up to 1,024 rows go through `rnc.loss.replay`.

    >>> ages = torch.tensor([20.0, 30.0, 0.0, 70.0])
    >>> in_order, shuffled = ages[:, None], ages[[3, 0, 1, 2], None]
    >>> rnc_loss(in_order, ages) < rnc_loss(shuffled, ages)
    tensor(True)
    """
    options = Options(
        temperature,
        label_distance,
        similarity,
        positives,
        missing,
        tie_tolerance,
        chunk_size,
        reduction,
        gather,
        backend,
        validate,
    )
    return _replayed_loss(features, targets, reference, options)


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
        self.temperature = temperature
        self.label_distance = label_distance
        self.similarity = similarity
        self.positives = positives
        self.missing = missing
        self.tie_tolerance = tie_tolerance
        self.chunk_size = chunk_size
        self.reduction = reduction
        self.gather = gather
        self.backend = backend
        self.validate = validate
        self.options.check()

    @property
    def options(self) -> Options:
        """All of them."""
        return Options(*(getattr(self, name) for name in Options._fields))

    def forward(
        self, features: Tensor, targets: Tensor, reference: tuple[Tensor, Tensor] | None = None
    ) -> Tensor:
        """The loss of a batch, optionally against a reference set."""
        return _replayed_loss(features, targets, reference, self.options)

    def extra_repr(self) -> str:
        """Show what decides the value of the loss."""
        return (
            f"temperature={self.temperature}, label_distance={self.label_distance!r}, "
            f"similarity={self.similarity!r}, positives={self.positives}"
        )


# ---------------------------------------------------------------------------------- its plumbing

_replays = Replays()


def _without_a_look(options: Options) -> Loss:
    options = options._replace(validate=False)
    return lambda features, targets: _loss(features, targets, None, options)


def _replayed_loss(
    features: Tensor,
    targets: Tensor,
    reference: tuple[Tensor, Tensor] | None,
    options: Options,
) -> Tensor:
    """The loss, from a CUDA graph where there is one."""
    if reference is not None or not is_replayable(features, targets, options):
        return _loss(features, targets, reference, options)
    graph = _replays.find(_without_a_look, options, features, targets, look=options.validate)
    if graph is None:
        return _loss(features, targets, None, options)
    loss, is_odd = graph(features, targets)
    if is_odd:
        check_finite(features, targets, options.missing, "rnc_loss")
    return loss


def _loss(
    features: Tensor,
    targets: Tensor,
    reference: tuple[Tensor, Tensor] | None,
    options: Options,
) -> Tensor:
    """The loss as it comes, without a graph."""
    distance, sim = options.check()
    fused = runs_fused(features, targets, options)
    missing, reduction = options.missing, options.reduction
    temperature, tolerance = options.temperature, options.tie_tolerance
    # The fused loss looks for numbers that are none where it reads them anyway.
    late = fused and options.validate and missing == "raise"
    anchors, kept = _rows(features, targets, missing, options.validate and not late, "rnc_loss")
    others, own_column = anchors, 0
    if reference is not None:
        others, _ = _rows(
            *reference, missing, options.validate and not late, "rnc_loss's reference"
        )
        check_same_width(anchors, others)
    together = options.gather and world_size() > 1
    if together:
        all_features, all_targets, own_column = gather_rows(*others)
        others = Rows(all_features, all_targets)
    if missing == "raise":
        check_enough(anchors, others, reference is None, together)

    def anchor_losses(start: int, features: Tensor, targets: Tensor) -> Tensor:
        labels, label_of = _distinct(
            targets, look=isinstance(options.label_distance, str | circular)
        )
        distances = _checked(distance(labels, others.targets), labels, others, "label_distance")
        ranking = rank(distances, tolerance)
        similarities = _checked(sim(features, others.features), features, others, "similarity")
        own = None
        if reference is None:
            own = torch.arange(len(features), device=features.device) + (own_column + start)
        return contrast(
            similarities, ranking, temperature, label_of, own, options.positives, tolerance
        )

    n = anchors.features.shape[0]
    with torch.autocast(features.device.type, enabled=False):
        if fused and n and others.features.shape[0]:
            from rnc.loss.fused import Problem, fused_contrast

            assert isinstance(options.similarity, str)
            labels, other_labels = (rows.targets[:, 0].contiguous() for rows in (anchors, others))
            column = own_column if reference is None else None
            problem = Problem(
                labels, other_labels, column, temperature, options.similarity, options.chunk_size
            )
            other_features = None if others is anchors else others.features
            divisor = None if reduction == "none" else 1 if together else n

            def refuse() -> None:
                for given in ((features, targets), *([] if reference is None else [reference])):
                    check_finite(*given, missing, "rnc_loss")

            losses = fused_contrast(
                anchors.features, other_features, problem, divisor, refuse if late else None
            )
        else:
            losses = _in_chunks(anchor_losses, anchors, options.chunk_size).to(
                anchors.features.dtype
            )
            if reduction == "mean":
                losses = losses.sum() if together else losses.sum() / max(1, n)
        if reduction == "mean":
            return global_ratio(losses, n) if together else losses
    if kept is not None:
        losses = losses.new_zeros(kept.shape).masked_scatter(kept, losses)
    return losses.reshape(features.shape[:-1])


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


def _checked(pairs: Tensor, features: Tensor, others: Rows, argument: str) -> Tensor:
    """What a pairwise function returned, if it has the right shape."""
    needed = (features.shape[0], others.features.shape[0])
    if pairs.shape != needed:
        raise ValueError(f"{argument} must return shape {needed}; got {tuple(pairs.shape)}.")
    return pairs
