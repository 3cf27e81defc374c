"""Columns as people have them: dates, yes and no, ids, free text, odd cells."""

import json
import math
from datetime import date, datetime

import numpy as np
import pandas as pd
import pytest

from data_cases import csv_of
from rnc.data import DataError, read_table, table_from_arrays
from rnc.data.columns import names_rows
from rnc.data.dates import date_format
from rnc.data.features import apply_features, feature_names, fit_features
from rnc.data.originals import gap_cells
from rnc.data.summary import column_lines, leaks


def fitted_to(frame, train=None, **more):
    train = np.arange(len(frame)) if train is None else np.asarray(train)
    return json.loads(json.dumps(fit_features(frame, train, "t.csv", **more)))


def types_of(table):
    return {column["name"]: column["type"] for column in table.preprocessing["columns"]}


# ------------------------------------------------------------------------------------------- dates


@pytest.mark.parametrize(
    ("texts", "form"),
    [
        (["2024-02-29", "2023-12-01"], "ISO 8601"),
        (["2024-02-29T10:00:00Z", "2023-12-01 11:30:05.25+02:00"], "ISO 8601"),
        (["2024-02", "1999-12"], "%Y-%m"),
        (["29.2.2024", "01.12.2023"], "%d.%m.%Y"),
        (["01.12.2023 08:15", "31.12.2023 23:59"], "%d.%m.%Y %H:%M"),
        (["1/2/2024", "12/31/2024"], "%m/%d/%Y"),
        (["1/2/2024", "31/12/2024"], "%d/%m/%Y"),
        (["1/2/2024", "3/4/2024"], "%m/%d/%Y"),  # both would do: said in words by the fit
        (["1/2/24 3:04 PM", "12/31/24 11:00 am"], "%m/%d/%y %I:%M %p"),
        (["31-Dec-2024", "1-Jan-2023"], "%d-%b-%Y"),
        (["5 March 2024", "12 June 2023"], "%d %B %Y"),
        (["Mar 5, 2024", "Jun 12, 2023"], "%b %d, %Y"),
        (["08:15", "23:59"], "%H:%M"),
    ],
)
def test_dates_are_known_by_their_look(texts, form):
    assert date_format(pd.Series([*texts, None])) == form


@pytest.mark.parametrize(
    "values",
    [
        ["2024", "2023"],
        [20240131, 20240201],
        ["20240131", "20240201"],
        ["1.2.3", "1.10.0"],
        ["1.2.0034", "10.0.2019"],
        ["30.02.2024", "31.04.2024"],
        ["192.168.2.1", "10.0.0.1"],
        ["555-1234", "12-34-56-78"],
        ["2024-13-01", "2024-00-10"],
        ["25:10", "12:61"],
        [1.5, 2.5],
    ],
)
def test_numbers_versions_and_codes_are_no_dates(values):
    assert date_format(pd.Series(values)) is None


def slowly(day, first, fitted):
    """What a date becomes, by the words of rnc.data.dates."""
    if day is None:
        return [(fitted["median"] - fitted["mean"]) / fitted["scale"], *[0] * 6]
    days = (day - first).total_seconds() / 86400
    angles = [
        2 * math.pi * (day.timetuple().tm_yday - 1) / 365.25,
        2 * math.pi * day.weekday() / 7,
        2 * math.pi * (day.hour * 3600 + day.minute * 60 + day.second) / 86400,
    ]
    waves = [wave(angle) for angle in angles for wave in (math.sin, math.cos)]
    return [(days - fitted["mean"]) / fitted["scale"], *waves]


@pytest.mark.parametrize("write", [str, "{:%d.%m.%Y %H:%M:%S}".format, lambda day: day])
def test_a_date_becomes_elapsed_days_and_places_in_cycles(write):
    days = [datetime(2021 + i % 3, 1 + 5 * i % 12, 1 + 3 * i % 28, 2 * i, i) for i in range(12)]
    frame = pd.DataFrame({"sold": [write(day) for day in days] + [None]})
    fitted = fitted_to(frame, [*range(2, 13)])
    (column,) = fitted["columns"]
    assert column["first"] == min(days[2:]).isoformat(timespec="microseconds")
    assert column["parts"] == ["season", "weekday", "hour"]
    elapsed = [(day - min(days[2:])).total_seconds() / 86400 for day in days[2:]]
    assert column["mean"] == pytest.approx(np.mean(elapsed))
    assert column["scale"] == pytest.approx(np.std(elapsed))
    expected = [slowly(day, min(days[2:]), column) for day in [*days, None]]
    x = apply_features(frame, fitted, "t.csv")
    np.testing.assert_allclose(x[:, :-1], expected, atol=1e-6)
    assert x[:, -1].tolist() == [0] * 12 + [1]
    assert feature_names(fitted) == [
        "sold",
        *(f"sold {part} {wave}" for part in column["parts"] for wave in ("sine", "cosine")),
        "sold is missing",
    ]


def test_only_parts_that_vary_are_made():
    months = pd.DataFrame({"when": [f"2024-{month:02d}" for month in range(1, 13)]})
    assert fitted_to(months)["columns"][0]["parts"] == ["season"]
    same = pd.DataFrame({"when": ["2024-01-01"] * 3, "a": [1, 2, 3]})
    assert feature_names(fitted_to(same)) == ["a"]


def test_a_date_is_read_from_text_and_from_types_alike():
    text = pd.DataFrame({"when": ["01.02.2024", "28.12.2023", None]})
    typed = pd.DataFrame({"when": pd.to_datetime(["2024-02-01", "2023-12-28", None])})
    objects = pd.DataFrame({"when": np.array([date(2024, 2, 1), date(2023, 12, 28), None])})
    zoned = typed.assign(when=typed["when"].dt.tz_localize("Asia/Tokyo"))
    fitted = fitted_to(text)
    expected = apply_features(text, fitted, "t.csv")
    for other in (typed, objects, zoned):
        np.testing.assert_array_equal(apply_features(other, fitted, "new"), expected)
    with pytest.raises(
        DataError, match=r"^new row 1: when is '12/28/2023', expected a date as day"
    ):
        apply_features(pd.DataFrame({"when": ["01.02.2024", "12/28/2023"]}), fitted, "new")


# ------------------------------------------------------------------------------------- yes and no


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["yes", "No", " YES"], [1, 0, 1]),
        (["t", "f", "t"], [1, 0, 1]),
        (["TRUE", "FALSE", "true"], [1, 0, 1]),
        (["off", "on", "off"], [0, 1, 0]),
        (["N", "y", "n"], [0, 1, 0]),
    ],
)
def test_words_for_yes_and_no_are_one_column(words, expected):
    frame = pd.DataFrame({"garden": words})
    fitted = fitted_to(frame)
    assert feature_names(fitted) == ["garden"]
    assert apply_features(frame, fitted, "t.csv")[:, 0].tolist() == expected


def test_other_pairs_of_words_stay_categories():
    for words in (["m", "f"], ["yes", "maybe", "no"], ["yes", "yes"], ["true", "no"]):
        (column,) = fitted_to(pd.DataFrame({"a": words}))["columns"]
        assert column["type"] == "category"


def test_new_yes_and_no_may_be_written_in_another_way_and_maybe_is_refused():
    fitted = fitted_to(pd.DataFrame({"garden": ["yes", "no", "no", "no"]}))
    new = pd.DataFrame({"garden": [True, 0, "F", None]})
    assert apply_features(new, fitted, "new")[:, 0].tolist() == [1, 0, 0, 0.25]
    with pytest.raises(DataError, match=r"^new row 1: garden is 'maybe', expected yes or no, as"):
        apply_features(pd.DataFrame({"garden": ["yes", "maybe"]}), fitted, "new")


# --------------------------------------------------------------------------------------- odd cells


def test_a_few_texts_among_numbers_are_gaps_and_others_are_refused():
    values = [str(i) for i in range(100)]
    values[10], values[20], values[90] = "n.a.", "12 kg", "n.a."
    frame = pd.DataFrame({"power": values}, index=range(2, 102))
    fitted = fitted_to(frame, range(80))
    (column,) = fitted["columns"]
    assert (column["type"], column["gap_words"], column["gaps"]) == (
        "number",
        ["12 kg", "n.a."],
        True,
    )
    assert column["mean"] == np.mean([i for i in range(80) if i not in (10, 20)])
    x = apply_features(frame, fitted, "t.csv")
    assert np.flatnonzero(x[:, 1]).tolist() == [10, 20, 90]
    assert "read as gaps in power: '12 kg' (row 22), 'n.a.' (row 12 and 1 more)" in column_lines(
        fitted, gap_cells(frame, fitted)
    )
    with pytest.raises(DataError, match=r"^new row 0: power is 'lots', expected a number, as in"):
        apply_features(pd.DataFrame({"power": ["lots"]}), fitted, "new")


def test_a_word_for_unknown_is_a_gap_in_many_rows_but_codes_are_categories():
    unknown = [str(i) if i % 3 else "unknown" for i in range(90)]
    codes = ["1", "2", "A"] * 30
    units = [f"{i}" if i % 3 else f"{i} kg" for i in range(90)]
    columns = fitted_to(pd.DataFrame({"a": unknown, "b": codes, "c": units}))["columns"]
    assert [column["type"] for column in columns] == ["number", "category", "category"]
    assert columns[0]["gap_words"] == ["unknown"]
    assert columns[0]["median"] == np.median([i for i in range(90) if i % 3])


def test_a_few_texts_among_dates_are_gaps():
    days = [f"2024-01-{i:02d}" for i in range(1, 31)] + ["unknown"]
    fitted = fitted_to(pd.DataFrame({"when": days}))
    assert fitted["columns"][0]["gap_words"] == ["unknown"]
    assert feature_names(fitted)[-1] == "when is missing"


def test_numbers_and_categories_are_learned_as_ever():
    frame = pd.DataFrame({"a": [1.0, 2.0, None, 4.0], "c": ["u", "v", "u", None]})
    assert fitted_to(frame) == {
        "columns": [
            {
                "name": "a",
                "type": "number",
                "mean": 7 / 3,
                "scale": pytest.approx(math.sqrt(14 / 9)),
                "median": 2.0,
                "gaps": True,
            },
            {"name": "c", "type": "category", "categories": ["u", "v"], "gaps": True},
        ]
    }


# --------------------------------------------------------------------------------------- left out


@pytest.mark.parametrize(
    ("name", "values", "reason"),
    [
        ("n", range(40), "counts the rows"),
        ("n", range(1, 41), "counts the rows"),
        ("n", np.random.default_rng(0).permutation(40), "counts the rows"),
        ("Unnamed: 0", range(7, 87, 2), "names the rows: all values differ"),
        ("customer_id", np.arange(40) * 3 + 5, "names the rows: all values differ"),
        ("PassengerId", np.arange(40) * 3 + 5, "names the rows: all values differ"),
        ("id", [f"{i}-af" for i in range(40)], "names the rows: all values differ"),
        ("year", range(1980, 2020), None),
        ("day", range(40), None),  # time goes on, and targets may go with it
        ("time_step", range(1, 41), None),
        ("glycemic_index", np.arange(40) * 3 + 5, None),
        ("id", np.arange(40) % 20, None),
        ("id", np.arange(40) * 0.5, None),
        ("paid", np.arange(40) * 3 + 5, None),
        ("id", [f"2024-01-{i + 1:02d}" for i in range(28)], None),
        ("n", range(9), None),
    ],
)
def test_columns_that_only_name_rows_are_noticed(name, values, reason):
    assert names_rows(pd.Series(values, name=name)) == reason


def test_what_says_nothing_is_left_out_of_a_file_with_a_word(tmp_path):
    n = 40
    path = csv_of(
        tmp_path,
        id=np.arange(n),
        note=[f"a word about house {i}" for i in range(n)],
        fold=["train", "val"] * 20,
        town=["Oslo", "Rome"] * 20,
    )
    table = read_table(path, target="age", exclude_columns=["town"])
    assert types_of(table) == {"a": "number"}
    assert table.preprocessing["left_out"] == {
        "id": "counts the rows",
        "note": "is text with 40 different values in 40 rows",
        "fold": "says train, val or test; --split-column fold splits by it",
        "town": "is excluded",
    }
    named = read_table(path, target="age", feature_columns=["id", "a"])
    assert types_of(named) == {"id": "number", "a": "number"}
    assert "left_out" not in named.preprocessing


def test_a_named_column_that_cannot_be_used_is_an_error(tmp_path):
    path = csv_of(tmp_path, 300, note=[f"word {i}" for i in range(300)])
    with pytest.raises(
        DataError, match=r"'note' is text with 300 different values in 300 rows\. It"
    ):
        read_table(path, target="age", feature_columns=["a", "note"])
    message = r"none of its 1 feature columns \(note\) .* 'note' is text with 300 different"
    with pytest.raises(DataError, match=message):
        read_table(path, target="age", exclude_columns=["a"])


def test_excluded_columns_must_exist_and_have_no_other_use(tmp_path):
    path = csv_of(tmp_path, b=np.arange(40) % 3)
    with pytest.raises(
        DataError, match=r"no column 'bb'; its columns: age, a, b\. Did you mean 'b'"
    ):
        read_table(path, target="age", exclude_columns=["bb"])
    with pytest.raises(DataError, match=r"'age' is a target.*Leave it out of --exclude-column"):
        read_table(path, target="age", exclude_columns=["age"])
    with pytest.raises(DataError, match=r"b is named by both --feature-column .* Name it once"):
        read_table(path, target="age", feature_columns=["a", "b"], exclude_columns=["b"])
    with pytest.raises(
        DataError, match=r"has no feature columns; .* 'a' is excluded\. 'b' is excl"
    ):
        read_table(path, target="age", exclude_columns=["a", "b"])


def test_what_is_left_out_does_not_change_the_digest(tmp_path):
    plain = read_table(csv_of(tmp_path), target="age")
    more = read_table(csv_of(tmp_path, id=np.arange(40)), target="age")
    assert more.preprocessing["left_out"] == {"id": "counts the rows"}
    assert more.digest == plain.digest


def test_arrays_keep_all_their_columns():
    frame = pd.DataFrame({"id": np.arange(40), "a": np.arange(40) % 7})
    assert types_of(table_from_arrays(frame, np.arange(40))) == {"id": "number", "a": "number"}
    frame["note"] = [f"word {i}" for i in range(40)]
    assert types_of(table_from_arrays(frame, np.arange(40)))["note"] == "category"


def test_old_numbers_of_booleans_are_prepared_as_they_were():
    old = {"name": "b", "type": "number", "mean": 0.25, "scale": 0.5, "median": 0.0, "gaps": False}
    x = apply_features(pd.DataFrame({"b": [True, False, None]}), {"columns": [old]}, "t.csv")
    assert x[:, 0].tolist() == [1.5, -0.5, -0.5]


# ------------------------------------------------------------------------------------------- words


def test_the_words_about_columns_name_each_once_and_shorten_long_lists():
    frame = pd.DataFrame({f"x{i}": np.arange(9.0) ** 2 + i for i in range(20)})
    frame = frame.assign(
        same=1, city=["u", "v", None] * 3, when=[f"{i}.1.2024" for i in range(1, 10)]
    )
    lines = column_lines(fitted_to(frame, left_out={"id": "counts the rows"}))
    assert lines == [
        f"numbers: {', '.join(f'x{i}' for i in range(12))}, and 8 more",
        "categories: city (2)",
        "dates: when (day.month.year: days, season, weekday)",
        "with gaps: city",
        "never vary: same",
        "left out: id counts the rows",
    ]


def test_a_feature_that_is_the_target_in_other_units_is_found(tmp_path):
    rng = np.random.default_rng(0)
    age = rng.normal(40, 10, 200)
    noisy = age + rng.normal(0, 0.1, 200)
    path = csv_of(tmp_path, 200, age=age, months=-12 * age + 3, near=noisy, square=age**2)
    assert leaks(read_table(path, target="age")) == [("months", "age")]
    assert leaks(read_table(path, target="age", exclude_columns=["months"])) == []
    assert leaks(table_from_arrays(rng.normal(size=(40, 1, 8)), np.arange(40))) == []
