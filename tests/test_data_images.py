"""Image files of every kind, good and bad."""

import warnings

import numpy as np
import pytest
from PIL import Image

from rnc.data.errors import DataError
from rnc.data.image_cache import load_images
from rnc.data.images import decode, image_files, square

RED, WHITE = (255, 0, 0), (255, 255, 255)


def quarters(size=(32, 32)):
    """Red upper left, green upper right, blue lower left, white lower right."""
    w, h = size
    pixels = np.full((h, w, 3), 255, np.uint8)
    pixels[: h // 2, : w // 2] = RED
    pixels[: h // 2, w // 2 :] = (0, 255, 0)
    pixels[h // 2 :, : w // 2] = (0, 0, 255)
    return Image.fromarray(pixels)


def corners(x):
    """Which channel is strongest in each quarter; white is 3."""
    _, h, w = x.shape
    found = []
    for i in (h // 4, 3 * h // 4):
        for j in (w // 4, 3 * w // 4):
            pixel = x[:, i, j].astype(int)
            found.append(3 if pixel.min() > 200 else int(pixel.argmax()))
    return found


def noise(path, seed=0, size=(20, 20)):
    pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path)
    return path


# --------------------------------------------------------------------------------------- decoding


@pytest.mark.parametrize("suffix", ["png", "jpg", "webp", "bmp", "tif", "gif"])
def test_formats_give_upright_rgb(tmp_path, suffix):
    quarters((64, 64)).save(tmp_path / f"a.{suffix}")
    x = decode(tmp_path / f"a.{suffix}", 16)
    assert x.shape == (3, 16, 16)
    assert x.dtype == np.uint8
    assert corners(x) == [0, 1, 2, 3]


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "P", "CMYK", "YCbCr"])
def test_colour_modes_keep_their_colours(tmp_path, mode):
    path = tmp_path / ("a.jpg" if mode in ("CMYK", "YCbCr") else "a.png")
    quarters().convert(mode).save(path)
    assert corners(decode(path, 32)) == [0, 1, 2, 3]


@pytest.mark.parametrize("mode", ["L", "1", "LA"])
def test_grey_modes_become_three_equal_channels(tmp_path, mode):
    half = np.zeros((16, 16), np.uint8)
    half[:, 8:] = 255
    Image.fromarray(half).convert(mode).save(tmp_path / "a.png")
    x = decode(tmp_path / "a.png", 16)
    assert (x == half).all()


def test_sixteen_bit_grey_keeps_its_range(tmp_path):
    ramp = np.linspace(0, 65535, 256).astype(np.uint16).reshape(16, 16)
    Image.fromarray(ramp).save(tmp_path / "a.png")
    assert (decode(tmp_path / "a.png", 16) == (ramp >> 8)).all()


def test_one_channel_is_grey(tmp_path):
    Image.new("RGB", (8, 8), RED).save(tmp_path / "a.png")
    x = decode(tmp_path / "a.png", 4, channels=1)
    assert x.shape == (1, 4, 4)
    assert (x == 76).all()  # luminance of red


@pytest.mark.parametrize("mode", ["RGBA", "P"])
def test_transparent_parts_become_white(tmp_path, mode):
    picture = Image.new("RGBA", (8, 8), (255, 0, 0, 255))
    picture.paste((0, 0, 0, 0), (0, 0, 4, 8))
    picture.convert(mode).save(tmp_path / "a.png")
    x = decode(tmp_path / "a.png", 8)
    assert tuple(x[:, 4, 1]) == WHITE
    assert tuple(x[:, 4, 6]) == RED


@pytest.mark.parametrize("suffix", ["jpg", "png", "webp", "tif"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation_is_undone(tmp_path, orientation, suffix):
    # How a camera stores an upright picture for each orientation: the inverse of the display turn.
    turns = [None, 0, 3, 1, 5, 2, 6, 4]
    stored = quarters((64, 64))
    if turns[orientation - 1] is not None:
        stored = stored.transpose(Image.Transpose(turns[orientation - 1]))
    exif = Image.Exif()
    exif[0x0112] = orientation
    stored.save(tmp_path / f"a.{suffix}", exif=exif)
    assert corners(decode(tmp_path / f"a.{suffix}", 16)) == [0, 1, 2, 3]


@pytest.mark.parametrize("suffix", ["jpg", "png", "webp"])
@pytest.mark.parametrize("exif", [b"MM\x00*\xff\xff\xff\xff", b"MM\x00*\x00", b"nonsense"])
def test_unreadable_exif_does_not_spoil_the_picture(tmp_path, exif, suffix):
    path = tmp_path / f"a.{suffix}"
    quarters().save(path, exif=b"Exif\x00\x00" + exif)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        x, bad, _ = load_images([path], 16)
    assert not bad
    assert corners(x[0]) == [0, 1, 2, 3]


@pytest.mark.parametrize("size", [(60, 30), (30, 60)])
def test_centre_of_a_longer_side_is_cut_out(tmp_path, size):
    path = noise(tmp_path / "a.png", size=size)
    w, h = size[0] // 3, size[1] // 3  # the short side is 10
    whole = Image.open(path).resize((w, h), Image.Resampling.BICUBIC)
    left, top = (w - 10) // 2, (h - 10) // 2
    expected = np.asarray(whole.crop((left, top, left + 10, top + 10))).transpose(2, 0, 1)
    assert np.abs(decode(path, 10).astype(int) - expected).max() <= 2


def test_padding_keeps_all_of_a_picture_between_grey_bars():
    x = square(quarters((64, 32)), 16, fit="pad")
    assert (x[:, :4] == 128).all()
    assert (x[:, 12:] == 128).all()
    assert corners(x[:, 4:12]) == [0, 1, 2, 3]
    tall = square(quarters((32, 64)).convert("L"), 16, channels=1, fit="pad")
    assert tall.shape == (1, 16, 16)
    assert (tall[:, :, :4] == 128).all()
    assert tall[0, 15, 8:12].min() > 200  # the lower right corner is still white


def test_stretching_keeps_all_of_a_picture_in_other_proportions():
    picture = quarters((96, 32))
    assert corners(square(picture, 16, fit="stretch")) == [0, 1, 2, 3]
    expected = np.asarray(picture.resize((16, 16), Image.Resampling.BICUBIC)).transpose(2, 0, 1)
    assert np.abs(square(picture, 16, fit="stretch").astype(int) - expected).max() <= 2


@pytest.mark.parametrize("fit", ["crop", "pad", "stretch"])
def test_a_square_picture_is_the_same_in_every_fit(fit):
    assert (square(quarters((48, 48)), 16, fit=fit) == square(quarters((48, 48)), 16)).all()


def test_unknown_fit_is_refused():
    with pytest.raises(DataError, match="fit must be one of crop, pad, stretch; got 'squeeze'"):
        square(quarters(), 16, fit="squeeze")


def test_large_jpeg_looks_the_same_as_without_the_shortcut(tmp_path):
    stripes = np.add.outer(np.arange(400), np.arange(600)) // 12 % 2 * 255
    Image.fromarray(stripes.astype(np.uint8)).save(tmp_path / "a.jpg", quality=95)
    Image.open(tmp_path / "a.jpg").save(tmp_path / "a.png")
    fast, slow = (decode(tmp_path / name, 100).astype(int) for name in ("a.jpg", "a.png"))
    assert slow.std() > 50
    assert np.abs(fast - slow).mean() < 4


def test_one_pixel_and_thin_images_are_fine(tmp_path):
    for size in ((1, 1), (500, 1)):
        Image.new("RGB", size, RED).save(tmp_path / "a.png")
        assert (decode(tmp_path / "a.png", 6)[0] == 255).all()


# -------------------------------------------------------------------------------------- bad files


def test_every_kind_of_bad_file_is_told_apart(tmp_path):
    good = noise(tmp_path / "good.png")
    noise(tmp_path / "whole.jpg", size=(200, 200))
    (tmp_path / "cut.jpg").write_bytes((tmp_path / "whole.jpg").read_bytes()[:3000])
    (tmp_path / "cut.png").write_bytes(good.read_bytes()[:300])
    (tmp_path / "text.jpg").write_text("no picture")
    (tmp_path / "empty.jpg").touch()
    (tmp_path / "folder.jpg").mkdir()
    Image.fromarray(np.ones((4, 4), np.float32)).save(tmp_path / "float.tif")
    names = ["good.png", "cut.jpg", "cut.png", "text.jpg", "empty.jpg", "folder.jpg", "float.tif"]
    x, bad, _ = load_images([tmp_path / name for name in [*names, "absent.jpg"]], 8)
    assert x.shape == (1, 3, 8, 8)
    assert (x[0] == decode(good, 8)).all()
    assert "truncated" in bad[1]
    assert bad[2]
    assert bad[3] == "not an image"
    assert bad[4] == "an empty file"
    assert bad[5] == "not a file"
    assert "no known range" in bad[6]
    assert bad[7] == "no such file"


@pytest.mark.parametrize("pixels", [1.5, 4])  # Pillow warns of the first and refuses the second
def test_decompression_bombs_are_refused(tmp_path, monkeypatch, pixels):
    Image.new("RGB", (int(100 * pixels), 100)).save(tmp_path / "a.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100 * 100)
    x, bad, _ = load_images([tmp_path / "a.png"], 8)
    assert len(x) == 0
    assert bad[0].startswith("more than 10,000 pixels, refused as a decompression bomb")


def test_postscript_is_not_run(tmp_path):
    Image.new("RGB", (8, 8)).save(tmp_path / "a.eps")
    assert load_images([tmp_path / "a.eps"], 8).bad == {0: "not an image"}


@pytest.mark.parametrize("side", [0, -3, 2.5])
def test_impossible_side_is_refused(tmp_path, side):
    with pytest.raises(DataError, match=rf"image_size must be a whole number .*; got {side}"):
        load_images([noise(tmp_path / "a.png")], side)


def test_folder_lists_images_below_it_by_name_without_hidden_ones(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / ".trash").mkdir()
    for name in ("b.JPG", "sub/a.png", ".hidden.png", ".trash/c.png", "notes.txt"):
        (tmp_path / name).touch()
    assert image_files(tmp_path) == [tmp_path / "b.JPG", tmp_path / "sub/a.png"]


def test_folder_without_images_and_absent_folder_are_refused(tmp_path):
    with pytest.raises(DataError, match=r"holds no images \(\.avif, .*\.webp\)"):
        image_files(tmp_path)
    with pytest.raises(DataError, match=r"image folder .*absent does not exist"):
        image_files(tmp_path / "absent")
