"""A method is one entry: a name, everywhere, without a change anywhere else."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from rnc import RnCRegressor
from rnc.config import FitConfig
from rnc.methods.objective import Calibration, FeatureObjective, MethodSetup, global_loss
from rnc.methods.registry import OBJECTIVES, REGULARIZERS, Limits, ObjectiveSpec, RegularizerSpec
from rnc.run.fit import fit_run
from rnc.search import default_space
from rnc.training.recipes import build_regressor, train
from training_cases import columns, quick

CALLS: list[str] = []


def stretched(features: Tensor, targets: Tensor) -> Tensor:
    """Low where the mean feature follows the target."""
    CALLS.append("objective")
    return (features.mean(dim=(1, 2)) - targets[:, 0].float() / 20).square().mean()


def flat(features: Tensor, targets: Tensor, *, scale: float) -> Tensor:
    CALLS.append("regularizer")
    return scale * features.square().mean()


class Shifted(Calibration):
    def forward(self, features: Tensor, targets: Tensor) -> Tensor:
        CALLS.append("calibration")
        return features + 1

    def finish_epoch(self) -> None:
        CALLS.append("epoch")


def projected(encoder: nn.Module, setup: MethodSetup) -> FeatureObjective:
    return FeatureObjective(encoder, stretched, nn.Linear(setup.d, setup.options.projection_size))


@pytest.fixture(autouse=True)
def entries(monkeypatch: pytest.MonkeyPatch) -> None:
    CALLS.clear()
    own = ObjectiveSpec(
        title="Stretched",
        term=lambda setup: global_loss(stretched, gather=setup.gather),
        lr=0.03,
        temperature="temperature",
    )
    monkeypatch.setitem(OBJECTIVES, "stretched", own)
    monkeypatch.setitem(
        OBJECTIVES, "projected", ObjectiveSpec(title="Projected", make=projected, views=3)
    )
    monkeypatch.setitem(
        REGULARIZERS,
        "flat",
        RegularizerSpec(title="Flat", term=lambda setup: partial(flat, scale=setup.d), weight=0.01),
    )
    monkeypatch.setitem(
        REGULARIZERS,
        "shifted",
        RegularizerSpec(
            title="Shifted",
            calibration=lambda setup: Shifted(),
            limits=Limits(several_targets="moves one target only"),
        ),
    )


@pytest.mark.parametrize(
    ("fields", "called"),
    [
        ({"objective": "stretched"}, {"objective"}),
        ({"objective": "projected", "views": 3}, {"objective"}),
        ({"objective": "stretched", "scheme": "regularize"}, {"objective"}),
        ({"regularizer": "flat", "scheme": "end2end"}, {"regularizer"}),
        ({"regularizer": "shifted", "scheme": "end2end"}, {"calibration", "epoch"}),
        (
            {"objective": "stretched", "regularizer": "flat", "scheme": "finetune"},
            {"objective", "regularizer"},
        ),
    ],
    ids=lambda value: str(sorted(value)),
)
def test_an_entry_is_a_method_of_every_door(
    fields: dict[str, Any], called: set[str], tmp_path: Path
) -> None:
    table = columns()
    records = list(fit_run(table, quick(**fields), tmp_path / "run"))
    assert set(CALLS) == called
    CALLS.clear()
    again = list(fit_run(table, quick(**fields), tmp_path / "run", resume=True))
    assert (again, CALLS) == (records, [])
    estimator = RnCRegressor(encoder="mlp", epochs=2, head_epochs=2, batch_size=16, **fields)
    estimator.fit(table.x, table.y[:, 0])
    assert set(CALLS) == called
    assert [record.stage for record in estimator.history_] == [record.stage for record in records]


def test_its_weight_and_its_scale_reach_the_loss() -> None:
    table, losses = columns(), []
    for fields in ({}, {"regularizer": "flat"}, {"regularizer": "flat", "regularizer_weight": 5.0}):
        config = quick(scheme="end2end", epochs=1, **fields)
        record = next(iter(train(build_regressor(table, config), table, config)))
        losses.append(record.train_loss)
    assert losses[0] < losses[1] < losses[2]


def test_the_config_knows_what_the_entry_says() -> None:
    assert FitConfig(objective="stretched").rate(contrast=True) == 0.03
    assert "temperature" in default_space(FitConfig(objective="stretched"))
    assert set(default_space(FitConfig(objective="projected", views=3))) == {"lr", "weight_decay"}
    with pytest.raises(ValueError, match=r"projected compares views .* at least 3; got 2"):
        FitConfig(objective="projected")
    with pytest.raises(ValueError, match=r"projected has no temperature.*yours to set"):
        FitConfig(objective="projected", views=3, temperature=1.0)
    with pytest.raises(ValueError, match=r"objective='projected'\. Use objective='rnc' or 'stret"):
        FitConfig(objective="projected", views=3, scheme="regularize")
    with pytest.raises(ValueError, match=r"shifted changes features and adds no loss.*or flat"):
        FitConfig(regularizer="shifted", scheme="end2end", regularizer_weight=1.0)
    with pytest.raises(ValueError, match=r"one of none, ranksim, .*, flat, shifted; got 'other'"):
        FitConfig(regularizer="other")


def test_its_limits_are_told_before_training() -> None:
    table, config = columns(targets=2), quick(regularizer="shifted", scheme="end2end")
    message = r"shifted moves one target only; got 2 targets\. Use regularizer ranksim or ordinal"
    with pytest.raises(ValueError, match=message):
        next(iter(train(build_regressor(table, config), table, config)))


def test_an_entry_needs_one_way_to_be_made() -> None:
    with pytest.raises(ValueError, match="either term or make; 'Nothing' has 0 of them"):
        ObjectiveSpec(title="Nothing")
    with pytest.raises(ValueError, match=r"weight if it has a term; 'Light' has weight=None and a"):
        RegularizerSpec(title="Light", term=lambda setup: stretched)


def test_every_built_in_method_may_be_replayed_but_for_what_draws_numbers() -> None:
    for spec in (*OBJECTIVES.values(), *REGULARIZERS.values()):
        if spec.title in ("Stretched", "Projected", "Flat", "Shifted"):
            assert spec.limits.graphable is None
        else:
            assert spec.limits.graphable
    assert REGULARIZERS["ranksim"].limits_with(original=True).graphable is False


def test_temperatures_are_fields_of_the_config() -> None:
    named = {spec.temperature for spec in OBJECTIVES.values()} - {None}
    assert named == {"temperature", "contrast_temperature"}
    assert all(hasattr(FitConfig(), name) for name in named if name)


def test_the_options_of_methods_are_those_of_the_config() -> None:
    config = FitConfig(label_distance="circular", period=24.0, low=1.0, similarity="cosine")
    options = config.method_options
    assert (options.low, options.similarity) == (1.0, "cosine")
    distance = options.label_distance
    assert callable(distance)
    assert distance(torch.tensor([[23.0]]), torch.tensor([[1.0]])).item() == 2
