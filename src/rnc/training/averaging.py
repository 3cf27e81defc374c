"""A mean of the weights, which is evaluated and saved instead of the weights.

SGD at a high learning rate wanders around a minimum. The mean of its weights is nearer to the
minimum than the weights of any single step. The running statistics of batch normalisation do not
fit the mean, so they are computed anew from augmented training samples. Without that, the mean is
worse than useless at high rates.

    0 < average < 1   moving mean: mean <- d mean + (1 - d) weights after every update, where d is
                      `average`, but at most (k + 1) / (k + 10) at update k = 0, 1, ...
    average = N >= 1  plain mean of the weights after each of the last N epochs
"""

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

STATISTICS_BATCHES = 24
"""Number of batches from which the statistics of batch normalisation are computed."""


class WeightAverage:
    """The mean of some parameters while they train.

    `after_update` does not synchronize with the device, so a CUDA graph can hold it.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], average: float, epochs: int) -> None:
        self.parameters: list[Tensor] = list(parameters)
        self.average, self.epochs = average, epochs
        self.mean = [parameter.detach().clone() for parameter in self.parameters]
        self.count = torch.zeros((), device=self.mean[0].device)
        """How many times the mean was updated."""

    @classmethod
    def of(
        cls, parameters: Iterable[nn.Parameter], average: float, epochs: int
    ) -> "WeightAverage | None":
        """A mean for a training of `epochs` epochs, or None if `average` is 0."""
        return cls(parameters, average, epochs) if average else None

    @torch.no_grad()
    def after_update(self) -> None:
        """Move the mean a little towards the weights, if it is a moving mean."""
        if self.average < 1:
            self._move(((self.count + 1) / (self.count + 10)).clamp(max=self.average))

    @torch.no_grad()
    def after_epoch(self, epoch: int) -> None:
        """Add the weights to the mean, if it is over the last epochs and this is one of them."""
        if self.average >= 1 and epoch > self.epochs - self.average:
            self._move(self.count / (self.count + 1))

    def _move(self, keep: Tensor) -> None:
        """Set the mean to keep x mean + (1 - keep) x weights, in three kernels for all weights."""
        step = torch._foreach_sub(self.parameters, self.mean)
        torch._foreach_mul_(step, 1 - keep)
        torch._foreach_add_(self.mean, step)
        self.count += 1

    @torch.no_grad()
    def apply(self) -> None:
        """Replace the weights by their mean, if there is one yet."""
        if self.count > 0:
            torch._foreach_copy_(self.parameters, self.mean)

    @contextlib.contextmanager
    def applied(self, modules: Sequence[_BatchNorm]) -> Iterator[None]:
        """Replace the weights by their mean inside a `with` block, and restore them at its end.

        The running statistics of `modules` are restored, too.
        """
        tensors = [*self.parameters, *(b for module in modules for b in module.buffers())]
        before = [tensor.detach().clone() for tensor in tensors]
        self.apply()
        try:
            yield
        finally:
            with torch.no_grad():
                for tensor, value in zip(tensors, before, strict=True):
                    tensor.copy_(value)

    def state(self) -> dict[str, Tensor]:
        """The named tensors that `load_state` needs to continue."""
        return {"count": self.count} | {str(i): mean for i, mean in enumerate(self.mean)}

    @torch.no_grad()
    def load_state(self, state: dict[str, Tensor]) -> None:
        """Continue from what `state` returned."""
        self.count.copy_(state["count"])
        for i, mean in enumerate(self.mean):
            mean.copy_(state[str(i)])


def normalisations(network: nn.Module) -> list[_BatchNorm]:
    """The batch-norm modules of a network that keep running statistics."""
    found = [module for module in network.modules() if isinstance(module, _BatchNorm)]
    return [module for module in found if module.track_running_stats]


@torch.no_grad()
def take_statistics(encoder: nn.Module, views: Iterator[Tensor]) -> None:
    """Set the statistics of batch normalisation to their mean over batches (n, v, ...) of views.

    Meanwhile all other modules are in evaluation mode, since dropout would disturb the statistics.
    """
    modules = normalisations(encoder)
    if not modules:
        return
    training = [module for module in encoder.modules() if module.training]
    momenta = [module.momentum for module in modules]
    encoder.eval()
    try:
        for module in modules:
            module.reset_running_stats()
            module.momentum = None  # then they are a plain mean over the batches
            module.train()
        for batch in islice(views, STATISTICS_BATCHES):
            encoder(batch.flatten(0, 1))
    finally:
        for module, momentum in zip(modules, momenta, strict=True):
            module.momentum = momentum
        encoder.eval()
        for part in training:  # others, such as frozen modules, stay in evaluation mode
            part.training = True
