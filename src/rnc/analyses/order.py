"""How well features follow the order of the labels: gap of the loss, delta, and ordinality."""

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rnc.analyses.analysis import AnalysisOptions
from rnc.config.sizes import Sizes
from rnc.data.splits import PARTIAL
from rnc.loss import rnc_loss
from rnc.loss.pairwise import Pairwise
from rnc.loss.theory import epsilon, is_delta_ordered, lower_bound
from rnc.metrics import ordinality
from rnc.run.folder import AnalysisResult, DoesNotApply, RunFolder

LEAST_SAMPLES = 3
_NEARLY_ONE = 1 - 1e-9
_STEPS = 30  # bisections of 0..1


def order(run: RunFolder, _: AnalysisOptions) -> AnalysisResult:
    """Loss, bound, gap and delta on batches of the test features, and ordinality on all of them."""
    if len(run.rows) < LEAST_SAMPLES:
        raise DoesNotApply(
            f"order needs at least {LEAST_SAMPLES} samples; {run.path} has features of "
            f"{len(run.rows)}."
        )
    counts = run.scores["n"]
    trained = Sizes(counts["train"], counts["train"] + counts.get(PARTIAL, 0))
    resolved = run.fit.resolve(trained, run.config["model"]["kind"])
    assert resolved.batch_size is not None
    batch_size = max(2, min(resolved.batch_size, len(run.rows)))
    temperature = resolved.method_options.temperature
    truth = run.truth[run.rows]
    content: dict[str, Any] = order_of(
        run.features, truth, batch_size=batch_size, temperature=temperature, **run.pairs
    )
    for name, score in ordinality(run.features, truth, **run.pairs)._asdict().items():
        content[name] = None if math.isnan(score) else score
    return AnalysisResult(content)


def order_of(
    features: NDArray[Any],
    targets: NDArray[Any],
    *,
    batch_size: int = 256,
    seed: int = 0,
    temperature: float = 2.0,
    label_distance: str | Pairwise = "l1",
    similarity: str = "l2",
) -> dict[str, float | None]:
    """Mean loss, bound and gap of batches, and the smallest delta for which all are delta-ordered.

    Loss and bound grow with the batch size, so compare runs with the same one; the gap grows less.
    provable_gap is the mean of theorem 3's epsilon for a delta just below 1. A batch whose gap is
    below its epsilon is delta-ordered for that delta. delta is None if no value below 1 fits all
    batches, as for most features of real data.

    Args:
        features: (n, d).
        targets: (n, t).
        batch_size: samples per batch; samples that do not fill a batch are left out.
        seed: seed of the order of the samples.
        temperature: as for `rnc_loss`.
        label_distance: as for `rnc_loss`.
        similarity: as for `rnc_loss`.

    >>> line = np.arange(4.0)[:, None]
    >>> order_of(10 * line, line, batch_size=4)["delta"] < 0.21
    True
    """
    if not 2 <= batch_size <= len(features):
        raise ValueError(
            f"order_of needs 2 <= batch_size <= n samples; got {batch_size} and {len(features)}."
        )
    shuffled = np.random.default_rng(seed).permutation(len(features))
    used = len(features) // batch_size * batch_size
    batches = [
        (torch.from_numpy(features[rows]).double(), torch.from_numpy(targets[rows]))
        for rows in shuffled[:used].reshape(-1, batch_size)
    ]
    pairs: dict[str, Any] = {"label_distance": label_distance}
    loss_options = pairs | {"temperature": temperature, "similarity": similarity}
    losses = [float(rnc_loss(z, y, **loss_options)) for z, y in batches]
    bounds = [float(lower_bound(y, **pairs)) for _, y in batches]
    loss, bound = float(np.mean(losses)), float(np.mean(bounds))
    provable = float(np.mean([float(epsilon(y, _NEARLY_ONE, **pairs)) for _, y in batches]))
    delta = smallest_delta(batches, **loss_options)
    return {
        "loss": loss,
        "bound": bound,
        "gap": loss - bound,
        "provable_gap": provable,
        "delta": delta,
    }


def smallest_delta(
    batches: list[tuple[Tensor, Tensor]],
    *,
    temperature: float = 2.0,
    label_distance: str | Pairwise = "l1",
    similarity: str = "l2",
) -> float | None:
    """The smallest delta, to nine digits, for which all batches are delta-ordered, or None.

    A larger delta is a weaker condition, so bisection finds the smallest.
    """

    def holds(delta: float) -> bool:
        return all(
            is_delta_ordered(
                features,
                targets,
                delta,
                temperature=temperature,
                label_distance=label_distance,
                similarity=similarity,
            )
            for features, targets in batches
        )

    low, high = 0.0, _NEARLY_ONE
    if not holds(high):
        return None
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
