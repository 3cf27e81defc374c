"""Columns of a table as numbers."""

import json

import numpy as np
import pandas as pd
import pytest

from rnc.data.errors import DataError
from rnc.data.features import apply_features, feature_names, fit_features


def through_json(frame, train=None):
    train = np.arange(len(frame)) if train is None else np.asarray(train)
    return json.loads(json.dumps(fit_features(frame, train, "t.csv")))


def test_numbers_are_standardised_with_train_rows_only():
    frame = pd.DataFrame({"a": [1.0, 2.0, 3.0, 100.0]})
    x = apply_features(frame, through_json(frame, [0, 1, 2]), "t.csv")
    spread = np.std([1.0, 2.0, 3.0])
    assert x.dtype == np.float32
    np.testing.assert_allclose(x[:, 0], (np.array([1, 2, 3, 100]) - 2) / spread, rtol=1e-6)


def test_gap_takes_the_train_median_and_an_indicator():
    frame = pd.DataFrame({"a": [1.0, 2.0, 9.0, np.nan, 50.0]})
    fitted = through_json(frame, [0, 1, 2, 3])
    x = apply_features(frame, fitted, "t.csv")
    assert feature_names(fitted) == ["a", "a is missing"]
    assert x[:, 1].tolist() == [0, 0, 0, 1, 0]
    assert x[3, 0] == x[1, 0]  # 2 is the median


def test_gap_in_new_data_only_takes_the_median_without_an_indicator():
    frame = pd.DataFrame({"a": [1.0, 2.0, 9.0]})
    fitted = through_json(frame)
    x = apply_features(pd.DataFrame({"a": [np.nan, 2.0]}), fitted, "new.csv")
    assert x.shape == (2, 1)
    assert x[0] == x[1]


def test_categories_are_one_hot_over_train_values_and_unknown_is_all_zeros():
    frame = pd.DataFrame({"city": ["Oslo", "Rome", "Oslo", "Paris", None]})
    fitted = through_json(frame, [0, 1, 4])
    x = apply_features(frame, fitted, "t.csv")
    assert feature_names(fitted) == ["city=Oslo", "city=Rome", "city is missing"]
    assert x.tolist() == [[1, 0, 0], [0, 1, 0], [1, 0, 0], [0, 0, 0], [0, 0, 1]]


@pytest.mark.parametrize(
    "values",
    [
        [True, False, True],
        pd.array([True, False, None], dtype="boolean"),
        np.array([True, False, None], dtype=object),
    ],
)
def test_booleans_are_1_and_0_with_or_without_gaps(values):
    frame = pd.DataFrame({"smokes": values})
    fitted = through_json(frame)
    assert fitted["columns"][0]["type"] == "boolean"
    x = apply_features(frame, fitted, "t.csv")
    assert x[:2, 0].tolist() == [1, 0]
    assert x[2].tolist() == ([1] if len(x[2]) == 1 else [0.5, 1])  # a gap is between


def test_nullable_and_text_numbers_are_numbers():
    frame = pd.DataFrame({"a": pd.array([1, None, 3], dtype="Int64"), "b": ["1.5", "2", "3"]})
    fitted = through_json(frame)
    assert feature_names(fitted) == ["a", "a is missing", "b"]


def test_categorical_numbers_are_one_hot():
    frame = pd.DataFrame({"code": pd.Categorical([3, 1, 3])})
    assert feature_names(through_json(frame)) == ["code=1", "code=3"]


def test_constant_and_empty_columns_add_nothing_but_marks_of_gaps():
    frame = pd.DataFrame(
        {
            "same": [0.1] * 4,
            "empty": [np.nan] * 4,
            "same with gaps": [7.0, np.nan, 7.0, 7.0],
            "varies": [1.0, 2.0, 3.0, 4.0],
        }
    )
    fitted = through_json(frame)
    assert feature_names(fitted) == ["same with gaps is missing", "varies"]
    new = frame.assign(same=1e9)
    assert (apply_features(new, fitted, "t.csv") == apply_features(frame, fitted, "t.csv")).all()


def test_tables_without_a_varying_column_are_refused():
    frame = pd.DataFrame({"a": [1.0, 1.0], "b": [2.0, 2.0]})
    with pytest.raises(DataError, match=r"none of its 2 feature columns \(a, b\) varies"):
        fit_features(frame, np.arange(2), "t.csv")


@pytest.mark.parametrize("scale", [1e-300, 1e-200, 1e200])
def test_extreme_scales_stay_finite(scale):
    frame = pd.DataFrame({"a": np.array([1.0, 2.0, 3.0]) * scale})
    x = apply_features(frame, through_json(frame), "t.csv")
    np.testing.assert_allclose(x[:, 0], [-1.2247, 0, 1.2247], rtol=1e-3, atol=1e-6)


def test_far_outliers_in_new_data_stay_finite():
    frame = pd.DataFrame({"a": [0.0, 1e-200]})
    x = apply_features(pd.DataFrame({"a": [1e200]}), through_json(frame), "t.csv")
    assert np.isfinite(x).all()
    assert x[0, 0] > 1e30


def test_infinite_value_names_row_and_column():
    frame = pd.DataFrame({"a": [1.0, np.inf, 3.0]}, index=[2, 3, 4])
    with pytest.raises(DataError, match=r"^t\.csv row 3: a is inf, expected a finite number\."):
        fit_features(frame, np.arange(3), "t.csv")


def test_infinite_value_outside_the_train_rows_is_found():
    frame = pd.DataFrame({"a": [1.0, 2.0, -np.inf]}, index=[2, 3, 4])
    fitted = fit_features(frame, np.arange(2), "t.csv")
    with pytest.raises(DataError, match=r"row 4: a is -inf, expected a finite number"):
        apply_features(frame, fitted, "t.csv")


def test_too_many_texts_say_how_to_drop_the_column():
    frame = pd.DataFrame({"note": [f"text {i}" for i in range(101)], "a": range(101)})
    message = (
        r"column 'note' is text with 101 different values in 101 rows\. It cannot be a feature: "
        r"leave it out .*--feature-column \(.* --exclude-column \("
    )
    with pytest.raises(DataError, match=message):
        fit_features(frame, np.arange(101), "t.csv")
    assert len(feature_names(fit_features(frame, np.arange(100), "t.csv"))) == 101


def test_words_among_numbers_are_named():
    values = [str(i) for i in range(200)]
    values[33:53] = [f"about {i}" for i in range(20)]
    frame = pd.DataFrame({"power": values}, index=range(2, 202))
    with pytest.raises(DataError, match=r"'power' holds numbers and text: row 35 is 'about 0'\."):
        fit_features(frame, np.arange(200), "t.csv")


def test_text_where_the_train_rows_had_numbers_names_row_and_value():
    fitted = through_json(pd.DataFrame({"a": [1.0, 2.0]}))
    new = pd.DataFrame({"a": ["1", "two"]}, index=[2, 3])
    with pytest.raises(DataError, match=r"^new\.csv row 3: a is 'two', expected a number, as in"):
        apply_features(new, fitted, "new.csv")


def test_durations_are_refused_with_advice():
    frame = pd.DataFrame({"took": pd.to_timedelta([1, 2], unit="h")})
    message = (
        r"column 'took' holds durations; turn them into plain numbers\. .* --feature-column \("
    )
    with pytest.raises(DataError, match=message):
        fit_features(frame, np.arange(2), "t.csv")


def test_missing_column_in_new_data_is_named_with_close_ones():
    fitted = through_json(pd.DataFrame({"length": [1.0, 2.0]}))
    message = r"new\.csv has no column 'length'; its columns: lenght, b\. Did you mean 'lenght'\?"
    with pytest.raises(DataError, match=message):
        apply_features(pd.DataFrame({"lenght": [1.0], "b": [1.0]}), fitted, "new.csv")
