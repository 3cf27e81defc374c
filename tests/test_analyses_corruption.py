"""Corrupted images: the original's numbers, the definitions, and independence of the batch."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from golden import golden_cases
from rnc.analyses import corruption
from rnc.analyses.corruption import (
    CORRUPTIONS,
    CorruptionScore,
    corrupt,
    corruption_scores,
    mean_over_types,
)
from rnc.heads import head_config
from rnc.metrics import mae, mse
from rnc.model import ModelConfig, Regressor

FIXED = {
    *("defocus_blur", "zoom_blur", "gaussian_blur", "brightness", "contrast", "saturate"),
    *("pixelate", "jpeg_compression"),
}
RANDOM = [name for name in CORRUPTIONS if name not in FIXED]
NOT_MONOTONE = {"glass_blur", "snow", "frost", "fog", "saturate"}  # nor clearly in the original
every_type = pytest.mark.parametrize("name", CORRUPTIONS)
every_random_type = pytest.mark.parametrize("name", RANDOM)


def image_of(rows: list) -> Tensor:
    return torch.tensor(rows, dtype=torch.uint8).permute(2, 0, 1)[None]


def photos(n: int, c: int = 3, h: int = 40, w: int = 40) -> Tensor:
    """Smooth colours with a little noise."""
    stream = torch.Generator().manual_seed(5)
    coarse = torch.rand(n, c, 5, 5, generator=stream)
    smoothed = nn.functional.interpolate(coarse, (h, w), mode="bicubic")
    noisy = 230 * smoothed + 25 * torch.rand(n, c, h, w, generator=stream)
    return noisy.clamp(0, 255).byte()


def change(images: Tensor, name: str, severity: int) -> float:
    return (corrupt(images, name, severity).float() - images).abs().mean().item()


def assert_same(got: Tensor, expected: Tensor, flips: float = 1e-3) -> None:
    """Equal, but for a few pixels that another order of summation takes over a threshold."""
    difference = (got.cpu().int() - expected.cpu().int()).abs()
    assert difference.max() <= 1
    assert (difference > 0).float().mean() <= flips


# ------------------------------------------------------------------------- the original's numbers


@pytest.mark.parametrize("name", sorted(FIXED - {"jpeg_compression"}))
def test_fixed_types_give_the_pixels_of_the_original(name):
    (case,) = golden_cases("corruption_exact")
    image = image_of(case["image"])
    outputs = [output for output in case["outputs"] if output["name"] == name]
    assert len(outputs) == 2
    for output in outputs:
        expected = image_of(output["output"]).int()
        got = corrupt(image, name, output["severity"]).int()
        assert (got - expected).abs().max() <= 1  # the original cuts off, we round


@every_type
def test_images_change_as_much_as_the_original_changes_them(name):
    (case,) = golden_cases("corruption_stats")
    image = image_of(case["image"])
    rows = [row for row in case["rows"] if row["name"] == name]
    assert [row["severity"] for row in rows] == [1, 2, 3, 4, 5]
    for row in rows:
        got = change(image.expand(1 if name in FIXED else 16, -1, -1, -1), name, row["severity"])
        expected, spread = row["mean_abs_diff"], row["spread_of_mean_abs_diff"]
        assert abs(got - expected) <= max(0.1 * expected, 3 * spread), row["severity"]


def test_all_types_of_the_paper_are_there():
    (case,) = golden_cases("corruption_stats")
    assert set(CORRUPTIONS) == {row["name"] for row in case["rows"]}
    assert len(CORRUPTIONS) == 19


# ------------------------------------------------------------------------------------ properties


@every_type
def test_higher_severities_change_more(name):
    (case,) = golden_cases("corruption_stats")
    image = image_of(case["image"]).expand(8, -1, -1, -1)
    changes = [change(image, name, severity) for severity in range(1, 6)]
    assert changes[4] > changes[0]
    if name not in NOT_MONOTONE:
        assert changes == sorted(set(changes))


@every_type
def test_the_same_seed_gives_the_same_images(name):
    images = photos(3)
    before = images.clone()
    assert torch.equal(corrupt(images, name, 3, seed=7), corrupt(images, name, 3, seed=7))
    assert torch.equal(images, before)  # the batch itself is left alone


@every_random_type
def test_another_seed_and_every_image_have_their_own_numbers(name):
    images = photos(1, h=64, w=64).expand(4, -1, -1, -1)
    both = torch.cat([corrupt(images, name, 5), corrupt(images, name, 5, seed=2)]).float()
    distances = torch.cdist(both.flatten(1), both.flatten(1)) + 1e6 * torch.eye(8)
    assert distances.min() > 100


@pytest.mark.parametrize("name", sorted(FIXED))
def test_fixed_types_draw_nothing(name):
    images = photos(2)
    assert torch.equal(corrupt(images, name, 4), corrupt(images, name, 4, seed=1, start=9))


@every_type
def test_chunks_of_a_dataset_are_corrupted_as_the_whole(name, monkeypatch):
    images = photos(7)
    whole = corrupt(images, name, 2, start=10)
    parts = [corrupt(images[i:j], name, 2, start=10 + i) for i, j in ((0, 1), (1, 5), (5, 7))]
    assert_same(torch.cat(parts), whole)
    monkeypatch.setattr(corruption, "CHUNK_ON_CPU", 3 * 3 * 40 * 40)  # three images at a time
    assert_same(corrupt(images, name, 2, start=10), whole)


@every_random_type
def test_the_place_in_the_dataset_chooses_the_numbers(name):
    images = photos(1, h=64, w=64).expand(2, -1, -1, -1)
    zero, one = corrupt(images, name, 5)
    assert_same(corrupt(images[:1], name, 5, start=1)[0], one)
    assert not torch.equal(zero, one)


def test_draws_do_not_touch_the_global_generator():
    state = torch.get_rng_state()
    corrupt(photos(2), "snow", 1)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize(("h", "w"), [(32, 32), (33, 33), (96, 96), (32, 70), (65, 33)])
@every_type
def test_any_size_from_32_pixels_on_is_corrupted(name, h, w):
    images = photos(2, 3, h, w)
    for severity in (1, 5):
        corrupted = corrupt(images, name, severity)
        assert corrupted.shape == images.shape
        assert corrupted.dtype == torch.uint8
        assert corrupted.is_contiguous()
        assert all((new != old).any() for new, old in zip(corrupted, images, strict=True))


@pytest.mark.parametrize("name", [name for name in CORRUPTIONS if name != "saturate"])
def test_grey_images_are_corrupted_as_their_coloured_copies(name):
    grey = photos(2, c=1, h=64, w=64)
    changes = [change(images, name, 3) for images in (grey, grey.expand(-1, 3, -1, -1))]
    assert changes[0] == pytest.approx(changes[1], rel=0.1)
    assert changes[0] > 0.5


@every_type
@pytest.mark.parametrize("level", [0, 255])
def test_black_and_white_images_do_not_break_it(name, level):
    images = torch.full((2, 3, 32, 48), level, dtype=torch.uint8)
    for severity in (1, 4):
        corrupted = corrupt(images, name, severity).float()
        assert (corrupted[:, :, 8:24, 8:40].mean() - level).abs() < 220
        if name in FIXED - {"brightness", "saturate"}:
            assert (corrupted - level).abs().max() <= 1


def test_a_black_image_gets_brighter_and_a_grey_one_turns_red():
    black = torch.zeros(1, 3, 32, 32, dtype=torch.uint8)
    assert corrupt(black, "brightness", 2).unique().tolist() == [51]
    red = corrupt(black + 100, "saturate", 5)[0, :, 0, 0]
    assert red.tolist() == [100, 80, 80]


def test_no_images_stay_none():
    assert corrupt(photos(2)[:0], "fog", 1).shape == (0, 3, 40, 40)


def test_autocast_does_not_cost_grey_levels():
    images = photos(2)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        half = corrupt(images, "gaussian_blur", 2)
    assert torch.equal(half, corrupt(images, "gaussian_blur", 2))


# ----------------------------------------------------------------------------------------- scores


class Mean(nn.Module):
    """Three features: the mean of each channel."""

    def forward(self, views: Tensor) -> Tensor:
        return views.mean(dim=(2, 3))


def model_and_data(n: int = 10) -> tuple[Regressor, np.ndarray, np.ndarray]:
    x, y = photos(n, h=32, w=32).numpy(), np.linspace(20, 60, n)
    head = vars(head_config("l1", 3, y[:, None]))
    config = ModelConfig("image", "own", (3, 32, 32), {"size": 32}, head, ("age",))
    return Regressor(config, Mean()), x, y


def test_scores_are_errors_on_the_corrupted_dataset_type_by_type():
    model, x, y = model_and_data()
    options = {"names": ["fog", "contrast"], "severities": [1, 4], "seed": 3}
    scores = list(corruption_scores(model, x, y, **options))
    expected = []
    for name in ("fog", "contrast"):
        for severity in (1, 4):
            corrupted = corrupt(torch.tensor(x), name, severity, seed=3).numpy()
            expected.append((name, severity, mae(model.predict_prepared(corrupted), y)))
    assert [score[:2] for score in scores] == [row[:2] for row in expected]
    assert [s.error for s in scores] == pytest.approx([row[2] for row in expected], rel=1e-6)
    assert len({round(score.error, 6) for score in scores}) == 4
    in_batches = corruption_scores(model, x, y, **options, batch_size=3)
    assert [s.error for s in in_batches] == pytest.approx([s.error for s in scores], rel=1e-4)
    squared = corruption_scores(model, x, y, **options, measure=mse)
    assert all(b.error > 2 * a.error for a, b in zip(scores, squared, strict=True))


def test_scores_come_one_by_one_for_all_types_and_severities(monkeypatch):
    model, x, y = model_and_data(4)
    calls = []
    monkeypatch.setattr(corruption, "corrupt", lambda i, *a, **k: calls.append(a) or i)
    scores = corruption_scores(model, x, y)
    assert calls == []
    next(scores)
    assert calls == [("gaussian_noise", 1)]
    assert len(list(scores)) == 19 * 5 - 1
    assert set(calls) == {(name, severity) for name in CORRUPTIONS for severity in range(1, 6)}


def test_the_mean_over_types_is_taken_per_severity():
    scores = [
        *(CorruptionScore("fog", severity, float(severity)) for severity in (2, 1)),
        *(CorruptionScore("snow", severity, 10.0 * severity) for severity in (1, 2)),
    ]
    assert mean_over_types(iter(scores)) == {1: 5.5, 2: 11.0}
    with pytest.raises(ValueError, match=r"at severity 2 there is no snow. Wait for all scores"):
        mean_over_types(scores[:-1])


# ----------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("shape", "dtype", "message"),
    [
        (
            (2, 3, 40, 40),
            torch.float32,
            r"need uint8 images \(n, c, h, w\) with 1 or 3 channels; got float32 of shape "
            r"\(2, 3, 40, 40\). Images in 0..1 become uint8 by \(255 \* x\).round",
        ),
        ((3, 40, 40), torch.uint8, r"got uint8 of shape \(3, 40, 40\)"),
        ((2, 40, 40, 3), torch.uint8, r"1 or 3 channels; got uint8 of shape \(2, 40, 40, 3\)"),
        (
            (2, 3, 40, 31),
            torch.uint8,
            r"at least 32 x 32 pixels.*; got 40 x 31. Enlarge the images first",
        ),
    ],
)
def test_other_images_are_refused_with_what_came(shape, dtype, message):
    images = torch.zeros(shape, dtype=dtype)
    with pytest.raises(ValueError, match=message):
        corrupt(images, "fog", 1)
    model, _, y = model_and_data(shape[0])
    with pytest.raises(ValueError, match=message):
        corruption_scores(model, images.numpy(), y)


def test_grey_images_have_no_saturation():
    message = r"saturate needs images with 3 channels; got 1. Leave it out .* if name != 'saturate'"
    with pytest.raises(ValueError, match=message):
        corrupt(photos(2, c=1), "saturate", 1)
    model, _, y = model_and_data(2)
    with pytest.raises(ValueError, match=message):
        corruption_scores(model, photos(2, c=1).numpy(), y)


def test_unknown_names_and_severities_are_refused():
    images = photos(2)
    model, x, y = model_and_data(2)
    message = r"Unknown corruption 'rain'; known are gaussian_noise, .*, jpeg_compression\."
    with pytest.raises(ValueError, match=message):
        corrupt(images, "rain", 1)
    with pytest.raises(ValueError, match=message):
        corruption_scores(model, x, y, names=["fog", "rain"])
    for severity in (0, 6):
        message = rf"severity must be 1, 2, 3, 4 or 5; got {severity}. Images without corruption"
        with pytest.raises(ValueError, match=message):
            corrupt(images, "fog", severity)
        with pytest.raises(ValueError, match=message):
            corruption_scores(model, x, y, severities=[1, severity])
    with pytest.raises(ValueError, match=r"place of the first image, 0 or more; got -1"):
        corrupt(images, "fog", 1, start=-1)


def test_scores_need_a_target_for_every_image():
    model, x, y = model_and_data(4)
    message = r"same n >= 1; got \(4, 3, 32, 32\) and \(3, 1\)"
    with pytest.raises(ValueError, match=message):
        corruption_scores(model, x, y[:3])
    with pytest.raises(ValueError, match="batch_size must be 1 or more; got 0"):
        corruption_scores(model, x, y, batch_size=0)


# -------------------------------------------------------------------------------------------- GPU


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("severity", [1, 3, 5])
@every_type
def test_a_gpu_gives_the_images_of_the_cpu(name, severity):
    images = photos(4, h=64, w=80)
    expected = corrupt(images, name, severity).int()
    got = corrupt(images.cuda(), name, severity)
    assert got.is_cuda
    difference = (got.cpu().int() - expected).abs()
    # A number next to a threshold (of flakes, drops, boxes) may fall on its other side.
    assert (difference > 1).float().mean() <= 1e-3
    assert (difference > 0).float().mean() <= 1e-2
