"""The sections of a report, from run folders to one page that opens without a network.

folders -> runs.read_runs -> [Run] -> sections (HTML and figures) -> page.fill -> report.html
"""

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
from numpy.typing import NDArray

from rnc.files import write_text
from rnc.report import page, plots
from rnc.report.plots import Figure
from rnc.report.runs import Run, read_runs, thin

# Heading, key in scores.json, and whether less is better.
_HEADLINE = (
    ("MAE", "mae", True),
    ("R²", "r2", False),
    ("Spearman", "spearman", False),
    ("Kendall", "kendall", False),
)
_PANELS = {"loss": "train_loss", "gap": "gap", "validation error": "val_error"}


def write_report(runs: Sequence[Path], out: Path | None = None) -> Path:
    """Write one self-contained HTML page about runs, side by side; returns its path.

    A run may be unfinished: the page shows what there is and says what is missing.

    Args:
        runs: run folders.
        out: the file to write; by default report.html in the first run folder.
    """
    if not runs:
        raise ValueError("write_report needs at least one run folder; got none.")
    read = read_runs([Path(run) for run in runs])
    figures: list[Figure] = []
    body = "\n".join(section(read, figures) for section in _SECTIONS)
    targets = ", ".join(_union(run.targets for run in read))
    names = ", ".join(run.name for run in read)
    out = Path(runs[0]) / "report.html" if out is None else Path(out)
    write_text(out, page.fill(f"Regression of {targets}", f"Runs: {names}", body, figures))
    return out


# ------------------------------------------------------------------------------------ the numbers


def _summary(runs: Sequence[Run], figures: list[Figure]) -> str:
    return f'<section class="grid cards">{"".join(_card(run) for run in runs)}</section>'


def _card(run: Run) -> str:
    test, fit = run.part("test"), run.config.get("fit") or {}
    lines = {title: page.number(test.get(key)) for title, key, _ in _HEADLINE[1:]}
    if "validation_error" in run.scores:
        lines["Validation error"] = page.number(run.scores["validation_error"])
    lines["Training, seconds"] = page.number(run.seconds)
    for part, n in run.part("n").items():
        lines[f"Samples, {part}"] = page.number(n)
    pairs = "".join(
        f"<dt>{page.escape(title)}</dt><dd>{page.escape(value)}</dd>"
        for title, value in lines.items()
    )
    notes = "".join(f"<li>{page.escape(sentence)}</li>" for sentence in run.missing)
    notes = f'<ul class="warn">{notes}</ul>' if notes else ""
    encoder = (run.config.get("model") or {}).get("encoder") or fit.get("encoder")
    kind = " · ".join(str(word) for word in (fit.get("scheme"), fit.get("head"), encoder) if word)
    return (
        f'<article class="card"><h3>{page.escape(run.name)}</h3>'
        f'<p class="small">{page.escape(kind)}</p>'
        f'<div class="big">{page.number(test.get("mae"))} <small>MAE, test</small></div>'
        f"<dl>{pairs}</dl>{notes}</article>"
    )


def _comparison(runs: Sequence[Run], figures: list[Figure]) -> str:
    columns: dict[str, list[Any]] = {
        title: [run.part("test").get(key) for run in runs] for title, key, _ in _HEADLINE
    }
    first = 3  # after run, scheme and head
    comparable = len({run.targets for run in runs}) == 1
    bold = {
        (row, first + column)
        for column, (title, _, less) in enumerate(_HEADLINE)
        for row in _best(columns[title], less)
        if comparable
    }
    readable = _union(run.part("readable") for run in runs)
    for name in readable:
        columns[f"{name} readable"] = [run.part("readable").get(name) for run in runs]
    columns["Seconds"] = [run.seconds for run in runs]
    rows = []
    for i, run in enumerate(runs):
        fit = run.config.get("fit") or {}
        choices = [str(fit.get(name) or "-") for name in ("scheme", "head")]
        rows.append([run.name, *choices, *(page.number(values[i]) for values in columns.values())])
    about = (
        "Scores of the test split. Spearman and Kendall: how well samples with similar features "
        "have similar targets."
    )
    if readable:
        about += (
            " Readable: how well a linear probe guesses that column from the features, 1 at best."
        )
    if bold:
        about += " The best of a column is bold."
    if not comparable:
        about += " The runs predict different targets: their errors do not compare."
    table = page.table(["Run", "Scheme", "Head", *columns], rows, bold=bold)
    return page.section("Comparison", about, table + _all_scores(runs) + _auto(runs))


def _all_scores(runs: Sequence[Run]) -> str:
    scores = [_flat_scores(run) for run in runs]
    rows = [[key, *(page.number(of_run.get(key)) for of_run in scores)] for key in _union(scores)]
    head = ["Score", *(run.name for run in runs)]
    return f"<h3>All scores</h3>{page.table(head, rows)}" if rows else ""


def _flat_scores(run: Run) -> dict[str, Any]:
    """Scores of the test split, then those of each of several targets."""
    of_targets = run.part("per_target")
    return run.part("test") | {
        f"{target}: {key}": value
        for target, scores in of_targets.items()
        for key, value in scores.items()
    }


def _auto(runs: Sequence[Run]) -> str:
    """What each scheme got, where the run chose among them."""
    parts = []
    for run in runs:
        if tried := run.part("auto"):
            rows = [[scheme, page.number(error)] for scheme, error in tried.items()]
            table = page.table(["Scheme", "Validation error"], rows)
            parts.append(f"<h3>Schemes that {page.escape(run.name)} tried</h3>{table}")
    return "".join(parts)


def _configuration(runs: Sequence[Run], figures: list[Figure]) -> str:
    commands = "".join(
        f"<h3>{page.escape(run.name)}</h3>"
        f"<pre><code>{page.escape(run.config['command'])}</code></pre>"
        for run in runs
        if run.config.get("command")
    )
    shown = ("data", "fit", "model", "environment")
    flat = [_flat({key: run.config.get(key) or {} for key in shown}) for run in runs]
    rows = [[key, *(settings.get(key, "-") for settings in flat)] for key in _union(flat)]
    bold = {
        (i, j)
        for i, (_, *cells) in enumerate(rows)
        if len(set(cells)) > 1
        for j in range(1, len(cells) + 1)
    }
    table = page.table(["Setting", *(run.name for run in runs)], rows, kind="settings", bold=bold)
    about = "The commands that made the runs, and every setting they had."
    if bold:
        about += " Where they differ, it is bold."
    return page.section("Configuration", about, f"{commands}<h3>Settings</h3>{table}")


# ------------------------------------------------------------------------------------ the figures


def _training(runs: Sequence[Run], figures: list[Figure]) -> str:
    slots = []
    for run in runs:
        if run.history is not None and len(run.history):
            panels = {title: run.history[key].to_numpy() for title, key in _PANELS.items()}
            figure = plots.training_figure(run.history["stage"].tolist(), panels)
            if figure["data"]:
                slots.append(page.slot(figures, figure, run.name))
    about = (
        "Gap: how far the loss is above its lower bound, which only features in the order of the "
        "targets come near."
    )
    return page.section("Training", about, page.grid(slots))


def _predictions(runs: Sequence[Run], figures: list[Figure]) -> str:
    grids, thinned = [], {}
    for target in _union(run.targets for run in runs):
        columns = [target, f"{target}_predicted"]
        tables = {
            run.name: run.predictions.dropna(subset=columns)
            for run in runs
            if run.predictions is not None and target in run.targets
        }
        slots = []
        for name, table in tables.items():
            drawn = table.iloc[thin(len(table))]
            if len(drawn) < len(table):
                thinned[name] = f"{len(drawn):,} of {len(table):,} points of {name}"
            figure = plots.prediction_figure(
                drawn[target].to_numpy(),
                drawn[columns[1]].to_numpy(),
                drawn["name"].tolist(),
                target=target,
                limits=_limits(table[columns].to_numpy() for table in tables.values()),
            )
            slots.append(page.slot(figures, figure, f"{name}: {target}"))
        grids.append(page.grid(slots))
    about = "Each point is a test sample; on the dashed line the prediction is right."
    if thinned:
        about += f" Drawn: {', '.join(thinned.values())}, chosen at random. Scores count all."
    return page.section("Predicted against true", about, "".join(grids))


def _map(runs: Sequence[Run], figures: list[Figure]) -> str:
    shown = [(run, run.samples) for run in runs if run.samples is not None]
    ways: list[list[Figure | None]] = [[] for _ in shown]
    names = _union(samples.columns for _, samples in shown)
    for name in names:
        found = [samples.columns.get(name) for _, samples in shown]
        values = _alike([np.empty(0, np.str_) if its is None else its for its in found])
        scale = plots.color_scale(np.concatenate(values))
        for of_run, its in zip(ways, values, strict=True):
            of_run.append(plots.coloring(its, scale, name) if len(its) else None)
    slots = []
    for (run, samples), colorings in zip(shown, ways, strict=True):
        points, shares = plots.project(samples.features, samples.columns[run.targets[0]])
        figure = plots.map_figure(points, shares, samples.names, colorings)
        slots.append(page.slot(figures, figure, f"{run.name}: {len(points):,} samples"))
    about = (
        "Features of test samples along their two main directions (PCA; in brackets, the share of "
        "the variance). Where the features keep "
        "the order of the targets, the colour of the target changes steadily; where they hold "
        "another column too, that column's colours form patches."
    )
    options = "".join(f"<option>{page.escape(name)}</option>" for name in names)
    choice = f'<label class="choice">Colour by <select id="coloring">{options}</select></label>'
    return page.section("Features", about, choice + page.grid(slots) if slots else "")


def _similarities(runs: Sequence[Run], figures: list[Figure]) -> str:
    slots = []
    for run in runs:
        if run.samples is not None:
            features, target = run.samples.features, run.targets[0]
            figure = plots.similarity_figure(features, run.samples.columns[target], target)
            side = min(len(features), plots.MAX_SIDE)
            slots.append(page.slot(figures, figure, f"{run.name}: {side} samples"))
    about = (
        "Minus the L2 distance between the features of two samples, both in the order of the "
        "target. Where the features keep that order, it falls steadily away from the diagonal."
    )
    return page.section("Similarity", about, page.grid(slots))


def _subgroups(runs: Sequence[Run], figures: list[Figure]) -> str:
    groups = {run.name: run.part("subgroups") for run in runs}
    slots = []
    for column in _union(groups.values()):
        errors = {
            name: {
                value: (its.get("n") or 0, its.get("mae"))
                for value, its in columns.get(column, {}).items()
            }
            for name, columns in groups.items()
        }
        total = len(_union(errors.values()))
        few = f", the {plots.MAX_BARS} largest of {total}" if total > plots.MAX_BARS else ""
        figure = plots.subgroup_figure(column, errors)
        slots.append(page.slot(figures, figure, f"Error by {column}{few}"))
    about = "Mean absolute error of the test samples that share a value of a column."
    return page.section("Subgroups", about, page.grid(slots))


_SECTIONS: tuple[Callable[[Sequence[Run], list[Figure]], str], ...] = (
    _summary,
    _comparison,
    _training,
    _predictions,
    _map,
    _similarities,
    _subgroups,
    _configuration,
)


# ----------------------------------------------------------------------------------- their values


def _union(groups: Iterable[Iterable[str]]) -> list[str]:
    """Everything that is in one of the groups, in the order in which it first comes."""
    return list(dict.fromkeys(name for group in groups for name in group))


def _best(values: Sequence[float | None], less: bool) -> list[int]:
    """Positions of the best of several numbers."""
    finite = [value for value in values if value is not None and math.isfinite(value)]
    if len(values) < 2 or not finite:
        return []
    best = min(finite) if less else max(finite)
    return [i for i, value in enumerate(values) if value == best]


def _limits(parts: Iterable[NDArray[np.float64]]) -> tuple[float, float]:
    """Axis limits with a margin, around all the numbers."""
    low, high = plots.limits_of(np.concatenate([part.ravel() for part in parts]))
    margin = 0.03 * ((high - low) or 1.0)
    return low - margin, high + margin


def _alike(parts: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
    """A column of several runs: numbers if it is a target or has many values that are numbers."""
    texts = [part for part in parts if part.dtype.kind != "f"]
    distinct = np.unique(np.concatenate([*texts, np.empty(0, np.str_)]))
    numbers = pd.to_numeric(pd.Series(distinct), errors="coerce")
    many = len(distinct) > plots.MAX_CATEGORIES and np.isfinite(numbers).all()
    if len(texts) == len(parts) and not many:
        return [np.where(part == "", "(empty)", part) for part in parts]
    return [pd.to_numeric(pd.Series(part), errors="coerce").to_numpy(np.float64) for part in parts]


def _flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Nested settings as one level of texts.

    >>> _flat({"fit": {"lr": 0.5, "clip": None}, "shape": [3, 4]})
    {'fit.lr': '0.5', 'fit.clip': 'null', 'shape': '[3, 4]'}
    """
    flat: dict[str, str] = {}
    for key, value in settings.items():
        if isinstance(value, Mapping) and value:
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            text = value if isinstance(value, str) else json.dumps(value)
            flat[f"{prefix}{key}"] = text if len(text) <= 300 else f"{text[:300]}…"
    return flat
