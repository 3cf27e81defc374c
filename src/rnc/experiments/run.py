"""The engine: train the missing runs of a plan, score them, and write the table."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch

from rnc.analyses.analysis import AnalysisOptions
from rnc.analyses.registry import analyse
from rnc.data.table import Table
from rnc.experiments.chosen import write_tuning
from rnc.experiments.cost import Cost, cost_of, epoch_size
from rnc.experiments.data import DIGITS, Data
from rnc.experiments.plan import Finished, Line, Outcome, Plan, PlannedRun, Row, Setting
from rnc.experiments.published import Published, RowKey, published
from rnc.experiments.scores import has_collapsed
from rnc.experiments.seeds import by_seed, over_folds
from rnc.experiments.store import Store
from rnc.experiments.write import section, write_csv
from rnc.files import CONFIG_FILE, write_json, write_text
from rnc.model import read_config
from rnc.report import write_report
from rnc.run.folder import DoesNotApply
from rnc.training.cost import duration
from rnc.training.recipes import check_weights
from rnc.training.record import PULSE, Record, ShowRecord

COLLAPSED = "features collapsed"
"""The note on a score that is undefined since a run of the line has equal features."""

Say = Callable[[str], None]
"""Takes lines of text: cost, progress, trainings that diverged."""


def run_plan(
    name: str, plan: Plan, setting: Setting, store: Store, *, show: ShowRecord, say: Say
) -> list[Row]:
    """The rows of a plan. Trains only its missing runs.

    Writes NAME.csv and NAME.md below store.out. A plan with analyses also gets a report (NAME.html
    or plan.report), one with a picture NAME.png and NAME.svg, and a tuned one NAME-tuning.csv.
    """
    for run in plan.runs:  # check all runs before the first is trained
        check_weights(run.table, run.config)
    cost = cost_of(plan.runs, store)
    words = str(cost) if plan.lines else "nothing to train"
    own_split = setting.data.own_split
    data = f"{setting.data.name}, split {own_split}" if own_split else setting.data.name
    data += f", {len(setting.data.folds)} folds" if setting.data.folds else ""
    say(f"{name} on {data}: {words}.")
    paper = {} if own_split else published(name, setting.data.name)
    watch = Watch(cost, show, say)
    rows: list[Row] = []
    outcomes: list[Outcome] = []
    with one_thread_for_digits(setting.data):
        for line in plan.lines:
            finished = _finish(line, store, watch, say)
            outcomes.append(Outcome(line, finished))
            for score, compute in line.scores.items():
                values = tuple(over_folds(compute, runs) for runs in by_seed(finished).values())
                missing = np.isnan(values).any() and any(map(has_collapsed, finished))
                note = COLLAPSED if missing else ""
                rows.append(Row(line.method, line.setting, score, values, note=note))
        rows = [_with_paper(row, paper) for row in rows]
        rows = [_with_paper(row, paper) for row in plan.derive(rows, outcomes)]
        report = _report(name, plan, outcomes, store, say) if plan.analyses else None
    if rows:
        write_csv(store.out / f"{name}.csv", rows)
    how = f"{setting.seeds} seed{'s' * (setting.seeds > 1)}, {_epochs(plan)}" if plan.runs else ""
    text = section(name, plan, rows, data=data, how=how)
    if report is not None:
        text += f"\nThe runs: {report.name}\n"
    if plan.picture and _draw(name, plan, rows, outcomes, setting, store, say):
        text += f"\n![{plan.title}]({name}.png)\n"
    write_text(store.out / f"{name}.md", text)
    if any(line.chosen for line in plan.lines):
        write_tuning(store.out / f"{name}-tuning.csv", plan.lines)
    return rows


def chosen_data(data: Table | Data | str) -> Data:
    """The Data that `reproduce` and `compare` get: a table, Data, or "digits" for the demo."""
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


@contextmanager
def one_thread_for_digits(data: Data) -> Iterator[None]:
    """A context with one thread for the digits: as fast, and with equal results on all machines."""
    threads = torch.get_num_threads()
    if data.name == DIGITS:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _finish(line: Line, store: Store, watch: "Watch", say: Say) -> list[Finished]:
    """The finished runs of a line. A training that diverges is left out, and `say` is told."""
    finished = []
    for run in line.runs:
        if not store.is_finished(run):
            label = f"{line.method} {line.setting}".strip()
            say(f"  {label}, {run.label}")
            watch.start(run)
            PULSE.label = f"{label} {run.label}"
        try:
            folder = store.finish(run, watch, name=line.method)
            _note_choice(folder, line)
            finished.append(Finished(run, folder))
        except FloatingPointError as error:
            say(f"  {line.method}, {run.label}, left out: {error}")
    return finished


def _note_choice(folder: Path, line: Line) -> None:
    """Write the chosen values into config.json, so that reports of the run show them."""
    if line.chosen:
        tuning = {one.stage: one.to_json() for one in line.chosen}
        content = {**read_config(folder), "name": line.method, "tuning": tuning}
        write_json(folder / CONFIG_FILE, content)


class Watch:
    """Passes records on. After the first epoch, it says how long the others will take."""

    def __init__(self, cost: Cost, show: ShowRecord, say: Say) -> None:
        self.cost, self.show, self.say = cost, show, say
        self.run: PlannedRun | None = None
        self.said = False

    def start(self, run: PlannedRun) -> None:
        """Remember the run that trains now."""
        self.run = run

    def __call__(self, record: Record) -> None:
        """Take the record of an epoch."""
        if self.run is not None and not self.said and record.epoch > 0:
            pace = record.seconds / epoch_size(self.run, record.stage)
            self.said = True
            self.say(
                f"  About {duration(self.cost.work * pace)} for these {self.cost.epochs} epochs, "
                f"at the pace of the first ({record.seconds:.2g} s)."
            )
        self.show(record)


def _with_paper(row: Row, paper: dict[RowKey, Published]) -> Row:
    number = paper.get((row.method, row.setting, row.score))  # None for a gain: its row has one
    return row if number is None else row._replace(paper=number.mean, paper_sd=number.sd)


def _report(name: str, plan: Plan, outcomes: Sequence[Outcome], store: Store, say: Say) -> Path:
    """Write a report of all runs; the first run of each line gets the analyses of the plan."""
    options = AnalysisOptions(map_method=plan.map_method, map_only=plan.map_only)
    for line, finished in outcomes:
        for analysis in plan.analyses if finished else ():
            if _has(finished[0], analysis, plan):
                continue
            try:
                analyse(finished[0].run, analysis, options)
            except DoesNotApply as error:  # for example, no map of equal features
                say(f"  {line.method}: {analysis} left out: {error}")
    every = [one for outcome in outcomes for one in outcome.finished]
    first = every[0].planned.fold if every else None  # a report needs runs with equal test rows
    folders = [one.folder for one in every if one.planned.fold == first]
    return write_report(folders, store.out / (plan.report or f"{name}.html"))


def _has(finished: Finished, analysis: str, plan: Plan) -> bool:
    """Whether a run has an analysis; a map must have the plan's method and samples."""
    if not finished.run.has_analysis(analysis) or analysis != "map":
        return finished.run.has_analysis(analysis)
    content, only = finished.run.analysis("map").content, plan.map_only
    if plan.map_method not in (None, content["method"]):
        return False
    wanted = None if only is None else {"column": only.column, "values": [*only.values]}
    return bool(content.get("only") == wanted)


def _draw(
    name: str,
    plan: Plan,
    rows: Sequence[Row],
    outcomes: Sequence[Outcome],
    setting: Setting,
    store: Store,
    say: Say,
) -> bool:
    """Draw the picture of a plan; returns whether it did. Without matplotlib, `say` gets a hint."""
    if plan.lines and not any(outcome.finished for outcome in outcomes):
        return False
    try:
        from rnc.experiments.pictures import Material, draw_picture
    except ImportError:
        say(f"  {name}.png left out: pictures need pip install 'rank-n-contrast[figures]'.")
        return False
    material = Material(plan, rows, outcomes, setting)
    first, _ = draw_picture(plan.picture, material, store.out / name)
    say(f"  Picture: {first}")
    return True


def _epochs(plan: Plan) -> str:
    counts = sorted({run.config.epochs for run in plan.runs if run.config.epochs is not None})
    return f"{' or '.join(map(str, counts))} epochs"
