"""Reading and checking copies of SkyFinder."""

import re

import numpy as np
import pandas as pd
import pytest

import dataset_copies as copies
from dataset_copies import skyfinder, texts
from rnc.data import DataError
from rnc.data.datasets.skyfinder import SKYFINDER, read
from rnc.data.splits import SPLITS

CSV = "complete_table_with_mcr.csv"


def counts(table):
    return [len(table.rows(name)) for name in SPLITS]


def change_csv(root, change):
    frame = pd.read_csv(root / CSV)
    change(frame).to_csv(root / CSV, index=False)


def clock_of(table):
    return [name.split("_")[1][:4] for name in table.names]


def test_image_nearest_to_eleven_is_taken_for_each_camera_and_day(tmp_path):
    table = read(skyfinder(tmp_path), image_size=16)
    assert table.x.shape == (45, 3, 16, 16)
    assert table.target_names == ("temperature",)
    assert sorted(set(table.subgroup["camera"].tolist())) == [65, 75, 90]
    # Where the temperature at 10:50 is unknown, 11:20 is the nearest that has one.
    assert clock_of(table) == ["1120", *["1050"] * 14] * 3
    assert table.y[:2, 0] == pytest.approx([-15 + 1.1, -13 + 1.0])


def test_rows_without_temperature_and_cameras_without_images_are_listed(tmp_path):
    table = read(skyfinder(tmp_path), image_size=8)
    told = {one.name: one.reason for one in table.skipped}
    assert told["65/20130105_105031.jpg"] == "TempM is -9999, which means unknown"
    assert told["90/20130105_105031.jpg"] == "TempM is -999, which means unknown"
    assert "75/20130105_105031.jpg" in told
    assert told["camera 8887"].endswith("images/8887; 8 rows left out")
    assert len(told) == 4


def test_equally_near_images_give_the_earlier(tmp_path):
    root = skyfinder(tmp_path)
    assert set(clock_of(read(root, image_size=8, hour=11 + 5 / 60))) == {"1050", "1120"}
    assert clock_of(read(root, image_size=8, hour=11 + 5 / 60)).count("1050") == 42


def test_hour_none_takes_all_images(tmp_path):
    table = read(skyfinder(tmp_path), image_size=8, hour=None)
    assert len(table) == 3 * 15 * 4 - 3


def test_within_minutes_leaves_out_days_without_a_near_image(tmp_path):
    root = skyfinder(tmp_path)
    assert len(read(root, image_size=8, within_minutes=15)) == 42
    with pytest.raises(DataError, match=r"no images are left within 5 minutes of 11 o'clock"):
        read(root, image_size=8, within_minutes=5)


def test_solar_clock_takes_the_table_for_utc(tmp_path):
    # At 90 degrees west, 18:00 UTC is noon; 11:20 UTC is before sunrise.
    table = read(skyfinder(tmp_path), image_size=8, clock="solar")
    assert set(clock_of(table)) == {"1800"}


def test_cameras_choose_and_unknown_ones_are_listed(tmp_path):
    root = skyfinder(tmp_path)
    table = read(root, image_size=8, cameras=[75])
    assert set(table.subgroup["camera"].tolist()) == {75}
    assert len(table) == 15
    with pytest.raises(DataError, match=r"have no camera 8887; they have 65, 75, 90\."):
        read(root, cameras=[65, 8887])


def test_split_by_image_has_the_published_shares_and_by_camera_keeps_cameras_apart(tmp_path):
    root = skyfinder(tmp_path)
    assert counts(read(root, image_size=8)) == [36, 5, 4]
    table = read(root, image_size=8, split="camera")
    cameras = [set(table.subgroup["camera"][table.rows(name)].tolist()) for name in SPLITS]
    assert [len(one) for one in cameras] == [1, 1, 1]
    assert len(set.union(*cameras)) == 3
    splits = [read(root, image_size=8, split_seed=seed).split.tolist() for seed in (0, 0, 1)]
    assert splits[0] == splits[1] != splits[2]


def test_published_counts_come_out_of_as_many_rows():
    from rnc.data.datasets.skyfinder import _COUNTS
    from rnc.data.splits import make_split

    y = np.random.default_rng(0).normal(15, 10, (_COUNTS["images"], 1))
    fractions = [_COUNTS[part] / _COUNTS["images"] for part in SPLITS]
    split = make_split(y, fractions=fractions)
    assert [int((split == part).sum()) for part in SPLITS] == [28_373, 3_522, 3_522]


def test_missing_and_truncated_images_are_refused_found_and_skipped_on_request(tmp_path):
    root = skyfinder(tmp_path)
    (root / "images" / "65" / "20130107_105031.jpg").unlink()
    copies.cut(root / "images" / "90" / "20130108_105031.jpg")
    with pytest.raises(DataError, match=r"2 of 45 images cannot be used:(.|\n)*skip_bad=True"):
        read(root, image_size=8)
    table = read(root, image_size=8, skip_bad=True)
    assert len(table) == 43
    errors = texts(SKYFINDER.check(root), "error")
    assert errors[0].startswith("1 of 177 images are missing")
    assert "1 of 177 images are broken: 90/20130108_105031.jpg (" in errors[1]


def test_check_counts_rows_cameras_and_images_at_eleven(tmp_path):
    found = list(SKYFINDER.check(skyfinder(tmp_path)))
    assert texts(found, "error") == []
    warnings = texts(found, "warning")
    assert f"3 rows of {CSV} have no temperature and are left out." in warnings
    assert any("camera 8887: left out" in text for text in warnings)
    assert "177 rows with a temperature and a camera folder; published: 94,468." in warnings
    assert "45 images nearest to 11 o'clock; published: 35,417." in warnings
    assert "3 cameras; published: 44." in warnings
    assert len(warnings) == 5
    assert "temperature is -13.9 to 14 C, within the published -20 to 49." in texts(found, "ok")
    assert "Hour and Min are of the same clock as the file names." in texts(found, "ok")


def test_check_finds_temperatures_in_another_unit_and_another_clock(tmp_path):
    root = skyfinder(tmp_path)
    change_csv(root, lambda f: f.assign(TempM=f["TempM"] * 1.8 + 50, Hour=(f["Hour"] + 5) % 24))
    warnings = texts(SKYFINDER.check(root), "warning")
    assert any(re.search(r"published: -20 to 49\. \d+ of 45 rows lie outside", w) for w in warnings)
    assert any("differ from the time in the file name in 177 of 177 rows" in w for w in warnings)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: f.drop(columns="TempM"), r"has no column 'TempM'.*Did you mean 'TempI'"),
        (lambda f: f.assign(TempM="warm"), r"row 2: TempM is 'warm', expected a number"),
        (lambda f: f.assign(Month=13), r"row 2: Year Month Day Hour Min is 2013 13 5 9 30, which"),
        (
            lambda f: f.assign(CamId=1),
            r"looked for a folder of images per CamId; found 65/, 75/, 90/",
        ),
    ],
)
def test_table_of_another_version_is_refused_and_found(tmp_path, change, message):
    root = skyfinder(tmp_path)
    change_csv(root, change)
    with pytest.raises(DataError, match=message):
        read(root, image_size=8)
    [error] = texts(SKYFINDER.check(root), "error")
    assert re.search(message, error)


def test_wrong_root_says_what_was_looked_for_and_found(tmp_path):
    (tmp_path / "table.csv").touch()
    message = rf"holds no copy of SkyFinder: looked for {CSV}; found table.csv\. Give the folder"
    with pytest.raises(DataError, match=message):
        read(tmp_path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"split": "day"}, "split must be one of image, camera; got 'day'"),
        ({"clock": "local"}, "clock must be one of table, solar; got 'local'"),
        ({"hour": 24}, "hour must be 0 or more and less than 24; got 24"),
    ],
)
def test_wrong_options_are_refused(tmp_path, options, message):
    with pytest.raises(DataError, match=message):
        read(skyfinder(tmp_path, days=2), **options)


def test_other_choices_of_images_have_caches_of_their_own(tmp_path):
    root = skyfinder(tmp_path / "data", days=5)
    for hour in (11, 18, 11):
        read(root, image_size=8, hour=hour, cache=tmp_path / "cache")
    assert len(list((tmp_path / "cache").glob("*.npy"))) == 2
