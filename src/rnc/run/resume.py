"""Check that a resumed run gets the same data, and keep the defaults that it was started with.

Beside the given options, config.json has the values that the version which started the run filled
in ("resolved", "rates"), and hashes of the data ("fingerprint").
"""

from dataclasses import replace
from typing import Any

import numpy as np

from rnc.config import FitConfig
from rnc.data.errors import DataError
from rnc.data.table import Table
from rnc.run.folder import RunFolder

_BY_LENGTH = ("epochs", "head_epochs", "warm_up")
"""Fields that a preset fills in by the number of epochs. More epochs change them."""


def check_same_data(run: RunFolder, table: Table) -> None:
    """Raise unless a table has the data that the run was started on."""
    run.check_data(table)
    targets = run.train_targets  # an older version kept nothing else
    if targets is not None and not np.array_equal(targets, table.y[table.rows("train")]):
        raise DataError(
            f"The data of {run.path} have changed since it was started: other training targets. "
            "Fit again, with another --out."
        )


def filled_in(config: FitConfig, table: Table, resumed: RunFolder | None = None) -> dict[str, Any]:
    """Entries of config.json: the options that this version fills in for these data.

    A resumed run keeps its entries for learning rates: `as_started` may have changed config.lr.
    """
    resolved = config.resolve(table.sizes, table.kind)
    entries = {"resolved": resolved.to_json(), "rates": _rates(resolved)}
    if table.sizes.encoder != table.sizes.labelled:
        entries["sizes"] = table.sizes._asdict()
    if resumed is not None and (before := resumed.config.get("resolved")):
        entries["resolved"]["lr"] = before["lr"]
        entries["rates"] = resumed.config.get("rates", entries["rates"])
    return entries


def as_started(run: RunFolder, config: FitConfig, table: Table) -> FitConfig:
    """The config with the values that were filled in when the run was started."""
    stored = run.config.get("resolved")
    if stored is None:  # an older version, with the same defaults as now
        return config
    now = config.resolve(table.sizes, table.kind)
    is_longer = (config.epochs, config.head_epochs) != (run.fit.epochs, run.fit.head_epochs)
    left = [name for name, value in vars(config).items() if value is None]
    started = {name: stored[name] for name in left if name in stored}
    if is_longer:
        started |= {name: getattr(now, name) for name in _BY_LENGTH}
    if started.get("views", 2) is None and now.views is not None:
        started["views"] = 2  # what None meant to preset best where it fills in a number now
    if config.encoder == "auto" and (encoder := run.config["model"]["encoder"]) != "own":
        started["encoder"] = encoder
    config = replace(config, **started)
    rates = run.config.get("rates", _rates(config))
    if config.scheme == "probe" or rates["contrast"] == rates["head"]:  # AdamW has one rate
        return replace(config, lr=rates["contrast"])
    if config.scheme in ("end2end", "two-stage", "regularize"):
        return replace(config, lr=rates["head"])
    if rates != _rates(config):
        raise ValueError(
            f"{run.path} was started with learning rates {rates}; this version takes "
            f"{_rates(config)}. Continue it with the version that started it."
        )
    return config


def _rates(config: FitConfig) -> dict[str, float]:
    """Learning rates: of an encoder that the objective trains, and of training by a head's loss."""
    return {"contrast": config.rate(contrast=True), "head": config.rate(contrast=False)}
