"""CRPS of the heads that predict a distribution, against closed forms."""

from pathlib import Path

import numpy as np
import pytest
import torch

from evaluation_cases import table_of, untrained, with_config
from rnc.heads import make_head
from rnc.metrics.bootstrap import mean_interval
from rnc.metrics.distributions import crps_bins, crps_gaussian
from rnc.run.distribution import distribution_scores, sample_crps


def test_a_gaussian_head_has_the_score_in_closed_form() -> None:
    torch.manual_seed(0)
    targets = 40 + 9 * torch.randn(50, 2).double().numpy()
    head = make_head("gaussian", 4, targets)
    outputs = head(torch.randn(50, 4))
    found = sample_crps(head, outputs, targets)
    levels = torch.special.ndtr(torch.tensor([-1.0, 0.0, 1.0]).double()).tolist()
    low, middle, high = head.quantiles(outputs, levels).detach().numpy().transpose(2, 0, 1)
    for i in range(2):
        wanted = crps_gaussian(middle[:, i], ((high - low) / 2)[:, i], targets[:, i])
        np.testing.assert_allclose(found[:, i], wanted, rtol=0.01, atol=0.01)


def test_a_binned_head_has_the_score_of_its_histogram() -> None:
    torch.manual_seed(0)
    ages = np.arange(20.0, 60.0)
    head = make_head("dex", 4, ages)
    outputs = head(torch.randn(40, 4))
    (masses,) = head.masses(outputs)
    edges = np.arange(len(ages) + 1) + 19.5
    wanted = crps_bins(edges, masses.detach().double().numpy(), ages)
    found = sample_crps(head, outputs, ages[:, None])[:, 0]
    np.testing.assert_allclose(found, wanted, rtol=0.02, atol=0.02)


def test_samples_that_are_not_finite_count_nowhere() -> None:
    head = make_head("gaussian", 2, np.arange(9.0))
    outputs = torch.zeros(3, 2)
    outputs[1] = torch.nan
    found = sample_crps(head, outputs, np.ones((3, 1)))
    assert np.isnan(found[:, 0]).tolist() == [False, True, False]
    entry = distribution_scores(found, ["age"])
    low, high = mean_interval(found[[0, 2], 0])
    assert entry["age"] == pytest.approx({"crps": found[0, 0], "low": low, "high": high})
    assert distribution_scores(found[[1]], ["age"]) == {}


def test_an_evaluation_has_the_score_exactly_if_the_head_has_a_distribution(tmp_path: Path) -> None:
    table = table_of(60)
    run = untrained(tmp_path / "gaussian", table, with_config(head="gaussian"))
    entry = run.scores["distribution"]["price"]
    assert 0 < entry["low"] < entry["crps"] < entry["high"]
    assert "distribution" not in untrained(tmp_path / "l1", table).scores
