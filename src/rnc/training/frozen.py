"""Training on the features of a frozen encoder: `--freeze`.

The features of every training sample are computed once, for its test views and some random views.
They are cached on disk, and a projection and a head train on them as if they were a table. The
projection sits between the encoder and the head of the model. So in the end the model predicts from
samples as any other does.

The random views do not depend on the seed, so that runs with several seeds share their features.
"""

import dataclasses
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from rnc.augment import TEST_VIEWS, draw_views, eval_view, views_from
from rnc.augment.configs import CachedViews
from rnc.config import FitConfig
from rnc.data.feature_cache import key_of, read_features, write_features
from rnc.data.table import Table
from rnc.encoders.projection import ProjectedEncoder
from rnc.files import hash_tensors
from rnc.model import ModelConfig, Regressor
from rnc.training.record import told

if TYPE_CHECKING:  # takes seconds to import
    from lightning.fabric import Fabric

_TOGETHER = 64  # samples that the encoder sees at a time
_VERSION = 1  # of the features: increase it if the same key would give other features


def frozen_problem(
    fabric: "Fabric", model: Regressor, table: Table, config: FitConfig
) -> tuple[Regressor, Table]:
    """A model that has only the projection and the head of `model`, and its table of features.

    This also sets shift and scale of the projection from the training features.
    """
    encoder = model.encoder
    assert isinstance(encoder, ProjectedEncoder)
    features = _features(fabric, model, encoder.backbone, table, config)
    tests, views = features["val"].shape[1], features["train"].shape[1] - features["val"].shape[1]
    known = features["train"][: len(table.rows("train")), :tests]
    encoder.projection.learn_scale(known.flatten(0, 1))
    encoder.projection.to(fabric.device)
    d = encoder.projection.num_features
    x = np.zeros((len(table), tests + views, d), np.float32)  # rows of other splits stay 0
    x[_learned_rows(table)] = features["train"].numpy()
    x[table.rows("val"), :tests] = features["val"].numpy()
    inner = Regressor(_inner_config(model.config, d), encoder.projection)
    inner.head, inner.augment = model.head, CachedViews(tests, views)
    return inner, dataclasses.replace(table, x=x, kind="table", preprocessing={}, raw=None)


def _learned_rows(table: Table) -> NDArray[np.int64]:
    """The rows that training sees: train rows, then those with missing or partly known targets."""
    return np.concatenate([table.rows("train"), table.rows("partial")])


def _inner_config(config: ModelConfig, d: int) -> ModelConfig:
    return ModelConfig(
        kind="table",
        encoder="own",
        input_shape=(d,),
        augment={},
        head=config.head,
        target_names=config.target_names,
        test_views="cached",
    )


def _features(
    fabric: "Fabric", model: Regressor, backbone: nn.Module, table: Table, config: FitConfig
) -> dict[str, Tensor]:
    """Features of training and validation rows, from the cache or computed.

    They are (n, t + k, d) and (m, t, d), for t test views and k random views. The first process
    computes them. The others do so only if they cannot read its cache.
    """
    views = 0 if config.views == 0 else config.frozen_views
    facts = _facts(model, backbone, table, views)
    key, found = key_of(facts), None
    for is_turn in (fabric.is_global_zero, not fabric.is_global_zero):
        if is_turn and (found := read_features(key)) is None:
            found = {
                "train": _computed(model, backbone, table, _learned_rows(table), views),
                "val": _computed(model, backbone, table, table.rows("val"), 0),
            }
            write_features(key, found, facts)
        fabric.barrier()
    assert found is not None
    return found


def _facts(model: Regressor, backbone: nn.Module, table: Table, views: int) -> dict[str, Any]:
    """Everything that the features depend on, as JSON types."""
    rows = {"train": _learned_rows(table), "val": table.rows("val")}
    return {
        "version": _VERSION,
        "torch": torch.__version__,
        "device": model.input_shift.device.type,
        "inputs": table.fingerprint["inputs"],
        "rows": hash_tensors({split: torch.from_numpy(places) for split, places in rows.items()}),
        "encoder": f"{model.config.encoder}: {type(backbone).__name__}",
        "weights": hash_tensors(backbone.state_dict()),
        "scale": hash_tensors({"shift": model.input_shift, "scale": model.input_scale}),
        "input_shape": list(model.config.input_shape),
        "augment": dataclasses.asdict(model.augment),
        "test_views": model.config.test_views,
        "views": views,
    }


def _computed(
    model: Regressor, backbone: nn.Module, table: Table, rows: NDArray[np.int64], views: int
) -> Tensor:
    """The features of some rows, (n, t + k, d): first of t test views, then of k random views."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        parts = _batches(model, backbone, table, rows, views)
        return torch.cat(list(told("features", parts, math.ceil(len(rows) / _TOGETHER))))
    finally:
        for module in training:
            module.training = True


@torch.no_grad()
def _batches(
    model: Regressor, backbone: nn.Module, table: Table, rows: NDArray[np.int64], views: int
) -> Iterator[Tensor]:
    drawing = torch.Generator().manual_seed(0)
    for start in range(0, len(rows), _TOGETHER):
        samples = torch.tensor(table.x[rows[start : start + _TOGETHER]])
        raw = model.standardise(samples.to(model.input_shift.device))
        seen = [*TEST_VIEWS[model.config.test_views](eval_view(raw, model.augment))]
        features = [backbone(view) for view in seen]
        if views:
            draws = draw_views(samples, model.augment, views, drawing).to(raw.device)
            for one in torch.split(draws, 1, dim=1):
                features.append(backbone(views_from(raw, model.augment, one)[:, 0]))
        yield torch.stack(features, dim=1).float().cpu()
