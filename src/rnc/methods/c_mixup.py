"""C-Mixup: mix samples whose labels are near (Yao 2022, arXiv:2210.05775).

    P(j | i) ~ exp( -d(y_i, y_j)^2 / (2 h^2) )        the partner of i; i itself is possible
    l ~ Beta(a, a)
    x = l x_i + (1 - l) x_j,    y = l y_i + (1 - l) y_j

Beside the RnC loss: C-Mixup makes data and has no loss of its own. It mixes samples of near labels,
whereas RnC ranks near and far ones. The paper calls the two orthogonal and complementary and does
not measure the combination; that `rnc compare` trains RnC on mixed data is our choice.
"""

import math

import torch
from scipy.special import betaincinv  # type: ignore[import-untyped]
from torch import Tensor

from rnc.loss.batch import as_targets
from rnc.loss.pairwise import Pairwise, circle_of, resolve_label_distance
from rnc.methods.labels import check_labels, check_positive

RELATIVE_BANDWIDTH = 0.2
"""The default bandwidth, in units of the spread of the targets."""


def partner_probabilities(
    targets: Tensor,
    *,
    bandwidth: float | None = None,
    label_distance: str | Pairwise = "l2",
    validate: bool = True,
) -> Tensor:
    """The probability of each partner j of each i: (n,) or (n, t) -> (n, n), float64.

    The bandwidth is in the units of the label distance, as published. None is 0.2 times the spread
    of these targets: the root of half the mean squared distance of two of them, which is the
    standard deviation of a single target. `validate` checks for NaN and infinite values, which
    synchronizes with a GPU once.

    >>> partner_probabilities(torch.tensor([20.0, 21.0, 60.0]), bandwidth=1.0).round(decimals=2)
    tensor([[0.6200, 0.3800, 0.0000],
            [0.3800, 0.6200, 0.0000],
            [0.0000, 0.0000, 1.0000]], dtype=torch.float64)
    """
    return _log_weights(targets, bandwidth, label_distance, validate).softmax(dim=1)


def partners(
    targets: Tensor,
    *,
    bandwidth: float | None = None,
    label_distance: str | Pairwise = "l2",
    generator: torch.Generator | None = None,
    validate: bool = True,
) -> Tensor:
    """A random partner of each sample: (n,) or (n, t) -> (n,), rows of the batch.

    The options are those of `partner_probabilities`. The generator may be of any device.
    """
    log_weights = _log_weights(targets, bandwidth, label_distance, validate)
    device = log_weights.device if generator is None else generator.device
    noise = torch.empty(log_weights.shape, dtype=torch.float64, device=device)
    noise.exponential_(generator=generator)
    # The largest of log weight + Gumbel noise is a draw; torch.multinomial would wait for a GPU.
    return (log_weights - noise.to(log_weights.device, non_blocking=True).log()).argmax(dim=1)


def mix(
    x: Tensor,
    targets: Tensor,
    *,
    alpha: float = 2.0,
    per_sample: bool = False,
    bandwidth: float | None = None,
    label_distance: str | Pairwise = "l2",
    generator: torch.Generator | None = None,
    validate: bool = True,
) -> tuple[Tensor, Tensor]:
    """A batch and its targets, each sample mixed with a partner of near label; shapes stay.

    Whole numbers become float32. Targets on a circle, and angles, are mixed along the shorter way
    around, so a mixture may lie outside of 0 to period. A larger alpha mixes more evenly.
    `per_sample` draws a share for each sample, instead of one for the batch. Other options are
    those of `partner_probabilities`. A generator on the CPU avoids synchronizing with a GPU.

    >>> x, y = mix(torch.rand(8, 3, 16, 16), torch.arange(8))
    >>> x.shape, y.shape, y.dtype
    (torch.Size([8, 3, 16, 16]), torch.Size([8]), torch.float32)
    """
    check_positive(alpha=alpha)
    if x.shape[:1] != targets.shape[:1] or x.device != targets.device:
        raise ValueError(
            "mix needs x (n, ...) and targets (n,) or (n, t) with the same n on one device; got "
            f"{tuple(x.shape)} on {x.device} and {tuple(targets.shape)} on {targets.device}."
        )
    partner = partners(
        targets,
        bandwidth=bandwidth,
        label_distance=label_distance,
        generator=generator,
        validate=validate,
    )
    share = partner_share(alpha, x.shape[0] if per_sample else 1, generator=generator)
    share = share.to(x.device, non_blocking=True)
    return mix_with(x, targets, partner, share, circle=circle_of(label_distance))


def mix_with(
    x: Tensor, targets: Tensor, partner: Tensor, share: Tensor, *, circle: float | None = None
) -> tuple[Tensor, Tensor]:
    """A batch and its targets, mixed with given partners, without synchronizing with a GPU.

    Partners (n,) are from `partners`, and their share in a mixture, (n,) or (1,), is from
    `partner_share`. `circle` is the length of the circle that the targets are on, if they are.
    """
    x, y = (rows if rows.is_floating_point() else rows.float() for rows in (x, targets))
    step = y.double()[partner] - y.double()
    if circle is not None:
        step = (step + circle / 2).remainder(circle) - circle / 2
    mixed = torch.lerp(x, x[partner], _broadcastable(share, x).to(x.dtype))
    return mixed, (y + _broadcastable(share, y) * step).to(y.dtype)


def partner_share(alpha: float, number: int, *, generator: torch.Generator | None = None) -> Tensor:
    """Random shares 1 - l of the partner, from Beta(a, a) as l is: (number,), float64.

    They are drawn through the inverse of the distribution function, since torch cannot draw Beta
    numbers with a given generator.
    """
    device = "cpu" if generator is None else generator.device
    uniform = torch.rand(number, dtype=torch.float64, generator=generator, device=device)
    return torch.from_numpy(betaincinv(alpha, alpha, uniform.cpu().numpy()))


def _log_weights(
    targets: Tensor, bandwidth: float | None, label_distance: str | Pairwise, validate: bool
) -> Tensor:
    if bandwidth is not None and not 0 < bandwidth < math.inf:
        raise ValueError(f"bandwidth must be a positive number, or None; got {bandwidth}.")
    rows = as_targets(targets, "c_mixup")
    if rows.shape[0] == 0 or rows.shape[1] == 0:
        raise ValueError(
            f"c_mixup needs at least one sample and one target; got {tuple(targets.shape)}."
        )
    if validate:
        check_labels(rows, "c_mixup")
    distances = resolve_label_distance(label_distance)(rows, rows)
    if bandwidth is not None:
        return (distances / bandwidth).square() / -2
    spread = (distances.square().sum() / (2 * len(rows) * len(rows))).sqrt()
    # Where all targets are equal, all partners are equally likely.
    return (distances / (RELATIVE_BANDWIDTH * spread).clamp(min=1e-300)).square() / -2


def _broadcastable(share: Tensor, rows: Tensor) -> Tensor:
    return share.reshape(-1, *[1] * (rows.dim() - 1))
