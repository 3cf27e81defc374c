"""The cache of decoded images: what is decoded again, and what a killed run leaves."""

import hashlib
import json
import os
import subprocess
import sys
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from PIL import Image

from rnc.data import image_cache, images, stamps
from rnc.data.errors import DataError
from rnc.data.image_cache import load_images
from rnc.data.images import decode


def noise(path, seed=0, size=(20, 20)):
    pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path)
    return path


@pytest.fixture
def files(tmp_path):
    return [noise(tmp_path / f"{i}.png", seed=i) for i in range(40)]


@pytest.fixture
def decoded(monkeypatch):
    """Names of the files that are decoded from here on."""
    names = []

    def counting(file, side, channels, fit, resample):
        names.append(file.name)
        return decode(file, side, channels, fit, resample)

    monkeypatch.setattr(images, "decode", counting)
    return names


def touch(path, seed):
    """Other content of the same length, one second later."""
    before = path.stat()
    Image.fromarray(np.full((20, 20, 3), seed, np.uint8)).save(path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 10**9))


def test_second_start_decodes_nothing_and_maps_the_same_pixels(files, tmp_path, decoded):
    first = load_images(files, 8, cache=tmp_path / "cache" / "faces")
    assert len(decoded) == 40
    second = load_images(files, 8, cache=tmp_path / "cache" / "faces")
    assert len(decoded) == 40
    assert isinstance(second.x, np.memmap)
    assert (second.x == first.x).all()
    assert (second.x == load_images(files, 8).x).all()
    with pytest.raises(ValueError, match="read-only"):
        second.x[0] = 0


def test_only_changed_and_added_files_are_decoded_anew(files, tmp_path, decoded):
    cache = tmp_path / "cache" / "faces"
    load_images(files[:30], 8, cache=cache)
    decoded.clear()
    touch(files[3], seed=99)
    x, *_ = load_images(files[::-1], 8, cache=cache)
    assert sorted(decoded) == sorted(["3.png", *(f"{i}.png" for i in range(30, 40))])
    assert (x == load_images(files[::-1], 8).x).all()
    assert (x[36] == 99).all()


@pytest.fixture
def long_ago(monkeypatch):
    """All files are old enough for their times to be believed."""
    monkeypatch.setattr(stamps, "_COARSE", 0)


@pytest.mark.parametrize("believed", [True, False])
def test_the_content_of_a_file_decides_not_its_times(
    files, tmp_path, decoded, monkeypatch, believed
):
    if believed:
        monkeypatch.setattr(stamps, "_COARSE", 0)
    cache = tmp_path / "cache" / "faces"
    load_images(files, 8, cache=cache)
    decoded.clear()
    other = noise(tmp_path / "other.bmp", seed=7)
    for picture, content in ((files[0], files[5].read_bytes()), (files[1], other.read_bytes())):
        status = picture.stat()
        size = max(status.st_size, len(content))  # the same length and time, as of `cp -p`
        picture.write_bytes(picture.read_bytes().ljust(size, b" "))
        load_images(files, 8, cache=cache)
        decoded.clear()
        picture.write_bytes(content.ljust(size, b" "))
        os.utime(picture, ns=(status.st_atime_ns, status.st_mtime_ns))
        found = load_images(files, 8, cache=cache).x.tolist()
        is_copy = picture.read_bytes() == files[5].read_bytes()  # whose pixels are known
        assert decoded == ([] if is_copy else [picture.name])
        assert found == load_images(files, 8).x.tolist()
        decoded.clear()
    os.utime(files[2])  # another time, the same content
    load_images(files, 8, cache=cache)
    assert decoded == []


def test_files_that_did_not_change_are_not_read_again(files, tmp_path, long_ago, monkeypatch):
    cache = tmp_path / "cache" / "faces"
    load_images(files, 8, cache=cache)
    read = []
    digests = stamps.digests_of
    monkeypatch.setattr(stamps, "digests_of", lambda some: read.extend(some) or digests(some))
    load_images(files, 8, cache=cache)
    assert read == []
    os.utime(files[2])
    load_images(files, 8, cache=cache)
    load_images(files, 8, cache=cache)
    assert read == [str(files[2])]


def test_a_cache_of_an_older_version_is_made_anew(files, tmp_path, decoded):
    cache = tmp_path / "cache" / "faces"
    good = load_images(files, 8, cache=cache).x.copy()
    path = cache.parent / "faces.json"
    manifest = json.loads(path.read_text())
    manifest["files"] = [stamp[:3] for stamp in manifest["files"]]
    path.write_text(json.dumps(manifest))
    decoded.clear()
    assert (load_images(files, 8, cache=cache).x == good).all()
    assert len(decoded) == 40


def test_other_side_channels_or_version_decode_everything(files, tmp_path, decoded, monkeypatch):
    cache = tmp_path / "cache" / "faces"
    for side, channels in ((8, 3), (9, 3), (9, 1)):
        decoded.clear()
        assert load_images(files, side, channels=channels, cache=cache).x.shape == (
            (40, channels, side, side)
        )
        assert len(decoded) == 40
    decoded.clear()
    monkeypatch.setattr(image_cache, "_VERSION", image_cache._VERSION + 1)
    load_images(files, 9, channels=1, cache=cache)
    assert len(decoded) == 40


def test_replaced_pixels_are_removed_and_still_readable_by_who_has_them(files, tmp_path):
    cache = tmp_path / "cache" / "faces"
    old = load_images(files, 8, cache=cache).x
    before = old.copy()
    load_images(files[:5], 8, cache=cache)
    assert len(list(cache.parent.glob("*.npy"))) == 1
    assert (old == before).all()


def test_pixels_of_a_killed_run_are_removed_after_a_day(files, tmp_path):
    cache = tmp_path / "cache" / "faces"
    cache.parent.mkdir()
    killed, busy, other = (
        cache.parent / name for name in ("faces.dead.npy", "faces.busy.npy", "faces2.dead.npy")
    )
    for path in (killed, busy, other):
        path.touch()
    for path in (killed, other):
        os.utime(path, (0, 0))
    load_images(files, 8, cache=cache)
    assert not killed.exists()
    assert busy.exists()
    assert other.exists()


@pytest.mark.parametrize("damage", ["pixels gone", "pixels cut", "no json", "other json"])
def test_damaged_cache_is_built_anew(files, tmp_path, decoded, damage):
    cache = tmp_path / "cache" / "faces"
    good = load_images(files, 8, cache=cache).x.copy()
    (pixels,) = cache.parent.glob("*.npy")
    manifest = cache.parent / "faces.json"
    if damage == "pixels gone":
        pixels.unlink()
    elif damage == "pixels cut":
        pixels.write_bytes(pixels.read_bytes()[:500])
    else:
        manifest.write_text("{" if damage == "no json" else "[1]")
    decoded.clear()
    assert (load_images(files, 8, cache=cache).x == good).all()
    assert len(decoded) == 40


def test_bad_files_are_remembered_until_they_change(files, tmp_path, decoded):
    cache = tmp_path / "cache" / "faces"
    absent = tmp_path / "absent.png"
    files[7].write_text("no picture")
    wanted = [*files, absent]
    first = load_images(wanted, 8, cache=cache)
    assert first.bad == {7: "not an image", 40: "no such file"}
    assert len(first.x) == 39
    decoded.clear()
    second = load_images(wanted, 8, cache=cache)
    assert second.bad == first.bad
    assert decoded == []
    noise(files[7], seed=101)
    noise(absent, seed=102)
    third = load_images(wanted, 8, cache=cache)
    assert third.bad == {}
    assert decoded == ["7.png", "absent.png"]
    assert (third.x == load_images(wanted, 8).x).all()


def test_cache_of_bad_files_only_is_empty(tmp_path):
    for _ in range(2):
        x, bad, _ = load_images([tmp_path / "absent.png"], 8, cache=tmp_path / "c" / "faces")
        assert x.shape == (0, 3, 8, 8)
        assert bad == {0: "no such file"}


@pytest.mark.parametrize("when", ["pixels", "manifest"])
def test_full_disk_leaves_the_old_cache_whole(files, tmp_path, monkeypatch, when):
    cache = tmp_path / "cache" / "faces"
    old = load_images(files[:9], 8, cache=cache).x.copy()
    before = sorted(path.name for path in cache.parent.iterdir())

    def full(*arguments):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(*((os, "fsync") if when == "pixels" else (type(cache), "replace")), full)
        with pytest.raises(
            DataError, match=r"faces cannot be written \(.*No space left.*make room"
        ):
            load_images(files, 8, cache=cache)
    assert sorted(path.name for path in cache.parent.iterdir()) == before
    assert (load_images(files[:9], 8, cache=cache).x == old).all()


def test_two_processes_may_build_at_once(files, tmp_path):
    script = (
        "import sys; from pathlib import Path; from rnc.data.image_cache import load_images\n"
        "files = sorted(Path(sys.argv[1]).glob('*.png'))[:int(sys.argv[2])]\n"
        "for _ in range(15):\n"
        "    x = load_images(files, 8, cache=Path(sys.argv[1]) / 'cache' / 'faces').x\n"
        "    assert (x == load_images(files, 8).x).all()\n"
    )
    runs = [
        subprocess.Popen([sys.executable, "-c", script, str(tmp_path), count])
        for count in ("40", "25")  # they want different files, so each undoes the other's cache
    ]
    assert [run.wait(timeout=100) for run in runs] == [0, 0]
    manifest = json.loads((tmp_path / "cache" / "faces.json").read_text())
    assert (tmp_path / "cache" / manifest["pixels"]).exists()
    assert not list((tmp_path / "cache").glob("faces.*.json"))


def test_two_that_want_the_same_at_once_decode_it_once(files, tmp_path, decoded, monkeypatch):
    counted, start = images.decode, threading.Barrier(2)

    def slowly(*args):
        time.sleep(0.01)
        return counted(*args)

    def load(_):
        start.wait()
        return load_images(files, 8, cache=tmp_path / "new" / "faces").x

    monkeypatch.setattr(images, "decode", slowly)
    with ThreadPoolExecutor(2) as pool, warnings.catch_warnings():
        first, second = pool.map(load, range(2))
    assert sorted(decoded) == sorted(file.name for file in files)
    assert (first == second).all()
    assert sorted(path.suffix for path in (tmp_path / "new").iterdir()) == [".json", ".npy"]


def test_progress_bar_appears_only_when_asked_for(files, capsys):
    load_images(files, 8)
    assert capsys.readouterr().err == ""
    load_images(files, 8, progress=True)
    shown = capsys.readouterr()
    assert "Decoding images" in shown.err
    assert "40/40" in shown.err
    assert shown.out == ""


def test_hashes_of_many_files_are_in_their_order(tmp_path):
    files = [tmp_path / f"{i}" for i in range(150)]  # more than two tasks of a thread
    for i, file in enumerate(files):
        file.write_bytes(b"%d" % i)
    wanted = [hashlib.blake2b(b"%d" % i, digest_size=16).hexdigest() for i in range(150)]
    assert stamps.digests_of([*files, tmp_path / "absent"]) == [*wanted, ""]
