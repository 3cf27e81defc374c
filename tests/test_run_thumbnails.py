"""Thumbnails: what a sample looks like when it is small."""

import importlib
import re

import numpy as np
import pytest
import torch

from evaluation_cases import images_of, table_of, untrained, with_config
from report_page import Page, sheets_of
from rnc.analyses.registry import analyse
from rnc.files import read_tensors, write_tensors
from rnc.report import write_report
from rnc.report.sheets import sparklines
from rnc.run import thumbnails as module
from rnc.run.thumbnails import thumbnails
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


def test_the_report_draws_every_channel_that_the_folder_keeps():
    kept = thumbnails(np.random.default_rng(0).normal(size=(5, 9, 80)), np.arange(5))["signals"]
    assert kept.shape[1] == module.SKETCH_CHANNELS
    assert sparklines(kept)["channels"] == module.SKETCH_CHANNELS
    more = np.zeros((5, 6, 64), np.float32)  # such as a later version may keep
    assert sparklines(more)["channels"] == 6


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


# --------------------------------------------------------------------- the gallery of a large run


def gallery_of(path):
    """Samples of the gallery, and column and line on the sheet of those that have a picture."""
    names, page = re.findall(r"<b>(\d+)\.png</b>", path.read_text(encoding="utf-8")), Page(path)
    sheet = page.data["sheets"][0]
    size = np.array([sheet["columns"], sheet["lines"]])
    spots = [
        [float(share) for share in re.findall(r"([\d.]+)%", attributes["style"])[:2]]
        for _, attributes in page.elements
        if attributes.get("aria-label") == "the sample"
    ]
    return [int(name) for name in names], np.rint(np.array(spots) / 100 * (size - 1)).astype(int)


@pytest.mark.parametrize(("n", "most"), [(120, 5), (12_000, 2000)])
def test_every_picture_of_the_gallery_is_there(tmp_path, monkeypatch, n, most):
    module = importlib.import_module("rnc.run.evaluate")  # the function has its name
    if most != module.MOST_POINTS:
        monkeypatch.setattr(module, "MOST_POINTS", most)
    table = images_of(n, side=8)
    run = untrained(tmp_path, table, with_config(image_size=8, encoder="auto"))
    worst = np.argsort(-run.errors[:, 0], kind="stable")[:12]
    assert len(run.rows) == most
    assert not set(worst) <= set(run.rows)  # some of them would have no picture
    pictures, _ = read_tensors(tmp_path / "thumbnails.safetensors")
    assert set(pictures["rows"].tolist()) == {*run.rows.tolist(), *worst.tolist()}
    analyse(run, "pca")
    page = Page(path := write_report([tmp_path]))
    samples, spots = gallery_of(path)
    assert samples == table.rows("test")[worst].tolist()
    assert len(spots) == 12
    (sheet,) = sheets_of(path)
    for sample, (column, line) in zip(samples, spots, strict=True):
        shown = sheet[8 * line : 8 * line + 8, 8 * column : 8 * column + 8]
        np.testing.assert_array_equal(shown, table.x[sample].transpose(1, 2, 0))
    places = page.kind("map")[0]["points"]
    assert len(places) == most
    assert all(page.data["runs"][0]["looks"][place] >= 0 for place in places)


def test_every_signal_of_the_gallery_is_there(tmp_path, monkeypatch):
    module = importlib.import_module("rnc.run.evaluate")
    monkeypatch.setattr(module, "MOST_POINTS", 3)
    run = untrained(tmp_path, signals(90), with_config(encoder="auto"))
    assert len(run.errors) > 12
    page = Page(write_report([tmp_path]))
    assert sum(tag == "polyline" for tag, _ in page.elements) == 12 * 2
    small = thumbnails(run.table.x, run.table.rows("test"))["signals"]
    worst = np.argsort(-run.errors[:, 0], kind="stable")[:12]
    pictures, _ = read_tensors(tmp_path / "thumbnails.safetensors")
    kept = pictures["rows"].numpy()
    assert set(worst) <= set(kept)
    np.testing.assert_array_equal(pictures["signals"], small[kept])


def test_a_run_that_kept_fewer_pictures_still_opens(tmp_path):
    """As those of earlier versions did: pictures of the rows that have features, no others."""
    run = untrained(tmp_path, images_of(120, side=8), with_config(image_size=8, encoder="auto"))
    pictures, _ = read_tensors(tmp_path / "thumbnails.safetensors")
    worst = np.argsort(-run.errors[:, 0], kind="stable")[:12]
    kept = np.union1d(worst[:4], np.setdiff1d(np.arange(40), worst)[:6])
    old = {"rows": torch.from_numpy(kept), "images": pictures["images"][kept]}
    write_tensors(tmp_path / "thumbnails.safetensors", old)
    samples, spots = gallery_of(write_report([tmp_path]))
    assert (len(samples), len(spots)) == (12, 4)
    (tmp_path / "thumbnails.safetensors").unlink()
    assert "Worst errors" in Page(write_report([tmp_path])).text
