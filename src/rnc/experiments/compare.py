"""All methods on the same data, encoder, augmentation, epochs and rate, as the paper's Table 2.

    rnc compare

trains on the digits of the demo, which are turned by known angles: the angle is the target. Every
method leaves a run folder per seed, and all of them together comparison.csv and comparison.md.
"""

import csv
import dataclasses
import io
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median, stdev
from typing import Any

import torch

from rnc.config import FitConfig
from rnc.data.demo import digits_table
from rnc.data.table import Table
from rnc.files import write_text
from rnc.methods.objective import PairLoss
from rnc.run.fit import fit_run
from rnc.training.loop import Record

SIDE = 16
PROBE = "Representation learning (linear probing)"
FINETUNE = "Representation learning (fine-tuning)"
REGRESSION = "Regression learning (end to end)"
GROUPS = (PROBE, FINETUNE, REGRESSION)
SCORES = ("mae", "r2", "spearman")


@dataclass(frozen=True)
class Method:
    """A row of the table: what it is called, and what it changes in the common config."""

    name: str
    changes: dict[str, Any]
    objective: PairLoss | None = None
    """A loss of your own: features (n, v, d) and targets (n, t) -> a number."""

    @property
    def folder(self) -> str:
        """Its name as part of a path."""
        return "".join(c if c.isalnum() else "-" for c in self.name.lower())


METHODS = (
    Method("SimCLR", {"objective": "simclr"}),
    Method("DINO", {"objective": "dino"}),
    Method("SupCon", {"objective": "supcon"}),
    Method("RnC", {"objective": "rnc"}),
    Method("RnC + C-Mixup", {"objective": "rnc", "c_mixup": True}),
    Method("L1", {"scheme": "end2end"}),
    Method("LDS + FDS", {"scheme": "end2end", "lds": True, "regularizer": "fds"}),
    Method("L2CS-Net", {"scheme": "end2end", "head": "l2cs"}),
    Method("LDE", {"scheme": "end2end", "head": "lde"}),
    Method("RankSim", {"scheme": "end2end", "regularizer": "ranksim"}),
    Method("Ordinal Entropy", {"scheme": "end2end", "regularizer": "ordinal-entropy"}),
    Method("C-Mixup", {"scheme": "end2end", "c_mixup": True}),
    Method("L1, two-stage", {"scheme": "two-stage"}),
)


@dataclass(frozen=True)
class Result:
    """What one method came to with one seed."""

    group: str
    method: str
    seed: int
    mae: float
    r2: float
    spearman: float
    seconds: float
    """Per epoch of its first stage, of its encoder if it is fine-tuned; the median."""


def compare_methods(
    table: Table,
    config: FitConfig,
    out: Path,
    *,
    seeds: Sequence[int],
    methods: Sequence[Method] = METHODS,
    show: Callable[[Record], None] = lambda record: None,
) -> list[Result]:
    """Train every method with every seed; a method of scheme probe is then also fine-tuned.

    Args:
        table: labelled, split data.
        config: what the methods have in common; scheme probe.
        out: folder for one run per method and seed; runs of an earlier call are replaced.
        seeds: of weights, order and augmentation.
        methods: what to compare.
        show: takes every record.
    """
    results = []
    for method in methods:
        for seed in seeds:
            chosen = dataclasses.replace(config, seed=seed, **method.changes)
            folder = out / f"{method.folder}-{seed}"
            first = _run(method, table, chosen, folder, show)
            results.append(first)
            if first.group == PROBE:
                further = dataclasses.replace(chosen, scheme="finetune")
                tuned = out / f"{method.folder}-finetuned-{seed}"
                second = _run(method, table, further, tuned, show, encoder_from=folder)
                results.append(dataclasses.replace(second, seconds=first.seconds))
    return results


def _run(
    method: Method,
    table: Table,
    config: FitConfig,
    folder: Path,
    show: Callable[[Record], None],
    encoder_from: Path | None = None,
) -> Result:
    """Train one method with one seed, or go on from the encoder of another run."""
    group = {"probe": PROBE, "finetune": FINETUNE}.get(config.scheme, REGRESSION)
    records = []
    for record in fit_run(
        table,
        config,
        folder,
        name=method.name + ", fine-tuned" * (group == FINETUNE),
        overwrite=True,
        encoder_from=encoder_from,
        objective=method.objective,
    ):
        records.append(record)
        show(record)
    scores = json.loads((folder / "scores.json").read_text(encoding="utf-8"))["test"]
    return _result(group, method.name, config.seed, scores, records)


def _result(
    group: str, method: str, seed: int, scores: dict[str, float], records: Sequence[Record]
) -> Result:
    seconds = [record.seconds for record in records if record.stage == records[0].stage]
    picked = {name: scores[name] for name in SCORES}
    return Result(group, method, seed, seconds=median(seconds), **picked)


# -------------------------------------------------------------------------------- the table


def comparison_table(results: Iterable[Result]) -> str:
    """Markdown: the groups of the paper's table, each sorted by error; mean ± deviation."""
    results = list(results)
    lines = ["| method | test MAE | R² | Spearman | seconds per epoch |", "|---|---|---|---|---|"]
    for group in GROUPS:
        by_method: dict[str, list[Result]] = {}
        for result in results:
            if result.group == group:
                by_method.setdefault(result.method, []).append(result)
        if by_method:
            lines.append(f"| *{group}* | | | | |")
        for name, found in sorted(by_method.items(), key=lambda pair: _mean(pair[1], "mae")):
            cells = [_cell([getattr(result, score) for result in found]) for score in SCORES]
            lines.append(f"| {name} | {' | '.join(cells)} | {_mean(found, 'seconds'):.2f} |")
    return "\n".join(lines) + "\n"


def _mean(results: Sequence[Result], name: str) -> float:
    return mean(float(getattr(result, name)) for result in results)


def _cell(values: Sequence[float]) -> str:
    spread = f" ± {stdev(values):.3f}" if len(values) > 1 else ""
    return f"{mean(values):.3f}{spread}"


# --------------------------------------------------------------------------------- the digits


def digits_config(epochs: int) -> FitConfig:
    """What all methods have in common on the digits: the demo's, with crops and jitter."""
    return FitConfig(
        preset="quick",
        encoder="small-cnn",
        epochs=epochs,
        head_epochs=epochs,
        batch_size=64,
        lr=2e-3,
        image_size=SIDE,
        flip=False,  # it would turn the angle
        prototypes=256,
    )


def run_comparison(
    out: Path,
    *,
    seeds: int,
    epochs: int,
    show: Callable[[Record], None] = lambda record: None,
    methods: Sequence[Method] = METHODS,
) -> str:
    """Compare all methods on the digits of the demo; the table, as Markdown.

    Args:
        out: folder for the runs, comparison.csv and comparison.md.
        seeds: how many, from 0.
        epochs: of the encoder, of end-to-end training and of fine-tuning.
        show: takes every record.
        methods: what to compare.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # for arrays this small: as fast, and the same digits everywhere
    try:
        results = compare_methods(
            digits_table(side=SIDE),
            digits_config(epochs),
            out,
            seeds=range(seeds),
            methods=methods,
            show=show,
        )
    finally:
        torch.set_num_threads(threads)
    _write_csv(out / "comparison.csv", results)
    write_text(out / "comparison.md", table := comparison_table(results))
    return table


def _write_csv(path: Path, results: Sequence[Result]) -> None:
    text = io.StringIO()
    names = [field.name for field in dataclasses.fields(Result)]
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(dataclasses.asdict(result) for result in results)
    write_text(path, text.getvalue())
