"""The sections of a report that are words and numbers: cards, tables, configuration."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from rnc.metrics import Interval, mean_interval, r2, r2_interval
from rnc.report import page
from rnc.report.runs import Run

# Heading, key in scores.json, and whether less is better.
HEADLINE = (
    ("MAE", "mae", True),
    ("R²", "r2", False),
    ("Spearman", "spearman", False),
    ("Kendall", "kendall", False),
)


def cards(runs: Sequence[Run]) -> str:
    """A card per run: its main numbers, and what is missing."""
    articles = "".join(_card(run, color) for color, run in enumerate(runs))
    return f'<section class="grid pairs">{articles}</section>'


def _card(run: Run, color: int) -> str:
    test, fit = run.part("test"), run.config.get("fit") or {}
    spans = intervals(run)
    lines = {
        title: (page.number(test.get(key)), page.between(spans.get(key)))
        for title, key, _ in HEADLINE[1:]
    }
    if "gap" in run.analyses.get("order", {}):
        lines["Gap to L*"] = (page.number(run.analyses["order"]["gap"]), "")
    for column, (score, chance) in readable(run).items():
        beside = "" if chance is None else f"chance {chance:.2g}"
        lines[f"{column} readable"] = (page.number(score), beside)
    if "validation_error" in run.scores:
        lines["Validation error"] = (page.number(run.scores["validation_error"]), "")
    lines["Training, seconds"] = (page.number(run.seconds), "")
    for part, n in run.part("n").items():
        lines[f"Samples, {part}"] = (page.number(n), "")
    pairs = "".join(
        f"<dt>{page.escape(title)}</dt><dd>{page.escape(value)}"
        f"{f' <small>{page.escape(beside)}</small>' if beside else ''}</dd>"
        for title, (value, beside) in lines.items()
    )
    notes = "".join(f"<li>{page.escape(sentence)}</li>" for sentence in run.missing)
    notes = f'<ul class="warn">{notes}</ul>' if notes else ""
    encoder = (run.config.get("model") or {}).get("encoder") or fit.get("encoder")
    kind = " · ".join(str(word) for word in (fit.get("scheme"), fit.get("head"), encoder) if word)
    span = page.between(spans.get("mae"))
    return (
        f'<article class="card run" style="--run: var(--run-{color % 6})">'
        f'<h3>{page.escape(run.name)}</h3><p class="small">{page.escape(kind)}</p>'
        f'<div class="big">{page.number(test.get("mae"))} <small>MAE, test</small></div>'
        f'<p class="small">{f"95 % interval {span}" if span else ""}</p>'
        f"<dl>{pairs}</dl>{notes}</article>"
    )


def intervals(run: Run) -> dict[str, Interval]:
    """Intervals of mae and r2, where the predictions give the same scores as scores.json."""
    kept = np.isfinite(run.errors)
    test, found = run.part("test"), {}
    mae = mean_interval(run.errors[kept])
    if mae is not None and _same(test.get("mae"), float(run.errors[kept].mean())):
        found["mae"] = mae
    span = r2_interval(run.predicted[kept], run.true[kept])
    if span is not None and isinstance(test.get("r2"), float):
        usual = r2(run.predicted[kept], run.true[kept])
        if _same(test.get("r2_test_mean"), usual):
            # The paper's R2 has another constant in its denominator: the same width, at its place.
            shift = test["r2"] - usual
            found["r2"] = Interval(span.low + shift, span.high + shift)
    return found


def _same(a: Any, b: float) -> bool:
    return isinstance(a, float) and math.isclose(a, b, rel_tol=1e-3, abs_tol=1e-9)


def readable(run: Run) -> dict[str, tuple[Any, float | None]]:
    """How well each column is read from the features: (score, chance)."""
    found: dict[str, tuple[Any, float | None]] = {
        column: (score, None) for column, score in run.part("readable").items()
    }
    for column, its in run.analyses.get("readable", {}).items():
        chance = its.get("chance")
        found[column] = (its.get("score"), chance if isinstance(chance, float | int) else None)
    return found


# ------------------------------------------------------------------------------------ comparison


def comparison(runs: Sequence[Run]) -> str:
    """The scores of all runs, and whether a difference is more than chance."""
    about = (
        "Scores of the test split. Spearman and Kendall: how well samples with similar features "
        "have similar targets."
    )
    if any(readable(run) for run in runs):
        about += (
            " Readable: how well a linear probe guesses that column from the features, 1 at best."
        )
    if len(runs) == 1:
        return page.section("Scores", about, _all_scores(runs) + _auto(runs))
    table, more = _side_by_side(runs)
    scores = page.folded("All scores", _all_scores(runs))
    return page.section("Comparison", about + more, table + scores + _auto(runs))


def _side_by_side(runs: Sequence[Run]) -> tuple[str, str]:
    """A table with a row per run, and what to say about it."""
    columns: dict[str, list[Any]] = {
        title: [run.part("test").get(key) for run in runs] for title, key, _ in HEADLINE
    }
    first = 3  # after run, scheme and head
    comparable = len({run.targets for run in runs}) == 1
    bold = {
        (row, first + column)
        for column, (title, _, less) in enumerate(HEADLINE)
        for row in _best(columns[title], less)
        if comparable
    }
    for name in union(readable(run) for run in runs):
        columns[f"{name} readable"] = [readable(run).get(name, (None,))[0] for run in runs]
    columns["Seconds"] = [run.seconds for run in runs]
    cells = {title: [page.number(value) for value in values] for title, values in columns.items()}
    if any(against := _against_first(runs)):
        cells["MAE against the first"] = against
    rows = []
    for i, run in enumerate(runs):
        fit = run.config.get("fit") or {}
        choices = [str(fit.get(name) or "-") for name in ("scheme", "head")]
        rows.append([run.name, *choices, *(values[i] for values in cells.values())])
    about = " The best of a column is bold." if bold else ""
    if any(against):
        about += (
            " Against the first: the difference on the same samples, with its 95 % interval; one "
            "without 0 is more than chance in the choice of samples."
        )
    if not comparable:
        about += " The runs predict different targets: their errors do not compare."
    return page.table(["Run", "Scheme", "Head", *cells], rows, bold=bold), about


def _against_first(runs: Sequence[Run]) -> list[str]:
    """Paired differences of the error from the first run; nothing where samples differ."""
    texts = [""]
    for run in runs[1:]:
        same = (
            run.targets == runs[0].targets
            and run.true.shape == runs[0].true.shape
            and np.allclose(run.true, runs[0].true, equal_nan=True)
        )
        gained = run.errors - runs[0].errors if same else np.empty(0)
        gained = gained[np.isfinite(gained)]
        span = mean_interval(gained)
        texts.append("" if span is None else f"{gained.mean():+.3g} ({page.between(span)})")
    return texts


def _all_scores(runs: Sequence[Run]) -> str:
    scores = [_flat_scores(run) for run in runs]
    rows = [[key, *(page.number(of_run.get(key)) for of_run in scores)] for key in union(scores)]
    head = ["Score", *(run.name for run in runs)]
    return page.table(head, rows) if rows else ""


def _flat_scores(run: Run) -> dict[str, Any]:
    """Scores of the test split, those of each of several targets, and those of the order."""
    of_targets = run.part("per_target")
    scores = run.part("test") | {
        f"{target}: {key}": value
        for target, its in of_targets.items()
        for key, value in its.items()
    }
    return scores | {f"order: {key}": value for key, value in run.analyses.get("order", {}).items()}


def _auto(runs: Sequence[Run]) -> str:
    """What each scheme got, where the run chose among them."""
    parts = []
    for run in runs:
        if tried := run.part("auto"):
            rows = [[scheme, page.number(error)] for scheme, error in tried.items()]
            table = page.table(["Scheme", "Validation error"], rows)
            parts.append(f"<h3>Schemes that {page.escape(run.name)} tried</h3>{table}")
    return "".join(parts)


# --------------------------------------------------------------------------------- configuration


def configuration(runs: Sequence[Run]) -> str:
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
    about = "The commands that made the runs (a click selects one), and every setting they had."
    if bold:
        about += " Where they differ, it is bold."
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
    """Everything that is in one of the groups, in the order in which it first comes."""
    return list(dict.fromkeys(name for group in groups for name in group))


def _best(values: Sequence[float | None], less: bool) -> list[int]:
    """Positions of the best of several numbers."""
    finite = [value for value in values if value is not None and math.isfinite(value)]
    if len(values) < 2 or not finite:
        return []
    best = min(finite) if less else max(finite)
    return [i for i, value in enumerate(values) if value == best]
