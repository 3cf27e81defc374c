"""The section of scores: a card per run, a comparison, and whether differences are chance."""

import math
from collections.abc import Sequence

from rnc.metrics import score_words
from rnc.report import figures as draw
from rnc.report import page
from rnc.report.figures import ErrorGroup, Figure
from rnc.report.runs import ReportRun
from rnc.report.samples import Pictures
from rnc.report.sections.numbers import ReadableColumn, readable_columns, union, with_spread
from rnc.report.sections.top import cards
from rnc.report.verdict import compare

HEADLINE = {"mae": True, "r2": False, "spearman": False}
"""The scores that are compared, by key in scores.json, and whether less is better."""


def draw_scores(runs: Sequence[ReportRun], pictures: Pictures, figures: list[Figure]) -> str:
    """The scores of all runs, and whether a difference is more than chance."""
    about = "Scores of the test split." if any(run.scores("test") for run in runs) else ""
    if any("spearman" in run.scores("test") for run in runs):
        about += (
            " The order of the features: how well samples with similar features have similar "
            "targets; 1 is perfect."
        )
    if any(readable_columns(run) for run in runs):
        about += " A column in the features: how well a linear probe guesses it from them."
    table = _side_by_side(runs) if len(runs) > 1 else ""
    folds = page.folded("All scores", _all_scores(runs))
    folds += page.folded("Every seed", _every_seed(runs))
    content = cards(runs) + table + _schemes_tried(runs, figures) + folds
    return page.section("Scores", about, content)


def _side_by_side(runs: Sequence[ReportRun]) -> str:
    """A table with a row per run, and notes below it."""
    of_key = {key: [run.over_seeds("test", key) for run in runs] for key in HEADLINE}
    of_key = {key: scores for key, scores in of_key.items() if any(scores)}
    first = 2  # after the run and how it was trained
    comparable = len({run.targets for run in runs}) == 1
    bold = {
        (row, first + column)
        for column, (key, scores) in enumerate(of_key.items())
        for row in _best([None if one is None else one.mean for one in scores], HEADLINE[key])
        if comparable
    }
    cells = {
        page.capital(score_words(k)): [with_spread(one) for one in s] for k, s in of_key.items()
    }
    for name in union(readable_columns(run) for run in runs):
        nothing = ReadableColumn(None)
        cells[f"{name} in the features"] = [
            readable_columns(run).get(name, nothing).words for run in runs
        ]
    cells["Training"] = [page.duration(run.seconds) for run in runs]
    against = _against_first(runs)
    if any(against):
        cells["Error minus that of the first"] = against
    rows = []
    for i, run in enumerate(runs):
        how = ", ".join(str(run.fit.get(name) or "-") for name in ("scheme", "head"))
        rows.append([run.name, how, *(values[i] for values in cells.values())])
    table = page.table(["Run", "Scheme, head", *cells], rows, bold=bold)
    notes = ["The best of a column is bold."] if bold else []
    if any(run.other_seeds for run in runs):
        notes.append("Numbers with ± are the mean and the standard deviation of the seeds.")
    if any(against):
        notes.append(
            "The last column is the difference of the mean absolute error, on the same samples or "
            "over the seeds, with its 95 % interval: if 0 is outside this interval, the difference "
            "is more than chance."
        )
    return table + (f'<p class="note">{page.escape(" ".join(notes))}</p>' if notes else "")


def _against_first(runs: Sequence[ReportRun]) -> list[str]:
    """Each run's error minus that of the first; "" if the two cannot be compared."""
    texts = [""]
    for run in runs[1:]:
        difference = compare(run, runs[0])
        if difference is None or difference.interval is None:
            texts.append("")
        else:
            texts.append(f"{difference.mean:+.3g} ({page.between(difference.interval)})")
    return texts


def _every_seed(runs: Sequence[ReportRun]) -> str:
    rows = [
        [f"{run.name}, seed {seed.fit.get('seed')}"]
        + [page.number(seed.scores("test").get(key)) for key in HEADLINE]
        for run in runs
        for seed in (run.seeds if run.other_seeds else [])
    ]
    return (
        page.table(["Run", *(page.capital(score_words(k)) for k in HEADLINE)], rows) if rows else ""
    )


def _all_scores(runs: Sequence[ReportRun]) -> str:
    scores = [_flat_scores(run) for run in runs]
    rows = [[key, *(of_run.get(key, "-") for of_run in scores)] for key in union(scores)]
    head = ["Score", *(run.name for run in runs)]
    return page.table(head, rows) if rows else ""


def _flat_scores(run: ReportRun) -> dict[str, str]:
    """Scores by name: of the test split, of each target if there are several, of the order."""
    flat = {}
    for key in run.scores("test"):
        score = run.over_seeds("test", key)
        flat[page.capital(score_words(key))] = with_spread(score)
    for target, scores in run.scores("per_target").items():
        for key, value in scores.items():
            flat[f"{target}: {score_words(key)}"] = page.number(value)
    for key, value in run.analyses.get("order", {}).items():
        flat[_ORDER.get(key, f"Order: {score_words(key)}")] = page.number(value)
    return flat


_ORDER = {
    "loss": "Loss on test batches",
    "bound": "Lowest loss possible on them",
    "gap": "Distance of the loss from the lowest possible",
    "provable_gap": "Distance below which theorem 3 proves an order",
    "delta": "Features are delta-ordered for delta of",
}


def _schemes_tried(runs: Sequence[ReportRun], figures: list[Figure]) -> str:
    """The validation error of each scheme, for runs that chose among several."""
    slots = []
    for run in runs:
        if tried := run.scores("auto"):
            kept = run.folder.scores.get("kept")
            bars = {
                f"{scheme} (kept)" if scheme == kept else scheme: [
                    (run.name, run.color, ErrorGroup(scheme, 0, float(error)))
                ]
                for scheme, error in tried.items()
                if isinstance(error, float | int)
            }
            figure = draw.rows("validation error", bars, labels=True)
            title, file = f"Schemes that {run.name} tried", f"schemes {run.name}"
            slots.append(page.slot(figures, figure, title, file=file))
    return page.grid(slots)


def _best(values: Sequence[float | None], less: bool) -> list[int]:
    """Positions of the best of several numbers."""
    finite = [value for value in values if value is not None and math.isfinite(value)]
    if len(values) < 2 or not finite:
        return []
    best = min(finite) if less else max(finite)
    return [i for i, value in enumerate(values) if value == best]
