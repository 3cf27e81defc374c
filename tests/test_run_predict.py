"""Predictions of a run for new samples."""

import numpy as np
import pandas as pd
import pytest

from evaluation_cases import fitted, houses
from rnc.model import Regressor
from rnc.run.predict import predict_run
from rnc.run.predictions import EXTRAS


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("houses")
    return fitted(folder / "run", houses(folder / "houses.csv"))


def test_predictions_are_those_of_the_model_by_the_name_of_the_sample(run, tmp_path):
    frame, _, skipped = predict_run(run.path, houses(tmp_path / "new.csv", n=7, seed=1))
    assert list(frame) == ["name", "price_given", "town", "age", "price"]
    assert frame["name"].tolist() == [str(row) for row in range(2, 9)]
    assert skipped == ()
    again, _, _ = predict_run(run.path, run.path.parent / "houses.csv")
    table = run.table
    expected = Regressor.load(run.path).steady().predict_prepared(table.x)[:, 0]
    by_name = pd.Series(expected, index=table.names)
    np.testing.assert_array_equal(again["price"], by_name[again["name"]])


def test_an_extra_is_a_further_column(run, tmp_path, monkeypatch):
    monkeypatch.setitem(EXTRAS, "upper", lambda model, z: model.head.decode(model.head(z)) + 5)
    monkeypatch.setitem(EXTRAS, "absent", lambda model, features: None)
    frame, _, _ = predict_run(run.path, houses(tmp_path / "new.csv", n=7))
    assert list(frame)[-2:] == ["price", "price_upper"]
    np.testing.assert_allclose(frame["price_upper"] - frame["price"], 5, rtol=1e-4)
