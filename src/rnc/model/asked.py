"""The outputs that `predict` can return, by its argument `output`.

mean        the usual prediction of the head: (n, t). For the heads l1 and quantile, which learn
            medians, it is the median
median      (n, t)
quantiles   (n, t, q), at given or default levels; they never fall as the level rises
interval    lower and upper ends, (n, t) each: `predict_interval`
full        a dict: mean, median, quantiles, their levels (q,); for binned heads also the centres
            of the `classes`, (b,) for each target, and their `masses`, (n, b) for each target;
            for the gaussian head also its standard deviation `std`, (n, t)
"""

from collections.abc import Sequence
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from rnc.heads import LEVELS, NO_DISTRIBUTION, Head
from rnc.heads.distributions import check_levels

ArrayOutput = Literal["mean", "median", "quantiles"]
Output = Literal["mean", "median", "quantiles", "interval", "full"]
_WITH_LEVELS = ("quantiles", "full")


def check_asked(
    head: Head, output: str, quantiles: Sequence[float] | None, confidence: float | None = None
) -> None:
    """Raise if the output is unknown, if the head cannot give it, or if other arguments do not fit.

    Args:
        head: the head of the model.
        output: one of Output.
        quantiles: the levels, if they were given.
        confidence: the confidence of an interval, if it was given.
    """
    if output not in get_args(Output):
        raise ValueError(f"output must be one of {', '.join(get_args(Output))}; got {output!r}.")
    if quantiles is not None and output not in _WITH_LEVELS:
        raise ValueError(
            f"quantiles={list(quantiles)} needs output='quantiles' or output='full'; got "
            f"output={output!r}."
        )
    if confidence is not None and output != "interval":
        raise ValueError(f"confidence={confidence} needs output='interval'; got output={output!r}.")
    check_levels(LEVELS if quantiles is None else quantiles)
    needs_more = output in _WITH_LEVELS or (output == "median" and head.config.name != "l1")
    if needs_more and not head.has_distribution:
        raise ValueError(NO_DISTRIBUTION.format(head=head.config.name))


def read_array(
    head: Head, outputs: NDArray[Any], output: str, levels: Sequence[float] | None
) -> NDArray[np.float64]:
    """Means, medians or quantiles from the outputs (n, .) of a head."""
    values = torch.from_numpy(outputs)
    if output == "mean" or (output == "median" and head.config.name == "l1"):
        found = head.decode(values)
    elif output == "median":
        found = head.quantiles(values, (0.5,))[..., 0]
    else:
        found = head.quantiles(values, LEVELS if levels is None else levels)
    return np.asarray(found.numpy())


def read_full(head: Head, outputs: NDArray[Any], levels: Sequence[float] | None) -> dict[str, Any]:
    """The whole distribution, from the outputs (n, .) of a head."""
    full: dict[str, Any] = {
        output: read_array(head, outputs, output, levels) for output in ("mean", "median")
    }
    full["quantiles"] = read_array(head, outputs, "quantiles", levels)
    full["levels"] = np.array(LEVELS if levels is None else levels, dtype=np.float64)
    values, config = torch.from_numpy(outputs), head.config
    if head.spec.masses is not None:
        axes = zip(config.shift, config.scale, config.bins, strict=True)
        full["classes"] = [low + step * np.arange(bins) for low, step, bins in axes]
        full["masses"] = [masses.numpy() for masses in head.masses(values)]
    if head.spec.deviation is not None:
        full["std"] = head.deviations(values).numpy()
    return full


def read_asked(
    head: Head, outputs: NDArray[Any], output: str, levels: Sequence[float] | None
) -> NDArray[np.float64] | dict[str, Any]:
    """Any output of `predict` except interval, from the outputs (n, .) of a head."""
    if output == "full":
        return read_full(head, outputs, levels)
    return read_array(head, outputs, output, levels)


def of_one_target(full: dict[str, Any]) -> dict[str, Any]:
    """A full output without the dimension of the targets, for a model with one target."""
    per_target = ("classes", "masses")
    return {
        name: value if name == "levels" else value[0] if name in per_target else value[:, 0]
        for name, value in full.items()
    }
