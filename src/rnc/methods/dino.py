"""DINO: self-distillation without labels (Caron 2021, arXiv:2104.14294).

    P_s(x) = softmax(student(x) / t_s)          all views
    P_t(x) = softmax((teacher(x) - c) / t_t)    the first views; no gradient
    L      = mean over pairs of different views a, b of -sum_k P_t(x_a)_k log P_s(x_b)_k

    c       <- m c + (1 - m) mean of the teacher's outputs,    after the loss of a step
    teacher <- m' teacher + (1 - m') student,                  after the optimiser's step

Beside the RnC loss: it sees no labels and contrasts no samples; it only asks two views of a sample
for the same distribution over prototypes.
"""

import copy
import math
from collections.abc import Callable
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import linear
from torch.optim.swa_utils import get_ema_multi_avg_fn

from rnc.loss.distributed import global_mean, world_size
from rnc.methods.labels import check_labels, check_positive
from rnc.methods.objective import BatchLabels, MethodSetup, Objective, compiled
from rnc.methods.projection import unit_length

Model = TypeVar("Model", bound=nn.Module)


class DinoHead(nn.Module):
    """MLP with GELU, then cosines with the prototypes: (n, d) or (n, v, d) -> (..., prototypes).

    >>> DinoHead(512, prototypes=4096)(torch.randn(8, 2, 512)).shape
    torch.Size([8, 2, 4096])
    """

    def __init__(
        self,
        d: int,
        *,
        hidden: int = 2048,
        bottleneck: int = 256,
        prototypes: int = 65536,
        layers: int = 3,
    ) -> None:
        """Make an MLP from d features to a bottleneck, with small normal weights.

        One layer is a single linear layer. 4096 prototypes are common for some 100,000 images.
        """
        super().__init__()
        if min(d, hidden, bottleneck, prototypes, layers) < 1:
            raise ValueError(
                "DinoHead needs widths and layers >= 1; got "
                f"{d=}, {hidden=}, {bottleneck=}, {prototypes=}, {layers=}."
            )
        widths = [d, *[hidden] * (layers - 1), bottleneck]
        self.mlp = nn.Sequential()
        for i in range(layers):
            layer = nn.Linear(widths[i], widths[i + 1])
            nn.init.trunc_normal_(layer.weight, std=0.02)
            nn.init.zeros_(layer.bias)
            self.mlp.extend([layer, nn.GELU()] if i < layers - 1 else [layer])
        self.prototypes = nn.Parameter(torch.empty(prototypes, bottleneck))
        nn.init.trunc_normal_(self.prototypes, std=0.02)

    def forward(self, features: Tensor, *, learning: Tensor | None = None) -> Tensor:
        """One output per prototype, a cosine.

        `learning` multiplies the gradient of the prototypes: 0 in epoch 0, then 1. It is a tensor,
        since its value must be able to change between replays of a CUDA graph.
        """
        prototypes: Tensor = self.prototypes
        if learning is not None:
            prototypes = torch.lerp(prototypes.detach(), prototypes, learning)
        return linear(unit_length(self.mlp(features)), unit_length(prototypes))

    def drop_prototype_gradient(self) -> None:
        """Drop the prototypes' gradient; call before each optimiser step of epoch 0."""
        self.prototypes.grad = None


class DinoLoss(nn.Module):
    """The loss of a batch, and the centre of the teacher's outputs, which moves in training mode.

    >>> loss = DinoLoss(64)
    >>> student, teacher = torch.randn(8, 2, 64, requires_grad=True), torch.randn(8, 2, 64)
    >>> loss(student, teacher, epoch=0).backward()
    """

    centre: Tensor

    def __init__(
        self,
        prototypes: int,
        *,
        student_temperature: float = 0.1,
        teacher_temperature: float = 0.04,
        warmup_temperature: float = 0.04,
        warmup_epochs: int = 0,
        centre_momentum: float = 0.9,
        gather: bool = False,
        validate: bool = True,
    ) -> None:
        """Start with centre 0. `centre_momentum` is the fraction of it that a step keeps.

        The teacher's temperature changes linearly from warmup_temperature in epoch 0 to
        teacher_temperature in epoch warmup_epochs - 1, and stays there. With `gather`, under
        torch.distributed, mean and centre are those of the global batch. `validate` checks for NaN
        and infinite values, which synchronizes with a GPU.
        """
        super().__init__()
        check_positive(
            student_temperature=student_temperature,
            teacher_temperature=teacher_temperature,
            warmup_temperature=warmup_temperature,
        )
        _check_share("centre_momentum", centre_momentum)
        self.student_temperature = student_temperature
        self.teacher_temperature = teacher_temperature
        self.warmup_temperature, self.warmup_epochs = warmup_temperature, warmup_epochs
        self.centre_momentum, self.gather, self.validate = centre_momentum, gather, validate
        self.register_buffer("centre", torch.zeros(prototypes))

    def forward(self, student: Tensor, teacher: Tensor, *, epoch: int = 0) -> Tensor:
        """The mean loss: student (n, v, k), teacher (n, w, k) -> (); w <= v are the first views.

        v is at least 2. No gradient reaches the teacher. Its temperature depends on the epoch,
        counted from 0.
        """
        self._check(student, teacher)
        together = self.gather and world_size() > 1
        with torch.autocast(student.device.type, enabled=False):
            dtype = torch.promote_types(student.dtype, torch.float32)
            student, teacher = student.to(dtype), teacher.detach().to(dtype)
            losses = self._losses(student, teacher, self.teacher_temperature_at(epoch))
            loss = global_mean(losses) if together else losses.mean()
            if self.training:
                self._move_centre(teacher, together)
        return loss

    def teacher_temperature_at(self, epoch: int) -> float:
        """The temperature of the teacher in an epoch, from 0."""
        if epoch >= self.warmup_epochs:
            return self.teacher_temperature
        share = epoch / max(1, self.warmup_epochs - 1)
        return (1 - share) * self.warmup_temperature + share * self.teacher_temperature

    def _losses(self, student: Tensor, teacher: Tensor, temperature: float) -> Tensor:
        v, w = student.shape[1], teacher.shape[1]
        log_p = (student / self.student_temperature).log_softmax(dim=2)
        q = ((teacher - self.centre.to(teacher.dtype)) / temperature).softmax(dim=2)
        of_other_views = log_p.sum(dim=1, keepdim=True) - log_p[:, :w]
        return -(q * of_other_views).sum(dim=(1, 2)) / (w * (v - 1))

    @torch.no_grad()
    def _move_centre(self, teacher: Tensor, together: bool) -> None:
        rows = teacher.flatten(0, 1).to(self.centre.dtype)
        # The count is reduced with the sums, since processes may hold different numbers of rows.
        sums = torch.cat([rows.sum(dim=0), rows.new_full((1,), rows.shape[0])])
        if together:
            dist.all_reduce(sums)
        self.centre.lerp_(sums[:-1] / sums[-1].clamp(min=1), 1 - self.centre_momentum)

    def _check(self, student: Tensor, teacher: Tensor) -> None:
        k = self.centre.shape[0]
        if (
            (student.dim(), teacher.dim()) != (3, 3)
            or student.shape[0] != teacher.shape[0]
            or not 1 <= teacher.shape[1] <= student.shape[1] >= 2
            or not student.shape[2] == teacher.shape[2] == k
        ):
            raise ValueError(
                f"DinoLoss needs student (n, v, {k}) with v >= 2 views and teacher (n, w, {k}) "
                f"with 1 <= w <= v; got {tuple(student.shape)} and {tuple(teacher.shape)}."
            )
        if student.shape[0] == 0 and not self.gather:
            raise ValueError("DinoLoss needs at least one sample; got 0. Use drop_last=True.")
        if self.validate:
            for name, outputs in (("student", student), ("teacher", teacher)):
                check_labels(outputs.new_zeros(1), f"DinoLoss's {name}", outputs)


# ------------------------------------------------------------------ the teacher and its schedules


def make_teacher(student: Model) -> Model:
    """A copy of the student that no gradient reaches; leave it in training mode."""
    return copy.deepcopy(student).requires_grad_(False)


def update_teacher(student: nn.Module, teacher: nn.Module, momentum: float | Tensor) -> None:
    """Move the teacher's parameters towards the student's: m * teacher + (1 - m) * student.

    Buffers stay, since the teacher's batch norms see batches themselves. The momentum may be a
    tensor on the device of the models. Its value is then not checked, to avoid a synchronization.
    """
    if not isinstance(momentum, Tensor):
        _check_share("momentum", momentum)
    ours: list[Tensor] = list(teacher.parameters())
    theirs: list[Tensor] = list(student.parameters())
    if [p.shape for p in ours] != [p.shape for p in theirs]:
        raise ValueError(
            f"update_teacher needs two models of the same shape; got {len(theirs)} parameters in "
            f"the student and {len(ours)} in the teacher. Use make_teacher(student)."
        )
    if not ours:
        return
    if isinstance(momentum, Tensor):
        with torch.no_grad():
            steps = torch._foreach_sub(theirs, ours)
            torch._foreach_mul_(steps, (1 - momentum).to(ours[0].dtype))
            torch._foreach_add_(ours, steps)
    else:
        get_ema_multi_avg_fn(momentum)(ours, theirs, 0)  # type: ignore[no-untyped-call]


def cosine_schedule(
    step: int, steps: int, *, base: float, final: float, warmup: int = 0, start: float = 0.0
) -> float:
    """The value at a step: a line from start to base, then half a cosine from base to final.

    For the teacher's momentum (0.996 to 1), the learning rate and the weight decay. Steps count
    from 0. Base is the last value of the warm-up and the first after it; final is the value from
    `steps` on.

    >>> [round(cosine_schedule(i, 4, base=0.996, final=1.0), 4) for i in range(5)]
    [0.996, 0.9966, 0.998, 0.9994, 1.0]
    """
    if not 0 <= warmup <= steps or step < 0:
        raise ValueError(
            f"cosine_schedule needs step >= 0 and 0 <= warmup <= steps; got {step=}, {warmup=}, "
            f"{steps=}."
        )
    if step < warmup:
        return start + (base - start) * step / max(1, warmup - 1)
    if step >= steps:
        return final
    share = (step - warmup) / (steps - warmup)
    return final + (base - final) * (1 + math.cos(math.pi * share)) / 2


def _check_share(name: str, value: float) -> None:
    if not 0 <= value <= 1:
        raise ValueError(f"{name} must be between 0 and 1; got {value}.")


# ------------------------------------------------------------------------------ the objective


class DinoObjective(Objective):
    """A student that learns from its own moving average, the teacher, which becomes the encoder.

    The schedules are computed on the device from a tensor that counts updates. A CUDA graph reads
    the tensor again at each replay, but would repeat a Python number as it was.
    """

    done: Tensor
    learning: Tensor

    def __init__(self, encoder: nn.Module, setup: MethodSetup) -> None:
        super().__init__(encoder)
        d, options = setup.d, setup.options
        # For the 512 features of resnet18, the published widths.
        self.projection = DinoHead(
            d, hidden=min(2048, 4 * d), bottleneck=min(256, d), prototypes=options.prototypes
        )
        self.teacher, self.teacher_projection = make_teacher(encoder), make_teacher(self.projection)
        self.teach: Callable[[Tensor], Tensor] = self.teacher.__call__
        self.loss = DinoLoss(
            options.prototypes,
            student_temperature=options.contrast_temperature,
            gather=setup.gather,
            validate=False,
        )
        self.updates = setup.updates
        # 0.996 is published for long training. In a short one, the teacher would still hold much of
        # its first weights at the end, so it moves faster.
        short = min(0.996, max(0.0, 1 - 20 / setup.updates))
        self.base = 0.996 if options.original else short
        self.register_buffer("done", torch.zeros((), dtype=torch.float64))
        self.register_buffer("learning", torch.zeros(()))  # prototypes do not learn in epoch 0

    def compile_encoder(self) -> None:
        """Compile the encoders of student and teacher."""
        super().compile_encoder()
        self.teach = compiled(self.teacher)

    def forward(self, views: Tensor, labels: BatchLabels) -> Tensor:
        """The loss of a batch; targets are ignored."""
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
