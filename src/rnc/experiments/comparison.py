"""All methods of the paper's Table 3 with the same data, encoder, augmentation, epochs and rate.

    rnc compare

trains on the digits of the demo, which are turned by known angles; the angle is the target. To
reproduce the paper's own table, use `rnc reproduce sota`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rnc.config import Preset
from rnc.data.table import Table
from rnc.experiments import scores
from rnc.experiments.data import DIGITS, Data
from rnc.experiments.plan import (
    Line,
    OwnObjective,
    Plan,
    PlannedRun,
    Row,
    Setting,
    base_config,
    check_line_fields,
)
from rnc.experiments.published import FINETUNE, PROBE
from rnc.experiments.run import Say, chosen_data, run_plan
from rnc.experiments.store import Store
from rnc.methods.objective import PairLoss
from rnc.training.recipes import weightless
from rnc.training.record import ShowRecord

NAME = "comparison"
PROBED = f"Representation learning ({PROBE})"
FINETUNED = f"Representation learning ({FINETUNE})"
REGRESSION = "Regression learning (end to end)"


@dataclass(frozen=True)
class Method:
    """A method: its name, and its changes to the common config."""

    name: str
    changes: Mapping[str, Any]
    objective: PairLoss | None = None
    """A loss of your own, which takes features (n, v, d) and targets (n, t)."""
    one_target: bool = False
    """Whether the method needs data with a single target."""

    @property
    def learns_representation(self) -> bool:
        """Whether an objective trains the encoder, which is then probed or fine-tuned."""
        return "scheme" not in self.changes

    def runs(self, setting: Setting, scheme: str = "probe") -> tuple[PlannedRun, ...]:
        """Its runs, one per seed; `scheme` is used if the method learns a representation."""
        own = None if self.objective is None else OwnObjective(self.name, self.objective)
        return setting.runs(own=own, **{"scheme": scheme, **self.changes})


_VIEWS = {"views": None}  # two while the objective trains; the preset chooses for fine-tuning
METHODS = (
    Method("SimCLR", {"objective": "simclr", **_VIEWS}),
    Method("DINO", {"objective": "dino", **_VIEWS}),
    Method("SupCon", {"objective": "supcon", **_VIEWS}),
    Method("RnC(L1)", {"objective": "rnc"}),
    Method("RnC(L1) + C-Mixup", {"objective": "rnc", "c_mixup": True}),
    Method("L1", {"scheme": "end2end"}),
    Method("LDS+FDS", {"scheme": "end2end", "lds": True, "regularizer": "fds"}, one_target=True),
    Method("L2CS-Net", {"scheme": "end2end", "head": "l2cs"}),
    Method("LDE", {"scheme": "end2end", "head": "lde"}, one_target=True),
    Method("RankSim", {"scheme": "end2end", "regularizer": "ranksim"}),
    Method("Ordinal Entropy", {"scheme": "end2end", "regularizer": "ordinal-entropy"}),
    Method("C-Mixup", {"scheme": "end2end", "c_mixup": True}),
    Method("L1, two-stage", {"scheme": "two-stage"}),
)


def methods_named(names: Sequence[str]) -> Sequence[Method]:
    """The METHODS with these names, in the order of METHODS; all of them for no names."""
    known = [method.name for method in METHODS]
    if unknown := [name for name in names if name not in known]:
        raise ValueError(
            f"There is no method {', '.join(map(repr, unknown))} in the comparison; known are "
            f"{', '.join(map(repr, known))}."
        )
    return [method for method in METHODS if not names or method.name in names]


def compare(
    data: Table | Data | str,
    out: str | Path,
    *,
    methods: Sequence[Method] = METHODS,
    seeds: int = 3,
    preset: Preset = "quick",
    epochs: int | None = None,
    fit: Mapping[str, Any] | None = None,
    end2end_lr: float | None = None,
    command: str = "",
    show: ShowRecord = lambda record: None,
    track: Sequence[str] = (),
    say: Say = print,
) -> list[Row]:
    """The rows of a comparison. Methods that learn a representation are probed and fine-tuned.

    Writes OUT/comparison.csv and OUT/comparison.md. Runs that an earlier call finished below `out`
    are not trained again, except those of your own objective, since it may have changed.

    Args:
        data: a table, `Data`, or "digits" for the demo.
        out: the folder of runs, encoders and the table.
        methods: the methods; those that need one target, or cannot weigh samples, are left out if
            the data do not fit.
        seeds: number of trainings of each method.
        preset: best: our recipe; paper: the paper's epochs and optimizer; quick: a first look.
        epochs: of the encoder and of end-to-end training. Fine-tuning has the same number on the
            digits; otherwise its epochs change in proportion.
        fit: further fields of FitConfig, for all methods that use them.
        end2end_lr: learning rate of end-to-end training, if it differs from that of encoders.
        command: what the user typed, for the reports of the runs.
        show: takes the record of every epoch that is trained.
        track: names of trackers that also get the records of each run.
        say: takes lines of text.
    """
    chosen = chosen_data(data)
    usual = _on_digits(epochs) if chosen.name == DIGITS else {}
    given = {**usual, **(fit or {})}
    base = base_config(chosen, preset, epochs, given)
    setting = Setting(chosen, base, seeds, end2end_lr, given)
    targets = chosen.table.y.shape[1]
    fitting = [method for method in methods if targets == 1 or not method.one_target]
    for method in methods:
        if method not in fitting:
            say(f"{method.name} left out: it needs one target, {chosen.name} has {targets}.")
    if chosen.table.weight is not None:
        fitting = _weighing(fitting, setting, say)
    plan = comparison_plan(setting, fitting)
    check_line_fields(plan, given)
    store = Store(Path(out), chosen.source, command, track=track)
    return run_plan(NAME, plan, setting, store, show=show, say=say)


def _weighing(methods: Sequence[Method], setting: Setting, say: Say) -> list[Method]:
    """The methods that can weigh samples; `say` is told about the others."""
    able = []
    for method in methods:
        unable = weightless(method.runs(setting)[0].config)
        if unable:
            say(f"{method.name} left out: {' and '.join(unable)} cannot weigh samples.")
        else:
            able.append(method)
    return able


def _on_digits(epochs: int | None) -> dict[str, Any]:
    """Fields that all methods share on the digits, in addition to those of the demo.

    SimCLR and DINO need views that differ by more than brightness, so crops are on. Mirror images
    stay off, since they would change the angle. With preset quick, or with `epochs`, fine-tuning is
    as long as the training of the encoder.
    """
    shorter = {} if epochs is None else {"head_epochs": epochs}
    return {"crop": True, "grayscale": True, "prototypes": 256, "head_epochs": 12} | shorter


def comparison_plan(setting: Setting, methods: Sequence[Method] = METHODS) -> Plan:
    """The plan of a comparison: two lines for each method with a representation, else one."""
    columns = {
        **scores.errors_and_r2(setting.base.label_distance),
        "Spearman": scores.spearman,
        scores.SECONDS: scores.seconds,
    }
    lines = []
    for method in methods:
        if method.learns_representation:
            lines.append(Line(method.name, PROBED, method.runs(setting), columns))
            lines.append(Line(method.name, FINETUNED, method.runs(setting, "finetune"), columns))
        else:
            lines.append(Line(method.name, REGRESSION, method.runs(setting), columns))
    return Plan(
        "All methods with one encoder, augmentation, rate and number of epochs",
        "Like the paper's Table 3, but there each method has the learning rate that suits it best.",
        lines,
        grouped=True,
    )
