"""The pictures of the paper from finished runs: a function per picture, by the key in its plan.

They need matplotlib (extra: figures). So only `run.py` imports this file, and only to draw.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
import torch
from matplotlib.figure import Figure as Drawing
from numpy.typing import NDArray

from rnc.analyses.maps import MAP_TITLES, sorted_similarity
from rnc.augment import eval_view, train_views
from rnc.augment.configs import ImageAugment
from rnc.data.table import Table
from rnc.experiments import scores
from rnc.experiments.pairs import label_text, ranked_pairs, rows_at, toy_batch
from rnc.experiments.plan import Finished, Line, Outcome, Plan, Row, Setting
from rnc.experiments.subsets import UNSEEN_MODES, modes
from rnc.metrics import Columns
from rnc.report import plates
from rnc.report.figures import CATEGORY_COLORS, limits_of
from rnc.report.paper import STYLE
from rnc.run.folder import RunFolder
from rnc.run.groups import natural_key
from rnc.run.thumbnails import thumbnails

SIMILARITY_POINTS = 2000
"""Samples in the matrices of the paper's Figure 3."""
VIEW_SHARES = (0.0, 1 / 3, 2 / 3, 1.0)
"""The samples that are shown with their views, by their position in the range of the target."""
_GREEN, _RED, _GREY = "#2e7d32", "#b0413e", "#8a8f98"


class Material(NamedTuple):
    """The plan, its results and its setting, from which a picture is drawn."""

    plan: Plan
    rows: Sequence[Row]
    outcomes: Sequence[Outcome]
    setting: Setting

    @property
    def first_runs(self) -> list[tuple[str, Finished]]:
        """The first finished run of every line, with its method."""
        return [(line.method, found[0]) for line, found in self.outcomes if found]


def draw_picture(name: str, material: Material, path: Path) -> list[Path]:
    """Draw a picture by its name; returns the files, PATH.png and PATH.svg."""
    with mpl.rc_context(STYLE):
        return plates.write_plate(PICTURES[name](material), path)


# ----------------------------------------------------------------------------------------- maps


def draw_target_maps(material: Material) -> Drawing:
    """Figure 1: the features of every method side by side, coloured by the target."""
    runs = material.first_runs
    drawing, axes = plates.sheet(1, len(runs), side=2.3)
    limits = _target_limits([finished.run for _, finished in runs])
    for ax, (method, finished) in zip(axes[0], runs, strict=True):
        run = finished.run
        ax.set_title(_with_method(method, run))
        ax.set_xlabel(_spearman(finished))
        if (found := _map_of(run)) is None:
            plates.say_instead(ax, "All features are the same.")
        else:
            plates.draw_numbers(ax, found.points, run.truth[found.rows, 0], limits)
    target = runs[0][1].run.targets[0]
    plates.add_scale(drawing, plates.scale_of(limits), axes[0].tolist(), target)
    return drawing


def draw_spurious_maps(material: Material) -> Drawing:
    """Figure 6: a row per method, its features coloured by the target and the spurious column."""
    runs, column = material.first_runs, material.setting.data.nuisance
    assert column is not None
    drawing, axes = plates.sheet(len(runs), 2, side=2.4, wide=1.35)
    limits = _target_limits([finished.run for _, finished in runs])
    maps = [_map_of(finished.run) for _, finished in runs]
    names, numbers = _classes([finished.run for _, finished in runs], maps, column)
    for i, ((method, finished), found) in enumerate(zip(runs, maps, strict=True)):
        left, right = axes[i]
        left.set_ylabel(_with_method(method, finished.run))
        if found is None:
            plates.say_instead(left, f"{method}: all features are the same.")
            right.set_axis_off()
            continue
        drawn = plates.draw_numbers(left, found.points, finished.run.truth[found.rows, 0], limits)
        plates.add_scale(drawing, drawn, left, finished.run.targets[0])
        values = finished.run.subgroups[column][found.rows]
        if names:
            plates.draw_classes(right, found.points, values, names)
            plates.add_names(drawing, right, names, column)
        else:
            drawn = plates.draw_numbers(right, found.points, values.astype(np.float64), numbers)
            plates.add_scale(drawing, drawn, right, column)
    axes[0][0].set_title(f"by {runs[0][1].run.targets[0]}")
    axes[0][1].set_title(f"by {column}")
    return drawing


class DrawnMap(NamedTuple):
    """A map of features, read from the analysis of a run."""

    rows: NDArray[np.int64]
    points: Columns


def _map_of(run: RunFolder) -> DrawnMap | None:
    if not run.has_analysis("map"):
        return None
    content = run.analysis("map").content
    points = np.array([content["x"], content["y"]], dtype=np.float64).T
    return DrawnMap(np.array(content["rows"], dtype=np.int64), points)


def _with_method(method: str, run: RunFolder) -> str:
    """The name of a method, and the method of its map."""
    if not run.has_analysis("map"):
        return method
    return f"{method}, {MAP_TITLES[run.analysis('map').content['method']]}"


def _spearman(finished: Finished) -> str:
    value = scores.spearman(finished)
    return f"Spearman {value:.3f}" if np.isfinite(value) else ""


def _target_limits(runs: Sequence[RunFolder]) -> tuple[float, float]:
    return limits_of(np.concatenate([run.truth[run.rows, 0] for run in runs]))


def _classes(
    runs: Sequence[RunFolder], maps: Sequence[DrawnMap | None], column: str
) -> tuple[list[str], tuple[float, float]]:
    """The values of a column in all maps; if there are too many, no values, but their limits."""
    shown = [
        run.subgroups[column][found.rows]
        for run, found in zip(runs, maps, strict=True)
        if found is not None
    ]
    texts = np.unique(np.concatenate([*shown, np.empty(0, np.str_)])).tolist()
    if len(texts) <= len(CATEGORY_COLORS):
        return sorted(texts, key=natural_key), (0.0, 1.0)
    return [], limits_of(np.array(texts).astype(np.float64))


# ------------------------------------------------------------------------------------- matrices


def draw_matrices(material: Material) -> Drawing:
    """Figure 3: similarity matrices of up to 2,000 samples, sorted by the target."""
    runs = material.first_runs
    drawing, axes = plates.sheet(1, len(runs), side=3.0, wide=1.15)
    for ax, (method, finished) in zip(axes[0], runs, strict=True):
        run = finished.run
        labels = run.truth[run.rows, 0]
        chosen, matrix = sorted_similarity(run.features, labels, "l2", most=SIMILARITY_POINTS)
        drawn = plates.draw_matrix(ax, matrix, labels[chosen])
        ax.set(title=f"{method}, {len(chosen):,} samples", xlabel=run.targets[0])
        plates.add_scale(drawing, drawn, ax, "minus L2 distance")
    return drawing


# --------------------------------------------------------------------------------------- curves


def draw_severities(material: Material) -> Drawing:
    """Figure 4: the error by the severity of corruption."""
    drawing, axes = plates.sheet(1, 1, side=2.6, wide=1.35)
    ax = axes[0][0]
    for number, (line, _) in enumerate(material.outcomes):
        parts = [row for row in material.rows if row.method == line.method and row.values]
        x = [0 if row.score == "clean" else int(row.score.split()[-1]) for row in parts]
        _curve(ax, x, parts, line.method, number)
    ax.set(xlabel="severity, 0 is clean", ylabel=_error_name(material.setting))
    ax.legend(frameon=False)
    return drawing


def draw_sizes(material: Material) -> Drawing:
    """Figure 5: the error by the number of training samples."""
    return _draw_by_size(
        material,
        lambda line, finished: len(finished[0].planned.table.rows("train")),
        "training samples",
    )


def draw_batches(material: Material) -> Drawing:
    """The error by the number of samples in memory."""
    return _draw_by_size(
        material, lambda line, finished: int(line.setting.split()[0]), "samples in memory"
    )


def _draw_by_size(
    material: Material, size_of: Callable[[Line, Sequence[Finished]], int], title: str
) -> Drawing:
    """Curves of the error by a size of each line, one per method."""
    drawing, axes = plates.sheet(1, 1, side=2.6, wide=1.35)
    ax, error = axes[0][0], _error_name(material.setting)
    cells = {(row.method, row.setting): row for row in material.rows if row.score == error}
    sizes: set[int] = set()
    for number, method in enumerate(dict.fromkeys(line.method for line, _ in material.outcomes)):
        found = {
            size_of(line, finished): cells[method, line.setting]
            for line, finished in material.outcomes
            if line.method == method and finished
        }
        x = sorted(found)
        sizes |= set(x)
        _curve(ax, x, [found[size] for size in x], method, number)
    plates.use_sizes(ax, sorted(sizes))
    ax.set(xlabel=title, ylabel=error)
    ax.legend(frameon=False)
    return drawing


def _curve(ax: Any, x: Sequence[int], rows: Sequence[Row], name: str, number: int) -> None:
    middles = np.array([fmean(row.values) for row in rows])
    spreads = [stdev(row.values) if len(row.values) > 1 else np.nan for row in rows]
    plates.draw_curve(ax, np.array(x, np.float64), middles, np.array(spreads), name, number)


def _error_name(setting: Setting) -> str:
    return next(iter(scores.errors(setting.base.label_distance)))


def draw_label_distributions(material: Material) -> Drawing:
    """Table 5: the training targets, on ranges that training has seen (blue) or not (red)."""
    drawing, axes = plates.sheet(1, len(UNSEEN_MODES), side=1.9, wide=1.5)
    table = material.setting.data.table
    for ax, (title, count, gaps) in zip(axes[0], UNSEEN_MODES, strict=True):
        ranges = modes(table, count, gaps)
        runs = [found[0].planned for line, found in material.outcomes if line.setting == title]
        if runs:
            values = runs[0].table.y[runs[0].table.rows("train"), 0]
            plates.draw_labels(ax, values, ranges, (ranges[0][0], ranges[-1][1]))
        ax.set(title=title, xlabel=table.target_names[0], ylabel="training samples")
    return drawing


# -------------------------------------------------------------------------------------- samples


def draw_pairs(material: Material) -> Drawing:
    """Figure 2: a batch, and the positive pairs of an anchor with their negatives."""
    table, setting = material.setting.data.table, material.setting
    rows = toy_batch(table)
    labels = table.y[rows]
    pairs, texts = ranked_pairs(labels, setting.base.distance), [label_text(y) for y in labels]
    drawing, axes = plates.sheet(1 + len(pairs), len(rows), side=1.5, wide=1.15)
    pictures = _pictures(table, rows)

    def cell(line: int, place: int, sample: int, title: str, color: str) -> None:
        ax = axes[line][place]
        ax.set_axis_on()
        plates.draw_sample(ax, pictures[sample], texts[sample])
        plates.frame(ax, color)
        ax.set_title(title, color=color)

    for ax in axes.flat:
        ax.set_axis_off()
    for i, text in enumerate(texts):
        name = f"anchor: {text}" if i == 0 else text
        cell(0, i, i, name, "black" if i == 0 else _GREY)
    for line, pair in enumerate(pairs, start=1):
        cell(line, 0, 0, f"anchor: {texts[0]}", "black")
        named = f"positive: {texts[pair.positive]}"
        cell(line, 1, pair.positive, f"{named}\ndistance {pair.distance:.3g}", _GREEN)
        for place, negative in enumerate(pair.negatives, start=2):
            far = abs(_distance(pairs, negative))
            title = f"negative: {texts[negative]}\ndistance {far:.3g}"
            cell(line, place, negative, title, _RED)
    axes[0][0].set_ylabel("batch")
    for line in range(1, len(axes)):
        axes[line][0].set_ylabel(f"pair {line}")
    return drawing


def _distance(pairs: Sequence[Any], sample: int) -> float:
    return float(next(pair.distance for pair in pairs if pair.positive == sample))


def draw_views(material: Material) -> Drawing:
    """Table 7: samples without augmentation, and two augmented views of each."""
    table, config = material.setting.data.table, material.setting.base
    rows = rows_at(table, VIEW_SHARES)
    x = torch.from_numpy(np.array(table.x[rows]))
    side = min(x.shape[2:]) if table.kind == "image" else None
    augment = config.augmentation(table.kind, side)
    generator = torch.Generator().manual_seed(config.seed)
    views = train_views(x, augment, 2, generator)
    shown = [eval_view(x, augment), views[:, 0], views[:, 1]]
    drawing, axes = plates.sheet(len(shown), len(rows), side=1.5, wide=1.05)
    for line, (name, part) in enumerate(zip(("original", "view 1", "view 2"), shown, strict=True)):
        pixels = part
        if isinstance(augment, ImageAugment):  # undo the normalization, back to 0..1
            mean, std = (torch.tensor(v).view(-1, 1, 1) for v in (augment.mean, augment.std))
            pixels = part * std + mean
        elif table.kind == "volume":
            pixels = (
                torch.from_numpy(thumbnails(part.numpy(), np.arange(len(part)))["images"]) / 255
            )
        for place, ax in enumerate(axes[line]):
            plates.draw_sample(ax, pixels[place].numpy(), "")
            if line == 0:
                ax.set_title(f"{table.target_names[0]} {label_text(table.y[rows[place]])}")
        axes[line][0].set_ylabel(name)
    return drawing


def _pictures(table: Table, rows: NDArray[np.int64]) -> list[NDArray[Any] | None]:
    """Samples in the form for `plates.draw_sample`; None for rows of a table of columns."""
    if table.kind == "table":
        return [None] * len(rows)
    if table.kind == "volume":
        return list(thumbnails(table.x, rows)["images"] / 255)
    samples = np.array(table.x[rows])
    return list(samples / 255 if table.kind == "image" else samples)


PICTURES: dict[str, Callable[[Material], Drawing]] = {
    "target-maps": draw_target_maps,
    "spurious-maps": draw_spurious_maps,
    "matrices": draw_matrices,
    "severities": draw_severities,
    "sizes": draw_sizes,
    "batches": draw_batches,
    "label-distributions": draw_label_distributions,
    "pairs": draw_pairs,
    "views": draw_views,
}
