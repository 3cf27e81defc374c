"""What a stage of training minimises: a module with all that the stage trains and remembers.

    loss = objective(views, labels)   views (n, v, ...) of this process -> the loss of the batch of
                                      all processes, the same number in each. Except for DINO, it is
                                      objective.loss_of(objective.features(views), labels)
    objective.after_update()          after every optimizer step; must not synchronize with a GPU
    objective.after_epoch()           after every epoch
    objective.finish()                after the last epoch: writes the result into the model

Encoder and head belong to the model. Everything else belongs to the objective: it is written into
checkpoints and dropped when the stage is done.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from rnc.heads import Head, PerTarget
from rnc.loss.batch import repeat_views
from rnc.loss.distributed import gather_rows
from rnc.loss.pairwise import Pairwise

PairLoss = Callable[[Tensor, Tensor], Tensor]
"""Features (n, v, d) and targets (n, t) -> their loss, over the samples of all processes."""


@dataclass(frozen=True)
class MethodOptions:
    """Every option of the methods, under the name that it has in FitConfig."""

    temperature: float = 2.0
    contrast_temperature: float = 0.1
    label_distance: str | Pairwise = "l1"
    similarity: str = "l2"
    positives: int | None = None
    low: PerTarget = None
    high: PerTarget = None
    step: PerTarget = None
    projection_size: int = 128
    prototypes: int = 1024
    original: bool = False
    queue: int = 0


@dataclass(frozen=True)
class MethodSetup:
    """What a method needs to know about the training stage."""

    d: int
    """Number of features."""
    targets: Tensor
    """Targets of all training samples, (n, t), on the host."""
    updates: int
    """Steps of the optimizer in the whole stage."""
    gather: bool = False
    """Whether several processes train, each with a part of the batch."""
    options: MethodOptions = MethodOptions()
    views: int = 1
    """Number of views of each sample in a batch."""


class BatchLabels:
    """Targets and weights of the samples of a step.

    Neither a tuple nor a dataclass, because Fabric would round their tensors to the training
    precision.
    """

    def __init__(
        self,
        targets: Tensor,
        weights: Tensor | None = None,
        sample_weights: Tensor | None = None,
        upper: Tensor | None = None,
    ) -> None:
        self.targets = targets
        self.weights = weights
        """The weight of each sample in the loss of a head, (n,); None if all count alike."""
        self.sample_weights = sample_weights
        """The factor of `weights` that comes from the data, (n,). Losses of features use it."""
        self.upper = upper
        """The upper ends of targets that are known in part, (n, t); targets are the lower ones."""


class Objective(nn.Module):
    """Base class of the objectives: an encoder, and nothing to do after a step."""

    hint = ""
    """Further advice for the error about a loss that is not finite."""

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder
        self.encode: Callable[[Tensor], Tensor] = encoder.__call__

    def compile_encoder(self) -> None:
        """Compile the encoder. The loss is not compiled, since its GPU kernel is as fast."""
        self.encode = compiled(self.encoder)

    def features(self, views: Tensor) -> Tensor:
        """(n, v, ...) -> (n, v, d)."""
        features = self.encode(views.flatten(0, 1))
        return features.reshape(*views.shape[:2], features.shape[1])

    def loss_of(self, features: Tensor, labels: BatchLabels) -> Tensor:
        """The loss of a batch with features (n, v, d)."""
        raise NotImplementedError

    def forward(self, views: Tensor, labels: BatchLabels) -> Tensor:
        """The loss of a batch."""
        return self.loss_of(self.features(views), labels)

    def after_update(self) -> None:
        """Do what follows a step of the optimizer."""

    def after_epoch(self) -> None:
        """Do what follows an epoch."""

    def finish(self) -> None:
        """Leave the result of the stage in the model."""

    def own_state(self) -> dict[str, Tensor]:
        """The state dict without the model's encoder and head."""
        return {
            name: value
            for name, value in self.state_dict().items()
            if name.split(".")[0] not in ("encoder", "head")
        }

    def load_own_state(self, own: dict[str, Tensor]) -> None:
        """Load what `own_state` returned."""
        self.load_state_dict(self.state_dict() | own)


class FeatureObjective(Objective):
    """A loss of the features, or of a projection of them."""

    def __init__(
        self, encoder: nn.Module, loss: PairLoss, projection: nn.Module | None = None
    ) -> None:
        super().__init__(encoder)
        self.loss, self.projection = loss, projection

    def loss_of(self, features: Tensor, labels: BatchLabels) -> Tensor:
        """The loss of a batch with these features."""
        if self.projection is not None:
            features = self.projection(features)
        return weighed(self.loss, features, labels)


def weighed(loss: PairLoss, features: Tensor, labels: BatchLabels) -> Tensor:
    """A loss of features, called with the data's `weights` and `upper` ends if there are any."""
    more = {"weights": labels.sample_weights, "upper": labels.upper}
    more = {name: values for name, values in more.items() if values is not None}
    takes_more: Callable[..., Tensor] = loss  # checked before, by `MethodSpec.weighted`
    return takes_more(features, labels.targets, **more)


class Calibration(nn.Module):
    """Changes features on their way to the head, in training mode only: FDS is one.

    `forward(features, targets)` returns features of the same shape.
    """

    def finish_epoch(self) -> None:
        """Do what follows an epoch."""


class HeadObjective(Objective):
    """The loss of a head, plus further losses, each times its weight.

    The encoder is nn.Identity if the views are features already. `weighted` says whether LDS weighs
    samples; the weights of the data count in any case. `gather` says whether several processes
    train.
    """

    def __init__(
        self,
        encoder: nn.Module,
        head: Head,
        *,
        terms: Sequence[tuple[float, PairLoss]] = (),
        calibration: Calibration | None = None,
        weighted: bool = True,
        gather: bool = False,
    ) -> None:
        super().__init__(encoder)
        self.head, self.calibration = head, calibration
        self.terms, self.weighted, self.gather = terms, weighted, gather
        self.remembering = nn.ModuleList(term for _, term in terms if isinstance(term, nn.Module))

    def loss_of(self, features: Tensor, labels: BatchLabels) -> Tensor:
        """The loss of a batch with these features."""
        targets = labels.targets
        seen = features if self.calibration is None else self.calibration(features, targets)
        loss = self._head_loss(seen, labels)
        for weight, term in self.terms:
            loss = loss + weight * weighed(term, features, labels)
        return loss

    def after_epoch(self) -> None:
        """Let the calibration update its statistics for the next epoch."""
        if self.calibration is not None:
            self.calibration.finish_epoch()

    def _head_loss(self, features: Tensor, labels: BatchLabels) -> Tensor:
        n, v = features.shape[:2]
        outputs: Tensor = self.head(features.flatten(0, 1))
        weights = labels.weights if self.weighted else labels.sample_weights
        columns = labels.targets.new_ones(n, 1) if weights is None else weights[:, None]
        ends = [labels.targets] if labels.upper is None else [labels.targets, labels.upper]
        columns = repeat_views(torch.cat([*ends, columns], dim=1), v)
        if self.gather:  # corn divides its loss by a count over the batch of all processes
            outputs, columns, _ = gather_rows(outputs.float(), columns)
        losses = self.head.loss(outputs, *columns[:, :-1].chunk(len(ends), dim=1))
        return (losses if weights is None else losses * columns[:, -1]).mean().to(losses.dtype)


def compiled(module: nn.Module) -> Callable[[Tensor], Tensor]:
    """The compiled module as a function, so that the objective does not register it again."""
    return partial(torch.compile(module, dynamic=False))


def global_loss(function: PairLoss, *, gather: bool) -> PairLoss:
    """A loss function of the caller, wrapped so that it gets the samples of all processes.

    `gather` says whether several processes train, each with a part of the samples.
    """

    def loss(features: Tensor, targets: Tensor) -> Tensor:
        if gather:
            flat, targets, _ = gather_rows(features.flatten(1), targets)
            features = flat.reshape(-1, *features.shape[1:])
        value: Any = function(features, targets)
        if not isinstance(value, Tensor) or value.dim() or not value.requires_grad:
            is_tensor = isinstance(value, Tensor)
            got = f"shape {tuple(value.shape)}" if is_tensor else type(value).__name__
            raise ValueError(
                "An objective of your own must return the number to minimise, a tensor of shape () "
                f"that depends on the features; got {got}."
            )
        return value

    return loss
