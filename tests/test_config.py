"""FitConfig: which values it refuses, which it fills in, and conversion to and from JSON."""

import dataclasses
import json
import math
from typing import Any, get_type_hints

import pytest

from rnc.augment.configs import ImageAugment, SignalAugment, TableAugment
from rnc.config import FitConfig
from rnc.loss import circular

CHOICES = {
    "scheme": "probe, finetune, regularize, end2end, two-stage, auto",
    "objective": "rnc, supcon, simclr, dino, own",
    "regularizer": "none, ranksim, ordinal-entropy, fds, fds-cumulative",
    "optimizer": "sgd, adamw",
    "head_solver": "sgd, exact",
    "device": "auto, cpu, cuda",
    "precision": "auto, 32, bf16, 16",
    "preset": "best, paper, quick",
    "test_views": "plain, mirror",
}
OTHER: dict[str, Any] = {
    "scheme": "finetune",
    "objective": "supcon",
    "regularizer": "ranksim",
    "regularizer_weight": 2.5,
    "lds": True,
    "c_mixup": True,
    "mixup_alpha": 1.5,
    "mixup_bandwidth": 4.0,
    "projection_size": 32,
    "prototypes": 64,
    "original": True,
    "head": "corn",
    "head_options": {"decode": "class"},
    "low": [-5.0, 0.0],
    "high": [90.5, 3.0],
    "step": 0.5,
    "encoder": "resnet50",
    "pretrained": True,
    "weights": "resnet50.safetensors",
    "freeze": False,
    "frozen_views": 4,
    "preset": "quick",
    "epochs": 3,
    "head_epochs": 0,
    "batch_size": 8,
    "head_batch_size": 4,
    "accumulate": 2,
    "queue": 0,  # for rnc only
    "chunk": 8,
    "clip": 0.5,
    "optimizer": "adamw",
    "lr": 0.01,
    "weight_decay": 0.0,
    "lr_decay": 0.5,
    "layer_decay": 0.75,
    "warm_up": 1,
    "average": 0.9,
    "keep": "last",
    "finetune_keep": "last",
    "head_lr": 0.02,
    "head_weight_decay": 0.1,
    "head_solver": "sgd",
    "balance": 0.5,
    "oversample": 0.5,
    "temperature": 2.0,
    "contrast_temperature": 0.5,
    "label_distance": "angular",
    "similarity": "cosine",
    "period": None,
    "positives": 5,
    "rnc_weight": 0.3,
    "teacher": "intervals",
    "teacher_margin": 0.5,
    "image_size": 64,
    "views": 0,
    "crop": False,
    "crop_scale": None,
    "erase": 0.3,
    "flip": False,
    "color": False,
    "grayscale": False,
    "augment_options": {"crop_ratio": [0.5, 2.0], "std": 0.2},
    "test_views": "plain",
    "seed": 7,
    "device": "cpu",
    "precision": "bf16",
    "compile": "off",
    "cuda_graphs": "off",
    "resident": "on",
    "channels_last": False,
}
FIELDS = [field.name for field in dataclasses.fields(FitConfig)]


def config_of(fields: dict[str, Any]) -> FitConfig:
    return FitConfig(**fields)


@pytest.mark.parametrize("name", CHOICES)
def test_an_unknown_choice_lists_the_known_ones(name: str) -> None:
    with pytest.raises(ValueError, match=rf"^{name} must be one of {CHOICES[name]}; got 'other'\."):
        config_of({name: "other"})


@pytest.mark.parametrize("name", sorted(set(CHOICES) - {"optimizer", "head_solver", "test_views"}))
def test_a_choice_without_a_preset_cannot_be_left_open(name: str) -> None:
    with pytest.raises(ValueError, match=rf"^{name} must be one of {CHOICES[name]}; got None\."):
        config_of({name: None})


@pytest.mark.parametrize(
    ("name", "least"),
    [
        ("epochs", 1),
        ("batch_size", 1),
        ("head_batch_size", 1),
        ("accumulate", 1),
        ("image_size", 1),
        ("projection_size", 1),
        ("prototypes", 1),
        ("head_epochs", 0),
        ("views", 0),
        ("weight_decay", 0),
        ("lr_decay", 0),
        ("rnc_weight", 0),
        ("warm_up", 0),
        ("balance", 0),
        ("head_weight_decay", 0),
        ("oversample", 0),
    ],
)
def test_a_number_has_a_least_value(name: str, least: int) -> None:
    assert getattr(config_of({name: least}), name) == least
    for value in (least - 1, math.nan):
        with pytest.raises(ValueError, match=rf"^{name} must be at least {least}; got {value}\."):
            config_of({name: value})


@pytest.mark.parametrize(
    "name",
    [
        "lr",
        "head_lr",
        "clip",
        "temperature",
        "contrast_temperature",
        "regularizer_weight",
        "mixup_alpha",
        "mixup_bandwidth",
    ],
)
@pytest.mark.parametrize("value", [0, -0.5, math.nan, math.inf])
def test_rates_are_positive(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=rf"^{name} must be a positive number; got {value}\."):
        config_of({name: value})


@pytest.mark.parametrize("value", [0, -0.5, 1.01, math.nan, math.inf])
def test_a_crop_covers_a_share_of_the_image(value: float) -> None:
    message = rf"^crop_scale must be above 0 and at most 1; got {value}\.$"
    with pytest.raises(ValueError, match=message):
        config_of({"crop_scale": value})
    assert FitConfig(crop_scale=1.0).crop_scale == 1.0
    with pytest.raises(ValueError, match=r"with crop=False there are none\. Leave out crop_scale"):
        FitConfig(crop=False, crop_scale=0.2)


@pytest.mark.parametrize("value", [-0.1, 1.5, math.nan, math.inf])
def test_an_average_is_a_decay_or_a_number_of_epochs(value: float) -> None:
    message = rf"^average must be a decay from 0 to 1, .* whole number of epochs; got {value}\."
    with pytest.raises(ValueError, match=message):
        FitConfig(average=value)
    assert [FitConfig(average=known).average for known in (0, 0.999, 1, 20)] == [0, 0.999, 1, 20]


def test_rnc_needs_two_rows_to_contrast() -> None:
    with pytest.raises(ValueError, match=r"batch_size must be at least 2; got 1\."):
        FitConfig(batch_size=1, views=1)
    with pytest.raises(ValueError, match=r"batch_size must be at least 2; got 1\."):
        FitConfig(batch_size=1, views=0)
    assert FitConfig(batch_size=1, views=2).batch_size == 1


REFUSED: list[tuple[dict[str, Any], str]] = [
    (
        {"scheme": "regularize", "objective": "supcon"},
        r"adds a loss of the .*; got objective='supcon'\. Use objective='rnc', or scheme probe",
    ),
    ({"objective": "simclr", "views": 1}, r"views of a sample: views must be at least 2; got 1\."),
    ({"objective": "dino", "views": 0}, r"views of a sample: views must be at least 2; got 0\."),
    ({"objective": "supcon", "views": 1, "batch_size": 1}, r"batch_size must be at least 2; got 1"),
    (
        {"objective": "dino", "c_mixup": True},
        r"dino must not see any\. Use objective rnc or supcon",
    ),
    (
        {"objective": "supcon", "temperature": 0.5},
        r"supcon has no temperature, .* as 0\.5; its own is contrast_temperature\.",
    ),
    (
        {"contrast_temperature": 0.5},
        r"rnc has no contrast_temperature, .* as 0\.5; its own is temperature\.",
    ),
    ({"regularizer": "fds"}, r"fds shapes features, and scheme probe .* Use scheme end2end"),
    ({"regularizer": "ranksim", "scheme": "auto"}, r"ranksim .* scheme auto .* Use scheme end2end"),
    ({"regularizer_weight": 2.0}, r"regularizer_weight=2\.0 .*: there is none\. Leave it out"),
    (
        {"regularizer": "fds", "regularizer_weight": 2.0, "scheme": "end2end"},
        r"fds changes features and adds no loss\. Leave it out, or use regularizer ranksim",
    ),
    (
        {"lds": True, "label_distance": "circular", "period": 24.0},
        r"as points on a line.*got label_distance='circular'\. Leave --lds out",
    ),
    ({"label_distance": "circular"}, r"'circular' needs a positive period .*; got period=None\."),
    ({"label_distance": "circular", "period": -1.0}, r"positive period .*; got period=-1\.0\."),
    (
        {"head": "quantile", "label_distance": "circular", "period": 24.0},
        r"head 'quantile' predicts quantiles, which a circle does not have.*Use head='l1'",
    ),
    (
        {"period": 24.0},
        r"period=24\.0 belongs to label_distance='circular'; got 'l1'\. Leave it out\.",
    ),
    (
        {"crop": False, "crop_scale": 0.5},
        r"crop_scale=0\.5 bounds .*crop=False there are none\. Leave out crop_scale, or crop=False",
    ),
    ({"head": "l3"}, r"head must be one of l1, mse, huber, .*; got 'l3'\."),
    ({"head_options": {"beta": 2.0}}, r"beta=2\.0 is no option of head 'l1', which has none\. L"),
    ({"head": "huber", "head_options": {"beta": "x"}}, r"beta must be > 0; got 'x'\."),
    (
        {"augment_options": {"nose": 1.0}},
        r"of one kind of data; got nose\. image: .* mask, noise\.",
    ),
    ({"augment_options": {"noise": 1, "crop": 1}}, r"of one kind of data; got crop, noise\."),
    ({"augment_options": {"noise": -1.0}}, r"noise must be a number >= 0; got -1\.0\."),
    ({"augment_options": {"erase": 0.5}}, r"of kind image are .*; got erase\. .*field of FitConf"),
    ({"augment_options": {"erase_sides": 0.5}}, r"erase_sides must be low and high, .*; got 0\.5"),
    ({"test_views": "mirror", "flip": False}, r"left and right differ\. Leave out test_views, or"),
    ({"augment_options": {"size": 64}}, r"of kind image are .*; got size\. .*own field of FitConf"),
    ({"original": True}, r"original=True changes nothing here: .*got head='l1'\. Leave it out"),
]


@pytest.mark.parametrize(("fields", "message"), REFUSED)
def test_methods_that_do_not_go_together_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        config_of(fields)


def test_the_distance_of_a_circle_knows_its_period() -> None:
    hours = config_of({"label_distance": "circular", "period": 24.0})
    assert (hours.distance, config_of({}).distance) == (circular(period=24.0), "l1")


def test_one_number_and_one_per_target_are_both_bins() -> None:
    config = FitConfig(head="or", low=[-40, -45], high=(10.0,), step=0.5)
    assert (config.low, config.high, config.step) == ((-40, -45), 10.0, 0.5)
    assert FitConfig(head="or", low=[]).low is None


def test_no_options_are_the_same_as_empty_ones() -> None:
    assert FitConfig(head_options={}, augment_options={}) == FitConfig()


def test_the_rest_of_the_augmentation_is_reachable() -> None:
    options = {"mean": [0.5, 0.4, 0.3], "std": 0.2, "jitter_p": 0.5, "erase_sides": [0.1, 0.2]}
    augment = FitConfig(preset="paper", augment_options=options).augmentation("image", 64)
    assert augment == ImageAugment(
        64, mean=(0.5, 0.4, 0.3), std=(0.2,), jitter_p=0.5, erase_sides=(0.1, 0.2)
    )
    options = {"crop": 0.5, "erase_length": [0.1, 0.2]}
    signal = FitConfig(preset="paper", augment_options=options)
    assert signal.augmentation("signal") == SignalAugment(0.5, erase_length=(0.1, 0.2))
    table = FitConfig(augment_options={"noise": 0.2, "mask": 0.1})
    assert table.augmentation("table") == TableAugment(0.2, 0.1)
    with pytest.raises(ValueError, match=r"of kind image are .*; got noise, mask\. Leave that out"):
        table.augmentation("image")


def test_the_fields_of_the_config_are_those_of_the_augmentation() -> None:
    plain = FitConfig(
        image_size=32, flip=False, color=False, grayscale=False, crop=False, erase=0.0
    )
    assert plain.augmentation("image", 64) == ImageAugment(
        32, crop_scale=None, flip=False, jitter=None, grayscale_p=0.0
    )
    assert plain.augmentation("signal") == SignalAugment(1.0)
    assert plain.resolve().augmentation("image", 64) == plain.augmentation("image", 64)
    erased = FitConfig(crop_scale=0.7, erase=0.3)
    assert erased.augmentation("image", 64) == ImageAugment(64, (0.7, 1.0), erase=0.3)
    assert erased.augmentation("signal") == SignalAugment(erase=0.3)
    assert erased.augmentation("table") == TableAugment(0.01, mask=0.3)
    assert FitConfig(preset="quick").augmentation("table") == TableAugment(0.05)
    for preset, share in {"best": 1.0, "paper": 0.0, "quick": 0.0}.items():
        for kind in ("image", "signal"):
            fields = dataclasses.asdict(FitConfig(preset=preset).augmentation(kind))
            assert fields["erase"] == share
    with pytest.raises(
        ValueError, match=r"share of the features .* got 1\. Use less, such as 0\.1"
    ):
        FitConfig(erase=1.0).augmentation("table")
    with pytest.raises(ValueError, match=r"of kind table are noise; got mask\. Leave that out"):
        FitConfig(erase=0.3, augment_options={"mask": 0.1})


def test_test_views_follow_from_the_preset_the_kind_and_flip() -> None:
    best = FitConfig()
    kinds = ("image", "signal", "table")
    assert [best.resolve(kind=kind).test_views for kind in kinds] == ["mirror", "plain", "plain"]
    assert FitConfig(flip=False).resolve(kind="image").test_views == "plain"
    assert FitConfig(test_views="plain").resolve(kind="image").test_views == "plain"
    for preset in ("paper", "quick"):
        assert FitConfig(preset=preset).resolve(kind="image").test_views == "plain"
        asked = FitConfig(preset=preset, test_views="mirror")
        assert asked.resolve(kind="image").test_views == "mirror"


def test_an_objective_without_a_part_in_the_scheme_is_no_error() -> None:
    for objective in ("supcon", "simclr", "dino"):
        config = config_of({"scheme": "end2end", "objective": objective, "views": 0})
        assert config.rate(contrast=False) == 0.05
        assert dataclasses.replace(config, preset="paper").rate(contrast=False) == 0.2


def test_every_objective_has_its_published_rate() -> None:
    for preset, rate in {"paper": 0.5, "best": 0.4}.items():
        configs = {name: FitConfig(objective=name, preset=preset) for name in ("rnc", "supcon")}
        rates = {name: config.rate(contrast=True) for name, config in configs.items()}
        assert rates == {"rnc": rate, "supcon": 0.05}


CIRCLE = OTHER | {"lds": False, "label_distance": "circular", "period": 24.0}


@pytest.mark.parametrize("other", [OTHER, CIRCLE])
def test_every_field_comes_back_from_json(other: dict[str, Any]) -> None:
    assert list(other) == FIELDS
    config = config_of(other)
    fields = json.loads(json.dumps(config.to_json(), allow_nan=False))
    assert fields == other
    assert FitConfig.from_json(fields) == config != FitConfig()


def test_a_field_of_another_version_is_named() -> None:
    fields = FitConfig().to_json() | {"warmup": 5, "annealing": 1}
    with pytest.raises(
        ValueError, match=r"config\.json has annealing, warmup, which .*the version"
    ):
        FitConfig.from_json(fields)


def test_json_is_checked_like_arguments() -> None:
    with pytest.raises(ValueError, match=r"views must be at least 0; got -1\."):
        FitConfig.from_json({"views": -1})


def test_every_field_says_what_it_is_for() -> None:
    hints = get_type_hints(FitConfig, include_extras=True)
    assert all(isinstance(hints[name].__metadata__[0], str) for name in FIELDS)


def test_what_is_given_wins_over_the_preset() -> None:
    given = config_of(OTHER | {"crop": True, "crop_scale": 0.3})
    assert given.resolve() == given
    config = FitConfig(preset="quick", optimizer="sgd", epochs=5).resolve()
    assert (config.optimizer, config.epochs, config.head_lr) == ("sgd", 5, 0.05)
    assert FitConfig(preset="quick", optimizer="sgd").rate(contrast=True) == 0.5
    assert FitConfig(preset="quick").rate(contrast=True) == 1e-3  # also before resolve
    assert FitConfig(lr=0.07).rate(contrast=True) == FitConfig(lr=0.07).rate(contrast=False) == 0.07
