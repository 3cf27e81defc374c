"""What a stage minimises: modules that hold all that is trained and all that is remembered.

    loss = objective(views, labels)   views (n, v, ...) of this process -> the loss of the batch of
                                      all processes, the same number in each
    objective.after_update()          after every step of the optimizer, without a wait for a GPU
    objective.after_epoch()           after every epoch
    objective.finish()                after the last: leaves in the model what the stage was for

An encoder and a head are those of the model. Everything else belongs to the objective, goes into
checkpoints with it and is dropped when the stage is done.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from rnc.config import FitConfig
from rnc.heads import Head
from rnc.loss import rnc_loss
from rnc.loss.batch import as_rows, repeat_views
from rnc.loss.distributed import gather_rows
from rnc.methods.dino import DinoHead, DinoLoss, make_teacher, update_teacher
from rnc.methods.labels import grid_classes, label_grid
from rnc.methods.lds_fds import FDS
from rnc.methods.ordinal_entropy import ordinal_entropy_loss
from rnc.methods.projection import ProjectionHead
from rnc.methods.ranksim import ranksim_loss
from rnc.methods.simclr import ntxent_loss
from rnc.methods.supcon import supcon_loss
from rnc.model import Regressor
from rnc.training.units import loss_size

PairLoss = Callable[[Tensor, Tensor], Tensor]
"""Features (n, v, d) and targets (n, t) -> their loss, over the samples of all processes."""

WEIGHTS = {"ranksim": 0.1, "ordinal-entropy": 1.0}
"""Of the regularizers that have one, beside a head's loss in standard deviations."""
PUBLISHED_WEIGHTS = {"ranksim": 100.0, "ordinal-entropy": 1.0}
"""RankSim's is for errors in years; beside standard deviations, it leaves nothing of them."""


class Labels:
    """What is known about the samples of a step beside their views.

    Neither a tuple nor a dataclass: in those, Fabric would round it to the training precision.
    """

    def __init__(self, targets: Tensor, weights: Tensor | None = None) -> None:
        self.targets, self.weights = targets, weights


class Objective(nn.Module):
    """What the objectives share: an encoder, and nothing to do after a step."""

    hint = ""
    """What else to do about a loss that is not finite."""

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder
        self.encode: Callable[[Tensor], Tensor] = encoder.__call__

    def compile_encoder(self) -> None:
        """Encode by compiled code; the loss stays, since its GPU kernel is no less fast."""
        self.encode = _compiled(self.encoder)

    def features(self, views: Tensor) -> Tensor:
        """(n, v, ...) -> (n, v, d)."""
        features = self.encode(views.flatten(0, 1))
        return features.reshape(*views.shape[:2], features.shape[1])

    def after_update(self) -> None:
        """Do what follows a step of the optimizer."""

    def after_epoch(self) -> None:
        """Do what follows an epoch."""

    def finish(self) -> None:
        """Leave in the model what the stage was for."""

    def own_state(self) -> dict[str, Tensor]:
        """All that is remembered but the model."""
        return {
            name: value
            for name, value in self.state_dict().items()
            if name.split(".")[0] not in ("encoder", "head")
        }

    def load_own_state(self, own: dict[str, Tensor]) -> None:
        """Put back what `own_state` gave."""
        self.load_state_dict(self.state_dict() | own)


class Contrast(Objective):
    """A loss of the features, or of a projection of them."""

    def __init__(
        self, encoder: nn.Module, loss: PairLoss, projection: nn.Module | None = None
    ) -> None:
        super().__init__(encoder)
        self.loss, self.projection = loss, projection

    def forward(self, views: Tensor, labels: Labels) -> Tensor:
        """The loss of a batch."""
        features = self.features(views)
        if self.projection is not None:
            features = self.projection(features)
        return self.loss(features, labels.targets)


class Dino(Objective):
    """A student that follows its own moving average, the teacher, which is what remains.

    The schedules are computed on the device, from a count of updates that is a tensor: a CUDA graph
    repeats addresses, not numbers.
    """

    done: Tensor
    learning: Tensor

    def __init__(
        self, encoder: nn.Module, d: int, config: FitConfig, *, updates: int, gather: bool
    ) -> None:
        super().__init__(encoder)
        # For the 512 features of resnet18, the published widths.
        self.projection = DinoHead(
            d, hidden=min(2048, 4 * d), bottleneck=min(256, d), prototypes=config.prototypes
        )
        self.teacher, self.teacher_projection = make_teacher(encoder), make_teacher(self.projection)
        self.teach: Callable[[Tensor], Tensor] = self.teacher.__call__
        self.loss = DinoLoss(
            config.prototypes,
            student_temperature=config.contrast_temperature,
            gather=gather,
            validate=False,
        )
        self.updates = updates
        # As published for long training; in a short one the teacher must forget its first weights.
        self.base = 0.996 if config.original else min(0.996, max(0.0, 1 - 20 / updates))
        self.register_buffer("done", torch.zeros((), dtype=torch.float64))
        self.register_buffer("learning", torch.zeros(()))  # of the prototypes: not in epoch 1

    def compile_encoder(self) -> None:
        """Encode by compiled code, in student and teacher."""
        super().compile_encoder()
        self.teach = _compiled(self.teacher)

    def forward(self, views: Tensor, labels: Labels) -> Tensor:
        """The loss of a batch; targets are not looked at."""
        student = self.projection(self.features(views), learning=self.learning)
        with torch.no_grad():
            rows = self.teacher_projection(self.teach(views.flatten(0, 1)))
        loss: Tensor = self.loss(student, rows.reshape(student.shape))
        return loss

    @torch.no_grad()
    def after_update(self) -> None:
        """Move the teacher towards the student."""
        share = (self.done / self.updates).clamp(max=1)
        momentum = 1 - (1 - self.base) * (1 + (math.pi * share).cos()) / 2
        update_teacher(self.encoder, self.teacher, momentum)
        update_teacher(self.projection, self.teacher_projection, momentum)
        self.done += 1

    def after_epoch(self) -> None:
        """Let the prototypes learn."""
        self.learning.fill_(1.0)

    def finish(self) -> None:
        """Make the teacher the encoder of the model."""
        self.encoder.load_state_dict(self.teacher.state_dict())


class Supervised(Objective):
    """The loss of a head, with whatever is added to it.

    Args:
        encoder: of the model; nn.Identity where the views are features already.
        head: of the model.
        terms: weights and further losses of the features.
        fds: calibrates features on their way to the head.
        weighted: whether the weights of samples count.
        gather: over the samples of all processes.
    """

    def __init__(
        self,
        encoder: nn.Module,
        head: Head,
        *,
        terms: Sequence[tuple[float, PairLoss]] = (),
        fds: FDS | None = None,
        weighted: bool = True,
        gather: bool = False,
    ) -> None:
        super().__init__(encoder)
        self.head, self.fds = head, fds
        self.terms, self.weighted, self.gather = terms, weighted, gather

    def forward(self, views: Tensor, labels: Labels) -> Tensor:
        """The loss of a batch."""
        features = self.features(views)
        targets = labels.targets
        seen = features if self.fds is None else self.fds(features, targets)
        loss = self._head_loss(seen, labels)
        for weight, term in self.terms:
            loss = loss + weight * term(features, targets)
        return loss

    def after_epoch(self) -> None:
        """Make the statistics of this epoch those of the next."""
        if self.fds is not None:
            self.fds.finish_epoch()

    def _head_loss(self, features: Tensor, labels: Labels) -> Tensor:
        n, v = features.shape[:2]
        outputs: Tensor = self.head(features.flatten(0, 1))
        weights = labels.weights if self.weighted else None
        columns = labels.targets.new_ones(n, 1) if weights is None else weights[:, None]
        columns = repeat_views(torch.cat([labels.targets, columns], dim=1), v)
        if self.gather:  # the loss of corn is divided by a number of the whole batch
            outputs, columns, _ = gather_rows(outputs.float(), columns)
        losses = self.head.loss(outputs, columns[:, :-1])
        return (losses if weights is None else losses * columns[:, -1]).mean().to(losses.dtype)


def _compiled(module: nn.Module) -> Callable[[Tensor], Tensor]:
    """A function, since a module would be taken for a further part of the objective."""
    return partial(torch.compile(module, dynamic=False))


# -------------------------------------------------------------------------------- making one


def encoder_objective(
    model: Regressor,
    config: FitConfig,
    targets: Tensor,
    *,
    updates: int,
    gather: bool,
    own: PairLoss | None = None,
) -> Objective:
    """What shapes the representation before a head is trained on it.

    Args:
        model: its encoder is trained.
        config: which objective, and its options.
        targets: of all training samples, (n, t); SupCon's classes are made for them.
        updates: steps of the optimizer in all.
        gather: contrast with the samples of all processes.
        own: the function that objective "own" minimises.
    """
    if own is not None:
        return Contrast(model.encoder, partial(_own_term, own, gather=gather))
    d, temperature = model.head.config.d, config.contrast_temperature
    if config.objective == "rnc":
        return Contrast(model.encoder, rnc_term(config, gather=gather))
    if config.objective == "dino":
        return Dino(model.encoder, d, config, updates=updates, gather=gather)
    loss: PairLoss
    if config.objective == "simclr":

        def loss(projections: Tensor, targets: Tensor) -> Tensor:
            return ntxent_loss(projections, temperature=temperature, gather=gather, validate=False)

    else:
        grid = label_grid(config.low, config.high, config.step, targets=targets)

        def loss(projections: Tensor, targets: Tensor) -> Tensor:
            return supcon_loss(
                projections,
                grid_classes(targets, grid),
                temperature=temperature,
                base_temperature=temperature,
                gather=gather,
                validate=False,
            )

    projection = ProjectionHead(d, out=config.projection_size)
    return Contrast(model.encoder, loss, projection)


def head_objective(
    model: Regressor,
    config: FitConfig,
    targets: Tensor,
    *,
    gather: bool,
    terms: Sequence[tuple[float, PairLoss]] = (),
) -> Objective:
    """The head's loss with the regularizer of the config, for encoder and head.

    Args:
        model: what is trained.
        config: which regularizer, and its options.
        targets: of all training samples, (n, t); the bins of FDS are made for them.
        gather: over the samples of all processes.
        terms: further losses and their weights.
    """
    name, fds = config.regularizer, None
    if name == "fds":
        fds = _fds(model, config, targets)
    elif name != "none":
        term = _regularizer(config)
        weight = config.regularizer_weight
        if weight is None and config.original:
            weight = PUBLISHED_WEIGHTS[name]
        elif weight is None:
            weight = WEIGHTS[name] * loss_size(model.head.config.name, config)
        terms = (*terms, (weight, partial(_of_all, term) if gather else term))
    objective = Supervised(model.encoder, model.head, terms=terms, fds=fds, gather=gather)
    if config.original and name == "ordinal-entropy":
        objective.hint = (
            "Or leave --original out: ordinal-entropy as published has no value for a batch "
            "without repeated targets."
        )
    return objective


def rnc_term(config: FitConfig, *, gather: bool) -> PairLoss:
    """The RnC loss with the options of the config."""
    return partial(
        rnc_loss,
        temperature=config.temperature,
        label_distance=config.distance,
        similarity=config.similarity,
        positives=config.positives,
        gather=gather,
        validate=False,  # `check_finite` says it, with a remedy
    )


def _own_term(own: PairLoss, features: Tensor, targets: Tensor, *, gather: bool) -> Tensor:
    """The loss that a function of the caller's gives the samples of all processes."""
    if gather:
        flat, targets, _ = gather_rows(features.flatten(1), targets)
        features = flat.reshape(-1, *features.shape[1:])
    loss: Any = own(features, targets)
    if not isinstance(loss, Tensor) or loss.dim() or not loss.requires_grad:
        got = f"shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else type(loss).__name__
        raise ValueError(
            "An objective of your own must return the number to minimise, a tensor of shape () "
            f"that depends on the features; got {got}."
        )
    return loss


def _regularizer(config: FitConfig) -> PairLoss:
    regularizer = ranksim_loss if config.regularizer == "ranksim" else ordinal_entropy_loss

    def term(features: Tensor, targets: Tensor) -> Tensor:
        return regularizer(
            features,
            targets,
            label_distance=config.distance,
            original=config.original,
            validate=False,
        )

    return term


def _fds(model: Regressor, config: FitConfig, targets: Tensor) -> FDS:
    grid = label_grid(config.low, config.high, config.step, targets=targets)
    low, step = grid.low[0], grid.step[0]
    return FDS(
        model.head.config.d,
        low=low,
        high=low + step * (grid.bins[0] - 1),
        step=step,
        original=config.original,
        validate=False,
    )


def _of_all(term: PairLoss, features: Tensor, targets: Tensor) -> Tensor:
    """A loss of the samples of all processes, computed in each of them."""
    everyone = gather_rows(*as_rows(features, targets, "gather"))
    return term(everyone[0], everyone[1])
