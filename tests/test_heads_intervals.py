"""Losses of heads for targets that are known in part."""

import math

import pytest
import torch

from rnc.heads import Head, head_config, make_head
from rnc.heads.registry import HEADS

INF = math.inf
AGES = torch.arange(0.0, 21.0)


def outputs_of(head: Head, n: int = 6) -> torch.Tensor:
    torch.manual_seed(0)
    return (3 * torch.randn(n, sum(head.widths), dtype=torch.float64)).requires_grad_()


@pytest.mark.parametrize("name", HEADS)
def test_equal_ends_are_the_loss_of_the_head(name: str) -> None:
    head = make_head(name, 4, AGES)
    outputs, targets = outputs_of(head), torch.tensor([0.0, 3, 7, 7, 12, 20])
    torch.testing.assert_close(head.loss(outputs, targets, targets), head.loss(outputs, targets))


@pytest.mark.parametrize("name", HEADS)
def test_an_open_target_teaches_nothing_and_a_half_open_one_its_side(name: str) -> None:
    head = make_head(name, 4, AGES)
    outputs = outputs_of(head, 3)
    nan = math.nan
    losses = head.loss(outputs, torch.tensor([nan, -INF, nan]), torch.tensor([nan, INF, nan]))
    (gradient,) = torch.autograd.grad(losses.sum(), outputs)
    assert losses.tolist() == [0, 0, 0]
    assert (gradient == 0).all()
    head = Head(head_config(name, 1, AGES))
    with torch.no_grad():
        head.linear.weight.zero_()
        head.linear.bias.zero_()
    optimizer = torch.optim.Adam(head.parameters(), lr=0.05)
    features = torch.ones(4, 1)
    lower, upper = torch.tensor([14.0, 14, 14, 14]), torch.tensor([INF, INF, 16, INF])
    for _ in range(400):
        optimizer.zero_grad()
        head.loss(head(features), lower, upper).mean().backward()
        optimizer.step()
    assert 13 < float(head.decode(head(features)).detach()[0]) < 20.5


@pytest.mark.parametrize("name", ["l1", "mse", "huber"])
def test_the_loss_is_0_within_and_that_of_the_end_beyond(name: str) -> None:
    head = make_head(name, 4, AGES)
    values = torch.tensor([[4.0], [5.0], [6.5], [8.0], [11.0]]).double()
    outputs = (values - head.config.shift[0]) / head.config.scale[0]
    losses = head.loss(outputs, torch.full((5,), 5.0), torch.full((5,), 8.0))
    ends = head.loss(outputs, torch.tensor([5.0, 5.0, 6.5, 8.0, 8.0]))
    torch.testing.assert_close(losses, ends)
    assert losses[[1, 2, 3]].abs().max() < 1e-12


@pytest.mark.parametrize("name", ["dex", "dldl", "corn"])
def test_a_binned_head_is_taught_the_mass_of_its_classes(name: str) -> None:
    head = make_head(name, 4, AGES)
    outputs = outputs_of(head, 2)
    losses = head.loss(outputs, torch.tensor([5.0, -INF]), torch.tensor([8.0, 2.0]))
    if name == "corn":  # it divides by its mean number of terms, here 6 and 1
        losses = losses * 3.5
    masses = head.masses(outputs)[0]
    torch.testing.assert_close(losses[0], -masses[0, 5:9].sum().log())
    torch.testing.assert_close(losses[1], -masses[1, :3].sum().log())


def test_ordinal_thresholds_that_are_unknown_are_left_out() -> None:
    head = make_head("or", 4, AGES)
    outputs = outputs_of(head, 1)
    (loss,) = head.loss(outputs, torch.tensor([5.0]), torch.tensor([8.0]))
    above = outputs[0].sigmoid()
    torch.testing.assert_close(loss, -above[:5].log().sum() - (1 - above[8:]).log().sum())


def test_the_gaussian_head_is_taught_the_probability_of_the_interval() -> None:
    head = make_head("gaussian", 4, AGES)
    outputs = outputs_of(head, 3) / 6
    lower, upper = torch.tensor([5.0, -INF, 14.0]), torch.tensor([8.0, 2.0, INF])
    normal = torch.distributions.Normal(head.decode(outputs)[:, 0], head.deviations(outputs)[:, 0])
    ends = [normal.cdf(end.double().nan_to_num(posinf=1e9, neginf=-1e9)) for end in (upper, lower)]
    torch.testing.assert_close(head.loss(outputs, lower, upper), -(ends[0] - ends[1]).log())


@pytest.mark.parametrize("name", HEADS)
@pytest.mark.parametrize("size", [1e-3, 1e6])
def test_losses_and_gradients_are_finite(name: str, size: float) -> None:
    head = make_head(name, 4, AGES)
    outputs = (outputs_of(head) * size).detach().float().requires_grad_()
    lower = torch.tensor([0.0, -INF, 19.0, -INF, -50.0, 90.0])
    upper = torch.tensor([2.0, 1.0, INF, INF, -40.0, 90.0])
    losses = head.loss(outputs, lower, upper)
    (gradient,) = torch.autograd.grad(losses.sum(), outputs)
    assert losses.isfinite().all()
    assert gradient.isfinite().all()


def test_several_targets_are_masked_one_by_one() -> None:
    head = make_head("l1", 4, torch.stack([AGES, 10 * AGES], dim=1))
    outputs, nan = outputs_of(head, 2), math.nan
    targets = torch.tensor([[3.0, nan], [nan, nan]])
    losses = head.loss(outputs, targets, targets)
    filled = torch.tensor([[3.0, 0.0], [0.0, 0.0]])
    one = make_head("l1", 4, AGES).loss(outputs[:, :1], filled[:, 0])
    torch.testing.assert_close(losses, torch.stack([one[0], 0 * one[0]]))


def test_a_head_without_a_loss_of_intervals_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its outputs are not taken for those of another kind of head."""
    monkeypatch.setitem(HEADS, "mine", HEADS["dex"]._replace(interval=None))
    head = make_head("mine", 4, AGES)
    outputs, target = outputs_of(head, 1), torch.tensor([5.0])
    with pytest.raises(ValueError, match=r"head 'mine' has no loss for partly .* in its HeadSpec"):
        head.loss(outputs, target, target + 3)


def test_exact_and_interval_rows_of_a_batch_are_divided_by_the_same_number() -> None:
    """corn divides by its mean number of terms: here 6 of the interval and 13 of the exact row."""
    head = make_head("corn", 4, AGES)
    outputs = outputs_of(head, 2)
    losses = head.loss(outputs, torch.tensor([5.0, 12.0]), torch.tensor([8.0, 12.0]))
    masses = head.masses(outputs)[0]
    wanted = -torch.stack([masses[0, 5:9].sum(), masses[1, 12]]).log() / 9.5
    torch.testing.assert_close(losses, wanted)


@pytest.mark.parametrize("name", ["l1", "dex", "gaussian"])
def test_an_interval_that_holds_no_number_is_refused(name: str) -> None:
    head = make_head(name, 4, AGES)
    outputs = outputs_of(head, 2)
    for low, high, shown in ((5.0, 3.0, "5 and 3"), (INF, INF, "inf and inf")):
        with pytest.raises(ValueError, match=rf"at or below upper; got {shown} in row 1\. An open"):
            head.loss(outputs, torch.tensor([1.0, low]), torch.tensor([1.0, high]))
    with pytest.raises(ValueError, match=r"needs upper \(2, 1\); got \(3, 1\)"):
        head.loss(outputs, torch.ones(2), torch.ones(3))
