"""Presets: what each fills in, by kind of data and number of rows."""

import pytest

from rnc.config import FitConfig


def test_the_paper_preset_is_the_released_recipe() -> None:
    config = FitConfig(preset="paper").resolve(12_208)
    assert (config.optimizer, config.epochs, config.head_epochs) == ("sgd", 400, 100)
    assert (config.head_solver, config.balance, config.test_views) == ("sgd", 0, "plain")
    assert (config.erase, config.average, config.warm_up, config.crop_scale) == (0, 0, 0, 0.2)
    assert (config.batch_size, config.head_batch_size) == (256, 64)
    assert (config.rate(contrast=True), config.rate(contrast=False)) == (0.5, 0.2)
    assert (config.head_lr, config.weight_decay, config.lr_decay) == (0.05, 1e-4, 0.1)
    assert (config.temperature, config.contrast_views, config.head_views) == (2.0, 2, 1)


def test_the_best_preset_is_sized_to_the_data() -> None:
    config = FitConfig().resolve(12_208, "image")
    assert (config.optimizer, config.epochs, config.batch_size) == ("sgd", 100, 128)
    assert (config.keep, config.oversample, config.temperature) == ("best", None, 4.0)
    assert FitConfig(objective="supcon").resolve(12_208, "image").temperature is None
    assert FitConfig().resolve(12_208, "signal").temperature == 2.0
    assert FitConfig(lds=True, scheme="end2end").resolve(12_208, "image").oversample == 0
    assert (config.erase, config.average, config.warm_up, config.balance) == (1, 0.999, 5, None)
    assert (config.head_solver, config.contrast_views, config.head_views) == ("exact", 4, 4)
    assert (config.rate(contrast=True), config.rate(contrast=False)) == (0.4, 0.05)
    assert config.resolve(12_208, "image") == config
    two = FitConfig(views=2).resolve(12_208, "image")
    assert (two.epochs, two.batch_size, two.rate(contrast=True)) == (200, 256, 0.4)
    for kind, rows, objective in (
        ("image", 4999, "rnc"),
        ("signal", 12_208, "rnc"),
        ("image", 12_208, "simclr"),
    ):
        other = FitConfig(objective=objective).resolve(rows, kind)
        assert (other.contrast_views, other.batch_size, other.epochs) == (2, 256, 200)
    for rows in (5, 60, 610, 1860):
        config = FitConfig().resolve(rows, "image")
        assert config.epochs is not None
        assert config.batch_size is not None
        assert config.batch_size <= rows
        assert config.epochs * (rows // config.batch_size) >= 2000
    assert FitConfig().resolve(200, "image").rate(contrast=True) == pytest.approx(
        0.4 * (32 / 256) ** 0.5
    )


def test_tables_have_one_view_of_twice_as_many_rows() -> None:
    config = FitConfig().resolve(1053, "table")
    assert (config.views, config.batch_size, config.epochs, config.head_epochs) == (1, 64, 250, 41)
    assert config.temperature == 1.0
    assert config.rate(contrast=True) == config.rate(contrast=False) == 2e-3
    two = FitConfig(views=2).resolve(1053, "table")
    simclr = FitConfig(objective="simclr").resolve(1053, "table")
    for other in (two, simclr):  # as many rows and views in all
        assert (other.contrast_views, other.batch_size, other.epochs) == (2, 32, 125)
    by_sgd = FitConfig(optimizer="sgd").resolve(1053, "table")
    assert by_sgd.lr is None
    assert FitConfig(lr=0.01).resolve(1053, "table").rate(contrast=True) == 0.01
    assert FitConfig(temperature=3.0).resolve(1053, "table").temperature == 3.0
    assert FitConfig(preset="quick").resolve(1053, "table").views is None
    for rows in (3, 20, 300, 9999):
        config = FitConfig().resolve(rows, "table")
        assert config.batch_size is not None
        assert config.epochs is not None
        assert config.batch_size <= min(rows, 512)
        assert config.epochs >= 80
        assert config.epochs * max(1, rows // config.batch_size) >= 4000
    large = FitConfig().resolve(14_304, "table")
    assert (large.contrast_views, large.batch_size, large.epochs) == (2, 256, 73)
    assert (large.temperature, large.rate(contrast=True)) == (2.0, 1e-3)


def test_views_of_a_run_of_an_older_version_are_those_of_its_time() -> None:
    older = {"scheme": "end2end", "preset": "quick", "views": 2}
    assert FitConfig.from_json(older).head_views == 1
    assert FitConfig.from_json(older).contrast_views == 2
    assert FitConfig.from_json(older | {"erase": None}).head_views == 2


def test_the_quick_preset_is_short_and_adaptive() -> None:
    config = FitConfig(preset="quick").resolve(12_208)
    assert config.batch_size == 256
    assert (config.optimizer, config.epochs, config.head_epochs) == ("adamw", 30, 20)
    assert config.rate(contrast=True) == config.rate(contrast=False) == 1e-3
    assert config.head_lr == 1e-2


def test_few_rows_get_small_batches_and_as_many_updates() -> None:
    for rows in (5, 20, 60, 215, 721, 1053, 3000, 8191):
        config = FitConfig(preset="quick").resolve(rows)
        size, epochs, head_epochs = config.batch_size, config.epochs, config.head_epochs
        assert size is not None
        assert epochs is not None
        assert head_epochs is not None
        assert min(rows, 16) <= size <= max(16, rows // 32)
        assert epochs >= 30
        assert epochs * (rows // size) >= 900
        assert head_epochs == epochs * 2 // 3
        assert FitConfig(preset="paper").resolve(rows).epochs == 400
    assert FitConfig(preset="paper").resolve(8192).batch_size == 256
    assert FitConfig(preset="paper").resolve().batch_size is None


def test_a_given_batch_size_keeps_its_epochs() -> None:
    config = FitConfig(preset="quick", batch_size=64).resolve(200)
    assert (config.batch_size, config.epochs, config.head_epochs) == (64, 30, 20)
    config = FitConfig(preset="quick", epochs=7).resolve(200)
    assert (config.batch_size, config.epochs) == (16, 7)
