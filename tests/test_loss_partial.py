"""RnC of labels that are known in part, against its definition pair by pair."""

import math
import random
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from oracle import SIMILARITIES
from rnc import RnCLoss, rnc_loss
from rnc.loss import circular
from rnc.loss.partial import Between, pack
from rnc.loss.theory import gap, lower_bound

INF = math.inf
Interval = tuple[float, float]


def distance_ends(a: list[Interval], b: list[Interval], distance: str) -> Interval:
    """The least and the largest distance of two labels, by the corners of their intervals."""
    gaps = []
    for (la, ua), (lb, ub) in zip(a, b, strict=True):
        if (la, ua) == (-INF, INF) or (lb, ub) == (-INF, INF):
            continue
        apart = la > ub or lb > ua
        least = min(abs(x - y) for x in (la, ua) for y in (lb, ub)) if apart else 0.0
        gaps.append((least, max(abs(ua - lb), abs(ub - la))))
    if not gaps:
        return 0.0, INF
    share = len(a) / len(gaps)
    if distance == "l1":
        low, high = (sum(gap[end] for gap in gaps) * share for end in (0, 1))
    else:
        low, high = (math.sqrt(sum(gap[end] ** 2 for gap in gaps) * share) for end in (0, 1))
    return low, high


def slow_partial(
    features: Tensor, lower: Tensor, upper: Tensor, distance: str = "l1", similarity: str = "l2"
) -> tuple[Tensor, Tensor]:
    """The mean loss in float64 and its lower bound: (n, v, d), (n, t), (n, t)."""
    n, views = features.shape[:2]
    rows = features.reshape(n * views, -1)
    labels = [
        list(zip(lo, up, strict=True))
        for lo, up in zip(lower.tolist(), upper.tolist(), strict=True)
    ]
    losses, bounds = [], []
    for i in range(n * views):
        columns = [k for k in range(n * views) if k != i]
        ends = {
            k: (0.0, 0.0)
            if k // views == i // views
            else distance_ends(labels[i // views], labels[k // views], distance)
            for k in columns
        }
        s = SIMILARITIES[similarity](rows[i], rows) / 2.0
        terms, ties = [], []
        for j in columns:
            if ends[j][1] < INF:
                beyond = [k for k in columns if k == j or ends[k][0] >= ends[j][1]]
                terms.append(s[beyond].logsumexp(0) - s[j])
                same = [k for k in beyond if k == j or ends[j][0] >= ends[k][1]]
                ties.append(math.log(len(same)))
        if terms:
            losses.append(torch.stack(terms).mean())
            bounds.append(sum(ties) / len(ties))
    if not losses:
        return features.sum() * 0, torch.tensor(0.0).double()
    return torch.stack(losses).mean(), torch.tensor(sum(bounds) / len(bounds), dtype=torch.float64)


def draw_labels(rng: random.Random, n: int, t: int) -> tuple[Tensor, Tensor]:
    """A mixture of exact, missing, censored and interval labels with many ties."""
    lower, upper = [], []
    for _ in range(n):
        kinds = [rng.choice("eeemlui") for _ in range(t)]
        values = [float(rng.randrange(6)) for _ in range(t)]
        widths = [float(rng.randrange(3)) for _ in range(t)]
        lower.append([-INF if k in "mu" else v for k, v in zip(kinds, values, strict=True)])
        upper.append(
            [
                INF if k in "ml" else v + (w if k == "i" else 0.0)
                for k, v, w in zip(kinds, values, widths, strict=True)
            ]
        )
    return torch.tensor(lower).double(), torch.tensor(upper).double()


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 10**6),
    st.integers(2, 5),
    st.integers(1, 3),
    st.integers(1, 2),
    st.sampled_from(["l1", "l2"]),
    st.sampled_from(["l2", "cosine"]),
    st.sampled_from([None, 3]),
)
def test_value_gradient_and_bound_are_those_of_the_definition(
    seed: int, n: int, views: int, t: int, distance: str, similarity: str, chunk: int | None
) -> None:
    lower, upper = draw_labels(random.Random(seed), n, t)
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(n, views, 3, generator=generator, dtype=torch.float64)
    first, second = (features.clone().requires_grad_() for _ in range(2))
    expected, bound = slow_partial(first, lower, upper, distance, similarity)
    loss = rnc_loss(
        second, lower, upper=upper, label_distance=distance, similarity=similarity, chunk_size=chunk
    )
    torch.testing.assert_close(loss, expected, rtol=1e-11, atol=1e-11)
    (wanted,) = torch.autograd.grad(expected, first)
    (got,) = torch.autograd.grad(loss, second)
    torch.testing.assert_close(got, wanted, rtol=1e-9, atol=1e-11)
    least = lower_bound(lower, upper=upper, views=views, label_distance=distance)
    torch.testing.assert_close(least, bound, rtol=1e-11, atol=1e-11)
    assert loss >= least - 1e-12


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("distance", ["l1", "l2", circular(period=5)])
def test_exact_labels_give_the_loss_of_exact_labels_to_the_bit(
    dtype: torch.dtype, distance: Any
) -> None:
    torch.manual_seed(0)
    targets = torch.randint(0, 5, (9, 2))
    first = torch.randn(9, 2, 4, dtype=dtype, requires_grad=True)
    second = first.detach().clone().requires_grad_()
    loss = RnCLoss(label_distance=distance)
    plain, partial = loss(first, targets), loss(second, targets, upper=targets)
    plain.backward()
    partial.backward()
    assert torch.equal(plain, partial)
    assert first.grad is not None
    assert second.grad is not None
    assert torch.equal(first.grad, second.grad)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(3, 8), st.sampled_from(["l1", "l2"]))
def test_no_completion_of_the_labels_contradicts_an_order(seed: int, n: int, distance: str) -> None:
    """Wherever k is in S_ij, it is at least as far away as j, whatever the labels truly are."""
    lower, upper = draw_labels(random.Random(seed), n, 1)
    low, high = Between(distance).bounds(*2 * [pack(lower, upper, distance, check=True)])
    certain = low[:, None, :] >= high[:, :, None]  # (i, j, k)
    torch.manual_seed(seed)
    least, most = lower.clamp(min=-20), upper.clamp(max=20)
    for _ in range(20):
        place = torch.rand(n, 1, dtype=torch.float64)
        place = torch.where(torch.rand(n, 1) < 0.3, place.round(), place)  # the ends, too
        true = least + (most - least) * place
        gaps = (true - true.T).abs()
        contradicted = gaps[:, None, :] < gaps[:, :, None] - 1e-12
        for i in range(n):
            contradicted[i, i], contradicted[i, :, i] = False, False
        assert not (certain & contradicted).any()


def test_a_missing_label_leaves_its_views_together() -> None:
    """Without labels the loss is that of contrastive learning: each view finds its other one."""
    torch.manual_seed(0)
    features = torch.randn(5, 2, 3, dtype=torch.float64)
    nothing = torch.full((5,), math.nan)
    loss = rnc_loss(features, nothing, upper=nothing, similarity="cosine", temperature=0.5)
    flat = torch.nn.functional.normalize(features.flatten(0, 1), dim=1)
    logits = (flat @ flat.T / 0.5).fill_diagonal_(-INF)
    other = torch.arange(10) ^ 1
    torch.testing.assert_close(loss, torch.nn.functional.cross_entropy(logits, other))


def test_censored_labels_rank_only_what_is_certain() -> None:
    """An age above 90 is further from 20 than 60 is; whether 30 or 60 is nearer to it is known,
    and how far away it is, is not."""
    lower = torch.tensor([20.0, 30.0, 60.0, 90.0])
    upper = torch.tensor([20.0, 30.0, 60.0, INF])
    features = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    losses = rnc_loss(features, lower, upper=upper, reduction="none")
    s = -torch.cdist(features, features) / 2
    wanted = (s[0, [1, 2, 3]].logsumexp(0) - s[0, 1] + s[0, [2, 3]].logsumexp(0) - s[0, 2]) / 2
    torch.testing.assert_close(losses[0], wanted)
    assert losses[3] == 0
    mean = rnc_loss(features, lower, upper=upper)
    torch.testing.assert_close(mean, losses[:3].mean())


def test_several_targets_compare_what_both_have() -> None:
    nan = math.nan
    targets = torch.tensor([[0.0, 0.0], [1.0, nan], [2.0, 2.0], [nan, nan]]).double()
    features = torch.randn(4, 3, dtype=torch.float64)
    losses = rnc_loss(features, targets, upper=targets, reduction="none")
    s = -torch.cdist(features, features) / 2
    # From the first: 2 x 1 to the second, which shares one target of two, and 4 to the third.
    wanted = (s[0, [1, 2]].logsumexp(0) - s[0, 1]) / 2
    torch.testing.assert_close(losses[0], wanted)
    assert losses[3] == 0


def test_weights_and_a_queue_join_in() -> None:
    torch.manual_seed(1)
    lower, upper = draw_labels(random.Random(3), 6, 1)
    features = torch.randn(6, 2, 3, dtype=torch.float64)
    each = rnc_loss(features, lower, upper=upper, reduction="none")
    weights = torch.tensor([0.0, 1, 2, 3, 1, 1])
    counted = weights[:, None].expand(6, 2) * 1.0
    wanted = (each * counted).sum() / counted.sum()
    torch.testing.assert_close(rnc_loss(features, lower, upper=upper, weights=weights), wanted)
    queue = (torch.randn(4, 3).double(), lower[:4], upper[:4])
    first = rnc_loss(features, lower, upper=upper, queue=queue)
    assert first.isfinite()
    assert first != rnc_loss(features, lower, upper=upper)
    exact = torch.arange(6.0)
    plain = rnc_loss(features, exact, queue=(queue[0], exact[:4]))
    assert plain == rnc_loss(features, exact, upper=exact, queue=(queue[0], exact[:4]))


def test_features_in_order_have_a_small_gap() -> None:
    lower = torch.tensor([0.0, 1.0, 2.0, 3.0, 5.0, 8.0])
    upper = lower + torch.tensor([0.0, 0.5, 0.0, INF, 1.0, 0.0])
    true = lower + torch.tensor([0.0, 0.2, 0.0, 0.7, 0.5, 0.0])
    order = (true[:, None] * 1000).double()
    assert gap(order, lower, upper=upper) < 1e-6
    assert gap(order[[3, 0, 5, 1, 2, 4]], lower, upper=upper) > 1


@pytest.mark.parametrize("scale", [1e-170, 1.0, 1e160])
def test_labels_of_any_scale_have_the_same_order(scale: float) -> None:
    lower, upper = draw_labels(random.Random(7), 9, 2)
    features = torch.randn(9, 3, dtype=torch.float64)
    options = {"label_distance": "l2", "reduction": "none"}
    scaled = rnc_loss(features, lower * scale, upper=upper * scale, **options)
    torch.testing.assert_close(scaled, rnc_loss(features, lower, upper=upper, **options))
    assert scaled.max() > 0


@pytest.mark.parametrize("scale", [1e-20, 1.0, 1e8])
def test_value_and_gradient_are_finite_at_any_scale(scale: float) -> None:
    lower, upper = draw_labels(random.Random(5), 8, 1)
    features = (torch.randn(8, 2, 4) * scale).requires_grad_()
    loss = rnc_loss(features, lower, upper=upper)
    loss.backward()
    assert loss.isfinite()
    assert features.grad is not None
    assert features.grad.isfinite().all()


@pytest.mark.parametrize(
    ("lower", "upper", "options", "message"),
    [
        ([1.0, 2.0], [1.0, 1.0], {}, "at or below upper; got 2 and 1 in row 1"),
        ([INF, 2.0], [INF, 3.0], {}, "open end is -inf below or inf above"),
        ([1.0, 2.0], [1.0, 2.0, 3.0], {}, "in the shape of targets"),
        ([1.0, 2e300], [1.0, 3e300], {}, "within 1e[+]300, or infinite .* got 2.0e[+]300 in row 1"),
        ([1.0, 2.0], [1.0, 1e300], {}, "got 1.0e[+]300 in row 1. Divide all labels"),
        ([1.0, 2.0], [1.0, 3.0], {"positives": 1}, "positives=1 needs exact labels"),
        ([1.0, 2.0], [1.0, 3.0], {"backend": "reference"}, "it ranks exact labels"),
        ([1.0, 2.0], [1.0, 3.0], {"backend": "triton"}, "cannot run here"),
        ([1.0, 2.0], [1.0, 3.0], {"label_distance": circular(24)}, "takes exact or missing"),
    ],
)
def test_bad_input_is_named(
    lower: list[float], upper: list[float], options: dict[str, Any], message: str
) -> None:
    ends = [torch.tensor(end, dtype=torch.float64) for end in (lower, upper)]
    with pytest.raises(ValueError, match=message):
        rnc_loss(torch.randn(2, 3), ends[0], upper=ends[1], **options)


def test_upper_ends_of_a_queue_alone_are_refused() -> None:
    queue = (torch.randn(2, 3), torch.zeros(2), torch.ones(2))
    with pytest.raises(ValueError, match="none for the batch"):
        rnc_loss(torch.randn(2, 3), torch.zeros(2), queue=queue)
