"""Reading and checking copies of AgeDB."""

import re

import numpy as np
import pandas as pd
import pytest

import dataset_copies as copies
from dataset_copies import texts
from rnc.data import DataError
from rnc.data.datasets.agedb import AGEDB, read
from rnc.data.splits import SPLITS


def counts(table):
    return [len(table.rows(name)) for name in SPLITS]


def change_csv(root, change):
    frame = pd.read_csv(root / "agedb.csv")
    change(frame).to_csv(root / "agedb.csv", index=False)


def test_published_csv_gives_images_ages_persons_and_its_split(tmp_path):
    table = read(copies.agedb(tmp_path), image_size=32)
    assert table.x.shape == (24, 3, 32, 32)
    assert table.x.dtype == np.uint8
    assert table.target_names == ("age",)
    assert table.y[:3, 0].tolist() == [20, 20, 21]
    assert counts(table) == [12, 6, 6]
    assert table.names[0] == "AgeDB/0_PersonA_van_der_X_20_m.jpg"
    assert table.subgroup["person"][:2].tolist() == ["PersonA_van_der_X", "PersonB_van_der_X"]
    assert table.subgroup["sex"][:2].tolist() == ["m", "f"]
    assert table.split[23] == "test"  # the age that is nowhere else
    assert table.preprocessing == {"channels": 3, "fit": "crop", "side": 32}


def test_grey_image_becomes_three_equal_channels(tmp_path):
    table = read(copies.agedb(tmp_path), image_size=16)
    grey = [bool((image == image[:1]).all()) for image in table.x]
    assert np.flatnonzero(grey).tolist() == [3]


def test_person_split_shares_no_person_and_the_published_one_does(tmp_path):
    root = copies.agedb(tmp_path)

    def shared(table):
        people = [set(table.subgroup["person"][table.rows(name)]) for name in SPLITS]
        return people[0] & people[1] | people[0] & people[2] | people[1] & people[2]

    assert shared(read(root, image_size=8))
    table = read(root, split="person", image_size=8)
    assert not shared(table)
    assert min(counts(table)) > 0
    seeds = [
        read(root, split="person", split_seed=s, image_size=8).split.tolist() for s in (0, 0, 3)
    ]
    assert seeds[0] == seeds[1] != seeds[2]


def test_image_split_has_the_ages_of_the_person_split_and_shares_persons(tmp_path):
    for i in range(600):
        age = 20 + 7 * i % 53  # every person has many
        copies.jpg(tmp_path / "AgeDB" / f"{i}_P{i % 40}_{age}_m.jpg", i, size=(8, 8))
    person, image = (read(tmp_path, split=split, image_size=8) for split in ("person", "image"))
    assert counts(image) == [444, 78, 78]  # the published shares
    test, train = (set(image.subgroup["person"][image.rows(part)]) for part in ("test", "train"))
    assert test <= train
    means = [table.y[table.rows("test")].mean() for table in (person, image)]
    assert means[0] == pytest.approx(means[1], abs=2)


def test_check_counts_test_images_with_a_train_image_of_the_person_within_a_year(tmp_path):
    rows = [("A", 30, "train"), ("A", 31, "test"), ("A", 32, "test"), ("A", 29, "test")]
    rows += [("B", 40, "train"), ("B", 30, "test"), ("A", 33, "val")]
    lines = ["age,path,split"]
    for i, (person, age, split) in enumerate(rows):
        copies.jpg(tmp_path / "AgeDB" / f"{i}_{person}_{age}_f.jpg", i)
        lines.append(f"{age},AgeDB/{i}_{person}_{age}_f.jpg,{split}")
    (tmp_path / "agedb.csv").write_text("\n".join(lines))
    [shared] = [text for text in texts(AGEDB.check(tmp_path), "warning") if "persons of" in text]
    assert shared == (
        "2 of 2 persons of the test images are in the train images, too, as in the published "
        "split; of the test images, 50% have a train image of the same person within a year. "
        "split='person' keeps persons apart."
    )


def test_balanced_split_takes_as_many_of_each_age_for_val_as_for_test(tmp_path):
    for i in range(21):
        copies.jpg(tmp_path / "AgeDB" / f"{i}_A_{30 + i % 3}_m.jpg", i)
    table = read(tmp_path, split="balanced", image_size=8)
    for age in (30, 31, 32):
        parts = table.split[table.y[:, 0] == age].tolist()
        assert [parts.count(name) for name in SPLITS] == [3, 2, 2]


def test_root_may_be_the_folder_of_the_images(tmp_path):
    copies.agedb(tmp_path)
    assert len(read(tmp_path / "AgeDB", image_size=8)) == 24


def test_images_without_csv_are_read_by_their_names_once_a_split_is_chosen(tmp_path):
    root = copies.agedb(tmp_path, csv=False)
    advice = r"='image' or split='balanced' \(--dataset-option split=person\)"
    message = rf"has the images of AgeDB, but no agedb.csv.*{advice}"
    with pytest.raises(DataError, match=message):
        read(root)
    table = read(root, split="person", image_size=8)
    assert table.y[:, 0].tolist() == [int(name.split("_")[-2]) for name in table.names]
    assert len(table) == 24


def test_wrong_root_says_what_was_looked_for_and_what_is_there(tmp_path):
    (tmp_path / "photos").mkdir()
    (tmp_path / "notes.txt").touch()
    message = (
        f"{tmp_path} holds no copy of AgeDB: looked for the folder AgeDB; found notes.txt, "
        "photos/. Give the folder that holds AgeDB/ with the images and agedb.csv."
    )
    with pytest.raises(DataError, match=re.escape(message)):
        read(tmp_path)
    assert texts(AGEDB.check(tmp_path), "error") == [message]


@pytest.mark.parametrize("make", ["nothing", "file"])
def test_root_that_is_no_folder_is_told_apart(tmp_path, make):
    root = tmp_path / "x"
    if make == "file":
        root.touch()
    expected = "is a file, not a folder" if make == "file" else "does not exist"
    with pytest.raises(DataError, match=f"x {expected}. Give the folder"):
        read(root)


def test_half_an_archive_is_refused_with_files_and_rows_and_read_on_request(tmp_path):
    root = copies.agedb(tmp_path)
    gone = sorted((root / "AgeDB").iterdir())[::2]
    for path in gone:
        path.unlink()
    with pytest.raises(DataError, match=r"12 of 24 images cannot be used:(.|\n)*no such file"):
        read(root, image_size=8)
    table = read(root, image_size=8, skip_bad=True)
    assert len(table) == 12
    assert {one.name for one in table.skipped} == {f"AgeDB/{path.name}" for path in gone}
    errors = texts(AGEDB.check(root), "error")
    assert len(errors) == 1
    assert re.match(r"12 of 24 images are missing below .*: AgeDB/.*Unpack the archive", errors[0])


def test_broken_image_is_found_by_read_and_check(tmp_path):
    root = copies.agedb(tmp_path)
    copies.cut(root / "AgeDB" / "3_PersonD_van_der_X_21_f.jpg")
    with pytest.raises(DataError, match=r"row 5: .*3_PersonD.*truncated"):
        read(root, image_size=8)
    [error] = texts(AGEDB.check(root), "error")
    assert "1 of 24 images are broken: AgeDB/3_PersonD" in error
    assert "truncated" in error


def test_check_of_a_small_whole_copy_warns_of_counts_and_shared_persons_only(tmp_path):
    found = list(AGEDB.check(copies.agedb(tmp_path)))
    assert texts(found, "error") == []
    warnings = texts(found, "warning")
    assert "24 images in agedb.csv; published: 16,488." in warnings
    assert "6 persons; published: 567." in warnings
    assert "12 train images; published: 12,208." in warnings
    assert "6 test images; published: 2,140." in warnings
    assert any(text.startswith("3 of 3 persons of the test images are in") for text in warnings)
    assert len(warnings) == 6
    assert "age is 20 to 90, within the published 0 to 101." in texts(found, "ok")
    assert "All 24 images can be read." in texts(found, "ok")


def test_check_reports_ages_out_of_range_and_unlike_the_names(tmp_path):
    root = copies.agedb(tmp_path)
    change_csv(root, lambda frame: frame.assign(age=[150, *frame["age"][1:]]))
    found = list(AGEDB.check(root))
    assert any(
        "age is 20 to 150; published: 0 to 101. 1 of 24" in t for t in texts(found, "warning")
    )
    [error] = texts(found, "error")
    assert "1 ages are not those of the file names, such as row 2: age 150 for AgeDB/0_" in error


def test_check_reports_images_that_the_csv_does_not_list(tmp_path):
    root = copies.agedb(tmp_path)
    copies.jpg(root / "AgeDB" / "99_New_40_m.jpg")
    assert any(
        text.startswith("1 images are not in") and "99_New_40_m.jpg" in text
        for text in texts(AGEDB.check(root), "warning")
    )


def test_check_without_csv_says_that_the_split_is_unknown(tmp_path):
    warnings = texts(AGEDB.check(copies.agedb(tmp_path, csv=False)), "warning")
    assert any("No agedb.csv in" in text and "split='person'" in text for text in warnings)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: f.drop(columns="split"), r"has no column 'split'; its columns: age, path"),
        (lambda f: f.assign(path="faces/1.jpg").head(1), r"row 2: path is 'faces/1.jpg', expected"),
        (
            lambda f: pd.concat([f, f.head(1)]),
            r"rows 2, 26 name the same images, such as 'AgeDB/0_",
        ),
        (
            lambda f: f.assign(age=["young", *f["age"][1:]]),
            r"row 2: age is 'young', expected a num",
        ),
        (
            lambda f: f.assign(split=["fold1", *f["split"][1:]]),
            r"row 2: split is 'fold1', expected",
        ),
    ],
)
def test_csv_of_another_version_is_refused_and_found(tmp_path, change, message):
    root = copies.agedb(tmp_path)
    change_csv(root, change)
    with pytest.raises(DataError, match=message):
        read(root)
    [error] = texts(AGEDB.check(root), "error")
    assert re.search(message, error)


def test_unknown_split_lists_the_known(tmp_path):
    message = "split must be one of published, person, image, balanced; got 'random'"
    with pytest.raises(DataError, match=message):
        read(tmp_path, split="random")


def test_cache_is_shared_by_all_splits(tmp_path):
    root = copies.agedb(tmp_path / "data")
    for split in ("published", "person"):
        read(root, split=split, image_size=8, cache=tmp_path / "cache")
    assert len(list((tmp_path / "cache").glob("*.npy"))) == 1
