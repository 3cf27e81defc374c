"""The result of a run in one line: its error, and the errors of the baselines.

`answer` needs only scores.json and config.json. `rnc fit` shows it at its end, a report at its top.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# The first error that scores.json has is shown: its key, name, unit, and the baseline's guess.
_MEASURES = (
    ("angular_error", "mean angle", " degrees", "the mean direction"),
    ("circular_error", "the shorter way round", "", "the same value always"),
    ("mae", "MAE", "", "the median"),
)


@dataclass(frozen=True)
class Answer:
    """The most important results of a run, or of several runs, in words."""

    headline: str
    """One line, such as the error of the run and the errors of the baselines."""
    details: tuple[str, ...]
    """Further sentences, such as which scheme was kept, the penalty of a solved head, the coverage
    of intervals, the errors per target, and whether training was short."""


def answer(scores: Mapping[str, Any], config: Mapping[str, Any], run: str = "RUN") -> Answer:
    """The headline and the details of a run or an evaluation.

    Args:
        scores: the content of scores.json; older versions wrote no baselines.
        config: the content of config.json.
        run: the run folder as a user would type it, for the command that continues training.

    >>> scores = {"test": {"mae": 2.31}, "n": {"test": 412}, "baselines": {"median": {"mae": 8.94}}}
    >>> answer(scores, {"model": {"target_names": ["price"]}}).headline
    'price: off by 2.31 on average (MAE, 412 test rows); guessing the median: 8.94.'
    """
    test = scores.get("test") or {}
    measure = next((one for one in _MEASURES if test.get(one[0]) is not None), None)
    if measure is None:
        return Answer("There are no scores yet.", ())
    key, name, unit, guess = measure
    targets = list((config.get("model") or {}).get("target_names") or ["the target"])
    rows = (scores.get("n") or {}).get("test")
    counted = "" if rows is None else f", {rows:,} test {'row' if rows == 1 else 'rows'}"
    weighted = "weight" in (scores.get("columns") or {}).values()
    counted += ", weighted" if weighted else ""
    over = " over all targets" if len(targets) > 1 and key == "mae" else ""
    parts = [
        f"{', '.join(targets)}: off by {number(test[key])}{unit} on average ({name}{over}{counted})"
    ]
    known = scores.get("baselines") or {}
    titles = {"median": f"guessing {guess}", "boosting": "gradient boosting (scikit-learn)"}
    for baseline, title in titles.items():
        error = (known.get(baseline) or {}).get(key)
        if error is not None:
            better = ", which is better here" if error < test[key] else ""
            parts.append(f"{title}: {number(error)}{better}")
    return Answer("; ".join(parts) + ".", tuple(_details(scores, key, run)))


def number(value: float) -> str:
    """A number as text with three significant digits, and all digits before the point.

    >>> number(2.3149), number(45312.4), number(0.00123), number(12.0)
    ('2.31', '45,312', '0.00123', '12.0')
    """
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:#.3g}" if abs(value) >= 0.001 or value == 0 else f"{value:.2e}"


def _head_words(head: Mapping[str, Any]) -> str:
    """The penalty and the balance of a solved head, as a sentence.

    >>> _head_words({"penalty": 0.01, "balance": 0.75})
    'The head was solved with ridge penalty 0.01 and balance 0.75: rare targets count more.'
    >>> _head_words({"penalty": 0.01, "balance": 0.0})
    'The head was solved with ridge penalty 0.01 and balance 0.'
    """
    balance = head.get("balance") or 0
    words = f"The head was solved with ridge penalty {head['penalty']:g} and balance {balance:g}"
    return f"{words}: rare targets count more." if balance else f"{words}."


def coverage_words(intervals: Mapping[str, Any], rows: int | None = None) -> list[str]:
    """The entry "intervals" of scores.json as sentences: one or two per target, then any cost.

    >>> found = {"coverage": 0.86, "low": 0.77, "high": 0.93, "width": 7.2, "expected": 0.8}
    >>> known = {"rows": 40, "reused": False, "kinds": {"age": "bins"}}
    >>> print(*coverage_words(known | {"coverage": {"0.9": {"age": found}}}, 80))
    age: 90% intervals hold 86.0% (77.0 to 93.0) of 80 rows; mean width 7.20 (bins, 40 calibration \
rows).
    """
    lines = []
    by_confidence = intervals.get("coverage") or {}
    source = "validation" if intervals.get("reused") else "calibration"
    for target, kind in (intervals.get("kinds") or {}).items():
        found = {float(name): of[target] for name, of in by_confidence.items() if target in of}
        if not found:
            continue
        held = ", ".join(map(_held, found.values()))
        asked = ", ".join(f"{confidence:.0%}" for confidence in found)
        counted = "the" if rows is None else f"{rows:,}"
        main = found.get(0.9) or next(iter(found.values()))
        lines.append(
            f"{target}: {asked} intervals hold {held} of {counted} rows; mean width "
            f"{number(main['width'])} ({kind}, {intervals.get('rows')} {source} rows)."
        )
        lines += _broken(target, found)
    if lines and (cost := intervals.get("cost")):
        lines.append(f"The intervals are {cost}.")
    return lines


def _broken(target: str, found: Mapping[float, Mapping[str, float]]) -> list[str]:
    """A sentence about coverages that are too low to be chance; [] if there are none."""
    broken = [one for one in found if found[one]["coverage"] < found[one]["expected"]]
    if not broken:
        return []
    least = ", ".join(f"{found[confidence]['expected']:.1%}" for confidence in broken)
    asked = ", ".join(f"{confidence:.0%}" for confidence in broken)
    return [
        f"{target}: the {asked} intervals do not keep their promise here. On rows like the "
        f"calibration rows, they would almost always hold {least} or more. These rows are probably "
        "different (shift)."
    ]


def _held(one: Mapping[str, float]) -> str:
    """A coverage with its exact 95 % interval, in percent."""
    return f"{one['coverage']:.1%} ({100 * one['low']:.1f} to {100 * one['high']:.1f})"


def _details(scores: Mapping[str, Any], key: str, run: str) -> list[str]:
    details = []
    if "kept" in scores:
        tried = sorted((scores.get("auto") or {}).items(), key=lambda item: item[1])
        errors = ", ".join(f"{scheme} {number(error)}" for scheme, error in tried)
        details.append(f"Of the schemes, {scores['kept']} was kept. Validation errors: {errors}.")
    if head := scores.get("head"):
        details.append(_head_words(head))
    if oversample := scores.get("oversample"):
        details.append(
            f"Rare targets were drawn more often in training (oversample {oversample:g})."
        )
    details += coverage_words(scores.get("intervals") or {}, (scores.get("n") or {}).get("test"))
    baselines = scores.get("baselines") or {}
    medians = (baselines.get("median") or {}).get("per_target") or {}
    boosting = baselines.get("boosting") or {}
    boosted = boosting.get("per_target") or {}
    for target, own in (scores.get("per_target") or {}).items() if key == "mae" else ():
        if "mae" not in own:
            continue
        line = f"{target}: off by {number(own['mae'])}"
        line += f"; the median: {number(medians[target])}" if target in medians else ""
        line += f"; gradient boosting: {number(boosted[target])}" if target in boosted else ""
        details.append(f"{line}.")
    rows, learned = (scores.get("n") or {}).get("train"), boosting.get("rows")
    if rows is not None and isinstance(learned, int) and learned < rows:
        details.append(f"Gradient boosting learned from {learned:,} of {rows:,} training rows.")
    training = scores.get("training") or {}
    if training.get("enough") is False:
        advice = f" Go on with: rnc resume {run} --epochs {training.get('epochs')}"
        details.append(
            f"Training was short: {training.get('why')}."
            + (advice if training.get("epochs") else "")
        )
    return details
