"""The description of data that config.json keeps: written, read again, and read from old runs."""

import dataclasses
import json

import numpy as np
import pytest

import dataset_copies
from data_cases import csv_of
from rnc.data import DataError, read_table, table_from_arrays
from rnc.data.source import DataSource, stored_side


def test_json_gives_the_same_source_back():
    given = DataSource(
        "t.csv",
        target=("age",),
        feature_columns=("a",),
        subgroup_columns=("sex",),
        fractions=(0.5, 0.25, 0.25),
        split_seed=3,
        skip_bad=True,
    )
    content = json.loads(json.dumps(given.to_json()))
    assert DataSource.from_json(content) == given
    assert content["fractions"] == [0.5, 0.25, 0.25]
    assert "dataset" not in content
    copy = DataSource("data", dataset="agedb", dataset_options={"split": "person"})
    assert copy.to_json() == {
        "source": "data",
        "dataset": "agedb",
        "dataset_options": {"split": "person"},
        "target": (),
    }
    assert DataSource.from_json(json.loads(json.dumps(copy.to_json()))) == copy


def test_a_file_is_read_as_read_table_does(tmp_path):
    path = csv_of(tmp_path)
    source = DataSource(str(path), target=("age",), feature_columns=("a",), split_seed=5)
    same = read_table(path, target="age", feature_columns=["a"], split_seed=5)
    table = source.read(224)
    np.testing.assert_array_equal(table.x, same.x)
    assert table.split.tolist() == same.split.tolist()
    halves = dataclasses.replace(source, fractions=(0.5, 0.25, 0.25)).read(224)
    assert [len(halves.rows(part)) for part in ("train", "val", "test")] == [20, 10, 10]


def test_the_description_of_an_older_run_is_read_the_same(tmp_path):
    path = csv_of(tmp_path)
    old = {
        "source": str(path),
        "target": ["age"],
        "images": None,
        "image_column": "auto",
        "feature_columns": None,
        "split_column": None,
        "group_column": None,
        "subgroup_columns": [],
        "drop_missing": False,
        "skip_bad": False,
    }
    table = DataSource.from_json(old).read(224)
    assert table.split.tolist() == read_table(path, target="age").split.tolist()


def test_a_copy_of_a_dataset_is_read_by_its_reader_and_a_file_by_the_targets(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    root = dataset_copies.agedb(tmp_path / "data")
    old = {"source": str(root), "dataset": "agedb", "dataset_options": {}, "target": ["age"]}
    source = DataSource.from_json(old)
    assert source.is_copy
    table = source.read(28)
    assert table.x.shape[1:] == (3, stored_side(28), stored_side(28)) == (3, 32, 32)
    calibrated = dataclasses.replace(source, calibration_share=0.3)
    assert DataSource.from_json(json.loads(json.dumps(calibrated.to_json()))) == calibrated
    taken = calibrated.read(28).rows("calibration")
    assert len(taken) > 0
    assert set(taken) < set(table.rows("train"))
    path = csv_of(tmp_path)
    other = dataclasses.replace(source, source=str(path))
    assert not other.is_copy
    assert other.read(28).target_names == ("age",)


@pytest.mark.parametrize("options", [{"fractions": (0.8, 0.1, 0.1)}, {"split_seed": 1}])
def test_fractions_and_seed_beside_a_given_split_are_refused(tmp_path, options):
    split = ["train", "val", "test", "train"] * 10
    path = csv_of(tmp_path, split=split)
    message = r"'split' already gives the split\. Leave them out, or ignore .* --split-column none"
    with pytest.raises(DataError, match=message):
        read_table(path, target="age", **options)
    with pytest.raises(DataError, match="Leave them out"):
        table_from_arrays(np.ones((40, 1, 4)), np.arange(40), split=split, **options)
    made = read_table(path, target="age", split_column="none", **options)
    assert made.split.tolist() != split


@pytest.mark.parametrize("fractions", [(0.9, 0.1, 0), (0.8, 0.0, 0.2)])
def test_a_file_is_not_read_without_rows_that_a_run_needs(tmp_path, fractions):
    with pytest.raises(DataError, match=r"above 0 .* got \(0\.\d, .*table_from_arrays takes"):
        read_table(csv_of(tmp_path), target="age", fractions=fractions)


def test_the_seed_of_a_split_is_a_whole_number(tmp_path):
    with pytest.raises(DataError, match=r"seed of a split must be a whole number; got 0\.5"):
        read_table(csv_of(tmp_path), target="age", split_seed=0.5)
