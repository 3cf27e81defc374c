"""The RnC loss as an objective: `rnc.loss` has the equation and the paper."""

from collections.abc import Callable
from functools import partial

from torch import Tensor

from rnc.loss import rnc_loss
from rnc.loss.theory import lower_bound
from rnc.methods.objective import MethodSetup, PairLoss


def rnc_term(setup: MethodSetup) -> PairLoss:
    """The RnC loss with the options of a setup."""
    options = setup.options
    return partial(
        rnc_loss,
        temperature=options.temperature,
        label_distance=options.label_distance,
        similarity=options.similarity,
        positives=options.positives,
        gather=setup.gather,
        validate=False,  # training raises for a loss that is not finite, with a remedy
    )


def rnc_bound(setup: MethodSetup) -> Callable[[Tensor, int], Tensor]:
    """A function of targets and views -> the lowest value that the RnC loss can take."""

    def bound(targets: Tensor, views: int) -> Tensor:
        return lower_bound(targets, views=views, label_distance=setup.options.label_distance)

    return bound
