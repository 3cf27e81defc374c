"""Random batches of every shape, scale and option, and the loss of them against the definition."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attack.harness import Silent, Verdict
from exact_oracle import Exact, Setting, exact_losses
from rnc import rnc_loss
from rnc.loss import circular

TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-6, torch.float16: 1e-3, torch.bfloat16: 1e-2}
"""Relative error of a gradient in the type of the features."""
EXPONENTS = {
    torch.float64: (-290.0, 290.0),
    torch.float32: (-40.0, 37.0),
    torch.float16: (-7.0, 4.0),
    torch.bfloat16: (-30.0, 30.0),
}
"""Powers of ten that features of a type are drawn from."""


@dataclass
class LossCase:
    """A call of rnc_loss."""

    features: Tensor
    targets: Tensor
    reference: tuple[Tensor, Tensor] | None
    queue: tuple[Tensor, Tensor] | None
    options: dict[str, Any]
    wrong: str = ""
    """Why the call must be refused; empty if it must not."""

    def __str__(self) -> str:
        parts = [f"features={self.features.dtype} {self.features.tolist()}"]
        parts += [f"targets={self.targets.tolist()}", f"options={self.options}"]
        for name, rows in (("reference", self.reference), ("queue", self.queue)):
            if rows is not None:
                parts.append(f"{name}={[part.tolist() for part in rows]}")
        return "\n".join(parts)


def try_loss(rng: np.random.Generator) -> Verdict:
    """Make a batch and compare loss and gradients with the definition."""
    case = make_case(rng)
    inputs = [case.features.requires_grad_()]
    if case.reference is not None:
        inputs.append(case.reference[0].requires_grad_())
    try:
        others = {"reference": case.reference, "queue": case.queue}
        losses = rnc_loss(case.features, case.targets, **others, **case.options)
    except (ValueError, TypeError) as refusal:
        if "rnc_loss is too large" in str(refusal) and _is_too_large(case):
            return "refused"
        if not case.wrong or len(str(refusal)) < 30:
            raise
        return "refused"
    if case.wrong:
        raise Silent(f"returned {losses.tolist()} though {case.wrong}\n{case}")
    upstream = torch.from_numpy(rng.uniform(0.5, 1.5, tuple(losses.shape)))
    grads = torch.autograd.grad(losses, inputs, upstream.to(losses.dtype))
    _compare(case, losses.detach(), [*grads], upstream)
    return "right"


# ---------------------------------------------------------------------------------- making a case


def make_case(rng: np.random.Generator) -> LossCase:
    """A call with random data and options; one in ten has something wrong."""
    dtype = _choose(
        rng, [torch.float32] * 4 + [torch.float64] * 3 + [torch.float16, torch.bfloat16]
    )
    views = _choose(rng, [None, None, 1, 2, 3])
    n, d = rng.integers(2, 4 if views else 8), rng.integers(1, 5)
    t, options = _options(rng)
    # The equation is there to be read: its gradient, autograd's, is exact for moderate logits.
    extreme = options["backend"] != "reference"
    low, high = EXPONENTS[dtype] if extreme else (-3.0, 3.0)
    power = float(_choose(rng, [0.0, rng.uniform(-3, 4), rng.uniform(low, high)]))
    outlier = 12.0 if extreme else 2.0
    features = _features(rng, (n, d) if views is None else (n, views, d), dtype, power, outlier)
    scale = 2.0 ** int(_choose(rng, [0, 0, 0, -560, -300, -30, 30, 300, 540, 990]))
    targets = _targets(rng, n, t, options["label_distance"], scale)
    others: list[tuple[Tensor, Tensor] | None] = [None, None]  # a reference, a queue
    for i in range(2):
        if options["backend"] != "reference" and rng.random() < 0.2:
            m = rng.integers(1 - i, 8)
            labels = _targets(rng, m, t, options["label_distance"], scale)
            others[i] = (_features(rng, (m, d), dtype, power, outlier), labels)
    if options["missing"] == "skip":
        share = _choose(rng, [0.2, 0.5, 1.0])
        for labels in (targets, *(rows[1] for rows in others if rows)):
            labels[torch.from_numpy(rng.random(len(labels)) < share)] = torch.nan
    case = LossCase(features, targets, *others, options)
    _fit_backend(case)
    case.targets = _as_given(rng, targets)
    if rng.random() < 0.1:
        _spoil(rng, case)
    return case


def _options(rng: np.random.Generator) -> tuple[int, dict[str, Any]]:
    """The number of targets, and options that suit it."""
    label_distance = _choose(rng, ["l1", "l1", "l2", "l2", circular(24), "angular"])
    t = 2 if label_distance == "angular" else int(_choose(rng, [1, 1, 2, 3]))
    options: dict[str, Any] = {
        "label_distance": label_distance,
        "similarity": _choose(rng, ["l2", "l2", "l1", "cosine"]),
        "temperature": float(10 ** rng.uniform(-2, 2)),
        "missing": _choose(rng, ["raise", "raise", "skip"]),
        "reduction": _choose(rng, ["mean", "none"]),
        "backend": _choose(rng, ["auto"] * 7 + ["reference"] * 2 + ["triton"]),
    }
    if options["backend"] == "auto":
        options["positives"] = _choose(rng, [None, None, int(rng.integers(1, 9))])
        options["chunk_size"] = _choose(rng, [None, None, int(rng.integers(1, 9))])
        if label_distance == "l1":
            options["tie_tolerance"] = _choose(rng, [0.0, 0.0, 1.5])
    return t, options


def _features(
    rng: np.random.Generator,
    shape: tuple[int, ...],
    dtype: torch.dtype,
    power: float,
    outlier: float,
) -> Tensor:
    """Rows of the size 10^power, with an offset, a far row and equal rows among them."""
    rows = rng.standard_normal(shape)
    if rng.random() < 0.2:
        rows = rng.integers(-3, 4, shape).astype(float)  # many exact ties
    flat = rows.reshape(-1, shape[-1])
    if len(flat) and rng.random() < 0.3:
        flat[rng.integers(len(flat))] *= 10 ** rng.uniform(0, outlier)
    if rng.random() < 0.2:
        flat += 10 ** rng.uniform(-2, 4) * rng.standard_normal(shape[-1])
    if len(flat) and rng.random() < 0.2:
        flat[rng.integers(len(flat))] = flat[0]
    if len(flat) and rng.random() < 0.1:
        flat[rng.integers(len(flat))] = 0.0
    largest = torch.finfo(dtype).max / 8
    with np.errstate(over="ignore"):
        rows = np.clip(rows * 10.0**power, -largest, largest)
    return torch.from_numpy(rows).to(dtype)


def _targets(rng: np.random.Generator, n: int, t: int, label_distance: Any, scale: float) -> Tensor:
    """Labels whose distances are exact in float64, so that ties are no matter of luck."""
    if label_distance == "angular":
        labels = rng.uniform(-80, 80, (n, t))
        labels[n // 2 :] = labels[: n - n // 2]
        return torch.from_numpy(labels)
    labels = rng.integers(-6, 7, (n, t)).astype(float)
    if isinstance(label_distance, circular):
        return torch.from_numpy(labels * 3)
    return torch.from_numpy(labels * scale)


def _as_given(rng: np.random.Generator, targets: Tensor) -> Tensor:
    """The same labels in one of the shapes and types that a user may have them in."""
    if targets.shape[1] == 1 and rng.random() < 0.5:
        targets = targets[:, 0]
    same = [targets]
    for dtype in (torch.float32, torch.int64, torch.int8, torch.float16):
        with np.errstate(invalid="ignore"):
            other = targets.to(dtype)
        if torch.equal(other.double(), targets):
            same.append(other)
    return same[rng.integers(len(same))]


def _fit_backend(case: LossCase) -> None:
    """Take back the choice of a backend where that one cannot run."""
    options = case.options
    if options["backend"] == "triton" and (
        case.targets.shape[1] > 1
        or options["label_distance"] not in ("l1", "l2")
        or case.features.dtype == torch.float64
    ):
        options["backend"] = "torch"


def _spoil(rng: np.random.Generator, case: LossCase) -> None:
    """Make one thing wrong."""
    kind = _choose(rng, ["nan feature", "inf target", "nan target", "temperature", "rows", "name"])
    case.wrong = f"there is something wrong: {kind}"
    if kind == "nan feature":
        case.features.flatten()[rng.integers(case.features.numel())] = _choose(
            rng, [np.nan, np.inf]
        )
    elif kind == "inf target":
        case.targets = case.targets.double()
        case.targets[rng.integers(len(case.targets))] = -np.inf
    elif kind == "nan target":
        case.targets = case.targets.double()
        case.targets[rng.integers(len(case.targets))] = np.nan
        case.options["missing"] = "raise"
    elif kind == "temperature":
        bad = [0.0, -1.0, np.nan, np.inf, torch.nn.Parameter(torch.tensor(2.0))]
        case.options["temperature"] = _choose(rng, bad)
    elif kind == "rows":
        case.targets = case.targets[:-1]
    else:
        option = _choose(rng, ["label_distance", "similarity", "missing", "reduction", "backend"])
        case.options[option] = "nonsense"


def _choose(rng: np.random.Generator, choices: list[Any]) -> Any:
    return choices[rng.integers(len(choices))]


# ------------------------------------------------------------------------ against the definition


def _is_too_large(case: LossCase) -> bool:
    """Whether the type of the result cannot hold it, or the sum that it is the mean of."""
    exact, _ = _exact(case, torch.zeros(()))
    single = torch.float64 if case.features.dtype == torch.float64 else torch.float32
    return sum(exact.losses) > torch.finfo(single).max / 2


def _exact(case: LossCase, upstream: Tensor) -> tuple[Exact, list[Tensor]]:
    """What the definition gives, and which rows of the batch and of the reference it is for."""
    views = case.features.shape[1] if case.features.dim() == 3 else 1
    given = case.targets.double().reshape(len(case.targets), -1)
    masks = [(~given.isnan().any(1)).repeat_interleave(views)]
    rows = case.features.detach().double().flatten(0, -2)[masks[0]].tolist()
    targets = given.repeat_interleave(views, 0)[masks[0]].tolist()
    reference = None
    if case.reference is not None:
        masks.append(~case.reference[1].isnan().any(1))
        others, labels = case.reference[0].detach().double(), case.reference[1]
        reference = (others[masks[1]].tolist(), labels[masks[1]].tolist())
    queue: Any = ((), ())
    if case.queue is not None:
        kept = ~case.queue[1].isnan().any(1)
        queue = (case.queue[0][kept].double().tolist(), case.queue[1][kept].tolist())
    if upstream.dim():
        weights = upstream.flatten()[masks[0]].tolist()
    else:
        weights = [float(upstream) / max(1, len(rows))] * len(rows)
    return exact_losses(rows, targets, weights, _setting(case), reference, queue), masks


def _compare(case: LossCase, losses: Tensor, grads: list[Tensor], upstream: Tensor) -> None:
    exact, masks = _exact(case, upstream)
    _compare_losses(case, losses, masks[0], exact)
    first = 0
    for grad, mask in zip(grads, masks, strict=True):
        rows = grad.flatten(0, -2)
        if rows[~mask].count_nonzero():
            raise Silent(f"rows that are skipped got a gradient: {grad.tolist()}\n{case}")
        _compare_rows(case, rows[mask], exact, first)
        first += int(mask.sum())


def _setting(case: LossCase) -> Setting:
    options = case.options
    name = options["label_distance"]
    return Setting(
        temperature=options["temperature"],
        label_distance=name if isinstance(name, str) else "circular",
        similarity=options["similarity"],
        positives=options.get("positives"),
        tie_tolerance=options.get("tie_tolerance", 0.0),
        cancels=options["backend"] == "triton" and options["similarity"] == "l2",
        rounds_logs=options["backend"] in ("triton", "reference"),
    )


def _compare_losses(case: LossCase, losses: Tensor, kept: Tensor, exact: Exact) -> None:
    single = torch.float64 if case.features.dtype == torch.float64 else torch.float32
    tolerance = 1e-12 if single == torch.float64 else 1e-5
    expected, slack = exact.losses, exact.loss_slack
    if losses.dim():
        found = losses.flatten()[kept].tolist()
        if losses.flatten()[~kept].count_nonzero():
            raise Silent(f"anchors that are skipped got a loss: {losses.tolist()}\n{case}")
    else:
        number = max(1, len(expected))
        found, expected, slack = [float(losses)], [sum(expected) / number], [max([0, *slack])]
    for value, right, blur in zip(found, expected, slack, strict=True):
        if not abs(value - right) <= tolerance * (abs(right) + 0.1) + blur:
            raise Silent(f"loss {value} instead of {float(right)}\n{case}")


def _compare_rows(case: LossCase, grad: Tensor, exact: Exact, first: int) -> None:
    dtype = case.features.dtype
    info = torch.finfo(dtype)
    for i, row in enumerate(grad.tolist()):
        right, scale, slack = (array[first + i] for array in exact[2:])
        if scale > info.max:
            continue  # no number of this type
        allowed = TOLERANCE[dtype] * scale + slack + info.smallest_normal
        if not all(abs(a - b) <= allowed for a, b in zip(row, right, strict=True)):
            shown = f"{row} instead of {[float(c) for c in right]}, allowed {float(allowed):.1e}"
            raise Silent(f"gradient of row {first + i}: {shown}\n{case}")
