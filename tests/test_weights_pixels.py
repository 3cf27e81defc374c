"""Images as pretrained weights know them: size, crop, filter, mean, std; and their licences."""

import json
from pathlib import Path

import numpy as np
import pytest
import timm
import torch
from PIL import Image
from safetensors.torch import save_file
from timm.data import create_transform, resolve_model_data_config

import rnc
from rnc.augment import eval_view, train_views
from rnc.augment.configs import ImageAugment
from rnc.config import FitConfig
from rnc.data import table_from_arrays
from rnc.data.images import decode
from rnc.data.source import DataSource
from rnc.encoders import build_encoder
from rnc.run.folder import RunFolder
from rnc.run.from_weights import stored_pixels, suit_weights, weight_words
from rnc.run.start import inherit_encoder, read_encoder
from rnc.training.recipes import build_regressor
from rnc.weights import WeightPixels, about_weights, named_encoder, pixels_of_weights

NAME = "resnet10t"


@pytest.fixture(scope="module")
def network():
    torch.manual_seed(5)
    return timm.create_model(NAME, num_classes=3)


def hub_folder(folder: Path, network, **said) -> Path:
    """A folder as the hub has it, whose config.json says this about the pixels."""
    folder.mkdir(exist_ok=True)
    save_file(network.state_dict(), folder / "model.safetensors")
    about = {
        "architecture": NAME,
        "num_classes": 3,
        "pretrained_cfg": {
            "input_size": [3, 48, 48],
            "crop_pct": 0.9,
            "interpolation": "bilinear",
            "mean": [0.1, 0.2, 0.3],
            "std": [0.4, 0.5, 0.6],
            "license": "cc-by-nc-4.0",
        },
    }
    about["pretrained_cfg"] |= said
    (folder / "config.json").write_text(json.dumps(about))
    return folder


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Square photos of 90 pixels, and a table of their brightness."""
    folder, rng = tmp_path_factory.mktemp("photos"), np.random.default_rng(0)
    lines = ["file,light"]
    for i in range(12):
        noise = rng.integers(0, 60, (90, 90, 3)) + 15 * i
        Image.fromarray(noise.astype(np.uint8)).save(folder / f"{i}.png")
        lines.append(f"{i}.png,{15 * i}")
    (folder / "table.csv").write_text("\n".join(lines) + "\n")
    return folder


# ------------------------------------------------------------------------------ what is known


def test_timm_says_what_pixels_its_weights_know() -> None:
    small = pixels_of_weights("vit_small_patch14_dinov2", 3)
    assert (small.size, small.share, small.interpolation) == (518, 1.0, "bicubic")
    assert small.short_side(224) == 224
    assert pixels_of_weights("resnet18", 3).short_side(224) == 235
    assert WeightPixels().short_side(224) is None


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
@pytest.mark.parametrize("share", [0.875, 0.95, 1.0])
def test_a_file_becomes_what_timm_makes_of_it(tmp_path, network, interpolation, share, photos):
    folder = hub_folder(tmp_path, network, crop_pct=share, interpolation=interpolation)
    config = suit_weights(FitConfig(weights=str(folder)))
    assert (config.encoder, config.image_size) == (NAME, 48)
    said = json.loads((folder / "config.json").read_text())["pretrained_cfg"]
    model = timm.create_model(NAME, pretrained_cfg=said, pretrained=False)
    theirs = create_transform(**resolve_model_data_config(model), is_training=False)
    decoding = stored_pixels(config, "crop")
    pixels = decode(photos / "3.png", decoding["side"], resample=decoding["resample"])
    augment = build_regressor(table_from_arrays(np.stack([pixels] * 20), np.arange(20)), config)
    ours = eval_view(torch.tensor(pixels[None]), augment.augment)[0]
    with Image.open(photos / "3.png") as picture:
        torch.testing.assert_close(ours, theirs(picture), atol=0.02, rtol=0)  # two grey levels


def test_without_weights_nothing_is_decided() -> None:
    config = FitConfig(encoder=NAME)
    assert suit_weights(config) is config
    assert stored_pixels(config, "crop") == {}
    table = table_from_arrays(np.zeros((20, 3, 300, 300), np.uint8), np.arange(20))
    augment = build_regressor(table, config).augment
    assert (augment.short_side, augment.interpolation) == (None, "bilinear")


def test_what_the_user_chose_stays(tmp_path, network) -> None:
    folder = hub_folder(tmp_path, network)
    config = suit_weights(FitConfig(weights=str(folder), image_size=32), ["image_size"])
    assert config.image_size == 32
    assert stored_pixels(config, "crop") == {"side": 35, "resample": "bilinear"}
    assert stored_pixels(config, "pad") == {"side": None, "resample": "bilinear"}
    options = {"interpolation": "bicubic", "short_side": 40}
    config = FitConfig(**{**config.to_json(), "augment_options": options})
    table = table_from_arrays(np.zeros((20, 3, 50, 50), np.uint8), np.arange(20))
    augment = build_regressor(table, config).augment
    assert (augment.interpolation, augment.short_side) == ("bicubic", 40)


@pytest.mark.parametrize("interpolation", ["BILINEAR", "BICUBIC"])
@pytest.mark.parametrize("side", [20, 48, 130])
def test_views_are_scaled_as_pillow_scales(photos, interpolation, side) -> None:
    with Image.open(photos / "5.png") as picture:
        expected = picture.resize((side, side), Image.Resampling[interpolation])
        images = torch.tensor(np.asarray(picture)).permute(2, 0, 1)[None]
    config = ImageAugment(
        side, mean=(0.0,), std=(1.0,), short_side=side, interpolation=interpolation.lower()
    )
    ours = 255 * eval_view(images, config)[0].permute(1, 2, 0)
    # Pillow rounds and clips after each of its two passes.
    difference = np.abs(ours.numpy() - np.asarray(expected, dtype=float))
    assert difference.max() < 2.5
    assert difference.mean() < 0.5
    views = train_views(images, config, 2)
    assert 0 <= views.min() < views.max() <= 1


# ------------------------------------------------------------------------------------- a run


def test_a_run_keeps_them_from_training_to_prediction(tmp_path, network, photos) -> None:
    weights = hub_folder(tmp_path / "hub", network)
    run = rnc.fit(
        photos / "table.csv",
        target="light",
        images=photos,
        fractions=(0.5, 0.25, 0.25),
        weights=str(weights),
        freeze=True,
        preset="quick",
        epochs=1,
        frozen_views=1,
        device="cpu",
        out=tmp_path / "run",
    )
    content = json.loads((tmp_path / "run" / "config.json").read_text())
    assert content["weights"]["license"] == "cc-by-nc-4.0"
    assert content["weights"]["source"] == str(weights)
    assert content["fit"]["image_size"] == 48
    assert content["model"]["preprocessing"] == {
        **{"channels": 3, "fit": "crop", "side": 53, "resample": "bilinear"}
    }
    assert "cc-by-nc-4.0" in (tmp_path / "run" / "report.html").read_text()
    model = rnc.load(tmp_path / "run")
    pixels = decode(photos / "7.png", 53, resample="bilinear")
    assert np.array_equal(model.prepare([photos / "7.png"]).x[0], pixels)
    again = RunFolder(tmp_path / "run").read_table()
    assert np.array_equal(again.x[list(again.names).index("7.png")], pixels)
    assert model.predict(photos / "7.png").shape == (1, 1)
    source = DataSource(str(photos / "table.csv"), target=("light",), images=str(photos))
    with pytest.raises(ValueError, match=r"has a frozen encoder with a projection, which another"):
        read_encoder(tmp_path / "run", model, FitConfig())
    new, _ = inherit_encoder(FitConfig(), source, tmp_path / "run")
    assert new.augment_options["short_side"] == 53
    assert stored_pixels(new, "crop") == {"side": 53}
    network_of_another = timm.create_model(NAME, num_classes=3)
    hub_folder(weights, network_of_another)
    with pytest.raises(ValueError, match=r"frozen encoder of .* have changed since it was st"):
        list(rnc.run.fit.resume_run(run.path))


def test_decoded_files_are_kept_by_their_filter(tmp_path, photos, monkeypatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    source = DataSource(str(photos / "table.csv"), target=("light",), images=str(photos))
    usual = source.read(48)
    other = source.read(48, resample="bilinear")
    assert usual.x.shape == other.x.shape == (12, 3, 55, 55)
    assert not np.array_equal(usual.x, other.x)
    assert np.array_equal(source.read(48).x, usual.x)
    assert "resample" not in usual.preprocessing


# ----------------------------------------------------------------------------- whose they are


def test_licences_are_named_or_said_to_be_unknown(tmp_path, network) -> None:
    folder = hub_folder(tmp_path / "hub", network)
    assert about_weights(NAME, folder)["license"] == "cc-by-nc-4.0"
    hub_folder(folder, network, license=None)
    assert about_weights(NAME, folder)["license"] == "unknown"
    (folder / "README.md").write_text("---\ntags:\n- timm\nlicense: mit\n---\nlicense: no\n")
    assert about_weights(NAME, folder)["license"] == "mit"
    (folder / "README.md").write_text("# A model\nlicense: mit\n")
    assert about_weights(NAME, folder)["license"] == "unknown"
    assert about_weights("resnet18") == {"source": "timm resnet18.a1_in1k", "license": "apache-2.0"}
    config = FitConfig(encoder="resnet18", pretrained=True)
    assert weight_words(config) == "Weights: timm resnet18.a1_in1k, licence: apache-2.0."
    assert weight_words(FitConfig()) is None


def test_a_folder_names_its_encoder(tmp_path, network) -> None:
    folder = hub_folder(tmp_path, network)
    assert named_encoder(folder) == NAME
    with pytest.raises(ValueError, match=r"Its config\.json names --encoder resnet10t\."):
        build_encoder("resnet18", (3, 48, 48), weights=folder)
    (folder / "config.json").write_text(json.dumps({"architectures": ["Dinov2Model"]}))
    assert named_encoder(folder) is None
    with pytest.raises(ValueError, match=r"names of the library transformers.*under timm/\."):
        build_encoder("resnet18", (3, 48, 48), weights=folder)


def test_a_network_with_further_arguments_is_refused(tmp_path, network) -> None:
    folder = hub_folder(tmp_path, network)
    content = json.loads((folder / "config.json").read_text())
    content["model_args"] = {"img_size": 48, "global_pool": "max"}
    (folder / "config.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match=r"further arguments \(global_pool='max'\).*encoder= from"):
        build_encoder(NAME, (3, 48, 48), weights=folder)
