"""Means of weights and their batch-norm statistics, warm-up, and images per step end to end."""

import itertools
from collections import Counter

import pytest
import torch
from torch import Tensor, nn

from rnc.training.averaging import (
    STATISTICS_BATCHES,
    WeightAverage,
    normalisations,
    take_statistics,
)
from rnc.training.batches import Batches
from rnc.training.cost import planned_stages
from rnc.training.optimizers import learning_rate
from rnc.training.recipes import build_regressor
from training_cases import columns, fit, images, normalised, quick, same, weights


def places(count: int) -> list[Tensor]:
    """Where weights have been."""
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(3, 2, generator=generator) for _ in range(count)]


def test_moving_mean_is_that_of_its_definition() -> None:
    weight = nn.Parameter(torch.zeros(3, 2))
    average = WeightAverage([weight], 0.6, epochs=9)
    mean = torch.zeros(3, 2)
    for k, place in enumerate(places(30)):
        weight.data.copy_(place)
        average.after_update()
        average.after_epoch(k)  # a moving mean does not look at epochs
        keep = min(0.6, (k + 1) / (k + 10))
        mean = keep * mean + (1 - keep) * place
    average.apply()
    torch.testing.assert_close(weight.data, mean)


def test_mean_of_the_last_epochs_is_a_plain_mean() -> None:
    weight = nn.Parameter(torch.zeros(3, 2))
    average = WeightAverage([weight], 4, epochs=10)
    for epoch, place in enumerate(places(10), start=1):
        weight.data.copy_(place)
        average.after_update()
        average.after_epoch(epoch)
        if epoch == 5:
            average.apply()  # nothing to apply yet
            assert torch.equal(weight.data, place)
    average.apply()
    torch.testing.assert_close(weight.data, torch.stack(places(10)[-4:]).mean(dim=0))


def test_applied_puts_everything_back() -> None:
    network = normalised()
    average = WeightAverage(network.parameters(), 0.5, epochs=3)
    for parameter in network.parameters():
        parameter.data.add_(1.0)
    average.after_update()
    before = weights(network)
    batches = itertools.repeat(torch.randn(8, 2, 4))
    with average.applied(normalisations(network)):
        take_statistics(network, batches)
        assert not same(weights(network), before)
    assert same(weights(network), before)
    assert network.training


def test_statistics_are_means_over_batches_without_dropout() -> None:
    network = normalised().train()
    batches = [torch.randn(8, 2, 4) for _ in range(STATISTICS_BATCHES + 5)]
    take_statistics(network, iter(batches))
    used = batches[:STATISTICS_BATCHES]
    hidden = [network[0](batch.flatten(0, 1)) for batch in used]
    norm = network[1]
    torch.testing.assert_close(norm.running_mean, torch.stack([h.mean(0) for h in hidden]).mean(0))
    torch.testing.assert_close(norm.running_var, torch.stack([h.var(0) for h in hidden]).mean(0))
    assert norm.momentum == nn.BatchNorm1d(1).momentum
    assert all(module.training for module in network.modules())


@pytest.mark.parametrize("average", [0.9, 2])
def test_training_ends_with_the_mean_and_its_statistics(average: float) -> None:
    config = quick(encoder="small-cnn", average=average, epochs=3, erase=0.0)
    plain = fit(images(), quick(encoder="small-cnn", average=0.0, epochs=3))[0]
    model = fit(images(), config)[0]
    assert not same(weights(model.encoder), weights(plain.encoder))
    batches = Batches(images(), model, device=torch.device("cpu"))
    found = weights(model.encoder)
    take_statistics(
        model.encoder, batches.whole_views("encoder statistics", batch_size=16, views=2)
    )
    for name, value in weights(model.encoder).items():
        torch.testing.assert_close(value, found[name])


def test_best_weights_are_those_of_the_mean() -> None:
    model, records = fit(images(), quick(encoder="small-cnn", scheme="end2end", average=0.5))
    table = images()
    rows = table.rows("val")
    error = abs(model.predict_prepared(table.x[rows]) - table.y[rows]).mean()
    best = min(record.val_error for record in records if record.val_error is not None)
    assert error == pytest.approx(best, rel=1e-6)


def test_rate_rises_with_every_step_and_falls_after_the_warm_up() -> None:
    rates = [learning_rate(epoch, 10, 1.0, 0.1, warm_up=2) for epoch in range(1, 11)]
    assert rates[:2] == [1.0, 1.0]
    assert rates[2:] == [learning_rate(epoch, 8, 1.0, 0.1) for epoch in range(1, 9)]


def test_passes_show_every_sample_as_often_in_steps_of_different_ones() -> None:
    table = columns()
    batches = Batches(table, build_regressor(table, quick()), device=torch.device("cpu"))
    steps = list(batches.epoch("end2end", 1, batch_size=28, views=1, drop_last=False, passes=2))
    counts = Counter(row for picked in steps for row in picked.rows.tolist())
    assert set(counts.values()) == {2}
    assert len(counts) == len(batches)
    assert len(steps) == batches.steps(28, drop_last=False, passes=2)
    first = steps[0].rows
    assert len(first.unique()) == len(first)


def test_end_to_end_training_sees_as_many_images_per_step_as_contrast() -> None:
    config = quick(scheme="end2end", preset="best", epochs=3)
    (stage,) = planned_stages(config, rows=84, kind="image")
    (encoder, _) = planned_stages(quick(preset="best", epochs=3), rows=84, kind="image")
    assert stage.views == encoder.views == 168
    (plain,) = planned_stages(quick(scheme="end2end"), rows=84, kind="table")
    assert plain.views == 84


@pytest.mark.parametrize("preset", ["best", "paper"])
def test_auto_costs_at_most_half_more_than_probe(preset: str) -> None:
    def cost(scheme: str) -> int:
        config = quick(preset=preset, scheme=scheme, epochs=None, head_epochs=None, batch_size=None)
        stages = planned_stages(config, rows=12_208, kind="image")
        return sum(stage.epochs * stage.views for stage in stages if stage.steps > 1)

    assert cost("auto") <= 1.5 * cost("probe")


def test_auto_is_never_worse_than_its_end_to_end_training() -> None:
    model, records = fit(columns(), quick(scheme="auto", epochs=6, lr=1e-4))
    table = columns()
    rows = table.rows("val")
    kept = abs(model.predict_prepared(table.x[rows]) - table.y[rows]).mean()
    errors = [r.val_error for r in records if r.stage.startswith("end2end/") and r.val_error]
    assert len(errors) == 2
    assert kept <= min(errors) * (1 + 1e-6)
