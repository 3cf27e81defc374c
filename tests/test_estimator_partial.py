"""RnCRegressor on targets that are missing or known in part."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

from rnc import RnCRegressor
from rnc.data.errors import DataError, DataWarning


def small(**changes: Any) -> RnCRegressor:
    """An estimator of a second."""
    return RnCRegressor(**{"preset": "quick", "epochs": 2, "device": "cpu", **changes})


def numbers(n: int = 60) -> tuple[NDArray[Any], NDArray[Any]]:
    """Inputs and targets."""
    X = np.random.default_rng(0).normal(size=(n, 3))
    return X, 10 * X[:, 0] + 40


def test_rows_without_a_target_train_the_encoder() -> None:
    X, y = numbers()
    y[::2] = np.nan
    used, dropped = small(unlabelled="use").fit(X, y), small(unlabelled="drop").fit(X, y)
    alone = small().fit(X[1::2], y[1::2])
    assert (dropped.predict(X) != used.predict(X)).any()
    assert np.abs(used.predict(X)[1::2] - y[1::2]).mean() < 5
    for model in (used, dropped):
        assert set(model.explain(X, 3).rows.ravel()) <= set(range(1, 60, 2))
    assert alone.n_iter_ == dropped.n_iter_
    with pytest.raises(ValueError, match=r"y contains NaN.*unlabelled='use' trains the encoder"):
        small().fit(X, y)


def test_pandas_na_is_a_missing_target() -> None:
    X, y = numbers()
    gaps = np.arange(60) % 2 == 0
    y[gaps] = np.nan
    cells = pd.Series([pd.NA if gap else value for gap, value in zip(gaps, y, strict=True)])
    by_nan, by_na = (small(unlabelled="use").fit(X, given) for given in (y, cells))
    assert np.array_equal(by_na.predict(X), by_nan.predict(X))


def test_upper_ends_are_of_targets_that_are_known_in_part() -> None:
    X, y = numbers()
    upper = y.copy()
    upper[::3] = np.inf
    y[1::6], upper[1::6] = -np.inf, 45.0
    groups = np.arange(60) // 4
    fitted = small().fit(X, y, upper=upper, groups=groups)
    exact = y == upper
    assert set(fitted.explain(X, 2).rows.ravel()) <= set(np.flatnonzero(exact))
    assert np.abs(fitted.predict(X) - (10 * X[:, 0] + 40)).mean() < 5
    assert np.array_equal(
        small().fit(X[exact], y[exact]).predict(X),
        small().fit(X[exact], y[exact], upper=upper[exact]).predict(X),
    )
    with pytest.raises(DataError, match=r"arrays row 3: y goes from 70 to 7; its lower end is"):
        small().fit(X, np.full(60, 70.0), upper=np.where(np.arange(60) == 3, 7.0, 70.0))
    with pytest.raises(ValueError, match=r"upper must have the shape of y; got \(60, 2\) and"):
        small().fit(X, y, upper=np.ones((60, 2)))


def test_few_rows_with_targets_validate_what_they_train() -> None:
    X, y = numbers(30)
    y[6:] = np.nan
    fitted = small(unlabelled="use").fit(X, y)
    assert set(fitted.explain(X, 2).rows.ravel()) <= set(range(6))
    assert np.isfinite(fitted.predict(X)).all()


def test_a_method_that_needs_exact_targets_says_so() -> None:
    X, y = numbers()
    y[::2] = np.nan
    with pytest.warns(DataWarning, match="30 rows without a target are not used: a head's loss"):
        small(unlabelled="use", scheme="end2end").fit(X, y)
    y[:] = np.nan
    with pytest.raises(DataError, match="y is missing in all 60 rows"):
        small(unlabelled="use").fit(X, y)
