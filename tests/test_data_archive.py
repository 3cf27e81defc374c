"""Arrays of .npz files: each is used or named in a note, and odd ones are refused."""

import io
import zipfile

import numpy as np
import pytest

from data_cases import npz_of
from rnc.cli.data import describe
from rnc.data import DataError, read_table, table_from_arrays
from rnc.data.raw import read_inputs

N = 30
X = np.random.default_rng(0).normal(size=(N, 3))
Y = np.arange(N) % 7 + 0.5
PERSON = np.arange(N) // 3
SPLIT = np.array(["train", "train", "val", "test", "train"]).repeat(6)


@pytest.mark.parametrize("shape", [(N,), (N, 1)])
def test_group_and_split_count_as_columns_of_one_value_too(tmp_path, shape):
    path = npz_of(tmp_path, x=X, y=Y, group=PERSON.reshape(shape))
    table = read_table(path)
    assert table.group.tolist() == PERSON.tolist()
    assert all(len(set(table.split[table.group == person])) == 1 for person in PERSON)
    path = npz_of(tmp_path, x=X, y=Y, split=SPLIT.reshape(shape))
    assert read_table(path).split.tolist() == SPLIT.tolist()
    given = table_from_arrays(X, Y, group=PERSON.reshape(shape))
    assert given.split.tolist() == table.split.tolist()


@pytest.mark.parametrize("name", ["group", "split"])
@pytest.mark.parametrize("shape", [(), (1, N), (N, 2), (N - 1,), (N, 1, 1)])
def test_a_group_or_split_of_another_shape_is_refused(tmp_path, name, shape):
    path = npz_of(tmp_path, x=X, y=Y, **{name: np.zeros(shape, int)})
    with pytest.raises(DataError, match=rf"x has {N} rows and {name} is \(.*; it must be \({N},\)"):
        read_table(path)


def test_a_group_in_memory_of_another_shape_is_refused():
    with pytest.raises(DataError, match=rf"x has {N} rows and group has shape \({N}, 2\)"):
        table_from_arrays(X, Y, group=np.zeros((N, 2)))


def test_arrays_without_a_use_are_named(tmp_path, capsys):
    path = npz_of(tmp_path, x=X, y=Y, groups=PERSON, rate=np.array(3), site=PERSON)
    (note,) = read_table(path, subgroup_columns=["site"]).notes
    assert note.startswith("Arrays without a use: groups (30 values), rate (). A column of values")
    assert note.endswith("--subgroup-column. Did you mean 'group'?")
    describe(read_table(path, subgroup_columns=["site"]))
    assert f"Note: {note}" in capsys.readouterr().err
    assert read_table(npz_of(tmp_path, x=X, y=Y, group=PERSON)).notes == ()


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": np.zeros((N, 3), "V4")}, r"array 'x' must hold numbers, texts or dates; got \|V4"),
        ({"x": np.zeros((N, 3), [("a", "f4")])}, r"array 'x' must hold numbers.*'a'.*Save each"),
        ({"y": np.zeros(N, "V4")}, r"array 'y' must hold numbers, texts or dates"),
        ({"more": np.zeros(N, [("a", "f4")])}, r"array 'more' must hold numbers"),
        ({"y": np.array([b"\xff"] * N)}, r"array 'y' holds bytes that are no UTF-8 text \("),
        (
            {"y": np.array(["a\udc00"] * N)},
            r"array 'y' holds halves of surrogate pairs, .* UTF-8\.",
        ),
        ({"x": np.array(3)}, r"x must be \(n, p\) for a table.*got \(\)"),
        ({"y": np.array(3)}, r"y must be \(n,\) or \(n, t\)"),
        ({"feature_names": np.array("a")}, r"1 feature names for x with 3 columns"),
        ({"target_names": np.array(["a", "b"])}, r"y has 1 columns, .*; got a, b"),
    ],
)
def test_arrays_of_other_types_are_refused(tmp_path, arrays, message):
    with pytest.raises(DataError, match=message):
        read_table(npz_of(tmp_path, **({"x": X, "y": Y} | arrays)))


def test_bytes_single_names_and_other_orders_of_bytes_are_read(tmp_path):
    names = np.array(["Höhe".encode()])
    path = npz_of(tmp_path, x=X.astype(">f8"), y=Y.astype(">f4"), target_names=names)
    table = read_table(path)
    assert table.target_names == ("Höhe",)
    np.testing.assert_array_equal(table.x, read_table(npz_of(tmp_path, x=X, y=Y)).x)
    inputs = read_inputs(X.astype(">f8"), table.preprocessing, "table")
    np.testing.assert_array_equal(inputs.x, table.x)
    one = npz_of(tmp_path, x=X, y=Y, target_names=np.array("age"))
    assert read_table(one).target_names == ("age",)


@pytest.mark.parametrize("shape", [(10**6, 10**6), (10**12, 10**12), (2**63, 1), (2**70, 1), (-1,)])
def test_an_absurd_shape_is_refused(tmp_path, shape):
    file = io.BytesIO()
    header = {"descr": "<f8", "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, header)
    with zipfile.ZipFile(tmp_path / "d.npz", "w") as archive:
        archive.writestr("x.npy", file.getvalue() + bytes(100))
    with pytest.raises(
        DataError, match=r"d\.npz.*(cannot be read as NPZ|does not fit into memory)"
    ):
        read_table(tmp_path / "d.npz")


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_an_array_that_is_there_twice_or_is_no_array_is_refused(tmp_path):
    path = npz_of(tmp_path, x=X, y=Y)
    with zipfile.ZipFile(path) as archive:
        content = archive.read("y.npy")
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("y.npy", content)
    with pytest.raises(DataError, match="column 'y' more than once"):
        read_table(path)
    path = npz_of(tmp_path, x=X, y=Y)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("notes.txt", "hello")
    with pytest.raises(DataError, match=r"array 'notes\.txt' must hold numbers.*; got bytes"):
        read_table(path)
