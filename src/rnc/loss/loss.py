"""The public entry to the loss: a function, a module, and the steps from a batch to a number.

The equation is in `rnc.loss.equation`. This file turns a batch into checked rows and passes them to
one of three backends: `equation` (backend="reference"), `plain` ("torch") or `fused` ("triton").
"""

from dataclasses import replace

import torch
from torch import Tensor, nn

from rnc.loss.anchor_weights import shares
from rnc.loss.backends import choose_backend
from rnc.loss.batch import Problem, make_problem
from rnc.loss.distributed import global_ratio
from rnc.loss.equation import reference_losses
from rnc.loss.options import Backend, Missing, PairOptions, Reduction
from rnc.loss.pairwise import Pairwise
from rnc.loss.partial import Between, Labels, Others, has_pairs, labels_of, partial_losses
from rnc.loss.plain import plain_losses


def rnc_loss(
    features: Tensor,
    targets: Tensor,
    *,
    upper: Tensor | None = None,
    weights: Tensor | None = None,
    temperature: float = 2.0,
    label_distance: str | Pairwise = "l1",
    similarity: str | Pairwise = "l2",
    positives: int | None = None,
    reference: Others | None = None,
    queue: Others | None = None,
    missing: Missing = "raise",
    tie_tolerance: float = 0.0,
    chunk_size: int | None = None,
    reduction: Reduction = "mean",
    gather: bool = False,
    backend: Backend = "auto",
    validate: bool = True,
) -> Tensor:
    """Rank-N-Contrast loss of a batch: low when feature distances follow label distances.

    The value equals the definition and is finite for finite input. On a CPU, a result that is too
    large for its dtype raises; docs/how-it-works.md gives the range. Half precision features, also
    under autocast, give a float32 result; float64 stays float64. Labels are ranked and exponentials
    summed in float64.

    Args:
        features: (n, d), or (n, v, d) for v views of each sample; every view is an anchor.
        targets: (n,) or (n, t), of any real dtype, up to 1e300.
        upper: the upper ends of labels that are known in part, in the shape of targets, which are
            then the lower ends. Equal ends are an exact label, infinite ends are open, NaN is
            missing. Only orders that are certain count, and views of one sample are nearest to
            each other: see `rnc.loss.partial`. Intervals need label_distance "l1" or "l2"; other
            distances take exact and missing labels. The fused kernels do not support `upper`.
        weights: how much each sample counts as an anchor, in all its views: (n,), at least 0. The
            loss is sum_i w_i l_i / sum_i w_i, so only ratios matter. Weights get no gradient. A
            sample of weight 0 is still contrasted with. If all weights are 0, the loss is 0. With
            `gather`, either every process passes weights or none does.
        temperature: similarities are divided by it. A number: it gets no gradient.
        label_distance: "l1", "l2", "angular" (pitch and yaw in degrees), `circular(period=24)`
            for hours, or a function (n, t), (m, t) -> (n, m).
        similarity: "l2" and "l1" (minus the distance), "cosine", or a function
            (n, d), (m, d) -> (n, m).
        positives: contrast only the K label-nearest samples of each anchor and all that tie with
            the K-th, so that the order of the batch does not matter. None, or a K beyond the
            batch, contrasts all.
        reference: (features, targets) to contrast the anchors with instead of each other, such
            as another modality. It receives gradients if it requires them. With `upper`, both
            reference and queue may have upper ends: (features, targets, upper).
        queue: (features, targets) of earlier batches to contrast the anchors with as well, without
            gradient. It may be empty. With `gather` it must be the same in every process.
        missing: what to do with a NaN target: "raise", or "skip" the sample, both as an anchor
            and as a contrast. If no sample is left, the loss is 0.
        tie_tolerance: label distances at most this far apart are ties.
        chunk_size: anchors per pass. Memory becomes O(chunk_size * n) instead of O(n^2); value
            and gradient stay the same; the backward pass computes each chunk again.
        reduction: "mean", or "none" for one loss per anchor: (n,) or (n, v), 0 where skipped; with
            weights it is w_i l_i.
        gather: under torch.distributed, contrast this process's anchors with the rows (or the
            reference rows) of all processes. The mean is then that of the global batch, and
            DDP's averaged gradient is its gradient. No effect in a single process.
        backend: "torch" (plain code), "triton" (fused, on a GPU, for one target ranked by l1 or l2
            distance and any of the three similarities), "reference" (the equation, slow), or
            "auto" for the fastest that can run.
        validate: check for NaN, infinite and too large values. The check synchronizes with a GPU
            once; torch.compile leaves it out.

    >>> ages = torch.tensor([20.0, 30.0, 0.0, 70.0])
    >>> in_order, shuffled = ages[:, None], ages[[3, 0, 1, 2], None]
    >>> rnc_loss(in_order, ages) < rnc_loss(shuffled, ages)
    tensor(True)
    """
    options = PairOptions(
        temperature=temperature,
        label_distance=label_distance,
        similarity=similarity,
        positives=positives,
        missing=missing,
        tie_tolerance=tie_tolerance,
        chunk_size=chunk_size,
        reduction=reduction,
        gather=gather,
        backend=backend,
        validate=validate,
    )
    return _loss(features, labels_of(targets, upper, reference, queue, options), weights)


class RnCLoss(nn.Module):
    """`rnc_loss` as a module; the arguments are explained there.

    The temperature may change between batches: `loss.temperature = 0.5`. For small batches of one
    size on a GPU, where launching the kernels takes longer than running them, make it a CUDA graph:
    `torch.cuda.make_graphed_callables(RnCLoss(validate=False), (features, targets))`.

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
        self.options = PairOptions(
            temperature=temperature,
            label_distance=label_distance,
            similarity=similarity,
            positives=positives,
            missing=missing,
            tie_tolerance=tie_tolerance,
            chunk_size=chunk_size,
            reduction=reduction,
            gather=gather,
            backend=backend,
            validate=validate,
        )

    @property
    def temperature(self) -> float:
        """The temperature of the next batch."""
        return self.options.temperature

    @temperature.setter
    def temperature(self, value: float) -> None:
        self.options = replace(self.options, temperature=value)

    def forward(
        self,
        features: Tensor,
        targets: Tensor,
        reference: Others | None = None,
        queue: Others | None = None,
        weights: Tensor | None = None,
        upper: Tensor | None = None,
    ) -> Tensor:
        """The loss of a batch, optionally weighted, or against a reference set or a queue."""
        labels = labels_of(targets, upper, reference, queue, self.options)
        return _loss(features, labels, weights)

    def extra_repr(self) -> str:
        """Show what decides the value of the loss."""
        shown = ("temperature", "label_distance", "similarity", "positives")
        return ", ".join(f"{name}={getattr(self.options, name)!r}" for name in shown)


# ------------------------------------------------------------------------ from a batch to a number


def _loss(features: Tensor, labels: Labels, weights: Tensor | None) -> Tensor:
    """The loss of a batch: choose a backend, prepare the rows, compute losses, reduce them."""
    targets, reference, queue, options = labels
    has_others = reference is not None or queue is not None
    backend = choose_backend(features, targets, options, has_others=has_others)
    # The fused kernels look for NaN while they read the rows, unless rows with NaN are skipped.
    check = options.validate and (backend != "triton" or options.missing == "skip")
    problem = make_problem(
        features, targets, reference, options, check=check, queue=queue, weights=weights
    )
    is_partial = isinstance(options.label_distance, Between)
    if is_partial and options.reduction == "mean":  # over the anchors that have a pair
        counted = has_pairs(problem, options).double()
        given = problem.weights
        problem = problem._replace(weights=counted if given is None else given * counted)
    if problem.weights is not None and options.reduction == "mean":
        problem = problem._replace(weights=shares(problem.weights, is_shared=problem.is_shared))
    with torch.autocast(features.device.type, enabled=False):
        if backend == "reference":
            losses = reference_losses(*problem.anchors, options)
        elif backend == "triton" and problem.has_pairs:
            from rnc.loss.fused import fused_losses

            losses = fused_losses(problem, options)
        else:
            losses = plain_losses(problem, options, partial_losses if is_partial else None)
        if problem.weights is not None and losses.dim():
            losses = losses * problem.weights.to(losses.dtype)
        if options.reduction == "mean":
            losses = _mean(losses, problem)
    if options.validate and losses.is_cpu and not problem.is_shared:
        _check_result(losses, options)
    if options.reduction == "mean":
        return losses
    if problem.kept is not None:
        losses = losses.new_zeros(problem.kept.shape).masked_scatter(problem.kept, losses)
    return losses.reshape(features.shape[:-1])


def _check_result(losses: Tensor, options: PairOptions) -> None:
    """Raise if a loss is not finite. For CPU losses, since a GPU would be synchronized again."""
    if torch.compiler.is_compiling() or losses.detach().isfinite().all():
        return
    if callable(options.similarity):
        raise ValueError(
            f"rnc_loss got NaN or infinite losses from similarity={options.similarity!r}. Make the "
            "function return finite numbers for finite rows."
        )
    raise ValueError(
        f"rnc_loss is too large for {losses.dtype}: features are as far apart as {losses.dtype} "
        f"goes, for temperature={options.temperature}. Scale the features down or raise the "
        "temperature."
    )


def _mean(losses: Tensor, problem: Problem) -> Tensor:
    """The mean over the anchors of all processes, from losses (n,) or their sum (): -> ()."""
    if losses.dim():
        losses = losses.sum() / problem.divisor
    return global_ratio(losses, len(problem.anchors.features)) if problem.is_shared else losses
