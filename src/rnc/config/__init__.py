"""FitConfig: every choice of a training run, in one place.

CLI flags, estimator parameters and config.json derive from its fields. A default of None means
that the value follows from the preset, the kind of the data and the number of training rows, as
`rnc.config.presets` has it.
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
        "probe: RnC encoder, frozen, then a head on it; finetune: then encoder and head together; "
        "regularize: head loss + rnc_weight x RnC; end2end: head loss alone; two-stage: end2end, "
        "then a new l1 head on the frozen encoder; auto: a short end2end, probe and finetune, of "
        "which the best on validation stays",
    ] = "probe"
    objective: Annotated[
        str,
        f"what shapes the representation in probe and finetune: {' '.join(OBJECTIVES)}; own: a "
        "function that Python code gave",
    ] = "rnc"
    regularizer: Annotated[
        str, f"beside the head's loss, where the encoder trains: {' '.join(REGULARIZERS)}"
    ] = "none"
    regularizer_weight: Annotated[
        float | None,
        f"weight of the regularizer; default: {default_weights()}, and 20 times as much beside "
        "heads l1 and huber by sgd, whose loss is as large",
    ] = None
    lds: Annotated[bool, "weigh samples of rare targets more in the head's loss"] = False
    c_mixup: Annotated[bool, "mix samples of near targets while the encoder trains"] = False
    mixup_alpha: Annotated[float, "of c_mixup: larger mixes more evenly"] = 2.0
    mixup_bandwidth: Annotated[
        float | None, "of c_mixup: how near targets are; default: a fifth of their spread"
    ] = None
    projection_size: Annotated[int, "outputs of the head that supcon and simclr train with"] = 128
    prototypes: Annotated[int, "outputs of the head that dino trains with"] = 1024
    original: Annotated[
        bool, f"do as published code does where it differs: {changed_by_original()}"
    ] = False
    head: Annotated[str, "l1 mse huber dex dldl or corn l2cs lde quantile gaussian"] = "l1"
    head_options: Annotated[
        HeadOptions | None,
        "of the head: beta (huber gaussian), sigma (dldl lde), alpha (dldl l2cs), decode (or "
        "corn: mean or class), levels (quantile: 0.1,0.5,0.9), floor (gaussian), or those of a "
        "head of yours",
    ] = None
    low: Annotated[
        PerTarget, "lowest class of a binned head; one, or one per target; default: lowest target"
    ] = None
    high: Annotated[PerTarget, "highest class; default: highest target"] = None
    step: Annotated[PerTarget, "width of a class; default: 1 or a hundredth"] = None
    encoder: Annotated[
        str, "a timm model, small-cnn, resnet3d18, resnet1d24, mlp, piecewise-mlp; auto: by input"
    ] = "auto"
    pretrained: Annotated[bool, "start a timm encoder from its published weights"] = False
    weights: Annotated[
        str | None, "start the encoder from this .safetensors file, hub folder or run"
    ] = None
    freeze: Annotated[
        bool,
        "leave the encoder as its weights are: its features are computed once and kept, and a "
        "projection and a head learn on them in seconds",
    ] = False
    frozen_views: Annotated[
        int, "with freeze: augmented views of each sample whose features are kept"
    ] = 8
    preset: Annotated[
        Preset,
        "best: what won on real data, sized to yours; paper: the paper's 400 + 100 epochs of SGD; "
        "quick: a first look, 30 epochs of AdamW",
    ] = "best"

    epochs: Annotated[int | None, "epochs of the encoder, or of end-to-end training"] = None
    head_epochs: Annotated[int | None, "epochs of the head on the frozen encoder"] = None
    batch_size: Annotated[
        int | None, "samples per step, over all processes; default: by the training rows, up to 256"
    ] = None
    head_batch_size: Annotated[int, "samples per step of the head"] = 64
    accumulate: Annotated[int, "steps whose gradients are added up before an update"] = 1
    queue: Annotated[
        int, "earlier samples, with their features then, that RnC ranks beside a small batch"
    ] = 0
    chunk: Annotated[
        int,
        "samples that the encoder sees at a time, per process: memory of a chunk, gradient of the "
        "whole batch; batch normalisation takes the statistics of a chunk; default: all at once",
    ] = 0
    clip: Annotated[float | None, "largest norm of the gradient"] = None

    optimizer: Annotated[Optimizer | None, "sgd (momentum 0.9) or adamw"] = None
    lr: Annotated[
        float | None,
        "learning rate; by SGD 0.4 for RnC (paper: 0.5), 0.05 end to end (paper: 0.2) or less for "
        "small batches; by AdamW 0.001",
    ] = None
    weight_decay: Annotated[float | None, "of the encoder; 0.0001, for images in best 0.0005"] = (
        None
    )
    lr_decay: Annotated[float, "the cosine ends at lr x this^3"] = 0.1
    layer_decay: Annotated[
        float, "rate of each layer of the encoder, as a share of that of the layer above it"
    ] = 1.0
    warm_up: Annotated[
        int | None, "epochs in which the rate rises; best: a twentieth, else none"
    ] = None
    average: Annotated[
        float | None,
        "a mean of the weights takes their place: below 1 the decay per update of a moving mean "
        "(best: 0.999), N for that of the last N epochs, 0 for none",
    ] = None
    keep: Annotated[
        Keep | None,
        "which encoder stays, where none of its epochs has a head: the last, or the best of ten "
        "looks at validation by a quick probe; best: best, else last",
    ] = None
    finetune_keep: Annotated[
        Keep,
        "which epoch of fine-tuning stays: the best on validation, where its start is one of them, "
        "or the last, which shows where fine-tuning harms",
    ] = "best"
    head_lr: Annotated[float | None, "learning rate of the head; by default 0.05"] = None
    head_weight_decay: Annotated[
        float, "of the head by sgd; an exact head chooses its penalty on validation instead"
    ] = 0.0
    head_solver: Annotated[
        Solver | None, "exact: solve the convex head; sgd: as in the paper, its preset's default"
    ] = None
    balance: Annotated[
        float | None,
        "exact head: samples weigh density of their target^-this; best: chosen on validation from "
        "0 to 1, else 0",
    ] = None

    oversample: Annotated[
        float | None,
        "samples are drawn in proportion to density of their target^-this, so that rare targets "
        "are seen more often; best: as validation targets are spread, else 0",
    ] = None

    temperature: Annotated[
        float | None, "of the RnC loss, by default 2 as in the paper; best: 4 for images"
    ] = None
    contrast_temperature: Annotated[float, "of supcon, simclr and dino's student"] = 0.1
    label_distance: Annotated[str, "l1 l2 angular circular: how far apart two targets are"] = "l1"
    similarity: Annotated[str, "l2 l1 cosine: how alike two features are"] = "l2"
    period: Annotated[float | None, "length of the circle for label_distance circular"] = None
    positives: Annotated[int | None, "contrast only the K nearest by label; default: all"] = None
    rnc_weight: Annotated[float, "weight of RnC in scheme regularize"] = 1.0
    teacher: Annotated[
        Teaching,
        "of rows without a target, for RnC. estimates: a mean of the encoder's weights estimates "
        "it; intervals: estimate +- teacher_margin; none: only their views are known to be alike",
    ] = "estimates"
    teacher_margin: Annotated[
        float, "of teacher intervals, in mean errors on validation around the estimate"
    ] = 1.0

    image_size: Annotated[int, "side of the square that the encoder sees, in pixels"] = 224
    views: Annotated[
        int | None,
        "augmented views per sample, by default 2 (best, from 5,000 images on: 4); end to end, as "
        "many times batch_size different samples in a step (paper and quick: 1); 0: the plain "
        "sample",
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
    grayscale: Annotated[bool, "drop the colours of some views"] = True
    augment_options: Annotated[
        Mapping[str, Any] | None,
        "the rest of the augmentation. Images: crop_ratio jitter jitter_p grayscale_p erase_sides "
        "short_side interpolation, mean and std, as mean=0.485,0.456,0.406; signals: crop "
        "erase_length; volumes: crop intensity erase_sides; "
        "tables: noise, and mask unless erase is given",
    ] = None

    test_views: Annotated[
        TestViews | None, "mirror: predict from an image and its mirror image; best: with flip"
    ] = None

    seed: Annotated[int, "of weights, order and augmentation"] = 0
    device: Annotated[Device, "auto takes a GPU if there is one"] = "auto"
    precision: Annotated[Precision, "auto: bf16 on a GPU, 32 on a CPU"] = "auto"
    compile: Annotated[Switch, "torch.compile; auto: on a GPU, if training is long enough"] = "auto"
    cuda_graphs: Annotated[Switch, "replay a step as one CUDA graph; auto: where possible"] = "auto"
    resident: Annotated[Switch, "keep the samples on the GPU; auto: if they fit"] = "auto"
    channels_last: Annotated[bool, "memory order of images on a GPU"] = True

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
        """What is known about the objective."""
        return OBJECTIVES.get(self.objective, registry.OWN)

    @property
    def regularizer_spec(self) -> registry.RegularizerSpec | None:
        """What is known about the regularizer, if there is one."""
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
        """Whether the objective has a part in the scheme."""
        return self.scheme in ("probe", "finetune", "regularize", "auto")

    @property
    def active_methods(self) -> dict[str, registry.MethodSpec]:
        """The methods that have a part in the scheme, by what a message calls them."""
        methods = {
            f"objective {self.objective}": self.objective_spec if self.uses_objective else None,
            f"regularizer {self.regularizer}": self.regularizer_spec,
            "lds": registry.LDS if self.lds else None,
        }
        return {label: spec for label, spec in methods.items() if spec is not None}

    @property
    def counts_in_bins(self) -> bool:
        """Whether low, high and step serve a method beside the head."""
        specs = (self.objective_spec, self.regularizer_spec)
        return self.lds or any(spec is not None and spec.uses_bins for spec in specs)

    @property
    def uses_bins(self) -> bool:
        """Whether low, high and step serve the head or a method beside it."""
        return HEADS[self.head].binned or self.counts_in_bins

    @property
    def contrast_views(self) -> int:
        """Views of a sample where an objective trains the encoder."""
        return 2 if self.views is None else self.views

    @property
    def head_views(self) -> int:
        """How often an epoch of a head's loss shows a sample; 0: once, as it is."""
        if self.views is None:
            return 2 if self.preset == "best" else 1
        return self.views

    @property
    def takes_partial(self) -> bool:
        """Whether an encoder trains on rows whose targets are missing or known in part."""
        has_encoder_stage = self.scheme in ("probe", "finetune", "auto")
        return has_encoder_stage and not encoder_reason(self)

    @property
    def teaches(self) -> bool:
        """Whether a teacher estimates targets that are missing: not those on a circle."""
        ranks = self.takes_partial and self.objective_spec.partial
        return ranks and self.teacher != "none" and self.distance in ("l1", "l2")

    def trained(self, rows: Sizes | int) -> Sizes:
        """The sizes that this config trains on, of those that there are."""
        return trained_sizes(self, rows)

    def resolve(self, rows: Sizes | int | None = None, kind: str | None = None) -> "FitConfig":
        """The same config with what the preset says for these data.

        Without `rows` the batch size stays as it is, and the epochs are those of large data. Where
        balance is None after that, the head chooses it.

        Args:
            rows: how many there are to train on.
            kind: of the data: image, volume, signal or table; None is taken for image.
        """
        count = None if rows is None else self.trained(rows).encoder
        return dataclasses.replace(self, **preset_values(self, count, kind))

    def rate(self, *, contrast: bool) -> float:
        """The rate of an encoder that the objective trains (contrast), or else a head's loss."""
        if self.lr is not None:
            return self.lr
        by_sgd = (self.optimizer or self.resolve().optimizer) == "sgd"
        return sgd_rate(self, contrast=contrast) if by_sgd else 1e-3

    def augmentation(self, kind: str, side: int | None = None) -> Augment:
        """How samples of a kind become views; those of images do not exceed their shorter side."""
        # What a preset fills in; `resolve` would make a config, whose check asks for this again.
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
        """The config that `to_json` gave; a field it does not know means another version."""
        known = {f.name for f in dataclasses.fields(cls)}
        if unknown := sorted(set(fields) - known):
            raise ValueError(
                f"This run was made by another version: config.json has {', '.join(unknown)}, "
                "which this one does not know. Use the version that made it."
            )
        if "erase" not in fields:  # an older version
            if fields.get("views") == 2:
                fields = fields | {"views": None}  # 2 did not mean end to end
            if not fields.get("crop", True):
                fields = fields | {"crop_scale": None}  # it was there, and not looked at
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
"""Fields that change how fast a run is and how it rounds: a resumed run may change them."""
