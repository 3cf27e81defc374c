"""The training samples that are nearest to each of the worst errors."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypedDict

from rnc.json_types import check_json
from rnc.report import figures as draw
from rnc.report import page
from rnc.report.runs import ReportRun
from rnc.run.folder import AnalysisResult
from rnc.run.partial import PartialRun
from rnc.run.thumbnails import Thumbnails, parse_thumbnails

DrawPicture = Callable[[int], str]
"""The row of a sample -> the HTML of its picture, "" if it has none."""


class SeenSample(TypedDict):
    """A training sample."""

    name: str
    targets: list[float]
    distance: float
    picture: int | None
    inputs: dict[str, str]


class _WorstSample(TypedDict):
    row: int
    out_of_range: bool
    neighbours: list[SeenSample]


class _NeighboursFile(TypedDict):
    """The fields of analyses/neighbours.json, see `rnc.run.neighbours`."""

    kept: int
    total: int
    checked: int
    out_of_range: int
    limit: float
    worst: list[_WorstSample]


class SeenInTraining(NamedTuple):
    """The nearest training samples of the worst errors."""

    nearest: dict[int, list[SeenSample]]
    """The neighbours by row of predictions.csv."""
    out_of_range: frozenset[int]
    """Rows that are far from all training samples."""
    pictures: Thumbnails | None
    """Pictures of training samples. Picture p has row -1 - p, which no test sample has."""
    kept: int
    """The number of training samples that test samples were compared with."""
    far_away: str
    """How many of the test samples are out of range, such as "3 of 2,000"."""


def read_neighbours(result: AnalysisResult, run: PartialRun) -> SeenInTraining:
    """analyses/neighbours.json and neighbours.safetensors."""
    check_json(result.content, _NeighboursFile, "")
    content, n = result.content, 0 if run.predictions is None else len(run.predictions)
    worst: list[_WorstSample] = content["worst"]
    seen = [sample for one in worst for sample in one["neighbours"]]
    if outside := [one["row"] for one in worst if not 0 <= one["row"] < n]:
        raise ValueError(f"row {outside[0]} is not among the {n} of predictions.csv.")
    if any(len(sample["targets"]) != len(run.targets) for sample in seen):
        raise ValueError(f"needed {len(run.targets)} targets of every training sample.")
    pictures, count = None, 0
    if result.tensors:
        count = len(result.tensors["rows"])
        pictures = parse_thumbnails(result.tensors, count)
        pictures = pictures._replace(rows=-1 - pictures.rows)
    if any(not 0 <= place < count for s in seen if (place := s["picture"]) is not None):
        raise ValueError(f"it names pictures beyond the {count} in neighbours.safetensors.")
    return SeenInTraining(
        {one["row"]: one["neighbours"] for one in worst},
        frozenset(one["row"] for one in worst if one["out_of_range"]),
        pictures,
        content["kept"],
        f"{content['out_of_range']:,} of {content['checked']:,}",
    )


def seen_by(run: ReportRun) -> SeenInTraining | None:
    """The neighbours in a run's analyses; None if it has no such analysis."""
    found: SeenInTraining | None = run.analyses.get("neighbours")
    return found


def about_neighbours(runs: Sequence[ReportRun]) -> str:
    """An explanation of the training samples below the worst errors; "" if no run has them."""
    found = [(run, seen) for run in runs if (seen := seen_by(run)) is not None and seen.nearest]
    if not found:
        return ""
    shares = ", ".join(
        f"{seen.far_away} test samples" + (f" of {run.title}" if len(runs) > 1 else "")
        for run, seen in found
    )
    kept = max(seen.kept for _, seen in found)
    return (
        " Each sample is shown with the training samples that are nearest in the features of the "
        "model, and their true values: the prediction is based on samples like these. If they look "
        "like the sample and agree with the prediction, check its label. If they do not look like "
        "it, the model has seen too few such samples. Out of range are samples that are far from "
        f"all {kept:,} training samples, 99 % of which have a closer neighbour: {shares}."
    )


def draw_flag(run: ReportRun, row: int) -> str:
    """A remark if a sample is far from all training samples, else ""."""
    seen = seen_by(run)
    if seen is None or row not in seen.out_of_range:
        return ""
    return '<br><span class="far">out of range: far from all training samples</span>'


def draw_nearest(run: ReportRun, row: int, picture: DrawPicture) -> str:
    """The training samples that are nearest to a test sample: pictures, names and targets."""
    seen = seen_by(run)
    samples = [] if seen is None else seen.nearest.get(row, [])
    if not samples:
        return ""
    items = []
    for sample in samples:
        drawn = "" if sample["picture"] is None else picture(-1 - sample["picture"])
        items.append(f"<li>{drawn}<span>{_values(run, sample)}<br>{_name(sample)}</span></li>")
    return (
        f'<div class="seen"><p class="small">Nearest in training</p><ol>{"".join(items)}</ol></div>'
    )


def _values(run: ReportRun, sample: SeenSample) -> str:
    """The true targets of a training sample; only the number if there is one target."""
    if len(run.targets) == 1:
        return f"<b>{page.escape(page.number(float(sample['targets'][0])))}</b>"
    pairs = zip(run.targets, sample["targets"], strict=True)
    lines = (f"{draw.short(target, 16)}: {page.number(float(value))}" for target, value in pairs)
    return "<br>".join(page.escape(line) for line in lines)


def _name(sample: SeenSample) -> str:
    return f'<span class="small">{page.escape(draw.short(sample["name"], 24))}</span>'


def compared(run: ReportRun, row: int) -> list[SeenSample]:
    """The nearest training samples of a row of a table; [] unless all their features are known."""
    seen = seen_by(run)
    samples = [] if seen is None else seen.nearest.get(row, [])
    return samples if samples and all(sample["inputs"] for sample in samples) else []


def compare_targets(run: ReportRun, row: int, samples: Sequence[SeenSample]) -> str:
    """Lines of an HTML table with the true targets of a row and of its neighbours."""
    lines = []
    for j, target in enumerate(run.targets):
        values = [run.true[row, j], *(sample["targets"][j] for sample in samples)]
        cells = "".join(f"<td><b>{page.escape(page.number(float(v)))}</b></td>" for v in values)
        name = page.escape(f"{draw.short(target, 24)}, true")
        lines.append(f'<tr><th scope="row">{name}</th>{cells}</tr>')
    return "".join(lines)


def compare_head(samples: Sequence[SeenSample]) -> str:
    """The head of this HTML table: the names of the training samples."""
    names = "".join(
        f'<th scope="col">{page.escape(draw.short(sample["name"], 14))}</th>' for sample in samples
    )
    return (
        f'<thead><tr><td></td><td></td><th colspan="{len(samples)}" scope="colgroup">nearest in '
        f'training</th></tr><tr><td></td><th scope="col">this row</th>{names}</tr></thead>'
    )
