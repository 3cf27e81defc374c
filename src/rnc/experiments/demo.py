"""The demos: data with known targets, learned with L1 and with RnC.

digits    real digits, turned by known angles; the angle does not depend on the digit
volumes   balls of known radii in noise; the radius does not depend on the scanner

The digit and the scanner play the role of the webcam in the paper: a representation that follows
the target does not need them.
"""

from collections.abc import Callable
from pathlib import Path

from rnc.experiments import scores
from rnc.experiments.data import BALLS, DIGITS, Data
from rnc.experiments.plan import Line, Plan, Row, Setting, base_config
from rnc.experiments.run import Say, run_plan
from rnc.experiments.store import Store
from rnc.run.folder import REPORT_FILE
from rnc.training.record import ShowRecord


def demo_plan(setting: Setting) -> Plan:
    """L1 and RnC with the same small encoder, epochs and learning rate, and no augmentation."""
    nuisance, unit = setting.data.nuisance or "", _UNITS[setting.data.name]
    columns = {
        f"MAE ({unit})": scores.error,
        "R2": scores.r2,
        "Spearman": scores.spearman,
        f"{nuisance} readable": scores.readable(nuisance),
    }
    lines = [
        Line("L1", "", setting.end2end(views=0), columns),
        Line("RnC(L1)", "", setting.rnc(views=0), columns),
    ]
    return Plan(
        f"{_TITLES[setting.data.name]}, learned with L1 and with RnC",
        f"No augmentation. {nuisance.capitalize()} readable: how well a linear probe reads the "
        f"{nuisance} from features.",
        lines,
        analyses=("map", "order", "subgroups", "readable"),
        report=REPORT_FILE,
    )


DEMOS: dict[str, Callable[[], Data]] = {"digits": Data.of_digits, "volumes": Data.of_balls}
_UNITS = {DIGITS: "degrees", BALLS: "voxels"}
_TITLES = {DIGITS: "The angle of a digit", BALLS: "The radius of a ball"}


def run_demo(
    out: Path,
    *,
    seeds: int,
    epochs: int,
    kind: str = "digits",
    command: str = "",
    show: ShowRecord,
    say: Say,
) -> list[Row]:
    """The scores of both methods. Writes a report of all seeds to OUT/report.html."""
    data = DEMOS[kind]()
    setting = Setting(data, base_config(data, "quick", epochs, {}), seeds)
    store = Store(out, command=command)
    return run_plan("demo", demo_plan(setting), setting, store, show=show, say=say)
