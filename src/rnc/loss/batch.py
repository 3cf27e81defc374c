"""A batch in any accepted shape -> checked rows: features (n, d) and targets (n, t)."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from rnc.loss.anchor_weights import as_weights
from rnc.loss.distributed import gather_rows, world_size
from rnc.loss.options import Missing, PairOptions

LARGEST_TARGET = 1e300
"""Distances between targets up to this are finite."""


class Rows(NamedTuple):
    """Features and targets with the same number of rows."""

    features: Tensor
    """(n, d), float32 or float64."""
    targets: Tensor
    """(n, t), float64, without gradient."""


class GivenBatch(NamedTuple):
    """Features and targets as passed in, and the name of the called function for messages."""

    features: Tensor
    targets: Tensor
    caller: str


class Problem(NamedTuple):
    """One loss to compute: which rows are contrasted with which."""

    anchors: Rows
    others: Rows
    """What each anchor is contrasted with. The same object as anchors if that is the batch."""
    own_column: int | None
    """The index of the first anchor among the others; the other anchors follow it. None if the
    anchors are not among the others."""
    kept: Tensor | None
    """Mask of the batch's rows that are anchors; None unless missing targets are skipped."""
    is_shared: bool
    """Whether other processes hold the other anchors of the batch."""
    given: list[GivenBatch]
    """The batch and, if there are any, the reference and the queue, as they were passed in."""
    weights: Tensor | None = None
    """Weights of the anchors, (n,), float64; None if all anchors count alike."""

    @property
    def has_pairs(self) -> bool:
        """Whether there is anything to contrast."""
        return len(self.anchors.features) > 0 and len(self.others.features) > 0

    @property
    def divisor(self) -> int:
        """What divides the sum of losses: the number of anchors, or 1 if the batch is shared."""
        return 1 if self.is_shared else max(1, len(self.anchors.features))


def make_problem(
    features: Tensor,
    targets: Tensor,
    reference: tuple[Tensor, Tensor] | None,
    options: PairOptions,
    *,
    check: bool,
    queue: tuple[Tensor, Tensor] | None = None,
    weights: Tensor | None = None,
) -> Problem:
    """The rows to contrast, from the caller's arrays; `check` raises for NaN and infinity."""
    given = [GivenBatch(features, targets, "rnc_loss")]
    anchors, kept = _usable_rows(given[0], options.missing, check)
    if weights is not None:
        weights = _anchor_weights(weights, features, kept, options)
    others, own_column = anchors, 0
    if reference is not None:
        given.append(GivenBatch(*reference, "rnc_loss's reference"))
        others, _ = _usable_rows(given[-1], options.missing, check)
        _check_widths(anchors, others, "reference")
    is_shared = options.gather and world_size() > 1
    if is_shared:
        all_features, all_targets, own_column = gather_rows(*others)
        others = Rows(all_features, all_targets)
    if queue is not None:
        given.append(GivenBatch(*queue, "rnc_loss's queue"))
        earlier, _ = _usable_rows(given[-1], options.missing, check)
        _check_widths(anchors, earlier, "queue")
        others = _append_queue(others, earlier)
    if options.missing == "raise":
        _check_enough(len(anchors.features), len(others.features), reference is not None, is_shared)
    own = own_column if reference is None else None
    return Problem(anchors, others, own, kept, is_shared, given, weights)


def _anchor_weights(
    weights: Tensor, features: Tensor, kept: Tensor | None, options: PairOptions
) -> Tensor:
    """The weight of every anchor; the weights of skipped samples are dropped."""
    if weights.device != features.device:
        raise ValueError(
            f"rnc_loss needs features and weights on one device; got {features.device} and "
            f"{weights.device}. Move one with .to()."
        )
    views = features.shape[1] if features.dim() == 3 else 1
    weights = as_weights(weights, len(features), views, "rnc_loss", check=options.validate)
    return weights if kept is None else weights[kept]


def _check_widths(anchors: Rows, others: Rows, where: str) -> None:
    for name, a, b in zip(Rows._fields, anchors, others, strict=True):
        if a.shape[1] != b.shape[1]:
            raise ValueError(
                f"rnc_loss needs as many {name} per row in the {where} as in the batch; got "
                f"{b.shape[1]} and {a.shape[1]}."
            )


def _append_queue(others: Rows, earlier: Rows) -> Rows:
    """`others` with the rows of the queue at the end; `others` itself if the queue is empty."""
    if not len(earlier.features):
        return others
    features = earlier.features.detach().to(others.features.dtype)
    return Rows(
        torch.cat([others.features, features]), torch.cat([others.targets, earlier.targets])
    )


def _usable_rows(batch: GivenBatch, missing: Missing, check: bool) -> tuple[Rows, Tensor | None]:
    """The rows of a batch to use, and their mask if rows with missing targets are skipped."""
    rows = as_rows(*batch)
    if check:
        check_finite(batch.features, batch.targets, missing, batch.caller)
    if missing == "raise":
        return rows, None
    kept = ~rows.targets.isnan().any(dim=1)
    return Rows(rows.features[kept], rows.targets[kept]), kept


def _check_enough(anchors: int, others: int, has_reference: bool, is_shared: bool) -> None:
    """Raise if there is nothing to contrast; a process that shares a batch may hold no row."""
    if not has_reference and others < 2:
        raise ValueError(
            f"rnc_loss needs at least two rows (samples x views) to contrast; got {others}. "
            "Use a larger batch, more views or drop_last=True."
        )
    if not is_shared and 0 in (anchors, others):
        raise ValueError(
            f"rnc_loss needs at least one anchor and one reference row; got {anchors} and {others}."
        )


def as_rows(features: Tensor, targets: Tensor, caller: str) -> Rows:
    """One row per sample and view: (n, d) or (n, v, d) with (n,) or (n, t) -> (n * v, .).

    >>> as_rows(torch.zeros(4, 2, 8), torch.zeros(4), "example").targets.shape
    torch.Size([8, 1])
    """
    needed = None
    if features.dim() not in (2, 3) or targets.dim() not in (1, 2):
        needed = "features (n, d) or (n, v, d) and targets (n,) or (n, t)"
    elif features.shape[0] != targets.shape[0]:
        needed = "features (n, d) and targets (n, t) with the same n"
    elif 0 in features.shape[1:] or 0 in targets.shape[1:]:
        needed = "at least one view, one feature and one target"
    if needed is not None:
        shapes = f"{tuple(features.shape)} and {tuple(targets.shape)}"
        raise ValueError(f"{caller} needs {needed}; got {shapes}.")
    if not features.is_floating_point():
        raise TypeError(
            f"{caller} needs floating-point features; got {features.dtype}. Call .float() on them."
        )
    if features.device != targets.device:
        raise ValueError(
            f"{caller} needs features and targets on one device; got {features.device} and "
            f"{targets.device}. Move one with .to()."
        )
    views = features.shape[1] if features.dim() == 3 else 1
    rows = features.reshape(-1, features.shape[-1])
    return Rows(
        rows if rows.dtype == torch.float64 else rows.float(),
        repeat_views(as_targets(targets, caller), views),
    )


def as_targets(targets: Tensor, caller: str) -> Tensor:
    """Targets as float64 columns without gradient: (n,) or (n, t) -> (n, t)."""
    if targets.dim() not in (1, 2):
        raise ValueError(f"{caller} needs targets (n,) or (n, t); got {tuple(targets.shape)}.")
    if targets.is_complex():
        raise TypeError(f"{caller} needs real targets; got {targets.dtype}.")
    targets = targets.detach().double()
    return targets if targets.dim() == 2 else targets[:, None]


def repeat_views(targets: Tensor, views: int) -> Tensor:
    """Targets for all views of each sample: (n, t) -> (n * views, t)."""
    if views == 1:
        return targets
    return targets[:, None].expand(-1, views, -1).reshape(-1, targets.shape[1])


def check_finite(features: Tensor, targets: Tensor, missing: Missing, caller: str) -> None:
    """Raise if a value is NaN, infinite or too large; the message counts and names the samples.

    A NaN target is allowed if missing is "skip". The check synchronizes with a GPU once;
    torch.compile leaves it out.
    """
    if torch.compiler.is_compiling():
        return
    targets = targets.detach().double()
    # A finite sum proves that all values are finite. An infinite sum may be mere overflow, so the
    # values themselves are tested then. The factor makes targets that are too large overflow, too.
    if missing == "raise" and math.isfinite(features.detach().sum() + (targets * 2.0**28).sum()):
        return
    bad_targets = targets.isinf() if missing == "skip" else ~targets.isfinite()
    if missing == "raise" and targets.isnan().any():
        raise ValueError(
            f"{caller} got NaN targets in {_samples(targets.isnan())}. Fill them in, drop them, "
            "or pass missing='skip' to leave them out."
        )
    for bad, name in ((~features.isfinite(), "features"), (bad_targets, "targets")):
        if bad.any():
            raise ValueError(
                f"{caller} needs finite {name}; got NaN or infinite values in {_samples(bad)}. "
                "Look at the input or the learning rate that made them."
            )
    if (too_large := targets.abs() > LARGEST_TARGET).any():
        raise ValueError(
            f"{caller} needs targets within {LARGEST_TARGET:.0e}, so that distances between them "
            f"are finite; got {targets[too_large][0].item():.1e} in {_samples(too_large)}. "
            "Divide them all by one number: only their order of distances counts."
        )


def _samples(bad: Tensor) -> str:
    rows = bad.reshape(bad.shape[0], -1).any(dim=1).nonzero().flatten().tolist()
    shown = ", ".join(map(str, rows[:10])) + (", ..." if len(rows) > 10 else "")
    return f"{len(rows)} of {bad.shape[0]} samples (rows {shown})"
