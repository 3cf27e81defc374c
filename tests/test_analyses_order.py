"""The order of a run's features: loss against bound, delta, ordinality."""

import time

import numpy as np
import pytest
import torch
from scipy import stats

from evaluation_cases import table_of, untrained, with_config, written
from rnc import rnc_loss
from rnc.analyses.order import order_of, smallest_delta
from rnc.analyses.registry import analyse
from rnc.loss.theory import epsilon, ideal_embedding, is_delta_ordered, lower_bound
from rnc.metrics import ordinality


def test_loss_bound_and_gap_are_means_over_whole_batches(tmp_path):
    config = with_config(batch_size=16, temperature=0.7, similarity="cosine")
    table = table_of(n=240)
    table.y[:] = table.y.round()  # ties: a bound above 0
    run = untrained(tmp_path, table, config)
    analyse(run, "order")
    found = written(run, "order")
    assert list(found) == ["loss", "bound", "gap", "provable_gap", "delta", "spearman", "kendall"]
    z, y = torch.tensor(run.features).double(), torch.tensor(run.truth)
    rows = np.random.default_rng(0).permutation(80).reshape(5, 16)
    losses = [float(rnc_loss(z[r], y[r], temperature=0.7, similarity="cosine")) for r in rows]
    bounds = [float(lower_bound(y[r])) for r in rows]
    assert found["loss"] == pytest.approx(np.mean(losses))
    assert found["bound"] == pytest.approx(np.mean(bounds))
    assert found["bound"] > 0
    assert found["gap"] == pytest.approx(found["loss"] - found["bound"])
    proofs = [float(epsilon(y[r], 1 - 1e-9)) for r in rows]
    assert found["provable_gap"] == pytest.approx(np.mean(proofs))
    assert found["delta"] is None
    assert found["spearman"] == pytest.approx(run.scores["test"]["spearman"])
    assert found["kendall"] == pytest.approx(run.scores["test"]["kendall"])


def test_what_fills_no_batch_is_left_out():
    rng = np.random.default_rng(0)
    z, y = rng.normal(size=(25, 3)), rng.normal(size=(25, 1))
    rows = np.random.default_rng(4).permutation(25)[:20].reshape(2, 10)
    expected = [float(rnc_loss(torch.tensor(z[r]), torch.tensor(y[r]))) for r in rows]
    found = order_of(z, y, batch_size=10, seed=4)
    assert found["loss"] == pytest.approx(np.mean(expected))


def test_delta_is_the_border_of_being_ordered():
    y = torch.tensor([[0.0], [1.0], [3.0], [7.0], [20.0]])
    z = ideal_embedding(y, scale=60.0)
    delta = smallest_delta([(z, y)])
    assert 0.01 < delta < 0.5
    assert is_delta_ordered(z, y, delta)
    assert not is_delta_ordered(z, y, 0.999 * delta)
    other = ideal_embedding(y, scale=20.0)
    assert smallest_delta([(z, y), (other, y)]) == smallest_delta([(other, y)]) > delta
    assert smallest_delta([(z, y), (z.flip(0)[[1, 0, 2, 3, 4]], y)]) is None


def test_no_order_is_null_where_features_cannot_be_compared(tmp_path):
    table = table_of(n=60)
    run = untrained(tmp_path, table)
    run.features[:] = 1.0
    analyse(run, "order")
    found = written(run, "order")
    assert found["spearman"] is found["kendall"] is None
    with pytest.raises(ValueError, match="2 <= batch_size <= n samples; got 9 and 8"):
        order_of(np.ones((8, 2)), np.ones((8, 1)), batch_size=9)


def test_ordinality_of_2000_points_is_exact_and_takes_seconds():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 90, 2000).astype(np.float64)  # ages: many ties
    z = y[:, None] / 20 + rng.normal(size=(2000, 2))
    started = time.perf_counter()
    found = ordinality(z, y)
    assert time.perf_counter() - started < 15  # 2 alone on one core
    pairs = np.triu_indices(2000, 1)
    label = -np.abs(y[:, None] - y)[pairs]
    feature = -np.sqrt(sum((z[:, i, None] - z[:, i]) ** 2 for i in range(2)))[pairs]
    assert found.spearman == pytest.approx(stats.spearmanr(label, feature).statistic, abs=1e-9)
    assert found.kendall == pytest.approx(stats.kendalltau(label, feature).statistic, abs=1e-7)
