"""Targets that are known in part, as people write them."""

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from rnc.data import read_table, table_from_arrays
from rnc.data.errors import DataError
from rnc.data.target_ends import ends_of_cells, ends_of_columns, ends_of_times, read_cell

INF = math.inf


@pytest.mark.parametrize(
    ("text", "ends"),
    [
        (">90", (90, INF)),
        (" >= 90.5 ", (90.5, INF)),
        ("≥90", (90, INF)),
        ("90+", (90, INF)),
        ("Over 90", (90, INF)),
        ("<5", (-INF, 5)),
        ("<= -1e-3", (-INF, -0.001)),
        ("at most 7", (-INF, 7)),
        ("20-29", (20, 29)),
        ("20 \u2013 29", (20, 29)),
        ("20..29", (20, 29)),
        ("20 to 29", (20, 29)),
        ("20\u221229", (20, 29)),
        ("\u22125\u2010\u22122", (-5, -2)),
        ("at  least\u00a090", (90, INF)),
        ("> = 90", (90, INF)),
        ("< =5", (-INF, 5)),
        ("[20, 29)", (20, 29)),
        ("-5 - -2", (-5, -2)),
        ("-5--2", (-5, -2)),
        ("1e-5-2e-5", (1e-5, 2e-5)),
        ("2020-01-05", None),
        ("20-", None),
        ("> ", None),
        ("about 7", None),
        ("1-2-3", None),
    ],
)
def test_a_cell_says_where_a_target_lies(text: str, ends: tuple[float, float] | None) -> None:
    assert read_cell(text) == ends


def test_a_column_mixes_all_kinds() -> None:
    lower, upper = ends_of_cells(
        pd.Series(["34", "", ">90", "<5", "20-29", None], name="age"), "t.csv"
    )
    np.testing.assert_array_equal(lower, [34, -INF, 90, -INF, 20, -INF])
    np.testing.assert_array_equal(upper, [34, INF, INF, 5, 29, INF])
    exact = ends_of_cells(pd.Series([1.5, np.nan], name="age"), "t.csv")
    assert (exact.lower.tolist(), exact.upper.tolist()) == ([1.5, -INF], [1.5, INF])


@pytest.mark.parametrize("source", ["file", "frame"])
def test_cells_may_have_decimal_commas(tmp_path: Path, source: str) -> None:
    cells = ["34,5", "1.200", ">90,5", "20,5-29", "[1,5; 2)", "7", "12.3456", "", "8", "9"]
    frame = pd.DataFrame({"a": np.arange(10) ** 2, "age": cells})
    frame.to_csv(tmp_path / "t.csv", sep=";", index=False)
    given = tmp_path / "t.csv" if source == "file" else frame
    table = read_table(given, target="age", partial_labels=True, decimal=",")
    assert table.ends is not None
    lower = [34.5, 1200, 90.5, 20.5, 1.5, 7, 12.3456, -INF, 8, 9]
    upper = [34.5, 1200, INF, 29, 2, 7, 12.3456, INF, 8, 9]
    np.testing.assert_array_equal(table.ends[:, 0], np.stack([lower, upper], axis=1))


def test_a_cell_with_a_comma_is_told_how_to_be_read() -> None:
    frame = pd.DataFrame({"a": np.arange(3), "age": ["30", ">34,5", "31"]})
    with pytest.raises(DataError, match=r"row 1: age is '>34,5'.* add --decimal , \(decimal=','\)"):
        read_table(frame, target="age", partial_labels=True)


def test_two_columns_hold_the_ends() -> None:
    frame = pd.DataFrame({"low": [1, 2.0, None, None], "high": [1, None, 5, None]})
    lower, upper = ends_of_columns(frame["low"], frame["high"], "t.csv")
    assert lower.tolist() == [1, 2, -INF, -INF]
    assert upper.tolist() == [1, INF, 5, INF]
    written = pd.DataFrame({"low": ["-inf", "2"], "high": [3, INF]}, dtype=object)
    lower, upper = ends_of_columns(written["low"], written["high"], "t.csv")
    assert (lower.tolist(), upper.tolist()) == ([-INF, 2], [3, INF])
    with pytest.raises(DataError, match="row 0: low is inf, expected a finite number"):
        ends_of_columns(pd.Series([INF], name="low"), pd.Series([INF], name="high"), "t.csv")


def test_a_time_is_exact_where_its_event_was_seen() -> None:
    frame = pd.DataFrame({"days": [10.0, 20, 30, None], "died": ["yes", "no", "yes", None]})
    lower, upper = ends_of_times(frame["days"], frame["died"], "t.csv")
    assert lower.tolist() == [10, 20, 30, -INF]
    assert upper.tolist() == [10, INF, 30, INF]
    with pytest.raises(DataError, match="row 1: died is empty; it says whether the event was seen"):
        ends_of_times(frame["days"], frame["died"].mask(frame.index == 1), "t.csv")


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        (["3", "about 7"], "row 1: age is 'about 7', which is not understood. A target is a num"),
        (["3", "29-20"], "row 1: age goes from 29 to 20; its lower end is above its upper end"),
        (["3", "inf"], "row 1: age is infinite"),
    ],
)
def test_what_is_not_understood_is_named(cells: list[str], message: str) -> None:
    with pytest.raises(DataError, match=message):
        ends_of_cells(pd.Series(cells, name="age"), "t.csv")


def test_an_event_is_yes_or_no() -> None:
    frame = pd.DataFrame({"days": [10.0, 20], "died": ["yes", "perhaps"]})
    with pytest.raises(DataError, match="row 1: died is 'perhaps'; it says whether the event was"):
        ends_of_times(frame["days"], frame["died"], "t.csv")


# ------------------------------------------------------------------------------- labels of a table


def people(rows: int = 60) -> pd.DataFrame:
    """Three rows of every person; each third row lacks an exact age, in every way there is."""
    age = [str(20 + row) for row in range(rows)]
    age[::3] = [["", ">90", "<5", "20-29"][row % 4] for row in range(len(age[::3]))]
    return pd.DataFrame({"size": np.arange(rows) % 7.0, "person": np.arange(rows) // 3, "age": age})


def test_a_table_has_such_rows_in_a_split_of_their_own() -> None:
    table = read_table(people(), target="age", partial_labels=True)
    assert table.ends is not None
    partial = table.rows("partial")
    assert partial.tolist() == list(range(0, 60, 3))
    assert np.isnan(table.y[partial]).all()
    assert np.isfinite(np.delete(table.y, partial)).all()
    np.testing.assert_array_equal(
        table.ends[partial[:4], 0], [[-INF, INF], [90, INF], [-INF, 5], [20, 29]]
    )
    exact = np.delete(table.ends[:, 0], partial, axis=0)
    assert (exact[:, 0] == exact[:, 1]).all()
    assert table.sizes[:2] == (28, 48)


def test_the_split_of_exact_rows_is_as_without_the_others() -> None:
    frame = people()
    table = read_table(frame, target="age", partial_labels=True)
    alone = read_table(frame.assign(age=table.y[:, 0]), target="age", drop_missing=True)
    np.testing.assert_array_equal(alone.split, table.split[table.split != "partial"])


def test_nobody_who_is_tested_trains_the_encoder() -> None:
    frame = people()
    table = read_table(frame, target="age", group_column="person", partial_labels=True)
    assert table.group is not None
    seen = set(table.group[np.isin(table.split, ["train", "partial"])])
    assert seen.isdisjoint(table.group[np.isin(table.split, ["val", "test"])])
    assert 0 < len(table.rows("partial")) < 20
    reasons = {skipped.reason for skipped in table.skipped}
    assert reasons == {"its target is not exact, and others of its person are not in training"}
    assert len(table.skipped) + len(table) == len(frame)


def test_missing_targets_may_be_left_out() -> None:
    table = read_table(people(), target="age", partial_labels=True, drop_missing=True)
    assert len(table) == 55
    assert len(table.rows("partial")) == 15
    assert {skipped.reason for skipped in table.skipped} == {"its target is missing"}


def test_a_row_to_be_validated_needs_an_exact_target() -> None:
    frame = people()
    frame["split"] = ["train", "val", "test", "", "train", "train"] * 10
    table = read_table(frame, target="age", partial_labels=True)
    assert len(table.rows("partial")) == 20
    frame.loc[9, "split"] = "val"
    with pytest.raises(DataError, match=r"row 9: split is 'val', but its target is not exact"):
        read_table(frame, target="age", partial_labels=True)


def test_a_misspelt_split_of_a_row_known_in_part_is_refused() -> None:
    frame = people()
    frame["split"] = ["train", "val", "test", " ", "train", "train"] * 10
    frame.loc[15, "split"] = None
    assert (read_table(frame, target="age", partial_labels=True).split == "partial").sum() == 20
    frame.loc[9, "split"] = "tset"  # it would be trained on
    with pytest.raises(DataError, match=r"row 9: split is 'tset', expected one of train, training"):
        read_table(frame, target="age", partial_labels=True)


def test_some_rows_need_exact_targets() -> None:
    frame = people().assign(age=">5")
    with pytest.raises(DataError, match="no row has an exact value of age"):
        read_table(frame, target="age", partial_labels=True)


# ----------------------------------------------------------------------------- other ways to say it


def test_rows_without_a_target_are_used_when_told() -> None:
    frame = people().assign(age=[None if row % 3 == 0 else 20.0 + row for row in range(60)])
    with pytest.raises(
        DataError, match=r"missing in 20 of 60 rows .* --unlabelled use \(unlabelled="
    ):
        read_table(frame, target="age")
    used = read_table(frame, target="age", unlabelled="use")
    assert used.sizes == (28, 48, 0)
    assert used.ends is not None
    assert np.isinf(used.ends[used.rows("partial")]).all()
    dropped = read_table(frame, target="age", unlabelled="drop")
    same = read_table(frame, target="age", drop_missing=True)
    assert (dropped.ends, len(dropped), dropped.digest) == (None, 40, same.digest)
    with pytest.raises(DataError, match="Choose one of them"):
        read_table(frame, target="age", unlabelled="use", drop_missing=True)
    with pytest.raises(DataError, match=r"must be 'use' or 'drop', .*; got 'keep'"):
        read_table(frame, target="age", unlabelled="keep")  # type: ignore[arg-type]
    with pytest.raises(DataError, match="age is missing in all 60 rows"):
        read_table(frame.assign(age=None), target="age", unlabelled="use")


def test_cells_in_words_are_read_when_told() -> None:
    with pytest.raises(DataError, match=r"row 3: age is '>90'.* read with --partial-labels"):
        read_table(people().assign(age=["7", "8", "9", ">90"] * 15), target="age")
    with pytest.raises(DataError, match=r"row 1: age is 'ten', expected a number\.$"):
        read_table(people().assign(age=["7", "ten", *["8"] * 58]), target="age", unlabelled="use")
    with pytest.raises(DataError, match=r"row 1: age is 'ten', .* A target is a number, >90, <5"):
        read_table(people().assign(age=["7", "ten"] * 30), target="age", partial_labels=True)


def test_a_second_column_has_the_upper_ends() -> None:
    frame = people().assign(age=np.arange(60.0), most=np.arange(60.0) + (np.arange(60) % 3 == 0))
    frame.loc[3, "most"], frame.loc[6, "age"] = np.nan, np.nan
    table = read_table(frame, target="age", upper_column="most")
    assert table.ends is not None
    np.testing.assert_array_equal(
        table.ends[[0, 3, 6, 7], 0], [[0, 1], [3, INF], [-INF, 7], [7, 7]]
    )
    assert [column["name"] for column in table.preprocessing["columns"]] == ["size", "person"]
    with pytest.raises(DataError, match=r"row 5: age goes from 5 to 2; its lower end is above"):
        read_table(
            frame.assign(most=[*range(5), 2, *range(6, 60)]), target="age", upper_column="most"
        )
    with pytest.raises(
        DataError, match=r"--upper-column names one column for each target; got a, b"
    ):
        read_table(frame.assign(a=1, b=2), target="age", upper_column=["a", "b"])
    with pytest.raises(DataError, match="--upper-column age has another use already"):
        read_table(frame, target="age", upper_column="age")
    with pytest.raises(DataError, match=r"--partial-labels and --upper-column \(upper=\) are diff"):
        read_table(frame, target="age", upper_column="most", partial_labels=True)


def test_an_event_that_was_not_seen_is_later() -> None:
    frame = people().assign(age=np.arange(60.0), dead=(np.arange(60) % 3 > 0).astype(int))
    table = read_table(frame, target="age", event_column="dead")
    assert table.ends is not None
    np.testing.assert_array_equal(table.ends[:3, 0], [[0, INF], [1, 1], [2, 2]])
    assert table.sizes[:2] == (28, 48)
    assert [column["name"] for column in table.preprocessing["columns"]] == ["size", "person"]
    with pytest.raises(DataError, match=r"row 4: dead is 2; it says whether the event was seen"):
        read_table(frame.assign(dead=[1, 0, 1, 1, 2] * 12), target="age", event_column="dead")


def test_arrays_may_be_known_in_part() -> None:
    frame = people()
    x, y = frame[["size", "person"]].to_numpy(), np.arange(60.0)
    upper = np.where(np.arange(60) % 3 == 0, INF, y)
    by_ends = table_from_arrays(x, y, upper=upper)
    by_event = table_from_arrays(x, y, event=np.arange(60) % 3 > 0)
    assert by_ends.digest == by_event.digest
    gaps = np.where(np.isinf(upper), np.nan, y)
    missing = table_from_arrays(x, gaps, unlabelled="use")
    np.testing.assert_array_equal(missing.split, by_ends.split)
    two = table_from_arrays(x, np.stack([y, gaps], axis=1), unlabelled="use")
    assert two.ends is not None
    np.testing.assert_array_equal(two.ends[0], [[0, 0], [-INF, INF]])
    assert np.isnan(two.y[0, 1])
    assert two.y[0, 0] == 0


def test_scores_of_a_fitted_model_need_exact_targets() -> None:
    table = read_table(people(), target="age", partial_labels=True)
    with pytest.raises(DataError, match=r"row 0: age is missing \(20 of 60 rows are not exact\)"):
        read_table(people(), target="age", partial_labels=True, preprocessing=table.preprocessing)
    for cell, words in ((">90", "at least 90"), ("<5", "at most 5"), ("1-2", "between 1 and 2")):
        frame = people().assign(age=[cell] + ["30"] * 59)
        with pytest.raises(DataError, match=rf"row 0: age is {words} \(1 of 60 rows"):
            read_table(frame, target="age", partial_labels=True, preprocessing=table.preprocessing)
    other = read_table(
        people(),
        target="age",
        partial_labels=True,
        preprocessing=table.preprocessing,
        drop_missing=True,
    )
    assert (len(other), set(other.split), other.ends) == (40, {"test"}, None)
    assert {skipped.reason for skipped in other.skipped} == {"its target is not exact"}
