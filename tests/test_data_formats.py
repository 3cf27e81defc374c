"""Types of files, and numbers as other countries write them."""

import gzip
import sys
import zipfile

import numpy as np
import pandas as pd
import pytest

from data_cases import csv_of, write
from rnc.data import DataError, read_table
from rnc.data.formats import TABLE_READERS, suffix_of
from rnc.data.numerals import Cells
from rnc.data.raw import read_inputs
from rnc.data.source import DataSource
from rnc.data.sources import read_frame


def people(n=40):
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "age": np.arange(n) % 17 + 20.5,
            "height": rng.normal(170, 10, n).round(2),
            "town": ["Köln", "Oslo"] * (n // 2),
            "smokes": ["yes", "no", "no", "yes"] * (n // 4),
            "since": pd.date_range("2020-01-01", periods=n, freq="37D").strftime("%Y-%m-%d"),
        }
    )


def save(frame, path):
    text = {"index": False}
    kind = suffix_of(path)
    if kind in (".tsv", ".tsv.gz"):
        frame.to_csv(path, sep="\t", **text)
    elif kind in (".csv", ".csv.gz", ".txt"):
        frame.to_csv(path, **text)
    elif kind == ".json":
        frame.to_json(path, orient="records")
    elif kind in (".jsonl", ".ndjson", ".jsonl.gz"):
        frame.to_json(path, orient="records", lines=True)
    elif kind == ".xlsx":
        frame.to_excel(path, **text)
    elif kind == ".parquet":
        frame.to_parquet(path)
    else:
        frame.to_feather(path)
    return path


@pytest.mark.parametrize("kind", [kind for kind in TABLE_READERS if kind != ".tar"])
def test_every_type_of_file_gives_the_same_inputs(tmp_path, kind):
    path = save(people(), tmp_path / f"t{kind}")
    table = read_table(path, target="age", split_seed=1)
    first = {".csv": "2", ".tsv": "2", ".txt": "2", ".xlsx": "2", ".jsonl": "1", ".ndjson": "1"}
    assert table.names[0] == first.get(kind.removesuffix(".gz"), "0")
    plain = read_table(save(people(), tmp_path / "same.csv"), target="age")
    types = [(c["name"], c["type"]) for c in plain.preprocessing["columns"]]
    assert [(c["name"], c["type"]) for c in table.preprocessing["columns"]] == types
    inputs = read_inputs(path, plain.preprocessing, "table")
    np.testing.assert_array_equal(inputs.x, plain.x)


def test_an_arrow_stream_is_read_too(tmp_path):
    pa = pytest.importorskip("pyarrow")
    table = pa.Table.from_pandas(people())
    file = str(tmp_path / "t.arrow")
    with pa.OSFile(file, "wb") as sink, pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    pd.testing.assert_frame_equal(read_frame(tmp_path / "t.arrow"), people(), check_dtype=False)


def test_json_gaps_empty_lines_and_missing_keys_are_gaps(tmp_path):
    path = write(tmp_path / "t.jsonl", '{"a": 1, "b": "x"}\n\n{"a": null}\n{"a": 3, "b": " "}\n')
    frame = read_frame(path)
    assert frame.index.tolist() == [1, 3, 4]
    assert frame["a"].isna().tolist() == [False, True, False]
    assert frame["b"].isna().tolist() == [False, True, True]


def test_gaps_after_a_very_long_number_are_gaps(tmp_path):
    path = write(tmp_path / "t.csv", f"a,b\n{'1' * 40},1\n,2\nNA,3\n?,4\nx,5\n")
    assert read_frame(path)["a"].isna().tolist() == [False, True, True, True, False]


def test_a_spreadsheet_without_its_package_names_the_extra(tmp_path, monkeypatch):
    path = save(people(), tmp_path / "t.xlsx")
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    with pytest.raises(DataError, match=r"openpyxl .* pip install 'rank-n-contrast\[excel\]'\. Or"):
        read_table(path, target="age")


def rewritten(path, part, old, new):
    """The file with a part of it changed."""
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    assert old in parts[part]
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in parts.items():
            archive.writestr(name, content.replace(old, new) if name == part else content)
    return path


def test_a_formula_that_was_not_calculated_is_no_gap(tmp_path):
    frame = people().assign(weight=[70.5] * 30 + ["=B2/2"] * 2 + [60] * 8)
    path = save(frame, tmp_path / "t.xlsx")
    remedy = "and save it, or export the sheet as CSV"
    expected = rf"t\.xlsx cell F32 holds a formula .* and 1 more are like it\. .*{remedy}"
    with pytest.raises(DataError, match=expected):
        read_table(path, target="age")
    sheet, empty = "xl/worksheets/sheet1.xml", b"<f>B2/2</f><v />"
    with pytest.raises(DataError, match="cell F32"):  # as XlsxWriter leaves it
        read_frame(rewritten(path, sheet, empty, b"<f>B2/2</f><v>0</v>"))
    rewritten(path, sheet, b"<f>B2/2</f><v>0</v>", b"<f>B2/2</f><v>85.25</v>")
    assert read_frame(path)["weight"].tolist()[29:33] == [70.5, 85.25, 85.25, 60]
    rewritten(path, sheet, b"<v>85.25</v>", b"<v>0</v>")
    rewritten(path, "xl/workbook.xml", b'fullCalcOnLoad="1"', b"")
    assert read_frame(path)["weight"].tolist()[29:33] == [70.5, 0, 0, 60]
    cell = b'<c r="F32"><f>B2/2</f><v>0</v>'
    rewritten(path, sheet, cell, b'<c r="F32" t="str"><f>IF(1,"")</f><v></v>')
    assert read_frame(path)["weight"].isna().tolist()[29:33] == [False, True, False, False]


def test_a_cut_gz_file_is_refused(tmp_path):
    path = save(people(), tmp_path / "t.csv.gz")
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(DataError, match=r"t\.csv\.gz cannot be read \(.*Is it whole\?"):
        read_table(path, target="age")
    with gzip.open(tmp_path / "t.jsonl.gz", "wt") as file:
        file.write('{"age": 3}')
    assert read_frame(tmp_path / "t.jsonl.gz")["age"].tolist() == [3]


# ------------------------------------------------------------------------------ commas in numbers


def column_of(tmp_path, cells, separator=";", **more):
    text = "\n".join([f"y{separator}v", *(f"{i}{separator}{cell}" for i, cell in enumerate(cells))])
    return read_frame(write(tmp_path / "t.csv", text), Cells(**more))["v"]


@pytest.mark.parametrize(
    ("cells", "separator", "decimal", "expected"),
    [
        (["3,14", "2", "-0,5"], ";", None, [3.14, 2, -0.5]),
        (["3,14", "1.200,5", ""], "\t", None, [3.14, 1200.5, np.nan]),
        (["1 200,5", "3,25", "1e3"], ";", None, [1200.5, 3.25, 1000]),
        (["1,200", "1.200", "7"], ";", ",", [1.2, 1200, 7]),
        (['"3,14"', '"2,5"', "1"], ",", ",", [3.14, 2.5, 1]),
        (["1.5", "2.25", "3"], ";", ",", [1.5, 2.25, 3]),
        (['"1,200"', '"12,345,678.5"', "7"], ",", None, [1200, 12345678.5, 7]),
        (["1,200", "3", "4"], ";", ".", [1200, 3, 4]),
    ],
)
def test_commas_in_numbers_are_read(tmp_path, cells, separator, decimal, expected):
    values = column_of(tmp_path, cells, separator, decimal=decimal)
    np.testing.assert_array_equal(values.to_numpy(float), expected)


@pytest.mark.parametrize(
    ("cells", "separator"),
    [
        (["1,200", "3,400"], ";"),  # thousands, or three decimals?
        (['"3,14"', '"2,5"'], ","),
        (["3,14", "a,b"], ";"),
        (["31.12.2024", "1,5"], ";"),
        (["1,2,3", "4,5,6"], ";"),
    ],
)
def test_what_may_be_no_number_stays_text(tmp_path, cells, separator):
    texts = [cell.strip('"') for cell in cells]
    assert column_of(tmp_path, cells, separator).tolist() == texts


def test_the_decimal_sign_of_a_run_holds_for_its_new_data(tmp_path):
    frame = people().assign(height=lambda d: [f"{h:.3f}".replace(".", ",") for h in d["height"]])
    frame.to_csv(tmp_path / "de.csv", sep=";", index=False)
    with pytest.raises(DataError, match=r"height is '\d+,\d+', expected a number\..*--decimal ,"):
        read_table(tmp_path / "de.csv", target="height")
    table = read_table(tmp_path / "de.csv", target="age", decimal=",")
    assert table.preprocessing["decimal"] == ","
    assert table.preprocessing["columns"][0]["type"] == "number"
    inputs = read_inputs(tmp_path / "de.csv", table.preprocessing, "table")
    np.testing.assert_array_equal(inputs.x, table.x)
    with pytest.raises(DataError, match=r"--decimal \(decimal=\) must be ',' or '\.'; got 'x'"):
        read_table(tmp_path / "de.csv", target="age", decimal="x")


# --------------------------------------------------------------------------------------- again


def test_a_run_of_an_older_version_reads_its_own_columns_again(tmp_path):
    """Older versions took ids for numbers; the model of such a run still expects them."""
    path = csv_of(tmp_path, id=np.arange(40))
    names = ["id", "a"]
    old = read_table(path, target="age", feature_columns=names)
    source = DataSource(str(path), target=("age",))
    again = source.read(224, old.preprocessing, same_rows=True)
    np.testing.assert_array_equal(again.x, old.x)
    assert again.split.tolist() == old.split.tolist()
    assert [c["name"] for c in source.read(224).preprocessing["columns"]] == ["a"]
    assert set(source.read(224, old.preprocessing).split) == {"test"}


def test_columns_of_an_npz_file_are_chosen_by_name(tmp_path):
    x = np.random.default_rng(0).normal(size=(40, 3))
    names = np.array(["a", "b", "c"])
    np.savez(tmp_path / "d.npz", x=x, y=np.arange(40), feature_names=names)
    for chosen in ({"exclude_columns": ["b"]}, {"feature_columns": ["a", "c"]}):
        table = read_table(tmp_path / "d.npz", **chosen)
        assert [c["name"] for c in table.preprocessing["columns"]] == ["a", "c"]
