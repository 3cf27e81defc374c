"""The figures of the paper by name. As in results.py, a function makes a plan of a setting."""

import dataclasses
from functools import partial
from typing import Any

import numpy as np

from rnc.analyses.analysis import SHARES, MapOnly
from rnc.analyses.corruption import LEAST_SIDE, SEVERITIES
from rnc.data.errors import first_few
from rnc.data.table import Table
from rnc.experiments import scores
from rnc.experiments.comparison import METHODS
from rnc.experiments.lines import l1_and_rnc
from rnc.experiments.paired import with_differences
from rnc.experiments.pairs import pair_rows
from rnc.experiments.plan import Line, MakePlan, Plan, Setting
from rnc.experiments.subsets import with_size
from rnc.run.folder import DoesNotApply
from rnc.run.groups import MOST_VALUES, natural_key

FEW_LABELS = (1.0, 0.2, 0.05)
"""Shares of the training rows with preset best."""
IMDB_SIZES = (32_000, 16_000, 8_000, 4_000, 2_000)
MOST_MAPPED = 10
"""The largest number of values of a column in a map; each has its own colour."""


def corruptions(setting: Setting) -> Plan:
    """The error on corrupted test images, by severity."""
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
    title = "Corrupted test images"
    return Plan(title, about, lines, analyses=("corruption",), picture="severities")


def reduced_data(setting: Setting) -> Plan:
    """The error with fewer training rows."""
    table = setting.data.table
    rows, is_best = len(table.rows("train")), setting.base.preset == "best"
    sizes = [max(1, round(s * rows)) for s in (FEW_LABELS if is_best else SHARES)]
    if setting.data.name == "imdb-wiki":
        sizes = [n for n in IMDB_SIZES if n <= rows]
    lines: list[Line] = []
    for n in sizes:
        part = partial(_of_size, n)
        lines += l1_and_rnc(setting, None, f"{n:,} training rows", part=part)
    about = "The paper shows its sizes only in a picture. We draw the rows anew for each seed."
    plan = Plan("Fewer training rows", about, lines, picture="sizes")
    return dataclasses.replace(plan, derive=with_differences("L1")) if is_best else plan


def _of_size(n: int, table: Table, seed: int) -> Table:
    return with_size(table, n, seed)


def spurious(setting: Setting) -> Plan:
    """Whether features encode a column that the target does not depend on."""
    column, table = setting.data.nuisance, setting.data.table
    if column is None or column not in table.subgroup:
        have = ", ".join(table.subgroup) or "none"
        raise DoesNotApply(
            f"spurious needs a further column that the target does not depend on, such as a camera "
            f"(--nuisance COLUMN); {setting.data.name} has the columns: {have}."
        )
    only = _map_only(table, column, setting.data.nuisance_values)
    columns = {
        f"{column} readable": scores.readable(column),
        "Spearman": scores.spearman,
        **scores.errors(setting.base.label_distance),
    }
    return Plan(
        f"A spurious target: {column}",
        f"How well a linear probe reads {column} from test features (accuracy, or R2 of numbers), "
        f"and how well features follow the target. {_mapped(only)}",
        l1_and_rnc(setting, columns),
        analyses=("map",),
        map_only=only,
        picture="spurious-maps",
    )


def _map_only(table: Table, column: str, chosen: tuple[str, ...]) -> MapOnly | None:
    """The values of a column in a map: the chosen ones, or the ten most frequent in the test split.

    None, for all values, if there are at most ten, or if they are floats or many whole numbers.
    """
    values = np.asarray(table.subgroup[column])
    texts, counts = np.unique(values[table.rows("test")].astype(str), return_counts=True)
    if missing := [value for value in chosen if value not in texts]:
        raise ValueError(
            f"No test sample has the {column} {', '.join(missing)}; there are "
            f"{first_few(sorted(texts.tolist(), key=natural_key))}."
        )
    kind = values.dtype.kind
    are_numbers = kind == "f" or (kind in "iu" and len(texts) > MOST_VALUES)
    if not chosen and (len(texts) <= MOST_MAPPED or are_numbers):
        return None
    frequent = texts[np.argsort(-counts, kind="stable")[:MOST_MAPPED]].tolist()
    return MapOnly(column, chosen or tuple(sorted(frequent, key=natural_key)))


def _mapped(only: MapOnly | None) -> str:
    """A sentence about the values that the map shows."""
    if only is None:
        return "The paper shows a map of 10 cameras; ours has all values."
    return f"The map has the values {', '.join(only.values)} only; training and scores have all."


def maps(setting: Setting) -> Plan:
    """Maps of the features of L1, SupCon and RnC."""
    methods = {method.name: method for method in METHODS}
    columns = {"Spearman": scores.spearman, **scores.errors(setting.base.label_distance)}
    l1, rnc = l1_and_rnc(setting, columns)
    supcon = Line("SupCon", "", methods["SupCon"].runs(setting), columns)
    return Plan(
        "Features of L1, SupCon and RnC",
        "Test samples in two dimensions, coloured by the target. The paper shows SkyFinder.",
        [l1, supcon, rnc],
        analyses=("map",),
        picture="target-maps",
    )


def pairs(setting: Setting) -> Plan:
    """A toy batch, and how the loss ranks its samples."""
    return Plan(
        "Positive and negative pairs of an anchor",
        "Four training samples whose targets are spaced like the paper's: 20 (the anchor), 30, 0 "
        "and 70 years. The negatives of a pair are the other samples at least as far from the "
        "anchor as its positive. If all features were equal, the loss of a pair would be "
        "log(1 + number of its negatives).",
        [],
        derive=lambda rows, outcomes: pair_rows(setting),
        picture="pairs",
    )


def views(setting: Setting) -> Plan:
    """Samples without augmentation, and augmented."""
    if setting.data.table.kind == "table":
        raise DoesNotApply(
            f"views draws images and signals; the rows of {setting.data.name} are columns of "
            "numbers, whose views differ by a little noise."
        )
    about = "Training samples over the range of the target: unchanged, and two augmented views."
    return Plan("Original and augmented samples", about, [], picture="views")


FIGURES: dict[str, MakePlan] = {
    "corruptions": corruptions,
    "reduced-data": reduced_data,
    "spurious": spurious,
    "maps": maps,
    "pairs": pairs,
    "views": views,
}
