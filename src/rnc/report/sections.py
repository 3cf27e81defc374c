"""The sections of a report that are figures: what each one shows, and of which runs."""

from collections.abc import Callable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from rnc.analyses.breakdown import ENOUGH, target_errors
from rnc.metrics import SHOTS, mean_interval, shot_groups
from rnc.report import features as space
from rnc.report import figures as draw
from rnc.report import page
from rnc.report.analyses import Bins, Corruption, Group, bins_of
from rnc.report.figures import Figure
from rnc.report.gallery import gallery
from rnc.report.numbers import readable, union
from rnc.report.other_data import other_data
from rnc.report.runs import Run
from rnc.report.samples import Looks, Shown, color_columns

Array = NDArray[np.float64]
Section = Callable[[Sequence[Shown], Looks, list[Figure]], str]

_MAX_GROUPS = 50
_PANELS = {"loss": "train_loss", "gap to L*": "gap", "validation error": "val_error"}


def _map(shown: Sequence[Shown], looks: Looks, figures: list[Figure]) -> str:
    slots, methods = [], []
    for i, its in enumerate(shown):
        placed = its.placed
        if placed is None:
            continue
        figure = draw.point_map(placed.points, placed.titles)
        figure |= {"run": i, "points": its.places(placed.rows)}
        few = f" of {placed.total:,}, chosen at random" if len(placed.rows) < placed.total else ""
        note = f"{len(placed.rows):,} samples{few}. {_order_says(its.run)}"
        name = its.run.name
        slots.append(page.slot(figures, figure, name, note=note, file=draw.file_name("map", name)))
        methods.append(placed.method)
    if not slots:
        return ""
    about = f"Features of test samples in two dimensions ({', '.join(union([methods]))}). Where "
    about += (
        "they keep the order of the targets, the colour of the target changes steadily; where they "
        "hold another column too, that column's colours form patches. Point at a sample to see it "
        "in every run; a double click zooms in. With the keyboard: the arrow keys, on a map."
    )
    options = "".join(
        f"<option>{page.escape(draw.short(key.title))}</option>"
        for key, _, _ in color_columns(shown)
    )
    choice = (
        '<div class="choice"><label>Colour by '
        f'<select id="coloring">{options}</select></label><div id="scale"></div></div>'
    )
    return page.section("Feature map", about, choice + page.grid(slots, "pairs"))


def _order_says(run: Run) -> str:
    """The numbers that say what a map shows."""
    words = []
    spearman = run.part("test").get("spearman")
    if isinstance(spearman, float):
        words.append(f"Order kept: Spearman {spearman:.3f}.")
    known = {its: found for its, found in readable(run).items() if isinstance(found[0], float)}
    for column, (score, chance) in known.items():
        beside = "" if chance is None else f" (chance {chance:.2f})"
        words.append(f"Readable from the features: {column} {score:.2f}{beside}.")
    return " ".join(words)


def _similarities(shown: Sequence[Shown], looks: Looks, figures: list[Figure]) -> str:
    slots = []
    for its in shown:
        run, pairs = its.run, its.run.analyses.get("similarity")
        if pairs is not None:
            pairs = space.thinned(pairs)
        elif run.features is not None:
            values, rows = run.features
            pairs = space.similarity(values, run.true[rows, 0], run.targets[0])
        else:
            continue
        figure = draw.heat(pairs, name=_similarity_name(run))
        note = f"{len(pairs.labels)} samples"
        slots.append(
            page.slot(
                figures, figure, run.name, note=note, file=draw.file_name("similarity", run.name)
            )
        )
    about = (
        "How alike the features of two samples are, both in the order of the target. Where the "
        "features keep that order, it falls steadily away from the diagonal."
    )
    return page.section("Similarity", about, page.grid(slots, "pairs"))


def _similarity_name(run: Run) -> str:
    """In words. Without similarity.json, it is the L2 distance whatever the run was trained by."""
    known = {"l2": "minus L2 distance", "l1": "minus L1 distance", "cosine": "cosine similarity"}
    trained = str((run.config.get("fit") or {}).get("similarity"))
    return known.get(trained, "similarity") if "similarity" in run.analyses else known["l2"]


def _predictions(shown: Sequence[Shown], looks: Looks, figures: list[Figure]) -> str:
    grids, thinned = [], {}
    for target in union(its.run.targets for its in shown):
        having = [(i, its) for i, its in enumerate(shown) if target in its.run.targets]
        columns = {}
        for i, its in having:
            j = its.run.targets.index(target)
            columns[i] = (its.run.true[:, j], its.run.predicted[:, j])
        limits = _limits(part[np.isfinite(part)] for parts in columns.values() for part in parts)
        slots = []
        for i, its in having:
            if not len(its.drawn):
                continue
            true, predicted = (part[its.drawn] for part in columns[i])
            total = int(np.isfinite(its.run.errors).sum())
            if len(true) < total:
                thinned[i] = f"{len(true):,} of {total:,} points of {its.run.name}"
            figure = draw.scatter(true, predicted, target=target, limits=limits)
            figure |= {"run": i, "points": its.places(its.drawn), "color": its.color}
            caption = f"{its.run.name}: {target}"
            file = draw.file_name("predicted", its.run.name, target)
            slots.append(page.slot(figures, figure, caption, file=file))
        grids.append(page.grid(slots, "pairs"))
    about = "Each point is a test sample; on the dashed line the prediction is right."
    if thinned:
        about += f" Drawn: {', '.join(thinned.values())}, chosen at random. Scores count all."
    return page.section("Predictions", about, "".join(grids))


def _targets(shown: Sequence[Shown], looks: Looks, figures: list[Figure]) -> str:
    slots = []
    for target in union(its.run.targets for its in shown):
        bins = [
            (its.run.name, its.color, found)
            for its in shown
            if target in its.run.targets and (found := _bins(its.run, target)) is not None
        ]
        if bins:
            figure = draw.bins_figure(target, bins)
            file = draw.file_name("error-by", target)
            slots.append(page.slot(figures, figure, f"Error by {target}", file=file))
    shots = {f"{shot} shot": _shot_bars(shown, shot) for shot in SHOTS}
    if any(shots.values()):
        figure = draw.rows("MAE", {shot: bars for shot, bars in shots.items() if bars})
        slots.append(page.slot(figures, figure, "Error by shot group", file="error-by-shots"))
    about = (
        "Mean absolute error of test samples by their true value; the bands are 95 % intervals. "
        "Below, how many samples there are: errors often grow where training had few."
    )
    if any(shots.values()):
        about += (
            " Many, medium and few: labels with more than 100, 20 to 100, and less than 20 "
            "training samples."
        )
    return page.section("Error by target", about, page.grid(slots))


def _bins(run: Run, target: str) -> Bins | None:
    """The bins of targets.json; without it, those of the predictions."""
    if target in run.analyses.get("targets", {}):
        found: Bins = run.analyses["targets"][target]
        return found
    j = run.targets.index(target)
    true, errors = run.true[:, j], np.abs(run.predicted[:, j] - run.true[:, j])
    kept = np.isfinite(errors)
    if not kept.any():
        return None
    train = None if run.train is None else run.train[:, j]
    return bins_of(target_errors(errors[kept], true[kept], train))


def _shot_bars(shown: Sequence[Shown], shot: str) -> list[tuple[str, int, Group]]:
    """The error of a shot group in every run, with its interval where training labels are known."""
    bars = []
    for its in shown:
        run, test = its.run, its.run.part("test")
        if not isinstance(mae := test.get(f"{shot}_mae"), float):
            continue
        span = None
        if run.train is not None and len(run.targets) == 1:
            known = np.isfinite(run.errors)
            here = shot_groups(run.true[known], run.train) == shot
            span = mean_interval(run.errors[known][here])
        n = int(test.get(f"{shot}_n") or 0)
        bars.append((run.name, its.color, Group(shot, n, mae, *(span or (None, None)))))
    return bars


def _subgroups(shown: Sequence[Shown], looks: Looks, figures: list[Figure]) -> str:
    groups = {its.run.name: _groups(its.run) for its in shown}
    slots = []
    for column in union(groups.values()):
        bars = [(its.run.name, its.color, groups[its.run.name].get(column, [])) for its in shown]
        total = len({group.value for _, _, of_run in bars for group in of_run})
        few = f", the {draw.MAX_BARS} largest of {total}" if total > draw.MAX_BARS else ""
        figure = draw.subgroup_figure(bars)
        words = [_worst(name, of_run) for name, _, of_run in bars if of_run]
        slots.append(
            page.slot(
                figures,
                figure,
                f"Error by {column}{few}",
                note=" ".join(words),
                file=draw.file_name("subgroups", column),
            )
        )
    about = (
        "Mean absolute error of the test samples that share a value of a column. Lines are 95 % "
        "intervals: where those of two bars overlap widely, the difference may be chance."
    )
    return page.section("Subgroups", about, page.grid(slots))


def _groups(run: Run) -> dict[str, list[Group]]:
    """Groups of subgroups.json; without it, of the predictions; without those, of scores.json."""
    found: dict[str, list[Group]] = dict(run.analyses.get("subgroups", {}))
    known = np.isfinite(run.errors)
    for column in run.subgroup_columns():
        if column in found or run.predictions is None:
            continue
        values = run.predictions[column].to_numpy(np.str_)
        distinct = np.unique(values[known])
        if len(distinct) <= _MAX_GROUPS:
            parts = {value: run.errors[known & (values == value)] for value in distinct.tolist()}
            found[column] = [_group(value, part) for value, part in parts.items()]
    for column, its in run.part("subgroups").items():
        groups = [
            Group(value, int(group.get("n") or 0), float(group["mae"]), None, None)
            for value, group in its.items()
            if isinstance(group.get("mae"), float)
        ]
        if groups:
            found.setdefault(column, groups)
    return found


def _group(value: str, errors: Array) -> Group:
    span = mean_interval(errors) or (None, None)
    return Group(value, len(errors), float(errors.mean()), *span)


def _worst(name: str, groups: Sequence[Group]) -> str:
    """Which group is worst, of those with enough samples to say so."""
    large = [group for group in groups if group.n >= ENOUGH] or list(groups)
    large = [group for group in large if np.isfinite(group.mae)]
    if not large:
        return ""
    worst, best = (pick(large, key=lambda group: group.mae) for pick in (max, min))
    gap = page.number(worst.mae - best.mae)
    return f"{name}: worst is {draw.short(worst.value)}, {gap} above the best."


def _gallery(shown: Sequence[Shown], looks: Looks, figures: list[Figure]) -> str:
    return gallery(shown, looks)


def _corruption(shown: Sequence[Shown], looks: Looks, figures: list[Figure]) -> str:
    having = [its for its in shown if "corruption" in its.run.analyses]
    if not having:
        return ""
    found: dict[str, Corruption] = {its.run.name: its.run.analyses["corruption"] for its in having}
    lines, bars = [], {}
    for its in having:
        severity, error = np.array(found[its.run.name].mean, dtype=np.float64).reshape(-1, 2).T
        lines.append(draw.line(severity, error, its.run.name, color=its.color, dots=True))
    for kind in union(its.curves for its in found.values()):
        bars[kind] = [
            (its.run.name, its.color, _over_severities(found[its.run.name], kind))
            for its in having
            if kind in found[its.run.name].curves
        ]
    measure = next(iter(found.values())).measure
    panel = {"title": measure, "marks": lines, "zero": True, "height": 1.4}
    figure = draw.curves("severity, 0 is clean", [panel], whole=True)
    slots = [
        page.slot(figures, figure, "Mean over all corruptions", file="corruption-mean"),
        page.slot(
            figures, draw.rows(measure, bars), "Mean over the severities", file="corruption-kinds"
        ),
    ]
    about = "Error on corrupted test samples, at severities 1 to 5."
    return page.section("Corruption", about, page.grid(slots) + _corruption_table(having, found))


def _over_severities(of_run: Corruption, kind: str) -> Group:
    errors = [error for severity, error in of_run.curves[kind] if severity > 0]
    return Group(kind, of_run.n, float(np.mean(errors)), None, None)


def _corruption_table(having: Sequence[Shown], found: dict[str, Corruption]) -> str:
    severities = sorted(
        {s for its in found.values() for curve in its.curves.values() for s, _ in curve}
    )
    rows = [
        [f"{its.run.name}: {kind}", *(page.number(dict(curve).get(s)) for s in severities)]
        for its in having
        for kind, curve in found[its.run.name].curves.items()
    ]
    head = ["Corruption", *(f"severity {s}" if s else "clean" for s in severities)]
    return page.folded("All corruptions and severities", page.table(head, rows))


def _training(shown: Sequence[Shown], looks: Looks, figures: list[Figure]) -> str:
    slots = []
    for its in shown:
        history, name = its.run.history, its.run.name
        if history is not None and len(history):
            panels = {title: history[key].to_numpy() for title, key in _PANELS.items()}
            figure = draw.training_figure(history["stage"].tolist(), panels, color=its.color)
            if figure["panels"]:
                slots.append(
                    page.slot(figures, figure, name, file=draw.file_name("training", name))
                )
    about = (
        "Gap to L*: how far the loss is above its lower bound, which only features in the order "
        "of the targets come near. While an encoder is trained alone, its validation error is that "
        "of a quick probe."
    )
    return page.section("Training", about, page.grid(slots))


SECTIONS: tuple[Section, ...] = (
    _map,
    _similarities,
    _predictions,
    _targets,
    _subgroups,
    _gallery,
    _corruption,
    other_data,
    _training,
)


def _limits(parts: Iterable[Array]) -> tuple[float, float]:
    """Axis limits with a margin, around all the numbers."""
    low, high = space.limits_of(np.concatenate([*parts, np.empty(0)]))
    margin = 0.03 * ((high - low) or 1.0)
    return low - margin, high + margin
