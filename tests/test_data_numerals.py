"""Numbers as text: read if their meaning is clear; otherwise refused, or named in a note."""

import json

import numpy as np
import pandas as pd
import pytest

from data_cases import write
from rnc.data import DataError, read_inputs, read_table, table_from_arrays
from rnc.data.numerals import Cells
from rnc.data.sources import read_frame

NUMBERS = np.random.default_rng(0).uniform(-3000, 3000, 60).round(2)
Y = np.arange(60) % 7 + 0.5

COMMA = "If their decimal sign is a comma, add --decimal , (decimal=','). Write plain numbers"
POINT = "If their decimal sign is a point, add --decimal . (decimal='.'). Write plain numbers"


def german(number):
    return f"{number:,.2f}".translate(str.maketrans(",.", ".,"))


def table_of(tmp_path, write_number, separator=",", suffix=".csv", **options):
    """The table of a file with the numbers as texts, and this file."""
    frame = pd.DataFrame({"y": Y, "v": [write_number(number) for number in NUMBERS]})
    path = tmp_path / f"t{suffix}"
    if suffix == ".csv":
        frame.to_csv(path, sep=separator, index=False)
    elif suffix == ".xlsx":
        frame.to_excel(path, index=False)
    elif suffix == ".parquet":
        frame.to_parquet(path)
    else:
        frame.to_json(path, orient="records", lines=True)
    return read_table(path, target="y", **options), path


@pytest.mark.parametrize(
    ("write_number", "advice"),
    [
        (lambda v: f"{v:.2f}".replace(".", ","), COMMA),
        (german, COMMA),
        (lambda v: "unknown" if v < -2000 else german(v), COMMA),
        (lambda v: f"{v:,.2f}".replace(",", "'"), POINT),
        (lambda v: f"{v:,.2f}".replace(",", "\u202f"), POINT),
        (lambda v: f"{v:.2f}".replace("-", "\u2212"), "Write plain numbers, all in one way"),
        (lambda v: f"({-v:.2f})" if v < 0 else f"{v:.2f}", "Write plain numbers, all in one way"),
        (lambda v: german(v) if v > 0 else f"{v:.2f}", "Write plain numbers, all in one way"),
        (lambda v: f"{v:,.0f}" if v > 2900 else f"{v:.1f}".replace(".", "a"), None),
        (lambda v: f"${v:.2f}", "Write plain numbers, without their unit."),
        (lambda v: f"-\u20ac {-v:.2f}" if v < 0 else f"\u20ac {v:,.2f}", "without their unit."),
        (lambda v: f"{v:.2f} %", "without their unit."),
        (lambda v: f"{v:.1f} km/h", "without their unit."),
        (lambda v: f"{v:.1f}kg" if v > 0 else f"{v:.1f}", "without their unit."),
        (lambda v: f"{german(v)} EUR", "without their unit."),
    ],
)
def test_numbers_in_disguise_are_refused_with_an_example_and_advice(tmp_path, write_number, advice):
    if advice is None:  # text with digits that is no number stays text
        table, _ = table_of(tmp_path, write_number, feature_columns=["v"])
        assert table.preprocessing["columns"][0]["type"] == "category"
        return
    with pytest.raises(DataError) as caught:
        table_of(tmp_path, write_number)
    message = str(caught.value)
    assert f"{tmp_path}/t.csv: column 'v' seems to hold numbers, written as text: row " in message
    assert "more are like it. " in message
    assert advice in message
    assert message.endswith("Or leave the column out with --exclude-column (exclude_columns=).")
    texts = pd.DataFrame({"v": [write_number(number) for number in NUMBERS]})
    with pytest.raises(DataError, match=r"column 'v' seems to hold numbers, written as text"):
        table_from_arrays(texts, Y)


def test_a_few_thousands_among_smaller_numbers_are_no_gaps(tmp_path):
    cells = [f"{i % 10 * 7}" for i in range(200)]
    cells[17] = "1,200"
    rows = "".join(f"{i % 13};{cell}\n" for i, cell in enumerate(cells))
    path = write(tmp_path / "t.csv", f"y;v\n{rows}")
    with pytest.raises(
        DataError, match=r"column 'v' seems to hold .* row 19 is '1,200'\. If their .*, add"
    ):
        read_table(path, target="y")
    assert read_table(path, target="y", decimal=".").raw["v"].max() == 1200
    assert read_table(path, target="y", decimal=",").raw["v"].min() == 0


@pytest.mark.parametrize("suffix", [".csv", ".xlsx", ".parquet", ".jsonl"])
@pytest.mark.parametrize(
    ("decimal", "write_number"),
    [
        (",", german),
        (",", lambda v: "unknown" if v == NUMBERS[3] else german(v)),
        (".", lambda v: f"{v:,.2f}"),
        (".", lambda v: f"{v:,.2f}".replace(",", " ")),
    ],
)
def test_with_the_decimal_sign_they_are_read_and_new_data_alike(
    tmp_path, suffix, decimal, write_number
):
    table, path = table_of(tmp_path, write_number, suffix=suffix, decimal=decimal)
    gap = write_number(NUMBERS[3]) == "unknown"
    values = np.where(np.arange(60) == 3, np.nan, NUMBERS) if gap else NUMBERS
    (column,) = table.preprocessing["columns"]
    assert column["type"] == "number"
    train = values[table.rows("train")]
    assert column["mean"] == pytest.approx(np.nanmean(train))
    fitted = json.loads(json.dumps(table.preprocessing))
    np.testing.assert_array_equal(read_inputs(path, fitted, "table").x, table.x)
    frame = pd.DataFrame({"v": [write_number(number) for number in NUMBERS]})
    np.testing.assert_array_equal(read_inputs(frame, fitted, "table").x, table.x)
    for i in (2, 3):  # a row alone
        row = read_inputs(frame[i : i + 1], fitted, "table").x
        np.testing.assert_array_equal(row, table.x[i : i + 1])
    again = read_table(frame.assign(y=Y), target="y", decimal=decimal)
    assert again.preprocessing["decimal"] == decimal
    assert again.raw["v"].tolist() == table.raw["v"].tolist()


def test_few_sizes_with_a_unit_are_categories_with_a_note(tmp_path):
    rows = "".join(f"{i % 13},{i % 4} ml\n" for i in range(60))
    table = read_table(write(tmp_path / "t.csv", f"y,v\n{rows}"), target="y")
    assert table.preprocessing["columns"][0]["categories"] == ["0 ml", "1 ml", "2 ml", "3 ml"]
    assert table.notes == (
        "v is 4 categories, such as '0 ml'. If they are numbers, write them without their unit.",
    )


@pytest.mark.parametrize(
    "cells",
    [
        ["B12", "C4", "B7"],
        ["1-2", "3-4", "10-20"],
        ["a,b", "b,c"],
        ["1,2,3", "4,5,6", "7,8,9"],
        ["192.168.1.7", "10.0.0.1"],
        ["v1.2", "v1.3"],
        ["1st", "2nd", "3rd"],
        ["12 rue", "n.a.", "place", "B"],
        ["555-1234", "555-9876"],
    ],
)
def test_texts_that_are_no_numbers_stay_categories_without_a_word(tmp_path, cells):
    rows = "".join(f'{i % 13},"{cells[i % len(cells)]}"\n' for i in range(60))
    table = read_table(write(tmp_path / "t.csv", f"y,v\n{rows}"), target="y")
    assert table.preprocessing["columns"][0]["categories"] == sorted(cells)
    assert table.notes == ()


def test_a_categorical_type_says_that_they_are_no_numbers():
    frame = pd.DataFrame({"v": pd.Categorical(["1,5", "2,5", "3,5"] * 20)})
    table = table_from_arrays(frame, Y)
    assert table.preprocessing["columns"][0]["categories"] == ["1,5", "2,5", "3,5"]


def test_words_and_columns_of_text_stay_as_they_are(tmp_path):
    path = write(tmp_path / "t.csv", "a;b;c\n1,5;x;1,5\n2,5;7,5;2,5\n;y;z\n")
    frame = read_frame(path, Cells(text=["a"], numbers=["c"], decimal=","))
    assert frame["a"].tolist()[:2] == ["1,5", "2,5"]
    assert frame["b"].tolist() == ["x", "7,5", "y"]
    assert frame["c"].tolist() == [1.5, 2.5, "z"]
