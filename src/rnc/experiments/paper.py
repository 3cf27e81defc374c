"""reproduce: trains the runs of a result of the paper, and writes its table."""

import dataclasses
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from rnc.analyses.maps import check_map_method
from rnc.config import Preset
from rnc.data.table import Table
from rnc.experiments.batch_size import batch_size
from rnc.experiments.data import Data
from rnc.experiments.plan import MakePlan, Plan, Row, Setting, base_config, check_line_fields
from rnc.experiments.recipe import recipe
from rnc.experiments.results import RESULTS
from rnc.experiments.run import Say, chosen_data, run_plan
from rnc.experiments.store import Store
from rnc.experiments.tuning import Tuning, tuned_plan
from rnc.experiments.write import table
from rnc.files import write_text
from rnc.run.folder import DoesNotApply
from rnc.training.record import ShowRecord

EVERY_RESULT = "all"
STUDIES: dict[str, MakePlan] = {"recipe": recipe, "batch-size": batch_size}
"""Our own studies, which are not in the paper."""
OWN_PRESETS = ("recipe",)
"""Studies whose lines choose their presets themselves."""
SEEDS: dict[str, int] = {"best": 3, "paper": 3, "quick": 1}
STD_SEEDS: dict[str, int] = {"best": 5, "paper": 5, "quick": 3}
"""Seeds of `std`, since a standard deviation needs more of them."""


def reproduce(
    name: str,
    data: Table | Data | str,
    out: str | Path,
    *,
    seeds: int | None = None,
    preset: Preset = "quick",
    epochs: int | None = None,
    fit: Mapping[str, Any] | None = None,
    end2end_lr: float | None = None,
    methods: Sequence[str] = (),
    tune: Tuning | None = None,
    train: bool = True,
    map_method: str | None = None,
    command: str = "",
    show: ShowRecord = lambda record: None,
    track: Sequence[str] = (),
    say: Say = print,
) -> list[Row]:
    """The rows of a result of the paper. Trains only runs that are missing below `out`.

    Writes OUT/NAME.csv, OUT/NAME.md, OUT/report.md with all results so far and, if the result has a
    picture, OUT/NAME.png and OUT/NAME.svg (extra: figures). With "all", results that do not apply
    to the data are left out, and `say` gets the reason.

    Args:
        name: a key of RESULTS, or "all" of them; or one of our own studies, "recipe" or
            "batch-size".
        data: a table, `Data`, or "digits" for the demo.
        out: the folder of runs, encoders and tables.
        seeds: number of seeds; by default 3, and 5 for std (preset quick: 1 and 3).
        preset: best: our recipe; paper: the paper's epochs and optimizer; quick: a first look. The
            lines of "recipe" choose theirs.
        epochs: of encoders and end-to-end training; those of heads and fine-tuning change in
            proportion.
        fit: further fields of FitConfig, for all runs that use them.
        end2end_lr: learning rate of end-to-end training, if it differs from that of encoders.
        methods: which methods of the table to train; all by default.
        tune: first choose rate, weight decay and temperature of each method on validation, from the
            paper's grid. Fields in `fit` are not tuned. OUT/NAME-tuning.csv has all trials.
        train: whether to train missing runs; if not, the table only has finished runs.
        map_method: pca, tsne or umap, for the maps of "spurious" and "maps"; by default umap if it
            is installed, else tsne.
        command: what the user typed, for the reports of the runs.
        show: takes the record of every epoch that is trained.
        track: names of trackers that also get the records of each run.
        say: takes lines of text: cost, progress, the table.

    >>> reproduce("mian", "digits", "out")
    Traceback (most recent call last):
    ...
    ValueError: There is no result 'mian'; known are main, sota, correlation, transfer, unseen, \
ablation-positives, ablation-similarity, ablation-scheme, augmentation, two-stage, resnet50, std, \
efficiency, corruptions, reduced-data, spurious, maps, pairs, views, recipe, batch-size, all. Did \
you mean 'main'?
    """
    names = result_names(name)
    check_map_method(map_method)
    chosen = chosen_data(data)
    if tune is not None and chosen.folds:
        raise ValueError(
            "Tuning chooses options on validation rows of one split, which are test rows of other "
            "folds. Tune without folds, or pass the options to a cross-validation."
        )
    if name in OWN_PRESETS and "preset" in (fit or {}):
        raise ValueError(f"The lines of {name} have presets of their own: leave out --preset.")
    given = dict(fit or {}) | ({} if epochs is None else {"epochs": epochs})
    store = Store(Path(out), chosen.source, command, track=track)
    rows: list[Row] = []
    for one in names:
        by = "best" if one in OWN_PRESETS else preset
        count = seeds or (STD_SEEDS if one == "std" else SEEDS)[by]
        base = base_config(chosen, by, None, {**given, "preset": by})
        setting = Setting(chosen, base, count, end2end_lr, given)
        try:
            plan = (RESULTS | STUDIES)[one](setting)
            if name != EVERY_RESULT:
                check_line_fields(plan, given)
            plan = _only(plan, methods)
            if tune is not None:
                how: dict[str, Any] = {"train": train, "show": show, "say": say}
                plan = tuned_plan(one, plan, setting, store, tune, **how)
            plan = plan if train else _finished(plan, store)
        except DoesNotApply as error:
            if name != EVERY_RESULT:
                raise
            say(f"{one} left out: {error}")
            continue
        plan = dataclasses.replace(plan, map_method=map_method)
        result = run_plan(one, plan, setting, store, show=show, say=say)
        _join(store.out)
        say("\n".join([f"{one}: {plan.title}", *table(result)]))
        rows += result
    return rows


def result_names(name: str) -> list[str]:
    """The results that a name stands for; raises for an unknown name."""
    if name == EVERY_RESULT:
        return list(RESULTS)
    known = [*RESULTS, *STUDIES]
    if name not in known:
        close = get_close_matches(name, known, n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        names = ", ".join([*known, EVERY_RESULT])
        raise ValueError(f"There is no result {name!r}; known are {names}.{hint}")
    return [name]


def _only(plan: Plan, methods: Sequence[str]) -> Plan:
    """The plan with only the lines of these methods; all lines if `methods` is empty."""
    known = list(dict.fromkeys(line.method for line in plan.lines))
    if unknown := [method for method in methods if method not in known]:
        raise ValueError(
            f"There is no method {', '.join(map(repr, unknown))} in this table; known are "
            f"{', '.join(map(repr, known))}."
        )
    lines = [line for line in plan.lines if not methods or line.method in methods]
    return dataclasses.replace(plan, lines=lines)


def _finished(plan: Plan, store: Store) -> Plan:
    """The plan with its finished runs only; lines without a finished run are dropped."""
    lines = []
    for line in plan.lines:
        if runs := tuple(run for run in line.runs if store.is_finished(run)):
            lines.append(dataclasses.replace(line, runs=runs))
    if plan.lines and not lines:
        raise DoesNotApply(f"None of its runs is finished below {store.out}. Train them first.")
    return dataclasses.replace(plan, lines=lines)


def _join(out: Path) -> None:
    """Write report.md: the sections of all results so far, in the order of RESULTS and STUDIES."""
    parts = [out / f"{name}.md" for name in (*RESULTS, *STUDIES)]
    texts = [part.read_text(encoding="utf-8") for part in parts if part.exists()]
    write_text(out / "report.md", "# Results of the paper, reproduced\n\n" + "\n".join(texts))
