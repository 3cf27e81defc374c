"""How runs do beyond their own data: unseen targets, less training data, other data."""

from collections.abc import Sequence

import numpy as np

from rnc.report import figures as draw
from rnc.report import page
from rnc.report.figures import Figure
from rnc.report.numbers import union
from rnc.report.samples import Looks, Shown


def other_data(shown: Sequence[Shown], looks: Looks, figures: list[Figure]) -> str:
    """The section, as far as the runs have such analyses."""
    slots = [*_unseen(shown, figures), *_reduced(shown, figures)]
    about = (
        "Unseen: targets outside the ranges that training has seen. Less data: models trained anew "
        "on a share of the training samples. Transfer: the encoder on other data."
    )
    return page.section("Other data", about, page.grid(slots) + _transfer(shown))


def _unseen(shown: Sequence[Shown], figures: list[Figure]) -> list[str]:
    having = [its for its in shown if "unseen" in its.run.analyses]
    if not having:
        return []
    bars = {
        f"{part} targets": [
            (its.run.name, its.color, its.run.analyses["unseen"][1][k]) for its in having
        ]
        for k, part in enumerate(("seen", "unseen"))
    }
    ranges = union([[its.run.analyses["unseen"][0] for its in having]])
    note = f"Targets that training has seen: {draw.short('; '.join(ranges), 120)}."
    figure = draw.rows("MAE", bars)
    return [page.slot(figures, figure, "Unseen targets", note=note, file="unseen-targets")]


def _reduced(shown: Sequence[Shown], figures: list[Figure]) -> list[str]:
    marks = []
    for its in shown:
        rows = its.run.analyses.get("reduced", [])
        for dash, scheme in enumerate(union([[str(row.get("scheme") or "") for row in rows]])):
            errors: dict[float, list[float]] = {}
            for row in rows:
                if str(row.get("scheme") or "") == scheme and isinstance(row.get("mae"), float):
                    errors.setdefault(float(row["n"]), []).append(row["mae"])
            n = np.array(sorted(errors))
            mean = np.array([np.mean(errors[size]) for size in n])
            name = f"{its.run.name}, {scheme}"
            marks.append(draw.line(n, mean, name, color=its.color, dash=dash, dots=True))
    marks = [mark for mark in marks if mark["x"]]
    if not marks:
        return []
    panel = {"title": "MAE, mean over the seeds", "marks": marks, "zero": True, "height": 1.4}
    figure = draw.curves("training samples", [panel])
    return [page.slot(figures, figure, "Less training data", file="less-data")]


def _transfer(shown: Sequence[Shown]) -> str:
    rows, data = [], []
    for its in shown:
        if "transfer" in its.run.analyses:
            where, found = its.run.analyses["transfer"]
            data.append(where)
            for row in found:
                scores = [page.number(row.get(key)) for key in ("mae", "r2", "spearman")]
                rows.append([its.run.name, where, str(row.get("scheme") or "-"), *scores])
    if not rows:
        return ""
    head = ["Run", "Data", "Scheme", "MAE", "R²", "Spearman"]
    return f"<h3>Transfer</h3>{page.table(head, rows)}"
