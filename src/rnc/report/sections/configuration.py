"""The section of the configuration: commands and settings."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from rnc.report import page
from rnc.report.figures import Figure
from rnc.report.runs import ReportRun
from rnc.report.samples import Pictures
from rnc.report.sections.numbers import union


def draw_configuration(runs: Sequence[ReportRun], pictures: Pictures, figures: list[Figure]) -> str:
    """The commands that made the runs, and every setting."""
    commands = "".join(
        f"<h3>{page.escape(run.name)}</h3>"
        f"<pre><code>{page.escape(run.config['command'])}</code></pre>"
        for run in runs
        if run.config.get("command")
    )
    shown = ("data", "fit", "tuning", "weights", "model", "environment")
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
