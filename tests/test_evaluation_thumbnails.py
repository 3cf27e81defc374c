"""Thumbnails: what a sample looks like when it is small."""

import numpy as np
import pytest
import torch

from evaluation_cases import images_of, table_of, untrained, with_config
from rnc.evaluation import thumbnails as module
from rnc.evaluation.thumbnails import thumbnails
from rnc.files import read_tensors
from training_cases import signals


def test_an_image_is_averaged_over_areas():
    x = np.random.default_rng(0).integers(0, 256, (5, 3, 96, 96), dtype=np.uint8)
    small = thumbnails(x, np.array([4, 0]))["images"]
    assert small.dtype == np.uint8
    assert small.shape == (2, 3, 48, 48)
    areas = x[[4, 0]].reshape(2, 3, 48, 2, 48, 2).mean(axis=(3, 5))
    np.testing.assert_allclose(small, areas, atol=0.5)


def test_the_middle_square_keeps_the_aspect():
    x = np.zeros((1, 1, 40, 61), np.uint8)
    x[:, :, :, 10:50] = 200
    small = thumbnails(x, np.array([0]))["images"]
    assert small.shape == (1, 1, 40, 40)  # smaller ones are not blown up
    assert (small == 200).all()
    x = np.zeros((1, 1, 200, 100), np.uint8)
    x[:, :, 50:150] = 200
    assert (thumbnails(x, np.array([0]))["images"] == 200).all()


def test_a_long_signal_keeps_its_peaks():
    x = np.zeros((2, 5, 6400), np.float32)
    x[0, 2, 3333], x[0, 2, 3350] = 7.0, -4.0
    small = thumbnails(x, np.array([0]))["signals"]
    assert small.dtype == np.float32
    assert small.shape == (1, 3, 64)
    peaks = small[0, 2].nonzero()[0]
    assert small[0, 2, peaks].tolist() == [7.0, -4.0]  # in the order they came in
    assert peaks.tolist() == [32, 33]
    assert not small[0, :2].any()


@pytest.mark.parametrize("length", [1, 2, 40, 64, 65, 100])
def test_a_short_signal_is_a_line_of_the_same_range(length):
    x = np.linspace(3, 9, length, dtype=np.float32)[None, None]
    small = thumbnails(x, np.array([0]))["signals"]
    assert small.shape == (1, 1, 64)
    assert small.min() == pytest.approx(3)
    assert small.max() == pytest.approx(9 if length > 1 else 3)
    assert (np.diff(small[0, 0]) >= 0).all()


def test_chunks_make_no_difference(monkeypatch):
    x = np.random.default_rng(0).normal(size=(20, 2, 300)).astype(np.float32)
    whole = thumbnails(x, np.arange(20))["signals"]
    monkeypatch.setattr(module, "_CHUNK", 7)
    np.testing.assert_array_equal(thumbnails(x, np.arange(20))["signals"], whole)


def test_every_evaluation_keeps_pictures_of_the_rows_that_have_features(tmp_path):
    table = images_of(side=20)
    untrained(tmp_path / "images", table, with_config(image_size=20, encoder="auto"))
    pictures, _ = read_tensors(tmp_path / "images" / "thumbnails.safetensors")
    features, _ = read_tensors(tmp_path / "images" / "features.safetensors")
    assert torch.equal(pictures["rows"], features["rows"])
    assert pictures["rows"].dtype == torch.int64
    np.testing.assert_array_equal(pictures["images"], table.x[table.rows("test")])
    untrained(tmp_path / "signals", signals(), with_config(encoder="auto"))
    pictures, _ = read_tensors(tmp_path / "signals" / "thumbnails.safetensors")
    assert set(pictures) == {"rows", "signals"}
    assert pictures["signals"].shape == (12, 2, 64)
    untrained(tmp_path / "table", table_of())
    assert not (tmp_path / "table" / "thumbnails.safetensors").exists()
