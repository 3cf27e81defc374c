"""Sections about the features: their map in two dimensions, and their similarities."""

from collections.abc import Sequence

import numpy as np

from rnc.analyses.maps import MAP_TITLES
from rnc.report import figures as draw
from rnc.report import page
from rnc.report.figures import Figure, SimilarityMatrix
from rnc.report.runs import FeatureMap, ReportRun, float_list
from rnc.report.samples import Pictures, color_columns
from rnc.report.sections.numbers import readable_columns, union
from rnc.run.folder import AnalysisResult
from rnc.run.partial import PartialRun

_ENOUGH_COLORS = 0.6  # share of a common colour scale that each run must use
_SIMILARITIES = {
    "l2": "minus L2 distance",
    "l1": "minus L1 distance",
    "cosine": "cosine similarity",
}


def read_map(result: AnalysisResult, run: PartialRun) -> FeatureMap:
    """analyses/map.json."""
    method = str(result.content.get("method") or "map")
    method = MAP_TITLES.get(method, method)
    return _feature_map(result, run, method, (f"{method} 1", f"{method} 2"))


def read_pca(result: AnalysisResult, run: PartialRun) -> FeatureMap:
    """analyses/pca.json."""
    first, second = (float(share) for share in result.content["shares"])
    axes = (f"component 1 ({first:.0%})", f"component 2 ({second:.0%})")
    return _feature_map(result, run, "PCA", axes)


def _feature_map(
    result: AnalysisResult, run: PartialRun, method: str, axes: tuple[str, str]
) -> FeatureMap:
    points = np.column_stack([float_list(result.content[axis]) for axis in "xy"])
    rows = np.array(result.content["rows"], dtype=np.int64)
    if rows.shape != points.shape[:1] or len(rows) < 2:
        raise ValueError(f"needed two or more rows, x and y; got {rows.shape} and {points.shape}.")
    n = 0 if run.predictions is None else len(run.predictions)
    finite = np.isfinite(points).all(axis=1)
    if finite.sum() < 2 or not 0 <= rows.min() <= rows.max() < n:
        raise ValueError(f"its rows are not among the {n} of predictions.csv.")
    return FeatureMap(method, rows[finite], points[finite], axes, int(finite.sum()))


def draw_maps(runs: Sequence[ReportRun], pictures: Pictures, figures: list[Figure]) -> str:
    """The features of every run in two dimensions. The reader chooses the column for colours."""
    slots, methods = [], []
    for i, run in enumerate(runs):
        if run.map is None:
            continue
        figure = draw.point_map(run.map.points, run.map.axes)
        figure |= {"run": i, "points": run.places(run.map.rows)}
        note, file = _note(run, run.map), f"map {run.name}"
        slots.append(page.slot(figures, figure, run.title, note=note, file=file))
        methods.append(run.map.method)
    if not slots:
        return ""
    about = (
        f"The features of test samples in two dimensions ({', '.join(union([methods]))}). If they "
        "keep the order of the targets, the colour of the target changes steadily. If they also "
        "hold another column, its colours form patches. Point at a sample to see it in every run; "
        "double-click to zoom in. On the keyboard: the arrow keys move through a map."
    )
    options = "".join(
        f"<option>{page.escape(draw.short(column.title))}</option>"
        for column, _, _ in color_columns(runs)
    )
    choice = (
        '<div class="choice"><label>Colour by '
        f'<select id="coloring">{options}</select></label><div id="scale"></div></div>'
    )
    return page.section("Feature map", about, choice + page.grid(slots, "pairs"))


def _note(run: ReportRun, drawn: FeatureMap) -> str:
    """A note on a map: the number of samples, and the scores that describe it."""
    part = f" of {drawn.total:,}, chosen at random" if len(drawn.rows) < drawn.total else ""
    words = [f"{len(drawn.rows):,} samples{part}."]
    spearman = run.scores("test").get("spearman")
    if isinstance(spearman, float):
        words.append(f"Order kept: Spearman {spearman:.3f}.")
    for column, readable in readable_columns(run).items():
        words.append(f"{page.capital(column)} in the features: {readable.words}.")
    return " ".join(words)


def read_similarity(result: AnalysisResult, run: PartialRun) -> SimilarityMatrix:
    """analyses/similarity.json and similarity.safetensors."""
    labels = float_list(result.content["labels"])
    matrix = result.tensors["matrix"].double().numpy()
    if matrix.shape != (len(labels), len(labels)) or not len(labels):
        raise ValueError(f"needed a matrix ({len(labels)}, {len(labels)}); got {matrix.shape}.")
    if not np.isfinite(matrix).all():
        raise ValueError("needed finite similarities; some are not.")
    return SimilarityMatrix(str(result.content.get("target") or "target"), labels, matrix)


def draw_similarities(runs: Sequence[ReportRun], pictures: Pictures, figures: list[Figure]) -> str:
    """The similarity matrix of every run, in the order of the target."""
    drawn = [(run, run.analyses["similarity"]) for run in runs if "similarity" in run.analyses]
    names = [_SIMILARITIES.get(str(run.fit.get("similarity", "l2")), "similarity") for run in runs]
    limits = _common_limits([matrix for _, matrix in drawn]) if len(set(names)) == 1 else None
    slots = []
    for run, matrix in drawn:
        name = _SIMILARITIES.get(str(run.fit.get("similarity", "l2")), "similarity")
        note, file = f"{len(matrix.labels)} samples", f"similarity {run.name}"
        figure = draw.heat(matrix, name=name, limits=limits)
        slots.append(page.slot(figures, figure, run.title, note=note, file=file))
    about = (
        "How similar the features of two samples are. Rows and columns are in the order of the "
        "target. If the features keep that order, the similarity falls steadily away from the "
        "diagonal."
    )
    if len(slots) > 1:
        about += (
            " Each run has a colour scale of its own, from its least to its most similar pair: "
            "their features differ in size, so compare the patterns, not the numbers."
            if limits is None
            else " All runs share one colour scale."
        )
    return page.section("Similarity", about, page.grid(slots, "pairs"))


def _common_limits(matrices: Sequence[SimilarityMatrix]) -> tuple[float, float] | None:
    """Common limits for all matrices; None if one matrix would then have few colours."""
    limits = [draw.limits_of(matrix.values) for matrix in matrices]
    if not limits:
        return None
    low, high = min(low for low, _ in limits), max(high for _, high in limits)
    narrowest = min(high - low for low, high in limits)
    return (low, high) if narrowest >= _ENOUGH_COLORS * (high - low) else None
