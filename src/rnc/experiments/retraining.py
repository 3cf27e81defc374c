"""Analyses that train: on fewer rows, and on other data from the run's encoder.

Each plans a few runs in a store below the run folder, so finished runs are not trained again. Call
them with `rnc evaluate RUN --with NAME`, or from Python:

    analyse("runs/age", "reduced", AnalysisOptions(seeds=3), RETRAINING)
"""

import dataclasses
from pathlib import Path
from statistics import fmean
from typing import Any

from rnc.analyses.analysis import Analysis, AnalysisOptions
from rnc.config import FitConfig
from rnc.data.errors import DataError
from rnc.data.table import Table
from rnc.experiments.data import read_other
from rnc.experiments.plan import Finished, PlannedRun, canonical
from rnc.experiments.store import Store, run_key
from rnc.experiments.subsets import with_share
from rnc.heads.registry import HEADS
from rnc.model import ModelConfig
from rnc.run.folder import ANALYSES_FOLDER, AnalysisResult, DoesNotApply, RunFolder
from rnc.training.recipes import build_regressor
from rnc.training.record import Record

# ----------------------------------------------------------------------------------- reduced


def reduced(run: RunFolder, options: AnalysisOptions) -> AnalysisResult:
    """Scores after training on nested shares of the training rows, by the run's scheme and end2end.

    Validation and test rows stay the same. The run itself is taken as the training on all rows with
    its scheme and seed.
    """
    _check_encoder(run)
    _check_shares(options)
    fit = run.fit
    planned = [
        (share, _planned(with_share(run.table, share, seed), fit, scheme=scheme, seed=seed))
        for scheme in dict.fromkeys([fit.scheme, "end2end"])
        for share in sorted(set(options.shares), reverse=True)
        for seed in range(fit.seed, fit.seed + options.seeds)
    ]
    known = {run_key(_planned(run.table, fit)): run.path}
    store = Store(_folder(run, "reduced"), known=known)
    rows: list[dict[str, Any]] = []
    for share, one in planned:
        n = len(one.table.rows("train"))
        options.show(len(rows), len(planned), f"{one.config.scheme} on {n} rows")
        scores = _finish(one, store, options, f"{one.config.scheme} on {n} rows:")
        rows.append(
            {
                "scheme": one.config.scheme,
                "share": share,
                "n": n,
                "seed": one.config.seed,
                "mae": scores["mae"],
                "r2": scores.get("r2"),
            }
        )
    store.drop_weights()
    return AnalysisResult({"rows": rows, "mean": _over_seeds(rows)})


def _check_shares(options: AnalysisOptions) -> None:
    bad = [share for share in options.shares if not 0 < share <= 1]
    if bad or not options.shares or options.seeds < 1:
        raise ValueError(
            "reduced needs shares above 0 and up to 1, and at least one seed; got "
            f"{', '.join(map(str, options.shares)) or 'no shares'} and {options.seeds}."
        )


def _over_seeds(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The mean absolute error of every scheme and size, averaged over the seeds."""
    errors: dict[tuple[str, int], list[float]] = {}
    for row in rows:
        errors.setdefault((row["scheme"], row["n"]), []).append(row["mae"])
    return [{"scheme": s, "n": n, "mae": fmean(maes)} for (s, n), maes in errors.items()]


# ---------------------------------------------------------------------------------- transfer


def transfer(run: RunFolder, options: AnalysisOptions) -> AnalysisResult:
    """Scores on another table: of the run's encoder, frozen and fine-tuned, and of a new encoder.

    probe: a head solved on the frozen encoder. finetune: after that, all weights are trained, as in
    scheme finetune. scratch: the same architecture from initial weights, trained end to end for all
    epochs.
    """
    if options.data is None:
        raise DoesNotApply("transfer needs the table to transfer to: --data OTHER.csv.")
    _check_encoder(run)
    table, fit = other_table(run, options), _without_own(run.fit)
    _check_shape(run, table, fit)
    planned = {
        "probe": _planned(table, _frozen(fit), start=run.path),
        "finetune": _planned(table, fit, start=run.path, scheme="finetune"),
        "scratch": _planned(table, fit, scheme="end2end"),
    }
    store = Store(_folder(run, "transfer"))
    rows: list[dict[str, Any]] = []
    for name, one in planned.items():
        options.show(len(rows), len(planned), name)
        scores = _finish(one, store, options, name)
        picked = {key: scores.get(key) for key in ("r2", "spearman")}
        rows.append({"scheme": name, "mae": scores["mae"], **picked})
    store.drop_weights()
    return AnalysisResult({"data": str(options.data), "rows": rows})


def other_table(run: RunFolder, options: AnalysisOptions) -> Table:
    """The table to transfer to, with the preprocessing of the run; see `read_other`."""
    assert options.data is not None
    source = dataclasses.replace(
        run.source,
        source=str(options.data),
        target=options.target or run.source.target,
        images=run.source.images if options.images is None else str(options.images),
        split_column=None,
    )
    model = run.config["model"]
    table = read_other(source, run.fit.image_size, model.get("preprocessing") or {})
    if table.kind != model["kind"]:
        raise DataError(
            f"{run.path} was fitted on data of kind {model['kind']!r}; {options.data} is of kind "
            f"{table.kind!r}."
        )
    return table


def _without_own(config: FitConfig) -> FitConfig:
    """The config of the run, with rnc in place of an own objective: neither trains here."""
    objective = "rnc" if config.objective == "own" else config.objective
    return dataclasses.replace(config, objective=objective)


def _frozen(config: FitConfig) -> FitConfig:
    """The config that solves a head on a frozen encoder, without options that change features."""
    return dataclasses.replace(
        config,
        scheme="probe",
        head_solver="exact",
        lds=False,
        c_mixup=False,
        regularizer="none",
        regularizer_weight=None,
        original=config.original and "original" in HEADS[config.head].options,
    )


def _check_shape(run: RunFolder, table: Table, config: FitConfig) -> None:
    there = ModelConfig(**run.config["model"]).input_shape
    here = build_regressor(table, config).config.input_shape
    if tuple(here) != tuple(there):
        raise DataError(
            f"The encoder of {run.path} sees samples of shape {there}; those of the other table "
            f"have {here}. Give it data of the same shape."
        )


# ------------------------------------------------------------------------------------ shared

RETRAINING: dict[str, Analysis] = {"reduced": reduced, "transfer": transfer}
"""Analyses that train models, so they take as long as training."""


def _planned(
    table: Table, config: FitConfig, start: Path | None = None, **changes: Any
) -> PlannedRun:
    config = dataclasses.replace(config, **changes)
    return PlannedRun(table, canonical(config, table), start)


def _folder(run: RunFolder, name: str) -> Path:
    return run.path / ANALYSES_FOLDER / name


def _finish(
    planned: PlannedRun, store: Store, options: AnalysisOptions, label: str
) -> dict[str, Any]:
    """The test scores of a planned run."""

    def show(record: Record) -> None:
        options.show(record.epoch, record.epochs, f"{label} {record.stage}")

    scores: dict[str, Any] = Finished(planned, store.finish(planned, show)).run.scores["test"]
    return scores


def _check_encoder(run: RunFolder) -> None:
    if run.config["model"]["encoder"] == "own":
        raise DoesNotApply(
            f"{run.path} was fitted with an encoder of your own, which cannot be built anew. "
            "Train it in your own code."
        )
