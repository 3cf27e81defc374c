"""`rnc.fit`: what the command `rnc fit` does, from Python."""

import dataclasses
import inspect
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd  # type: ignore[import-untyped]
from torch import nn

from rnc.config import FitConfig
from rnc.data.datasets.registry import DATASETS
from rnc.data.errors import DataError, DataWarning, did_you_mean
from rnc.data.source import DataSource, stored_side
from rnc.data.sources import ARRAYS, TABLES, is_data_file
from rnc.data.table import Table, read_table
from rnc.methods.objective import PairLoss
from rnc.report import write_report
from rnc.run import fit as run_fit
from rnc.run.folder import RunFolder
from rnc.run.from_weights import stored_pixels, suit_weights
from rnc.run.start import as_before, check_before_data, inherit_encoder, suit_dataset
from rnc.trackers.registry import check_trackers
from rnc.training.partial_rows import unused_words
from rnc.training.record import ShowRecord

_OF_FIT = tuple(field.name for field in dataclasses.fields(FitConfig))
_OF_SOURCE = tuple(
    f.name for f in dataclasses.fields(DataSource) if f.name not in ("source", "dataset")
)
_ONE_OR_MORE = (
    *("target", "feature_columns", "exclude_columns", "subgroup_columns"),
    *("upper_column", "event_column"),
)


def fit(
    source: str | Path | pd.DataFrame | Table,
    config: FitConfig | None = None,
    out: Path | str | None = None,
    *,
    root: Path | str | None = None,
    data: DataSource | None = None,
    name: str | None = None,
    resume: bool = False,
    overwrite: bool = False,
    encoder: str | nn.Module | None = None,
    encoder_from: Path | str | None = None,
    objective: str | PairLoss | None = None,
    show: ShowRecord = lambda record: None,
    track: str | Sequence[str] = (),
    **options: Any,
) -> RunFolder:
    """Train on labelled data, evaluate, and return the finished run folder, as `rnc fit` does.

    `run.model.predict(new)` predicts, `run.scores` has the scores, and `run.answer` sums them up.

    Args:
        source: a file, the name of a dataset (with `root`), a DataFrame, or a Table.
        config: how to train; by default FitConfig(), preset best.
        out: the run folder; must be new or empty unless you resume or overwrite.
        root: the folder of your copy, if `source` is the name of a dataset.
        data: how a Table was read. config.json keeps it, so that `rnc evaluate` can read it again.
        name: name of the run in reports; by default that of the folder.
        resume: continue the run in `out`. The config must be the same, but may have more epochs.
        overwrite: delete the run in `out` first.
        encoder: a name, or a module of the caller's own.
        encoder_from: a run whose trained encoder is used as it is; no encoder is trained.
        objective: a name, or a function from features (n, v, d) and targets (n, t) of all processes
            to the number to minimise.
        show: called with the record of every epoch.
        track: trackers that get the records, too: tensorboard, mlflow, wandb (docs/trackers.md).
        options: every other flag of `rnc fit` by its name: fields of FitConfig, such as
            preset="quick", and of DataSource, such as target="price".
    """
    if out is None:
        raise ValueError("rnc.fit needs out=, the folder for the run, such as out='runs/houses'.")
    track = (track,) if isinstance(track, str) else tuple(track)
    check_trackers(track)
    out, taken = Path(out), None if encoder_from is None else Path(encoder_from)
    for key, value in (("encoder", encoder), ("objective", objective)):
        options |= {key: value} if isinstance(value, str) else {}
    fields, of_data = _sorted_options(options)
    config = dataclasses.replace(config or FitConfig(), **fields)
    where = _source(source, root, of_data)
    given = {*options, *(k for k in _OF_FIT if getattr(config, k) != getattr(FitConfig, k))}
    if taken is not None:
        inherit = as_before if resume else inherit_encoder
        config, where = inherit(config, where, out if resume else taken, given)
    config = suit_dataset(config, where.dataset, given)
    config = suit_weights(config, given, out if resume else None)
    own = isinstance(encoder, nn.Module)
    check_before_data(config, out, resume=resume, overwrite=overwrite, encoder_from=taken, own=own)
    table, kept = (source, data) if isinstance(source, Table) else _read(source, where, config)
    trained = dataclasses.replace(config, objective="own") if callable(objective) else config
    for note in (*table.notes, *unused_words(table, trained)):
        warnings.warn(note, DataWarning, stacklevel=2)
    run = run_fit.fit(
        table,
        config,
        out,
        data=kept,
        name=name,
        resume=resume,
        overwrite=overwrite,
        encoder=encoder if isinstance(encoder, nn.Module) else None,
        encoder_from=taken,
        objective=objective if callable(objective) else None,
        show=show,
        track=track,
    )
    write_report([out])
    return run


def _sorted_options(options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The options that are fields of FitConfig, and those of DataSource.

    A repeatable flag has no plural s: the option `feature_column` is the field `feature_columns`.
    """
    fields: dict[str, Any] = {}
    of_data: dict[str, Any] = {}
    for given, value in options.items():
        known = (*_OF_FIT, *_OF_SOURCE)
        name = f"{given}s" if given not in known and f"{given}s" in _ONE_OR_MORE else given
        if name not in known:
            own = [key for key in inspect.signature(fit).parameters if key != "options"]
            hint = did_you_mean(given, [*own, *known])
            if given in ("weight", "sample_weight", "sample_weights"):
                hint = " What rows count is a column of the data: weight_column='NAME'."
            raise TypeError(
                f"rnc.fit has no option {given!r}.{hint} Its "
                "options are the flags of `rnc fit`: fields of FitConfig and DataSource."
            )
        if name in _ONE_OR_MORE and value is not None:
            value = (value,) if isinstance(value, str) else tuple(value)
        (fields if name in _OF_FIT else of_data)[name] = value
    return fields, of_data


def _source(source: Any, root: Path | str | None, fields: dict[str, Any]) -> DataSource:
    """Where the data are and how to read them; its path is "" for a Table or a DataFrame."""
    if isinstance(fields.get("images"), Path):
        fields["images"] = str(fields["images"])
    if isinstance(source, Table) and fields:
        raise DataError(
            f"A Table has been read already: {', '.join(fields)} cannot change it. Give that to "
            "read_table, or give rnc.fit the file."
        )
    if isinstance(source, Table | pd.DataFrame):
        return DataSource("", **fields)
    if is_data_file(source):
        return DataSource(str(source), **fields)
    name = str(source).strip().lower().replace("_", "-")
    if name not in DATASETS:
        raise DataError(
            f"{source} is neither a file of type {', '.join(TABLES + ARRAYS)} nor a dataset "
            f"({', '.join(DATASETS)}).{did_you_mean(name, DATASETS)}"
        )
    if root is None:
        raise DataError(f"{name} is a dataset: say with root= where your copy is.")
    options = dict(fields.pop("dataset_options", {}))
    options |= {"skip_bad": True} if fields.pop("skip_bad", False) else {}
    share = fields.pop("calibration_share", 0.0)
    if fields:
        raise DataError(
            f"{', '.join(fields)}: for files; {name} has its own columns. Leave it out."
        )
    return DataSource(str(root), dataset=name, dataset_options=options, calibration_share=share)


def _read(
    source: str | Path | pd.DataFrame, where: DataSource, config: FitConfig
) -> tuple[Table, DataSource | None]:
    """The table, and the source that config.json keeps: None for a DataFrame."""
    if not isinstance(source, pd.DataFrame):
        table = where.read(config.image_size, **stored_pixels(config, where.fit))
        return table, where.decided(table)
    fields = {k: v for k, v in vars(where).items() if k in _OF_SOURCE and k != "dataset_options"}
    decoding = stored_pixels(config, where.fit)
    side = decoding.pop("side", None) or stored_side(config.image_size, where.fit)
    return read_table(source, **fields, image_size=side, **decoding), None
