"""Checks of a FitConfig. Each error says what to choose instead."""

import dataclasses
import os
from typing import TYPE_CHECKING, Any

from rnc.augment.configs import AUGMENTS, MEASURED_SIDES
from rnc.config.presets import preset_values
from rnc.heads.registry import HEADS, find_head
from rnc.loss.pairwise import resolve_label_distance, resolve_similarity
from rnc.methods.objective import MethodOptions
from rnc.methods.registry import OBJECTIVES, REGULARIZERS

if TYPE_CHECKING:
    from rnc.config import FitConfig

_COUNTS = ("epochs", "batch_size", "head_batch_size", "accumulate", "positives", "prototypes")
_SIZES = ("image_size", "projection_size")
_MAY_BE_0 = (
    *("head_epochs", "views", "weight_decay", "head_weight_decay", "lr_decay", "rnc_weight"),
    *("warm_up", "balance", "oversample", "queue", "chunk", "teacher_margin", "frozen_views"),
)
_LEAST = dict.fromkeys(_COUNTS + _SIZES, 1) | dict.fromkeys(_MAY_BE_0, 0)
_RATES = ("lr", "head_lr", "clip", "temperature", "contrast_temperature")
_WEIGHTS = ("regularizer_weight", "mixup_alpha", "mixup_bandwidth")


def check_config(config: "FitConfig") -> None:
    """Raise if a number is out of range, or if options contradict each other."""
    if config.weights is not None and not isinstance(config.weights, str | os.PathLike):
        raise TypeError(
            "weights is a file to start the encoder from; got "
            f"{type(config.weights).__name__}. What rows count is weight_column='NAME' of rnc.fit, "
            "weight= of table_from_arrays, and sample_weight= of RnCRegressor.fit."
        )
    for name, least in _LEAST.items():
        value = getattr(config, name)
        if value is not None and not value >= least:
            raise ValueError(f"{name} must be at least {least}; got {value!r}.")
    for name in _RATES + _WEIGHTS:
        value = getattr(config, name)
        if value is not None and not 0 < value < float("inf"):
            raise ValueError(f"{name} must be a positive number; got {value!r}.")
    if not 0 < config.layer_decay <= 1:
        raise ValueError(
            "layer_decay is a share of the rate of the layer above, above 0 and up to 1, such as "
            f"0.75; got {config.layer_decay!r}."
        )
    if config.freeze and config.layer_decay != 1:
        raise ValueError(
            f"layer_decay={config.layer_decay} is for layers of an encoder that trains, and with "
            "freeze it does not. Leave one of them out."
        )
    _check_average(config)
    _check_head_decay(config)
    resolve_similarity(config.similarity)  # evaluation needs both, whatever the scheme
    if config.label_distance != "circular":
        resolve_label_distance(config.label_distance)
    _check_period(config)
    _check_crop(config)
    _check_augment(config)
    _check_test_views(config)
    if config.finetune_keep == "last" and config.scheme == "auto":
        raise ValueError(
            "scheme auto keeps what is best on validation; got finetune_keep='last'. Leave that "
            "out, or use scheme finetune."
        )
    find_head(config.head).complete(config.head, config.head_options or {})
    _check_methods(config)
    _check_small_batches(config)


def check_frozen(config: "FitConfig", *, own: bool) -> None:
    """Raise if freeze is set for an encoder without weights.

    Args:
        config: freeze, pretrained and weights are checked.
        own: whether the encoder is the caller's module, which may be trained already.
    """
    if config.freeze and not (config.pretrained or config.weights is not None or own):
        raise ValueError(
            "freeze learns on the features of an encoder that knows something already; got no "
            "weights for it. Add --weights PATH (weights=) or --pretrained, or leave out --freeze."
        )


def _check_period(config: "FitConfig") -> None:
    name, period = config.label_distance, config.period
    if name == "circular" and (period is None or not 0 < period < float("inf")):
        raise ValueError(
            "label_distance='circular' needs a positive period (24 for hours, 360 for degrees); "
            f"got period={period}."
        )
    if name != "circular" and period is not None:
        raise ValueError(
            f"period={period} belongs to label_distance='circular'; got {name!r}. Leave it out."
        )
    if period is not None and find_head(config.head).quantiles is not None:
        raise ValueError(
            f"head {config.head!r} predicts quantiles, which a circle does not have: none of its "
            "places is the lowest; got label_distance='circular'. Use head='l1', of which "
            "predict_interval gives arcs."
        )


def _check_average(config: "FitConfig") -> None:
    value = config.average
    if value is None or 0 <= value < 1 or (0 < value < float("inf") and value == int(value)):
        return
    raise ValueError(
        "average must be a decay from 0 to 1, such as 0.999, or a whole number of epochs; got "
        f"{value!r}."
    )


def _check_head_decay(config: "FitConfig") -> None:
    if not config.head_weight_decay or config.scheme not in ("probe", "two-stage", "auto"):
        return
    if (config.head_solver or preset_values(config, None, None)["head_solver"]) == "exact":
        raise ValueError(
            f"head_weight_decay={config.head_weight_decay} is for a head that sgd trains. An exact "
            "head has a ridge penalty, which it chooses on validation by itself. Leave "
            "head_weight_decay out, or use head_solver='sgd', as preset paper does."
        )


def _check_crop(config: "FitConfig") -> None:
    share, erased = config.crop_scale, config.erase
    if erased is not None and not 0 <= erased <= 1:
        raise ValueError(f"erase must be a share from 0 to 1; got {erased!r}.")
    if share is None:
        return
    if not 0 < share <= 1:
        raise ValueError(f"crop_scale must be above 0 and at most 1; got {share!r}.")
    if not config.crop:
        raise ValueError(
            f"crop_scale={share} bounds random crops, and with crop=False there are none. Leave "
            "out crop_scale, or crop=False."
        )


def _check_augment(config: "FitConfig") -> None:
    """Raise if no kind of data has all of augment_options. This needs no data."""
    names = set(config.augment_options or ())
    own = {kind: {f.name for f in dataclasses.fields(cls)} for kind, cls in AUGMENTS.items()}
    kinds = [kind for kind in AUGMENTS if names <= own[kind]]
    if not kinds:
        raise ValueError(
            f"augment_options must be of one kind of data; got {', '.join(sorted(names))}. "
            + " ".join(f"{kind}: {', '.join(sorted(own[kind]))}." for kind in AUGMENTS)
        )
    if names:
        config.augmentation(kinds[0])


def _erase_fields(kind: str, share: float) -> dict[str, float]:
    """The augmentation fields that `erase` sets. Raises if a table would lose all its features."""
    if kind != "table":
        return {"erase": share}
    if share == 1:
        raise ValueError(
            "erase is the share of the features of a table that are masked, and must leave some of "
            "them; got 1. Use less, such as 0.1."
        )
    return {"mask": share} if share > 0 else {}


def view_fields(config: "FitConfig", kind: str, erase: float) -> dict[str, Any]:
    """The augmentation fields that flags set. `FitConfig.augmentation` adds those of images."""
    fields: dict[str, Any] = _erase_fields(kind, erase)
    fields |= {"crop": 1.0} if kind in MEASURED_SIDES and not config.crop else {}
    if kind == "volume":
        fields |= {"flip": config.flip} | ({} if config.color else {"intensity": 0.0})
    return fields


def _check_test_views(config: "FitConfig") -> None:
    if config.test_views == "mirror" and not config.flip:
        raise ValueError(
            "test_views='mirror' predicts from an image and its mirror image, and flip=False says "
            "that left and right differ. Leave out test_views, or flip=False."
        )


def _check_methods(config: "FitConfig") -> None:
    """Raise if methods contradict each other, and say what to choose instead."""
    if config.uses_objective:
        _check_objective(config)
    _check_temperatures(config)
    _check_regularizer(config)
    if config.label_distance == "circular":
        check_limit(config, "circular_labels", "label_distance='circular'")
    if config.original and not is_changed_by_original(config):
        raise ValueError(
            f"original=True changes nothing here: it is for {changed_by_original()}; got "
            f"head={config.head!r}. Leave it out."
        )


def is_changed_by_original(config: "FitConfig") -> bool:
    """Whether original=True makes a difference."""
    used = [config.regularizer_spec, config.objective_spec if config.uses_objective else None]
    changed = any(spec is not None and spec.original is not None for spec in used)
    return changed or config.lds or "original" in HEADS[config.head].options


def _check_objective(config: "FitConfig") -> None:
    spec, name = config.objective_spec, config.objective
    if config.scheme == "regularize" and spec.term is None:
        alone = [known for known, other in OBJECTIVES.items() if other.term is not None]
        raise ValueError(
            "scheme regularize adds a loss of the features to the head's, and this objective is "
            f"not such a loss; got objective={name!r}. Use objective="
            f"{' or '.join(map(repr, alone))}, or scheme probe or finetune."
        )
    if config.contrast_views < spec.views:
        raise ValueError(
            f"objective {name} compares views of a sample: views must be at least {spec.views}; "
            f"got {config.contrast_views}."
        )
    size = config.batch_size
    if size is not None and size * max(1, config.contrast_views) < spec.rows:
        raise ValueError(
            f"{spec.title} contrasts the samples of a batch: batch_size must be at least "
            f"{spec.rows}; got {size}."
        )
    if config.c_mixup and not spec.uses_targets:
        known = " or ".join(known for known, other in OBJECTIVES.items() if other.uses_targets)
        raise ValueError(
            f"c_mixup mixes samples by their targets, and objective {name} must not see any. "
            f"Use objective {known}, or leave c_mixup out."
        )


def _check_small_batches(config: "FitConfig") -> None:
    """Raise for a queue or chunks if the objective does not support them."""
    spec = config.objective_spec
    if config.queue and not (config.uses_objective and spec.queued):
        able = " or ".join(name for name, other in OBJECTIVES.items() if other.queued)
        got = f"objective={config.objective!r}" if config.uses_objective else "no objective at all"
        raise ValueError(
            f"queue={config.queue} is for objective {able} in scheme probe, finetune, regularize "
            f"or auto; got scheme={config.scheme!r} and {got}. Leave queue out. chunk makes large "
            "batches possible for every other loss."
        )
    if config.chunk and config.uses_objective and spec.whole:
        raise ValueError(
            f"chunk={config.chunk} cuts a batch into parts, and objective {config.objective} "
            f"{spec.whole}. Leave chunk out, or use a smaller batch_size."
        )


def _check_temperatures(config: "FitConfig") -> None:
    if config.scheme not in ("probe", "finetune"):
        return
    used = config.objective_spec.temperature
    names = {spec.temperature for spec in OBJECTIVES.values() if spec.temperature is not None}
    for name in sorted(names - {used}):
        if (value := getattr(config, name)) not in (None, getattr(MethodOptions, name)):
            other = "yours to set. Leave it out" if used is None else f"{used}. Give that instead"
            raise ValueError(
                f"objective {config.objective} has no {name}, which was given as {value}; its own "
                f"is {other}."
            )


def _check_regularizer(config: "FitConfig") -> None:
    name, weight, spec = config.regularizer, config.regularizer_weight, config.regularizer_spec
    if spec is not None and config.scheme in ("probe", "auto"):
        raise ValueError(
            f"regularizer {name} shapes features, and scheme {config.scheme} trains a head on "
            "frozen ones. Use scheme end2end, finetune, regularize or two-stage."
        )
    if weight is not None and (spec is None or spec.term is None):
        why = "there is none" if spec is None else f"{name} changes features and adds no loss"
        known = [known for known, other in REGULARIZERS.items() if other.term is not None]
        raise ValueError(
            f"regularizer_weight={weight} has no regularizer to weigh: {why}. Leave it out, or use "
            f"regularizer {' or '.join(known)}."
        )


def check_limit(config: "FitConfig", limit: str, got: str) -> None:
    """Raise if a method of the config sets this field of `Limits`, which forbids `got`."""
    for label, method in config.active_methods.items():
        if reason := getattr(method.limits_with(original=config.original), limit):
            able = [name for name, spec in REGULARIZERS.items() if not getattr(spec.limits, limit)]
            other = f"Use regularizer {' or '.join(able)}, or none."
            other = "Leave --lds out." if label == "lds" else other
            remedy = other if getattr(method.limits, limit) else "Leave --original out."
            raise ValueError(f"{label} {reason}; got {got}. {remedy}")


# ---------------------------------------------------------------------------- for the help


def default_weights() -> str:
    """The default weights of the regularizers, for the help text."""
    known = REGULARIZERS.items()
    usual = [f"{name} {spec.weight:g}" for name, spec in known if spec.weight is not None]
    published = {name: spec.published_weight for name, spec in known}
    original = [f"{name} {weight:g}" for name, weight in published.items() if weight is not None]
    return f"{', '.join(usual)} (original: {', '.join(original)})"


def changed_by_original() -> str:
    """The methods that original=True changes, for the help text and an error message."""
    regularizers = [name for name, spec in REGULARIZERS.items() if spec.original is not None]
    objectives = [name for name, spec in OBJECTIVES.items() if spec.original is not None]
    heads = [name for name, spec in HEADS.items() if "original" in spec.options]
    parts = {"regularizer": regularizers, "objective": objectives, "head": heads}
    return ", ".join(["lds", *(f"{what} {' '.join(names)}" for what, names in parts.items())])
