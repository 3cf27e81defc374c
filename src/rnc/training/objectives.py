"""The objectives that the stages of a run minimise, and the units of a head's loss.

Units matter to SGD. The gradient of l1, and of huber beyond beta, is the same in all units. But the
weights of a head are larger if its units are smaller. AdamW adapts its steps to that, and SGD does
not. A rate that was chosen for ages in years is 20 times too high for a head in standard
deviations. For the encoder it is 20 times too low, since the weights of the head are 20 times
smaller. So SGD trains these heads in twentieths of a standard deviation.
"""

import dataclasses
from collections.abc import Sequence
from functools import partial

from torch import Tensor

from rnc.config import FitConfig
from rnc.heads import HeadConfig
from rnc.heads.registry import HEADS
from rnc.loss.batch import as_rows
from rnc.loss.distributed import gather_rows
from rnc.methods.objective import (
    FeatureObjective,
    HeadObjective,
    MethodSetup,
    Objective,
    PairLoss,
    global_loss,
)
from rnc.model import Regressor

AGE_DEVIATION = 20.0
"""The standard deviation of ages in years, for which the paper's rates of SGD were chosen."""


def encoder_objective(
    model: Regressor, config: FitConfig, setup: MethodSetup, own: PairLoss | None = None
) -> Objective:
    """The objective that trains an encoder without a head. `own` is the loss of objective "own"."""
    if own is not None:
        return FeatureObjective(model.encoder, global_loss(own, gather=setup.gather))
    return config.objective_spec.build(model.encoder, setup)


def head_objective(
    model: Regressor,
    config: FitConfig,
    setup: MethodSetup,
    terms: Sequence[tuple[float, PairLoss]] = (),
) -> Objective:
    """The head's loss, plus the regularizer of the config and further losses with weights."""
    spec, calibration, gather = config.regularizer_spec, None, setup.gather
    if spec is not None and spec.calibration is not None:
        calibration = spec.calibration(setup)
    elif spec is not None and spec.term is not None:
        term = spec.term(setup)
        weight = regularizer_weight(model.head.config.name, config)
        terms = (*terms, (weight, partial(_of_all, term) if gather else term))
    objective = HeadObjective(
        model.encoder, model.head, terms=terms, calibration=calibration, gather=gather
    )
    objective.hint = " ".join(
        f"Or leave --original out: {label} {reason}."
        for label, method in config.active_methods.items()
        if (reason := method.limits_with(original=config.original).distinct_targets)
    )
    return objective


def regularizer_weight(head: str, config: FitConfig) -> float:
    """The regularizer's weight: the config's, or the default for the size of the head's loss."""
    spec = config.regularizer_spec
    assert spec is not None
    assert spec.weight is not None
    if config.regularizer_weight is not None:
        return config.regularizer_weight
    if config.original:
        return spec.weight if spec.published_weight is None else spec.published_weight
    return spec.weight * loss_size(head, config)


def _of_all(term: PairLoss, features: Tensor, targets: Tensor) -> Tensor:
    """A loss over the samples of all processes, computed in every process."""
    everyone = gather_rows(*as_rows(features, targets, "gather"))
    return term(everyone[0], everyone[1])


def loss_size(name: str, config: FitConfig) -> float:
    """Roughly the loss of a head of this name for an error of one standard deviation."""
    by_sgd = (config.optimizer or config.resolve().optimizer) == "sgd"
    return AGE_DEVIATION if by_sgd and HEADS[name].linear else 1.0


def for_optimizer(head: HeadConfig, config: FitConfig) -> HeadConfig:
    """The config of a head, with its scale changed to the units that suit the optimizer.

    >>> head = HeadConfig("l1", d=8, shift=(40.0,), scale=(18.0,), bins=(1,))
    >>> for_optimizer(head, FitConfig(optimizer="sgd")).scale
    (0.9,)
    >>> for_optimizer(head, FitConfig(optimizer="adamw")) == head
    True
    """
    size = loss_size(head.name, config)
    return dataclasses.replace(head, scale=tuple(scale / size for scale in head.scale))
