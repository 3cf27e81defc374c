"""Every result of the paper by name: a function that makes the plan of a table from a setting.

The tables are here; the figures are in paper_figures.py.

A function raises DoesNotApply if the data lack something that the result needs. To add a result,
add a function, a line in RESULTS, its numbers in published.csv, and a line in docs/reproduce.md.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from rnc.augment.configs import MEASURED_SIDES
from rnc.data.table import Table
from rnc.experiments import scores
from rnc.experiments.comparison import METHODS
from rnc.experiments.data import DIGITS
from rnc.experiments.gains import with_average, with_best_other, with_gains
from rnc.experiments.lines import l1_and_rnc, line_of
from rnc.experiments.paper_figures import FIGURES
from rnc.experiments.plan import Line, MakePlan, Outcome, Plan, Row, Setting
from rnc.experiments.published import (
    FINETUNE,
    PAPER_DATASETS,
    PAPER_HEADS,
    PROBE,
    RATIO,
    TO_AGEDB,
    TO_IMDB,
    published,
)
from rnc.experiments.subsets import UNSEEN_MODES, modes, with_modes, with_size
from rnc.run.folder import DoesNotApply

TWO_VIEWS = 2
SHORTER = 2
"""With resnet50 and preset quick, the epochs on the digits are divided by this number. All of them
would take half an hour on a CPU."""


def main(setting: Setting) -> Plan:
    """Seven heads, trained end to end, and on the frozen encoder of RnC."""
    lines = []
    for head, name in PAPER_HEADS.items():
        lines += [
            line_of(setting, name, setting.end2end(head=head)),
            line_of(setting, f"RnC({name})", setting.rnc(head=head)),
        ]
    counts = (setting.given.get("head_options") or {}).get("decode") == "class"
    how = ["the expected class", "the number of thresholds passed"][:: -1 if counts else 1]
    about = f"OR and CORN predict {how[0]}, not {how[1]}; the paper does not say which it takes."
    title = "End-to-end regression, and the same heads on RnC"
    return Plan(title, about, lines, derive=with_average)


def sota(setting: Setting) -> Plan:
    """Other methods for learning representations, and other regression methods."""
    methods = {method.name: method for method in METHODS}
    has_several = setting.data.table.y.shape[1] > 1
    lines = []
    for name, how in _sota_rows(setting.data.name):
        method = methods[name]
        if method.one_target if has_several else name == "L2CS-Net":
            continue
        runs = method.runs(setting, "finetune" if how == FINETUNE else "probe")
        lines.append(Line(name, how, runs, scores.errors(setting.base.label_distance)))
    return Plan(
        "Representation learning and regression methods",
        "The paper does not give the temperatures, projection heads and weights of these methods. "
        "docs/reproduce.md (What is ours) lists our choices, and where they differ from the "
        "methods' own papers. Where the paper has a dash, nothing is run.",
        lines,
        derive=with_best_other,
    )


def _sota_rows(data: str) -> list[tuple[str, str]]:
    """Method and setting of the rows that the paper has for these data, or else for any dataset."""
    datasets = [data] if published("sota", data) else PAPER_DATASETS
    keys = [key for dataset in datasets for key in published("sota", dataset)]
    return list(dict.fromkeys((method, how) for method, how, _ in keys))


def correlation(setting: Setting) -> Plan:
    """How well feature similarities follow label similarities."""
    columns = {"Spearman": scores.spearman, "Kendall": scores.kendall}
    similarity = setting.base.similarity
    names = {"cosine": "the cosine", "l1": "minus the L1 distance", "l2": "minus the L2 distance"}
    return Plan(
        "Correlation between feature and label similarities",
        f"The feature similarity is {names.get(similarity, similarity)}, over all pairs of up to "
        "2,000 test samples. The paper does not say which feature similarity it used.",
        l1_and_rnc(setting, columns),
        analyses=("similarity",),
        picture="matrices",
    )


def transfer(setting: Setting) -> Plan:
    """Encoders of one table, probed and fine-tuned on another, in both directions."""
    if setting.data.pair is None:
        raise DoesNotApply(
            f"transfer needs a second table beside {setting.data.name}, of the same kind and "
            "target: --other FILE, or --other NAME --other-root DIR for a dataset; from Python, "
            "Data.with_other."
        )
    (a, first), (b, second) = setting.data.pair
    lines = []
    for title, source, target in (_transfer(a, b, first, second), _transfer(b, a, second, first)):
        for name, make in (("L1", setting.end2end), ("RnC(L1)", setting.rnc)):
            start = make(table=source)
            for scheme, how in (("probe", PROBE), ("finetune", FINETUNE)):
                runs = setting.runs(table=target, start=start, scheme=scheme)
                lines.append(line_of(setting, name, runs, f"{title}, {how}"))
    return Plan(
        f"Transfer between {a} and {b}",
        "Fine-tuning starts from a solved head and uses a tenth of the learning rate. Where only a "
        "part of IMDB-WIKI is used, we draw this part at random, anew for each seed.",
        lines,
        derive=with_gains,
    )


def _transfer(
    a: str, b: str, source: Table, target: Table
) -> tuple[str, Callable[[int], Table], Callable[[int], Table]]:
    """Title, source and target of a transfer. As in the paper, only a part of IMDB-WIKI is used."""
    if (a, b) == ("agedb", "imdb-wiki"):
        return TO_IMDB, lambda seed: source, lambda seed: with_size(target, 2_000, seed)
    if (a, b) == ("imdb-wiki", "agedb"):
        return TO_AGEDB, lambda seed: with_size(source, 32_000, seed), lambda seed: target
    return f"{a} -> {b}", lambda seed: source, lambda seed: target


def unseen(setting: Setting) -> Plan:
    """Training targets with gaps, and test targets without gaps."""
    table = setting.data.table
    if table.y.shape[1] > 1:
        raise DoesNotApply(
            f"unseen needs one target; {setting.data.name} has {', '.join(table.target_names)}. "
            "Read it with one of them."
        )
    lines = []
    for title, count, gaps in UNSEEN_MODES:
        ranges = modes(table, count, gaps)
        columns = {
            "MAE, all": scores.error,
            "MAE, seen": scores.error_inside(ranges, seen=True),
            "MAE, unseen": scores.error_inside(ranges, seen=False),
        }
        part = partial(with_modes, table, ranges)
        lines += l1_and_rnc(setting, columns, title, table=part)
    return Plan(
        "Targets that training has not seen",
        "The paper shows its training sets only in a picture. Our training targets lie in two or "
        "three ranges, with gaps between them. We draw half of the rows in these ranges, so that "
        "their targets follow a Gaussian in each. The gaps take the share of the whole range that "
        "the published numbers imply (22.5 % and 33.3 %). Validation has no targets in the gaps.",
        lines,
        picture="label-distributions",
        derive=with_gains,
    )


def ablation_positives(setting: Setting) -> Plan:
    """RnC with only the K nearest samples as positives."""
    table = setting.data.table
    base = setting.base.resolve(table.sizes, table.kind)
    assert base.batch_size is not None
    most = base.batch_size * max(1, base.contrast_views) - 1
    lines = []
    for quarters in (1, 2, 3, 4):
        k = min(most, (most + 1) * quarters // 4)
        runs = setting.rnc(positives=None if k == most else k)
        lines.append(line_of(setting, "RnC(L1)", runs, f"{k} of {most}"))
    return Plan(
        "Number of positives",
        "The loss of an anchor is the mean over its positives: the K nearest samples, and all that "
        "tie with the K-th.",
        lines,
    )


def ablation_similarity(setting: Setting) -> Plan:
    """RnC with cosine, L1 or L2 as the similarity of features."""
    names = {"cosine": "cosine", "l1": "negative L1 norm", "l2": "negative L2 norm"}
    lines = [
        line_of(setting, "RnC(L1)", setting.rnc(similarity=key), name)
        for key, name in names.items()
    ]
    temperature = lines[0].runs[0].config.method_options.temperature
    about = f"One temperature, {temperature:g}, for all three, unless each is tuned."
    return Plan("Similarity of features", about, lines)


def ablation_scheme(setting: Setting) -> Plan:
    """RnC with a frozen encoder, with fine-tuning, and with both losses at once."""
    names = {"probe": PROBE, "finetune": FINETUNE, "regularize": "regularization"}
    last, weight = setting.runs(scheme="finetune", finetune_keep="last"), setting.base.rnc_weight
    lines = [
        line_of(setting, "RnC(L1)", setting.runs(scheme=key), name) for key, name in names.items()
    ]
    lines.insert(2, line_of(setting, "RnC(L1)", last, f"{FINETUNE}, last epoch"))
    return Plan(
        "Training scheme",
        "Fine-tuning starts from a solved head and uses a tenth of the learning rate. If no epoch "
        "is better on validation, the start is kept. The line 'last epoch' always keeps the last "
        f"epoch. Regularization adds {weight:g} x RnC to the loss of the head. The paper does not "
        "specify these choices.",
        lines,
    )


def augmentation(setting: Setting) -> Plan:
    """L1, RnC and SimCLR with none, one or two augmented views."""
    one = scores.errors(setting.base.label_distance)
    lines = [
        Line("L1", "without", setting.end2end(views=0), one),
        Line("RnC(L1)", "without", setting.rnc(views=0), one),
        Line("L1", "with", setting.end2end(views=1), one),
        Line("RnC(L1)", "one view", setting.rnc(views=1), one),
        Line("RnC(L1)", "two views", setting.rnc(views=TWO_VIEWS), one),
        Line("SimCLR", "without", setting.rnc(objective="simclr", **_alike_views(setting)), one),
        Line("SimCLR", "two views", setting.rnc(objective="simclr", views=None), one),
    ]
    about = (
        "SimCLR is not in the paper's table; its text says that contrastive learning collapses "
        "without augmentation. In its line 'without', both views of a sample are the same."
    )
    return Plan("Data augmentation", about, lines)


def _alike_views(setting: Setting) -> dict[str, Any]:
    """Changes that make both views of a sample equal to it, for an objective that needs two."""
    kind, options = setting.data.table.kind, dict(setting.base.augment_options or {})
    for random in ("jitter", "jitter_p", "grayscale_p", "erase_sides", "erase_length", "mask"):
        options.pop(random, None)
    if kind in MEASURED_SIDES:
        options.pop("crop", None)
        options.pop("intensity", None)
    if kind == "table":
        options["noise"] = 0.0
    off = dict.fromkeys(("crop", "flip", "color", "grayscale"), False)
    return {
        **off,
        "crop_scale": None,
        "erase": 0.0,
        "test_views": "plain",
        "augment_options": options or None,
        "views": TWO_VIEWS,
    }


def two_stage(setting: Setting) -> Plan:
    """Whether a new L1 head on the frozen encoder improves end-to-end methods."""
    one = scores.errors(setting.base.label_distance)
    lines = []
    for head, name in PAPER_HEADS.items():
        runs = setting.runs(scheme="two-stage", head=head)
        lines += [
            Line(name, "end to end", setting.end2end(head=head), one),
            Line(name, "two stages", runs, one),
        ]
    lines.append(Line("RnC(L1)", "two stages", setting.rnc(), one))
    return Plan("Two stages for end-to-end methods", "", lines)


def resnet50(setting: Setting) -> Plan:
    """L1 and RnC with a larger encoder."""
    if setting.data.table.kind != "image":
        raise DoesNotApply(
            f"resnet50 needs images; {setting.data.name} holds {setting.data.table.kind}s."
        )
    shorter: dict[str, Any] = {}
    if setting.data.name == DIGITS and setting.base.preset == "quick":
        shorter["epochs"] = max(1, (setting.base.resolve().epochs or 1) // SHORTER)
    about = f"{shorter['epochs']} epochs, half of the other tables'." if shorter else ""
    lines = l1_and_rnc(setting, None, encoder="resnet50", **shorter)
    return Plan("ResNet-50 as the encoder", about, lines, derive=with_gains)


def std(setting: Setting) -> Plan:
    """The standard deviation of the best result over seeds."""
    paper = list(published("std", setting.data.name))
    name = paper[0][0] if paper else "RnC(L1)"
    head = next(key for key, value in PAPER_HEADS.items() if name == f"RnC({value})")
    one = scores.errors(setting.base.label_distance)
    lines = [Line(name, "", setting.rnc(head=head), one)]
    about = "The paper has 5 seeds, and on each dataset the head that was best there."
    return Plan("Spread over seeds", about, lines)


def efficiency(setting: Setting) -> Plan:
    """The time per epoch, compared with SupCon."""
    column = {scores.SECONDS: scores.seconds}
    supcon = setting.rnc(objective="supcon", views=TWO_VIEWS)
    lines = [
        Line("SupCon", "", supcon, column),
        Line("RnC", "", setting.rnc(views=TWO_VIEWS), column),
    ]
    return Plan(
        "Time per epoch",
        "Median over all epochs except the first. The paper's times are from 8 TITAN RTX. Times "
        "can only be compared if nothing else ran on the machine.",
        lines,
        derive=_ratio,
    )


def _ratio(rows: Sequence[Row], outcomes: Sequence[Outcome]) -> list[Row]:
    if len(rows) < 2:  # the caller chose one of the methods
        return list(rows)
    supcon, rnc = (row.values for row in rows)
    values = tuple(b / a for a, b in zip(supcon, rnc, strict=False))
    return [*rows, Row(RATIO, "", scores.SECONDS, values)]


RESULTS: dict[str, MakePlan] = {
    "main": main,
    "sota": sota,
    "correlation": correlation,
    "transfer": transfer,
    "unseen": unseen,
    "ablation-positives": ablation_positives,
    "ablation-similarity": ablation_similarity,
    "ablation-scheme": ablation_scheme,
    "augmentation": augmentation,
    "two-stage": two_stage,
    "resnet50": resnet50,
    "std": std,
    "efficiency": efficiency,
    **FIGURES,
}
