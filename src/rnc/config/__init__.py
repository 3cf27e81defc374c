"""FitConfig: every choice of a training run, in one place.

CLI flags, estimator parameters and config.json derive from its fields. A default of None means
that `rnc.config.presets` sets the value. It depends on the preset, the kind of the data and the
number of training rows.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from rnc.augment.configs import AUGMENTS, Augment
from rnc.config.checks import changed_by_original, check_config, default_weights, view_fields
from rnc.config.given import options_of, per_target
from rnc.config.partial_labels import encoder_reason, trained_sizes
from rnc.config.presets import BEST_AUGMENT, preset_values, sgd_rate
from rnc.config.sizes import Sizes
from rnc.heads import PerTarget
from rnc.heads.registry import HEADS, HeadOptions
from rnc.loss.pairwise import Pairwise, circular
from rnc.methods import registry
from rnc.methods.objective import MethodOptions
from rnc.methods.registry import OBJECTIVES, REGULARIZERS

Scheme = Literal["probe", "finetune", "regularize", "end2end", "two-stage", "auto"]
Optimizer = Literal["sgd", "adamw"]
Solver = Literal["sgd", "exact"]
Device = Literal["auto", "cpu", "cuda"]
Precision = Literal["auto", "32", "bf16", "16"]
Preset = Literal["best", "paper", "quick"]
TestViews = Literal["plain", "mirror"]
Keep = Literal["last", "best"]
Switch = Literal["auto", "on", "off"]
Teaching = Literal["none", "estimates", "intervals"]


@dataclass(frozen=True)
class FitConfig:
    """What to train and how. Every field is a flag of `rnc fit` and a parameter of RnCRegressor."""

    scheme: Annotated[
        Scheme,
        "probe: train the encoder by the objective, freeze it, then train a head on it; finetune: "
        "probe, then train both together; regularize: head loss + rnc_weight x RnC; end2end: head "
        "loss alone; two-stage: end2end, then a new l1 head on the frozen encoder; auto: try short "
        "end2end, probe and finetune runs, and keep the best on validation",
    ] = "probe"
    objective: Annotated[
        str,
        f"loss that trains the encoder in probe and finetune: {', '.join(OBJECTIVES)}; own: a "
        "function passed from Python",
    ] = "rnc"
    regularizer: Annotated[
        str, f"acts beside the head's loss while the encoder trains: {', '.join(REGULARIZERS)}"
    ] = "none"
    regularizer_weight: Annotated[
        float | None,
        f"weight of the regularizer; default: {default_weights()}; 20 times as much with heads l1 "
        "and huber under sgd, whose losses are about 20 times as large",
    ] = None
    lds: Annotated[bool, "give samples with rare targets more weight in the head's loss"] = False
    c_mixup: Annotated[bool, "mix samples with similar targets while the encoder trains"] = False
    mixup_alpha: Annotated[float, "for c_mixup: larger values mix two samples more evenly"] = 2.0
    mixup_bandwidth: Annotated[
        float | None, "for c_mixup: distance of similar targets; default: a fifth of their spread"
    ] = None
    projection_size: Annotated[int, "outputs of the projection of supcon and simclr"] = 128
    prototypes: Annotated[int, "outputs of the projection of dino"] = 1024
    original: Annotated[
        bool, f"follow the published code where ours differs from it: {changed_by_original()}"
    ] = False
    head: Annotated[
        str,
        "output layer and its loss: l1, mse, huber, dex, dldl, 'or' (ordinal regression), corn, "
        "l2cs, lde, quantile, gaussian",
    ] = "l1"
    head_options: Annotated[
        HeadOptions | None,
        "option of the head: beta (huber, gaussian), sigma (dldl, lde), alpha (dldl, l2cs), decode "
        "('or', corn: mean or class), levels (quantile: 0.1,0.5,0.9), floor (gaussian), or those "
        "of a head of your own",
    ] = None
    low: Annotated[
        PerTarget, "lowest class of a binned head, once or per target; default: lowest target"
    ] = None
    high: Annotated[PerTarget, "highest class of a binned head; default: highest target"] = None
    step: Annotated[PerTarget, "width of a class; default: 1, or a hundredth of the range"] = None
    encoder: Annotated[
        str,
        "network: a timm model, small-cnn, resnet3d18, resnet1d24, mlp or piecewise-mlp; "
        "auto: chosen by the kind of the data",
    ] = "auto"
    pretrained: Annotated[bool, "start a timm encoder from its published weights"] = False
    weights: Annotated[
        str | None, "start the encoder from this .safetensors file, hub folder or run"
    ] = None
    freeze: Annotated[
        bool,
        "do not train the encoder (needs weights or pretrained): its features are computed once "
        "and cached, and a projection and a head train on them in seconds",
    ] = False
    frozen_views: Annotated[
        int, "with freeze: augmented views of each sample whose features are cached"
    ] = 8
    preset: Annotated[
        Preset,
        "defaults of the other options. best: what won on real data, sized to yours; paper: the "
        "paper's 400 + 100 epochs of SGD; quick: a first look, 30 epochs of AdamW",
    ] = "best"

    epochs: Annotated[int | None, "epochs of the encoder, or of end-to-end training"] = None
    head_epochs: Annotated[int | None, "epochs of a head by sgd, or of fine-tuning"] = None
    batch_size: Annotated[
        int | None, "samples per step, over all processes; default: by the training rows, up to 256"
    ] = None
    head_batch_size: Annotated[int, "samples per step of a head by sgd"] = 64
    accumulate: Annotated[int, "steps whose gradients are added up before an update"] = 1
    queue: Annotated[
        int, "with small batches: earlier samples whose stored features RnC ranks, too"
    ] = 0
    chunk: Annotated[
        int,
        "to save memory: samples per process that the encoder sees at a time. The gradient is that "
        "of the whole batch, but batch normalisation uses statistics of a chunk; 0: no chunks",
    ] = 0
    clip: Annotated[float | None, "largest norm of the gradient; default: no limit"] = None

    optimizer: Annotated[Optimizer | None, "sgd (momentum 0.9) or adamw"] = None
    lr: Annotated[
        float | None,
        "learning rate; default under sgd: 0.4 for RnC (paper: 0.5), 0.05 end to end (paper: 0.2), "
        "less for small batches; under adamw: 0.001 (best, tables below 10,000 rows: 0.002)",
    ] = None
    weight_decay: Annotated[
        float | None, "weight decay of the encoder; default: 0.0001, for images in best 0.0005"
    ] = None
    lr_decay: Annotated[float, "the cosine schedule ends at lr x this^3"] = 0.1
    layer_decay: Annotated[
        float, "learning rate of each layer of the encoder, relative to the layer above it"
    ] = 1.0
    warm_up: Annotated[
        int | None, "epochs in which the learning rate rises to lr; best: epochs / 20, else 0"
    ] = None
    average: Annotated[
        float | None,
        "use a mean of the weights. Below 1: a moving mean with this decay per update (best: "
        "0.999); a whole number N: the mean of the last N epochs; 0: no mean",
    ] = None
    keep: Annotated[
        Keep | None,
        "which epoch of an encoder without a head is kept: the last, or the best of ten that a "
        "quick probe checks on validation; default: best in preset best, else last",
    ] = None
    finetune_keep: Annotated[
        Keep,
        "which epoch of fine-tuning is kept: the best on validation, which may be its start, or "
        "the last, which shows where fine-tuning harms",
    ] = "best"
    head_lr: Annotated[float | None, "learning rate of a head; default: 0.05 (adamw: 0.01)"] = None
    head_weight_decay: Annotated[
        float, "weight decay of a head by sgd; an exact head chooses its penalty on validation"
    ] = 0.0
    head_solver: Annotated[
        Solver | None, "exact: solve the head as a convex problem (not in paper); sgd: train it"
    ] = None
    balance: Annotated[
        float | None,
        "exact head: weigh each sample by (density of its target)^-this, so that rare targets "
        "count more; best: chosen on validation from 0 to 1, else 0",
    ] = None
    oversample: Annotated[
        float | None,
        "draw each sample in proportion to (density of its target)^-this, so that rare targets are "
        "seen more often; best: to match the targets of validation, else 0",
    ] = None

    temperature: Annotated[
        float | None,
        "temperature of RnC; default: 2; best: 4 for images, 1 for tables below 10,000 rows",
    ] = None
    contrast_temperature: Annotated[float, "temperature of supcon, simclr, dino's student"] = 0.1
    label_distance: Annotated[str, "distance of targets: l1, l2, angular or circular"] = "l1"
    similarity: Annotated[str, "similarity of features: l2, l1 or cosine"] = "l2"
    period: Annotated[float | None, "length of the circle for label_distance circular"] = None
    positives: Annotated[int | None, "contrast only the K nearest by label; default: all"] = None
    rnc_weight: Annotated[float, "weight of RnC in scheme regularize"] = 1.0
    teacher: Annotated[
        Teaching,
        "how RnC uses rows without a target. estimates: a moving mean of the encoder estimates it; "
        "intervals: estimate +- teacher_margin; none: only the views of a row count as alike",
    ] = "estimates"
    teacher_margin: Annotated[
        float, "half the width of a teacher's interval, in mean errors on validation"
    ] = 1.0

    image_size: Annotated[int, "side of the square that the encoder sees, in pixels"] = 224
    views: Annotated[
        int | None,
        "augmented views per sample; default: 2 (best: 1 for tables below 10,000 rows, 4 from "
        "5,000 images on). End to end, a step takes views x batch_size different samples (paper, "
        "quick: 1 x). 0: no augmentation",
    ] = None
    crop: Annotated[bool, "random crops (images, signals, volumes)"] = True
    crop_scale: Annotated[
        float | None, "smallest share of the image in a random crop; best: 0.5, paper: 0.2"
    ] = None
    erase: Annotated[
        float | None,
        "share of the views that lose a rectangle (images), a block (volumes) or a block of time "
        "(signals); share of the features that are masked (tables)",
    ] = None
    flip: Annotated[bool, "mirror images; off for gaze, pose, anything with left and right"] = True
    color: Annotated[bool, "jitter brightness, contrast, saturation and hue"] = True
    grayscale: Annotated[bool, "turn some views grey"] = True
    augment_options: Annotated[
        Mapping[str, Any] | None,
        "further options of the augmentation. Images: crop_ratio, jitter, jitter_p, grayscale_p, "
        "erase_sides, short_side, interpolation, mean, std, as mean=0.485,0.456,0.406; signals: "
        "crop, erase_length; volumes: crop, intensity, erase_sides; tables: noise, and mask unless "
        "erase is given",
    ] = None

    test_views: Annotated[
        TestViews | None, "mirror: average predictions of an image and its mirror; best: with flip"
    ] = None

    seed: Annotated[int, "seed of initial weights, sample order and augmentation"] = 0
    device: Annotated[Device, "auto takes a GPU if there is one"] = "auto"
    precision: Annotated[Precision, "auto: bf16 on a GPU, 32 on a CPU"] = "auto"
    compile: Annotated[Switch, "torch.compile; auto: on a GPU, if training is long enough"] = "auto"
    cuda_graphs: Annotated[Switch, "replay a step as one CUDA graph; auto: where possible"] = "auto"
    resident: Annotated[Switch, "keep the samples on the GPU; auto: if they fit"] = "auto"
    channels_last: Annotated[bool, "use the channels-last memory layout on a GPU"] = True

    def __post_init__(self) -> None:
        for name in ("low", "high", "step"):
            object.__setattr__(self, name, per_target(getattr(self, name)))
        for name in ("head_options", "augment_options"):
            object.__setattr__(self, name, options_of(getattr(self, name)))
        methods = {"objective": (*OBJECTIVES, "own"), "regularizer": ("none", *REGULARIZERS)}
        for name, known in (_CHOICES | methods).items():
            value = getattr(self, name)
            if value not in known and not (value is None and name in _MAY_BE_LEFT):
                raise ValueError(f"{name} must be one of {', '.join(known)}; got {value!r}.")
        check_config(self)

    @property
    def distance(self) -> str | Pairwise:
        """The label distance as the loss, the metrics and the methods take it."""
        return self.label_distance if self.period is None else circular(self.period)

    @property
    def objective_spec(self) -> registry.ObjectiveSpec:
        """The registry's entry for the objective."""
        return OBJECTIVES.get(self.objective, registry.OWN)

    @property
    def regularizer_spec(self) -> registry.RegularizerSpec | None:
        """The registry's entry for the regularizer, or None without one."""
        return REGULARIZERS.get(self.regularizer)

    @property
    def method_options(self) -> MethodOptions:
        """The options that the methods take."""
        names = {field.name for field in dataclasses.fields(MethodOptions)} - {"label_distance"}
        given = {name: getattr(self, name) for name in names}
        known = {name: value for name, value in given.items() if value is not None}
        return MethodOptions(label_distance=self.distance, **known)

    @property
    def uses_objective(self) -> bool:
        """Whether the scheme trains with the objective."""
        return self.scheme in ("probe", "finetune", "regularize", "auto")

    @property
    def active_methods(self) -> dict[str, registry.MethodSpec]:
        """The methods that the scheme trains with, by the names that messages use."""
        methods = {
            f"objective {self.objective}": self.objective_spec if self.uses_objective else None,
            f"regularizer {self.regularizer}": self.regularizer_spec,
            "lds": registry.LDS if self.lds else None,
        }
        return {label: spec for label, spec in methods.items() if spec is not None}

    @property
    def counts_in_bins(self) -> bool:
        """Whether a method other than the head uses low, high and step."""
        specs = (self.objective_spec, self.regularizer_spec)
        return self.lds or any(spec is not None and spec.uses_bins for spec in specs)

    @property
    def uses_bins(self) -> bool:
        """Whether the head or another method uses low, high and step."""
        return HEADS[self.head].binned or self.counts_in_bins

    @property
    def contrast_views(self) -> int:
        """Views per sample while an objective trains the encoder."""
        return 2 if self.views is None else self.views

    @property
    def head_views(self) -> int:
        """Views per sample in an epoch of a head's loss; 0: one view, without augmentation."""
        if self.views is None:
            return 2 if self.preset == "best" else 1
        return self.views

    @property
    def takes_partial(self) -> bool:
        """Whether the encoder trains on rows with missing or partly known targets."""
        has_encoder_stage = self.scheme in ("probe", "finetune", "auto")
        return has_encoder_stage and not encoder_reason(self)

    @property
    def teaches(self) -> bool:
        """Whether a teacher estimates missing targets. It cannot where they are on a circle."""
        ranks = self.takes_partial and self.objective_spec.partial
        return ranks and self.teacher != "none" and self.distance in ("l1", "l2")

    def trained(self, rows: Sizes | int) -> Sizes:
        """How many of these rows this config trains on."""
        return trained_sizes(self, rows)

    def resolve(self, rows: Sizes | int | None = None, kind: str | None = None) -> "FitConfig":
        """The same config, with the preset's values in fields that are None.

        Without `rows` the batch size stays None, and the epochs are those of large data. If
        balance is still None, the head chooses it on validation.

        Args:
            rows: the number of training rows.
            kind: kind of the data: image, volume, signal or table; None counts as image.
        """
        count = None if rows is None else self.trained(rows).encoder
        return dataclasses.replace(self, **preset_values(self, count, kind))

    def rate(self, *, contrast: bool) -> float:
        """The encoder's learning rate: under the objective (contrast), or under a head's loss."""
        if self.lr is not None:
            return self.lr
        by_sgd = (self.optimizer or self.resolve().optimizer) == "sgd"
        return sgd_rate(self, contrast=contrast) if by_sgd else 1e-3

    def augmentation(self, kind: str, side: int | None = None) -> Augment:
        """The augmentation for a kind of data; `side` limits the size of the views of images."""
        # Not `resolve`: it makes a config, and the checks of a config call this method.
        filled = vars(self) | preset_values(self, None, kind)
        fields: dict[str, Any] = view_fields(self, kind, filled["erase"])
        if kind == "image":
            fields |= {
                "size": self.image_size if side is None else min(self.image_size, side),
                "crop_scale": (filled["crop_scale"], 1.0) if self.crop else None,
                "flip": self.flip,
            }
            fields |= {} if self.color else {"jitter": None}
            fields |= {} if self.grayscale else {"grayscale_p": 0.0}
        options = self.augment_options or {}
        known = [f.name for f in dataclasses.fields(AUGMENTS[kind]) if f.name not in fields]
        if unknown := [name for name in options if name not in known]:
            raise ValueError(
                f"augment_options for data of kind {kind} are {', '.join(known)}; got "
                f"{', '.join(unknown)}. Leave that out, or set it by its own field of FitConfig."
            )
        measured = BEST_AUGMENT.get(kind, {}) if self.preset == "best" else {}
        return AUGMENTS[kind](**{**fields, **measured, **options})

    def to_json(self) -> dict[str, Any]:
        """The fields as JSON types."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> "FitConfig":
        """The config from what `to_json` gave; an unknown field means another version."""
        known = {f.name for f in dataclasses.fields(cls)}
        if unknown := sorted(set(fields) - known):
            raise ValueError(
                f"This run was made by another version: config.json has {', '.join(unknown)}, "
                "which this one does not know. Use the version that made it."
            )
        if "erase" not in fields:  # an older version
            if fields.get("views") == 2:
                fields = fields | {"views": None}  # 2 was the default and had no effect end to end
            if not fields.get("crop", True):
                fields = fields | {"crop_scale": None}  # without crops it had no effect
        return cls(**fields)


_MAY_BE_LEFT: dict[str, tuple[str, ...]] = {
    "optimizer": get_args(Optimizer),
    "head_solver": get_args(Solver),
    "test_views": get_args(TestViews),
    "keep": get_args(Keep),
}
_CHOICES: dict[str, tuple[str, ...]] = {
    **_MAY_BE_LEFT,
    **{k: get_args(v) for k, v in get_type_hints(FitConfig).items() if get_origin(v) is Literal},
}
SPEED_ONLY = ("device", "precision", "compile", "cuda_graphs", "resident", "channels_last")
"""Fields that only change speed and rounding. A resumed run may change them."""
