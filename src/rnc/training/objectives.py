"""The objectives that the stages of a run minimise, made from a model and a FitConfig."""

from collections.abc import Sequence
from functools import partial

from torch import Tensor

from rnc.config import FitConfig
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
from rnc.training.units import loss_size


def encoder_objective(
    model: Regressor, config: FitConfig, setup: MethodSetup, own: PairLoss | None = None
) -> Objective:
    """What shapes the representation before a head is trained on it; objective "own" is `own`."""
    if own is not None:
        return FeatureObjective(model.encoder, global_loss(own, gather=setup.gather))
    return config.objective_spec.build(model.encoder, setup)


def head_objective(
    model: Regressor,
    config: FitConfig,
    setup: MethodSetup,
    terms: Sequence[tuple[float, PairLoss]] = (),
) -> Objective:
    """The head's loss with the regularizer of the config and further weighted losses."""
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
    """The weight that was given, or the one that suits the size of a head's loss."""
    spec = config.regularizer_spec
    assert spec is not None
    assert spec.weight is not None
    if config.regularizer_weight is not None:
        return config.regularizer_weight
    if config.original:
        return spec.weight if spec.published_weight is None else spec.published_weight
    return spec.weight * loss_size(head, config)


def _of_all(term: PairLoss, features: Tensor, targets: Tensor) -> Tensor:
    """A loss of the samples of all processes, computed in each of them."""
    everyone = gather_rows(*as_rows(features, targets, "gather"))
    return term(everyone[0], everyone[1])
