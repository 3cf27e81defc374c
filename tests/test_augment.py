import dataclasses
import itertools
import json

import pytest
import torch
from scipy import stats
from torch import Tensor
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional as F

from rnc import augment
from rnc.augment import draw_views, eval_view, train_views, views_from
from rnc.augment.configs import ImageAugment, SignalAugment, TableAugment
from rnc.augment.images import BRIGHTNESS, CONTRAST, Window, jitter_colours, random_windows

PLAIN = {"flip": False, "jitter": None, "grayscale_p": 0.0, "mean": (0.0,), "std": (1.0,)}


def random_images(*shape: int) -> Tensor:
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=seeded(5))


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def crops(images: Tensor, config: ImageAugment, draws: Tensor) -> tuple[Window, ...]:
    areas, ratios, place, *_ = torch.split(draws, augment.IMAGE_DRAWS, dim=-1)
    return random_windows(images, config, areas, ratios, place)


@pytest.mark.parametrize(("h", "w", "size"), [(70, 50, 32), (24, 40, 48), (33, 33, 33)])
def test_a_crop_is_torchvisions_antialiased_resized_crop(h, w, size):
    images, config = random_images(5, 3, h, w), ImageAugment(size=size, **PLAIN)
    draws = draw_views(images, config, 2, seeded(0))
    rows, columns = crops(images, config, draws)
    views = views_from(images, config, draws)
    for i, v in itertools.product(range(5), range(2)):
        top, left = int(rows.low[i, v]), int(columns.low[i, v])
        height, width = int(rows.high[i, v]) - top, int(columns.high[i, v]) - left
        image = images[i].float() / 255
        expected = F.resized_crop(image, top, left, height, width, [size, size], antialias=True)
        torch.testing.assert_close(views[i, v], expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize(("h", "w"), [(40, 40), (30, 50), (50, 30)])
def test_crops_are_distributed_as_torchvisions(h, w):
    images, config = random_images(1, 1, h, w).expand(1500, 1, h, w), ImageAugment(size=8, **PLAIN)
    draws = draw_views(images, config, 1, seeded(1))
    rows, columns = crops(images, config, draws)
    ours = torch.stack([rows.low, columns.low, rows.high - rows.low, columns.high - columns.low])
    torch.manual_seed(0)
    crop = v2.RandomResizedCrop(8, scale=config.crop_scale, ratio=config.crop_ratio)
    drawn = [crop.make_params([images[0]]) for _ in range(1500)]
    for mine, name in zip(ours, ("top", "left", "height", "width"), strict=True):
        theirs = [params[name] for params in drawn]
        assert stats.ks_2samp(mine.flatten().numpy(), theirs).pvalue > 1e-3, name
    assert (ours[:2] >= 0).all()
    assert (rows.high <= h).all()
    assert (columns.high <= w).all()


def test_where_no_crop_fits_the_largest_allowed_one_is_taken():
    images = random_images(4, 1, 10, 100)
    config = ImageAugment(size=8, crop_scale=(1.0, 1.0), **PLAIN)
    draws = draw_views(images, config, 1, seeded(0))
    rows, columns = crops(images, config, draws)
    assert (rows.high - rows.low).flatten().tolist() == [10] * 4
    assert (columns.high - columns.low).flatten().tolist() == [13] * 4  # 4/3 of the height


def test_a_crop_of_the_whole_image_is_its_resize():
    images = random_images(3, 3, 50, 50)
    config = ImageAugment(size=31, crop_scale=(1.0, 1.0), crop_ratio=(1.0, 1.0), **PLAIN)
    expected = F.resize(images.float() / 255, [31, 31], antialias=True)
    highest = torch.ones_like(draw_views(images, config, 1))
    for views in (train_views(images, config, 1), views_from(images, config, highest)):
        torch.testing.assert_close(views[:, 0], expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize(
    ("h", "w", "size"), [(64, 64, 32), (70, 50, 32), (20, 31, 28), (37, 99, 64)]
)
def test_the_eval_view_is_the_papers_resize_and_centre_crop(h, w, size):
    images, config = random_images(2, 3, h, w), ImageAugment(size=size)
    resized = F.resize(images.float() / 255, [round(size * 8 / 7)], antialias=True)
    expected = (F.center_crop(resized, [size, size]) - 0.5) / 0.5
    torch.testing.assert_close(eval_view(images, config), expected, atol=1e-4, rtol=0)


def test_the_eval_view_of_an_image_of_the_right_size_is_the_image():
    images = random_images(2, 3, 24, 24)
    assert torch.equal(eval_view(images, ImageAugment(size=24)), (images / 255 - 0.5) / 0.5)


def test_without_a_crop_a_view_has_the_geometry_of_the_eval_view():
    images = random_images(3, 3, 40, 30)
    config = ImageAugment(size=20, crop_scale=None, **PLAIN)
    views = train_views(images, config, 2)
    expected = eval_view(images, config)
    torch.testing.assert_close(views, expected[:, None].expand_as(views))


def test_half_of_the_views_are_mirrored_and_none_with_flip_off():
    images = random_images(200, 1, 8, 8)
    upright = images[:, None] / 255
    still = train_views(images, ImageAugment(size=8, crop_scale=None, **PLAIN), 1)
    torch.testing.assert_close(still, upright)
    config = ImageAugment(size=8, crop_scale=None, **{**PLAIN, "flip": True})
    views = train_views(images, config, 1, seeded(3))
    same = (views - upright).abs().amax(dim=(1, 2, 3, 4)) < 1e-6
    mirrored = (views - upright.flip(-1)).abs().amax(dim=(1, 2, 3, 4)) < 1e-6
    assert (same ^ mirrored).all()
    assert 70 <= mirrored.sum() <= 130


# ------------------------------------------------------------------------------------ colours

OPERATIONS = (F.adjust_brightness, F.adjust_contrast, F.adjust_saturation, F.adjust_hue)
ORDERS = list(itertools.permutations(range(4)))


def one_by_one(image: Tensor, factors: list[float], order: tuple[int, ...]) -> Tensor:
    for kind in order:
        if image.shape[0] == 3 or kind in (BRIGHTNESS, CONTRAST):
            image = OPERATIONS[kind](image, factors[kind])
    return image


@pytest.mark.parametrize("c", [1, 3])
def test_colours_are_torchvisions_in_every_order(c):
    images = torch.rand(len(ORDERS), c, 9, 7, generator=seeded(0))
    images[:, :, 0] = images[:, :1, 0]  # grey pixels have no hue
    images[:, :, 1, :3], images[:, :, 1, 3:] = 0.0, 1.0
    images[:, -1, 2] = images[:, 0, 2]  # two channels share the maximum or the minimum
    factors = 0.5 + torch.rand(len(ORDERS), 4, generator=seeded(1))
    factors[:, 3] -= 1.0
    expected = torch.stack(
        [
            one_by_one(image, row, order)
            for image, row, order in zip(images, factors.tolist(), ORDERS, strict=True)
        ]
    )
    planes = jitter_colours(images.unbind(1), factors[:, :3], factors[:, 3], torch.tensor(ORDERS))
    got = torch.stack(planes, dim=1)
    torch.testing.assert_close(got, expected, atol=2e-6, rtol=0)
    assert (got - images).abs().mean() > 0.05


def test_images_of_four_channels_change_in_brightness_and_contrast_only():
    images = torch.rand(2, 4, 6, 6, generator=seeded(0)) / 4 + 0.3
    factors = torch.tensor([[1.2, 0.8, 0.0], [1.0, 1.0, 0.0]])
    order = torch.tensor([[0, 1, 2, 3], [2, 3, 1, 0]])
    got = torch.stack(jitter_colours(images.unbind(1), factors, torch.full((2,), 0.3), order), 1)
    bright = 1.2 * images[0]
    torch.testing.assert_close(got[0], 0.8 * bright + 0.2 * bright.mean())
    torch.testing.assert_close(got[1], images[1])


def test_jitter_draws_each_strength_from_its_own_range():
    colours = {"jitter": (0.3, 0.0, 0.0, 0.0), "jitter_p": 1.0}
    config = ImageAugment(size=4, crop_scale=None, **{**PLAIN, **colours})
    grey = torch.full((300, 3, 4, 4), 120, dtype=torch.uint8)
    factors = train_views(grey, config, 1, seeded(0))[:, 0, 0, 0, 0] / (120 / 255)
    assert 0.7 <= factors.min() < 0.72
    assert 1.28 < factors.max() <= 1.3


def test_every_order_of_the_colour_changes_is_drawn(monkeypatch):
    seen = []
    monkeypatch.setattr(
        augment.images, "jitter_colours", lambda planes, f, h, o: seen.append(o) or planes
    )
    train_views(random_images(300, 3, 4, 4), ImageAugment(size=4), 2, seeded(0))
    assert {tuple(order) for order in torch.cat(seen).tolist()} == set(ORDERS)


def test_jitter_and_greyscale_reach_their_share_of_the_views():
    images = random_images(1, 3, 6, 6).expand(400, 3, 6, 6)
    plain = images[:1] / 255

    def share_changed(**parts: object) -> float:
        config = ImageAugment(size=6, crop_scale=None, **{**PLAIN, **parts})
        views = train_views(images, config, 1, seeded(0))[:, 0]
        return ((views - plain).abs().amax(dim=(1, 2, 3)) > 1e-3).float().mean().item()

    assert 0.74 < share_changed(jitter=(0.4, 0.4, 0.4, 0.1), jitter_p=0.8) < 0.86
    assert 0.14 < share_changed(grayscale_p=0.2) < 0.26
    assert share_changed(jitter=(0.4, 0.4, 0.4, 0.1), jitter_p=0.0) == 0


def test_greyscale_is_torchvisions():
    images = random_images(3, 3, 8, 8)
    config = ImageAugment(size=8, crop_scale=None, **{**PLAIN, "grayscale_p": 1.0})
    expected = F.rgb_to_grayscale(images.float() / 255, num_output_channels=3)
    torch.testing.assert_close(train_views(images, config, 1)[:, 0], expected)


def test_images_come_out_normalised_as_float32():
    images = random_images(4, 3, 30, 20)
    views = train_views(images, ImageAugment(size=16), 2)
    assert views.shape == (4, 2, 3, 16, 16)
    assert views.dtype == torch.float32
    assert views.is_contiguous()
    assert -1 <= views.min() < -0.5
    assert 0.5 < views.max() <= 1.00001


def test_mean_and_std_may_differ_by_channel():
    images = random_images(2, 3, 8, 8)
    config = ImageAugment(size=8, mean=(0.1, 0.2, 0.3), std=(0.5, 1.0, 2.0))
    expected = F.normalize(images / 255, [0.1, 0.2, 0.3], [0.5, 1.0, 2.0])
    torch.testing.assert_close(eval_view(images, config), expected)


BATCHES = {
    "images": (random_images(6, 3, 20, 20), ImageAugment(size=16)),
    "digits": (random_images(6, 1, 12, 12), ImageAugment(size=12)),
    "signals": (torch.randn(6, 2, 200, generator=seeded(2)), SignalAugment(crop=0.5)),
    "table": (torch.randn(6, 5, generator=seeded(3)), TableAugment(noise=0.1, mask=0.3)),
}
every_kind = pytest.mark.parametrize(("x", "config"), BATCHES.values(), ids=BATCHES.keys())


@every_kind
def test_the_same_seed_gives_the_same_views_and_another_does_not(x, config):
    views = train_views(x, config, 2, seeded(0))
    assert torch.equal(views, train_views(x, config, 2, seeded(0)))
    assert not torch.equal(views, train_views(x, config, 2, seeded(1)))


@every_kind
def test_every_sample_and_every_view_has_its_own_draw(x, config):
    views = train_views(x[:1].expand_as(x), config, 2, seeded(0)).flatten(0, 1).flatten(1)
    distance = torch.cdist(views, views) + torch.eye(len(views))
    assert distance.min() > 1e-3


@every_kind
def test_no_views_stand_for_the_eval_view_which_has_the_shape_of_all(x, config):
    before, view = x.clone(), eval_view(x, config)
    assert torch.equal(train_views(x, config, 0)[:, 0], view)
    assert train_views(x, config, 3).shape == (6, 3, *view.shape[1:])
    assert train_views(x[:0], config, 2).shape == (0, 2, *view.shape[1:])
    assert torch.equal(x, before)  # the batch itself is left alone


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")  # torch's own, on its import
@pytest.mark.parametrize("kind", ["images", "signals", "table"])
def test_compiled_views_are_those_of_plain_python(kind):
    x, config = BATCHES[kind]
    torch.compiler.reset()
    draws = draw_views(x, config, 2, seeded(0))
    compiled = torch.compile(views_from, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x, config, draws), views_from(x, config, draws))
    whole = torch.compile(train_views, fullgraph=True, backend="aot_eager")
    torch.manual_seed(0)
    first, second = whole(x, config, 2), whole(x, config, 2)
    assert first.shape == second.shape == train_views(x, config, 2).shape
    assert not torch.equal(first, second)


@every_kind
def test_a_config_survives_json(x, config):
    stored = json.loads(json.dumps(dataclasses.asdict(config)))
    again = type(config)(**stored)
    assert again == config
    assert hash(again) == hash(config)


def test_chunks_on_the_processor_change_nothing(monkeypatch):
    x, config = BATCHES["images"]
    draws = draw_views(x, config, 2, seeded(0))
    whole = views_from(x, config, draws)
    monkeypatch.setattr(augment, "CHUNK_VALUES", 4 * 2 * 3 * 16 * 16)  # four samples, then two
    torch.testing.assert_close(views_from(x, config, draws), whole)


def test_autocast_does_not_cost_grey_levels():
    images, config = random_images(2, 3, 30, 30), ImageAugment(size=20)
    draws = draw_views(images, config, 1, seeded(0))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        half, middle = views_from(images, config, draws), eval_view(images, config)
    assert torch.equal(half, views_from(images, config, draws))
    assert torch.equal(middle, eval_view(images, config))


# -------------------------------------------------------------------------- signals and tables


def test_a_signal_view_is_a_window_of_the_signal():
    signals = torch.arange(50.0).expand(300, 2, 50) + torch.tensor([[0.0], [100.0]])
    views = train_views(signals, SignalAugment(crop=0.8), 2, seeded(0))
    assert views.shape == (300, 2, 2, 40)
    start = views[..., 0, 0]
    expected = start[..., None, None] + torch.arange(40.0) + torch.tensor([[0.0], [100.0]])
    assert torch.equal(views, expected)
    assert sorted(set(start.flatten().tolist())) == list(range(11))
    assert torch.equal(eval_view(signals, SignalAugment(crop=0.8)), signals[..., 5:45])


def test_a_crop_of_one_keeps_the_whole_signal():
    signals = torch.randn(3, 2, 17)
    views = train_views(signals, SignalAugment(crop=1.0), 2)
    assert torch.equal(views, signals[:, None].expand(-1, 2, -1, -1))


def test_table_noise_is_normal_with_the_given_deviation():
    table = torch.full((100, 50), 3.0)
    noise = train_views(table, TableAugment(noise=0.2), 1, seeded(0)) - 3.0
    assert stats.kstest(noise.flatten().numpy() / 0.2, "norm").pvalue > 1e-3
    lowest = views_from(torch.zeros(1, 3), TableAugment(), torch.zeros(1, 1, 6))
    assert lowest.isfinite().all()  # a uniform number may be 0


def test_masked_features_are_zero_at_the_given_rate():
    table = torch.full((100, 50), 3.0)
    views = train_views(table, TableAugment(noise=0.0, mask=0.25), 1, seeded(0))
    assert ((views == 0) | (views == 3)).all()
    assert 0.22 < (views == 0).float().mean() < 0.28
    assert torch.equal(train_views(table, TableAugment(noise=0.0), 1)[:, 0], table)


@pytest.mark.parametrize(
    ("x", "config", "message"),
    [
        (
            torch.zeros(2, 3, 8, 8),
            ImageAugment(size=8),
            r"ImageAugment needs uint8 images \(n, c, h, w\); got torch.float32 of shape "
            r"\(2, 3, 8, 8\). Images in 0..1 become uint8 by \(255 \* x\)",
        ),
        (
            torch.zeros(8, dtype=torch.uint8),
            ImageAugment(size=8),
            r"got torch.uint8 of shape \(8,\)",
        ),
        (random_images(2, 3, 8, 8)[:, :, :0], ImageAugment(size=8), r"shape \(2, 3, 0, 8\)"),
        (
            torch.zeros(2, 50),
            SignalAugment(),
            r"SignalAugment needs floating-point signals \(n, c, l\); got torch.float32 of shape "
            r"\(2, 50\). Call .float\(\), or take the config for this data",
        ),
        (
            torch.zeros(2, 5, dtype=torch.int64),
            TableAugment(),
            r"TableAugment needs a floating-point table \(n, p\); got torch.int64 of shape "
            r"\(2, 5\). Call .float\(\)",
        ),
        (
            random_images(2, 3, 8, 8),
            ImageAugment(size=8, std=(1.0, 1.0)),
            r"mean and std must be 1 or 3 numbers, one per channel; got \(1.0, 1.0\)",
        ),
    ],
)
def test_wrong_input_is_named_with_what_came_and_what_to_do(x, config, message):
    for make in (lambda: train_views(x, config, 2), lambda: eval_view(x, config)):
        with pytest.raises(ValueError, match=message):
            make()


def test_a_generator_elsewhere_and_negative_views_are_refused():
    x, config = BATCHES["table"]
    elsewhere = torch.zeros(2, 5, device="meta")
    with pytest.raises(
        ValueError, match=r"device of the batch, meta; got one on cpu. Make it with"
    ):
        train_views(elsewhere, config, 1, torch.Generator())
    with pytest.raises(ValueError, match=r"views must be 0 \(no augmentation\) or more; got -1"):
        train_views(x, config, -1)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ImageAugment(size=0), "size must be a number of pixels >= 1; got 0"),
        (lambda: ImageAugment(8, crop_scale=(0.5, 1.5)), r"crop_scale must be .*got \(0.5, 1.5\)"),
        (lambda: ImageAugment(8, crop_ratio=(2.0, 1.0)), r"crop_ratio must be .*got \(2.0, 1.0\)"),
        (lambda: ImageAugment(8, jitter=(0, 0, 0, 0.6)), r"hue in 0..0.5; got \(0, 0, 0, 0.6\)"),
        (lambda: ImageAugment(8, jitter=(0.4, 0.4)), r"three strengths .*got \(0.4, 0.4\)"),
        (lambda: ImageAugment(8, jitter_p=2.0), "jitter_p must be a share in 0..1; got 2.0"),
        (lambda: ImageAugment(8, grayscale_p=-1), "grayscale_p must be a share in 0..1; got -1"),
        (lambda: ImageAugment(8, std=(0.0,)), r"std must be numbers > 0; got \(0.0,\)"),
        (lambda: SignalAugment(crop=0), "crop must be a share with 0 < crop <= 1; got 0"),
        (lambda: TableAugment(noise=-1), "noise must be a number >= 0; got -1"),
        (lambda: TableAugment(mask=1), "mask must be a share with 0 <= mask < 1; got 1"),
    ],
)
def test_settings_out_of_range_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
