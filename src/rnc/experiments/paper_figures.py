"""The figures of the paper by name: a function from a setting to a plan, as in results.py."""

import dataclasses
from functools import partial
from typing import Any

from rnc.analyses.analysis import SHARES
from rnc.analyses.corruption import LEAST_SIDE, SEVERITIES
from rnc.experiments import scores
from rnc.experiments.lines import l1_and_rnc
from rnc.experiments.paired import with_differences
from rnc.experiments.plan import Line, MakePlan, Plan, Setting
from rnc.experiments.subsets import with_size
from rnc.run.folder import DoesNotApply

FEW_LABELS = (1.0, 0.2, 0.05)
"""Shares of the training rows with preset best."""
IMDB_SIZES = (32_000, 16_000, 8_000, 4_000, 2_000)


def corruptions(setting: Setting) -> Plan:
    """Error on corrupted test images, by severity."""
    data = setting.data
    table = data.table if data.large is None else data.large
    side = min(table.x.shape[2:]) if table.kind == "image" else 0
    if side < LEAST_SIDE:
        what = f"images of {side} pixels" if side else f"{table.kind}s"
        raise DoesNotApply(
            f"corruptions needs images of at least {LEAST_SIDE} pixels; {data.name} holds {what}."
        )
    columns = {"clean": scores.corrupted(0)}
    columns |= {f"severity {s}": scores.corrupted(s) for s in SEVERITIES}
    larger: dict[str, Any] = {} if data.large is None else {"image_size": side}
    lines = l1_and_rnc(setting, columns, table=lambda seed: table, **larger)
    grey = "" if table.x.shape[1] == 3 else " Grey images are not saturated: 18 types."
    own = "" if data.large is None else f" Images of {side} pixels here."
    about = f"Error, mean over the 19 types of corruption, on all test images.{grey}{own}"
    return Plan("Corrupted test images", about, lines)


def reduced_data(setting: Setting) -> Plan:
    """Error with fewer training rows."""
    table = setting.data.table
    rows, is_best = len(table.rows("train")), setting.base.preset == "best"
    sizes = [max(1, round(s * rows)) for s in (FEW_LABELS if is_best else SHARES)]
    if setting.data.name == "imdb-wiki":
        sizes = [n for n in IMDB_SIZES if n <= rows]
    lines: list[Line] = []
    for n in sizes:
        part = partial(with_size, table, n)
        lines += l1_and_rnc(setting, None, f"{n:,} training rows", table=part)
    about = "The paper's sizes are in a picture only; which rows are kept is our draw, per seed."
    plan = Plan("Fewer training rows", about, lines)
    return dataclasses.replace(plan, derive=with_differences("L1")) if is_best else plan


def spurious(setting: Setting) -> Plan:
    """Whether features keep what the target does not need."""
    column, table = setting.data.nuisance, setting.data.table
    if column is None or column not in table.subgroup:
        have = ", ".join(table.subgroup) or "none"
        raise DoesNotApply(
            f"spurious needs a further column that the target does not depend on, such as a camera "
            f"(--nuisance COLUMN); {setting.data.name} has the columns: {have}."
        )
    columns = {
        f"{column} readable": scores.readable(column),
        "Spearman": scores.spearman,
        **scores.errors(setting.base.label_distance),
    }
    return Plan(
        f"A spurious target: {column}",
        f"How well a linear probe reads {column} from test features (accuracy, or R2 of numbers), "
        "and how well features follow the target. The paper shows a map of 10 cameras; ours is in "
        "the report beside this file.",
        l1_and_rnc(setting, columns),
        analyses=("map",),
    )


FIGURES: dict[str, MakePlan] = {
    "corruptions": corruptions,
    "reduced-data": reduced_data,
    "spurious": spurious,
}
