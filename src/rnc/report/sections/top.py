"""The top of a page: the main result, and a card with the main numbers of every run."""

import math
from collections.abc import Mapping, Sequence

from rnc.metrics import score_words
from rnc.metrics.bootstrap import Interval
from rnc.report import figures as draw
from rnc.report import page
from rnc.report.figures import ErrorGroup, Figure
from rnc.report.runs import ReportRun
from rnc.report.sections.intervals import coverage_words
from rnc.report.sections.numbers import readable_columns, with_spread
from rnc.report.verdict import error_key, error_of, verdict
from rnc.run.answer import Answer, answer

MOST_TILES = 6
"""Most numbers of a run in one row. With more, there are two rows."""

_BASELINES = {"boosting": "gradient boosting", "median": "guessing the median"}


def draw_answer(runs: Sequence[ReportRun], figures: list[Figure]) -> str:
    """The first part of a page: the error and its baselines or, for several runs, the best run."""
    told = _answer(runs[0]) if len(runs) == 1 else verdict(runs)
    details = told.details
    if len(runs) == 1 and runs[0].other_seeds:
        details = (f"The mean of {len(runs[0].seeds)} seeds.", *details)
    words = f'<p class="headline">{page.escape(told.headline)}</p>{_sentences(details)}'
    bars = _bars(runs)
    figure = ""
    if bars:
        key = error_key(runs)
        drawn = draw.rows(score_words(key), bars, labels=True) | {"legend": []}
        figure = page.slot(figures, drawn, "Error on the test samples", file="answer")
    return f'<section class="answer" id="answer"><div class="card">{words}</div>{figure}</section>'


def _answer(run: ReportRun) -> Answer:
    """The result of one run, with scores averaged over its seeds."""
    test = {
        key: value if (seeds := run.over_seeds("test", key)) is None else seeds.mean
        for key, value in run.scores("test").items()
    }
    scores = run.folder.scores | {"test": test}
    if run.other_seeds:
        scores.pop("head", None)  # each seed has its own
    if run.config.get("name"):  # a run of a plan, which nobody continues by hand
        scores["training"] = run.scores("training") | {"epochs": None}
    try:
        return answer(scores, run.config, str(run.folder.path))
    except (TypeError, ValueError, AttributeError, KeyError) as error:
        return Answer(f"The scores cannot be used. Reason: {error}", ())


def _sentences(sentences: Sequence[str]) -> str:
    lines = "".join(f"<li>{_with_command(sentence)}</li>" for sentence in sentences)
    return f'<ul class="details">{lines}</ul>' if lines else ""


def _with_command(sentence: str) -> str:
    """A sentence as HTML. A command at its end is shown as code, which only breaks at spaces."""
    words, found, command = page.escape(sentence).partition(": rnc ")
    if not found:
        return words
    parts = " ".join(f"<span>{part}</span>" for part in ["rnc", *command.split(" ")])
    return f"{words}: <code>{parts}</code>"


def _bars(runs: Sequence[ReportRun]) -> dict[str, list[tuple[str, int | str, ErrorGroup]]]:
    """The errors of runs and baselines, the lowest first; {} if fewer than two can be compared."""
    key = error_key(runs)
    errors: dict[str, tuple[int | str, ErrorGroup]] = {}
    for run in runs:
        if (score := error_of(run, key)) is not None:
            low, high = run.analyses.get("intervals", {}).get(key, (None, None))
            if score.spread is not None:
                low, high = score.mean - score.spread, score.mean + score.spread
            errors[run.name] = (run.color, ErrorGroup(run.name, 0, score.mean, low, high))
    if len({run.targets for run in runs}) == 1:
        for baseline, title in _BASELINES.items():
            error = runs[0].score("baselines", baseline, key)
            if isinstance(error, float | int):
                errors[title] = ("soft", ErrorGroup(title, 0, float(error)))
    elif len(runs) > 1:
        return {}
    ranked = sorted(errors.items(), key=lambda item: item[1][1].mae)
    return {name: [(name, *bar)] for name, bar in ranked} if len(errors) > 1 else {}


# ---------------------------------------------------------------------------------------- cards


def cards(runs: Sequence[ReportRun]) -> str:
    """A card per run: its result if there are several runs, its main numbers, what is missing."""
    return page.grid([_card(run, several=len(runs) > 1) for run in runs], "cards")


def _card(run: ReportRun, *, several: bool) -> str:
    notes = "".join(f"<li>{page.escape(s)}</li>" for seed in run.seeds for s in seed.notes)
    notes = f'<ul class="warn">{notes}</ul>' if notes else ""
    encoder = (run.config.get("model") or {}).get("encoder") or run.fit.get("encoder")
    words = (run.fit.get("scheme"), run.fit.get("head"), encoder)
    kind = " · ".join(str(word) for word in words if word)
    if run.other_seeds:
        kind += f" · {len(run.seeds)} seeds; figures show seed {run.fit.get('seed')}"
    told = _answer(run) if several else Answer("", ())
    said = f"<p>{page.escape(told.headline)}</p>{_sentences(told.details)}" if several else ""
    facts = _facts(run)
    pairs = "".join(
        f"<div><dt>{page.escape(title)}</dt><dd>{page.escape(value)}"
        f"{f' <small>{page.escape(beside)}</small>' if beside else ''}</dd></div>"
        for title, (value, beside) in facts.items()
    )
    tiles = len(facts) if len(facts) <= MOST_TILES else math.ceil(len(facts) / 2)
    return (
        f'<article class="card run" style="--run: var(--run-{run.color % 6})">'
        f'<h3>{page.escape(run.name)}</h3><p class="small">{page.escape(kind)}</p>'
        f'{said}<dl class="facts" style="--tiles: {tiles}">{pairs}</dl>{notes}</article>'
    )


def _facts(run: ReportRun) -> dict[str, tuple[str, str]]:
    """The main numbers of a run: title -> value, and a text beside it."""
    intervals: Mapping[str, Interval] = run.analyses.get("intervals", {})
    facts: dict[str, tuple[str, str]] = {}
    partly = ("concordance", "hit_share")
    for key in dict.fromkeys([error_key([run]), "mae", "r2", "spearman", *partly]):
        score = run.over_seeds("test", key)
        if score is not None or key == "mae":
            interval = "" if run.other_seeds else page.between(intervals.get(key))
            beside = f"95 % interval {interval}" if interval else ""
            facts[page.capital(score_words(key))] = (with_spread(score), beside)
    for target, found in run.analyses.get("coverage", {}).items():
        of_target = f" of {target}" if len(run.targets) > 1 else ""
        title = f"{100 * found.confidence:.3g} % intervals{of_target} hold"
        facts[title] = coverage_words(found)
    for target in run.scores("distribution"):
        of_target = f" of {target}" if len(run.targets) > 1 else ""
        crps = run.over_seeds("distribution", target, "crps")
        facts[f"CRPS of the distribution{of_target}"] = (with_spread(crps), "")
    gap = run.analyses.get("order", {}).get("gap")
    if gap is not None:
        facts["Distance of the loss from the lowest possible"] = (page.number(gap), "")
    for column, readable in readable_columns(run).items():
        facts[page.capital(f"{column} in the features")] = (readable.words, "")
    validation = run.over_seeds("validation_error")
    if validation is not None:
        facts["Validation error"] = (with_spread(validation), "")
    facts["Training"] = (page.duration(run.seconds), "per seed" if run.other_seeds else "")
    if counts := run.scores("n"):
        facts["Samples"] = (", ".join(f"{page.number(n)} {part}" for part, n in counts.items()), "")
    return facts
