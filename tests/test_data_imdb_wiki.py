"""Reading and checking copies of IMDB-WIKI."""

import re

import numpy as np
import pandas as pd
import pytest
from scipy.io import savemat

import dataset_copies as copies
from dataset_copies import imdb_wiki_csv, imdb_wiki_mat, matlab_day, texts
from rnc.data import DataError
from rnc.data.datasets.imdb_wiki import IMDB_WIKI, read
from rnc.data.splits import SPLITS

NOBODY = float("nan")


def counts(table):
    return [len(table.rows(name)) for name in SPLITS]


def crowd(n=30):
    """People with one clear face each, born on 1 February 1970, 3 of each age."""
    return [(matlab_day(1970, 2, 1), 2000 + i // 3, 2.0, NOBODY) for i in range(n)]


def test_published_csv_gives_ages_sources_persons_and_its_split(tmp_path):
    table = read(imdb_wiki_csv(tmp_path), image_size=16)
    assert table.x.shape == (32, 3, 16, 16)
    assert table.y[:4, 0].tolist() == [20, 20, 20, 21]
    assert counts(table) == [12, 10, 10]
    assert table.subgroup["source"][:2].tolist() == ["imdb", "wiki"]
    assert table.subgroup["person"][:2].tolist() == ["nm0000000", "1"]
    assert table.y[-2:, 0].tolist() == [186, 121]  # as published, wrong as they are
    assert table.skipped == ()


def test_largest_age_leaves_out_what_is_above_and_says_so(tmp_path):
    table = read(imdb_wiki_csv(tmp_path), image_size=8, largest_age=120)
    assert len(table) == 30
    assert table.y.max() == 29
    assert [one.reason for one in table.skipped] == [
        "age is 186, above 120",
        "age is 121, above 120",
    ]


def test_train_size_draws_train_rows_only_and_smaller_sets_are_part_of_larger(tmp_path):
    root = imdb_wiki_csv(tmp_path)
    small, large, other = (
        read(root, image_size=8, train_size=n, train_seed=seed)
        for n, seed in ((3, 0), (7, 0), (7, 1))
    )
    assert counts(small) == [3, 10, 10]
    assert counts(large) == [7, 10, 10]
    names = [set(table.names[table.rows("train")]) for table in (small, large, other)]
    assert names[0] < names[1]
    assert names[1] != names[2]
    with pytest.raises(DataError, match=r"train_size must be 1 to 12, the train rows; got 13\."):
        read(root, train_size=13)


def test_mat_files_give_ages_by_the_published_rule(tmp_path):
    people = [
        (matlab_day(1970, 6, 30), 2000, 1.0, NOBODY),  # 30
        (matlab_day(1970, 7, 1), 2000, 5.0, NOBODY),  # born in the second half: 29
        (matlab_day(1970, 1, 1), 2000, 0.9, NOBODY),  # face not clear
        (matlab_day(1970, 1, 1), 2000, -np.inf, NOBODY),  # no face
        (matlab_day(1970, 1, 1), 2000, 3.0, 2.0),  # a second face
        (matlab_day(1970, 1, 1), 1969, 3.0, NOBODY),  # before birth
        (matlab_day(1700, 1, 1), 2000, 3.0, NOBODY),  # 300 years old
        (12, 2000, 3.0, NOBODY),  # no date of birth
    ]
    imdb_wiki_mat(tmp_path, "imdb", people)
    imdb_wiki_mat(tmp_path, "wiki", crowd())
    table = read(tmp_path, split="balanced", image_size=8)
    imdb = table.subgroup["source"] == "imdb"
    assert table.y[imdb, 0].tolist() == [30, 29]
    assert table.names[imdb].tolist() == [
        "imdb_crop/00/nm0000000_rm0_x.jpg",
        "imdb_crop/01/nm0000001_rm1_x.jpg",
    ]
    assert table.y[~imdb, 0].tolist() == [30 + i // 3 for i in range(30)]


def test_balanced_split_takes_one_in_three_up_to_age_120(tmp_path):
    old = [(matlab_day(1850, 2, 1), 2000, 2.0, NOBODY)] * 9
    imdb_wiki_mat(tmp_path, "imdb", crowd() + old)
    table = read(tmp_path, split="balanced", image_size=8)
    assert counts(table) == [19, 10, 10]
    assert set(table.split[table.y[:, 0] == 150]) == {"train"}
    for age in range(30, 40):
        assert sorted(table.split[table.y[:, 0] == age]) == ["test", "train", "val"]


def test_person_split_shares_no_person(tmp_path):
    table = read(imdb_wiki_csv(tmp_path), split="person", image_size=8)
    people = [set(table.subgroup["person"][table.rows(name)]) for name in SPLITS]
    assert all(people)
    assert not people[0] & people[1] | people[0] & people[2] | people[1] & people[2]


def test_mat_files_alone_have_no_published_split(tmp_path):
    root = imdb_wiki_mat(tmp_path, "wiki", crowd())
    with pytest.raises(DataError, match=r"no imdb_wiki.csv.*split='balanced' or split='person'"):
        read(root)
    found = list(IMDB_WIKI.check(root))
    assert "30 images in wiki.mat; published: 62,328." in texts(found, "warning")
    assert any("No imdb_wiki.csv" in text for text in texts(found, "warning"))
    [error] = texts(found, "error")
    assert "has no folder imdb_crop. Download imdb_crop.tar and unpack it there." in error


def test_check_of_the_csv_counts_parts_and_wrong_ages(tmp_path):
    found = list(IMDB_WIKI.check(imdb_wiki_csv(tmp_path)))
    assert texts(found, "error") == []
    warnings = texts(found, "warning")
    assert "12 train images; published: 191,509." in warnings
    assert "10 test images; published: 11,022." in warnings
    assert any(text.startswith("2 ages are above 120 and can only be wrong") for text in warnings)
    assert "age is 20 to 186, within the published 0 to 186." in texts(found, "ok")
    assert "All 32 images can be read." in texts(found, "ok")


def test_missing_half_of_the_images_is_found(tmp_path):
    root = imdb_wiki_csv(tmp_path)
    for path in (root / "wiki_crop").rglob("*.jpg"):
        path.unlink()
    [error] = texts(IMDB_WIKI.check(root), "error")
    assert re.match(r"16 of 32 images are missing below .*: wiki_crop/", error)
    with pytest.raises(DataError, match=r"16 of 32 images cannot be used"):
        read(root, image_size=8)


def test_wrong_root_says_what_was_looked_for_and_found(tmp_path):
    (tmp_path / "imdb").mkdir()
    message = (
        r"holds no copy of IMDB-WIKI: looked for imdb_wiki.csv, imdb_crop/imdb.mat and "
        r"wiki_crop/wiki.mat; found imdb/\. Give the folder that holds imdb_crop/"
    )
    with pytest.raises(DataError, match=message):
        read(tmp_path)
    assert re.search(message, texts(IMDB_WIKI.check(tmp_path), "error")[0])


def test_csv_with_other_paths_is_refused(tmp_path):
    frame = pd.DataFrame({"age": [1], "path": ["faces/1.jpg"], "split": ["train"]})
    frame.to_csv(tmp_path / "imdb_wiki.csv", index=False)
    with pytest.raises(DataError, match=r"row 2: path is 'faces/1.jpg', expected imdb_crop/"):
        read(tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"faces": {"dob": [1.0]}}, r"needs a struct 'wiki' with dob.*it has no such struct"),
        ({"wiki": {"dob": [1.0]}}, r"needs a struct 'wiki' with dob, photo_taken.*it has dob\."),
    ],
)
def test_mat_file_of_another_version_is_refused(tmp_path, content, message):
    (tmp_path / "wiki_crop").mkdir()
    savemat(tmp_path / "wiki_crop" / "wiki.mat", content)
    with pytest.raises(DataError, match=message):
        read(tmp_path, split="balanced")


def test_mat_file_that_is_cut_short_is_refused(tmp_path):
    root = imdb_wiki_mat(tmp_path, "wiki", crowd())
    copies.cut(root / "wiki_crop" / "wiki.mat")
    with pytest.raises(DataError, match=r"wiki.mat cannot be read as a Matlab file.*wiki_crop.tar"):
        read(root, split="balanced")
