"""How grey or non-square files become pixels, and the notes about it."""

import dataclasses

import numpy as np
import pytest
import torch
from PIL import Image

from rnc.augment import eval_view
from rnc.config import FitConfig
from rnc.data import DataError, read_inputs, read_table
from rnc.data.images import square
from rnc.data.inputs import essential
from rnc.data.source import DataSource
from rnc.data.survey import survey
from rnc.run.start import inherit_encoder, read_encoder
from rnc.training.advice import data_warnings
from rnc.training.recipes import build_regressor


def pictures(folder, *, mode="RGB", size=(20, 20), n=20):
    """A table of ages and pictures, all of one mode and size."""
    (folder / "photos").mkdir(parents=True)
    rng = np.random.default_rng(0)
    for i in range(n):
        noise = rng.integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
        Image.fromarray(noise).convert(mode).save(folder / "photos" / f"{i:02}.png")
    table = folder / "t.csv"
    table.write_text("photo,age\n" + "".join(f"{i:02}.png,{i}\n" for i in range(n)))
    return table


def read(table, **options):
    return read_table(table, target="age", images=table.parent / "photos", **options)


# ----------------------------------------------------------------------------------------- fit


@pytest.mark.parametrize("fit", ["crop", "pad", "stretch"])
def test_a_table_and_its_predictions_use_one_fit(tmp_path, fit):
    path = pictures(tmp_path, size=(40, 20))
    table = read(path, image_size=16, fit=fit, cache=tmp_path / "cache")
    assert table.preprocessing == {"channels": 3, "fit": fit, "side": 16}
    with Image.open(tmp_path / "photos" / "00.png") as picture:
        assert (table.x[0] == square(picture, 16, 3, fit)).all()
    inputs = read_inputs(tmp_path / "photos", table.preprocessing, "image", image_size=99)
    assert (inputs.x == table.x).all()
    other = read(path, image_size=99, preprocessing=table.preprocessing)
    assert (other.x == table.x).all()


def test_each_fit_has_a_cache_of_its_own(tmp_path):
    path = pictures(tmp_path, size=(40, 20))
    first = read(path, image_size=16, cache=tmp_path / "cache")
    second = read(path, image_size=16, cache=tmp_path / "cache", fit="pad")
    assert (first.x != second.x).any()
    assert len(list((tmp_path / "cache").glob("*.npy"))) == 2


@pytest.mark.parametrize("fit", ["pad", "stretch"])
def test_the_encoder_sees_all_of_a_picture_that_is_not_cut(tmp_path, fit, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = pictures(tmp_path, size=(40, 20))
    source = DataSource(str(path), target=("age",), images=str(tmp_path / "photos"), fit=fit)
    table = source.read(16)
    assert table.x.shape == (20, 3, 16, 16)
    augment = FitConfig(image_size=16).augmentation("image", 16)
    seen = eval_view(torch.tensor(table.x), augment)
    np.testing.assert_allclose(seen.numpy() * 127.5 + 127.5, table.x, atol=1e-3)


def test_a_cut_of_more_than_a_tenth_is_told_with_the_flag(tmp_path):
    wide = read(pictures(tmp_path / "wide", size=(40, 30)), image_size=8)
    assert data_warnings(wide, FitConfig()) == [
        "100% of the images are not square: --fit crop keeps the middle square and cuts off 25% "
        "of their area, on average. --fit pad or --fit stretch keeps all of it."
    ]
    padded = read(tmp_path / "wide" / "t.csv", image_size=8, fit="pad")
    near = read(pictures(tmp_path / "near", size=(20, 19)), image_size=8)
    assert data_warnings(padded, FitConfig()) == data_warnings(near, FitConfig()) == []


def test_an_unknown_fit_is_refused(tmp_path):
    with pytest.raises(DataError, match="fit must be one of crop, pad, stretch; got 'squeeze'"):
        read(pictures(tmp_path), fit="squeeze")


# ---------------------------------------------------------------------------------------- grey


@pytest.mark.parametrize("mode", ["L", "1", "LA", "I;16"])
def test_grey_files_keep_one_channel(tmp_path, mode):
    table = read(pictures(tmp_path, mode=mode), image_size=8)
    assert table.x.shape == (20, 1, 8, 8)
    assert table.preprocessing["channels"] == 1
    Image.new("RGB", (8, 8), (255, 0, 0)).save(tmp_path / "red.png")
    inputs = read_inputs(tmp_path / "red.png", table.preprocessing, "image")
    assert (inputs.x == 76).all()  # the luminance of red


def test_one_colour_file_among_grey_ones_makes_all_rgb(tmp_path, monkeypatch):
    path = pictures(tmp_path, mode="L")
    Image.new("RGB", (20, 20), (255, 0, 0)).save(tmp_path / "photos" / "07.png")
    monkeypatch.setattr("rnc.data.survey._SURVEYED", 3)  # the file is not among the first looked at
    assert read(path, image_size=8).x.shape == (20, 3, 8, 8)


def test_the_user_may_choose_the_channels(tmp_path):
    assert read(pictures(tmp_path / "a", mode="L"), image_size=8, channels=3).x.shape[1] == 3
    assert read(pictures(tmp_path / "b"), image_size=8, channels=1).x.shape[1] == 1
    with pytest.raises(DataError, match=r"3 channels \(RGB\) or 1 \(grey\); got channels=2"):
        read(tmp_path / "a" / "t.csv", channels=2)


def test_broken_files_do_not_count_in_the_survey(tmp_path):
    pictures(tmp_path, mode="L", n=3)
    files = sorted((tmp_path / "photos").iterdir())
    files[1].write_bytes(b"nothing")
    assert survey(files).grey
    assert not survey(files[1:2]).grey
    assert not survey([tmp_path / "missing.png"]).grey


# ------------------------------------------------------------------------------------ old runs


def test_a_run_of_an_older_version_reads_grey_files_as_rgb(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = pictures(tmp_path, mode="L", size=(40, 20))
    old = {"source": str(path), "target": ["age"], "images": str(tmp_path / "photos")}
    table = DataSource.from_json(old).read(14)
    assert table.x.shape == (20, 3, 16, 16)
    inputs = read_inputs(tmp_path / "photos", {}, "image", image_size=16)
    assert (inputs.x == table.x).all()
    assert DataSource.from_json(DataSource(str(path)).to_json()).channels is None


def test_the_usual_preparation_has_the_digest_of_older_tables(tmp_path):
    path = pictures(tmp_path, size=(40, 20))
    table = read(path, image_size=16)
    assert dataclasses.replace(table, preprocessing={}).digest == table.digest
    grey = dataclasses.replace(table, preprocessing={"channels": 1})
    assert grey.digest != table.digest != read(path, image_size=16, fit="pad").digest
    assert essential({"channels": 3}, "signal") == {"channels": 3}


def test_the_encoder_of_an_older_run_is_taken_for_files(tmp_path):
    path = pictures(tmp_path, mode="L", n=30)
    config = FitConfig(encoder="small-cnn", image_size=14, scheme="probe", device="cpu")
    table = read(path, image_size=16, channels=3)
    older = build_regressor(dataclasses.replace(table, preprocessing={}), config)
    older.save(tmp_path / "run", {"fit": config.to_json()})
    new, source = inherit_encoder(config, DataSource(str(path)), tmp_path / "run")
    assert (source.fit, source.channels, new.image_size) == ("crop", 3, 14)
    weights = read_encoder(tmp_path / "run", build_regressor(table, new), new)
    assert "encoder.layers.0.weight" in weights


# ------------------------------------------------------------------------------- size and crops


def test_crops_and_a_target_that_sounds_like_a_size_are_told(tmp_path):
    table = read(pictures(tmp_path), image_size=8)
    table = dataclasses.replace(table, target_names=("head_circumference_mm",))
    (said,) = data_warnings(table, FitConfig())
    assert said.startswith("Target names that suggest a size: head_circumference_mm. Random")
    assert "--no-crop" in said
    assert data_warnings(table, FitConfig(crop=False)) == []
    assert data_warnings(table, FitConfig(views=0)) == []
    assert data_warnings(dataclasses.replace(table, target_names=("age",)), FitConfig()) == []
