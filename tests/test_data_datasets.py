"""The datasets by name, and what their readers share."""

import numpy as np
import pytest

import dataset_copies as copies
from rnc.data import DataError
from rnc.data.datasets.reading import balanced_split
from rnc.data.datasets.registry import DATASETS, check_dataset, find_dataset, read_dataset
from rnc.data.splits import SPLITS

COPIES = {
    "agedb": (copies.agedb, {"image_size": 8}),
    "imdb-wiki": (copies.imdb_wiki_csv, {"image_size": 8}),
    "tuab": (copies.tuab, {"seconds": 2.0, "start": 0.0}),
    "mpiifacegaze": (copies.gaze_h5, {"image_size": 8}),
    "skyfinder": (copies.skyfinder, {"image_size": 8}),
}


def test_every_dataset_has_a_copy_that_tests_it():
    assert tuple(COPIES) == tuple(DATASETS)


@pytest.mark.parametrize("name", COPIES)
def test_read_dataset_reads_a_copy_with_all_three_parts(tmp_path, name):
    make, options = COPIES[name]
    table = read_dataset(name, str(make(tmp_path)), options)
    assert all(len(table.rows(part)) for part in SPLITS)
    assert table.target_names == tuple(find_dataset(name).ranges)
    assert np.isfinite(table.y).all()


@pytest.mark.parametrize("name", COPIES)
def test_check_dataset_finds_no_error_in_a_copy_and_one_in_an_empty_folder(tmp_path, name):
    (tmp_path / "full").mkdir()
    (tmp_path / "empty").mkdir()
    levels = [f.level for f in check_dataset(name, COPIES[name][0](tmp_path / "full"))]
    assert set(levels) == {"ok", "warning"}
    [finding] = check_dataset(name, tmp_path / "empty")
    assert finding.level == "error"
    assert "found nothing. Give the folder" in finding.text


@pytest.mark.parametrize("name", COPIES)
def test_facts_are_complete_and_agree(name):
    dataset = DATASETS[name]
    assert dataset.name == name
    for text in (dataset.title, dataset.what, dataset.access):
        assert len(text) > 3
    assert all(low < high for low, high in dataset.ranges.values())
    assert dataset.counts["train"] > dataset.counts["test"] > 0
    assert dataset.extra == {"tuab": "eeg", "mpiifacegaze": "gaze"}.get(name)
    assert {"skip_bad", "progress"} <= set(dataset.options)
    assert "root" not in dataset.options


@pytest.mark.parametrize(
    ("name", "whole"), [("agedb", "images"), ("mpiifacegaze", "images"), ("skyfinder", "images")]
)
def test_published_parts_add_up(name, whole):
    counts = DATASETS[name].counts
    assert sum(counts[part] for part in SPLITS) == counts[whole]


def test_published_sources_and_subjects_add_up():
    counts = DATASETS["imdb-wiki"].counts
    assert counts["imdb"] + counts["wiki"] == counts["images"]
    counts = DATASETS["tuab"].counts
    assert counts["train"] + counts["test"] == counts["subjects"]


@pytest.mark.parametrize("name", ["IMDB_WIKI", "imdb-wiki", " Imdb-Wiki "])
def test_names_are_found_in_any_spelling(name):
    assert find_dataset(name).title == "IMDB-WIKI"


def test_unknown_name_lists_the_known(tmp_path):
    message = (
        "There is no dataset 'utkface'; known are agedb, imdb-wiki, tuab, mpiifacegaze, skyfinder."
    )
    for call in (find_dataset, lambda n: read_dataset(n, tmp_path), lambda n: check_dataset(n, "")):
        with pytest.raises(DataError, match=message):
            call("utkface")


def test_unknown_option_lists_the_known(tmp_path):
    message = (
        r"agedb has no option 'splits'; its options: split, split_seed, image_size, skip_bad, "
        r"cache, progress\. Did you mean 'split'\?"
    )
    with pytest.raises(DataError, match=message):
        read_dataset("agedb", tmp_path, {"splits": "person"})


def test_balanced_split_depends_on_names_and_seed_and_not_on_the_order_of_rows():
    values = np.repeat([3.0, 5.0, 130.0], 12)
    names = np.array([f"{i:02d}.jpg" for i in range(36)])
    split = balanced_split(values, names, most=3, seed=0, up_to=120)
    for value, expected in ((3, [6, 3, 3]), (5, [6, 3, 3]), (130, [12, 0, 0])):
        parts = split[values == value].tolist()
        assert [parts.count(part) for part in SPLITS] == expected
    order = np.random.default_rng(1).permutation(36)
    again = balanced_split(values[order], names[order], most=3, seed=0, up_to=120)
    assert (again == split[order]).all()
    assert (balanced_split(values, names, most=3, seed=1, up_to=120) != split).any()
