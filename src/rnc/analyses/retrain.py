"""Analyses that train: on less data, and on other data from the run's encoder."""

import dataclasses
import json
import shutil
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from rnc.analyses.analysis import AnalysisOptions, ShowProgress
from rnc.config import FitConfig
from rnc.data.errors import DataError
from rnc.data.sources import ARRAYS, existing, read_frame
from rnc.data.splits import holds_splits, make_split
from rnc.data.table import Table
from rnc.files import write_json
from rnc.metrics import error_measure
from rnc.model import Regressor, without_head
from rnc.run.evaluate import evaluate_run
from rnc.run.folder import AnalysisResult, DoesNotApply, RunFolder
from rnc.training.probe import solve_head
from rnc.training.recipes import build_regressor, train

_SPLIT = "split"

# ----------------------------------------------------------------------------------- reduced


def reduced(run: RunFolder, options: AnalysisOptions) -> AnalysisResult:
    """Scores after training on nested shares of the training rows, by the run's scheme and end2end.

    Validation and test rows stay. The whole by the run's scheme and seed is the run itself. What
    is finished stays in analyses/reduced and is not trained again.
    """
    _check(run, options)
    table, fit = run.table, run.fit
    plan = [
        (scheme, share, seed)
        for scheme in dict.fromkeys([fit.scheme, "end2end"])
        for share in sorted(set(options.shares), reverse=True)
        for seed in range(fit.seed, fit.seed + options.seeds)
    ]
    rows: list[dict[str, Any]] = []
    for scheme, share, seed in plan:
        less = with_share(table, share, seed)
        n = len(less.rows("train"))
        options.show(len(rows), len(plan), f"{scheme} on {n} rows")
        config = dataclasses.replace(
            fit, scheme=scheme, seed=seed, batch_size=min(fit.batch_size, n)
        )
        if (scheme, share, seed) == (fit.scheme, 1.0, fit.seed):
            scores = run.scores["test"]
        else:
            folder = run.path / "analyses" / "reduced" / f"{scheme}-{n}-{seed}"
            scores = _finished(less, config, folder, options.show)
        rows.append({"scheme": scheme, "share": share, "n": n, "seed": seed, **_two(scores)})
    return AnalysisResult({"rows": rows, "mean": _over_seeds(rows)})


def _over_seeds(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The mean absolute error of every scheme and size over the seeds."""
    errors: dict[tuple[str, int], list[float]] = {}
    for row in rows:
        errors.setdefault((row["scheme"], row["n"]), []).append(row["mae"])
    return [{"scheme": s, "n": n, "mae": fmean(maes)} for (s, n), maes in errors.items()]


def with_share(table: Table, share: float, seed: int = 0) -> Table:
    """The table with a share of its training rows; a smaller share is part of a larger one.

    The others stay in the arrays, which may be mapped from disk, but are in no split. Columns keep
    the scaling that was learned from all training rows.

    Args:
        table: split data.
        share: above 0, up to 1.
        seed: of the order in which rows are taken.
    """
    rows = table.rows("train")
    n = max(1, round(share * len(rows)))
    left_out = np.random.default_rng(seed).permutation(rows)[n:]
    split = table.split.copy()
    split[left_out] = ""
    return dataclasses.replace(table, split=split)


def _finished(table: Table, config: FitConfig, folder: Path, show: ShowProgress) -> dict[str, Any]:
    """Scores of a training that an earlier call has finished, or that this one does."""
    path = folder / "scores.json"
    if not path.exists():
        model = build_regressor(table, config)
        _train(model, table, config, show, folder=folder)
        write_json(path, evaluate_run(model, table, config).scores)
        shutil.rmtree(folder / "checkpoint", ignore_errors=True)
    scores: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))["test"]
    return scores


def _check(run: RunFolder, options: AnalysisOptions) -> None:
    _check_encoder(run)
    bad = [share for share in options.shares if not 0 < share <= 1]
    if bad or not options.shares or options.seeds < 1:
        raise ValueError(
            "reduced needs shares above 0 and up to 1, and at least one seed; got "
            f"{', '.join(map(str, options.shares)) or 'no shares'} and {options.seeds}."
        )


def _two(scores: dict[str, Any]) -> dict[str, float | None]:
    return {"mae": scores["mae"], "r2": scores.get("r2")}


# ---------------------------------------------------------------------------------- transfer


def transfer(run: RunFolder, options: AnalysisOptions) -> AnalysisResult:
    """Scores on another table of the run's encoder, frozen and fine-tuned, and of a new one.

    probe: a head solved on the frozen encoder. finetune: then all weights, as scheme finetune does.
    scratch: the same encoder from its first weights, end to end, for all epochs.
    """
    if options.data is None:
        raise DoesNotApply("transfer needs the table to transfer to: --data OTHER.csv.")
    _check_encoder(run)
    table = other_table(run, options)
    config = run.fit.resolve()
    # No encoder is trained by its objective here, so one of the caller's own is not missed.
    objective = "rnc" if config.objective == "own" else config.objective
    size = min(config.batch_size, len(table.rows("train")))
    config = dataclasses.replace(config, objective=objective, batch_size=size)
    rows = []

    def score(scheme: str, model: Regressor) -> None:
        scores = evaluate_run(model, table, config).scores["test"]
        rows.append({"scheme": scheme, **_two(scores), "spearman": scores.get("spearman")})

    model = _adopted(run, table, config)
    options.show(0, 1, "probe")
    _solve(model, table, config)
    score("probe", model)
    finetune = dataclasses.replace(config, scheme="finetune")
    weights = without_head(model.state_dict())
    _train(model, table, finetune, options.show, "finetune", encoder_weights=weights)
    score("finetune", model)
    end2end = dataclasses.replace(config, scheme="end2end")
    model = build_regressor(table, end2end)
    _train(model, table, end2end, options.show, "scratch")
    score("scratch", model)
    return AnalysisResult({"data": str(options.data), "rows": rows})


def other_table(run: RunFolder, options: AnalysisOptions) -> Table:
    """The table to transfer to, prepared as the run's.

    A column "split" of train, val and test splits it; without one, a seeded split is made, that
    keeps the run's groups together where the table has their column.
    """
    assert options.data is not None
    columns, has_split = _columns(options.data)
    before = run.source
    group = before.group_column if before.group_column in columns else None
    source = dataclasses.replace(
        before,
        source=str(options.data),
        target=options.target or before.target,
        images=before.images if options.images is None else str(options.images),
        split_column=_SPLIT if has_split else "none",
        group_column=None,
        subgroup_columns=() if group is None else (group,),
    )
    model = run.config["model"]
    table = source.read(run.fit.image_size, model.get("preprocessing") or {})
    if table.kind != model["kind"]:
        raise DataError(
            f"{run.path} was fitted on data of kind {model['kind']!r}; {options.data} is of kind "
            f"{table.kind!r}."
        )
    if has_split:
        return table
    together = None if group is None else table.subgroup[group]
    return dataclasses.replace(table, split=make_split(table.y, table.names, group=together))


def _columns(source: Path) -> tuple[list[str], bool]:
    """Names of the columns of a table, and whether one of them is a split."""
    path = existing(source)
    if path.suffix.lower() in ARRAYS:
        with np.load(path, allow_pickle=False) as archive:
            return list(archive.files), _SPLIT in archive.files
    frame = read_frame(path)
    return list(frame), _SPLIT in frame and holds_splits(frame[_SPLIT])


def _adopted(run: RunFolder, table: Table, config: FitConfig) -> Regressor:
    """A model for the table with the run's encoder and a new head."""
    model = build_regressor(table, config)
    before = run.model.config
    if model.config.input_shape != before.input_shape:
        raise DataError(
            f"The encoder of {run.path} sees samples of shape {before.input_shape}; those of the "
            f"other table have {model.config.input_shape}. Give it data of the same shape."
        )
    model.load_state_dict(model.state_dict() | without_head(run.model.state_dict()))
    return model.to(run.model.input_shift.device)


def _solve(model: Regressor, table: Table, config: FitConfig) -> None:
    """Fit the head on the frozen encoder."""
    device = model.input_shift.device

    def of(split: str) -> tuple[torch.Tensor, torch.Tensor]:
        rows: NDArray[np.int64] = table.rows(split)
        features = torch.from_numpy(model.embed(table.x[rows]))
        return features.to(device), torch.from_numpy(table.y[rows]).to(device)

    measure = error_measure(config.distance)
    solve_head(model.head, *of("train"), *of("val"), measure=measure)


# ------------------------------------------------------------------------------------ shared


def _check_encoder(run: RunFolder) -> None:
    if run.config["model"]["encoder"] == "own":
        raise DoesNotApply(
            f"{run.path} was fitted with an encoder of your own, which cannot be built anew. "
            "Train it in your own code."
        )


def _train(
    model: Regressor,
    table: Table,
    config: FitConfig,
    show: ShowProgress,
    what: str | None = None,
    *,
    folder: Path | None = None,
    encoder_weights: dict[str, torch.Tensor] | None = None,
) -> None:
    what = what or f"{config.scheme} on {len(table.rows('train'))} rows:"
    for record in train(model, table, config, folder, encoder_weights=encoder_weights):
        show(record.epoch, record.epochs, f"{what} {record.stage}")
