"""What is words and numbers: the cards, and the sections of scores and of the configuration."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from rnc.metrics.bootstrap import Interval, mean_interval
from rnc.report import page
from rnc.report.figures import Figure
from rnc.report.runs import ReportRun
from rnc.report.samples import Pictures
from rnc.run.folder import AnalysisResult
from rnc.run.partial import PartialRun

# Heading, key in scores.json, and whether less is better.
HEADLINE = (
    ("MAE", "mae", True),
    ("R²", "r2", False),
    ("Spearman", "spearman", False),
    ("Kendall", "kendall", False),
)


def cards(runs: Sequence[ReportRun]) -> str:
    """A card per run: its main numbers, and what is missing."""
    return f'<section class="grid pairs">{"".join(_card(run) for run in runs)}</section>'


def _card(run: ReportRun) -> str:
    test, fit = run.scores("test"), run.fit
    intervals: dict[str, Interval] = run.analyses.get("intervals", {})
    lines = {
        title: (page.number(test.get(key)), page.between(intervals.get(key)))
        for title, key, _ in HEADLINE[1:]
    }
    if "gap" in run.analyses.get("order", {}):
        lines["Gap to L*"] = (page.number(run.analyses["order"]["gap"]), "")
    for column, (score, chance) in readable_columns(run).items():
        beside = "" if chance is None else f"chance {chance:.2g}"
        lines[f"{column} readable"] = (page.number(score), beside)
    if "validation_error" in run.folder.scores:
        lines["Validation error"] = (page.number(run.folder.scores["validation_error"]), "")
    lines["Training, seconds"] = (page.number(run.seconds), "")
    for part, n in run.scores("n").items():
        lines[f"Samples, {part}"] = (page.number(n), "")
    pairs = "".join(
        f"<dt>{page.escape(title)}</dt><dd>{page.escape(value)}"
        f"{f' <small>{page.escape(beside)}</small>' if beside else ''}</dd>"
        for title, (value, beside) in lines.items()
    )
    notes = "".join(f"<li>{page.escape(sentence)}</li>" for sentence in run.notes)
    notes = f'<ul class="warn">{notes}</ul>' if notes else ""
    encoder = (run.config.get("model") or {}).get("encoder") or fit.get("encoder")
    kind = " · ".join(str(word) for word in (fit.get("scheme"), fit.get("head"), encoder) if word)
    interval = page.between(intervals.get("mae"))
    return (
        f'<article class="card run" style="--run: var(--run-{run.color % 6})">'
        f'<h3>{page.escape(run.name)}</h3><p class="small">{page.escape(kind)}</p>'
        f'<div class="big">{page.number(test.get("mae"))} <small>MAE, test</small></div>'
        f'<p class="small">{f"95 % interval {interval}" if interval else ""}</p>'
        f"<dl>{pairs}</dl>{notes}</article>"
    )


def read_intervals(result: AnalysisResult, run: PartialRun) -> dict[str, Interval]:
    """analyses/intervals.json."""
    return {
        score: Interval(float(ends["low"]), float(ends["high"]))
        for score, ends in result.content.items()
    }


def read_order(result: AnalysisResult, run: PartialRun) -> dict[str, Any]:
    """analyses/order.json."""
    return result.content


def read_readable(result: AnalysisResult, run: PartialRun) -> dict[str, dict[str, Any]]:
    """analyses/readable.json."""
    return {column: dict(probe) for column, probe in result.content.items()}


def readable_columns(run: ReportRun) -> dict[str, tuple[Any, float | None]]:
    """How well a probe reads each column from the features: its score, and that of chance."""
    columns: dict[str, tuple[Any, float | None]] = {
        column: (score, None) for column, score in run.scores("readable").items()
    }
    for column, probe in run.analyses.get("readable", {}).items():
        chance = probe.get("chance")
        columns[column] = (probe.get("score"), chance if isinstance(chance, float | int) else None)
    return columns


# ------------------------------------------------------------------------------------ comparison


def draw_scores(runs: Sequence[ReportRun], pictures: Pictures, figures: list[Figure]) -> str:
    """The scores of all runs, and whether a difference is more than chance."""
    about = (
        "Scores of the test split. Spearman and Kendall say how well samples with similar features "
        "have similar targets."
    )
    if any(readable_columns(run) for run in runs):
        about += (
            " Readable says how well a linear probe guesses that column from the features; 1 is "
            "perfect."
        )
    if len(runs) == 1:
        return page.section("Scores", about, _all_scores(runs) + _schemes_tried(runs))
    table, more = _side_by_side(runs)
    scores = page.folded("All scores", _all_scores(runs))
    return page.section("Comparison", about + more, table + scores + _schemes_tried(runs))


def _side_by_side(runs: Sequence[ReportRun]) -> tuple[str, str]:
    """A table with a row per run, and what to say about it."""
    columns: dict[str, list[Any]] = {
        title: [run.scores("test").get(key) for run in runs] for title, key, _ in HEADLINE
    }
    first = 3  # after run, scheme and head
    comparable = len({run.targets for run in runs}) == 1
    bold = {
        (row, first + column)
        for column, (title, _, less) in enumerate(HEADLINE)
        for row in _best(columns[title], less)
        if comparable
    }
    for name in union(readable_columns(run) for run in runs):
        columns[f"{name} readable"] = [readable_columns(run).get(name, (None,))[0] for run in runs]
    columns["Seconds"] = [run.seconds for run in runs]
    cells = {title: [page.number(value) for value in values] for title, values in columns.items()}
    if any(against := _against_first(runs)):
        cells["MAE against the first"] = against
    rows = []
    for i, run in enumerate(runs):
        choices = [str(run.fit.get(name) or "-") for name in ("scheme", "head")]
        rows.append([run.name, *choices, *(values[i] for values in cells.values())])
    about = " The best of a column is bold." if bold else ""
    if any(against):
        about += (
            " MAE against the first: the difference on the same samples, with its 95 % interval. "
            "If the interval leaves out 0, the difference is more than chance in the choice of "
            "samples."
        )
    if not comparable:
        about += " The runs predict different targets: their errors do not compare."
    return page.table(["Run", "Scheme", "Head", *cells], rows, bold=bold), about


def _against_first(runs: Sequence[ReportRun]) -> list[str]:
    """Paired differences of the error from the first run; nothing where samples differ.

    The one statistic that a page computes: no single run folder can hold it.
    """
    texts = [""]
    for run in runs[1:]:
        same = (
            run.targets == runs[0].targets
            and run.true.shape == runs[0].true.shape
            and np.allclose(run.true, runs[0].true, equal_nan=True)
        )
        differences = run.errors - runs[0].errors if same else np.empty(0)
        differences = differences[np.isfinite(differences)]
        interval = mean_interval(differences)
        between = page.between(interval)
        texts.append("" if interval is None else f"{differences.mean():+.3g} ({between})")
    return texts


def _all_scores(runs: Sequence[ReportRun]) -> str:
    scores = [_flat_scores(run) for run in runs]
    rows = [[key, *(page.number(of_run.get(key)) for of_run in scores)] for key in union(scores)]
    head = ["Score", *(run.name for run in runs)]
    return page.table(head, rows) if rows else ""


def _flat_scores(run: ReportRun) -> dict[str, Any]:
    """Scores of the test split, those of each of several targets, and those of the order."""
    of_targets = run.scores("per_target")
    scores = run.scores("test") | {
        f"{target}: {key}": value
        for target, scores_of_target in of_targets.items()
        for key, value in scores_of_target.items()
    }
    return scores | {f"order: {key}": value for key, value in run.analyses.get("order", {}).items()}


def _schemes_tried(runs: Sequence[ReportRun]) -> str:
    """The validation error of each scheme, where a run chose among several."""
    parts = []
    for run in runs:
        if tried := run.scores("auto"):
            rows = [[scheme, page.number(error)] for scheme, error in tried.items()]
            table = page.table(["Scheme", "Validation error"], rows)
            parts.append(f"<h3>Schemes that {page.escape(run.name)} tried</h3>{table}")
    return "".join(parts)


# --------------------------------------------------------------------------------- configuration


def draw_configuration(runs: Sequence[ReportRun], pictures: Pictures, figures: list[Figure]) -> str:
    """The commands that made the runs, and every setting."""
    commands = "".join(
        f"<h3>{page.escape(run.name)}</h3>"
        f"<pre><code>{page.escape(run.config['command'])}</code></pre>"
        for run in runs
        if run.config.get("command")
    )
    shown = ("data", "fit", "model", "environment")
    flat = [_flat({key: run.config.get(key) or {} for key in shown}) for run in runs]
    rows = [[key, *(settings.get(key, "-") for settings in flat)] for key in union(flat)]
    bold = {
        (i, j)
        for i, (_, *cells) in enumerate(rows)
        if len(set(cells)) > 1
        for j in range(1, len(cells) + 1)
    }
    table = page.table(["Setting", *(run.name for run in runs)], rows, kind="settings", bold=bold)
    about = "The commands that made the runs (click one to select it), and every setting they had."
    if bold:
        about += " Settings that differ are bold."
    return page.section("Configuration", about, f"{commands}{page.folded('All settings', table)}")


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
            flat[f"{prefix}{key}"] = text if len(text) <= 1000 else f"{text[:1000]}…"
    return flat


def union(groups: Iterable[Iterable[str]]) -> list[str]:
    """The members of all groups, each once, in the order in which they first come."""
    return list(dict.fromkeys(name for group in groups for name in group))


def _best(values: Sequence[float | None], less: bool) -> list[int]:
    """Positions of the best of several numbers."""
    finite = [value for value in values if value is not None and math.isfinite(value)]
    if len(values) < 2 or not finite:
        return []
    best = min(finite) if less else max(finite)
    return [i for i, value in enumerate(values) if value == best]
