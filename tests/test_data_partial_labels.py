"""Targets that are known in part, as people write them."""

import math

import numpy as np
import pandas as pd
import pytest

from rnc.data.errors import DataError
from rnc.data.partial_labels import ends_of_cells, ends_of_columns, ends_of_times, read_cell

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


def test_two_columns_hold_the_ends() -> None:
    frame = pd.DataFrame({"low": [1, 2.0, None, None], "high": [1, None, 5, None]})
    lower, upper = ends_of_columns(frame["low"], frame["high"], "t.csv")
    assert lower.tolist() == [1, 2, -INF, -INF]
    assert upper.tolist() == [1, INF, 5, INF]


def test_a_time_is_exact_where_its_event_was_seen() -> None:
    frame = pd.DataFrame({"days": [10.0, 20, 30, None], "died": ["yes", "no", "yes", None]})
    lower, upper = ends_of_times(frame["days"], frame["died"], "t.csv")
    assert lower.tolist() == [10, 20, 30, -INF]
    assert upper.tolist() == [10, INF, 30, INF]


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
