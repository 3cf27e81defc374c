"""The units of a head's loss, which matter to SGD.

The gradient of l1, and of huber beyond beta, is the same in all units, but the weights of a head
are as large as its units are small. AdamW adapts its steps to that, and SGD does not. A rate that
was chosen for ages in years is 20 times too high for a head in standard deviations. For the encoder
it is 20 times too low, since the weights of the head are 20 times smaller. So SGD trains these
heads in twentieths of a standard deviation.
"""

import dataclasses

from rnc.config import FitConfig
from rnc.heads import HeadConfig
from rnc.heads.registry import HEADS

AGE_DEVIATION = 20.0
"""The standard deviation of ages in years, for which the paper's rates of SGD were chosen."""


def loss_size(name: str, config: FitConfig) -> float:
    """Roughly the loss of a head of this name for an error of one standard deviation."""
    by_sgd = config.resolve().optimizer == "sgd"
    return AGE_DEVIATION if by_sgd and HEADS[name].linear else 1.0


def for_optimizer(head: HeadConfig, config: FitConfig) -> HeadConfig:
    """A head that counts in standard deviations or bins, in the units for the config's optimizer.

    >>> head = HeadConfig("l1", d=8, shift=(40.0,), scale=(18.0,), bins=(1,))
    >>> for_optimizer(head, FitConfig(optimizer="sgd")).scale
    (0.9,)
    >>> for_optimizer(head, FitConfig(optimizer="adamw")) == head
    True
    """
    size = loss_size(head.name, config)
    return dataclasses.replace(head, scale=tuple(scale / size for scale in head.scale))
