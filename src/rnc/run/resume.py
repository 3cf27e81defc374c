"""What a resumed run takes from its folder: the data must be the same, and so are the defaults.

config.json has, beside the options as they were given, the values that the version which started
the run filled in ("resolved", "rates") and hashes of its data ("fingerprint").
"""

from dataclasses import replace
from typing import Any

import numpy as np

from rnc.config import FitConfig
from rnc.data.errors import DataError
from rnc.data.table import Table
from rnc.run.folder import RunFolder

_BY_LENGTH = ("epochs", "head_epochs", "warm_up")
"""Fields that a preset fills by the number of epochs: a run that goes on to more has others."""


def check_same_data(run: RunFolder, table: Table) -> None:
    """Raise unless a table is what the run was started on."""
    run.check_data(table)
    targets = run.train_targets  # all that an older version kept
    if targets is not None and not np.array_equal(targets, table.y[table.rows("train")]):
        raise DataError(
            f"The data of {run.path} have changed since it was started: other training targets. "
            "Fit again, with another --out."
        )


def filled_in(config: FitConfig, table: Table, resumed: RunFolder | None = None) -> dict[str, Any]:
    """Entries of config.json: what a config stands for on these data in this version.

    Learning rates of a resumed run stay what they were: `as_started` has set one for all.
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
    """The config with what the version that started the run filled in, not what this one would."""
    stored = run.config.get("resolved")
    if stored is None:  # an older version, whose defaults were as they are now
        return config
    now = config.resolve(table.sizes, table.kind)
    is_longer = (config.epochs, config.head_epochs) != (run.fit.epochs, run.fit.head_epochs)
    left = [name for name, value in vars(config).items() if value is None]
    started = {name: stored[name] for name in left if name in stored}
    if is_longer:
        started |= {name: getattr(now, name) for name in _BY_LENGTH}
    if config.encoder == "auto" and (encoder := run.config["model"]["encoder"]) != "own":
        started["encoder"] = encoder
    config = replace(config, **started)
    rates = run.config.get("rates", _rates(config))
    if config.scheme == "probe":
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
    """Learning rates of an encoder that the objective trains, and of a head's loss."""
    return {"contrast": config.rate(contrast=True), "head": config.rate(contrast=False)}
