"""The methods by name: what shapes a representation, and what is added to a head's loss.

A method is one file in this folder and one entry here. Configuration, training, speed, search,
comparisons, help texts and docs/choosing.md read the entry; none of them knows a method by name. A
script may add an entry to a dict; then FitConfig and RnCRegressor accept its name in that process.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from torch import Tensor, nn

from rnc.loss import rnc_loss
from rnc.loss.theory import lower_bound
from rnc.methods.dino import DinoObjective
from rnc.methods.lds_fds import fds_calibration
from rnc.methods.objective import Calibration, FeatureObjective, MethodSetup, Objective, PairLoss
from rnc.methods.ordinal_entropy import ordinal_entropy_loss
from rnc.methods.queue import QueuedLoss
from rnc.methods.ranksim import ranksim_loss
from rnc.methods.simclr import simclr_objective
from rnc.methods.supcon import supcon_objective


@dataclass(frozen=True)
class Limits:
    """What a method cannot do. A reason completes a sentence that starts with the method's name."""

    several_targets: str = ""
    """Why it needs a single target; "" where it does not."""
    circular_labels: str = ""
    """Why it does not work for targets on a circle."""
    distinct_targets: str = ""
    """Why it needs targets that repeat within a batch."""
    graphable: bool | None = None
    """Whether a CUDA graph may replay a step: it must not wait for the device, nor take numbers
    from Python that change. None: not known, so a graph is made with cuda_graphs="on" only."""


@dataclass(frozen=True, kw_only=True)
class MethodSpec:
    """What objectives, regularizers and the weights of samples have in common."""

    title: str
    """Its name in tables and reports."""
    uses_bins: bool = False
    """Whether low, high and step are its options."""
    weighted: bool = False
    """Whether its loss takes weights of samples, (n,), as `weights`."""
    limits: Limits = Limits()
    original: Limits | None = None
    """Its limits with original=True; None where that changes nothing."""

    def limits_with(self, *, original: bool) -> Limits:
        """Its limits, with or without original=True."""
        return self.original if original and self.original is not None else self.limits


@dataclass(frozen=True, kw_only=True)
class ObjectiveSpec(MethodSpec):
    """What shapes the representation in schemes probe and finetune. Give `term` or `make`."""

    term: Callable[[MethodSetup], PairLoss] | None = None
    """Makes the loss of the features, if the objective is only that. Scheme regularize may then add
    it to the head's loss."""
    make: Callable[[nn.Module, MethodSetup], Objective] | None = None
    """Makes the objective of an encoder, if it trains or remembers more than the encoder."""
    bound: Callable[..., Tensor] | None = None
    """Targets, `views` and `label_distance` -> the lowest value that the loss can take."""
    lr: float = 0.05
    """The learning rate of SGD by default."""
    views: int = 0
    """How many views of a sample it needs."""
    rows: int = 1
    """How many rows (samples x views) a batch needs."""
    uses_targets: bool = True
    partial: bool = False
    """Whether its loss takes targets that are known in part, from `targets` to `upper`, (n, t)."""
    temperature: str | None = None
    """The field of FitConfig that is its temperature."""
    queued: bool = False
    """Whether its term can contrast with the queue of earlier samples that `QueuedLoss` keeps."""
    whole: str = ""
    """Why the encoder must see a batch at once, not in chunks. It completes a sentence that starts
    with the method's name."""

    def __post_init__(self) -> None:
        _check_one(self.title, term=self.term, make=self.make)

    @property
    def takes_partial(self) -> bool:
        """Whether it trains on samples whose targets are missing or known in part."""
        return self.partial or not self.uses_targets

    def build(self, encoder: nn.Module, setup: MethodSetup) -> Objective:
        """The objective that trains an encoder."""
        if self.make is not None:
            return self.make(encoder, setup)
        assert self.term is not None
        return FeatureObjective(encoder, self.term(setup))


@dataclass(frozen=True, kw_only=True)
class RegularizerSpec(MethodSpec):
    """What is added to a head's loss while the encoder trains. Give `term` or `calibration`."""

    term: Callable[[MethodSetup], PairLoss] | None = None
    """Makes the loss of the features that is added. It sees the samples of all processes."""
    calibration: Callable[[MethodSetup], Calibration] | None = None
    """Makes a module that changes the features which the head sees."""
    weight: float | None = None
    """Default weight of the term, for a head's loss in standard deviations of the targets."""
    published_weight: float | None = None
    """Weight of the term with original=True, as published; None is the same as `weight`."""

    def __post_init__(self) -> None:
        _check_one(self.title, term=self.term, calibration=self.calibration)
        if (self.term is None) != (self.weight is None):
            raise ValueError(
                f"A regularizer has a weight if it has a term; {self.title!r} has "
                f"weight={self.weight} and {'no' if self.term is None else 'a'} term."
            )


def _check_one(title: str, **makers: object) -> None:
    given = [name for name, maker in makers.items() if maker is not None]
    if len(given) != 1:
        names = " or ".join(makers)
        raise ValueError(f"A method needs either {names}; {title!r} has {len(given)} of them.")


def _term(
    loss: Callable[..., Tensor], *options: str, queued: bool = False
) -> Callable[[MethodSetup], PairLoss]:
    """A function that makes the loss with these fields of MethodOptions, or "gather" of the setup.

    If `queued`, the loss has a queue if the options ask for one. It does not validate its input,
    since training raises for a loss that is not finite and says what to do.
    """

    def make(setup: MethodSetup) -> PairLoss:
        known = {"gather": setup.gather, **vars(setup.options)}
        made = partial(loss, **{name: known[name] for name in options}, validate=False)
        return QueuedLoss(made, setup) if queued and setup.options.queue else made

    return make


_GRAPHABLE = Limits(graphable=True)
_ON_A_LINE = "treats the targets as points on a line, not on a circle"
_FDS = Limits(
    several_targets="keeps statistics per bin of one target, since most bins of several would stay "
    "empty",
    circular_labels=_ON_A_LINE,
    graphable=True,
)
_fds = partial(RegularizerSpec, uses_bins=True, limits=_FDS, original=_FDS)
_contrast = partial(ObjectiveSpec, temperature="contrast_temperature", limits=_GRAPHABLE)
LDS = MethodSpec(
    title="LDS",
    uses_bins=True,
    weighted=True,  # its weights are multiplied by those of the data
    limits=Limits(circular_labels=_ON_A_LINE, graphable=True),
    original=Limits(
        several_targets="as published has one target", circular_labels=_ON_A_LINE, graphable=True
    ),
)
"""Weights of samples, which combine with any objective and regularizer."""

OBJECTIVES: dict[str, ObjectiveSpec] = {
    "rnc": ObjectiveSpec(
        title="RnC",
        term=_term(
            rnc_loss,
            *("temperature", "label_distance", "similarity", "positives", "gather"),
            queued=True,
        ),
        weighted=True,
        queued=True,
        partial=True,
        bound=lower_bound,
        lr=0.5,
        rows=2,
        temperature="temperature",
        limits=_GRAPHABLE,
    ),
    "supcon": _contrast(
        title="SupCon", make=supcon_objective, rows=2, uses_bins=True, weighted=True
    ),
    "simclr": _contrast(
        title="SimCLR", make=simclr_objective, views=2, uses_targets=False, weighted=True
    ),
    "dino": _contrast(
        title="DINO",
        make=DinoObjective,
        views=2,
        uses_targets=False,
        original=_GRAPHABLE,
        whole="has a teacher that sees the batch as well",
    ),
}

REGULARIZERS: dict[str, RegularizerSpec] = {
    "ranksim": RegularizerSpec(
        title="RankSim",
        term=_term(ranksim_loss, "label_distance", "original"),
        weight=0.1,
        # Published for errors in years. An error in standard deviations would vanish beside it.
        published_weight=100.0,
        limits=_GRAPHABLE,
        original=Limits(
            several_targets="as published has one target",
            graphable=False,  # it draws random numbers
        ),
    ),
    "ordinal-entropy": RegularizerSpec(
        title="Ordinal Entropy",
        term=_term(ordinal_entropy_loss, "label_distance", "original"),
        weight=1.0,
        limits=_GRAPHABLE,
        original=Limits(
            distinct_targets="as published is NaN for a batch without repeated targets",
            graphable=True,
        ),
    ),
    "fds": _fds(title="FDS", calibration=fds_calibration),
    "fds-cumulative": _fds(
        title="FDS, cumulative", calibration=partial(fds_calibration, momentum=None)
    ),
}


def _given_to_train(encoder: nn.Module, setup: MethodSetup) -> Objective:
    raise AssertionError("`train` takes the function of an objective without a name")


OWN = ObjectiveSpec(title="own", make=_given_to_train)
"""Objective "own": a function passed from Python, so nothing is known about its limits."""
