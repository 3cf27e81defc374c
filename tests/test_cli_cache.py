"""The image cache as a user sees it: listed, cleared, and kept below its limit."""

import os
import time

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from rnc.cli import app
from rnc.data import DataError, image_cache
from rnc.data.cache_entries import cache_entries, cache_limit, default_cache
from rnc.data.feature_cache import feature_cache, feature_entries, read_features, write_features
from rnc.data.image_cache import load_images

SIDE = 100  # 30 kB per image


def run(*words):
    result = CliRunner().invoke(app, ["cache", *words], env={"COLUMNS": "200"})
    return result.exit_code, result.output


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(image_cache, "_in_use", set())
    (tmp_path / "photos").mkdir()
    paths = [tmp_path / "photos" / f"{i}.png" for i in range(10)]
    for i, path in enumerate(paths):
        Image.new("RGB", (20, 20), (i, 0, 0)).save(path)
    return paths


def fill(files, *names, hours_ago=()):
    """Caches of these names, 300 kB each, last used so many hours ago; nobody reads them now."""
    for name, hours in zip(names, [*hours_ago, *[0] * len(names)], strict=False):
        load_images(files, SIDE, cache=default_cache() / name)
        then = time.time() - 3600 * hours
        os.utime(default_cache() / f"{name}.json", (then, then))
    image_cache._in_use.clear()


def names():
    return [entry.name for entry in cache_entries(default_cache())]


def test_the_list_says_what_is_there_and_how_much(files):
    fill(files, "faces", "leaves", hours_ago=[72, 5])
    code, said = run()
    assert code == 0
    first, about, second = said.splitlines()[:3]
    assert (first, second) == ("leaves", "faces")
    sizes = "10 images of 3x100x100, 302 kB"
    assert about == f"  {sizes}, last used 5 h ago, from {files[0].parent}"
    assert "3 days ago" in said
    assert f" kB of 20.0 GB in {default_cache()}" in said


def test_an_empty_cache_is_listed_too(files):
    code, said = run()
    assert code == 0
    assert said.startswith("0 kB of 20.0 GB")


def test_clear_deletes_by_name_by_age_and_all(files):
    fill(files, "a", "b", "c", hours_ago=[0, 24 * 40, 0])
    assert run("clear", "--older-than", "30") == (0, "Cleared 1 set of images, 302 kB.\n")
    assert names() == ["c", "a"]
    assert run("clear", "a")[0] == 0
    assert names() == ["c"]
    assert run("clear", "--all")[0] == 0
    assert list(default_cache().iterdir()) == []


def test_clear_asks_what_to_clear(files):
    fill(files, "a")
    assert "names from `rnc cache`, --older-than DAYS, or --all" in run("clear")[1]
    code, said = run("clear", "b")
    assert code == 2
    assert "The cache has no b; it holds a." in said
    assert run("clear", "a", "--all")[0] == 2
    assert names() == ["a"]


def test_a_new_entry_takes_the_place_of_those_used_longest_ago(files, monkeypatch):
    fill(files, "old", "older", "new", hours_ago=[5, 6, 1])
    load_images(files, SIDE, cache=default_cache() / "old")  # used again
    image_cache._in_use.clear()
    monkeypatch.setenv("RNC_CACHE_GB", "0.0007")
    fill(files, "newest")
    assert names() == ["newest", "old"]
    assert len(list(default_cache().glob("*.npy"))) == 2


def test_what_this_process_reads_is_not_deleted(files, monkeypatch):
    monkeypatch.setenv("RNC_CACHE_GB", "0")
    first = load_images(files, SIDE, cache=default_cache() / "first").x
    load_images(files, SIDE, cache=default_cache() / "second")
    assert sorted(names()) == ["first", "second"]
    assert first[:, 0, 0, 0].tolist() == list(range(10))


def test_a_folder_of_the_users_own_has_no_limit(files, tmp_path, monkeypatch):
    monkeypatch.setenv("RNC_CACHE_GB", "0")
    for name in ("first", "second"):
        load_images(files, SIDE, cache=tmp_path / "own" / name)
        image_cache._in_use.clear()
    assert len(cache_entries(tmp_path / "own")) == 2


@pytest.mark.parametrize("text", ["many", "-1", "nan"])
def test_a_limit_that_is_no_size_is_refused(monkeypatch, text):
    monkeypatch.setenv("RNC_CACHE_GB", text)
    with pytest.raises(DataError, match=rf"RNC_CACHE_GB must be a number .* got '{text}'"):
        cache_limit()


def test_other_files_in_the_folder_are_left_alone(files):
    fill(files, "a")
    np.save(default_cache() / "being-written.npy", np.zeros(3))
    (default_cache() / "notes.json").write_text("[]")
    assert run("clear", "--all")[0] == 0
    assert {p.name for p in default_cache().iterdir()} == {"being-written.npy", "notes.json"}


def test_features_of_frozen_encoders_are_listed_and_cleared(files):
    write_features("ab12", {"train": torch.zeros(1000, 250)}, {})
    write_features("cd34", {"train": torch.zeros(1000, 250)}, {})
    os.utime(feature_cache() / "ab12.safetensors", (0, 0))
    assert "Features of frozen encoders: 2 sets, 2 MB of 20.0 GB in" in run()[1]
    assert "Cleared 1 set of features, 1 MB." in run("clear", "--older-than", "30")[1]
    assert [entry.file.stem for entry in feature_entries()] == ["cd34"]
    fill(files, "a")
    assert "features" not in run("clear", "a")[1]
    assert run("clear", "--all")[0] == 0
    assert feature_entries() == []


def test_features_used_longest_ago_make_room(files, monkeypatch):
    monkeypatch.setenv("RNC_CACHE_GB", "0.0025")
    for age, key in enumerate(("new", "old", "older")):
        write_features(key, {"train": torch.zeros(1000, 250)}, {})
        os.utime(feature_cache() / f"{key}.safetensors", (1000 - age, 1000 - age))
    assert read_features("new") is not None  # used now
    write_features("newest", {"train": torch.zeros(1000, 250)}, {})
    assert {entry.file.stem for entry in feature_entries()} == {"new", "newest"}
