"""Labelled data that cannot be used, and what the error says."""

import pickle
import re
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import typer

import rnc
from data_cases import csv_of, npz_of, write
from rnc.cli import app
from rnc.data import DataError, Table, read_table, table_from_arrays


def test_missing_column_lists_columns_and_suggests_close_ones(tmp_path):
    message = r"t\.csv has no column 'agee'; its columns: age, a\. Did you mean 'age'\?"
    with pytest.raises(DataError, match=message):
        read_table(csv_of(tmp_path), target="agee")
    for option in ("split_column", "group_column"):
        with pytest.raises(DataError, match=r"no column 'zzz'; its columns: age, a\.$"):
            read_table(csv_of(tmp_path), target="age", **{option: "zzz"})
    with pytest.raises(DataError, match="no column 'zzz'"):
        read_table(csv_of(tmp_path), target="age", subgroup_columns=["zzz"])
    with pytest.raises(DataError, match="no column 'zzz'"):
        read_table(csv_of(tmp_path), target="age", feature_columns=["zzz"])


def test_text_in_the_target_names_row_and_value(tmp_path):
    rows = ["age,a", *(f"{i},{i}" for i in range(5)), "unknown,5", "", "forty,7"]
    path = write(tmp_path / "photos.csv", "\n".join(rows))
    message = r"photos\.csv row 7: age is 'unknown', expected a number\. 1 more rows are like it"
    with pytest.raises(DataError, match=message):
        read_table(path, target="age")


def test_rows_are_counted_as_in_a_spreadsheet(tmp_path):
    text = 'age,note\n1,"two\nlines"\n\n3,x\nbad,y\n'
    with pytest.raises(DataError, match=r"row 5: age is 'bad'"):
        read_table(write(tmp_path / "t.csv", text), target="age")


def test_infinite_target_names_row(tmp_path):
    path = write(tmp_path / "t.csv", "age,a\n1,1\ninf,2\n3,3\n")
    with pytest.raises(DataError, match=r"row 3: age is inf, expected a finite number\."):
        read_table(path, target="age")


def test_missing_targets_are_counted_or_dropped(tmp_path):
    age = np.arange(40.0)
    age[[1, 5]] = np.nan
    path = csv_of(tmp_path, age=age)
    message = r"age is missing in 2 of 40 rows \(rows 3, 7\)\. Fill .* with --drop-missing"
    with pytest.raises(DataError, match=message):
        read_table(path, target="age")
    table = read_table(path, target="age", drop_missing=True)
    assert len(table) == 38
    assert table.names[:3].tolist() == ["2", "4", "5"]
    assert list(table.skipped) == [("3", "age is missing"), ("7", "age is missing")]


def test_dropped_targets_leave_arrays_aligned(tmp_path):
    x = np.arange(20.0)[:, None, None] + np.zeros((20, 1, 3))
    y = np.arange(20.0)
    y[4] = np.nan
    for table in (
        read_table(npz_of(tmp_path, x=x, y=y), drop_missing=True),
        table_from_arrays(x, y, drop_missing=True),
    ):
        assert (table.x[:, 0, 0] == table.y[:, 0]).all()
        assert len(table) == 19


def test_all_targets_missing_leaves_no_usable_rows(tmp_path):
    path = csv_of(tmp_path, age=np.full(40, np.nan))
    with pytest.raises(DataError, match=r"missing in 40 of 40 rows .* No usable rows remain"):
        read_table(path, target="age", drop_missing=True)


def test_one_distinct_target_is_refused(tmp_path):
    path = csv_of(tmp_path, age=np.full(40, 30))
    with pytest.raises(DataError, match=r"age is 30 in all 28 train rows; .*two different values"):
        read_table(path, target="age")


def test_target_must_be_named_once_and_be_no_split(tmp_path):
    path = csv_of(tmp_path)
    with pytest.raises(
        DataError, match=r"which column is to be predicted\?.*its columns: age, a\."
    ):
        read_table(path)
    with pytest.raises(DataError, match=r"must be different columns; got age, age\."):
        read_table(path, target=["age", "age"])
    with pytest.raises(DataError, match=r"'age' cannot be a target and the group column, too"):
        read_table(path, target="age", group_column="age")
    with pytest.raises(DataError, match=r"'age' is a target, split or group column"):
        read_table(path, target="age", feature_columns=["age"])


def test_missing_groups_are_refused(tmp_path):
    path = csv_of(tmp_path, person=["ann", None] * 20)
    message = r"person is missing in 20 of 40 rows \(rows 3, 5, .*\.\.\.\), so it is unknown"
    with pytest.raises(DataError, match=message):
        read_table(path, target="age", group_column="person")


def test_target_alone_has_no_features(tmp_path):
    path = write(tmp_path / "t.csv", "age\n1\n2\n3\n")
    with pytest.raises(
        DataError, match=r"has no feature columns; its columns: age\. Add some, name"
    ):
        read_table(path, target="age")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("absent.csv", None, r"absent\.csv does not exist"),
        ("t.doc", b"", r"is of type '\.doc'; expected .*\.csv, \.tsv, .*\.parquet, .*\.npz\."),
        ("t.xlsx", b"", r"t\.xlsx cannot be read as a spreadsheet \("),
        ("t.csv.gz", b"age", r"t\.csv\.gz cannot be read \(.*\. Is it whole\?"),
        ("t.csv", b"age,a,a\n1,2,3\n", r"has column 'a' more than once\. Rename one"),
        ("t.feather", b"ARROW1", r"t\.feather cannot be read as Arrow \("),
        ("t.jsonl", b'{"age": 1}\n{"age":\n', r"t\.jsonl line 2: no JSON \(Expecting value, col"),
        ("t.jsonl", b"3\n", r"t\.jsonl row 1: expected an object .*; got int\."),
        ("t.json", b" \n", r"t\.json is empty; expected objects"),
        ("t.csv", b"", r"t\.csv is empty; expected a header and rows"),
        ("t.csv", b"age,a\n", r"has no rows below its header \(age, a\)"),
        ("t.csv", b"age,a\n\n\n", r"has no rows below its header \(age, a\)"),
        (
            "t.csv",
            b"age,a\n1,2\n3,4,5\n",
            r"row 3 has 3 fields, the header has 2.* as many fields as the header",
        ),
        ("t.csv", b"age,a\n1,2,3\n3,4,5\n", r"row 2 has 3 fields, the header has 2\. Every row"),
        ("t.csv", b"age,a\n1,\xff\xfe\n", r"is not UTF-8 text .*Save it as CSV UTF-8"),
        ("d.npz", b"nonsense", r"d\.npz is not an NPZ file, or not whole\. Write it"),
    ],
)
def test_unusable_files_are_refused(tmp_path, name, content, message):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message):
        read_table(tmp_path / name, target="age")


def test_damaged_npz_is_refused(tmp_path):
    path = npz_of(tmp_path, x=np.zeros((50, 1, 40)), y=np.arange(50))
    content = bytearray(path.read_bytes())
    content[1000] ^= 1
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"d\.npz cannot be read as NPZ \(.*CRC"):
        read_table(path)


def test_folder_is_not_a_table(tmp_path):
    with pytest.raises(DataError, match=r"is a folder; expected a file of type \.csv"):
        read_table(tmp_path, target="age")


def test_parquet_without_its_package_names_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    write(tmp_path / "t.parquet", "")
    with pytest.raises(DataError, match=r"needs the package pyarrow .* pip install pyarrow"):
        read_table(tmp_path / "t.parquet", target="age")


@pytest.mark.parametrize(
    ("cell", "what"), [([1, 2], "lists"), ({"a": 1}, "objects"), (b"x", "bytes")]
)
def test_lists_objects_and_bytes_in_parquet_are_refused_where_one_value_is_needed(
    tmp_path, cell, what
):
    frame = pd.DataFrame({"age": np.arange(40) % 17, "a": np.arange(40) * 0.5, "odd": [cell] * 40})
    frame.to_parquet(tmp_path / "t.parquet")
    asked = {"target": "age", "source": tmp_path / "t.parquet"}
    assert "odd" in read_table(**asked).preprocessing["left_out"]
    message = rf"column 'odd' holds {what}; expected the name of an image file"
    with pytest.raises(DataError, match=message):
        read_table(**asked, images=tmp_path, image_column="odd")
    if what != "bytes":
        for option in ({"group_column": "odd"}, {"subgroup_columns": ["odd"]}):
            message = rf"column 'odd' holds {what}; a group or subgroup needs one value"
            with pytest.raises(DataError, match=message):
                read_table(**asked, **option)


class Trap:
    """Marks a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


def test_npz_that_needs_pickle_is_refused_and_not_run(tmp_path):
    mark = tmp_path / "ran"
    path = npz_of(tmp_path, x=np.zeros((3, 1, 4)), y=np.array([Trap(mark)] * 3, dtype=object))
    with pytest.raises(DataError, match=r"holds Python objects, .*Save numbers and text only"):
        read_table(path)
    (tmp_path / "d.npz").write_bytes(pickle.dumps(Trap(mark)))
    with pytest.raises(DataError, match="is not an NPZ file"):
        read_table(tmp_path / "d.npz")
    assert not mark.exists()


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"y": np.arange(5)}, r"needs an array 'x' .*; it holds y\."),
        ({"x": np.zeros((5, 1, 4))}, r"which column is to be predicted\?"),
        ({"x": np.zeros((5, 1, 4)), "y": np.arange(4)}, r"x has 5 rows and y has 4"),
        (
            {"x": np.zeros((5, 1, 4)), "y": np.arange(5), "group": np.arange(3)},
            r"x has 5 rows and group is \(3,\); it must be \(5,\), a value for each row",
        ),
        ({"x": np.zeros(5), "y": np.arange(5)}, r"x must be \(n, p\) .*; got \(5,\)"),
        ({"x": np.zeros((5, 0)), "y": np.arange(5)}, r"no empty side; got \(5, 0\)"),
        ({"x": np.zeros((0, 3)), "y": np.arange(0)}, r"x has no rows; got \(0, 3\)"),
        ({"x": np.zeros((5, 1, 4)), "y": np.zeros((5, 1, 1))}, r"y must be .*got \(5, 1, 1\)"),
        ({"x": np.zeros((5, 1, 4), complex), "y": np.arange(5)}, r"real numbers; got complex128"),
        (
            {"x": np.zeros((5, 1, 4)), "y": np.arange(5), "target_names": ["a", "b"]},
            r"y has 1 columns, so it needs 1 different target names; got a, b",
        ),
        (
            {"x": np.full((5, 1, 4), np.nan), "y": np.arange(5)},
            r"NaN, infinite .* in 5 of 5 signals \(rows 0, 1, 2, 3, 4\)\. Repair",
        ),
        ({"x": np.full((5, 1, 4), 1e300), "y": np.arange(5)}, r"too large values in 5 of 5"),
        (
            {"x": np.zeros((5, 1, 4, 4)), "y": np.arange(5)},
            r"whole numbers from 0 to 255; got float64 from 0 to 0\. Scale them",
        ),
        (
            {"x": np.full((5, 1, 4, 4), 300), "y": np.arange(5)},
            r"whole numbers from 0 to 255; got int64 from 300 to 300",
        ),
        (
            {"x": np.zeros((5, 28, 28, 3), np.uint8), "y": np.arange(5)},
            r"got \(5, 28, 28, 3\), which looks like \(n, h, w, c\)\. Use x\.transpose",
        ),
        (
            {"x": np.zeros((5, 1, 4)), "y": np.arange(5), "split": np.arange(5)},
            r"row 0: split is 0, expected one of train",
        ),
    ],
)
def test_unusable_arrays_are_refused(tmp_path, arrays, message):
    with pytest.raises(DataError, match=message):
        read_table(npz_of(tmp_path, **arrays))


def test_arrays_of_different_lengths_are_refused():
    with pytest.raises(DataError, match=r"x has 5 rows and y has 4; y needs one value per row"):
        table_from_arrays(np.zeros((5, 1, 4)), np.arange(4))
    with pytest.raises(DataError, match=r"x has 5 rows and names has 2"):
        table_from_arrays(np.zeros((5, 1, 4)), np.arange(5), names=["a", "b"])
    with pytest.raises(DataError, match=r"3 feature names for x with 2 columns"):
        table_from_arrays(np.ones((5, 2)), np.arange(5), feature_names=["a", "b", "c"])


def test_table_refuses_fields_that_do_not_fit():
    table = table_from_arrays(np.zeros((5, 1, 4)), np.arange(5))
    with pytest.raises(DataError, match=r"same number of rows in x and names; got 5 and 2"):
        replace(table, names=table.names[:2])
    with pytest.raises(DataError, match=r"y \(n, t\) and t target names; got \(5, 1\) and \('a',"):
        replace(table, target_names=("a", "b"))
    with pytest.raises(DataError, match=r"calibration, partial, test-part; got 'tset'"):
        table.rows("tset")
    assert isinstance(table, Table)


def flags_of(command):
    """Every flag of a command and of the commands below it."""
    below = [  # a group may fill in the flags of a command when it is called
        command.resolve_command(typer.Context(command), [name])[1]
        for name in getattr(command, "commands", {})
    ]
    own = {flag for param in command.params for flag in (*param.opts, *param.secondary_opts)}
    return own.union(*map(flags_of, below))


OTHERS = {"--no-deps", "--local-dir", "--help"}
"""Flags of pip and of hf, and that of every command."""


def test_messages_advise_flags_that_exist():
    flags = flags_of(typer.main.get_command(app))
    source = Path(rnc.__file__).parent
    for file in source.rglob("*.py"):
        if file.relative_to(source).parts[0] not in ("cli", "experiments", "report"):
            advised = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", file.read_text()))
            assert advised - OTHERS <= flags, file


def test_a_target_called_like_another_column_is_refused() -> None:
    with pytest.raises(DataError, match="group is both a target and a split, group, weight"):
        table_from_arrays(
            np.random.rand(40, 2), np.arange(40.0), target_names=["group"], group=np.arange(40) // 4
        )
