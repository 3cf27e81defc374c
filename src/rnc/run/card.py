"""README.md of a run on the hub, its model card: data, scores, use, limits, training, licence."""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from rnc.augment.configs import SignalAugment
from rnc.files import CALIBRATION_FILE, REFERENCE_FILE
from rnc.metrics import score_words
from rnc.run.folder import RunFolder

_KINDS = {"image": "photos", "signal": "signals", "table": "rows of a table"}
_TASKS = {"table": "tabular-regression"}
_SCORES = ("mae", "angular_error", "circular_error", "rmse", "r2", "spearman")


def model_card(
    run: RunFolder,
    repository: str,
    *,
    licence: str | None,
    config: dict[str, Any],
    files: Sequence[str],
) -> str:
    """The model card of a finished run.

    Args:
        run: the run.
        repository: owner/name on the hub.
        licence: the licence of the model, such as "apache-2.0"; None if it is not given.
        config: config.json as it is published.
        files: names of the files beside the card.
    """
    parts = [
        _front(run, licence),
        f"# {repository.partition('/')[2]}\n",
        f"{_plain(run.answer.headline)}\n",
        _data(run),
        _scores(run),
        _use(run, repository, with_neighbours=REFERENCE_FILE in files),
        _limits(run, repository, files),
        _training(config),
        _licence(licence),
    ]
    return "\n".join(part for part in parts if part)


def _front(run: RunFolder, licence: str | None) -> str:
    kind = run.config["model"]["kind"]
    lines = ["library_name: rank-n-contrast"]
    lines += [f"license: {json.dumps(licence)}"] if licence else []
    lines += [f"pipeline_tag: {_TASKS[kind]}"] if kind in _TASKS else []
    lines += ["tags:", "- rank-n-contrast", "- regression", f"- {kind}"]
    return "\n".join(["---", *lines, "---", ""])


def _data(run: RunFolder) -> str:
    model, counts = run.config["model"], run.scores.get("n") or {}
    rows = ", ".join(f"{count:,} {split}" for split, count in counts.items())
    lines = [f"It was trained on {_KINDS.get(model['kind'], model['kind'])} ({rows} rows)."]
    if model["kind"] == "signal":
        channels, length = model["input_shape"]
        total = SignalAugment(**model["augment"]).totals(length)
        lines.append(f"Channels of a signal: {channels}; values in each: {total}.")
    columns = (model.get("preprocessing") or {}).get("columns")
    if columns:
        named = [f"{_code(column['name'])} ({column['type']})" for column in columns]
        more = f" and {len(named) - 50} more" if len(named) > 50 else ""
        lines.append(f"Columns: {', '.join(named[:50])}{more}.")
    for i, target in enumerate(run.targets):
        if run.train_targets is not None:
            known = run.train_targets[:, i]
            low, middle, high = np.nanquantile(known, [0.01, 0.5, 0.99])
            lines.append(
                f"{_code(target)} in training: median {middle:.4g}, 98% of rows from {low:.4g} "
                f"to {high:.4g}."
            )
    return _section("Data", "\n".join(f"- {line}" for line in lines))


def _scores(run: RunFolder) -> str:
    test = run.scores.get("test") or {}
    spans = run.analysis("intervals").content if run.has_analysis("intervals") else {}
    lines = ["| score on the test rows | value | 95% interval |", "|---|---|---|"]
    for name in _SCORES:
        if test.get(name) is not None:
            span = spans.get(name)
            shown = "" if span is None else f"{span['low']:.4g} to {span['high']:.4g}"
            lines.append(f"| {score_words(name)} | {test[name]:.4g} | {shown} |")
    found = (run.scores.get("intervals") or {}).get("coverage") or {}
    said = [
        f"Intervals of {100 * float(level):.4g}% held {100 * part['coverage']:.1f}% of the test "
        f"rows for {_code(target)} (exact interval {100 * part['low']:.1f}% to "
        f"{100 * part['high']:.1f}%; mean width {part['width']:.4g})."
        for level, targets in found.items()
        for target, part in targets.items()
        if float(level) == 0.9
    ]
    return _section("Scores", "\n".join([*lines, "", *said]))


def _use(run: RunFolder, repository: str, *, with_neighbours: bool) -> str:
    kind = run.config["model"]["kind"]
    new = {"image": '"photos/"', "table": '"new.csv"'}.get(kind, '"new.npz"')
    explain = f"\nmodel.explain({new})  # nearest training samples" if with_neighbours else ""
    return _section(
        "Use",
        f"""```
pip install 'rank-n-contrast[hub]'
rnc predict hf://{repository} {new.strip('"')} -o predictions.csv
```

```python
import rnc

model = rnc.load("hf://{repository}")
model.predict({new}){explain}
```""",
    )


def _limits(run: RunFolder, repository: str, files: Sequence[str]) -> str:
    folder = repository.partition("/")[2]
    labelled = (
        "labelled.csv" if run.config["model"]["kind"] in ("image", "table") else "labelled.npz"
    )
    lines = [
        "Its scores hold only for data like those above, read in the same way. On other data, "
        "errors can be much larger.",
        "Scores are means over the test rows. Groups of rows can have larger errors: evaluate it "
        f"on your own labelled data first: `hf download {repository} --local-dir {folder}`, then "
        f"`rnc evaluate {folder} --data {labelled}`.",
    ]
    if CALIBRATION_FILE in files:
        lines.append(
            "Intervals hold the promised share of new rows if these are like the calibration rows. "
            "This is the share of all rows: in some groups of rows it can be lower."
        )
    else:
        lines.append("It has no intervals.")
    if REFERENCE_FILE not in files:
        lines.append("Training samples are not published: it cannot say which are nearest.")
        kinds = (run.scores.get("intervals") or {}).get("kinds") or {}
        if "normalised" in kinds.values():
            lines.append(
                "The coverage above is that of normalised intervals, which need the training "
                "samples. The published model uses another kind, with the same promised coverage."
            )
    return _section("Limits", "\n".join(f"- {line}" for line in lines))


def _training(config: dict[str, Any]) -> str:
    used = config.get("resolved") or config.get("fit") or {}
    names = ("scheme", "objective", "head", "epochs", "batch_size", "seed")
    choices = ", ".join(f"{name} {used[name]}" for name in names if used.get(name) is not None)
    version = (config.get("environment") or {}).get("rank-n-contrast", "unknown")
    lines = [f"Encoder {config['model']['encoder']}; {choices}; rank-n-contrast {version}."]
    if config.get("command"):
        lines += ["", "```", str(config["command"]).replace("`", "'"), "```"]
    return _section("Training", "\n".join(lines))


def _licence(licence: str | None) -> str:
    words = f"{_plain(licence)}." if licence else "Not said. Ask the owner before you use it."
    return _section("Licence", words)


def _section(title: str, text: str) -> str:
    return f"## {title}\n\n{text.strip()}\n"


def _code(text: str) -> str:
    """A name as code in Markdown."""
    return f"`{' '.join(text.split()).replace('`', chr(39))}`"


def _plain(text: str) -> str:
    """A name or sentence with the special characters of Markdown escaped."""
    return "".join(f"\\{letter}" if letter in "\\`*_[]<>|#" else letter for letter in text)
