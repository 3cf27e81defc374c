"""Views of volumes: what a window, a mirror image and a change of intensity are, voxel by voxel."""

import dataclasses
import json

import pytest
import torch

from rnc.augment import draw_views, eval_view, train_views, views_from
from rnc.augment.configs import ImageAugment, VolumeAugment
from rnc.config import FitConfig

PLAIN = VolumeAugment(crop=0.5, flip=False, intensity=0.0)


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def volumes(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=seeded(1))


def slow_view(volume, config, draws):
    """One view of one volume, as the docstring of VolumeAugment says it."""
    sides = [max(1, round(config.crop * side)) for side in volume.shape[1:]]
    starts = [
        min(int(draw * (total - side + 1)), total - side)
        for draw, total, side in zip(draws[:3].tolist(), volume.shape[1:], sides, strict=True)
    ]
    (d, h, w), (dd, hh, ww) = starts, sides
    view = volume[:, d : d + dd, h : h + hh, w : w + ww].float()
    if config.flip and draws[3] < 0.5:
        view = view.flip(3)
    contrast, shift = (config.intensity * (2 * draws[4:6] - 1)).tolist()
    view = view * (1 + contrast) + shift
    if config.erase and draws[6] < config.erase:
        low, high = config.erase_sides
        inside = torch.ones(view.shape[1:], dtype=torch.bool)
        for axis, length in enumerate(view.shape[1:]):
            size = float((low + (high - low) * draws[7 + axis]) * length)
            start = float(draws[10 + axis]) * (length - size)
            middles = torch.arange(length) + 0.5
            along = (middles >= start) & (middles < start + size)
            inside &= along.view(*(length if i == axis else 1 for i in range(3)))
        view = view.masked_fill(inside, 0.0)
    return view


@pytest.mark.parametrize(
    "config",
    [
        PLAIN,
        VolumeAugment(),
        VolumeAugment(crop=1.0, intensity=0.0),
        VolumeAugment(crop=0.7, erase=0.6, erase_sides=(0.4, 0.8)),
    ],
)
@pytest.mark.parametrize("shape", [(9, 2, 7, 6, 5), (3, 1, 1, 4, 2)])
def test_equals_the_definition(config, shape):
    x = volumes(*shape)
    draws = draw_views(x, config, 3, seeded(0))
    views = views_from(x, config, draws)
    for volume, drawn, seen in zip(x, draws, views, strict=True):
        for numbers, view in zip(drawn, seen, strict=True):
            torch.testing.assert_close(view, slow_view(volume, config, numbers))


def test_every_window_is_drawn_and_half_are_mirrored():
    x = torch.arange(6.0).expand(2000, 1, 1, 1, 6)
    views = train_views(x, VolumeAugment(crop=0.5, intensity=0.0), 1, seeded(0))[:, 0, 0, 0, 0]
    forward = views[:, 0] < views[:, 2]
    assert 0.45 < forward.float().mean() < 0.55
    assert {tuple(view) for view in views[forward].tolist()} == {
        (0, 1, 2),
        (1, 2, 3),
        (2, 3, 4),
        (3, 4, 5),
    }


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float16])
def test_stored_types_give_float32_views(dtype):
    x = (50 * volumes(2, 1, 5, 5, 5).abs()).to(dtype)
    assert eval_view(x, PLAIN).dtype == train_views(x, PLAIN, 2).dtype == torch.float32
    assert torch.equal(eval_view(x, VolumeAugment(crop=1.0)), x.float())


def test_the_eval_view_is_the_middle_window():
    x = volumes(2, 1, 7, 6, 5)
    assert torch.equal(eval_view(x, PLAIN), x[:, :, 1:5, 1:4, 1:3])


def test_erasing_changes_no_other_number():
    x, erasing = volumes(4, 1, 6, 6, 6), dataclasses.replace(VolumeAugment(), erase=1.0)
    plain, erased = (train_views(x, c, 2, seeded(3)) for c in (VolumeAugment(), erasing))
    kept = erased != 0
    assert 0.5 < kept.float().mean() < 1
    assert torch.equal(plain[kept], erased[kept])


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")  # torch's own, on its import
def test_compiled_views_are_those_of_plain_python():
    x, config = volumes(4, 2, 6, 5, 7), VolumeAugment(erase=0.5)
    torch.compiler.reset()
    draws = draw_views(x, config, 2, seeded(0))
    compiled = torch.compile(views_from, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x, config, draws), views_from(x, config, draws))


def test_a_config_survives_json():
    config = VolumeAugment(erase=0.5, erase_sides=(0.1, 0.3))
    assert VolumeAugment(**json.loads(json.dumps(dataclasses.asdict(config)))) == config


def test_flags_of_the_config_reach_the_augmentation():
    off = FitConfig(preset="paper", crop=False, flip=False, color=False).augmentation("volume")
    assert off == VolumeAugment(crop=1.0, flip=False, intensity=0.0)
    options = {"intensity": 0.3, "crop": 0.8}
    assert FitConfig(preset="paper", augment_options=options).augmentation("volume") == (
        VolumeAugment(crop=0.8, intensity=0.3)
    )
    assert FitConfig(preset="best").augmentation("image").erase == 1.0


@pytest.mark.parametrize(
    ("x", "config", "message"),
    [
        (torch.zeros(2, 3, 4, 4), VolumeAugment(), r"uint8 volumes \(n, c, d, h, w\); got.*\(2, 3"),
        (torch.zeros(2, 1, 4, 4, 4).int(), VolumeAugment(), "got torch.int32"),
        (torch.zeros(2, 1, 4, 4, 4).byte(), ImageAugment(4), r"uint8 images \(n, c, h, w\)"),
    ],
)
def test_wrong_input_is_named(x, config, message):
    with pytest.raises(ValueError, match=message):
        train_views(x, config, 2)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"crop": 0.0}, "crop must be a share with 0 < crop <= 1; got 0.0"),
        ({"intensity": 1.0}, "intensity must be in 0 <= x < 1; got 1.0"),
        ({"erase_sides": (0.5, 2.0)}, r"erase_sides must be low and high.*\(0.5, 2.0\)"),
    ],
)
def test_settings_out_of_range_are_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        VolumeAugment(**fields)
