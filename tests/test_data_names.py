"""Names of columns and lengths of rows: errors that pandas would repair silently are refused."""

import io
import json
import tarfile

import numpy as np
import pandas as pd
import pytest

from data_cases import npz_of, write
from rnc.data import DataError, read_table, table_from_arrays
from rnc.data.formats import TABLE_READERS, suffix_of
from rnc.data.raw import read_inputs
from rnc.data.sources import read_frame

TWICE = r"has column 'y' more than once\. Rename one of them\."


def save_twice(path, n=30):
    """A table with columns x, y and y of this type of file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    x, y = np.random.default_rng(0).normal(size=n), np.arange(n) * 0.5
    frame = pd.DataFrame(np.stack([x, y, y], axis=1), columns=["x", "y", "y"])
    arrow = pa.table([x, y, y], names=["x", "y", "y"])
    kind = suffix_of(path).removesuffix(".gz")
    if kind == ".xlsx":
        frame.to_excel(path, index=False)
    elif kind == ".parquet":
        pq.write_table(arrow, path)
    elif kind in (".feather", ".arrow"):
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, arrow.schema) as file:
            file.write_table(arrow)
    elif kind == ".tar":
        with tarfile.open(path, "w") as tar:
            for name, content in (("0.json", b'{"x": 1, "y": 2, "y": 3}'), ("0.png", b"")):
                member = tarfile.TarInfo(name)
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
    elif "json" in kind:
        lines = [f'{{"x": {a}, "y": {b}, "y": {b}}}' for a, b in zip(x, y, strict=True)]
        pd.Series(lines).to_csv(path, index=False, header=False, quoting=3, sep="\1")
    else:
        frame.to_csv(path, index=False, sep="\t" if kind == ".tsv" else ",")
    return path


@pytest.mark.parametrize("kind", TABLE_READERS)
def test_two_columns_of_one_name_are_refused_in_every_type_of_file(tmp_path, kind):
    path = save_twice(tmp_path / f"t{kind}")
    with pytest.raises(DataError, match=rf"t{kind}(: 0.json)? {TWICE}"):
        read_table(path, target="y")
    fitted = table_from_arrays(pd.DataFrame({"x": np.arange(9.0)}), np.arange(9)).preprocessing
    with pytest.raises(DataError, match=TWICE):
        read_inputs(path, fitted, "table")


@pytest.mark.parametrize(
    "header", ["x,y,y ", '"x\n1",y,y', "x, y,y", '"y","x", "y"', "\ufeffy,x,y", "y,y,y.1"]
)
def test_blanks_quotes_and_line_breaks_do_not_hide_a_second_name(tmp_path, header):
    rows = "".join(f"{i % 7},{i},{i}\n" for i in range(30))
    with pytest.raises(DataError, match=TWICE):
        read_table(write(tmp_path / "t.csv", f"{header}\n{rows}"), target="y")


def test_a_line_break_in_a_name_does_not_hide_the_separator(tmp_path):
    path = write(tmp_path / "t.csv", '"two\nlines, or more";y\n1,5;2\n')
    assert list(read_frame(path)) == ["two\nlines, or more", "y"]


def test_names_that_differ_are_no_duplicates(tmp_path):
    path = write(tmp_path / "t.csv", "y,Y,y.1,,\n1,2,3,4,5\n")
    assert list(read_frame(path)) == ["y", "Y", "y.1", "Unnamed: 3", "Unnamed: 4"]


def test_two_columns_of_one_name_are_refused_in_memory(tmp_path):
    x = np.random.default_rng(0).normal(size=(30, 2))
    frame = pd.DataFrame(x, columns=["y", "y"])
    for read in (
        lambda: read_table(frame, target="y"),
        lambda: table_from_arrays(frame, np.arange(30)),
        lambda: table_from_arrays(x, np.arange(30), feature_names=["y", "y"]),
        lambda: read_table(npz_of(tmp_path, x=x, y=np.arange(30), feature_names=["y", "y"])),
    ):
        with pytest.raises(DataError, match=TWICE):
            read()


# ---------------------------------------------------------------------------------------- rows


@pytest.mark.parametrize(
    ("rows", "row", "fields"),
    [
        ("1,2,3\n4,5\n6,7,8\n", 3, 2),  # pandas reads a gap
        ("1\n4,5,6\n", 2, 1),
        ('1,2,"3\n3"\n\n4,"5,6"\n', 4, 2),  # a line break in a cell and an empty line count once
        ("1,2,3\n# the end\n", 3, 1),
        ("1,2,3,\n4,5,6,\n", 2, 4),  # pandas drops an empty field too many
        ("1,2,3,\n4,5,6\n", 2, 4),
        ("1,2,3\n4,5,6,7\n", 3, 4),
        ('1,2,3\n4,"5,6\n', 3, 2),  # a quote that does not end
    ],
)
def test_rows_that_are_shorter_or_longer_than_the_header_are_refused(tmp_path, rows, row, fields):
    path = write(tmp_path / "t.csv", f"y,a,b\n{rows}")
    message = rf"t\.csv row {row} has {fields} fields, the header has 3\. Every row needs as many"
    with pytest.raises(DataError, match=message):
        read_frame(path)


def test_empty_lines_and_gaps_are_no_short_rows(tmp_path):
    frame = read_frame(write(tmp_path / "t.csv", 'y;"a, b, c"\n1;\n\n  \n;\n2;""\n3;4\n'))
    assert frame.index.tolist() == [2, 6, 7]
    assert json.loads(frame["a, b, c"].to_json()) == {"2": None, "6": None, "7": 4}
