"""Random erasing: rectangles of images and blocks of time are set to the mean."""

import dataclasses

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from rnc import augment
from rnc.augment import draw_views, eval_view, train_views, views_from
from rnc.augment.configs import ImageAugment, SignalAugment

IMAGES = ImageAugment(size=24, mean=(0.3, 0.4, 0.5), std=(0.1, 0.2, 0.3))
SIGNALS = SignalAugment(crop=0.8)


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def random_images(*shape: int) -> Tensor:
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=seeded(5))


CASES = {
    "images": (random_images(31, 3, 30, 26), IMAGES),
    "digits": (random_images(31, 1, 12, 12), ImageAugment(size=9)),
    "signals": (torch.randn(31, 2, 70, generator=seeded(2)), SIGNALS),
}
every_kind = pytest.mark.parametrize(("x", "config"), CASES.values(), ids=CASES.keys())


def erased(config, share: float, sizes: tuple[float, float] | None = None):
    name = "erase_sides" if isinstance(config, ImageAugment) else "erase_length"
    return dataclasses.replace(config, erase=share, **({} if sizes is None else {name: sizes}))


def one_by_one(plain: np.ndarray, draws: np.ndarray, share: float, sizes) -> np.ndarray:
    """The definition: one view, one pixel at a time."""
    views, lengths = plain.copy(), plain.shape[3:]
    for i, v in np.ndindex(plain.shape[:2]):
        chosen, *rest = draws[i, v].astype(np.float64)
        if chosen >= share:
            continue
        bounds = []
        for side, length in enumerate(lengths):
            size = (sizes[0] + (sizes[1] - sizes[0]) * rest[side]) * length
            start = rest[len(lengths) + side] * (length - size)
            bounds.append((start, start + size))
        for place in np.ndindex(lengths):
            if all(a <= p + 0.5 < b for p, (a, b) in zip(place, bounds, strict=True)):
                views[(i, v, slice(None), *place)] = 0
    return views


@every_kind
@pytest.mark.parametrize(("share", "sizes"), [(1.0, None), (0.5, (0.3, 0.9)), (0.7, (1.0, 1.0))])
def test_erasing_equals_its_definition(x, config, share, sizes):
    with_blocks = erased(config, share, sizes)
    draws = draw_views(x, with_blocks, 2, seeded(0))
    count = 5 if isinstance(config, ImageAugment) else 3
    plain = views_from(x, config, draws[..., :-count])
    sizes = sizes or ((0.15, 0.5) if count == 5 else (0.05, 0.25))
    expected = one_by_one(plain.numpy(), draws[..., -count:].numpy(), share, sizes)
    views = views_from(x, with_blocks, draws)
    assert views.is_contiguous()
    np.testing.assert_array_equal(views.numpy(), expected)
    assert not np.array_equal(expected, plain)


@every_kind
def test_what_is_not_erased_is_the_view_without_erasing(x, config):
    plain = train_views(x, config, 2, seeded(4))
    views = train_views(x, erased(config, 1.0), 2, seeded(4))
    assert (views != plain).any()
    torch.testing.assert_close(views[views != 0], plain[views != 0], rtol=0, atol=0)


@every_kind
def test_erasing_that_is_off_draws_the_numbers_of_before(x, config):
    k = 33 if isinstance(config, ImageAugment) else 2 * x.shape[1]
    expected = torch.rand(len(x), 2, k, generator=seeded(1))
    drawing = seeded(1)
    assert torch.equal(draw_views(x, erased(config, 0.0), 2, drawing), expected)
    after = seeded(1)
    torch.rand(len(x), 2, k, generator=after)
    assert torch.equal(drawing.get_state(), after.get_state())  # and not one number more


def test_the_share_and_the_sizes_of_the_blocks_are_those_of_the_config():
    ones = torch.full((3000, 1, 20, 20), 255, dtype=torch.uint8)
    config = ImageAugment(20, None, flip=False, jitter=None, erase=0.6, erase_sides=(0.2, 0.4))
    hidden = train_views(ones, config, 1, seeded(0))[:, 0, 0] == 0
    has_block = hidden.any(dim=(1, 2))
    assert 0.57 < has_block.float().mean() < 0.63
    heights, widths = hidden.any(dim=2).sum(1)[has_block], hidden.any(dim=1).sum(1)[has_block]
    assert torch.equal(heights * widths, hidden.sum(dim=(1, 2))[has_block])  # a full rectangle
    for sides in (heights, widths):
        assert sorted(set(sides.tolist())) == [4, 5, 6, 7, 8]
    assert abs(stats.pearsonr(heights, widths).statistic) < 0.1
    assert hidden.any(dim=0).all()  # anywhere inside


def test_a_block_of_time_hides_all_channels():
    signals = torch.ones(500, 3, 100)
    config = SignalAugment(crop=0.5, erase=1.0, erase_length=(0.1, 0.2))
    hidden = train_views(signals, config, 2, seeded(0)) == 0
    assert torch.equal(hidden, hidden[:, :, :1].expand_as(hidden))
    counts = hidden[:, :, 0].sum(dim=-1).flatten()
    assert sorted(set(counts.tolist())) == [5, 6, 7, 8, 9, 10]
    assert hidden.any(dim=(0, 1, 2)).all()


@every_kind
def test_the_eval_view_loses_nothing(x, config):
    assert torch.equal(eval_view(x, erased(config, 1.0)), eval_view(x, config))
    assert torch.equal(train_views(x, erased(config, 1.0), 0)[:, 0], eval_view(x, config))


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")  # torch's own, on its import
@pytest.mark.parametrize("kind", ["images", "signals"])
def test_compiled_erasing_is_that_of_plain_python(kind):
    x, config = CASES[kind][0], erased(CASES[kind][1], 0.5)
    torch.compiler.reset()
    draws = draw_views(x, config, 2, seeded(0))
    compiled = torch.compile(views_from, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x, config, draws), views_from(x, config, draws))
    whole = torch.compile(train_views, fullgraph=True, backend="aot_eager")
    assert whole(x, config, 2).shape == train_views(x, config, 2).shape


def test_chunks_on_the_processor_change_nothing(monkeypatch):
    x, config = CASES["images"][0], erased(IMAGES, 0.5)
    draws = draw_views(x, config, 2, seeded(0))
    whole = views_from(x, config, draws)
    monkeypatch.setattr(augment, "CHUNK_VALUES", 4 * 2 * 3 * 24 * 24)  # four samples at a time
    torch.testing.assert_close(views_from(x, config, draws), whole)


@every_kind
@pytest.mark.parametrize(
    ("share", "sizes", "message"),
    [
        (1.5, None, r"erase must be a share in 0\.\.1; got 1\.5"),
        (0.5, (0.0, 0.5), r"must be low and high, above 0 and up to 1; got \(0\.0, 0\.5\)"),
        (0.5, (0.5, 0.2), r"erase_(sides|length) must be .*; got \(0\.5, 0\.2\)"),
        (0.5, 0.2, r"must be low and high, .*; got 0\.2"),
        (0.5, (0.2,), r"must be low and high, .*; got \(0\.2,\)"),
    ],
)
def test_settings_out_of_range_are_refused(x, config, share, sizes, message):
    with pytest.raises(ValueError, match=message):
        erased(config, share, sizes)
