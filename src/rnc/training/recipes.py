"""Recipes put data, encoder, head, objective and loop together.

    build_regressor   a new model that fits a table
    train             run the stages of a scheme; one Record per epoch
    train_encoder     run the first stage of scheme probe or finetune, for several runs to share

The schemes are

    probe        train the encoder by an objective (RnC), then a head on the frozen encoder
    finetune     the same, then train head and encoder together, which is kept if it is better
    regularize   train by head loss + weight x RnC
    end2end      train by the head loss alone
    two-stage    end2end, then an l1 head on the frozen encoder: the paper's control
    auto         end2end for a third of the epochs, then probe and finetune with a shared encoder;
                 keep the best on validation
"""

import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from rnc.augment.configs import Augment, ImageAugment
from rnc.config import FitConfig
from rnc.config.checks import check_frozen, check_limit
from rnc.data.table import Table
from rnc.encoders import build_encoder, default_encoder, feature_size
from rnc.encoders.tables import PiecewiseMLP
from rnc.heads import head_config
from rnc.heads.registry import HEADS
from rnc.methods.objective import PairLoss
from rnc.methods.registry import OBJECTIVES
from rnc.model import ModelConfig, Regressor, input_shape_of, without_head
from rnc.training.averaging import normalisations
from rnc.training.checkpoint import weights_of
from rnc.training.frozen import frozen_problem
from rnc.training.loop import make_fabric
from rnc.training.memory import kept_memory
from rnc.training.objectives import for_optimizer
from rnc.training.partial_rows import check_partial
from rnc.training.record import Record
from rnc.training.speed import tf32
from rnc.training.stages import SchemeRunner
from rnc.weights import pixels_of_weights

AUTO = ("end2end", "probe", "finetune")
"""The schemes that auto tries. With the presets, they have at most about 1.5 times the views of
probe alone: see `rnc.training.stages.AUTO_SHARE`."""


def build_regressor(table: Table, config: FitConfig, encoder: nn.Module | None = None) -> Regressor:
    """A new model for this data. Its random weights depend only on config.seed.

    The head gets its range or scale from the training targets, and its units from the optimizer of
    the config. `encoder` is a module to use instead of config.encoder.
    """
    check_frozen(config, own=encoder is not None)
    torch.manual_seed(config.seed)
    train = table.rows("train")
    config = config.resolve(table.sizes, table.kind)
    side = min(table.x.shape[2:]) if table.kind == "image" else None
    augment = config.augmentation(table.kind, side)
    shape = input_shape_of(table.x[train[:1]], augment)
    name = config.encoder
    if name == "auto":
        name = default_encoder(shape, piecewise=config.preset == "best")
    augment = _as_pretrained(augment, name, shape[0], config)
    module = build_encoder(
        name if encoder is None else encoder,
        shape,
        pretrained=config.pretrained,
        weights=config.weights,
        projected=config.freeze,
    )
    spec = HEADS[config.head]
    binned = spec.binned or not config.counts_in_bins
    options = {"original": True} if config.original and "original" in spec.options else {}
    head = head_config(
        config.head,
        feature_size(module, shape),
        table.y[train],
        low=config.low if binned else None,
        high=config.high if binned else None,
        step=config.step if binned else None,
        options={**options, **(config.head_options or {})},
    )
    model_config = ModelConfig(
        kind=table.kind,
        encoder=name if encoder is None else "own",
        input_shape=shape,
        augment=dataclasses.asdict(augment),
        head=dataclasses.asdict(for_optimizer(head, config)),
        target_names=table.target_names,
        preprocessing=table.preprocessing,
        test_views=config.test_views or "plain",
        projected=config.freeze,
    )
    model = Regressor(model_config, module)
    if table.kind == "signal":
        _standardise_signals(model, table.x[train])
    elif table.kind == "volume":
        _standardise_volumes(model, table.x, train)
    if encoder is None and isinstance(module, PiecewiseMLP) and config.weights is None:
        module.learn_bins(torch.from_numpy(table.x[train]))
    return model


def _as_pretrained(augment: Augment, name: str, channels: int, config: FitConfig) -> Augment:
    """The augmentation, with the pixel settings that the encoder's weights were trained with.

    Settings in augment_options take precedence.
    """
    is_new = not config.pretrained and config.weights is None
    if is_new or not isinstance(augment, ImageAugment):
        return augment
    pixels = pixels_of_weights(name, channels, config.weights)
    known = {
        "mean": pixels.mean,
        "std": pixels.std,
        "short_side": pixels.short_side(augment.size),
        "interpolation": pixels.interpolation,
    }
    found = {field: value for field, value in known.items() if value is not None}
    return dataclasses.replace(augment, **{**found, **(config.augment_options or {})})


def train(
    model: Regressor,
    table: Table,
    config: FitConfig,
    folder: Path | None = None,
    *,
    own: PairLoss | None = None,
    encoder_weights: Mapping[str, Tensor] | None = None,
) -> Iterator[Record]:
    """Train a model of `build_regressor` in place by the config's scheme, without test rows.

    Checkpoints are kept in the folder, and training continues from those that it holds. `own` is
    the function of objective "own": features (n, v, d) and targets (n, t) -> a number.
    `encoder_weights` are a trained encoder's, named as in the state_dict of a Regressor. They
    replace the first stage of scheme probe, finetune or two-stage, which then has no epochs.
    Weights of a head among them are ignored.
    """
    config = config.resolve(table.sizes, table.kind)
    check_training(model, table, config, own, encoder_weights)
    with tf32(config), kept_memory(config):
        if config.freeze:
            yield from _train_frozen(model, table, config, folder, own)
        else:
            yield from _train(SchemeRunner(model, table, config, folder, own, encoder_weights))


def _train_frozen(
    model: Regressor, table: Table, config: FitConfig, folder: Path | None, own: PairLoss | None
) -> Iterator[Record]:
    """Train projection and head of a model on the features of its frozen encoder."""
    fabric = make_fabric(config)
    model.to(fabric.device)
    inner, features = frozen_problem(fabric, model, table, config)
    if config.views == 0:  # the cached views are plain ones
        config = dataclasses.replace(config, views=max(1, config.objective_spec.views))
    yield from _train(SchemeRunner(inner, features, config, folder, own))
    model.head = inner.head
    model.config = dataclasses.replace(model.config, head=inner.config.head)


def train_encoder(
    model: Regressor,
    table: Table,
    config: FitConfig,
    folder: Path | None = None,
    *,
    own: PairLoss | None = None,
) -> Iterator[Record]:
    """Train only the encoder of scheme probe or finetune. The head is not changed.

    The arguments are those of `train`. ENCODER_FILE in the folder then holds the encoder and its
    records.
    """
    config = config.resolve(table.sizes, table.kind)
    check_training(model, table, config, own, None)
    with tf32(config), kept_memory(config):
        yield from SchemeRunner(model, table, config, folder, own).encode()


def check_training(
    model: Regressor,
    table: Table,
    config: FitConfig,
    own: PairLoss | None,
    encoder_weights: Mapping[str, Tensor] | None,
) -> None:
    """Raise before training if `train` cannot work with these arguments."""
    if (config.objective == "own") != (own is not None):
        raise ValueError(
            "objective 'own' needs a function from Python, and a function needs objective 'own'; "
            f"got objective={config.objective!r} and {'no' if own is None else 'a'} function. Use "
            "RnCRegressor(objective=function) or fit_run(..., objective=function)."
        )
    _check_rows(table, config)
    _check_targets(table, config)
    check_weights(table, config)
    check_partial(table, config)
    _check_chunk(model, config)
    if encoder_weights is not None:
        _check_encoder(model, config, encoder_weights)


def _check_encoder(model: Regressor, config: FitConfig, weights: Mapping[str, Tensor]) -> None:
    """Raise unless the scheme can start from an encoder, and the weights fit that of the model."""
    if config.scheme not in ("probe", "finetune", "two-stage"):
        raise ValueError(
            "encoder_weights replace the first stage of scheme probe, finetune or two-stage, which "
            f"trains the encoder; got scheme {config.scheme}. Use one of these three."
        )
    needed = {name: tuple(value.shape) for name, value in without_head(model.state_dict()).items()}
    given = {name: tuple(value.shape) for name, value in without_head(weights).items()}
    if given != needed:
        name = min(name for name in needed | given if needed.get(name) != given.get(name))
        problem = f"has shape {given.get(name)} in them, but this encoder needs {needed.get(name)}"
        if name not in given:
            problem = "is missing in them"
        elif name not in needed:
            problem = "is not part of this encoder"
        raise ValueError(
            "encoder_weights must be those of the same encoder, built for inputs of the same "
            f"shape; {name!r} {problem}."
        )


def _train(runner: SchemeRunner) -> Iterator[Record]:
    model, config = runner.model, runner.config
    if config.scheme != "auto":
        yield from runner.scheme(config.scheme)
        return
    best: tuple[float, dict[str, Tensor]] | None = None
    for scheme in AUTO:
        yield from runner.scheme(scheme, prefix=f"{scheme}/")
        error = runner.validation.model_error()
        if best is None or error < best[0]:
            best = (error, weights_of(model))
    assert best is not None
    model.load_state_dict(best[1])


def _standardise_signals(model: Regressor, x: np.ndarray) -> None:
    """Learn shift and scale of every channel from the training signals."""
    model.input_shift.copy_(torch.tensor(x.mean(axis=(0, 2), dtype=np.float64))[:, None])
    scale = torch.tensor(x.std(axis=(0, 2), dtype=np.float64))[:, None]
    model.input_scale.copy_(torch.where(scale > 0, scale, 1.0))


def _standardise_volumes(model: Regressor, x: np.ndarray, rows: np.ndarray) -> None:
    """Learn shift and scale of every channel from the training volumes, one by one for memory."""
    voxels = np.prod(x.shape[2:]) * len(rows)
    totals = sum(x[i].sum(axis=(1, 2, 3), dtype=np.float64) for i in rows)
    mean = (totals / voxels)[:, None, None, None]
    squares = sum(np.square(x[i] - mean).sum(axis=(1, 2, 3)) for i in rows)
    scale = np.sqrt(squares / voxels)[:, None, None, None]
    model.input_shift.copy_(torch.tensor(mean))
    model.input_scale.copy_(torch.tensor(np.where(scale > 0, scale, 1.0)))


def _check_rows(table: Table, config: FitConfig) -> None:
    counts = {split: len(table.rows(split)) for split in ("train", "val", "test")}
    rows = config.trained(table.sizes).encoder
    if config.batch_size is not None and rows < config.batch_size:
        raise ValueError(
            f"A batch needs batch_size = {config.batch_size} training rows; got {rows}. "
            "Leave --batch-size out: it then follows the number of rows."
        )
    if config.queue > counts["train"]:
        raise ValueError(
            f"queue = {config.queue} keeps more samples than there are training rows, "
            f"{counts['train']}. Use --queue {counts['train']} or less."
        )
    if not counts["val"]:
        have = ", ".join(f"{count} {split}" for split, count in counts.items())
        raise ValueError(
            f"Training needs validation rows to choose the best weights; got {have}. Mark some "
            "rows as val, or use a random split."
        )


def _check_chunk(model: Regressor, config: FitConfig) -> None:
    """Raise if a chunk has a single view, which is too few for batch normalisation."""
    by_head = config.scheme in ("end2end", "two-stage", "finetune", "auto")
    views = 1 if by_head else max(1, config.contrast_views)
    if config.chunk and config.chunk * views < 2 and normalisations(model.encoder):
        raise ValueError(
            "The encoder normalises by the statistics of the rows that it sees at a time (batch "
            f"normalisation), and chunk={config.chunk} is a single row. Use --chunk 2 or more. The "
            "statistics are only reliable from about 16 rows on."
        )


def weightless(config: FitConfig) -> list[str]:
    """The methods of a config that cannot use weights of samples."""
    methods = [label for label, method in config.active_methods.items() if not method.weighted]
    return methods + (["c_mixup"] if config.c_mixup else [])


def check_weights(table: Table, config: FitConfig) -> None:
    """Raise if the rows have weights, and name the methods that cannot use them."""
    if table.weight is not None and (unable := weightless(config)):
        able = ", ".join(name for name, spec in OBJECTIVES.items() if spec.weighted)
        raise ValueError(
            f"{' and '.join(unable)} cannot weigh samples, and the data have weights. Leave the "
            f"weights out, or use objective {able} or scheme end2end, with any head, with or "
            "without lds, and without regularizer and c_mixup."
        )


def _check_targets(table: Table, config: FitConfig) -> None:
    """Raise if a method of the config cannot work with these targets."""
    targets = table.y[table.rows("train")]
    if len(np.unique(targets, axis=0)) == len(targets):
        check_limit(config, "distinct_targets", f"{len(targets)} training targets that all differ")
    if targets.shape[1] > 1:
        check_limit(config, "several_targets", f"{targets.shape[1]} targets")
