"""Compare RnC on censored survival times with a Cox model and the true risk, by concordance.

    python benchmarks/survival.py --seeds 0 1 2 --out benchmarks/results/survival.csv

Times are drawn from a known hazard exp(risk(x)), whose risk is linear in the features or curved.
About 4 of 10 are censored, at independent exponential times. There are 600 rows to learn from,
1,000 to test on, and 8 features. The models learn the logarithm of the time. Concordance is
Harrell's C over test rows.

    true risk               the risk from which times were drawn: only chance can beat it
    cox                     a linear Cox model, by Newton's method on the partial likelihood
    rnc                     preset quick, 25 epochs: censored rows train encoder and head
    rnc, events only        the same with censored rows dropped
    rnc, censored as exact  the same with times of censoring taken as times of events
    l1                      the head's loss end to end, with censored rows

It also compares rules of which k are contrasts of a pair (i, j). Each rule trains a small encoder
by the loss of RnC, with a solved l1 head:

    pairs: intervals        the rule of rnc_loss: the interval of the distance from i to k lies
                            above that from i to j
    pairs: certain          k is at least as far from i as j is, whatever the true times are. These
                            are more if i is censored: 60 is nearer to a time above 90 than 20 is
    pairs: SurvRNC          Saeed et al. 2024, "SurvRNC": certain contrasts have weight 1,
                            contradicted ones 0, and unknown ones 1/2
"""

import argparse
import platform
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from results_file import append_rows
from rnc.config import FitConfig
from rnc.data import read_table
from rnc.heads import make_head
from rnc.metrics import concordance_index
from rnc.training.probe import solve_head
from rnc.training.recipes import build_regressor, train

Array = NDArray[np.float64]
TRAIN, TEST, FEATURES = 600, 1000, 8
FAR = 1e6
"""Takes the place of an open end, since no logarithm of a time is as large."""
EPOCHS = 25


class Survival(NamedTuple):
    """Rows with a time until an event or until censoring."""

    x: Array
    time: Array
    """Logarithms of the times, (n,)."""
    seen: NDArray[np.bool_]
    risk: Array

    def at(self, rows: NDArray[np.bool_] | slice) -> "Survival":
        """Some of the rows."""
        return Survival(*(values[rows] for values in self))

    @property
    def upper(self) -> Array:
        """Upper ends of the times."""
        return np.where(self.seen, self.time, np.inf)

    def concordance(self, predicted: Array) -> float:
        """Harrell's C of predicted times (n,)."""
        return concordance_index(predicted, self.time, self.upper)


def linear_risk(x: Array) -> Array:
    """A linear risk, which a Cox model can fit."""
    return x[:, 0] - 0.7 * x[:, 1] + 0.5 * x[:, 2]


def curved_risk(x: Array) -> Array:
    """A risk with a valley and a product of features, which no linear model can fit."""
    return 1.2 * (np.abs(x[:, 0]) - 0.8) + x[:, 1] * x[:, 2] + 0.4 * x[:, 3]


RISKS: dict[str, Callable[[Array], Array]] = {"linear": linear_risk, "curved": curved_risk}


def survival(risk: Callable[[Array], Array], seed: int, n: int = TRAIN + TEST) -> Survival:
    """Rows with times from the hazard exp(risk), and with independent censoring."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, FEATURES))
    event = rng.exponential(size=n) * np.exp(-risk(x))
    censoring = rng.exponential(size=n) * 1.5
    return Survival(x, np.log(np.minimum(event, censoring)), event <= censoring, risk(x))


def cox_weights(data: Survival, penalty: float = 1e-3) -> Array:
    """The weights of a linear Cox model, (d,): Newton's method, no ties.

    With S the rows that are at risk when row i has its event, it minimises
        mean_i seen_i (log sum_{k in S} exp(w x_k) - w x_i) + penalty |w|^2
    """
    order = np.argsort(-data.time)
    x, seen = data.x[order], data.seen[order]
    weight = np.zeros(x.shape[1])
    for _ in range(30):
        mass = np.exp(x @ weight - (x @ weight).max())
        total = np.cumsum(mass)[:, None]
        mean = np.cumsum(mass[:, None] * x, axis=0) / total
        outer = np.cumsum(mass[:, None, None] * x[:, :, None] * x[:, None, :], axis=0)
        spread = outer / total[..., None] - mean[:, :, None] * mean[:, None, :]
        gradient = (mean - x)[seen].sum(axis=0) / len(x) + 2 * penalty * weight
        hessian = spread[seen].sum(axis=0) / len(x) + 2 * penalty * np.eye(len(weight))
        step = np.linalg.solve(hessian, gradient)
        weight = weight - step
        if np.abs(step).max() < 1e-10:
            break
    return weight


# ------------------------------------------------------------------------------- runs of rnc


def frame_of(data: Survival, is_val: NDArray[np.bool_], censored: str = "known") -> pd.DataFrame:
    """A table to train on; censored rows are known as such, taken as exact, or dropped."""
    frame = pd.DataFrame(data.x, columns=[f"x{i}" for i in range(FEATURES)])
    split = np.where(is_val & data.seen, "val", "train")
    frame = frame.assign(log_time=data.time, split=split)
    if censored == "known":
        return frame.assign(seen=data.seen.astype(int))
    return frame if censored == "exact" else frame[data.seen]


def run_score(frame: pd.DataFrame, test: Survival, seed: int, **options: Any) -> float:
    """The concordance of a model that is trained on these rows as by `rnc fit`."""
    tested = frame[frame["split"] == "val"].iloc[:5].assign(split="test")  # a table needs test rows
    frame = pd.concat([frame, tested], ignore_index=True)
    events = ["seen"] if "seen" in frame else []
    table = read_table(frame, target=["log_time"], event_column=events)
    config = FitConfig(preset="quick", device="cpu", seed=seed, **{"epochs": EPOCHS, **options})
    model = build_regressor(table, config)
    for _ in train(model, table, config):
        pass
    new = pd.DataFrame(test.x, columns=[f"x{i}" for i in range(FEATURES)])
    return test.concordance(np.asarray(model.predict(new)).reshape(-1))


# ------------------------------------------------------------------------------ rules of pairs


def is_certain(lower: Tensor, upper: Tensor) -> Tensor:
    """Whether k is at least as far from i as j is, whatever the labels are: (n,) -> (n, n, n).

    If i is at a, k is at least dist(a, [l_k, u_k]) away and j at most max(|a - l_j|, |a - u_j|).
    The difference is smallest at an end of i, at an end of k, or in the middle of j.
    """
    lower, upper = lower.clamp(-FAR, FAR), upper.clamp(-FAR, FAR)
    (l_i, l_j, l_k), (u_i, u_j, u_k) = ((e[:, None, None], e[:, None], e) for e in (lower, upper))
    certain = torch.ones(3 * lower.shape, dtype=torch.bool)
    for place in (l_i, u_i, l_k, u_k, (l_j + u_j) / 2):
        a = torch.minimum(torch.maximum(place, l_i), u_i)
        nearest = torch.maximum(l_k - a, a - u_k).clamp(min=0)
        furthest = torch.maximum((a - l_j).abs(), (a - u_j).abs())
        certain = certain & (nearest >= furthest)
    return certain


def interval_rule(lower: Tensor, upper: Tensor) -> Tensor:
    """The contrasts of rnc_loss: 1 if k is a contrast of the pair (i, j), else 0, (n, n, n)."""
    low = torch.maximum(lower[:, None] - upper, lower - upper[:, None]).clamp(min=0)
    high = torch.maximum(upper[:, None] - lower, upper - lower[:, None])
    return ((low[:, None, :] >= high[:, :, None]) & high.isfinite()[:, :, None]).double()


def certain_rule(lower: Tensor, upper: Tensor) -> Tensor:
    """1 for orders that hold whatever the labels are, 0 for the others."""
    return is_certain(lower, upper).double()


def survrnc_rule(lower: Tensor, upper: Tensor) -> Tensor:
    """1 for certain orders, 0 for contradicted ones, 1/2 for the others."""
    certain = is_certain(lower, upper)
    return torch.where(certain, 1.0, torch.where(certain.transpose(1, 2), 0.0, 0.5)).double()


RULES = {"intervals": interval_rule, "certain": certain_rule, "SurvRNC": survrnc_rule}


def rule_loss(features: Tensor, weights: Tensor, temperature: float = 2.0) -> Tensor:
    """The mean of -log exp(s_ij) / sum_k w_ijk exp(s_ik) over pairs that have a contrast: ().

    The sum contains k = j with weight 1, as for RnC, whatever the rule is.
    """
    n = len(features)
    gaps = features[:, None] - features
    logits = -(gaps.square().sum(dim=2) + 1e-12).sqrt() / temperature
    own = torch.eye(n, dtype=torch.bool)
    weights = weights.masked_fill(own[:, None, :] | own[:, :, None], 0.0)
    is_pair = (weights.sum(dim=2) > 0) & ~own
    weights = torch.where(own, 1.0, weights)  # k = j
    sums = (weights.log() + logits[:, None, :]).logsumexp(dim=2)
    return (sums - logits)[is_pair].mean()


def rule_score(
    rule: str, data: Survival, is_val: NDArray[np.bool_], test: Survival, seed: int
) -> float:
    """The concordance of an encoder that is trained by a rule, with a solved head."""
    torch.manual_seed(seed)
    encoder = nn.Sequential(nn.Linear(FEATURES, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU())
    encoder.append(nn.Linear(64, 16)).double()
    learned = data.at(~(is_val & data.seen))
    x, lower, upper = (torch.tensor(v) for v in (learned.x, learned.time, learned.upper))
    optimizer = torch.optim.AdamW(encoder.parameters(), lr=1e-3, weight_decay=0.05)
    for _ in range(300):
        rows = torch.randperm(len(x))[:48]
        optimizer.zero_grad()
        loss = rule_loss(encoder(x[rows]), RULES[rule](lower[rows], upper[rows]))
        torch.autograd.backward(loss)
        optimizer.step()
    val = data.at(is_val & data.seen)
    with torch.no_grad():
        z, z_val, z_test = (encoder(torch.tensor(v)) for v in (learned.x, val.x, test.x))
    head = make_head("l1", 16, learned.time[learned.seen]).double()
    known = (torch.tensor(val.time)[:, None],)
    solve_head(head, z, lower[:, None], z_val, *known, upper=upper[:, None])
    with torch.no_grad():
        return test.concordance(head.decode(head(z_test))[:, 0].numpy())


# -------------------------------------------------------------------------------------- rows


def scores(shape: str, seed: int) -> Iterator[tuple[str, float]]:
    """The name and the concordance of every method."""
    everyone = survival(RISKS[shape], seed)
    data, test = everyone.at(slice(0, TRAIN)), everyone.at(slice(TRAIN, None))
    is_val = np.arange(TRAIN) % 6 == 0
    yield "true risk", test.concordance(-test.risk)
    yield "cox", test.concordance(-(test.x @ cox_weights(data)))
    frame = frame_of(data, is_val)
    yield "rnc", run_score(frame, test, seed)
    yield "rnc, events only", run_score(frame_of(data, is_val, "dropped"), test, seed)
    yield "rnc, censored as exact", run_score(frame_of(data, is_val, "exact"), test, seed)
    yield "l1", run_score(frame, test, seed, scheme="end2end")
    for rule in RULES:
        yield f"pairs: {rule}", rule_score(rule, data, is_val, test, seed)


def main() -> None:
    """Write a row per hazard, seed and method."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--risks", nargs="+", default=list(RISKS), choices=list(RISKS))
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    versions = {"torch": torch.__version__, "python": platform.python_version()}
    for shape in arguments.risks:
        for seed in arguments.seeds:
            started = time.perf_counter()
            for method, score in scores(shape, seed):
                seconds = round(time.perf_counter() - started, 1)
                row = {"risk": shape, "seed": seed, "method": method, "concordance": f"{score:.4f}"}
                append_rows(arguments.out, [row | {"seconds": seconds} | versions])
                print(*row.values(), seconds, sep="\t", file=sys.stderr, flush=True)
                started = time.perf_counter()


if __name__ == "__main__":
    main()
