"""Presets: what the fields are that were left to them.

    best    what won on real data: see docs/results.md, where every part is measured
    paper   the paper's recipe: SGD, cosine to lr * decay^3, 400 epochs and then 100 for the head
    quick   a first look: AdamW, a tenth of the epochs

`preset_values` depends on the kind of the data and on the number of training rows. Fields that the
user set stay as they are.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rnc.config.sizes import (
    MANY_IMAGES,
    MANY_TABLE_ROWS,
    QUICK_EPOCHS,
    best_batch_size,
    best_epochs,
    best_table_batch_size,
    best_table_epochs,
    default_batch_size,
    frozen_epochs,
    quick_epochs,
    sgd_scale,
)

if TYPE_CHECKING:
    from rnc.config import FitConfig

PAPER_EPOCHS, PAPER_HEAD_EPOCHS, QUICK_HEAD_EPOCHS = 400, 100, 20
"""Of the encoder, and of a head or a fine-tuning."""
PLAIN = {
    "optimizer": "sgd",
    "weight_decay": 1e-4,
    "head_solver": "exact",
    "balance": 0.0,
    "oversample": 0.0,
    "crop_scale": 0.2,
    "erase": 0.0,
    "average": 0.0,
    "warm_up": 0,
    "test_views": "plain",
    "keep": "last",
    "temperature": 2.0,
}
"""Training as in the paper, but for the head."""
CONTRAST_RATE, HEAD_RATE = 0.4, 0.05
"""Rates of preset best by SGD, for 512 images in a step: of RnC, and of a head's loss."""
TABLE_RATE = 2e-3
"""Rate of preset best by AdamW for tables below MANY_TABLE_ROWS: of RnC, and of a head's loss."""
BEST_AUGMENT: dict[str, dict[str, Any]] = {"table": {"noise": 0.01}}
"""Other defaults of the augmentation, by kind. Noise of 0.05 hides what the bins of a table show.
"""


def preset_values(config: "FitConfig", rows: int | None, kind: str | None) -> dict[str, Any]:
    """The values of the fields that are None; the batch size only where the rows are known."""
    values = PLAIN | _PRESETS[config.preset](config, rows, kind or "image")
    if config.freeze:
        values |= _frozen(config, rows)
    if rows is None:
        values.pop("batch_size", None)
    if not config.crop:
        del values["crop_scale"]
    if config.objective_spec.temperature != "temperature":
        del values["temperature"]
    values["head_lr"] = 0.05 if (config.optimizer or values["optimizer"]) == "sgd" else 1e-2
    return {name: value for name, value in values.items() if getattr(config, name) is None}


def sgd_rate(config: "FitConfig", *, contrast: bool) -> float:
    """The rate of SGD for an encoder that the objective trains, or else a head's loss."""
    views = config.contrast_views if contrast else config.head_views
    several = max(2, views) // 2 if config.preset == "best" else 1
    scale = sgd_scale(config.batch_size and several * config.batch_size)
    if not contrast:
        return scale * (HEAD_RATE if config.preset == "best" else 0.2)
    if config.preset == "best" and config.objective == "rnc":
        return scale * CONTRAST_RATE
    return config.objective_spec.lr


def _paper(config: "FitConfig", rows: int | None, kind: str) -> dict[str, Any]:
    return {
        "epochs": PAPER_EPOCHS,
        "head_epochs": PAPER_HEAD_EPOCHS,
        "batch_size": default_batch_size(rows or 0),
        "head_solver": "sgd",
    }


def _quick(config: "FitConfig", rows: int | None, kind: str) -> dict[str, Any]:
    epochs, head_epochs = QUICK_EPOCHS, QUICK_HEAD_EPOCHS
    if rows is not None and config.batch_size is None:
        longer = quick_epochs(rows)
        epochs, head_epochs = longer, head_epochs * longer // epochs
    return {
        "epochs": epochs,
        "head_epochs": head_epochs,
        "batch_size": default_batch_size(rows or 0),
        "optimizer": "adamw",
    }


def _best(config: "FitConfig", rows: int | None, kind: str) -> dict[str, Any]:
    drawn = {"oversample": 0.0 if config.lds else None}  # LDS weighs rare targets already
    return {"keep": "best"} | drawn | _BEST[kind](config, rows)


def _best_images(config: "FitConfig", rows: int | None) -> dict[str, Any]:
    views = config.views
    if views is None and config.objective == "rnc" and rows is not None and rows >= MANY_IMAGES:
        views = 4
    own = {"views": views, "temperature": 4.0, "test_views": "mirror" if config.flip else "plain"}
    return _best_network(config, rows, views) | {"weight_decay": 5e-4} | own


def _best_signals(config: "FitConfig", rows: int | None) -> dict[str, Any]:
    return _best_network(config, rows, config.views) | {"optimizer": "adamw"}


def _best_volumes(config: "FitConfig", rows: int | None) -> dict[str, Any]:
    mirrored = {"test_views": "mirror" if config.flip else "plain"}
    return _best_signals(config, rows) | mirrored


def _best_network(config: "FitConfig", rows: int | None, views: int | None) -> dict[str, Any]:
    several = 2 if views is None else views
    batch_size = config.batch_size or best_batch_size(rows, several)
    epochs = config.epochs or best_epochs(rows, batch_size, several)
    return {
        "epochs": epochs,
        "head_epochs": max(1, epochs // 10),
        "batch_size": batch_size,
        "balance": None,
        "crop_scale": 0.5,
        "erase": 1.0,
        "average": 0.999,
        "warm_up": epochs // 20,
    }


def _best_tables(config: "FitConfig", rows: int | None) -> dict[str, Any]:
    views, is_small = config.views, rows is not None and rows < MANY_TABLE_ROWS
    if views is None and config.objective == "rnc" and is_small:
        views = 1
    several = 2 if views is None else views
    batch_size = config.batch_size or best_table_batch_size(rows or 0, several)
    epochs = config.epochs or best_table_epochs(rows, batch_size, several)
    faster = is_small and config.optimizer in (None, "adamw")
    return ({"lr": TABLE_RATE} if faster else {}) | {
        "epochs": epochs,
        "head_epochs": max(1, epochs // 6),
        "batch_size": batch_size,
        "views": views,
        "optimizer": "adamw",
        "temperature": 1.0 if is_small else 2.0,
        "balance": None,
        "average": 0.999,
    }


def _frozen(config: "FitConfig", rows: int | None) -> dict[str, Any]:
    """Training on frozen features, in any preset: measured in docs/pretrained.md."""
    batch_size = config.batch_size or best_batch_size(rows)
    epochs = config.epochs or frozen_epochs(rows, batch_size)
    return {
        "epochs": epochs,
        "head_epochs": max(1, epochs // 10),
        "batch_size": batch_size,
        "optimizer": "adamw",
        "weight_decay": 1e-2,
        "head_solver": "exact",
        "average": 0.99,
        "warm_up": 0,
        "keep": "best",
        "temperature": 2.0,
    }


_BEST: dict[str, Callable[["FitConfig", int | None], dict[str, Any]]] = {
    "image": _best_images,
    "signal": _best_signals,
    "volume": _best_volumes,
    "table": _best_tables,
}
_PRESETS: dict[str, Callable[["FitConfig", int | None, str], dict[str, Any]]] = {
    "best": _best,
    "paper": _paper,
    "quick": _quick,
}
