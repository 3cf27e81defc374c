"""reproduce: from the name of a result to its table, with as little training as there is left."""

import dataclasses
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import torch

from rnc.analyses.registry import analyse
from rnc.config import FitConfig, Preset
from rnc.data.table import Table
from rnc.experiments.data import DIGITS, Data
from rnc.experiments.plan import Finished, Job, Line, Plan, Row, Setting
from rnc.experiments.published import Key, Published, published
from rnc.experiments.results import ALL, RESULTS
from rnc.experiments.store import Cost, Show, Store, cost_of, epoch_size
from rnc.experiments.write import section, table, write_csv
from rnc.files import write_text
from rnc.report import write_report
from rnc.run.folder import DoesNotApply, RunFolder
from rnc.training.loop import Record

Say = Callable[[str], None]

SEEDS: dict[str, int] = {"paper": 3, "quick": 1}
STD_SEEDS: dict[str, int] = {"paper": 5, "quick": 3}
"""A spread needs more."""


def _quiet(record: Record) -> None:
    """Show nothing."""


def reproduce(
    name: str,
    data: Table | Data | str,
    out: str | Path,
    *,
    seeds: int | None = None,
    preset: Preset = "quick",
    epochs: int | None = None,
    fit: dict[str, Any] | None = None,
    end2end_lr: float | None = None,
    show: Show = _quiet,
    say: Say = print,
) -> list[Row]:
    """The rows of a result of the paper, from runs below `out`, of which only missing ones train.

    Writes OUT/NAME.csv and OUT/NAME.md, and OUT/report.md of all results so far. For all results,
    those that do not apply to the data are left out, and `say` is told why.

    Args:
        name: a key of RESULTS, or "all".
        data: a table, `Data`, or "digits" for the demo.
        out: the folder of runs, encoders and tables.
        seeds: how often to train; by default 3, of std 5 (preset quick: 1, and 3).
        preset: paper: its epochs and optimizer; quick: a first look.
        epochs: of encoders and end-to-end training; heads and fine-tuning change with it.
        fit: further fields of FitConfig, for all runs.
        end2end_lr: learning rate of end-to-end training, where `fit` has one for encoders.
        show: takes the record of every epoch.
        say: takes lines of text: cost, progress, the table.

    >>> reproduce("mian", "digits", "out")
    Traceback (most recent call last):
    ...
    ValueError: There is no result 'mian'; known are main, sota, correlation, transfer, unseen, \
ablation-positives, ablation-similarity, ablation-scheme, augmentation, two-stage, resnet50, std, \
efficiency, corruptions, reduced-data, spurious, all. Did you mean 'main'?
    """
    names = _names(name)
    chosen = _data(data)
    base = base_config(chosen, preset, epochs, fit or {})
    store = Store(Path(out), chosen.source)
    threads = torch.get_num_threads()
    if chosen.name == DIGITS:
        torch.set_num_threads(1)  # for arrays this small: as fast, and the same everywhere
    found: list[Row] = []
    try:
        for one in names:
            count = seeds or (STD_SEEDS if one == "std" else SEEDS)[preset]
            setting = Setting(chosen, base, count, end2end_lr)
            try:
                plan = RESULTS[one](setting)
            except DoesNotApply as error:
                if name != ALL:
                    raise
                say(f"{one} left out: {error}")
                continue
            found += _one(one, plan, setting, store, show, say)
    finally:
        torch.set_num_threads(threads)
    return found


def base_config(data: Data, preset: Preset, epochs: int | None, fit: dict[str, Any]) -> FitConfig:
    """What all runs on some data have in common.

    With the preset paper, heads are trained as there, by SGD on augmented samples; with quick they
    are solved. Epochs of heads and of fine-tuning keep their share of those of the encoder.
    """
    solver = "sgd" if preset == "paper" else "exact"
    fields = {"preset": preset, "head_solver": solver, **data.fit}
    if preset == "quick":
        fields |= data.quick
    fields |= fit
    if epochs is not None:
        fields["epochs"] = epochs
    if "epochs" in fields and "head_epochs" not in fit:
        usual = FitConfig(preset=preset).resolve()
        assert usual.epochs is not None
        assert usual.head_epochs is not None
        fields["head_epochs"] = max(1, round(fields["epochs"] * usual.head_epochs / usual.epochs))
    known = {field.name for field in dataclasses.fields(FitConfig)}
    if unknown := sorted(set(fields) - known):
        raise ValueError(
            f"fit takes fields of FitConfig; got {', '.join(unknown)}. Known are "
            f"{', '.join(sorted(known))}."
        )
    return FitConfig(**fields)


def _one(name: str, plan: Plan, setting: Setting, store: Store, show: Show, say: Say) -> list[Row]:
    cost = cost_of(plan.jobs, store)
    say(f"{name} on {setting.data.name}: {cost}.")
    paper = published(name, setting.data.name)
    watch = _Watch(cost, show, say)
    rows: list[Row] = []
    finished: list[list[Finished]] = []
    for line in plan.lines:
        finished.append(_finish(line, store, watch, say))
        for score, compute in line.scores.items():
            values = tuple(compute(run) for run in finished[-1])
            rows.append(_with_paper(Row(line.method, line.setting, score, values), paper))
    rows += [_with_paper(row, paper) for row in plan.derive(rows)]
    write_csv(store.out / f"{name}.csv", rows)
    how = f"{setting.seeds} seed{'s' * (setting.seeds > 1)}, {_epochs(plan)}"
    text = section(name, plan, rows, data=setting.data.name, how=how)
    if plan.analyses:
        text += f"\nRuns of the first seed: {_report(name, plan, finished, store).name}\n"
    write_text(store.out / f"{name}.md", text)
    _join(store.out)
    say("\n".join([f"{name}: {plan.title}", *table(rows)]))
    return rows


def _finish(line: Line, store: Store, watch: "_Watch", say: Say) -> list[Finished]:
    """The runs of a line; a training that diverges is said and left out."""
    found = []
    for seed, job in enumerate(line.jobs):
        if not store.is_finished(job):
            what = f"{line.method} {line.setting}".strip()
            say(f"  {what}, seed {seed}")
            watch.start(job)
        try:
            found.append(Finished(job, store.finish(job, watch, name=line.method)))
        except FloatingPointError as error:
            say(f"  {line.method}, seed {seed}, left out: {error}")
    return found


class _Watch:
    """Passes records on, and says after the first how long the rest will take."""

    def __init__(self, cost: Cost, show: Show, say: Say) -> None:
        self.cost, self.show, self.say = cost, show, say
        self.job: Job | None = None
        self.told = False

    def start(self, job: Job) -> None:
        """Take note of the job in training."""
        self.job = job

    def __call__(self, record: Record) -> None:
        if self.job is not None and not self.told and record.epoch > 0:
            pace = record.seconds / epoch_size(self.job, record.stage)
            self.told = True
            self.say(
                f"  About {self.cost.work * pace / 60:.1f} minutes for these {self.cost.epochs} "
                f"epochs, at the pace of the first ({record.seconds:.2g} s)."
            )
        self.show(record)


def _with_paper(row: Row, paper: dict[Key, Published]) -> Row:
    found = paper.get((row.method, row.setting, row.score))
    return row if found is None else row._replace(paper=found.mean, paper_sd=found.sd)


def _report(name: str, plan: Plan, finished: Sequence[Sequence[Finished]], store: Store) -> Path:
    """A report of the runs of the first seed, with the analyses of the plan."""
    folders = []
    for run in (runs[0] for runs in finished if runs):
        for analysis in plan.analyses:
            if not (run.folder / "analyses" / f"{analysis}.json").exists():
                analyse(RunFolder(run.folder, run.job.table), analysis)
        folders.append(run.folder)
    return write_report(folders, store.out / f"{name}.html")


def _join(out: Path) -> None:
    """report.md: the sections of all results so far, in the order of the paper."""
    parts = [out / f"{name}.md" for name in RESULTS]
    texts = [part.read_text(encoding="utf-8") for part in parts if part.exists()]
    write_text(out / "report.md", "# Results of the paper, reproduced\n\n" + "\n".join(texts))


def _epochs(plan: Plan) -> str:
    counts = sorted({job.config.epochs for job in plan.jobs if job.config.epochs is not None})
    return f"{' or '.join(map(str, counts))} epochs"


def _names(name: str) -> list[str]:
    if name == ALL:
        return list(RESULTS)
    if name not in RESULTS:
        close = get_close_matches(name, RESULTS, n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        known = ", ".join([*RESULTS, ALL])
        raise ValueError(f"There is no result {name!r}; known are {known}.{hint}")
    return [name]


def _data(data: Table | Data | str) -> Data:
    if isinstance(data, Data):
        return data
    if isinstance(data, Table):
        return Data.of_table(data)
    if data != DIGITS:
        raise ValueError(
            f"data must be a Table, Data or {DIGITS!r}; got {data!r}. A dataset of the paper needs "
            "the folder of a copy: Data.of_dataset(name, root)."
        )
    return Data.of_digits()
