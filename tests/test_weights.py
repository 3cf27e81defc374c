"""Encoders that start from weights: files and folders of all formats, and refusals."""

import json
import time
from pathlib import Path

import numpy as np
import pytest
import timm
import torch
from huggingface_hub import constants
from safetensors.torch import save_file

from rnc.augment import eval_view
from rnc.config import FitConfig
from rnc.data import table_from_arrays
from rnc.encoders import build_encoder, check_encoder
from rnc.model import Regressor
from rnc.training.recipes import build_regressor
from rnc.weights import WeightPixels, pixels_of_weights, published_weights

IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
NAME = "resnet10t"  # the smallest ResNet of timm


@pytest.fixture(scope="module")
def published():
    """A network of timm's with its classifier, as it is published."""
    torch.manual_seed(5)
    return timm.create_model(NAME, num_classes=7)


def features(network, images):
    with torch.no_grad():
        return network.eval()(images)


def same(encoder, published):
    images = torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    pooled = published.forward_head(published.eval().forward_features(images), pre_logits=True)
    return torch.equal(features(encoder, images), pooled)


def image_table(channels=3, n=40):
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (n, channels, 40, 40), dtype=np.uint8)
    return table_from_arrays(x, np.arange(n))


@pytest.mark.parametrize("kind", ["safetensors", "parallel", "folder", "snapshot"])
def test_weights_of_a_file_or_folder_reach_the_encoder(tmp_path, published, kind):
    tensors, path = published.state_dict(), tmp_path / "w.safetensors"
    if kind == "safetensors":
        save_file(tensors, path)
    elif kind == "parallel":
        save_file({f"module.{name}": value for name, value in tensors.items()}, path)
    elif kind == "folder":
        save_file(tensors, tmp_path / "model.safetensors")
        path = tmp_path
    else:
        (inside := tmp_path / "snapshots" / "abc").mkdir(parents=True)
        save_file(tensors, inside / "model.safetensors")
        path = tmp_path
    with torch.no_grad():
        assert same(build_encoder(NAME, (3, 64, 64), weights=path), published)


def test_three_channels_become_one_as_timm_does_it(tmp_path, published):
    save_file(published.state_dict(), tmp_path / "w.safetensors")
    ours = build_encoder(NAME, (1, 64, 64), weights=tmp_path / "w.safetensors")
    overlay = {"file": str(tmp_path / "w.safetensors")}
    theirs = timm.create_model(
        NAME, pretrained=True, num_classes=0, in_chans=1, pretrained_cfg_overlay=overlay
    )
    images = torch.randn(2, 1, 64, 64)
    assert torch.equal(features(ours, images), features(theirs, images))


def test_a_transformer_takes_weights_of_another_image_size(tmp_path):
    name = "vit_tiny_patch16_224"
    save_file(timm.create_model(name).state_dict(), tmp_path / "w.safetensors")
    encoder = build_encoder(name, (3, 64, 64), weights=tmp_path / "w.safetensors")
    assert features(encoder, torch.zeros(2, 3, 64, 64)).shape == (2, 192)


def test_an_encoder_of_ours_starts_from_a_run(tmp_path):
    first = build_regressor(image_table(), FitConfig(encoder="small-cnn", image_size=32))
    first.save(tmp_path)
    second = FitConfig(encoder="small-cnn", image_size=32, weights=str(tmp_path), seed=1)
    model = build_regressor(image_table(), second)
    for name, value in first.encoder.state_dict().items():
        assert torch.equal(model.encoder.state_dict()[name], value)


def test_weights_of_another_network_are_refused(tmp_path, published):
    save_file(published.state_dict(), tmp_path / "w.safetensors")
    with pytest.raises(
        ValueError, match=r"weights of encoder 'resnet18'\. Missing: conv1\.weight, layer1\.1.*tim"
    ):
        build_encoder("resnet18", (3, 64, 64), weights=tmp_path / "w.safetensors")
    larger = {**published.state_dict(), "layer9.weight": torch.zeros(3)}
    save_file(larger, tmp_path / "larger.safetensors")
    with pytest.raises(ValueError, match=r"Missing: none\. Unknown: layer9\.weight\. Other sh"):
        build_encoder(NAME, (3, 64, 64), weights=tmp_path / "larger.safetensors")


class Trap:
    """An object whose pickle touches a file when it is loaded."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (Path.touch, (self.path,))


def test_files_that_are_no_weights_are_refused_and_not_run(tmp_path):
    torch.save({"model": Trap(tmp_path / "touched")}, tmp_path / "w.pth")
    with pytest.raises(ValueError, match=r"w\.pth may be a pickle.* save its state_dict with"):
        build_encoder(NAME, (3, 64, 64), weights=tmp_path / "w.pth")
    assert not (tmp_path / "touched").exists()
    (tmp_path / "w.safetensors").write_bytes(b"cut off")
    with pytest.raises(ValueError, match=r"is no whole .safetensors file"):
        build_encoder(NAME, (3, 64, 64), weights=tmp_path / "w.safetensors")
    with pytest.raises(FileNotFoundError, match=r"folder with model.safetensors; got .*w.pth"):
        check_encoder(NAME, image_size=64, weights=tmp_path)


# ------------------------------------------------------------------------------------ published


def test_published_weights_out_of_reach_are_refused_at_once(monkeypatch, tmp_path):
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("rnc.weights._unreachable", lambda address: "no route to host")
    start = time.monotonic()
    with pytest.raises(RuntimeError, match=r"'resnet18' are not in the cache.*no route.*--weights"):
        check_encoder("resnet18", image_size=64, pretrained=True)
    with pytest.raises(RuntimeError, match=r"resnet18.*--weights"):
        check_encoder("auto", image_size=64, pretrained=True)
    with pytest.raises(ValueError, match="'small-cnn' has no pretrained weights"):
        check_encoder("auto", image_size=28, pretrained=True)
    assert time.monotonic() - start < 20


def test_published_weights_in_the_cache_are_read_without_a_server(monkeypatch, published, tmp_path):
    save_file(published.state_dict(), tmp_path / "model.safetensors")
    found = str(tmp_path / "model.safetensors")
    monkeypatch.setattr("huggingface_hub.try_to_load_from_cache", lambda *names: found)
    monkeypatch.setattr("rnc.weights._unreachable", lambda address: pytest.fail("asked a server"))
    assert published_weights(NAME) == {"pretrained_cfg_overlay": {"file": found}}
    with torch.no_grad():
        assert same(build_encoder(NAME, (3, 64, 64), pretrained=True), published)


# --------------------------------------------------------------------------------- mean and std


def test_pixels_are_those_that_the_weights_were_trained_with(tmp_path, published):
    save_file(published.state_dict(), tmp_path / "model.safetensors")
    config = FitConfig(encoder=NAME, image_size=32, weights=str(tmp_path))
    model = build_regressor(image_table(), config)
    assert (model.augment.mean, model.augment.std) == IMAGENET
    grey = build_regressor(image_table(channels=1), config)
    assert grey.augment.mean == pytest.approx((0.449,))
    said = {"pretrained_cfg": {"mean": [0.1, 0.2, 0.3], "std": [0.4, 0.5, 0.6]}}
    (tmp_path / "config.json").write_text(json.dumps(said))
    assert build_regressor(image_table(), config).augment.mean == (0.1, 0.2, 0.3)
    mine = FitConfig(**{**config.to_json(), "augment_options": {"mean": (0.5,)}})
    assert build_regressor(image_table(), mine).augment.mean == (0.5,)
    assert build_regressor(image_table(), mine).augment.std == (0.4, 0.5, 0.6)
    new = build_regressor(image_table(), FitConfig(encoder=NAME, image_size=32))
    assert (new.augment.mean, new.augment.std) == ((0.5,), (0.5,))


def test_a_saved_model_keeps_them(tmp_path, published):
    save_file(published.state_dict(), tmp_path / "w.safetensors")
    config = FitConfig(encoder=NAME, image_size=32, weights=str(tmp_path / "w.safetensors"))
    table = image_table()
    model = build_regressor(table, config)
    model.save(tmp_path / "run")
    again = Regressor.load(tmp_path / "run")
    assert (again.augment.mean, again.augment.std) == IMAGENET
    views = eval_view(torch.tensor(table.x[:2]), again.augment)
    assert views.mean() == pytest.approx((0.5 - 0.449) / 0.226, abs=0.1)


def test_other_encoders_have_no_statistics():
    assert pixels_of_weights("small-cnn", 3) == WeightPixels()
    known = pixels_of_weights("resnet18", 3)
    assert (known.mean, known.std) == IMAGENET
