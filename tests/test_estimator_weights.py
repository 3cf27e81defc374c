"""Weights of rows in Python: sample_weight of the estimator, and advice for other names."""

from typing import Any

import numpy as np
import pytest
from sklearn.metrics import r2_score

import rnc
from rnc import FitConfig, RnCRegressor
from test_estimator import columns, small, tables_seen


def test_weights_reach_the_table_and_the_score(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = tables_seen(monkeypatch)
    x, y = columns()
    given = np.arange(40) + 1.0
    model = small().fit(x, y, given)
    assert seen[0][0].weight is not None
    assert seen[0][0].weight.tolist() == given.tolist()
    expected = r2_score(y, model.predict(x), sample_weight=given)
    assert model.score(x, y, sample_weight=given) == pytest.approx(expected)
    assert small().fit(x, y).score(x, y) != expected


def test_one_number_weighs_all_rows_alike() -> None:
    x, y = columns()
    one, none = small().fit(x, y, sample_weight=2.0), small().fit(x, y)
    np.testing.assert_array_equal(one.predict(x), none.predict(x))


def test_all_rows_choose_where_those_kept_for_validation_weigh_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = tables_seen(monkeypatch)
    x, y = columns()
    small().fit(x, y)
    val = seen[0][0].names[seen[0][0].rows("val")].astype(int)
    given = np.ones(40)
    given[val] = 0
    small().fit(x, y, sample_weight=given)
    table = seen[1][0]
    assert len(table.rows("val")) == 40
    assert table.weight is not None
    assert table.weight.tolist() == [*given, *given]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (np.ones(39), r"one weight per row, \(40,\); got shape \(39,\)"),
        (-np.ones(40), "weight is -1, expected a weight of 0 or more. 39 more"),
        (np.full(40, np.nan), "weight is missing in 40 of 40 rows"),
        (np.zeros(40), "weight is zero in all rows"),
    ],
    ids=["length", "negative", "nan", "nothing"],
)
def test_bad_weights_are_refused(given: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RnCRegressor(device="cpu", epochs=1).fit(*columns(), sample_weight=given)


@pytest.mark.parametrize("name", ["weight", "sample_weight"])
def test_other_names_for_weights_are_answered(name: str) -> None:
    with pytest.raises(TypeError, match=rf"no option '{name}'\. .* weight_column='NAME'"):
        rnc.fit("houses.csv", out="nowhere", **{name: "w"})


def test_weights_to_start_from_are_no_weights_of_rows() -> None:
    with pytest.raises(TypeError, match=r"a file to start .*; got ndarray\..* weight_column="):
        FitConfig(weights=np.ones(3))
