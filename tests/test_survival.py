"""Survival times from a known hazard: RnC, a Cox model, and rules of pairs by definition."""

import importlib.util
import itertools
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

FOLDER = Path(__file__).parent.parent / "benchmarks"


@pytest.fixture(scope="module")
def bench() -> Iterator[ModuleType]:
    """benchmarks/survival.py, which draws the times."""
    sys.path.insert(0, str(FOLDER))
    spec = importlib.util.spec_from_file_location("survival", FOLDER / "survival.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    sys.path.remove(str(FOLDER))


def test_a_cox_model_is_the_maximum_of_the_partial_likelihood(bench: ModuleType) -> None:
    data = bench.survival(bench.linear_risk, seed=1, n=120)

    def objective(weight: np.ndarray) -> float:
        risk, total = data.x @ weight, 0.0
        for i in np.flatnonzero(data.seen):
            total += np.log(np.exp(risk[data.time >= data.time[i]]).sum()) - risk[i]
        return total / len(data.x) + 1e-3 * (weight**2).sum()

    found = minimize(objective, np.zeros(bench.FEATURES), method="BFGS")
    np.testing.assert_allclose(bench.cox_weights(data), found.x, atol=1e-3)


def test_rnc_ranks_survival_times_about_as_well_as_a_cox_model_that_is_right(
    bench: ModuleType,
) -> None:
    """The risk is linear, as the Cox model assumes; no model beats the true risk but by chance."""
    everyone = bench.survival(bench.linear_risk, seed=0, n=1300)
    data, test = everyone.at(slice(0, 300)), everyone.at(slice(300, None))
    assert 0.5 < data.seen.mean() < 0.7
    frame = bench.frame_of(data, np.arange(300) % 6 == 0)
    score = bench.run_score(frame, test, seed=0, epochs=10)
    best = test.concordance(-test.risk)
    cox = test.concordance(-(test.x @ bench.cox_weights(data)))
    assert best > cox > 0.7
    assert score > cox - 0.04
    assert score < best + 0.01


def random_ends(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Exact and right-censored labels of few values, with ties."""
    generator = torch.Generator().manual_seed(seed)
    lower = torch.randint(6, (7,), generator=generator).double()
    seen = torch.rand(7, generator=generator) < 0.6
    return lower, torch.where(seen, lower, torch.inf)


@pytest.mark.parametrize("seed", range(4))
def test_a_contrast_is_certain_if_every_completion_has_it(bench: ModuleType, seed: int) -> None:
    lower, upper = random_ends(seed)
    certain = bench.is_certain(lower, upper)
    values = [
        [float(v)] if v == w else [float(v) + s / 2 for s in range(25)] + [1e5, 1e6]
        for v, w in zip(lower, upper, strict=True)
    ]
    for i, j, k in itertools.permutations(range(7), 3):
        always = all(
            abs(a - c) >= abs(a - b)
            for a, b, c in itertools.product(values[i], values[j], values[k])
        )
        assert bool(certain[i, j, k]) == always, (i, j, k, lower, upper)


def test_rules_agree_where_an_anchor_is_exact(bench: ModuleType) -> None:
    """Intervals of distances see less where the anchor is censored: both share its unknown time."""
    missed = 0
    for seed in range(20):
        lower, upper = random_ends(seed)
        ours, certain, published = (rule(lower, upper) for rule in bench.RULES.values())
        apart = ~torch.eye(7, dtype=torch.bool)
        triples = apart[:, :, None] & apart[:, None, :] & apart
        assert (ours <= certain)[triples].all()
        exact = (lower == upper)[:, None, None] & triples
        assert torch.equal(ours[exact], certain[exact])
        assert torch.equal(published[triples] == 1, certain[triples] == 1)
        assert set(published.unique().tolist()) <= {0.0, 0.5, 1.0}
        missed += int((certain > ours)[triples].sum())
    assert missed > 0


def test_the_loss_of_a_rule_is_that_of_its_equation(bench: ModuleType) -> None:
    lower, upper = random_ends(3)
    torch.manual_seed(0)
    z = torch.randn(7, 3, dtype=torch.float64)
    weights = bench.survrnc_rule(lower, upper)
    losses = []
    for i, j in itertools.permutations(range(7), 2):
        s = [-float((z[i] - z[k]).norm()) / 2 for k in range(7)]
        rest = [k for k in range(7) if k not in (i, j)]
        if any(weights[i, j, k] > 0 for k in rest):
            total = np.exp(s[j]) + sum(float(weights[i, j, k]) * np.exp(s[k]) for k in rest)
            losses.append(np.log(total) - s[j])
    assert float(bench.rule_loss(z, weights)) == pytest.approx(np.mean(losses), rel=1e-6)
