"""The analysis of intervals: coverage and width by value, prediction, subgroup and confidence."""

from pathlib import Path

import numpy as np
import pytest

from evaluation_cases import table_of, untrained
from rnc.analyses.coverage import target_intervals
from rnc.analyses.registry import analyse
from rnc.intervals import Conformal, Intervals
from rnc.metrics.intervals import coverage_interval, interval_score
from rnc.run.folder import DoesNotApply


def column(*values: float) -> np.ndarray:
    return np.array(values)[:, None]


def test_bins_of_the_target_have_their_own_coverage_and_width() -> None:
    truth, predicted = column(1, 1, 2, 2, 2), column(1, 3, 2, 2, 9)
    found = Intervals(predicted - column(1, 1, 2, 2, 2), predicted + column(1, 1, 2, 2, 2))
    result = target_intervals(found, predicted, truth, 0.8)
    assert result["bins"]["edges"] == [0.5, 1.5, 2.5]
    assert result["bins"]["n"] == [2, 3]
    assert result["bins"]["coverage"] == [0.5, pytest.approx(2 / 3)]
    assert result["bins"]["width"] == [2, 4]
    assert result["bins"]["width_low"] == result["bins"]["width_high"] == [2, 4]
    covered = np.array([True, False, True, True, False])
    ends = result["all"]["low"], result["all"]["high"]
    assert ends == coverage_interval(covered)
    assert result["all"]["width"] == pytest.approx(3.2)
    assert result["all"]["interval_score"] == interval_score(*found, truth, 0.8)


def test_a_band_goes_as_far_below_and_above_predictions_as_intervals_do() -> None:
    random = np.random.default_rng(0)
    known, new = random.uniform(0, 10, (100, 1)), random.uniform(0, 10, (50, 1))
    conformal = Conformal(known, known + random.normal(size=(100, 1)))
    found = conformal.intervals(new, 0.9)
    band = target_intervals(found, new, new, 0.9)["band"]
    half = (found.upper - found.lower)[0, 0] / 2
    assert band["predicted"] == sorted(band["predicted"])
    assert (band["predicted"][0], band["predicted"][-1]) == (new.min(), new.max())
    np.testing.assert_allclose(band["below"], half)
    np.testing.assert_allclose(band["above"], half)


def test_one_width_for_all_is_one_number_in_every_bin() -> None:
    predicted = np.random.default_rng(0).uniform(0, 7, (90, 1))
    found = Intervals(predicted - 0.1, predicted + 0.1)
    bins = target_intervals(found, predicted, predicted, 0.9)["bins"]
    widths = bins["width"] + bins["width_low"] + bins["width_high"]
    assert set(widths) - {None} == {0.2}


def test_arcs_across_midnight_have_a_band_as_wide_as_they_are_long() -> None:
    predicted = column(23.5, 0.5)
    found = Intervals(column(22.5, 23.0), column(1.5, 2.0))
    result = target_intervals(found, predicted, column(0.0, 12.0), 0.5, period=24.0)
    assert result["band"]["predicted"] == [0.5, 23.5]
    np.testing.assert_allclose(result["band"]["below"], [1.5, 1.0])
    np.testing.assert_allclose(result["band"]["above"], [1.5, 2.0])
    assert result["all"]["coverage"] == 0.5
    whole = Intervals(column(0.0), column(24.0))
    band = target_intervals(whole, column(3.0), column(3.0), 0.5, period=24.0)["band"]
    assert (band["below"], band["above"]) == ([12.0], [12.0])


def test_a_run_without_intervals_says_what_writes_them(tmp_path: Path) -> None:
    run = untrained(tmp_path / "run", table_of(60))
    with pytest.raises(DoesNotApply, match=r"no columns that end in _lower .* `rnc resume"):
        analyse(run, "coverage")
